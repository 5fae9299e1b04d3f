# SPDX-License-Identifier: Apache-2.0
"""turns: a directory that goes to and fro between two names, moved by sessions that soon ask another metad, looked for by sessions that only
look. Whoever changes names waits for a metad that cannot commit; who looks goes on, and would be told names of before by one that led once."""

import errno
import json
import random
import threading
import time

from libcraton import Store, StoreError
from localstore import Failure

MOVER_MS, LOOKER_MS = (150, 200, 250), 30000
MOVERS, EAGER, SLOW = len(MOVER_MS), 3, 6
LOST_MAX = 6  # moves that a session does not know the end of: more of them make the search long
END_S = 120  # in which all sessions end
FIRST_CLIENT = 1000  # of the history; the load has lower numbers


def connect(config, timeout_ms, is_over):
    """However short its patience is."""
    while True:
        try:
            return Store(config, timeout_ms)
        except StoreError as e:
            if e.errno != errno.ETIMEDOUT or is_over():
                raise


class Turns:
    """Rests but between begin() and rest(): what has been moved without an answer may be anywhere from then on, so each begin() has fresh names."""

    def __init__(self, config, seed, movers_host=None):
        self.movers_host = movers_host
        self.lines, self.names, self.made = [], None, 0
        self.changed, self.lock = threading.Condition(), threading.Lock()
        self.stopping, self.failed = False, []
        self.store = Store(config, LOOKER_MS)
        works = [self.move] * MOVERS + [self.look] * (EAGER + SLOW)
        self.threads = [threading.Thread(target=self.work, args=(config, i, works[i], random.Random(seed * 100 + i)), daemon=True) for i in range(len(works))]
        for t in self.threads:
            t.start()

    def note(self, client, op, invoke, outcome, **more):
        line = {"client": FIRST_CLIENT + client, "op": op, **more, "invoke": invoke, "outcome": outcome}
        if outcome != "unknown":
            line["return"] = time.monotonic_ns()
        with self.lock:
            self.lines.append(json.dumps(line))

    def begin(self):
        self.made += 1
        names = (f"turn.{self.made}.a", f"turn.{self.made}.b")
        invoke = time.monotonic_ns()
        self.store.mkdir("/" + names[0])
        inode = self.store.stat("/" + names[0]).inode
        self.note(len(self.threads), "create", invoke, "ok", name=names[0], inode=inode)
        self.set(names)

    def rest(self):
        self.set(None)

    def set(self, names):
        with self.changed:
            self.names = names
            self.changed.notify_all()

    def end(self):
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        deadline = time.monotonic() + END_S
        for t in self.threads:
            t.join(max(0.0, deadline - time.monotonic()))
        if any(t.is_alive() for t in self.threads):
            raise Failure(f"sessions still move and look for names {END_S} s after they were told to end")
        if self.failed:
            raise Failure(f"a session of those that move and look for names ended early: {self.failed[0]}")
        self.store.close()

    def told(self):
        """The lines of the history, so far."""
        with self.lock:
            return list(self.lines)

    # ---- what each thread does ----

    def work(self, config, number, do, rng):
        try:
            self.go_on(config, number, do, rng)
        except Exception as e:  # pylint: disable=broad-except
            self.failed.append(e)

    def go_on(self, config, number, do, rng):
        if self.movers_host and number < MOVERS:
            self.movers_host.enter()
        store = connect(config, MOVER_MS[number] if number < MOVERS else LOOKER_MS, lambda: self.stopping)
        names, lost = None, 0
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.stopping or (self.names and (self.names != names or lost < LOST_MAX)))
                if self.stopping:
                    break
                lost = lost if self.names == names else 0
                names = self.names
            lost += do(store, number, names, rng) == "unknown"
        store.close()

    def move(self, store, number, names, rng):
        name, to = rng.sample(names, 2)
        invoke, outcome = time.monotonic_ns(), "ok"
        try:
            store.rename("/" + name, "/" + to)
        except StoreError as e:
            outcome = "ENOENT" if e.errno == errno.ENOENT else "unknown"
        self.note(number, "rename", invoke, outcome, name=name, to=to)
        time.sleep(rng.uniform(0, 0.02))
        return outcome

    def look(self, store, number, names, rng):
        name = rng.choice(names)
        invoke, outcome, more = time.monotonic_ns(), "ok", {}
        try:
            more = {"inode": store.stat("/" + name).inode}
        except StoreError as e:
            outcome = "ENOENT" if e.errno == errno.ENOENT else "unknown"
        self.note(number, "lookup", invoke, outcome, name=name, **more)
        time.sleep(rng.uniform(0, 0.01 if number < MOVERS + EAGER else 0.6))
        return outcome
