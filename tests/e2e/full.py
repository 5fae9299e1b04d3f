#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""full: a store without room fails the write that needs it, says so, and goes on for everything else."""

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, sha256_file, write_random

MIB = 1 << 20


def main():
    rng = random.Random(3)
    store = LocalStore(capacity="256M")
    source = store.path("source")
    write_random(source, 100 * MIB, rng)
    digest = sha256_file(source)
    stored = 0
    for i in range(40): # 6 x 256 MiB raw hold less than 1.1 GiB of user data
        done = store.craton("put", source, f"/f{i}", check=False)
        if done.returncode:
            break
        stored += 1
    else:
        raise SystemExit("FAILED: 40 x 100 MiB went into 1.5 GiB of raw space")
    text = done.stderr.decode(errors="replace").strip()
    if "room" not in text and "space" not in text:
        raise SystemExit(f"FAILED: the error does not speak of space: {text}")
    if not stored:
        raise SystemExit("FAILED: nothing fitted at all")
    if store.craton("stat", f"/f{stored}", check=False).returncode == 0:
        raise SystemExit("FAILED: a file that could not be written is visible")
    for i in range(stored):
        store.run("get", f"/f{i}", store.path("out"))
        if sha256_file(store.path("out")) != digest:
            raise SystemExit(f"FAILED: /f{i} came back different")
    store.run("mkdir", "/still")
    store.run("mv", "/f0", "/still/f0")
    if len(store.up_servers()) != 6:
        raise SystemExit("FAILED: a server went down")
    print(f"{stored} x 100 MiB stored, then: {text}")


main()
