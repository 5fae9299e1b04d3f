#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""writers: a file that its writer did not finish is never there as if it were whole; daemons that die and come back lose nothing."""

import os
import random
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, craton_program, sha256_file, wait_until, write_random

MIB = 1 << 20


def check(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def half_written(store, rng):
    """kill -9 of a writer in the middle: a new name stays absent, an old file stays as it was."""
    old = store.path("old")
    write_random(old, 5 * MIB, rng)
    store.run("put", old, "/replaced")
    for path in ("/new", "/replaced"):
        free = store.json("df")["file_bytes"]
        put = subprocess.Popen([craton_program(), "put", "-", path], env=store.env, stdin=subprocess.PIPE)
        before = sum(store.written_bytes(c) for c in store.chunkds())
        put.stdin.write(rng.randbytes(64 * MIB))
        put.stdin.flush()
        wait_until(lambda b=before: sum(store.written_bytes(c) for c in store.chunkds()) - b > 16 * MIB, "chunk servers to have bytes of it")
        put.send_signal(signal.SIGKILL)
        put.wait()
        check(store.json("df")["file_bytes"] == free, "bytes of a dead writer count as user data")
    check(store.craton("stat", "/new", check=False).returncode == 1, "a half written file is visible")
    store.run("get", "/replaced", store.path("out"))
    check(sha256_file(store.path("out")) == sha256_file(old), "a half written replacement changed the old file")
    names = store.run("ls", "-1", "/").split()
    check(names == [b"replaced"], f"the directory holds {names}")


def metad_dies(store, rng):
    """metad killed and started again in the middle of a put: the put goes on or fails clearly; nothing acknowledged is lost."""
    source = store.path("source")
    write_random(source, 200 * MIB, rng)
    done = 0
    for i in range(4):
        put = store.start_process("put", source, f"/m{i}")
        before = store.written_bytes("chunkd-1")
        wait_until(lambda p=put, b=before: p.poll() is not None or store.written_bytes("chunkd-1") - b > rng.randrange(40) * MIB, "some progress")
        store.kill9("metad-1")
        store.start("metad-1")
        _, err = put.communicate(timeout=120)
        there = store.craton("stat", f"/m{i}", check=False).returncode == 0
        if put.returncode == 0:
            check(there, "an acknowledged put is gone")
            done += 1
        else:
            check(err.strip(), "a failed put says nothing")
        if there:
            store.run("get", f"/m{i}", store.path("out"))
            check(sha256_file(store.path("out")) == sha256_file(source), f"/m{i} came back different")
    check(done > 0, "no put survived a restart of metad")
    print(f"{done} of 4 puts went on over a restart of metad", flush=True)


def everything_dies(store, rng):
    """kill -9 of all daemons at random moments under puts: whatever was acknowledged is there, whole."""
    acknowledged = {}
    for i in range(3):
        sources = []
        for n in range(3):
            source = store.path(f"s{n}")
            write_random(source, rng.randrange(1, 60 * MIB), rng)
            sources.append(source)
        puts = [store.start_process("put", s, f"/all-{i}-{n}", start_new_session=True) for n, s in enumerate(sources)]
        first = store.written_bytes("chunkd-2")
        wait_until(lambda b=first: store.written_bytes("chunkd-2") - b > rng.randrange(1, 30) * MIB or all(p.poll() is not None for p in puts), "progress")
        for name in store.names():
            store.kill9(name)
        store.run("local", "up", store.store)
        store.wait_up()
        for n, p in enumerate(puts):
            p.communicate(timeout=180)
            if p.returncode == 0:
                acknowledged[f"/all-{i}-{n}"] = sha256_file(sources[n])
    for path, digest in acknowledged.items():
        store.run("get", path, store.path("out"))
        check(sha256_file(store.path("out")) == digest, f"{path} came back different")
    print(f"{len(acknowledged)} of 9 puts were acknowledged, all are there", flush=True)


def two_disks(store, rng):
    """One chunk server with several disks joins: its disks take chunks, and never more of a block than m in its domain."""
    folder = store.path("extra")
    for d in ("state", "disk-a", "disk-b", "disk-c"):
        os.makedirs(os.path.join(folder, d))
    argv = [os.path.join(os.path.dirname(craton_program()), "craton-chunkd"), "-c", store.env["CRATON_CONF"], "--name", "extra", "--listen", "127.0.0.1:0",
            "--dir", os.path.join(folder, "state"), "--capacity", "1G"]
    for d in ("disk-a", "disk-b", "disk-c"):
        argv += ["--disk", os.path.join(folder, d)]
    with open(os.path.join(folder, "log"), "wb") as log:
        extra = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        store.wait_up(store.count + 1)
        chunks, rounds = [], 0

        def all_take_chunks():
            """A disk that has just come takes chunks from its first heartbeat on, and of few blocks it may get none by chance."""
            nonlocal chunks, rounds
            rounds += 1
            name = f"spread-{rounds}"
            tree = store.path(name)
            os.makedirs(tree)
            for i in range(40):
                write_random(os.path.join(tree, str(i)), 100_000, rng)
            store.run("put", "-r", tree, "/")
            chunks += [c for i in range(40) for c in store.json("inspect", "--verify", f"/{name}/{i}")["chunks"]]
            return len({c["disk"] for c in chunks if c["server"] == "extra"}) == 3

        wait_until(all_take_chunks, "chunks on all disks of a server with three")
        there = [c for c in chunks if c["server"] == "extra"]
        for block in {c["block"] for c in chunks}:
            here = [c for c in there if c["block"] == block]
            check(len(here) <= 2, "more than m chunks of a block on one server")
            check(len(here) <= 1 or here[0]["crowded"], "crowded, and not said")
        for name in (f"spread-{r}" for r in range(1, rounds + 1)):
            store.run("get", "-r", f"/{name}", store.path(f"{name}-out"))
            for i in range(40):
                check(sha256_file(store.path(f"{name}/{i}")) == sha256_file(store.path(f"{name}-out/{i}")), f"/{name}/{i} came back different")
        print(f"three disks of one server took {len(there)} of {len(chunks)} chunks", flush=True)
    finally:
        extra.terminate()
        check(extra.wait(60) == 0, "a clean stop does not exit with 0")


def main():
    rng = random.Random(5)
    store = LocalStore(capacity="4G")
    half_written(store, rng)
    metad_dies(store, rng)
    everything_dies(store, rng)
    two_disks(store, rng)


main()
