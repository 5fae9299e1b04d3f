#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits: for the end of a new metad's first minute, in which it repairs nothing
"""bad_sector: a chunk lies on a sector that its disk cannot read any more. Its file is read all the same, and the chunk is made again, elsewhere, without anybody's help."""

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, build_dir, sha256_file, wait_until, write_random

SECTOR = 4096


def check(ok, what):
    if not ok:
        raise SystemExit(f"FAILED: {what}")


def chunks_of(path):
    return store.json("inspect", path, check=False)["chunks"]


def chunk_of(path, block, index):
    return next((c for c in chunks_of(path) if (c["block"], c["index"]) == (block, index)), None)


def is_elsewhere(path, chunk):
    now = chunk_of(path, chunk["block"], chunk["index"])
    return now and now["state"] == "ok" and (now["segment"], now["offset"]) != (chunk["segment"], chunk["offset"])


def check_read(path):
    store.run("get", path, back)
    check(sha256_file(back) == sha256_file(local), f"{path} is not what was written")
    os.unlink(back)


def read_and_look(path, chunk):
    """A reader may have been served by others, and not met the sector, where that server is slow to answer: on a busy machine."""
    check_read(path)
    return is_elsewhere(path, chunk)


rng = random.Random(7)
store = LocalStore(chunkd=7, capacity="1G")
local, back = store.path("local"), store.path("back")
write_random(local, 24 << 20, rng)
for path, size in (("/large", 24 << 20), ("/small", 20000)):
    with open(local, "r+b") as f:
        f.truncate(size)
    store.run("put", local, path)
    chunk = chunks_of(path)[0]  # of the first block the first one, which every reader asks for
    at = chunk["offset"] + rng.randrange(max(1, chunk["length"] // SECTOR)) * SECTOR
    store.start_program(chunk["server"], "craton-chunkd", env={
        "LD_PRELOAD": os.path.join(build_dir(), ".libs", "bad_sector.so"), "CRATON_IO": "epoll",
        "CRATON_BAD_FILE": os.path.realpath(chunk["segment"]), "CRATON_BAD_FROM": str(at), "CRATON_BAD_TO": str(at + SECTOR)})
    store.wait_up()
    wait_until(lambda: read_and_look(path, chunk), f"a chunk of {path} to be made again, away from its bad sector", 240)
    store.run("inspect", "--verify", path)
    check_read(path)
    print(f"{path}: a sector at {at} of {os.path.basename(chunk['segment'])} of {chunk['server']} is bad; its chunk is elsewhere now", flush=True)
print("bad_sector: ok")
