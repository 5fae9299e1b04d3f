#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""members: the group of metads, operated: who is in it, with all, one and two of three down; leadership handed over; from three to five, to three,
to one and to three again while files are written and read, by clients that know the first three; what is refused, and why."""

import hashlib
import os
import random
import re
import shutil
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import promtext
from localstore import LocalStore, wait_until
from metads import Joiner, by_name, change, is_group, is_level, leader, members, name_all


def check(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def refused(store, *args, says):
    done = store.craton("meta", *args, check=False)
    text = done.stderr.decode(errors="replace")
    check(done.returncode == 1 and says in text, f"craton meta {' '.join(args)}: exit {done.returncode}: {text}; it should say: {says}")


def look(store):
    view = wait_until(lambda: (v := members(store)) and is_level(v) and v, "all metads to be level")
    check([m["name"] for m in view["replicas"]] == store.metads(), f"who is in the group: {view}")
    check(view["leader"] == view["answered_by"] and view["next_id"] == len(view["replicas"]) + 1, f"what the leader says: {view}")
    check(all(m["term"] == view["term"] and m["address"] for m in view["replicas"]), f"what each has: {view}")
    wait_until(lambda: (v := members(store)) and all(m["applied"] >= view["commit"] for m in v["replicas"]), "the rows of all to be as far as they were committed")
    text = store.run("meta", "ls").decode()
    check(len(text.splitlines()) == 2 + len(view["replicas"]) and "leader" in text, f"what people read: {text}")
    check(f"cluster version {view['cluster_version']}" in text, f"what people read: {text}")
    check(all(m["supports"] >= view["cluster_version"] > 0 for m in view["replicas"]), f"what each supports: {view}")


def hand_over(store):
    for name in store.metads():
        change(store, "transfer", name)
        check(leader(store) == name, f"{name} leads when leadership was handed over to it")
    before = leader(store)
    change(store, "transfer")
    check(leader(store) not in (None, before), "somebody else leads when leadership was handed over to whoever is best")
    change(store, "transfer", by_name(members(store))[before]["address"])
    check(leader(store) == before, "a metad is found by its address, too")
    refused(store, "transfer", "metad-9", says="no metad 'metad-9' in the group")
    store.run("meta", "snapshot")


def one_down(store):
    victim = next(n for n in store.metads() if n != leader(store))
    store.kill9(victim)
    view = wait_until(lambda: (v := members(store)) and by_name(v)[victim]["state"] == "down" and v, f"{victim} to be down")
    check(sum(m["state"] == "up" for m in view["replicas"]) == 2, f"the others are up: {view}")
    status = store.json("status", check=False)
    check([r["text"] for r in status["reasons"] if r["code"] == "metad-down" and victim in r["text"]], f"status says it: {status['reasons']}")
    refused(store, "transfer", victim, says="does not answer")
    return victim


def two_down(store, first):
    second = leader(store)
    last = next(n for n in store.metads() if n not in (first, second))
    store.kill9(second)
    view = wait_until(lambda: (v := members(store)) and v["leader"] == 0 and v, "the last one to know that nobody leads")
    check(f"metad-{view['answered_by']}" == last and len(view["replicas"]) == 3, f"the last one says who belongs to the group: {view}")
    check("nobody leads" in store.run("meta", "ls").decode(), "and people are told")
    for name in (first, second):
        store.start_one(name)


def write_out(store):
    """`snapshot` brings what was made into the table at once. By itself that comes there a tenth of a second later: it would not each time."""
    for turn in range(5):
        before = promtext.value(store.metrics("metad-1"), "craton_kv_table_rows")
        store.run("mkdir", *(f"/written-out-{turn}-{i}" for i in range(50)))
        store.run("meta", "snapshot")
        check(promtext.value(store.metrics("metad-1"), "craton_kv_table_rows") >= before + 50, "the table has the rows of what was made")


def one_alone():
    store = LocalStore(chunkd=1, policy="rs-1-2")
    view = members(store)
    check([(m["role"], m["state"], m["lag"]) for m in view["replicas"]] == [("leader", "up", 0)], f"a store of one metad: {view}")
    refused(store, "transfer", says="has one metad")
    write_out(store)
    store.kill9("metad-1")
    refused(store, "ls", says="metad at")
    store.destroy()


FRAME_BYTES = 4096  # frames of the log begin at such
PATIENCE = ("--timeout", "5m")  # a lone metad that is started anew is away for longer than commands wait for an answer by themselves


class Load:
    """Files are written and read all the time, by clients that wait for metads that are away; none may fail."""

    def __init__(self, store):
        self.store, self.files, self.failure, self.stopping = store, {}, None, False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        rng = random.Random(2)
        try:
            while not self.stopping:
                path, data = f"/load-{len(self.files)}", rng.randbytes(rng.choice([10, 5000, 300000]))
                source = self.store.path("load-source")
                with open(source, "wb") as f:
                    f.write(data)
                self.store.run("put", *PATIENCE, source, path)
                self.files[path] = hashlib.sha256(data).hexdigest()
                self.read(rng.choice(list(self.files)))
        except Exception as e:  # pylint: disable=broad-except
            self.failure = e

    def read(self, path):
        check(hashlib.sha256(self.store.run("cat", *PATIENCE, path)).hexdigest() == self.files[path], f"{path} came back different")

    def goes_on(self, what):
        count = len(self.files)
        wait_until(lambda: self.failure or len(self.files) > count + 2, f"files to be written {what}")
        check(not self.failure, f"{what}: {self.failure}")

    def end(self):
        self.stopping = True
        self.thread.join()
        check(not self.failure, f"the load: {self.failure}")
        for path in self.files:
            self.read(path)


def grow_and_shrink(store):
    load = Load(store)
    refused(store, "add", "nowhere", says="by its address")
    refused(store, "add", "127.0.0.1:1", says="--replica 4 --join")
    refused(store, "add", by_name(members(store))["metad-2"]["address"], says="metad-2 of this group has that address")
    refused(store, "remove", "metad-9", says="no metad 'metad-9'")
    early = Joiner(store, 5)
    check(early.said("craton meta add"), "its log says what it waits for")
    refused(store, "add", early.address, says="start it with --replica 4 --join")
    fourth = Joiner(store, 4)
    change(store, "add", fourth.address)
    change(store, "add", fourth.address)  # a client whose answer was lost asks again
    change(store, "add", early.address)
    wait_until(is_group(store, [f"metad-{i}" for i in range(1, 6)]), "five metads to be level")
    load.goes_on("with five metads")
    refused(store, "add", "127.0.0.1:1", says="remove one first")

    # Back to three, none of which clients begin with but one; the first two are gone for good.
    change(store, "transfer", "metad-1")
    change(store, "remove", "metad-1")
    load.goes_on("with one that was removed and runs")
    view = members(store)
    check("metad-1" not in by_name(view) and view["leader"], f"the one that was removed, which clients ask first, is not believed: {view}")
    change(store, "remove", "metad-1")
    store.kill9("metad-1")
    change(store, "remove", "metad-2")
    store.kill9("metad-2")
    wait_until(is_group(store, ["metad-3", "metad-4", "metad-5"]), "three other metads to be level")
    change(store, "transfer", "metad-5")
    load.goes_on("by clients that know one metad of the three, which does not lead")

    # With one down no other may go.
    fourth.kill()
    wait_until(lambda: by_name(members(store))["metad-4"]["state"] == "down", "metad-4 to be down")
    forgot = Joiner(store, 4, "metad-4-again", fourth.address)
    for _ in range(8):  # so that the leader has surely tried to speak to it
        load.goes_on("while one that lost its directory waits")
    check(by_name(members(store))["metad-4"]["state"] == "down", "a metad that lost its directory came back under its number")
    forgot.kill()
    refused(store, "remove", "metad-3", says="most of the others would not answer")
    change(store, "remove", "metad-4")
    change(store, "remove", "metad-5")
    wait_until(is_group(store, ["metad-3"]), "one metad to be left")
    early.kill()
    refused(store, "remove", "metad-3", says="only metad that votes")
    load.goes_on("with one metad")

    # Who lost its directory does not come back under its number, but under a new one.
    again = Joiner(store, 5, "metad-5-again")
    refused(store, "add", again.address, says="start it with --replica 6 --join")
    again.kill()
    others = [Joiner(store, number) for number in (6, 7)]
    for joiner in others:
        change(store, "add", joiner.address)
    wait_until(is_group(store, ["metad-3", "metad-6", "metad-7"]), "three metads to be level")
    name_all(store)
    load.goes_on("by clients that know all three")
    store.kill9("metad-3")
    wait_until(lambda: others[0].said("leads=1") or others[1].said("leads=1"), "one that was added to lead")
    store.start_one("metad-3")
    wait_until(is_group(store, ["metad-3", "metad-6", "metad-7"]), "three metads to be level again")
    load.goes_on("with three metads again")
    load.end()
    return len(load.files)


def damaged(store):
    """A log with damage in its middle is refused, with its place and the way back; that way leads back."""
    change(store, "transfer", "metad-6")
    store.kill9("metad-3")
    log = os.path.join(store.store, "metad-3", "log")
    with open(os.path.join(log, min(f for f in os.listdir(log) if f.startswith("log-0"))), "r+b") as f:
        f.seek(16 * FRAME_BYTES)
        f.write(b"damaged " * (FRAME_BYTES // 8))
    done = store.craton("local", "start", store.store, "metad-3", check=False)
    text = done.stderr.decode(errors="replace")
    check(done.returncode == 1 and re.search(r"log-\d+: .*damaged at index \d+ .*nothing was changed; .*craton meta remove", text), f"it refuses to serve, and says why: {text}")
    change(store, "remove", "metad-3")
    joiner = Joiner(store, 8)
    change(store, "add", joiner.address)
    wait_until(is_group(store, ["metad-6", "metad-7", "metad-8"]), "three metads to be level behind the damage")


def start_older_copy(store, metad, name):
    """True: status says that it lags. False: another one came to lead meanwhile, who sees what it has, and brings it up."""
    wait_until(is_level_group(store), "all metads to be level before the copy")
    copy = store.path("older")
    metad.kill()
    shutil.copytree(metad.dir, copy)
    metad.restart()
    wait_until(is_level_group(store), "all metads to be level behind the copy")
    for i in range(5):
        store.run("mkdir", "-p", f"/behind-the-copy/{name}-{i}")
    term = wait_until(is_level_group(store), "all metads to have what the copy has not")["term"]
    metad.kill()
    shutil.rmtree(metad.dir)
    os.rename(copy, metad.dir)
    metad.restart()
    store.run("mkdir", f"/behind-its-start-{name}")

    def lags():
        if any(r["code"] == "metad-lags" and "metad-7" in r["text"] for r in store.json("status", check=False)["reasons"]):
            return "lags"
        return "another term" if members(store)["term"] != term else None
    return wait_until(lags, "status to say that metad-7 lags", 180) == "lags"


def is_level_group(store):
    return lambda: (v := members(store)) and is_level(v) and v


def older_copy(store):
    """One that is started with an older copy of its directory may take nothing any more: status says so, and it is replaced."""
    change(store, "transfer", "metad-6")
    rejoined = [j for j in Joiner.all if j.name == "metad-7"][-1]
    check(any(start_older_copy(store, rejoined, n) for n in range(5)), "in five tries one led on all the time")
    change(store, "remove", "metad-7")
    rejoined.kill()
    change(store, "add", Joiner(store, 9).address)
    wait_until(is_group(store, ["metad-6", "metad-8", "metad-9"]), "three metads to be level behind the copy")
    check(not [r for r in store.json("status", check=False)["reasons"] if r["code"] == "metad-lags"], "nobody lags any more")


def lost_one():
    """`local up` of a group one of whose metads lost its directory says what to do, and when that was done that it is left out; the store runs."""
    store = LocalStore(chunkd=1, policy="rs-1-2", metad=3)
    wait_until(is_level_group(store), "all metads to be level")
    victim = next(n for n in store.metads() if n != leader(store))
    store.kill9(victim)
    folder, aside = os.path.join(store.store, victim), store.path("aside")
    os.rename(folder, aside)

    def up(says, runs=False):
        done = store.craton("local", "up", store.store)
        check(says in done.stderr.decode() and "2 metad," in done.stdout.decode(), f"local up without {victim}: {done.stdout}, {done.stderr}")
        stopped = [d["name"] for d in store.json("local", "status", store.store)["daemons"] if not d["running"]]
        check(stopped == ([] if runs else [victim]), f"{stopped} do not run")

    up(f"{victim} holds no replica, though the group has led: it must not come back under its number: craton meta remove {victim}")
    done = store.craton("local", "start", store.store, victim, check=False)
    check(done.returncode == 1 and f"craton meta remove {victim}" in done.stderr.decode(), f"a metad without its directory was started: {done.stderr}")
    change(store, "remove", victim)
    removed = f"{victim} does not run: it is not in the group of metads any more\n"
    up(removed)
    os.rename(aside, folder)
    up(removed)
    store.run("local", "start", store.store, victim)
    up(f"{victim} runs, though it is not in the group of metads any more: craton local stop {store.store} {victim}\n", runs=True)
    store.destroy()


def main():
    one_alone()
    lost_one()
    store = LocalStore(metad=3)
    look(store)
    hand_over(store)
    two_down(store, one_down(store))
    look(store)
    files = grow_and_shrink(store)
    damaged(store)
    older_copy(store)
    print(f"members are shown, leadership is handed over, the group grew and shrank while {files} files were written")


if __name__ == "__main__":
    main()
