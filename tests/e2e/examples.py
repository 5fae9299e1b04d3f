#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits: until stores have ended, and for what some examples show
"""examples: what --help and the documents show can be typed: each example of each command is run as it stands, but for places and sizes.

The examples are taken from the programs and pages themselves. Absolute places on the host lie in a folder of this test, and what would take
long is made small (SMALLER). What an example takes for granted is made before it (GIVEN); one that is not known here needs nothing.
"""

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, build_dir, craton_program, wait_until
from mounted import can_mount, is_mounted

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SECONDS = 180

SMALLER = [("4G", "16M"), ("1G", "16M"), ("300M", "20M"), ("20G", "2G"), ("10G", "1G"), ("1000000", "300"), ("20000", "200"), ("1000", "10"),
           ("600", "3"), ("1200", "6"), ("step-00000500", "step-00000003"), ("--count 10 --file-size", "--count 5 --file-size"),
           ("bench objects", "bench objects --files 200"), ("bench put --keep", "bench put --size 16M --keep"),
           ("bench get --reuse", "bench get --size 16M --reuse"), ("bench get --degraded", "bench get --size 16M --degraded"),
           ("step-00000003 --json", "step-00000003 --max-steps 6 --json"),
           ("/usr/include", "dataset")]
PLACES = ["/var/tmp", "/var/lib", "/mnt", "/etc", "/srv", "/backup"]
# What lies in the store when a command's examples begin.
DIRECTORIES = ["archive", "runs/new", "runs/failed"]
FILES = ["models/model.bin", "runs/gpt/step-00000100/manifest.json", "data/corpus.bin", "data/a.bin", "data/old.bin", "data/sparse.bin",
         "runs/42/model.bin", "logs/train.log"]
# Example -> what is done before it, in a shell.
GIVEN = {
    "craton get /archive/run.tar - | tar x": "tar c run | craton put - /archive/run.tar",
    "craton mkdir /data": "craton rm -r /data",
    "craton mkdir -p /runs/gpt/checkpoints": "craton rm -r /runs",
    "craton local up /var/tmp/store --chunkd 9 --policy rs-6-3 --capacity 20G": "craton local down /var/tmp/store; rm -r /var/tmp/store",
    "craton local up /var/tmp/store --metad 3": "craton local down /var/tmp/store; rm -r /var/tmp/store",
    "craton disk format /srv/craton/disk1": "mkdir -p /srv/craton/disk1",
    "craton disk format -c conf/craton.conf ./disk --capacity 10G": "mkdir disk",
    "craton meta restore /var/lib/craton/metad /backup/craton-meta": "mkdir -p /var/lib/craton/metad",
    "craton meta transfer metad-2 -c /var/tmp/store/craton.conf": "craton local up /var/tmp/store --metad 3 --chunkd 1",
    "craton mount /mnt/craton": "mkdir -p /mnt/craton",
    "craton mount --allow-other -o ro,noatime /mnt/craton": "craton umount /mnt/craton",
    "craton mount -f /mnt/craton": "craton umount /mnt/craton",
    "craton umount /mnt/craton": "mkdir -p /mnt/craton; craton mount /mnt/craton",
    "craton umount --lazy /mnt/craton": "craton mount /mnt/craton",
    "craton-metad --dir m --listen 127.0.0.1:0 -c craton.conf": "mkdir -p m; cp /etc/craton/* .",
    "craton doctor --dir /mnt/ssd0 --listen 10.1.2.3:7000": "mkdir -p /mnt/ssd0",
    "craton-train --data file:/mnt/craton/data/corpus --max-steps 600": "mkdir -p /mnt/craton; craton mount /mnt/craton",
}
# These run until they are told to end: what shows that they are at work, and the exit status that they then have.
LASTING = {
    "craton status --watch": ("said", -signal.SIGINT),
    "craton mount -f /mnt/craton": ("mounted", 0),
}
STATUS = (0, 3)  # a store of this test may have reason to warn


