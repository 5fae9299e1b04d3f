#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""table: damage of metad's table that hides names is found by metad itself, soon after its start, and told with what to do."""

import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, wait_until

PAGE, LEAF, LOWER_AT = 4096, 0x02, 12  # of a page of LMDB: its size, a flag, and where its header says how far the list of its rows goes
NAMES = 700


def check(ok, what):
    if not ok:
        raise SystemExit(f"FAILED: {what}")


def log_of(store, name):
    return store.run("local", "logs", store.store, name).decode()


def checks_passed(store):
    return log_of(store, "metad-1").count("table-checked")


def hide_rows(path, name):
    """The last two rows of each page that has the name leave its list, and stay where they are."""
    pages = 0
    with open(path, "r+b") as f:
        data = f.read()
        for at in range(0, len(data), PAGE):
            flags, lower = struct.unpack_from("<HH", data, at + LOWER_AT - 2)
            if flags == LEAF and name in data[at:at + PAGE]:
                f.seek(at + LOWER_AT)
                f.write(struct.pack("<H", lower - 4))
                pages += 1
    return pages


store = LocalStore(chunkd=3, policy="rs-1-2", capacity="256M")
store.run("mkdir", "/many")
store.run("mkdir", *[f"/many/a-name-of-some-length-{i:04}" for i in range(NAMES)])
store.run("local", "stop", store.store, "metad-1")
before = checks_passed(store)
store.start("metad-1")
wait_until(lambda: checks_passed(store) > before, "a whole table to be found so")
check(len(store.run("ls", "-1", "/many").split()) == NAMES, "a listing")
store.run("local", "stop", store.store, "metad-1")

check(hide_rows(os.path.join(store.store, "metad-1", "kv", "data.mdb"), b"a-name-of-some-length-0350"), "no page of the table has the name")
store.run("local", "start", store.store, "metad-1")
wait_until(lambda: not store.pid("metad-1"), "metad to find the damage")
log = log_of(store, "metad-1")
check("fatal" in log and "is damaged: of" in log and "no start will mend it" in log, f"what metad says: {log[-1000:]}")
print("table: ok")
