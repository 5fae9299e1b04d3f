# SPDX-License-Identifier: Apache-2.0
"""mount_model: random operations on a mount, each done on a plain directory, too: results, bytes and attributes must agree (as fsx does).

Only what the mount supports is done: files grow at their end. The seed decides everything. A difference is a Failure that names the operation.
"""

import errno
import os
import random
import shutil
import stat

from localstore import Failure

KIB = 1 << 10
SIZES = (1, 100, 4095, 4096, 4097, 16 * KIB, 64 * KIB + 1, 300 * KIB, 1024 * KIB, 1024 * KIB + 7, 5 * 1024 * KIB)
OPEN_MAX = 6


class Model:
    def __init__(self, mount_path, plain_path, seed, remount):
        self.roots = (mount_path, plain_path)
        self.rng = random.Random(seed)
        self.remount = remount
        self.open = {}      # number -> (relative path when it was opened, (fd, fd), flags)
        self.next = 0
        self.counts = {}
        self.log = []
        for root in self.roots:
            os.makedirs(root, exist_ok=True)

    # ---- doing things twice ----

    def both(self, what, call):
        """call(root index) for both; the same value or the same errno."""
        results = []
        for i in (0, 1):
            try:
                results.append((0, call(i)))
            except OSError as e:
                results.append((e.errno, None))
        self.log.append(f"{what} -> {errno.errorcode.get(results[1][0], 'ok')}")
        if results[0] != results[1]:
            shown = [r if r[1] is None or not isinstance(r[1], bytes) else (r[0], f"{len(r[1])} bytes") for r in results]
            tail = "\n  ".join(self.log[-12:])
            raise Failure(f"{what}: the mount says {shown[0]}, a plain directory {shown[1]}; the last operations:\n  {tail}")
        return results[0]

    def at(self, i, name):
        return os.path.join(self.roots[i], name)

    def names(self, want):
        """Relative paths of what there is: want is 'f', 'd' or 'a' (any)."""
        found = []
        for base, dirs, files in os.walk(self.roots[1]):
            rel = os.path.relpath(base, self.roots[1])
            for n in sorted((files if want != "d" else []) + (dirs if want != "f" else [])):
                found.append(os.path.normpath(os.path.join(rel, n)))
        return sorted(found)

    def some(self, want):
        """Mostly a name that exists, at times one that does not."""
        names = self.names(want)
        return self.rng.choice(names) if names and self.rng.random() < 0.9 else f"none-{self.rng.randrange(5)}"

    def new_name(self):
        dirs = [d for d in self.names("d") if d.count("/") < 3]
        base = self.rng.choice(dirs + [".", "."])
        return os.path.normpath(os.path.join(base, f"n{self.rng.randrange(40)}"))

    def being_written(self, name):
        """A file whose last name goes while it is open for writing takes no more bytes: not done here."""
        try:
            inode = os.stat(self.at(1, name)).st_ino
        except OSError:
            return False
        return any(v[2] & os.O_ACCMODE != os.O_RDONLY and os.fstat(v[1][1]).st_ino == inode for v in self.open.values())

    # ---- operations ----

    def op_create(self):
        if len(self.open) >= OPEN_MAX:
            return
        name, flags = self.new_name(), os.O_RDWR | os.O_CREAT | os.O_EXCL
        fds = [None, None]

        def call(i):
            fds[i] = os.open(self.at(i, name), flags, 0o644)

        if self.both(f"create {name}", call)[0] == 0:
            self.open[self.next] = (name, tuple(fds), flags)
            self.next += 1

    def op_open(self):
        if len(self.open) >= OPEN_MAX:
            return
        name, flags = self.some("f"), self.rng.choice((os.O_RDONLY, os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_TRUNC, os.O_WRONLY | os.O_APPEND))
        fds = [None, None]

        def call(i):
            fds[i] = os.open(self.at(i, name), flags)

        if self.both(f"open {name} {flags:o}", call)[0] == 0:
            self.open[self.next] = (name, tuple(fds), flags)
            self.next += 1

    def pick_open(self, access=(os.O_RDONLY, os.O_WRONLY, os.O_RDWR)):
        keys = [k for k, v in self.open.items() if v[2] & os.O_ACCMODE in access]
        return self.rng.choice(keys) if keys else None

    def op_write(self):
        key = self.pick_open((os.O_WRONLY, os.O_RDWR))
        if key is None:
            return
        name, fds, _ = self.open[key]
        end, data = os.fstat(fds[1]).st_size, self.rng.randbytes(self.rng.choice(SIZES))
        end += self.rng.choice((0, 0, 0, 0, 0, 0, 1, 5000, 2_000_000)) # behind a hole
        self.both(f"write {len(data)} at {end} of {name}", lambda i: os.pwrite(fds[i], data, end))

    def op_read(self):
        key = self.pick_open((os.O_RDONLY, os.O_RDWR))
        if key is None:
            return
        name, fds, _ = self.open[key]
        size = os.fstat(fds[1]).st_size
        at, n = self.rng.randrange(size + 5000), self.rng.choice(SIZES)
        self.both(f"read {n} at {at} of {name}", lambda i: os.pread(fds[i], n, at))

    def new_length(self, size):
        """Mostly shorter, at times longer: then there is a hole."""
        return self.rng.choice((0, size, self.rng.randrange(size + 1), size + self.rng.randrange(100_000)))

    def op_ftruncate(self):
        key = self.pick_open((os.O_WRONLY, os.O_RDWR))
        if key is None:
            return
        name, fds, _ = self.open[key]
        size = self.new_length(os.fstat(fds[1]).st_size)
        self.both(f"ftruncate {name} to {size}", lambda i: os.ftruncate(fds[i], size))

    def op_truncate(self):
        name = self.some("f")
        if not os.path.isfile(self.at(1, name)):
            return
        size = self.new_length(os.stat(self.at(1, name)).st_size)
        self.both(f"truncate {name} to {size}", lambda i: os.truncate(self.at(i, name), size))

    def op_link(self):
        a, b = self.some("f"), self.new_name()
        self.both(f"link {a} {b}", lambda i: os.link(self.at(i, a), self.at(i, b), follow_symlinks=False))

    def op_symlink(self):
        target, name = self.rng.choice(("nowhere", ".", "a/b/../c", "x" * 300)), self.new_name()
        self.both(f"symlink {target} {name}", lambda i: os.symlink(target, self.at(i, name)))
        self.both(f"readlink {name}", lambda i: os.readlink(self.at(i, name)))

    def op_fsync(self):
        key = self.pick_open()
        if key is not None:
            self.both(f"fsync {self.open[key][0]}", lambda i: os.fsync(self.open[key][1][i]))

    def op_fstat(self):
        key = self.pick_open()
        if key is not None:
            self.both(f"fstat {self.open[key][0]}", lambda i: shown(os.fstat(self.open[key][1][i])))

    def op_close(self):
        key = self.pick_open()
        if key is not None:
            name, fds, _ = self.open.pop(key)
            self.both(f"close {name}", lambda i: os.close(fds[i]))

    def op_stat(self):
        name = self.some("a")
        self.both(f"stat {name}", lambda i: shown(os.lstat(self.at(i, name))))

    def op_list(self):
        name = self.rng.choice(["."] + self.names("a"))
        self.both(f"list {name}", lambda i: sorted(os.listdir(self.at(i, name))))

    def op_mkdir(self):
        name = self.new_name()
        self.both(f"mkdir {name}", lambda i: os.mkdir(self.at(i, name), 0o755))

    def op_rmdir(self):
        name = self.some("a")
        self.both(f"rmdir {name}", lambda i: os.rmdir(self.at(i, name)))

    def op_unlink(self):
        name = self.some("f")
        if self.being_written(name):
            return
        self.both(f"unlink {name}", lambda i: os.unlink(self.at(i, name)))

    def op_rename(self):
        a, b = self.some("a"), self.rng.choice([self.some("a"), self.new_name()])
        if self.being_written(b):
            return
        self.both(f"rename {a} {b}", lambda i: os.rename(self.at(i, a), self.at(i, b)))

    def op_chmod(self):
        name, mode = self.some("a"), self.rng.choice((0o600, 0o644, 0o755, 0o700))
        self.both(f"chmod {mode:o} {name}", lambda i: os.chmod(self.at(i, name), mode))

    def op_utime(self):
        name, ns = self.some("f"), self.rng.randrange(10**18)
        self.both(f"utime {name}", lambda i: (os.utime(self.at(i, name), ns=(ns, ns)), os.stat(self.at(i, name)).st_mtime_ns)[1])

    def op_remount(self):
        for key in list(self.open):
            name, fds, _ = self.open.pop(key)
            self.both(f"close {name}", lambda i, fds=fds: os.close(fds[i]))
        self.log.append("remount")
        self.remount()

    def compare(self):
        """Every name, byte and mode."""
        for name in self.names("a"):
            if os.path.islink(self.at(1, name)):
                self.both(f"compare {name}", lambda i, name=name: os.readlink(self.at(i, name)))
            elif os.path.isdir(self.at(1, name)):
                self.both(f"compare {name}", lambda i, name=name: sorted(os.listdir(self.at(i, name))))
            else:
                self.both(f"compare {name}", lambda i, name=name: read_all(self.at(i, name)))
            self.both(f"compare the mode of {name}", lambda i, name=name: os.lstat(self.at(i, name)).st_mode)
        self.both("compare the root", lambda i: sorted(os.listdir(self.at(i, "."))))

    def run(self, operations):
        weights = {"create": 10, "open": 8, "write": 22, "read": 20, "fsync": 3, "fstat": 5, "close": 9, "stat": 8, "list": 4, "mkdir": 5,
                   "rmdir": 2, "unlink": 4, "rename": 5, "chmod": 2, "utime": 2, "truncate": 3, "ftruncate": 4, "link": 2, "symlink": 2, "remount": 0.3}
        for n in range(operations):
            name = self.rng.choices(list(weights), list(weights.values()))[0]
            getattr(self, "op_" + name)()
            self.counts[name] = self.counts.get(name, 0) + 1
            if n % 500 == 499:
                self.compare()
        self.op_remount()
        self.compare()

    def clear(self):
        for key in list(self.open):
            for fd in self.open.pop(key)[1]:
                os.close(fd)
        for root in self.roots:
            shutil.rmtree(root, ignore_errors=True)


def shown(st):
    """What two file systems must agree on: the size of a directory is each one's own."""
    return (st.st_mode, st.st_nlink, None if stat.S_ISDIR(st.st_mode) else st.st_size)


def read_all(path):
    with open(path, "rb") as f:
        return f.read()
