#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""force: a group of metads that lost its majority for good goes on with the one that is left: what is refused and reported, what was acknowledged
is there, new ones are added, and those that were lost come back with their old directories, lead each other, and disturb nobody."""

import atexit
import os
import random
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import members as group
from group import check_all, put
from localstore import LocalStore, build_dir, wait_until
from members import check

SIZES = [100, 1 << 20, (5 << 20) + 77]


def force(store, folder, number, *more, code, says):
    done = subprocess.run([os.path.join(build_dir(), "craton-metad"), "-c", store.env["CRATON_CONF"], "--dir", folder, "--replica", str(number),
                           "--force-config", *more], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    text = done.stdout + done.stderr
    check(done.returncode == code and says in text, f"--force-config {' '.join(more)}: exit {done.returncode}: {text}; it should say: {says}")
    return text


def lose_majority(store):
    """Returns the one that is left, and the others, whose directories are away."""
    view = wait_until(lambda: (v := group.members(store)) and group.is_level(v) and v, "all metads to be level")
    left = next(m["name"] for m in view["replicas"] if m["role"] != "leader")
    lost = [m for m in view["replicas"] if m["name"] != left]
    for m in lost:
        store.kill9(m["name"])
        os.rename(os.path.join(store.store, m["name"]), store.path(m["name"]))
    done = store.craton("mkdir", "/never", "--timeout", "5s", check=False)
    check(done.returncode != 0, "a directory was made by one metad of three")
    return left, lost


def force_it(store, left, lost):
    folder, number = os.path.join(store.store, left), int(left.removeprefix("metad-"))
    force(store, folder, number, code=1, says="another process uses it")
    store.kill9(left)
    empty = store.path("empty")
    os.mkdir(empty)
    force(store, empty, number, code=1, says="holds no replica")
    check(os.listdir(empty) == [], "a refusal leaves nothing")
    force(store, folder, number % 3 + 1, code=1, says="belongs to replica")
    force(store, folder, number, "--join", code=2, says="do not go with it")
    text = force(store, folder, number, code=2, says="nothing was changed")
    for m in lost:
        check(f"{m['name']}  {m['address']}\n" in text, f"{m['name']} is dropped, at {m['address']}: {text}")
    check("acknowledged or not" in text and "may ever be started again" in text and "UTC" in text, f"what may be lost: {text}")
    word = re.search(r"--confirm ([0-9a-f]{8})\n", text).group(1)
    force(store, folder, number, "--confirm", "0" * 8, code=2, says=f"of this one it is --confirm {word}")
    force(store, folder, number, "--confirm", word, code=0, says="is the only member of its group")
    force(store, folder, number, "--confirm", word, code=1, says="is the only one that votes")
    store.start_one(left)
    wait_until(group.is_group(store, [left]), "the one that is left to lead")


class Lost:
    """One that was dropped, with its old directory and the configuration of then: what nobody may do."""

    def __init__(self, store, member, conf):
        self.dir = store.path(member["name"])
        self.log = store.path(member["name"] + ".log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(build_dir(), "craton-metad"), "-c", conf, "--dir", self.dir, "--name", member["name"], "--listen", member["address"],
                 "--replica", str(member["number"])], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        atexit.register(self.kill)

    def leads(self):
        check(self.process.poll() is None, f"one that was dropped has ended: {self.log}")
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return "leads=1" in f.read()

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def come_back(store, lost, conf, files, rng):
    before = group.members(store)
    old = [Lost(store, {**m, "number": int(m["name"].removeprefix("metad-"))}, conf) for m in lost]
    wait_until(lambda: any(o.leads() for o in old), "one of those that were dropped to lead the others")
    for i in range(4):
        files.append(put(store, rng, f"/beside-{i}", 3 << 20))
        check_all(store, files)
    after = wait_until(lambda: (v := group.members(store)) and group.is_level(v) and v, "the forced group to be level")
    check([m["name"] for m in after["replicas"]] == [m["name"] for m in before["replicas"]], f"who is in the group: {after}")
    check((after["term"], after["leader"]) == (before["term"], before["leader"]), f"those that were dropped have disturbed it: {before}, then {after}")
    for o in old:
        o.kill()


def main():
    rng = random.Random(3)
    store = LocalStore(metad=3)
    files = [put(store, rng, f"/{size}", size) for size in SIZES]
    left, lost = lose_majority(store)
    force_it(store, left, lost)
    check_all(store, files)
    store.wait_up()
    files.append(put(store, rng, "/alone", 3 << 20))

    conf = store.env["CRATON_CONF"] + ".old"
    shutil.copy(store.env["CRATON_CONF"], conf)
    check(group.members(store)["next_id"] == 101, "numbers go on behind all that the others may have given")
    group.name_all(store)
    group.refused(store, "remove", "metad-50", says="no metad 'metad-50'")
    joined = [group.Joiner(store, number) for number in (101, 102)]
    for joiner in joined:
        group.change(store, "add", joiner.address)
    wait_until(group.is_group(store, [left, "metad-101", "metad-102"]), "three metads to be level")
    group.name_all(store)
    store.kill9(left)
    files.append(put(store, rng, "/without", 3 << 20))
    store.start_one(left)
    wait_until(group.is_group(store, [left, "metad-101", "metad-102"]), "three metads to be level again")
    check_all(store, files)
    come_back(store, lost, conf, files, rng)
    for _ in range(2):                    # who is told nothing asks again; its number is of before the jump
        group.change(store, "remove", left)
    wait_until(group.is_group(store, ["metad-101", "metad-102"]), "the forced one to be no member any more")
    check_all(store, files)
    print(f"the last of three metads was forced, and serves {len(files)} files with two new ones; those that were lost disturb nobody")


if __name__ == "__main__":
    main()
