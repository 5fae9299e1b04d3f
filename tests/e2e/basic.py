#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""basic: every command of craton over real daemons: plain, over epoll, and with every byte through the trivial transform."""

import base64
import json
import os
import random
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, sha256_file, write_random

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MIB = 1 << 20
SIZES = [0, 1, 16383, 16384, 16385, MIB - 1, MIB + 1, 4 * MIB, 16 * MIB, 16 * MIB + 1, 37 * MIB + 4321]


def check(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def sizes(store, rng):
    store.run("mkdir", "/sizes")
    for size in SIZES:
        source, out = store.path("source"), store.path("out")
        write_random(source, size, rng)
        store.run("put", source, f"/sizes/{size}")
        store.run("get", f"/sizes/{size}", out)
        check(sha256_file(source) == sha256_file(out), f"{size} bytes came back different")
        check(store.json("stat", f"/sizes/{size}")["size"] == size, f"stat of {size} bytes")
        if size:
            report = store.json("inspect", "--verify", f"/sizes/{size}")
            check(report["bad_count"] == 0 and report["min_margin"] == 2, f"inspect of {size} bytes: {report}")
    names = [json.loads(line)["name"] for line in store.run("ls", "--json", "/sizes").splitlines()]
    check(names == sorted(map(str, SIZES)), f"ls: {names}")


def names(store, rng):
    store.run("mkdir", "-p", "/a/b/c")
    store.run("mkdir", "-p", "/a/b/c")
    check(store.craton("mkdir", "/a/b", check=False).returncode == 1, "mkdir of what exists")
    small = store.path("small")
    write_random(small, 1000, rng)
    store.run("put", small, "/a/b/c/")
    store.run("mv", "/a/b/c/small", "/a/x")
    check(store.run("cat", "/a/x") == open(small, "rb").read(), "cat")
    check(store.craton("stat", "/a/b/c/small", check=False).returncode == 1, "the old name is gone")
    check(store.craton("mv", "/a", "/a/b/inside", check=False).returncode == 1, "a directory moved below itself")
    check(store.craton("mv", "-n", "/a/x", "/a/b", check=False).returncode in (0, 1), "mv -n")
    check(store.craton("rm", "/a", check=False).returncode == 1, "rm of a directory without -r")
    other = store.path("other")
    write_random(other, 2000, rng)
    store.run("put", other, "/over")
    store.run("put", small, "/over")
    check(store.run("cat", "/over") == open(small, "rb").read(), "a put replaces")
    check(store.craton("put", "-x", other, "/over", check=False).returncode == 1, "put -x of what exists")
    check(store.run("cat", "/over") == open(small, "rb").read(), "a refused put changes nothing")
    store.run("rm", "-r", "/a")
    check(store.craton("stat", "/a", check=False).returncode == 1, "rm -r")
    check(store.craton("rm", "/a", check=False).returncode == 1 and store.craton("rm", "-f", "/a", check=False).returncode == 0, "rm -f")
    store.run("mkdir", "-p", "/dots/below")
    for path in ("/dots/below/..", "/dots/below/../", "/dots/.", "/dots/below/./..//"):
        done = store.craton("rm", "-r", path, check=False)
        check(done.returncode == 1 and b"directory's own path" in done.stderr, f"rm of dots: {path}")
    check(store.run("ls", "-1", "/dots") == b"below\n", "rm of dots")
    for words, text in ((["put", small, small, "/over"], b"not a directory"), (["put", small, "/over/"], b"not a directory"),
                        (["get", "/over", "/over", small], b"not a directory"), (["get", "/over", "/over", "-"], b"craton cat")):
        done = store.craton(*words, check=False)
        check(done.returncode in (1, 2) and text in done.stderr and b"mkdir" not in done.stderr, f"{words}: {done.stderr}")
    for words, text in ((["mv", "/dots", "/dots/below/x"], b"below it"), (["mv", "/dots", "/dots"], b"below it"), (["mv", "/", "/x"], b"is the root"),
                        (["policy", "set", "/", "inherit"], b"name a policy")):
        done = store.craton(*words, check=False)
        check(done.returncode == 1 and text in done.stderr, f"{words}: {done.stderr}")
    done = store.craton("bench", "put", "--size", "15T", check=False, timeout=60)
    check(done.returncode == 1 and b"do not fit" in done.stderr, f"bench put of more than all disks: {done.stderr}")
    with open("/dev/full", "wb") as full:
        for words in (["status"], ["--help"], ["ls", "--help"]):
            done = store.craton(*words, check=False, stdout=full)
            check(done.returncode == 1 and b"standard output" in done.stderr, f"{words} to /dev/full: {done.returncode}")


def nothing_to_tell(store, rng):
    """A command that has nothing to tell says so in JSON."""
    small = store.path("small")
    write_random(small, 10, rng)
    store.run("mkdir", "/n")
    store.run("put", small, "/n/f")
    for words in (["mkdir", "/n/d"], ["ln", "/n/f", "/n/g"], ["mv", "/n/g", "/n/h"], ["truncate", "-s", "1", "/n/h"], ["policy", "set", "/n", "rs-1-2"],
                  ["rm", "-r", "/n"], ["rm", "-f", "/n"]):
        check(store.run(*words, "--json") == b"{}\n", f"{words} --json")


def trees(store, rng):
    tree = store.path("tree")
    for sub in ("", "one", "one/two"):
        os.makedirs(os.path.join(tree, sub), exist_ok=True)
        for i in range(5):
            write_random(os.path.join(tree, sub, f"f{i}"), rng.randrange(100_000), rng)
    store.run("put", "-r", "-p", tree, "/deep/er/")
    store.run("get", "-r", "/deep/er/tree", store.path("tree-out"))
    for base, _, files in os.walk(tree):
        for f in files:
            a = os.path.join(base, f)
            b = os.path.join(store.path("tree-out"), os.path.relpath(a, tree))
            check(sha256_file(a) == sha256_file(b), f"{a} came back different")
    check(len(store.run("ls", "-r", "-1", "/deep").splitlines()) == 15 + 2 + 2, "ls -r")
    # symbolic links come out as links, again and again, and what lies here as one is not followed below what was named
    into = store.path("links-out")
    out = os.path.join(into, "tree")
    os.mkdir(into)
    store.run("ln", "-s", "../f0", "/deep/er/tree/one/link")
    store.run("ln", "-s", "no where", "/deep/er/tree/dangling")
    for _ in range(2):
        check(store.json("get", "-r", "/deep/er/tree", into)["files"] == 17, "get -r of a tree with links")
        check(os.readlink(os.path.join(out, "one/link")) == "../f0" and os.readlink(os.path.join(out, "dangling")) == "no where", "links came out")
    check(sha256_file(os.path.join(out, "one/link")) == sha256_file(os.path.join(tree, "f0")), "what a link leads to")
    outside = store.path("outside")
    os.mkdir(outside)
    os.unlink(os.path.join(out, "f1"))
    os.symlink(os.path.join(outside, "f1"), os.path.join(out, "f1"))
    store.run("get", "-r", "/deep/er/tree", into)
    check(not os.path.islink(os.path.join(out, "f1")) and not os.listdir(outside), "a link in the place of a file is replaced")
    os.rename(os.path.join(out, "one/two"), store.path("two-aside"))
    os.symlink(outside, os.path.join(out, "one/two"))
    done = store.craton("get", "-r", "/deep/er/tree", into, check=False)
    check(done.returncode == 1 and b"remove the link" in done.stderr and not os.listdir(outside), f"a link in the place of a directory: {done.stderr}")


def policies(store, rng):
    source, out = store.path("source"), store.path("out")
    write_random(source, 5 * MIB + 7, rng)
    store.run("mkdir", "/copies")
    store.run("policy", "set", "/copies", "rs-1-2")
    check(store.run("policy", "get", "/copies") == b"rs-1-2\n", "policy get")
    store.run("put", source, "/copies/f")
    report = store.json("inspect", "--verify", "/copies/f")
    check({c["policy"] for c in report["chunks"]} == {"rs-1-2"}, "the policy holds for new files")
    store.run("get", "/copies/f", out)
    check(sha256_file(source) == sha256_file(out), "copies came back different")
    store.run("policy", "set", "/copies", "inherit")
    check(store.run("policy", "get", "/copies") == b"rs-4-2\n", "policy inherit")
    for path in ("/over", "/copies/f"): # df counts what is removed as pending until it is reclaimed
        store.run("rm", path)
    df = store.json("df")
    check(df["pending_bytes"] > 0 and df["total_bytes"] > df["free_bytes"] > 0, f"df: {df}")


def links_and_lengths(store, rng):
    source, out = store.path("source"), store.path("out")
    write_random(source, 9 * MIB + 5, rng)
    data = open(source, "rb").read()
    store.run("put", source, "/cut")
    store.run("ln", "/cut", "/cut-too")
    check(store.json("stat", "/cut")["nlink"] == 2, "two names")
    store.run("truncate", "--size", "5000007", "/cut")
    store.run("truncate", "--size", "12M", "/cut-too")
    store.run("rm", "/cut")
    store.run("get", "/cut-too", out)
    check(open(out, "rb").read() == data[:5000007] + bytes(12 * MIB - 5000007), "shorter, then longer with zeros")
    store.run("truncate", "--size", "0", "/cut-too")
    store.run("get", "/cut-too", out)
    check(os.path.getsize(out) == 0, "truncated to nothing")
    store.run("rm", "/cut-too")
    store.run("ln", "-s", "some/where else", "/symbolic")
    check(store.json("stat", "/symbolic")["target"] == "some/where else", "target of a link")
    # put writes through links, as cp does: relative and absolute ones, of links, to a directory; not through one that leads nowhere
    first, other = store.path("first"), store.path("second")
    write_random(first, 100, rng)
    write_random(other, 200, rng)
    store.run("mkdir", "-p", "/linked/sub")
    store.run("ln", "-s", "../end", "/linked/sub/one")
    store.run("ln", "-s", "/linked/sub/one", "/linked/two")
    store.run("ln", "-s", "sub", "/linked/dir")
    store.run("ln", "-s", "round", "/linked/round")
    store.run("put", first, "/linked/end")
    store.run("put", other, "/linked/two")
    check(store.run("cat", "/linked/end") == open(other, "rb").read(), "what a link leads to is written")
    check(store.json("stat", "/linked/two")["target"] == "/linked/sub/one", "a link that was written through is still there")
    store.run("put", first, "/linked/dir/")
    check(store.run("cat", "/linked/sub/first") == open(first, "rb").read(), "into the directory that a link leads to")
    os.mkdir(store.path("sub"))
    os.rename(first, store.path("sub/one"))
    store.run("put", "-r", store.path("sub"), "/linked")
    check(store.run("cat", "/linked/end") == open(store.path("sub/one"), "rb").read(), "put -r over a link")
    for path, why in (("/symbolic", b"leads nowhere"), ("/linked/round", b"leads to another one")):
        r = store.craton("put", other, path, check=False)
        check(r.returncode == 1 and why in r.stderr and store.json("stat", path)["type"] == "link", f"put to {path}: {r.stderr}")
    r = store.craton("put", "-x", other, "/linked/two", check=False)
    check(r.returncode == 1 and b"exists" in r.stderr, f"put -x to a link: {r.stderr}")
    store.run("rm", "-r", "/linked")
    for words in (("cat", "/symbolic"), ("truncate", "-s", "1", "/symbolic"), ("truncate", "-s", "1", "/none"), ("ln", "/none", "/x"), ("ln", "-s", "a", "/symbolic")):
        r = store.craton(*words, check=False)
        check(r.returncode == 1 and words[-1].encode() in r.stderr + r.stdout or b"/none" in r.stderr, f"{words}: {r.stderr}")
    store.run("rm", "/symbolic")


def config(store):
    store.run("config", "set", "server.dead_after", "5m")
    check(store.run("config", "get", "server.dead_after") == b"5m\n", "config get")
    check([s["name"] for s in store.json("status")["settings"]] == ["server.dead_after"], "status shows what is not at its default")
    listed = {line.split()[0]: line for line in store.run("config", "ls").decode().splitlines()}
    check(len(listed) > 8 and "time    1s to 168h" in listed["server.dead_after"] and "default 10m" in listed["server.dead_after"], f"config ls: {listed}")
    check("yes or no" in listed["repair.enabled"] and "number  1 to 100" in listed["disk.full"], f"config ls: {listed}")
    for bad in (("server.dead", "5m"), ("server.dead_after", "5"), ("server.dead_after", "soon"), ("gc.grace", "1s")):
        r = store.craton("config", "set", *bad, check=False)
        check(r.returncode == 1 and bad[0].encode() in r.stderr, f"config set {bad}: {r.stderr}")
    check(store.craton("config", "put", check=False).returncode == 2, "config put")
    documented(store) # with a setting that is not at its default


def documented(store):
    """Each field of the status is named in the page and in --help."""
    def fields(value):
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from fields(item)
        if isinstance(value, dict):
            yield from value

    with open(os.path.join(ROOT, "docs", "cli.md"), encoding="utf-8") as f:
        page = f.read()
    text = set(re.findall(r"\w+", store.run("status", "--help").decode()))
    shown = set(fields(store.json("status")))
    check(len(shown) > 50 and "version" in shown, f"fields of status --json: {shown}")
    check(not [n for n in shown if f"`{n}`" not in page], f"not in docs/cli.md: {[n for n in shown if f'`{n}`' not in page]}")
    check(shown <= text, f"not in status --help: {shown - text}")


def odd_names(store):
    """Any bytes but NUL and '/': JSON gives them back, also where they are no UTF-8."""
    name, target, small = b"r\xe9sum\xe9 \"1\" \xf0\x9f\n", b"../\xff", store.path("small")
    store.run("mkdir", b"/odd")
    store.run("put", small, b"/odd/" + name)
    store.run("ln", "-s", target, b"/odd/link")
    lines = [json.loads(line) for line in store.run("ls", "--json", "/odd").splitlines()]
    check("name_base64" not in lines[0] and base64.b64decode(lines[1]["name_base64"]) == name, f"ls: {lines}")
    shown = store.json("stat", b"/odd/" + name)
    check(base64.b64decode(shown["path_base64"]) == b"/odd/" + name and shown["path"].startswith("/odd/r\ufffdsum"), f"stat: {shown}")
    check(base64.b64decode(store.json("inspect", b"/odd/" + name)["path_base64"]) == b"/odd/" + name, "inspect")
    check(base64.b64decode(store.json("stat", "/odd/link")["target_base64"]) == target, "target of a link")
    store.run("rm", base64.b64decode(shown["path_base64"]))
    store.run("rm", "-r", "/odd")


def masks(store):
    """Directories have the mode that the caller's umask leaves."""
    before = os.umask(0o027)
    store.run("mkdir", "/masked")
    store.run("mkdir", "-p", "/masked/a/b")
    store.run("put", "-p", store.path("small"), "/masked/c/small")
    os.umask(before)
    modes = {path: oct(store.json("stat", path)["mode"]) for path in ("/masked", "/masked/a", "/masked/a/b", "/masked/c")}
    check(set(modes.values()) == {"0o750"}, f"modes {modes}")
    store.run("rm", "-r", "/masked")


def logs(store):
    lines = [json.loads(line) for line in store.run("local", "logs", store.store, "--json").splitlines()]
    text = store.run("local", "logs", store.store, "chunkd-2").decode().splitlines()
    check([line["daemon"] for line in lines if " ready " in line["line"]] == store.names(), f"local logs --json: {lines[:3]}")
    check(text and [line["line"] for line in lines if line["daemon"] == "chunkd-2"][:len(text)] == text, "the lines of one daemon")


def survive(store):
    """Everything is there after a clean stop, and after all daemons were killed."""
    before = {s: None for s in SIZES}
    store.run("local", "down", store.store)
    store.run("local", "up", store.store)
    for name in store.names():
        store.kill9(name)
    store.run("local", "up", store.store)
    for size in before:
        store.run("get", f"/sizes/{size}", store.path("out"))
        check(os.path.getsize(store.path("out")) == size, f"{size} bytes after kill -9 of all")
    report = store.json("inspect", "--verify", f"/sizes/{SIZES[-1]}")
    check(report["bad_count"] == 0, "inspect after kill -9 of all")


def odd_places(store):
    """A folder's name in JSON, whatever is in it."""
    place = store.path('a "quoted" \\ name')
    made = store.json("local", "up", place, "--chunkd", "1", "--policy", "rs-1-2", "--capacity", "256M")
    shown = store.json("local", "status", place)
    check(store.json("local", "down", place) == {}, "local down --json")
    check(made["dir"] == shown["dir"] == place and made["config"] == shown["config"] == place + "/craton.conf", f"{made}, {shown}")
    check([d["name"] for d in shown["daemons"]] == ["metad-1", "chunkd-1"] and shown["daemons"][0]["running"], f"local status: {shown}")


def pipes(store, rng):
    import subprocess
    from localstore import craton_program
    data = rng.randbytes(3 * MIB + 17)
    put = subprocess.run([craton_program(), "put", "-", "/piped"], input=data, env=store.env, check=False)
    check(put.returncode == 0, "put from standard input")
    check(store.run("get", "/piped", "-") == data, "get to standard output")
    # What names an open file is written where it stands; a file that has a name of its own is replaced, wherever it lies.
    folder = store.path("of-output")
    os.mkdir(folder)
    with open(os.path.join(folder, "out"), "w+b") as out:
        out.write(b"before ")
        out.flush()
        for name in ("/dev/stdout", "/dev/fd/1", "/dev//stdout", f"/proc/{os.getpid()}/fd/{out.fileno()}"):
            store.run("get", "--json", "/piped", name, stdout=out)
        out.seek(0)
        check(out.read() == b"before " + 4 * data, "get behind what was written to standard output")
        # Of another process it is refused, and so is what lies in the way of a tree.
        theirs = f"/proc/{os.getpid()}/fd/{out.fileno()}"
        check(b"another process has open" in store.craton("get", "/piped", theirs, check=False).stderr, "get to an open file of another process")
        store.run("mkdir", "/of-output")
        for make in (["put", out.name, "/of-output/out"], ["ln", "-s", "x", "/of-output/out"]):
            store.run(*make)
            get = subprocess.run([craton_program(), "get", "-r", "/of-output", os.path.dirname(folder)], env=store.env, stdout=out, stderr=subprocess.PIPE, check=False)
            check(get.returncode == 1 and b"our own output" in get.stderr, f"get -r over its own output: {get.stderr}")
            store.run("rm", "/of-output/out")
        store.run("rm", "-r", "/of-output")
        check(os.path.samestat(os.stat(out.name), os.fstat(out.fileno())), "the output was replaced")
    for fd in [*range(3, 20), 77]: # some of them are those of its own connections
        check(b"Bad file descriptor" in store.craton("get", "/piped", f"/dev/fd/{fd}", check=False).stderr, f"get to descriptor {fd}, which is not open")
    with tempfile.TemporaryDirectory(prefix="craton-test-", dir="/dev/shm") as folder:
        out = os.path.join(folder, "out")
        with open(out, "wb") as f:
            f.write(data + b"and more")
        store.run("get", "/piped", out)
        with open(out, "rb") as f:
            check(f.read() == data, "a get over a longer file in /dev/shm")


def benchmarks(store):
    """Of many small things: they count right and leave nothing behind."""
    before = store.json("df")
    small = ("--files", "300", "--clients", "5", "--inflight", "2", "--connections", "3")
    for where, commits in (([], None), ([store.dir], 16)):
        r = store.json("bench", "meta", *where, *small)
        check(r["create_count"] == 300 and r["stat_count"] == 300 and r["list_count"] == 300, f"bench meta counts {r}")
        check(r.get("commit_count") == commits, f"bench meta commits {r}")
        check(r["create_per_s"] > 0 and r["stat_max_ms"] >= r["stat_p50_ms"] > 0, f"bench meta figures {r}")
    r = store.json("bench", "meta", store.dir, *small, "--metad", "3", "--rate", "500")
    check(r["create_count"] == 300 and r["commit_count"] == 16, f"bench meta of a group counts {r}")
    # The last of 300 is due 299/500 s after the first.
    check(0 < r["create_per_s"] <= 300 * 500 / 299 and 0 < r["stat_per_s"] <= 300 * 500 / 299, f"bench meta is faster than was offered: {r}")
    for what, name in (("small", "file"), ("objects", "object")):
        r = store.json("bench", what, "--files", "200", "--clients", "7", "--bytes", "5000")
        check(r[f"{name}_count"] == 200 and r[f"{name}_per_s"] > 0, f"bench {what} {r}")
    store.json("bench", "small", "--files", "3", "--keep")
    kept = [n for n in store.run("ls", "-1", "/").decode().split() if n.startswith(".bench-small-")]
    check(len(kept) == 1 and len(store.run("ls", "-1", f"/{kept[0]}/000000").splitlines()) == 3, f"bench small --keep leaves {kept}")
    store.run("rm", "-r", f"/{kept[0]}")
    store.run("put", "-p", store.path("small"), "/.bench/mine")
    r = store.json("bench", "latency", "--count", "3", "--file-size", "64K", "--settle", "100ms")
    check(r["put"]["count"] == 3 and r["get"]["count"] == 3, f"bench latency {r}")
    store.run("bench", "put", "--size", "1M")
    check(store.run("ls", "-1", "/.bench") == b"mine\n", "benchmarks leave what is not theirs")
    store.run("rm", "-r", "/.bench")
    after = store.json("df")
    check(before["files"] == after["files"] and before["directories"] == after["directories"], "bench meta cleans up")
    check(not [n for n in os.listdir(store.dir) if "bench" in n], "bench meta removes its folder")


def run(label, env, conf=""):
    rng = random.Random(7)
    store = LocalStore(capacity="2G", env=env)
    if conf:
        store.run("local", "down", store.store)
        with open(store.env["CRATON_CONF"], "a", encoding="ascii") as f:
            f.write(conf)
        store.run("local", "up", store.store)
    sizes(store, rng)
    names(store, rng)
    nothing_to_tell(store, rng)
    trees(store, rng)
    policies(store, rng)
    links_and_lengths(store, rng)
    pipes(store, rng)
    if label == "plain":
        odd_places(store)
        odd_names(store)
        masks(store)
        logs(store)
    benchmarks(store)
    config(store)
    survive(store)
    check(store.run("config", "get", "server.dead_after") == b"5m\n", "settings survive")
    store.run("config", "set", "server.dead_after", "default")
    check(store.json("status")["health"] == "ok", "status is ok in the end")
    store.destroy()
    print(f"{label}: ok", flush=True)


run("plain", {})
run("epoll", {"CRATON_IO": "epoll"})
run("transform", {}, "transform = xor\n")
