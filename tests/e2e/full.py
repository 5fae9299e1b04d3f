#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""full: a store without room fails the write that needs it, says so, and goes on for everything else."""

import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, fill_file_system, sha256_file, wait_until, write_random
from netgroup import private_mounts

MIB = 1 << 20


def to_the_brim(store, rng):
    """Ever smaller files, until none fits: then df has nothing to offer."""
    source = store.path("brim")
    for size in (16 * MIB, MIB, 3):
        write_random(source, size, rng)
        for i in range(1000):
            done = store.craton("put", source, f"/brim-{size}-{i}", check=False)
            if done.returncode:
                break
        else:
            raise SystemExit(f"FAILED: {i + 1} files of {size} bytes went into a store that had no room for more of {size * 16}")
    # chunk servers tell metad every second
    wait_until(lambda: store.json("df")["available_bytes"] == 0, "df to offer nothing where nothing fits")


def starts_on_a_full_disk(rng):
    """Daemons that are killed where others filled their disk to the last byte start again, and serve what they have."""
    disk = tempfile.mkdtemp(prefix="craton-test-", dir=os.environ.get("CRATON_TEST_DIR") or "/var/tmp")
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2G", "craton-disk", disk], check=True)
        store = LocalStore(chunkd=3, policy="rs-1-2", capacity="256M", where=disk)
        source = store.path("source")
        write_random(source, 3 * MIB, rng)
        store.run("put", source, "/before")
        fill_file_system(disk)
        for name in store.names():
            store.kill9(name)
        store.start(*store.names())
        if store.run("cat", "/before") != open(source, "rb").read():
            raise SystemExit("FAILED: /before came back different")
        os.unlink(os.path.join(disk, "filler"))
        wait_until(lambda: store.craton("put", source, "/after", check=False).returncode == 0, "files to be taken where there is room again")
        store.destroy()
    finally:
        subprocess.run(["umount", "-l", disk], check=False)
        os.rmdir(disk)


def main():
    rng = random.Random(3)
    store = LocalStore(capacity="256M")
    source = store.path("source")
    write_random(source, 100 * MIB, rng)
    digest = sha256_file(source)
    df = store.json("df")
    if not 0.8 * 4 / 6 * df["free_bytes"] < df["available_bytes"] < 0.96 * 4 / 6 * df["free_bytes"]:
        raise SystemExit(f"FAILED: without the reserve for repair four sixths of the free space hold user data, and df says {df}")
    stored = 0
    for i in range(40): # 6 x 256 MiB raw hold less than 1.1 GiB of user data
        done = store.craton("put", source, f"/f{i}", check=False)
        if done.returncode:
            break
        stored += 1
    else:
        raise SystemExit("FAILED: 40 x 100 MiB went into 1.5 GiB of raw space")
    text = done.stderr.decode(errors="replace").strip()
    if ("room" not in text and "space" not in text) or "gc.grace" not in text:
        raise SystemExit(f"FAILED: the error does not speak of space, and of when it comes back: {text}")
    if not stored:
        raise SystemExit("FAILED: nothing fitted at all")
    if store.craton("stat", f"/f{stored}", check=False).returncode == 0:
        raise SystemExit("FAILED: a file that could not be written is visible")
    for i in range(stored):
        store.run("get", f"/f{i}", store.path("out"))
        if sha256_file(store.path("out")) != digest:
            raise SystemExit(f"FAILED: /f{i} came back different")
    if store.json("df")["free_bytes"] == 0:
        raise SystemExit("FAILED: nothing is left for repair")
    to_the_brim(store, rng)
    store.run("mkdir", "/still")
    store.run("mv", "/f0", "/still/f0")
    if len(store.up_servers()) != 6:
        raise SystemExit("FAILED: a server went down")
    store.destroy()
    if private_mounts():
        starts_on_a_full_disk(rng)
    else:
        print("SKIP: no file system can be mounted here (not root, or not allowed): daemons were not started on a full disk")
    print(f"{stored} x 100 MiB stored, then: {text}")


main()
