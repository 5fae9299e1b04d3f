# SPDX-License-Identifier: Apache-2.0
"""How much of the time a disk stands still, as small durable writes beside all others see it."""

import math
import os
import threading
import time

from localstore import Failure

PAUSE_S = 0.02    # that a durable write of 4 KiB takes: a busy disk answers within a few ms
EVERY_S = 0.01
ENDS_S = 60       # in which a write of the probe must end; amid a failure nobody waits for it that long
ENDS_AMID_S = 5


class DiskPauses(threading.Thread):
    """Within `with`, writes to a file of its own in `folder`; then `share` is the part of the time that passed in pauses, `longest_ms` the longest write."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.path = os.path.join(folder, "disk-pauses")
        self.ended, self.failure = threading.Event(), None
        self.share, self.longest_ms, self.writes = math.nan, 0.0, 0

    def run(self):
        began, paused = time.monotonic(), 0.0
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                while not self.ended.wait(EVERY_S):
                    begin = time.monotonic()
                    os.pwrite(fd, bytes(4096), 0)
                    os.fdatasync(fd)
                    took = time.monotonic() - begin
                    paused += took if took > PAUSE_S else 0.0
                    self.longest_ms = max(self.longest_ms, took * 1000)
                    self.writes += 1
            finally:
                os.close(fd)
                os.unlink(self.path)
        except Exception as e: # pylint: disable=broad-except
            self.failure = e
            return
        self.share = paused / (time.monotonic() - began)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        self.ended.set()
        self.join(ENDS_S if kind is None else ENDS_AMID_S)
        if kind is not None:
            return
        if self.is_alive():
            raise Failure(f"a durable write to {self.path} does not end: look at the disk (dmesg), or name another one (CRATON_TEST_DIR)")
        if self.failure:
            raise Failure(f"{self.path}: {self.failure}")
