# SPDX-License-Identifier: Apache-2.0
"""localstore: a real store on loopback for proofs and end-to-end tests: `craton local up` in a folder of its own."""

import atexit
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import promtext


def build_dir():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.path.abspath(os.environ.get("CRATON_BUILD") or os.path.join(root, "build"))


def craton_program():
    return os.path.join(build_dir(), "craton")


def sha256_file(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for piece in iter(lambda: f.read(1 << 20), b""):
            h.update(piece)
    return h.hexdigest()


def write_random(path, size, rng):
    """A file of pseudo-random bytes that depend on the rng's state only."""
    with open(path, "wb") as f:
        while size > 0:
            piece = rng.randbytes(min(size, 1 << 20))
            f.write(piece)
            size -= len(piece)


def wait_until(condition, what, seconds=60.0):
    """Polls until the condition holds, ever more seldom, as it mostly runs a command; generous deadlines, no sleeps on hope."""
    deadline = time.monotonic() + seconds
    pause = 0.02
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.5)


def fill_file_system(folder):
    """To the last byte, with a file of that name."""
    with open(os.path.join(folder, "filler"), "ab", buffering=0) as f:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    f.write(bytes(size))
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    raise


class Failure(Exception):
    pass


# What ends a proof with a verdict: it went wrong, the store or the system refused, or something did not come in time.
FAILURES = (Failure, OSError, subprocess.TimeoutExpired)


