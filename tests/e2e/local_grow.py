#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""local_grow: `craton local up DIR --metad N` makes a store of one metad one of three, and of five, while files are written and read; it goes on
with what was interrupted, and says what it cannot do."""

import os
import random
import shutil
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import members as group
from group import check_all, put
from localstore import LocalStore, build_dir, wait_until
from members import check


def conf(store, name):
    """The lines of a file of the store."""
    with open(os.path.join(store.store, name), encoding="ascii") as f:
        return f.readlines()


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


def record(store, **changed):
    """As if `local up` had been killed behind a record: these lines of local.conf are others, or there are more of them."""
    new = {name.replace("_", "-"): value for name, value in changed.items()}
    lines = [line for line in conf(store, "local.conf") if line.split(" ")[0] not in new]
    with open(os.path.join(store.store, "local.conf"), "w", encoding="ascii") as f:
        f.writelines([*lines, *(f"{name} = {value}\n" for name, value in new.items())])


def goes_on(store):
    """Interrupted behind each of its records: nothing runs yet, and the group took it already."""
    with socket.socket() as other:  # what was to be its port is another program's by now
        other.bind(("127.0.0.1", 0))
        other.listen()
        record(store, metad=4, metad_port_4=other.getsockname()[1], metad_joins=4)
        begin_fourth(store)
    record(store, metad_joins=4)
    up(store, "--metad", "5", metads=5)


def begin_fourth(store):
    os.mkdir(os.path.join(store.store, "metad-4"))
    done = store.craton("local", "up", store.store)
    store.metad_count = 4
    check(b"--metad 5" in done.stderr, f"four are no better than three: {done.stderr}")
    wait_until(group.is_group(store, store.metads()), "the fourth metad to be level")


def removed_meanwhile():
    """Who was added, and removed before that was noted, is in nobody's way, nor are others that were removed, and chunk servers that lost their disk."""
    store = LocalStore(metad=3, chunkd=3, policy="rs-1-2")
    record(store, metad_joins=3)
    group.change(store, "remove", "metad-3")
    done = store.craton("local", "up", store.store)
    check(b"removed from the group again" in done.stderr and not store.pid("metad-3"), f"a metad that was removed: {done.stderr}")
    check(b"The store runs: 2 metad" in done.stdout, f"a metad that was removed, counted: {done.stdout}")
    refused(store, "--metad", "5", says="were removed: others are added by hand")
    store.kill9("chunkd-3")
    shutil.rmtree(os.path.join(store.store, "chunkd-3", "disk"))
    record(store, metad=4, metad_port_4=1, metad_joins=4)  # a port of the system, which nobody gets
    os.mkdir(os.path.join(store.store, "metad-4"))
    refused(store, says="chunkd-3/disk is missing")
    store.metad_count = 4
    wait_until(group.is_group(store, ["metad-1", "metad-2", "metad-4"]), "the fourth metad to be level")
    store.destroy()


def joined_already():
    """Who joined, and votes, before that was noted: it may be anywhere, but with nothing of its own it must not come back."""
    store = LocalStore(metad=3, chunkd=3, policy="rs-1-2")
    folder = os.path.join(store.store, "metad-3")
    for _ in range(2):
        record(store, metad_joins=3)
        port = int(next(m["address"] for m in group.members(store)["replicas"] if m["name"] == "metad-3").split(":")[1])
        store.run("local", "stop", store.store, "metad-3")
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
            up(store, metads=3)
    record(store, metad_joins=3)
    store.kill9("metad-3")
    shutil.rmtree(folder)
    os.mkdir(folder)
    for _ in range(2):
        refused(store, says="metad-3 holds no replica")
        done = store.craton("local", "start", store.store, "metad-3", check=False)
        check(done.returncode != 0 and b"craton local up goes on with that" in done.stderr, f"started by hand: {done}")
        check(not store.pid("metad-3"), "a metad that has lost what it had runs")
    store.run("meta", "remove", "metad-3")
    done = store.craton("local", "up", store.store)
    check(b"removed from the group again" in done.stderr and b"The store runs: 2 metad" in done.stdout, f"a metad that was lost, and removed: {done}")
    store.destroy()


def at_once():
    """Several grow it, each by something else."""
    store = LocalStore(chunkd=3, policy="rs-1-2")

    def asks(*args):
        return subprocess.Popen([os.path.join(build_dir(), "craton"), "local", "up", store.store, *args], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    first = asks("--metad", "5")
    wait_until(lambda: any(line.startswith("metad-joins") for line in conf(store, "local.conf")), "the first of them to have begun")
    for process in (asks("--chunkd", "5"), asks("--metad", "5"), first):
        said = process.communicate(timeout=300)[1]
        check(process.returncode == 0, f"one of several that grow a store: {said}")
    store.count = 5
    up(store, metads=5)
    check("chunkd = 5\n" in conf(store, "local.conf"), f"what one added the other forgot: {conf(store, 'local.conf')}")
    store.destroy()


def refused_conversion():
    """What keeps the metad from becoming one of a group does not end it."""
    store = LocalStore(chunkd=3, policy="rs-1-2")
    os.mkdir(os.path.join(store.store, "metad-1", "founding.tmp"))
    refused(store, "--metad", "3", says="founding")
    check(store.pid("metad-1"), "the metad runs as before")
    os.rmdir(os.path.join(store.store, "metad-1", "founding.tmp"))
    up(store, "--metad", "3", metads=3)
    store.destroy()


def killed_between():
    """A metad has another port, which local.conf has and craton.conf has not yet."""
    store = LocalStore(chunkd=3, policy="rs-1-2")
    store.run("local", "down", store.store)
    record(store, metads_unnamed=1)
    path = os.path.join(store.store, "craton.conf")
    lines = [line if not line.startswith("metad =") else "metad = 127.0.0.1:1\n" for line in conf(store, "craton.conf")]
    with open(path, "w", encoding="ascii") as f:
        f.writelines(lines)
    store.run("local", "up", store.store)
    check(store.json("status")["health"] == "ok", "clients find the metad")
    check(not any(line.startswith("metads-unnamed") for line in conf(store, "local.conf")), "both name the same port")
    store.destroy()


def restored():
    """A group of metadata from a backup has numbers of its own, which no folder has: said before anything is changed."""
    store = LocalStore(chunkd=3, policy="rs-1-2")
    backup, folder = store.path("backup"), os.path.join(store.store, "metad-1")
    store.run("meta", "backup", backup)
    store.run("local", "stop", store.store, "metad-1")
    shutil.rmtree(folder)
    os.mkdir(folder)
    store.run("meta", "restore", folder, backup)
    store.run("local", "up", store.store)
    check(group.members(store)["next_id"] == 1001, "which number comes next")
    refused(store, "--metad", "3", says="the number 1001 to the next metad")
    check(not os.path.exists(os.path.join(folder, "table-0")), "it is no group")
    store.destroy()


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

    removed_meanwhile()
    joined_already()
    at_once()
    refused_conversion()
    killed_between()
    restored()
    print(f"a store of one metad had three and five: {len(files)} files, {len(load.files)} more meanwhile")


if __name__ == "__main__":
    main()
