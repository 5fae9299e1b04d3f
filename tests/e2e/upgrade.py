#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""upgrade: three metads are replaced by those of a newer build, one after the other, while files are written; the cluster version rises with the last one."""

import os
import random
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, build_dir, sha256_file, wait_until, write_random

OLDER = "tests/faulty/metad-older"


def check(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def members(store):
    return store.json("meta", "ls")


def all_heard(store):
    """What each supports, when the leader has heard all lately."""
    return wait_until(lambda: (v := members(store)) and v["leader"] and all(m["supports"] for m in v["replicas"]) and v, "all metads to be heard")


def put(store, rng, files):
    source, path = store.path("source"), f"/{len(files)}"
    write_random(source, rng.choice([100, 1 << 20]), rng)
    store.run("put", source, path)
    files[path] = sha256_file(source)


def check_all(store, files):
    for path, digest in files.items():
        store.run("get", path, store.path("out"))
        check(sha256_file(store.path("out")) == digest, f"{path} came back different")


def leader_of(view):
    return next(m["name"] for m in view["replicas"] if m["id"] == view["leader"])


def replace(store, rng, files):
    """All by the newer build, each next one being whoever leads, if that is an older one; returns the version before."""
    view, newer = all_heard(store), set()
    before = view["replicas"][0]["supports"]
    check({m["supports"] for m in view["replicas"]} == {before}, f"not all are of the same build: {view}")
    wait_until(lambda: members(store)["cluster_version"] == before, "the cluster version to be that of the older build, to which a new group rises")
    while len(newer) < len(store.metads()):
        put(store, rng, files)
        view = all_heard(store)
        check(view["cluster_version"] == before, f"the cluster version rose before the last one was replaced: {view}")
        lead = leader_of(view)
        name = lead if lead not in newer else next(n for n in store.metads() if n not in newer)
        store.kill9(name)
        store.start_one(name)
        newer.add(name)
    return before


def add_older(store):
    """Number 4 waits to be added, and is too old."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    folder = store.path("metad-4")
    os.mkdir(folder)
    log = os.path.join(folder, "daemon.log")
    with open(log, "wb") as out:
        joiner = subprocess.Popen([os.path.join(build_dir(), OLDER), "-c", store.env["CRATON_CONF"], "--dir", folder, "--name", "metad-4",
                                   "--listen", address, "--replica", "4", "--join"], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_until(lambda: "ready" in open(log, encoding="utf-8", errors="replace").read(), "metad-4 to be ready")
        done = store.craton("meta", "add", address, check=False)
        text = done.stderr.decode(errors="replace")
        check(done.returncode == 1 and "of an older build" in text, f"an older metad was to be added: exit {done.returncode}: {text}")
    finally:
        joiner.kill()
        joiner.wait()


def start_older(store, name):
    """Over the directory of one of the group: it refuses, with what to do."""
    store.kill9(name)
    store.craton("local", "start", store.store, name, check=False, program=store.beside(OLDER, "craton-metad"))
    wait_until(lambda: not store.pid(name), f"{name} of the older build to end")
    with open(os.path.join(store.store, name, "daemon.log"), encoding="utf-8", errors="replace") as f:
        text = f.read()
    check("use a newer binary" in text, f"what an older build says: {text[-2000:]}")
    store.start_one(name)


def main():
    rng, files = random.Random(3), {}
    store = LocalStore(chunkd=3, metad=3, policy="rs-1-2", metad_program=OLDER)
    before = replace(store, rng, files)
    view = wait_until(lambda: (v := members(store)) and v["cluster_version"] > before and v, "the cluster version to rise")
    check(all_heard(store)["cluster_version"] == before + 1, f"by one: {view}")
    put(store, rng, files)
    add_older(store)
    start_older(store, "metad-2")
    put(store, rng, files)
    check_all(store, files)
    print(f"{len(files)} files written while three metads were replaced; cluster version {before + 1}")


if __name__ == "__main__":
    main()
