#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""found: a store of one metad becomes a group and grows to three; then that group is lost, and founded anew of a backup. What was written is there
all along, and writes go on, also when the first metad is gone."""

import os
import random
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import members as group
from group import check_all, put
from localstore import LocalStore, build_dir, wait_until
from members import check

SIZES = [100, 1 << 20, (5 << 20) + 77]


def metad_args(store, *more):
    return [os.path.join(build_dir(), "craton-metad"), "-c", store.env["CRATON_CONF"], "--dir", os.path.join(store.store, "metad-1"), *more]


def refused(args, code, says):
    done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    check(done.returncode == code and says in done.stderr, f"{' '.join(args)}: exit {done.returncode}: {done.stderr}; it should say: {says}")


def name_metads(store, addresses):
    """What an operator does with `metad` of craton.conf."""
    conf = store.env["CRATON_CONF"]
    with open(conf, encoding="ascii") as f:
        lines = f.readlines()
    with open(conf, "w", encoding="ascii") as f:
        f.writelines(f"metad = {', '.join(addresses)}\n" if line.startswith("metad =") else line for line in lines)


def address_of(store):
    return group.members(store)["replicas"][0]["address"]


def convert(store):
    address = address_of(store)
    group.refused(store, "add", "127.0.0.1:1", says="docs/groups.md")
    refused(metad_args(store, "--listen", "127.0.0.1:0", "--replica", "1", "--found"), 1, "another process uses it")
    store.kill9("metad-1")
    refused(metad_args(store, "--listen", address, "--replica", "1"), 2, "--replica 1 --found")
    log = store.path("founding.log")
    with open(log, "wb") as f, subprocess.Popen(metad_args(store, "--listen", address, "--name", "metad-1", "--replica", "1", "--found"),
                                                stdin=subprocess.DEVNULL, stdout=f, stderr=f) as first:
        try:
            wait_until(lambda: first.poll() is None and b"leads=1" in open(log, "rb").read(), f"the first of the group to lead: {log}")
        finally:
            first.send_signal(signal.SIGKILL)
    check(b"becomes-a-group" in open(log, "rb").read(), "its log says what it did")
    refused(metad_args(store, "--listen", address), 2, "start it with --replica")
    refused(metad_args(store, "--listen", address, "--replica", "1", "--found"), 1, "without --found")
    store.start_one("metad-1")
    wait_until(group.is_group(store, ["metad-1"]), "the first of the group to lead")
    check(group.members(store)["next_id"] == 2, "the next one is the second")


def grow(store, numbers):
    joined = [group.Joiner(store, number) for number in numbers]
    for joiner in joined:
        group.change(store, "add", joiner.address)
    wait_until(group.is_group(store, ["metad-1", *(f"metad-{n}" for n in numbers)]), "three metads to be level")
    group.name_all(store)
    return joined


def go_on_without_the_first(store, files, rng, name):
    address = address_of(store)
    store.kill9("metad-1")
    files.append(put(store, rng, f"/{name}", 3 << 20))
    if name != "of-two": # later the list of metads has other numbers than places
        check_all(store, files)
        return
    folder = store.path("again")
    os.mkdir(folder)
    refused([*metad_args(store, "--listen", address, "--replica", "1", "--found"), "--dir", folder], 1, "`craton meta remove` what")
    check_all(store, files)


def found_anew(store, backup):
    folder = os.path.join(store.store, "metad-1")
    os.rename(folder, store.path("metad-1.lost"))
    os.mkdir(folder)
    for more in (["--replica", "1"], ["--found"], ["--replica", "2", "--found"]):
        refused(metad_args(store, "--restore", backup, *more), 2, "give both, or neither")
    check(os.listdir(folder) == [], "what is refused leaves nothing")
    said = store.run("meta", "restore", "--group", folder, backup).decode()
    check("number 1001" in said, f"numbers of before are not given again: {said}")
    refused(metad_args(store, "--restore", backup, "--replica", "1", "--found"), 1, "holds metadata already")


def main():
    rng = random.Random(4)
    store = LocalStore()
    files = [put(store, rng, f"/{size}", size) for size in SIZES]
    load = group.Load(store)
    load.goes_on("with one metad")
    convert(store)
    address = address_of(store)
    load.goes_on("with a group of one")
    check_all(store, files)
    files.append(put(store, rng, "/of-one", 3 << 20))
    joined = grow(store, [2, 3])
    load.goes_on("by clients that know three metads")
    go_on_without_the_first(store, files, rng, "of-two")
    store.start_one("metad-1")
    wait_until(group.is_group(store, ["metad-1", "metad-2", "metad-3"]), "three metads to be level again")
    load.goes_on("with the first one back")
    load.end()

    backup = store.path("backup")
    store.run("meta", "backup", backup)
    put(store, rng, "/late", 100)
    store.kill9("metad-1")
    for joiner in joined:
        joiner.kill()
    found_anew(store, backup)
    name_metads(store, [address])
    store.start_one("metad-1")
    wait_until(group.is_group(store, ["metad-1"]), "the first of the new group to lead")
    store.wait_up()
    check_all(store, files)
    check("restored" in store.craton("status", "--json", check=False).stdout.decode(), "status says that it was restored")
    check(store.craton("stat", "/late", check=False).returncode != 0, "what came after the backup is not known")
    files.append(put(store, rng, "/restored", 3 << 20))
    grow(store, [1001, 1002])
    go_on_without_the_first(store, files, rng, "without")
    print(f"a store of one metad became a group of three, and was restored as one: {len(files)} files")


if __name__ == "__main__":
    main()
