# SPDX-License-Identifier: Apache-2.0
"""mounted: a mount of a LocalStore for proofs and end-to-end tests, served by a process in the foreground, so that its pid is known."""

import atexit
import os
import signal
import subprocess

from localstore import Failure, craton_program, wait_until

SKIP = 77


def can_mount():
    """Empty, or why this machine cannot mount."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is missing or may not be used"
    if os.geteuid() != 0:
        return "not root"
    done = subprocess.run([craton_program(), "mount", "/nowhere"], capture_output=True, check=False)
    return "built without libfuse3" if b"no FUSE" in done.stderr else ""


def is_mounted(path):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        return any(line.split()[4] == path for line in f)


class Mounted:
    """A mount, until end(). Whoever waits in it for ever is woken by the alarm, which kills the process: then calls in it fail."""

    def __init__(self, store, name="mnt", options=(), env=None, seconds=600):
        self.store = store
        self.path = store.path(name)
        os.makedirs(self.path, exist_ok=True)
        self.proc = subprocess.Popen([craton_program(), "mount", "-f", self.path, *options], env={**store.env, **(env or {})},
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        atexit.register(self.kill)
        signal.signal(signal.SIGALRM, self.on_alarm)
        signal.alarm(seconds)
        wait_until(lambda: is_mounted(self.path) or self.proc.poll() is not None, "the mount")
        if self.proc.poll() is not None:
            raise Failure(f"craton mount: {self.errors()}")

    def on_alarm(self, *_):
        self.kill()
        raise TimeoutError("the mount did not answer in time")

    def errors(self):
        return self.proc.stderr.read().decode(errors="replace").strip()

    def kill(self):
        """As by kill -9; the mount point is cleared."""
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        if is_mounted(self.path):
            subprocess.run(["umount", "-l", self.path], check=False)

    def end(self, how=signal.SIGTERM, seconds=60):
        """Ends the mount by a signal, or by `craton umount`; returns (exit status, what it said)."""
        if how == "umount":
            self.store.run("umount", self.path)
        else:
            self.proc.send_signal(how)
        try:
            self.proc.wait(seconds)
        except subprocess.TimeoutExpired as e:
            self.kill()
            raise Failure("the mount did not end") from e
        signal.alarm(0)
        if is_mounted(self.path):
            raise Failure("the process has ended and the mount is still there")
        return self.proc.returncode, self.errors()

    def __truediv__(self, name):
        return os.path.join(self.path, name)