class LocalStore:
    def __init__(self, chunkd=6, policy="rs-4-2", capacity="8G", env=None, where=None, metad=1, metad_program=None):
        self.dir = tempfile.mkdtemp(prefix="craton-test-", dir=where or os.environ.get("CRATON_TEST_DIR") or "/var/tmp")
        self.count = chunkd
        self.metad_count = metad
        self.env = {**os.environ, **(env or {})}
        self.store = os.path.join(self.dir, "store")
        self.env["CRATON_CONF"] = os.path.join(self.store, "craton.conf")
        self.alive = True
        atexit.register(self.destroy)
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, lambda *_: sys.exit(1))
        self.run("local", "up", self.store, "--chunkd", str(chunkd), "--policy", policy, "--capacity", capacity,
                 *(["--metad", str(metad)] if metad > 1 else []), program=self.beside(metad_program, "craton-metad"))

    def destroy(self):
        if not self.alive:
            return
        self.alive = False
        for name in self.names():
            pid = self.pid(name)
            if pid:
                os.kill(pid, signal.SIGKILL)
        if os.environ.get("CRATON_TEST_KEEP"):
            print(f"kept: {self.dir}", file=sys.stderr)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def names(self):
        return self.metads() + self.chunkds()

    def metads(self):
        return [f"metad-{i}" for i in range(1, self.metad_count + 1)]

    def chunkds(self):
        return [f"chunkd-{i}" for i in range(1, self.count + 1)]

    def craton(self, *args, check=True, timeout=300, program=None, **kwargs):
        """Runs craton; with check, a failure is ours to report."""
        kwargs.setdefault("stdout", subprocess.PIPE)
        done = subprocess.run([program or craton_program(), *args], env=self.env, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=timeout,
                              check=False, **kwargs)
        if check and done.returncode != 0:
            raise Failure(f"craton {' '.join(map(str, args))}: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
        return done

    def run(self, *args, **kwargs):
        return self.craton(*args, **kwargs).stdout

    def start_process(self, *args, **kwargs):
        return subprocess.Popen([craton_program(), *args], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **kwargs)

    def json(self, *args, check=True):
        return json.loads(self.craton(*args, "--json", check=check).stdout)

    def path(self, name):
        return os.path.join(self.dir, name)

    def pid(self, name):
        try:
            with open(os.path.join(self.store, name, "pid"), encoding="ascii") as f:
                pid, start = f.read().split()
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
            return int(pid) if fields[19] == start and fields[0] not in "ZX" else 0
        except (OSError, ValueError, IndexError):
            return 0

    def address(self, name, what="address"):
        """Where a daemon listens; what "metrics": for those."""
        with open(os.path.join(self.store, name, what), encoding="ascii") as f:
            return f.read().strip()

    def metrics_text(self, name):
        """What /metrics of a daemon says."""
        with urllib.request.urlopen(f"http://{self.address(name, 'metrics')}/metrics", timeout=30) as answer:
            if not answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"):
                raise Failure(f"/metrics of {name}: {answer.headers['Content-Type']}")
            return answer.read().decode()

    def metrics(self, name):
        return promtext.parse(self.metrics_text(name))

    def signal(self, name, number):
        """To a daemon that runs: 0 is no process but all of our own group."""
        pid = self.pid(name)
        if not pid:
            raise Failure(f"{name} does not run")
        os.kill(pid, number)

    def kill9(self, name):
        self.signal(name, signal.SIGKILL)
        wait_until(lambda: not self.pid(name), f"{name} to be gone")

    def start_one(self, name):
        self.run("local", "start", self.store, name)

    def beside(self, program, place):
        """A craton that finds another program of the build tree in the place of one of its own."""
        if not program:
            return craton_program()
        folder = self.path("bin-" + os.path.basename(program))
        if not os.path.isdir(folder):
            os.mkdir(folder)
            for name in ("craton", "craton-chunkd", "craton-metad"):
                shutil.copy(os.path.join(build_dir(), program if name == place else name), os.path.join(folder, name))
        return os.path.join(folder, "craton")

    def start_program(self, name, program, env=None):
        """Starts a server with another program of the build tree in the place of craton-chunkd."""
        if self.pid(name):
            self.kill9(name)
        before = wait_until(self.registrations, "the store to answer")
        done = subprocess.run([self.beside(program, "craton-chunkd"), "local", "start", self.store, name], env={**self.env, **(env or {})},
                              capture_output=True, check=False, timeout=60)
        if done.returncode:
            raise Failure(f"{program} does not start: {done.stderr.decode(errors='replace')}")
        self.wait_registered([name], before)

    def start(self, *names, up=None):
        """Starts daemons, metads first, and waits until those that serve chunks do, and `up` chunk servers (all, if not given) are up."""
        servers = [name for name in names if name in self.chunkds()]
        for name in set(names) - set(servers):
            self.start_one(name)
        before = wait_until(self.registrations, "the store to answer") if servers else {}
        for name in servers:
            self.start_one(name)
        self.wait_registered(servers, before)
        self.wait_up(up)

    def registrations(self):
        """{server: {(disk, generation)}} of the disks that have registered; nothing of a store that does not answer."""
        done = self.craton("status", "--json", check=False)
        if done.returncode not in (0, 3, 4):
            return {}
        status = json.loads(done.stdout)
        return {s["name"]: {(d["disk"], d["generation"]) for d in status["disks"] if d["server"] == s["server"]} for s in status["servers"]}

    def wait_registered(self, names, before):
        """A server that was away for a moment has been up all the time, for all that metad knows: it serves once its disks are registered again."""
        for name in names:
            wait_until(lambda name=name: self.registrations().get(name, set()) - before.get(name, set()), f"{name} to register")

    def up_servers(self):
        done = self.craton("status", "--json", check=False)
        if done.returncode not in (0, 3, 4):
            return []
        return [s["name"] for s in json.loads(done.stdout)["servers"] if s["state"] == "up"]

    def wait_up(self, count=None):
        wait_until(lambda: len(self.up_servers()) >= (count or self.count), "all chunk servers to be up")

    def heard_since(self, begin):
        """Has metad heard from every chunk server since the monotonic time `begin`? What it says of their disks is no older then."""
        now = time.monotonic()
        return all(s["silent_ms"] / 1000 < now - begin for s in self.json("status", check=False)["servers"])

    def written_bytes(self, name):
        """What the daemon has written to disk since it started, as the kernel counts it."""
        with open(f"/proc/{self.pid(name)}/io", encoding="ascii") as f:
            return int(next(line for line in f if line.startswith("write_bytes:")).split()[1])


def say(text):
    """A line to whoever may be listening: that nobody does is no reason to stop."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def conclude(name, ok, counts, **more):
    """The last line of a proof, and its exit."""
    ok = bool(ok) and all(v > 0 for v in counts.values())
    say(json.dumps({"name": name, "ok": ok, "counts": counts, **more}))
    sys.exit(0 if ok else 1)


def proof_arguments(doc, bar=None, only=None):
    """The arguments of a proof; bar: the names that --bar takes, where a proof has several; the first of them is the default. only: those of --only."""
    import argparse
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    if bar:
        parser.add_argument("--bar", choices=bar, default=bar[0])
    if only:
        parser.add_argument("--only", choices=only, help="nothing else, but more of it than with --quick")
    return parser.parse_args()
