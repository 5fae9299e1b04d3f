# SPDX-License-Identifier: Apache-2.0
"""netgroup: a group of metads, each on a host of its own (a network namespace) that can be cut off from others, one of them on a small disk.

All of it belongs to the process that makes it: namespaces, mounts and daemons go when it ends, however it ends."""

import atexit
import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile

from localstore import Failure, build_dir, craton_program, wait_until

PORT = 7000
CLONE_NEWNS, CLONE_NEWNET, MS_REC, MS_PRIVATE = 0x20000, 0x40000000, 0x4000, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def private_mounts(more=0):
    """Mounts of our own, from now on, and of all that we start. False: that is not allowed here."""
    if libc.unshare(CLONE_NEWNS | more) != 0:
        return False
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        raise Failure(f"mounts cannot be made private: {os.strerror(ctypes.get_errno())}")
    return True


def private_hosts():
    """Likewise, with a network of our own."""
    if not private_mounts(CLONE_NEWNET):
        return False
    for program in ("ip", "nft", "nsenter"):
        if not shutil.which(program):
            raise Failure(f"{program} is missing: apt-get install iproute2 nftables util-linux")
    call("ip", "link", "set", "lo", "up")
    call("ip", "link", "add", "hosts", "type", "bridge")
    call("ip", "addr", "add", "10.77.0.254/24", "dev", "hosts")
    call("ip", "link", "set", "hosts", "up")
    return True