class Tour:
    def __init__(self):
        self.store = LocalStore(capacity="2G")
        self.home = self.store.path("home")
        self.host = self.store.path("host")
        self.bin = self.store.path("bin")
        for folder in (self.home, self.host, self.bin):
            os.mkdir(folder)
        self.env = {**self.store.env, "PATH": f"{self.bin}:{build_dir()}:{os.environ['PATH']}"}
        # the other end of a ssh is this host
        self.write(os.path.join(self.bin, "ssh"), '#!/bin/sh\nshift\nexec sh -c "$*"\n', 0o755)
        atexit.register(self.clear)
        self.ran, self.failures = 0, []
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]

    def clear(self):
        """Stores and mounts that examples have left: nothing is removed before they have ended."""
        for place in ("/var/tmp/store", "/var/tmp/demo"):
            if os.path.exists(self.here(place)):
                self.shell(f"craton local down {place}")
        if is_mounted(self.here("/mnt/craton")):
            self.shell("craton umount --lazy /mnt/craton")

    def write(self, path, text, mode=0o644):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, mode)

    def fresh(self):
        """Nothing that the examples of another command have left."""
        self.clear()
        for folder in (self.home, self.host):
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder)
        for place in PLACES:
            os.makedirs(self.host + place)
        text = "In the beginning was the word, and a few more words.\n" * 8000
        for name in ["model.bin", "corpus.txt", "file", "dataset/a", "dataset/b/c", "run/log"] + ["given/" + f for f in FILES]:
            self.write(os.path.join(self.home, name), text)
        for name in DIRECTORIES:
            os.makedirs(os.path.join(self.home, "given", name))
        self.write(os.path.join(self.home, "tools", "bible-text"), f"#!/bin/sh\ncat {self.home}/corpus.txt\n", 0o755)
        code, said = self.shell("craton rm -rf $(craton ls -1 / | sed 's,^,/,') /none && cd given && craton put -r * /")
        if code:
            raise SystemExit(f"FAILED: the store of the examples cannot be made: {said}")

    def here(self, text):
        for long, short in SMALLER:
            text = re.sub(rf"(?<![\w.]){re.escape(long)}(?!\w)", short, text)
        for place in PLACES:
            text = re.sub(rf"(?<![\w.]){place}(?=[/ \n;]|$)", self.host + place, text)
        return text.replace("10.0.0.1:7000 --plaintext", f"127.0.0.1:{self.port}").replace("10.1.2.3:7000", "127.0.0.1:0") \
                   .replace("127.0.0.1:7000", f"127.0.0.1:{self.port}").replace("127.0.0.1:7101", "127.0.0.1:0")

    def popen(self, text):
        return subprocess.Popen(["bash", "-c", text], cwd=self.home, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def shell(self, text):
        """Returns (exit status, what it said)."""
        with self.popen(self.here(text)) as proc:
            try:
                said = proc.communicate(timeout=SECONDS)[0]
            except subprocess.TimeoutExpired:
                os.killpg(proc.pid, signal.SIGKILL)
                said = proc.communicate()[0] + b"(killed: it took too long)"
        return proc.returncode, said.decode(errors="replace")

    def lasting(self, text, shows, before_end=None):
        """Until it shows that it works; then it is ended as by ^C. Returns as shell() does."""
        with self.popen("exec " + self.here(text)) as proc:
            try:
                if shows == "said":
                    proc.stdout.read(1)
                elif shows == "mounted":
                    wait_until(lambda: is_mounted(self.here("/mnt/craton")) or proc.poll() is not None, "the mount")
                else:
                    wait_until(lambda: os.path.exists(os.path.join(self.home, self.here(shows))) or proc.poll() is not None, shows)
                if before_end and proc.poll() is None:
                    before_end()
                proc.send_signal(signal.SIGINT)
                said = proc.communicate(timeout=SECONDS)[0]
            finally:
                if proc.poll() is None:
                    os.killpg(proc.pid, signal.SIGKILL)
        return proc.returncode, said.decode(errors="replace")

    def judge(self, where, text, code, said, wanted=(0,)):
        self.ran += 1
        if code not in wanted:
            self.failures.append(f"{where}: {text}: exit {code}: {said.strip()[-600:]}")

    def run(self, where, example):
        command = example.partition("    #")[0].rstrip()
        if command in GIVEN:
            self.shell(GIVEN[command])
        if command in LASTING:
            shows, wanted = LASTING[command]
            self.judge(where, example, *self.lasting(command, shows), wanted=(wanted,))
        else:
            self.judge(where, example, *self.shell(example), wanted=STATUS if command.startswith("craton status") else (0,))


def examples_of(help_text):
    found = re.split(r"^Examples?:\n", help_text, flags=re.M)[1:]
    lines = "".join(found).replace("\\\n", "").splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


def commands(tour):
    listed = subprocess.run([craton_program(), "--help"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^  ([a-z]+) ", listed.split("\nCommands:\n")[1].split("\n\n")[0], re.M)
    no_mount = can_mount()
    for name in names:
        examples = examples_of(subprocess.run([craton_program(), name, "--help"], capture_output=True, text=True, check=True).stdout)
        if not examples:
            tour.failures.append(f"craton {name} --help has no example")
        if name in ("mount", "umount") and no_mount:
            continue
        if name != "disk":  # which goes on from what `cluster` made
            tour.fresh()
        for example in examples:
            tour.run(f"craton {name} --help", example)


def daemons(tour):
    """metad of its first example serves the chunkd of each of the examples."""
    def shown(program):
        return examples_of(subprocess.run([os.path.join(build_dir(), program), "--help"], capture_output=True, text=True, check=True).stdout)

    def chunkd_examples():
        for example in shown("craton-chunkd"):
            tour.shell("mkdir -p s d /var/lib/craton/chunkd-1 /mnt/ssd1 /mnt/ssd2; cp /etc/craton/* .")
            address = os.path.join(re.search(r"--dir (\S+)", example).group(1), "address")
            tour.judge("craton-chunkd --help", example, *tour.lasting(example, address))

    tour.fresh()
    tour.shell("craton cluster init /etc/craton --metad 127.0.0.1:7000")
    first, *others = shown("craton-metad")
    tour.shell("mkdir -p /var/lib/craton/metad-1")
    tour.judge("craton-metad --help", first, *tour.lasting(first, "/var/lib/craton/metad-1/address", chunkd_examples))
    for example in others:
        tour.shell(GIVEN.get(example.partition("    #")[0].rstrip(), "true"))
        tour.judge("craton-metad --help", example, *tour.lasting(example, "m/address"))


def trainer(tour):
    program = os.path.join(build_dir(), "craton-train")
    if not os.path.exists(program):
        return
    tour.fresh()
    for example in examples_of(subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout):
        if "/mnt/" not in example or not can_mount():
            tour.run("craton-train --help", example)


def pages(tour):
    """Blocks of the pages that need nothing but a store: a shell runs the lines one after the other."""
    has_trainer = os.path.exists(os.path.join(build_dir(), "craton-train"))
    for page, begins, wanted in [("README.md", "    export PATH=$PWD:$PATH\n", 20), ("docs/craton-train.md", "tools/bible-text > bible.txt\n", 3),
                                 ("docs/mount.md", "    craton mount /mnt/craton\n", 2)]:
        with open(os.path.join(ROOT, page), encoding="utf-8") as f:
            text = f.read()
        block = re.match(r"(?: {4}.*\n|\n)+" if begins.startswith(" ") else r"(?:[^`\n].*\n)+", text[text.index(begins):]).group()
        lines = [line.strip() for line in block.splitlines() if line.strip() and "PATH=$PWD" not in line]
        if len(lines) < wanted:
            tour.failures.append(f"{page}: only {len(lines)} lines were found")
        if can_mount():
            lines = [line for line in lines if "/mnt/" not in line]
        if not has_trainer:
            lines = [line for line in lines if not line.startswith("craton-train")]
        tour.fresh()
        tour.shell("mkdir -p /mnt/craton")
        script = "".join(f"{{ {line}\n}}; echo \"@@ $? {i}\"\n" for i, line in enumerate(lines))
        code, said = tour.shell(script)
        ends = {int(i): (int(rc), piece) for piece, rc, i in re.findall(r"(.*?)@@ (-?\d+) (\d+)\n", said, re.S)}
        for i, line in enumerate(lines):
            rc, piece = ends.get(i, (code or 1, said))
            tour.judge(page, line, rc, piece, STATUS if line.startswith("craton status") else (0,))


def main():
    tour = Tour()
    for part in (commands, daemons, trainer, pages):
        if len(sys.argv) == 1 or part.__name__ in sys.argv[1:]:
            part(tour)
    for failure in tour.failures:
        print(f"FAILED: {failure}")
    print(f"{tour.ran} examples were run, {len(tour.failures)} failed")
    sys.exit(1 if tour.failures or not tour.ran else 0)


main()
