#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""metrics: GET /metrics of both daemons, read strictly, and by promtool, over a store that does something."""

import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import promtext
from localstore import LocalStore, craton_program, sha256_file, wait_until, write_random

PROMTOOL = shutil.which("promtool")
METRICS_CONNECTIONS = 8  # METRICS_HTTP_CONNS


def check(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def connect(store, name, what):
    host, port = store.address(name, what).rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=30)


def is_ended(connection):
    """The other side ends it without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def refused(store, name, cause):
    """-1: there is no answer, as while all connections of /metrics are taken."""
    try:
        return promtext.value(store.metrics(name), "craton_refused_total", cause=cause)
    except OSError:
        return -1


def refusals(store):
    """Who says nothing, who says nonsense, and too many at /metrics: each is counted, said and shown; the health is not touched."""
    health = store.json("status", check=False)["health"]
    silent = {name: connect(store, name, "address") for name in ("metad-1", "chunkd-1")}
    for name in silent:
        check(refused(store, name, "no_hello") == 0 and refused(store, name, "malformed") == 0, "nothing was refused yet")
        with connect(store, name, "address") as talker:
            talker.sendall(b"GET / HTTP/1.1\r\nHost: a.long.enough.host\r\n\r\n")
            check(is_ended(talker), "nonsense was answered")
        wait_until(lambda: refused(store, name, "malformed") == 1, f"nonsense to be counted by {name}")
        scrapers = [connect(store, name, "metrics") for _ in range(METRICS_CONNECTIONS + 2)]
        check(is_ended(scrapers[-1]) and is_ended(scrapers[-2]), "more connections than /metrics has")
        for scraper in scrapers:
            scraper.close()
        wait_until(lambda: refused(store, name, "metrics_connections") >= 2, f"these to be counted by {name}")
    for name, connection in silent.items():
        check(is_ended(connection), "who says nothing was answered")
        connection.close()
        wait_until(lambda: refused(store, name, "no_hello") == 1, f"silence to be counted by {name}")
        with open(os.path.join(store.store, name, "daemon.log"), encoding="utf-8") as f:
            said = f.read()
        for cause in ("no_hello", "malformed", "metrics_connections"):
            check(f"cause={cause} " in said, f"{name} does not say {cause}")
    status = store.json("status", check=False)
    by_cause = {r["cause"]: r["count"] for r in status["refused"]}
    check(by_cause["no_hello"] == 1 and by_cause["malformed"] == 1 and by_cause["metrics_connections"] >= 2, f"status: {by_cause}")
    check(status["health"] == health, "refusals are no illness")
    check(b"1 no_hello (" in store.craton("status", check=False).stdout, "status shows no refusals")


def flood(store, source):
    """Many connections that say nothing, at daemons of 256 descriptors: their strangers make room, and the store goes on."""
    names = ("metad-1", "chunkd-3")
    for name in names:
        store.run("local", "stop", store.store, name)
        subprocess.run(["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", craton_program(), "local", "start", store.store, name], check=True)
    wait_until(lambda: len(store.up_servers()) == store.count, "all servers to be up")
    silent, end = [], time.monotonic() + 60
    for name in names:
        host, port = store.address(name).rsplit(":", 1)
        for _ in range(400):
            silent.append(socket.socket())
            silent[-1].setblocking(False)
            silent[-1].connect_ex((host, int(port)))
    store.run("put", source, "/flooded")
    store.run("get", "/flooded", store.path("out"))
    check(sha256_file(store.path("out")) == sha256_file(source), "what was written amid a flood of connections came back different")
    check(time.monotonic() < end, "a put and a get amid a flood of connections took a minute")
    for name in names:
        wait_until(lambda: refused(store, name, "no_hello") >= 200, f"a flood to be counted by {name}")
        check(refused(store, name, "not_accepted") == 0, f"{name} had no descriptor left")
        with open(f"/proc/{store.pid(name)}/limits", encoding="ascii") as f:
            check(any(line.split()[:5] == ["Max", "open", "files", "256", "256"] for line in f), f"{name} has more descriptors than it was given")
    for connection in silent:
        connection.close()


def by_promtool(text):
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    check(done.returncode == 0, f"promtool: {done.stdout}{done.stderr}")


def strictness():
    """The reader refuses what it must."""
    good = "# HELP craton_a_total A.\n# TYPE craton_a_total counter\ncraton_a_total{x=\"1\"} 2\n"
    promtext.parse(good)
    for bad in (good[:-1], good + "craton_a_total{x=\"1\"} 3\n", good + "craton_b 1\n", good.replace(" counter", " gauge"),
                good.replace('"1"', '"1'), good.replace("A.", "A"), good * 2, good.replace(" 2", "")):
        try:
            promtext.parse(bad)
        except (promtext.Malformed, ValueError):
            continue
        check(False, f"the reader took {bad!r}")


strictness()
rng = random.Random(3)
store = LocalStore(chunkd=3, policy="rs-1-2", capacity="1G")
source = store.path("source")
write_random(source, 5 << 20, rng)
store.run("put", source, "/a")
store.run("get", "/a", store.path("out"))
texts = {name: store.metrics_text(name) for name in store.names()}
metrics = {name: promtext.parse(text) for name, text in texts.items()}
if PROMTOOL:
    for text in texts.values():
        by_promtool(text)

meta = metrics["metad-1"]
check(promtext.value(meta, "craton_files") == 1 and promtext.value(meta, "craton_file_bytes") == 5 << 20, "files and bytes")
check(promtext.value(meta, "craton_servers", state="up") == 3 and promtext.value(meta, "craton_disks", state="up") == 3, "the fleet")
check(promtext.value(meta, "craton_metad_commands_total") >= 4, "commands")
check(any(n.endswith("_count") and v >= 4 for n, _, v in meta["craton_metad_log_entry_seconds"]["samples"]), "log entries are timed")
puts = [v for m in metrics.values() if "craton_chunkd_registered" in m
        for n, l, v in m["craton_rpc_request_seconds"]["samples"] if n.endswith("_count") and l["method"] == "chunkd.put"]
check(len(puts) == 3 and all(v > 0 for v in puts), f"puts are counted: {puts}")
check(all(promtext.value(metrics[name], "craton_disk_chunks") >= 1 for name in store.chunkds()), "chunks are counted")

refusals(store)

flood(store, source)

# the count of blocks follows, though nobody asks for the status
store.run("put", source, "/b")
wait_until(lambda: promtext.value(store.metrics("metad-1"), "craton_blocks", state="full") >= 2, "blocks to be counted", 120)
store.kill9("chunkd-2")
wait_until(lambda: promtext.value(store.metrics("metad-1"), "craton_servers", state="down") == 1, "the server to be down")

try:
    urllib.request.urlopen(f"http://{store.address('metad-1', 'metrics')}/", timeout=30)
    check(False, "another path was answered")
except urllib.error.HTTPError as e:
    check(e.code == 404, f"another path: {e}")
store.destroy()
if not PROMTOOL:
    print("promtool is not installed: read by the own reader only")
    sys.exit(77)
print(f"metrics: ok, {len(texts)} daemons")
