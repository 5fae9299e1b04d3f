#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""backup: the metadata are saved while the store works, lost, and made anew: everything saved is readable, nothing new meets the old."""

import fcntl
import os
import random
import shutil
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, craton_program, sha256_file, wait_until, write_random

MIB = 1 << 20
FILES = 12


def check(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def refused(store, *args, say, code=1):
    done = store.craton(*args, check=False)
    text = done.stderr.decode()
    check(done.returncode == code and say in text, f"craton {' '.join(args)}: exit {done.returncode}: {text}")


rng = random.Random(8)
store = LocalStore(capacity="2G")
meta = os.path.join(store.store, "metad-1")
backup = store.path("backup")
sums = {}
for i in range(FILES):
    source = store.path("source")
    write_random(source, rng.randrange(1, 9 * MIB), rng)
    store.run("put", source, f"/f{i}")
    sums[f"/f{i}"] = sha256_file(source)

# online: writers go on while it is made, and what it shows is of one moment
stop = threading.Event()
made = []


def writer():
    small = store.path("small")
    write_random(small, 1000, random.Random(1))
    while not stop.is_set():
        store.run("put", small, f"/during-{len(made)}")
        made.append(f"/during-{len(made)}")


thread = threading.Thread(target=writer)
thread.start()
wait_until(lambda: len(made) > 3, "a writer to be busy")
before = len(made)
shown = store.json("meta", "backup", backup)
stop.set()
thread.join()
check(shown["rows"] > 100 and shown["bytes"] == os.path.getsize(backup), f"the backup: {shown}")
piped = store.run("meta", "backup", "-")
check(piped[:8] == b"CRATMBK1", "a backup to standard output")

# one at a time into one file: the other's is left alone
with open(backup + ".tmp", "wb") as f:
    f.write(b"theirs")
    f.flush()
    fcntl.flock(f, fcntl.LOCK_EX)
    refused(store, "meta", "backup", backup, say="another backup is being written")
    check(os.path.exists(backup + ".tmp") and open(backup + ".tmp", "rb").read() == b"theirs", "the other backup's file")
store.run("meta", "backup", backup)
check(not os.path.exists(backup + ".tmp") and open(backup, "rb").read(8) == b"CRATMBK1", "what a killed backup left is written over")

# what was done after it: unknown later
write_random(store.path("late"), 3 * MIB, rng)
store.run("put", store.path("late"), "/late")
store.run("rm", "/f0")
chunks = sum(d["chunks"] for d in store.json("status")["disks"])

# refused, and nothing written
refused(store, "meta", "restore", meta, backup, say="holds metadata already")
store.kill9("metad-1")
shutil.rmtree(meta)
os.mkdir(meta)
data = open(backup, "rb").read()
for name, content, say in (("cut", data[:-1], "ends too early"), ("flipped", data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "is damaged"),
                           ("long", data + b"x", "goes on behind its end"), ("empty", b"", "ends too early"),
                           ("text", b"x" * 4096, "is not a backup"), ("newer", data[:8] + b"\x02" + data[9:], "format version 2"),
                           ("older", data[:8] + b"\x00" + data[9:], "format version 0"),
                           ("joined", data + data, "goes on behind its end")):
    path = store.path(name)
    with open(path, "wb") as f:
        f.write(content)
    refused(store, "meta", "restore", meta, path, say=say)
other = store.path("other")
subprocess.run([craton_program(), "cluster", "init", other, "--metad", "127.0.0.1:1"], check=True, stdout=subprocess.DEVNULL)
refused(store, "meta", "restore", meta, backup, "-c", os.path.join(other, "craton.conf"), say="is a backup of cluster")
refused(store, "meta", "restore", meta, store.path("absent"), say="cannot open the backup")
refused(store, "meta", "restore", meta, say="restore expects DIR and FILE", code=2)
refused(store, "meta", "restore", meta, backup, "--restores", "255", say="give 0 to 254", code=2)
check(os.listdir(meta) == [], f"a refused restore leaves nothing: {os.listdir(meta)}")

# half made: metad does not start there
open(os.path.join(meta, "restoring"), "w", encoding="ascii").close()
refused(store, "local", "start", store.store, "metad-1", say="half made")
os.unlink(os.path.join(meta, "restoring"))

check("restored" in store.run("meta", "restore", meta, backup).decode(), "the restore")
store.run("local", "start", store.store, "metad-1")
for path, digest in sums.items():
    if path != "/f0":
        store.run("get", path, store.path("out"))
        check(sha256_file(store.path("out")) == digest, f"{path} after the restore")
there = {line.split()[-1] for line in store.run("ls", "/").decode().splitlines()}
kept = [p for p in made if p[1:] in there]
check(kept == made[:len(kept)] and len(kept) >= before, f"the backup is of one moment: {len(kept)} of {len(made)}, at least {before}")
check("late" not in there and "f0" in there, "what came after the backup is not known")
store.wait_up()
status = store.craton("status", "--json", check=False).stdout.decode()
check('"restored"' in status, "the status says that the metadata come from a backup")

first = store.path("first")
shutil.copy(backup, first)

# life goes on, and what was written since the backup keeps its chunks
store.run("put", store.path("late"), "/new")
for _ in range(2):
    store.run("get", "/new", store.path("out"))
    check(sha256_file(store.path("out")) == sha256_file(store.path("late")), "/new")
    store.kill9("metad-1")
    store.run("local", "start", store.store, "metad-1")
store.wait_up()
wait_until(lambda: sum(d["chunks"] for d in store.json("status", check=False)["disks"]) >= chunks, "all chunks to be there")

# another backup, of the restored state
store.run("meta", "backup", backup)
store.kill9("metad-1")
shutil.rmtree(meta)
os.mkdir(meta)
store.run("meta", "restore", meta, backup)
store.run("local", "start", store.store, "metad-1")
store.run("get", "/new", store.path("out"))
check(sha256_file(store.path("out")) == sha256_file(store.path("late")), "/new after the second restore")
log = os.path.join(meta, "daemon.log")
wait_until(lambda: open(log, "rb").read().count(b"disk-registered") >= 6, "all disks to hear of the restore")


def again(*options):
    """The first backup once more, which knows of no restore."""
    store.kill9("metad-1")
    shutil.rmtree(meta)
    os.mkdir(meta)
    store.run("meta", "restore", meta, first, *options)
    store.run("local", "start", store.store, "metad-1")


# it would give the ids of the others again: the disks are refused, and with the number that metad says they are not
again()
wait_until(lambda: b"--restores 2" in open(log, "rb").read(), "metad to name the restores that the disks have seen")
wait_until(lambda: not store.up_servers(), "servers whose disks have seen more than the metadata to count as down")
again("--restores", "2")
store.wait_up()
for path, digest in sums.items():
    if path != "/f0":
        store.run("get", path, store.path("out"))
        check(sha256_file(store.path("out")) == digest, f"{path} after a restore beside the others")
store.run("put", store.path("late"), "/newer")
store.run("get", "/newer", store.path("out"))
check(sha256_file(store.path("out")) == sha256_file(store.path("late")), "/newer")
store.destroy()
print("backup: ok")
