# SPDX-License-Identifier: Apache-2.0
"""soak: the frame of tools/soak and tools/soak-raft: many pieces of work by seed, done by processes side by side, remembered by build."""

import argparse
import collections
import hashlib
import json
import os
import subprocess
import sys
import threading
import time

from localstore import build_dir

SAID_BYTES = 6000  # of what a program printed, kept and shown when it failed


def parser_of(doc, what, count):
    """The options that every soak has; --WHAT is how many seeds."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--" + what, dest="count", type=int, default=count, metavar="N")
    parser.add_argument("--first", type=int, default=1, metavar="S")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N")
    parser.add_argument("--time", type=float, metavar="SECONDS", help="stop after so long")
    parser.add_argument("--results", metavar="DIR", help="default: the build folder")
    parser.add_argument("--json", action="store_true", help="the summary as a last line in JSON")
    return parser


class Soak:
    """A subclass says what a result's key is (key_of) and does a batch of them (work_on): keep() takes each result, `failures` what gave none.
    `todo` holds the keys still to do; take() gives a worker his next batch of them."""

    def __init__(self, name, args, program, wanted, settings=""):
        """wanted: keys in order; settings: what beside the program decides a result."""
        self.args = args
        self.program = os.path.join(build_dir(), program)
        if not os.access(self.program, os.X_OK):
            sys.exit(f"{name}: {self.program} is missing: build it first, or set CRATON_BUILD")
        with open(self.program, "rb") as f:
            key = hashlib.sha256(settings.encode() + hashlib.sha256(f.read()).digest()).hexdigest()[:16]
        folder = args.results or build_dir()
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"{name}-{key}.jsonl")
        self.lock = threading.Lock()
        self.results = self.read()
        self.wanted = wanted
        self.known = {key for key in wanted if key in self.results}
        self.todo = collections.deque(key for key in wanted if key not in self.known)
        self.failures = []  # of the program itself; a result may say of itself that it failed
        self.seconds = 0.0

    def key_of(self, result):
        raise NotImplementedError

    def work_on(self, batch):
        raise NotImplementedError

    def read(self):
        """A line cut short by a kill is its seed's bad luck: it is run again."""
        results = {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8", errors="replace") as f:
                for line in f:
                    try:
                        result = json.loads(line)
                        results[self.key_of(result)] = result
                    except (ValueError, KeyError, TypeError):
                        pass
        return results

    def take(self):
        """With the lock held."""
        return self.todo.popleft()

    def keep(self, result):
        with self.lock:
            self.results[self.key_of(result)] = result
            with open(self.path, "a", encoding="utf-8") as f:
                f.write(json.dumps(result) + "\n")

    def say(self, text):
        with self.lock:
            print(text, end="", flush=True)

    def start(self, *options):
        return subprocess.Popen([self.program, *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                stdin=subprocess.DEVNULL, text=True, errors="replace")

    def work(self, deadline):
        while True:
            with self.lock:
                if not self.todo or (deadline and time.monotonic() > deadline):
                    return
                batch = self.take()
            self.work_on(batch)

    def run(self):
        """Until all is done or the time is over; returns the results that were wanted, in order."""
        begin = time.monotonic()
        deadline = begin + self.args.time if self.args.time else None
        threads = [threading.Thread(target=self.work, args=(deadline,)) for _ in range(self.args.jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.seconds = max(time.monotonic() - begin, 1e-9)
        return [self.results[key] for key in self.wanted if key in self.results]

    def end(self, ok, **figures):
        """The verdict: a last line in JSON if asked for, and the exit status."""
        if self.args.json:
            print(json.dumps({"ok": ok, **figures}))
        sys.exit(0 if ok else 1)


def prove(name, doc, command, quick, full, seeds_apart):
    """The body of a proof that is a soak. COMMAND ends in the option that takes the count; a seed of the proof begins SEEDS_APART on."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    command = [*command, str(quick if args.quick else full), "--first", str(1 + args.seed * seeds_apart), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, errors="replace", check=False)
    lines = done.stdout.splitlines()
    print("\n".join(lines[:-1]), flush=True)
    try:
        result = json.loads(lines[-1])
    except (ValueError, IndexError):
        sys.exit(f"{name}: {command[0]} ended with {done.returncode}")
    ok = done.returncode == 0 and result["ok"]
    print(json.dumps({"name": name, **result, "ok": ok}))
    sys.exit(0 if ok else 1)
