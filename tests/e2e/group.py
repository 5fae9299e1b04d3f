#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""group: a store of three metads as real processes: each is killed in turn while files are written; with two dead nothing is, and that is said."""

import os
import shutil
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import promtext
from localstore import LocalStore, build_dir, sha256_file, wait_until, write_random

MIB = 1 << 20
ATTEMPT_S = 2.5  # how long an answer of a metad is waited for (client/session.c)
SIZES = [100, 1 * MIB, 5 * MIB + 77]


def check(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def leader(store):
    """By what the metads log: who said last that it leads, of those that run."""
    found = (0, None)
    for name in store.metads():
        if not store.pid(name):
            continue
        with open(os.path.join(store.store, name, "daemon.log"), encoding="utf-8", errors="replace") as f:
            roles = re.findall(r"role leads=(\d) leader=\d+ term=(\d+)", f.read())
        if roles and roles[-1][0] == "1":
            found = max(found, (int(roles[-1][1]), name))
    return found[1]


CAUSES = ("version", "cluster", "secret", "malformed", "not_here", "unstamped", "replayed", "contradicting", "dropped")
ORDINARY = ("not_here", "unstamped", "replayed")


def check_figures(store):
    """Only who leads speaks for the store."""
    unstamped = 0
    for name in store.metads():
        shown = store.metrics(name)
        leads = promtext.value(shown, "craton_metad_leads") == 1
        check(("craton_servers" in shown) == leads, f"{name} leads: {leads}, and shows figures of the store: {not leads}")
        check(promtext.value(shown, "craton_metad_term") >= 1, f"{name} is in no term")
        check(not leads or all(promtext.value(shown, "craton_metad_member_lag_entries", member=other) < 1000 for other in store.metads()),
              f"{name} leads, and a member that is up lacks much")
        check(promtext.value(shown, "craton_metad_letters_malformed_total") == 0, f"{name} was sent letters that make no sense")
        refused = {cause: promtext.value(shown, "craton_metad_letters_refused_total", cause=cause) for cause in CAUSES}
        check(not any(refused[c] for c in CAUSES if c not in ORDINARY), f"{name} has refused letters of honest members: {refused}")
        unstamped += refused["unstamped"]
    check(unstamped > 0, "no metad has asked another one for a stamp, as each does that has started")
    check(leader(store) is not None, "nobody leads")


def put(store, rng, path, size):
    source = store.path("source")
    write_random(source, size, rng)
    store.run("put", source, path)
    return path, sha256_file(source)


def check_all(store, files):
    out = store.path("out")
    for path, digest in files:
        store.run("get", path, out)
        check(sha256_file(out) == digest, f"{path} came back different")


def first_hangs(store):
    """A command tries the metads in the order in which they are named: for one that hangs it does not wait as long as for an answer."""
    store.signal("metad-1", signal.SIGSTOP)
    wait_until(lambda: store.craton("ls", "/", check=False).returncode == 0, "another than the first to lead")
    took = []
    for _ in range(5):
        begin = time.monotonic()
        store.run("ls", "/")
        took.append(time.monotonic() - begin)
    store.signal("metad-1", signal.SIGCONT)
    check(sorted(took)[2] < ATTEMPT_S, f"with the first metad stopped commands took {took} s")


def founded_again(store):
    """By hand, with --found: the others know better."""
    with open(store.env["CRATON_CONF"], encoding="ascii") as f:
        addresses = next(line for line in f if line.startswith("metad =")).partition("=")[2].split(",")
    folder = store.path("metad-2.again")
    os.mkdir(folder)
    done = subprocess.run([os.path.join(build_dir(), "craton-metad"), "-c", store.env["CRATON_CONF"], "--dir", folder, "--name", "metad-2", "--listen",
                           addresses[1].strip(), "--replica", "2", "--found"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    check(done.returncode == 1 and "`craton meta remove` what" in done.stderr, f"a metad that lost its directory and is founded again: {done.returncode} {done.stderr}")


def main():
    rng = random.Random(1)
    store = LocalStore(metad=3)
    files = [put(store, rng, f"/{size}", size) for size in SIZES]

    check_figures(store)
    for turn in range(4):
        victim = wait_until(lambda: leader(store), "a leader")
        writers = [store.start_process("put", store.path("source"), f"/during-{turn}-{i}") for i in range(3)]
        store.kill9(victim)
        digest = sha256_file(store.path("source"))
        for i, writer in enumerate(writers):
            _, errors = writer.communicate(timeout=120)
            check(writer.returncode == 0, f"put while {victim} was killed: {errors.decode(errors='replace')}")
            files.append((f"/during-{turn}-{i}", digest))
        files.append(put(store, rng, f"/after-{turn}", 3 * MIB))
        check_all(store, files)
        store.start_one(victim)

    # Two of three: nobody can lead.
    wait_until(lambda: leader(store), "a leader")
    pipe, source = store.path("pipe"), store.path("source")
    os.mkfifo(pipe)
    store.run("mkdir", "/two")
    several = store.start_process("put", "--timeout", "3s", pipe, source, source, source, "/two")
    with open(pipe, "wb") as end: # it is connected, and waits for the first file's bytes
        for name in store.metads()[:2]:
            store.kill9(name)
        end.write(b"bytes")
    said = several.communicate(timeout=120)[1].decode(errors="replace").splitlines()
    check(several.returncode == 1 and len(said) == 2 and "1 not copied, 0 copied; the rest was not tried" in said[-1], f"put of several amid that: {said}")
    done = store.craton("mkdir", "/never", "--timeout", "5s", check=False)
    text = done.stderr.decode(errors="replace")
    check(done.returncode != 0, "a directory was made by one metad of three")
    check("reach each other" in text and "craton meta ls" in text, f"what is said with two of three dead: {text}")
    for name in store.metads()[:2]:
        store.start_one(name)
    store.run("mkdir", "/again")
    check_all(store, files)

    first_hangs(store)
    check_all(store, files)

    # All at once, and a stop of all.
    for name in store.names():
        store.kill9(name)
    store.run("local", "up", store.store)
    check_all(store, files)
    store.run("local", "down", store.store)
    os.unlink(os.path.join(store.store, "metads-founded")) # as if `local up` had been killed between the group's first leader and that note
    store.run("local", "up", store.store)
    check_all(store, files)

    # Who lost its directory has forgotten what it acknowledged: it is not made anew, and the others go on.
    store.kill9("metad-2")
    shutil.rmtree(os.path.join(store.store, "metad-2"))
    for turn in range(2):
        said = store.craton("local", "up", store.store).stderr.decode(errors="replace")
        check("metad-2 holds no replica" in said and "must not come back" in said and not store.pid("metad-2"), f"a metad that lost its directory was made anew: {said}")
        check_all(store, files)
        if turn == 0:
            founded_again(store)
            check_all(store, files)
        store.run("local", "down", store.store)
    print(f"{len(files)} files, 4 leaders killed: all there")


if __name__ == "__main__":
    main()