def call(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


class Host:
    """A network namespace on the bridge; one process holds it, which ends when its standard input closes."""

    def __init__(self, number):
        self.number, self.ip = number, f"10.77.0.{number}"
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo up; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "up\n":
            raise Failure(f"host {number} cannot be made")
        call("ip", "link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        call("ip", "link", "set", f"host{number}", "master", "hosts", "up")
        for words in (("addr", "add", f"{self.ip}/24", "dev", "eth0"), ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
            call(*self.inside("ip", *words))

    def end(self):
        """The kernel takes a namespace away when it finds time; the next one may have the same number."""
        if self.holder.stdin.closed:
            return
        call("ip", "link", "del", f"host{self.number}")
        self.holder.stdin.close()
        self.holder.wait()

    def inside(self, *command):
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--", *command]

    def enter(self):
        """This thread and what it starts are on this host from now on."""
        with open(f"/proc/{self.holder.pid}/ns/net", encoding="ascii") as f:
            if libc.setns(f.fileno(), CLONE_NEWNET) != 0:
                raise Failure(f"a thread cannot go to {self.ip}: {os.strerror(ctypes.get_errno())}")

    def drop(self, come_from, go_to, loudly=False):
        """Packets of these addresses do not come in, those to these do not go out: silently, as on a network that is cut; loudly: who sends is told."""
        def rule(direction, ips):
            return f"ip {direction} {{ {', '.join(ips)} }} {'meta l4proto tcp counter reject with tcp reset' if loudly else 'counter drop'}" if ips else ""
        call(*self.inside("nft", "-f", "-"), text="table inet cut {\n"
             f"chain in {{\ntype filter hook input priority 0; policy accept;\n{rule('saddr', come_from)}\n}}\n"
             f"chain out {{\ntype filter hook output priority 0; policy accept;\n{rule('daddr', go_to)}\n}}\n}}\n")

    def heal(self):
        """How many packets were dropped."""
        dropped = sum(int(n) for n in re.findall(r"counter packets (\d+)", call(*self.inside("nft", "list", "table", "inet", "cut"))))
        call(*self.inside("nft", "delete", "table", "inet", "cut"))
        return dropped


class Metad:
    def __init__(self, group, number, host, address):
        self.group, self.number, self.host, self.address = group, number, host, address
        self.name = f"metad-{number}"
        self.dir = os.path.join(group.dir, self.name)
        self.log = os.path.join(group.dir, f"{self.name}.log")
        self.process = None
        os.mkdir(self.dir)

    def start(self, *options):
        command = [os.path.join(build_dir(), "craton-metad"), "-c", group_conf(self.group.dir), "--name", self.name, "--dir", self.dir,
                   "--listen", self.address, "--replica", str(self.number), *self.group.options.get(self.name, ()), *options]
        began = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--"] + (self.host.inside(*command) if self.host else command),
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        wait_until(lambda: self.said(" ready ", began) or self.process.poll() is not None, f"{self.name} to be ready")
        if self.process.poll() is not None:
            raise Failure(f"{self.name} does not start: {self.said('', began)[-500:]}")

    def said(self, text, since=0):
        """What it logged since then, if that is in it."""
        with open(self.log, encoding="utf-8", errors="replace") as f:
            f.seek(since)
            lines = f.read()
        return lines if text in lines else ""

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()


def group_conf(folder):
    return os.path.join(folder, "craton.conf")


class NetGroup:
    """hosts: private_hosts() was true; else all are on loopback, and nothing can be cut. options: of a metad, by name. disk: (name, bytes), of one
    whose directory has a file system of its own."""

    def __init__(self, count=3, hosts=True, options=None, disk=None):
        self.dir = tempfile.mkdtemp(prefix="craton-test-", dir=os.environ.get("CRATON_TEST_DIR") or "/var/tmp")
        self.options, self.disk, self.metads = options or {}, disk if hosts else None, []
        self.aside = None  # of clients that are cut off together with some metads
        atexit.register(self.destroy)
        places = [Host(n) if hosts else None for n in range(1, count + 1)]
        self.aside = Host(100) if hosts else None
        addresses = [f"{h.ip}:{PORT}" if h else free_address() for h in places]
        self.env = {**os.environ, "CRATON_CONF": group_conf(self.dir)}
        self.craton("cluster", "init", self.dir, "--metad", ",".join(addresses), *(["--plaintext"] if hosts else []))
        for n in range(count):
            self.metads.append(Metad(self, n + 1, places[n], addresses[n]))
        if self.disk:
            call("mount", "-t", "tmpfs", "-o", f"size={self.disk[1]},mode=700", "craton-disk", self.named(self.disk[0]).dir)
        for metad in self.metads:
            metad.start("--found")

    def destroy(self):
        """Twice is no mistake."""
        for metad in self.metads:
            if metad.runs():
                metad.kill()
            if metad.host:
                metad.host.end()
        if self.aside:
            self.aside.end()
        if self.disk and self.metads and os.path.ismount(self.named(self.disk[0]).dir):
            call("umount", self.named(self.disk[0]).dir)
        if os.environ.get("CRATON_TEST_KEEP"):
            print(f"kept: {self.dir}")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def named(self, name):
        return next(m for m in self.metads if m.name == name)

    def craton(self, *args, check=True):
        done = subprocess.run([craton_program(), *args], env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False)
        if check and done.returncode != 0:
            raise Failure(f"craton {' '.join(args)}: exit {done.returncode}: {done.stderr.strip()}")
        return done

    def view(self):
        """What who is asked says of the group; None: nobody answers."""
        done = self.craton("meta", "ls", "--json", "--timeout", "2s", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def whole(self, lag):
        """(leader, followers) once all are heard, and none lacks more entries than so many."""
        def is_level(m):
            return m["state"] == "up" and m["role"] in ("leader", "follower") and m["lag"] <= lag

        def look():
            view = self.view()
            members = view["replicas"] if view else []
            leaders = [m["name"] for m in members if m["role"] == "leader"]
            if len(leaders) != 1 or any(not is_level(m) or m["term"] != view["term"] for m in members):
                return None
            return self.named(leaders[0]), [m for m in self.metads if m.name != leaders[0]]
        return wait_until(look, "the group to be whole")

    # ---- the network ----

    def cut(self, metad, others, ways="both", clients=False):
        """Between this one and others: packets in both ways, or only those that go out of it. clients: nobody else hears it, either."""
        ips = [m.host.ip for m in others] + (["10.77.0.254"] if clients else [])
        metad.host.drop(ips if ways == "both" else [], ips)

    # ---- the small disk ----

    def fill(self):
        """Its last byte is taken; free() gives all of it back."""
        path = os.path.join(self.named(self.disk[0]).dir, "taken")
        with open(path, "wb", buffering=0) as f:
            piece = bytes(1 << 20)
            while piece:
                try:
                    f.write(piece)
                except OSError:
                    piece = piece[:len(piece) // 2]
        return os.path.getsize(path)

    def free(self):
        os.unlink(os.path.join(self.named(self.disk[0]).dir, "taken"))
