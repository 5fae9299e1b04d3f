#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cluster: making a cluster by hand: its files, its disks, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import build_dir, craton_program, wait_until

top = tempfile.mkdtemp(prefix="craton-test-", dir=os.environ.get("CRATON_TEST_DIR") or "/var/tmp")
running = []


def check(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def path(name):
    return os.path.join(top, name)


def run(*args, code=0, say=""):
    done = subprocess.run([craton_program(), *args], cwd=top, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=120)
    check(done.returncode == code, f"craton {' '.join(args)}: exit {done.returncode}: {done.stdout}{done.stderr}")
    check(say in done.stderr, f"craton {' '.join(args)}: no {say!r} in {done.stderr!r}")
    check(code == 0 or done.stderr.startswith(f"craton {args[0]}: "), f"the complaint names the command: {done.stderr!r}")
    return done.stdout


def daemon(program, *args):
    proc = subprocess.Popen([os.path.join(build_dir(), program), *args], cwd=top, stderr=subprocess.PIPE, text=True)
    running.append(proc)
    return proc


def serve(program, folder, *args):
    os.makedirs(path(folder), exist_ok=True)
    proc = daemon(program, "-c", "c/craton.conf", "--dir", folder, *args)
    wait_until(lambda: os.path.exists(path(folder + "/address")) or proc.poll() is not None, f"{program} to serve")
    check(proc.poll() is None, f"{program} has ended: {proc.stderr.read() if proc.poll() is not None else ''}")
    return proc


def end(proc):
    proc.send_signal(signal.SIGTERM)
    proc.communicate(timeout=60)
    check(proc.returncode == 0, f"a daemon ended with {proc.returncode}")


def init():
    run("cluster", "init", "c", code=2, say="--metad is missing")
    run("cluster", "init", "c", "--metad", "localhost:7000", code=2, say="not an address")
    run("cluster", "init", "c", "--metad", "10.0.0.1:7000", code=2, say="add --plaintext")
    run("cluster", "raise", "c", code=2, say="there is init")
    run("cluster", "init", "c", "--metad", "127.0.0.1:1,127.0.0.1:2", code=2, say="name one, three or five")
    run("cluster", "init", "c", "--metad", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:1", code=2, say="one address is named twice")
    run("cluster", "init", "c", "--metad", ",".join(f"127.0.0.1:{i}" for i in range(1, 7)), code=2, say="more than five addresses")
    run("cluster", "init", "c", "--metad", "127.0.0.1:1,127.0.0.1:2,10.0.0.1:3", code=2, say="add --plaintext")
    run("cluster", "init", "no/such/c", "--metad", "127.0.0.1:7000", code=1, say="cannot make the directory")
    check(not os.path.exists(path("c")), "a refused init leaves nothing")
    made = json.loads(run("cluster", "init", "c", "--metad", "127.0.0.1:0", "--json", code=2) or "{}")
    check("error" in made, "a refusal is JSON, too")
    run("cluster", "init", "c", "--metad", "127.0.0.1:17171")
    check(os.stat(path("c/secret")).st_mode & 0o777 == 0o600, "the secret is for its owner")
    secret = open(path("c/secret"), encoding="ascii").read()
    check(len(secret) == 65 and "plaintext" not in open(path("c/craton.conf"), encoding="ascii").read(), "the files")
    run("cluster", "init", "c", "--metad", "127.0.0.1:1", code=1, say="exists: there is a cluster already")
    check(open(path("c/secret"), encoding="ascii").read() == secret, "the secret is the same")
    made = json.loads(run("cluster", "init", "other", "--metad", "10.0.0.1:7000", "--plaintext", "--json"))
    check("plaintext = yes\n" in open(path(made["config"]), encoding="ascii").read(), "plaintext")


def group():
    run("cluster", "init", "g", "--metad", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
    os.mkdir(path("m-g"))
    base = ("craton-metad", "-c", "g/craton.conf", "--dir", "m-g", "--name", "metad-2")
    for args, code, say in (
            ((), 2, "--listen is missing"),
            (("--listen", "127.0.0.1:0"), 2, "--replica is missing"),
            (("--listen", "127.0.0.1:0", "--replica", "4"), 1, "under the next number with --join, to be added"),
            (("--listen", "127.0.0.1:0", "--replica", "2"), 1, "start it with --found, once"),
            (("--listen", "127.0.0.1:0", "--replica", "2", "-c", "c/craton.conf"), 1, "with --join, to be added")):
        refused = daemon(*base, *args)
        complaint = refused.communicate(timeout=60)[1]
        check(refused.returncode == code and say in complaint, f"{args}: exit {refused.returncode}: {complaint}")
    check("log" not in os.listdir(path("m-g")), "a refused start leaves nothing")


def disks():
    fmt = ("disk", "format", "-c", "c/craton.conf", "--capacity", "1G")
    run(*fmt, "d1", code=1, say="there is none: make it, or mount the disk there")
    os.mkdir(path("d1"))
    os.mkdir(path("d1/lost+found"))
    check("is disk " in run(*fmt, "d1"), "formatted")
    check("uuid" not in run(*fmt, "d1", code=1, say="is a disk of this cluster already"), "not again")
    run("disk", "format", "-c", "other/craton.conf", "d1", code=1, say="belongs to cluster")
    os.mkdir(path("d2"))
    open(path("d2/letters"), "w", encoding="ascii").close()
    run(*fmt, "d2", code=1, say="not empty, it holds letters")
    check(os.listdir(path("d2")) == ["letters"], "a refused format leaves nothing")
    os.unlink(path("d2/letters"))
    os.makedirs(path("d2/segments"))
    open(path("d2/segments/00000001-small"), "w", encoding="ascii").close()
    run(*fmt, "d2", code=1, say="has lost its superblock: it has segments")
    shutil.rmtree(path("d2/segments"))
    check("text" in json.loads(run(*fmt, "d2", "--json")), "JSON")
    run("disk", "format", "-c", "absent.conf", "d2", code=1, say="absent.conf")
    run("disk", "paint", "d2", code=2, say="there is format")


def serving():
    metad = serve("craton-metad", "m", "--policy", "rs-1-2")
    os.mkdir(path("empty"))
    refused = daemon("craton-chunkd", "-c", "c/craton.conf", "--dir", "m", "--no-format", "--disk", "empty")
    complaint = refused.communicate(timeout=60)[1]
    check(refused.returncode == 1 and "is it mounted?" in complaint, f"an empty disk with --no-format: {complaint}")
    check(os.listdir(path("empty")) == [], "it was not formatted")
    twice = daemon("craton-chunkd", "-c", "c/craton.conf", "--dir", "m", "--disk", "empty", "--disk", "empty/")
    complaint = twice.communicate(timeout=60)[1]
    check(twice.returncode == 2 and "is given twice" in complaint, f"a disk named twice: {complaint}")
    check(os.listdir(path("empty")) == [], "it was not formatted")
    # one disk of three is not there: the server serves the others and says so
    chunkd = serve("craton-chunkd", "s1", "--no-format", "--name", "s1", "--disk", "d1", "--disk", "empty", "--disk", "d2")

    def status():
        done = subprocess.run([craton_program(), "status", "--json", "-c", "c/craton.conf"], cwd=top, capture_output=True, text=True,
                              check=False, timeout=60)
        return json.loads(done.stdout)

    wait_until(lambda: [r for r in status().get("reasons", []) if r["code"] == "disk-unusable" and "empty" in r["text"]],
               "the bad disk to be reported")
    check(sorted(d["state"] for d in status()["disks"]) == ["up", "up"], "the others are up")
    # another server of that name is refused while this one is up
    os.mkdir(path("d3"))
    run("disk", "format", "-c", "c/craton.conf", "--capacity", "1G", "d3")
    second = serve("craton-chunkd", "s2", "--name", "s1", "--disk", "d3", "--no-format")
    for line in second.stderr:
        if "event=register-failed" in line or "register-failed" in line:
            check("--name" in line, f"why the second one is refused: {line}")
            break
    check(len(status()["servers"]) == 1, "the second one is not taken in")
    for proc in (second, chunkd, metad):
        end(proc)


try:
    init()
    group()
    disks()
    serving()
finally:
    for proc in running:
        if proc.poll() is None:
            proc.kill()
            proc.wait()
    shutil.rmtree(top, ignore_errors=True)
print("cluster: ok")
