# SPDX-License-Identifier: Apache-2.0
"""metads: the group of a local store's metads as `craton meta` shows and changes it, and metads that are started beside those of the store."""

import atexit
import os
import signal
import socket
import subprocess

from localstore import Failure, build_dir, wait_until


def members(store):
    return store.json("meta", "ls")


def by_name(view):
    return {m["name"]: m for m in view["replicas"]}


def leader(store):
    return next((m["name"] for m in members(store)["replicas"] if m["role"] == "leader" and m["state"] == "up"), None)


def is_level(view):
    """All are up, have all that the leader has, and each has its part."""
    roles = sorted(m["role"] for m in view["replicas"])
    return roles == ["follower"] * (len(roles) - 1) + ["leader"] and all(m["state"] == "up" and m["lag"] == 0 for m in view["replicas"])


def is_group(store, names):
    return lambda: (v := members(store)) and [m["name"] for m in v["replicas"]] == names and is_level(v)


def change(store, *args):
    """`craton meta`, as often as it says that it may be tried again."""
    def done():
        try:
            return store.run("meta", *args) or True
        except Failure as e:
            if not str(e).endswith("try again"):
                raise
            return False
    wait_until(done, f"craton meta {' '.join(args)}")


def name_all(store):
    """What an operator does when a group has changed: craton.conf names those that are there."""
    conf = store.env["CRATON_CONF"]
    with open(conf, encoding="ascii") as f:
        lines = f.readlines()
    addresses = ", ".join(m["address"] for m in members(store)["replicas"])
    with open(conf + ".new", "w", encoding="ascii") as f:
        f.writelines(f"metad = {addresses}\n" if line.startswith("metad =") else line for line in lines)
    os.rename(conf + ".new", conf)


class Joiner:
    """A metad that is started beside those of the store, as an operator would on another host."""

    all = []

    def __init__(self, store, number, folder=None, address=None):
        self.name = f"metad-{number}"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = address or f"127.0.0.1:{s.getsockname()[1]}"
        self.dir = store.path(folder or self.name)
        os.makedirs(self.dir, exist_ok=True)
        self.log = os.path.join(self.dir, "daemon.log")
        self.args = [os.path.join(build_dir(), "craton-metad"), "-c", store.env["CRATON_CONF"], "--dir", self.dir, "--name", self.name,
                     "--listen", self.address, "--replica", str(number), "--join"]
        self.restart()
        atexit.register(self.kill)
        self.all.append(self)

    def restart(self):
        with open(self.log, "ab") as log:
            begin = log.tell()
            self.process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)  # a daemon: where the kernel shares processors by session, not at the expense of those who test it
        wait_until(lambda: self.process.poll() is None and self.said("ready", begin), f"{self.name} to be ready")

    def said(self, text, begin=0):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            f.seek(begin)
            return text in f.read()

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
