#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""local_grow: `craton local up DIR --metad N` makes a store of one metad one of three, and of five, while files are written and read; it goes on
with what was interrupted, and says what it cannot do."""

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import members as group
from group import check_all, put
from localstore import LocalStore, wait_until
from members import check


def conf(store, name, line=None):
    """The lines of a file of the store; `line`: with this one more."""
    path = os.path.join(store.store, name)
    with open(path, encoding="ascii") as f:
        lines = f.readlines()
    if line:
        with open(path, "w", encoding="ascii") as f:
            f.writelines([*lines, line])
    return lines


def up(store, *args, metads):
    store.run("local", "up", store.store, *args)
    store.metad_count = metads
    wait_until(group.is_group(store, store.metads()), f"{metads} metads to be level")
    named = next(line for line in conf(store, "craton.conf") if line.startswith("metad ="))
    check(named.split("=")[1].strip().split(", ") == [m["address"] for m in group.members(store)["replicas"]], f"craton.conf names the metads: {named}")
    check(not any(line.startswith("metad-joins") for line in conf(store, "local.conf")), "nothing is begun any more")


def refused(store, *args, says):
    done = store.craton("local", "up", store.store, *args, check=False)
    text = done.stderr.decode(errors="replace")
    check(done.returncode != 0 and says in text, f"craton local up {' '.join(args)}: exit {done.returncode}: {text}; it should say: {says}")


def goes_on(store):
    """Interrupted behind each of its records: nothing runs yet, and the group took it already."""
    port = int(group.members(store)["replicas"][-1]["address"].split(":")[1])
    lines = conf(store, "local.conf")
    with open(os.path.join(store.store, "local.conf"), "w", encoding="ascii") as f:
        f.writelines("metad = 4\n" if line.startswith("metad =") else line for line in lines)
        f.write(f"metad-port-4 = {port + 1}\nmetad-joins = 4\n")
    os.mkdir(os.path.join(store.store, "metad-4"))
    done = store.craton("local", "up", store.store)
    store.metad_count = 4
    check(b"--metad 5" in done.stderr, f"four are no better than three: {done.stderr}")
    wait_until(group.is_group(store, store.metads()), "the fourth metad to be level")
    conf(store, "local.conf", "metad-joins = 4\n")
    up(store, "--metad", "5", metads=5)


def main():
    rng = random.Random(5)
    store = LocalStore()
    files = [put(store, rng, f"/{size}", size) for size in (100, 1 << 20, (5 << 20) + 77)]
    load = group.Load(store)
    load.goes_on("with one metad")
    up(store, "--metad", "3", metads=3)
    load.goes_on("with three metads")
    store.kill9(group.leader(store))
    load.goes_on("with one of three down")
    up(store, metads=3)
    check_all(store, files)
    goes_on(store)
    load.goes_on("with five metads")
    load.end()
    store.run("local", "down", store.store, "--timeout", "2m")
    up(store, metads=5)
    check_all(store, files)
    refused(store, "--metad", "3", says="craton meta remove")
    refused(store, "--metad", "4", says="ask for one, three or five")
    store.destroy()

    store = LocalStore(metad=3, chunkd=1, policy="rs-1-2")
    group.change(store, "remove", "metad-3")
    refused(store, "--metad", "5", says="no metad is added before all run")
    store.destroy()
    print(f"a store of one metad had three and five: {len(files)} files, {len(load.files)} more meanwhile")


if __name__ == "__main__":
    main()
