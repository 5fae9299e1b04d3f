#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mount: what programs see of a mounted store, how mounts begin and end, and what is said when they cannot. Over io_uring and epoll."""

import errno
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from localstore import LocalStore, sha256_file, wait_until, write_random
from mounted import SKIP, Mounted, can_mount, is_mounted

MIB = 1 << 20


def check(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def refused(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except OSError as e:
        check(e.errno == code, f"{call.__name__}{args}: {e}, expected {errno.errorcode[code]}")
        return
    raise SystemExit(f"FAILED: {call.__name__}{args} succeeded, expected {errno.errorcode[code]}")


def content(path):
    with open(path, "rb") as f:
        return f.read()


def past_the_cache(path):
    buf, got = mmap.mmap(-1, MIB), b""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    while n := os.readv(fd, [buf]):
        got += buf[:n]
    os.close(fd)
    return got


def directory_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError: # it has ended
        return ""


def names(m):
    os.mkdir(m / "d", 0o750)
    os.makedirs(m / "d/e/f")
    refused(errno.EEXIST, os.mkdir, m / "d")
    refused(errno.ENOENT, os.stat, m / "none")
    refused(errno.ENOTEMPTY, os.rmdir, m / "d")
    refused(errno.ENAMETOOLONG, os.mkdir, m / ("x" * 256))
    os.mkdir(m / ("x" * 255))
    st = os.stat(m / "d")
    check(st.st_mode & 0o7777 == 0o750 and st.st_nlink == 3, f"stat of a directory: {st}")
    os.rename(m / "d/e", m / "moved")
    check(os.listdir(m / "moved") == ["f"] and os.listdir(m / "d") == [], "rename of a directory")
    refused(errno.EINVAL, os.rename, m / "moved", m / "moved/f/inside")
    for name in ("one", "two"):
        with open(m / name, "w", encoding="ascii") as f:
            f.write(name)
    os.rename(m / "one", m / "two")
    check(content(m / "two") == b"one", "rename replaces")
    refused(errno.ENOENT, os.stat, m / "one")
    refused(errno.ENOTDIR, os.listdir, m / "two")
    refused(errno.EISDIR, os.unlink, m / "moved")
    os.rmdir(m / "moved/f")
    os.rmdir(m / "moved")
    os.unlink(m / "two")
    refused(errno.ENOENT, os.unlink, m / "two")
    refused(errno.EOPNOTSUPP, os.mkfifo, m / "pipe")
    usage = os.statvfs(m.path)
    check(usage.f_blocks > 0 and usage.f_bfree > usage.f_bavail > 0 and usage.f_namemax == 255, f"statvfs: {usage}") # some is for repair
    check(0 < usage.f_ffree == usage.f_favail < usage.f_files, f"room for more files: {usage}")


def attributes(m):
    path = m / "attr"
    with open(path, "wb") as f:
        f.write(b"0123456789")
        f.flush()
        os.utime(path, ns=(5, 1_234_567_890_123_456_789)) # before the bytes are committed, as cp -p does
    os.chown(path, 12, 34)
    os.chmod(path, 0o4711)
    for look in range(2):
        st = os.stat(path)
        check((st.st_mode & 0o7777, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns) == (0o4711, 12, 34, 10, 1_234_567_890_123_456_789),
              f"attributes, look {look}: {st}")
        check(m.store.json("stat", "/attr")["complete"], "complete when close has returned")
    seen = m.store.json("stat", "/attr")
    check(seen["mtime_ns"] == 1_234_567_890_123_456_789 and seen["mode"] == "4711" or seen["uid"] == 12, f"craton stat: {seen}")


def listing(m):
    """More entries than a page has, with names removed while the list is read."""
    os.mkdir(m / "many")
    want = {f"n{i:04}" for i in range(700)}
    for name in want:
        os.mkdir(m / f"many/{name}")
    before = len(os.listdir(f"/proc/{m.proc.pid}/fd"))
    check(set(os.listdir(m / "many")) == want, "a listing of 700")
    check(sum(1 for name in want if os.stat(m / f"many/{name}").st_ino) == 700, "700 looked up")
    now = len(os.listdir(f"/proc/{m.proc.pid}/fd"))
    check(now < before + 20, f"names that the kernel knows hold no descriptors: {before} before 700 names, {now} with them")
    seen = set()
    with os.scandir(m / "many") as it:
        for n, e in enumerate(it):
            seen.add(e.name)
            if n == 300:
                os.rmdir(m / "many/n0699")
    check(want - seen <= {"n0699"} and seen <= want, "a listing while a name goes")
    done = subprocess.run(["find", m / "many", "-maxdepth", "1"], capture_output=True, check=True)
    check(len(done.stdout.splitlines()) == 700, "find")
    shutil.rmtree(m / "many")


def writes(m):
    path = m / "w"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    refused(errno.EEXIST, os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, b"abc")
    check(os.fstat(fd).st_size == 3 and os.stat(path).st_size == 3, "the size of what is being written")
    check(os.pread(fd, 10, 0) == b"abc", "a file reads its own bytes")
    refused(errno.EOPNOTSUPP, os.pwrite, fd, b"x", 0)
    os.write(fd, b"def")
    other = os.open(path, os.O_RDONLY)
    check(os.read(other, 100) == b"abcdef", "another handle reads them, too")
    os.write(fd, b"g" * 5000)
    check(len(os.read(other, 10000)) == 5000, "and what came since")
    os.fsync(fd)
    again = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(again, b"h")
    os.close(again)
    os.close(fd)
    check(content(path) == b"abcdef" + b"g" * 5000 + b"h", "two handles wrote one file")
    fd = os.open(path + "2", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"abc")
    slow = os.open(path + "2", os.O_RDONLY)
    check(os.read(slow, 100) == b"abc", "a reader beside a writer")
    os.write(fd, b"d" * 5000)
    os.close(fd)
    check(len(os.read(slow, 10000)) == 5000, "the reader goes on when the writer is gone")
    os.close(slow)
    os.unlink(path)
    check(os.pread(other, 3, 0) == b"abc" and os.fstat(other).st_nlink == 0, "an open file outlives its name")
    os.close(other)
    os.mkdir(m / "t")
    with tempfile.TemporaryFile(dir=m / "t") as f: # made, removed, then written
        f.write(b"first " * 5000)
        f.flush()
        os.fsync(f.fileno())
        f.write(b"second")
        f.flush()
        check(os.pread(f.fileno(), 99999, 0) == b"first " * 5000 + b"second", "a file without a name is written and read")
        check(os.fstat(f.fileno()).st_nlink == 0, "and has none")
    wait_until(lambda: not m.store.run("ls", "/t"), "a removed file to go with its last handle")
    fd = os.open(m / "t/old", os.O_WRONLY | os.O_CREAT) # replaced while it is written
    os.write(fd, b"old")
    with open(m / "t/new", "wb") as f:
        f.write(b"new")
    os.rename(m / "t/new", m / "t/old")
    os.write(fd, b" goes on")
    os.fsync(fd)
    os.write(fd, b" and on")
    check(content(m / "t/old") == b"new", "the name is the new file's")
    check(os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_size == len(b"old goes on and on"), "a file that was replaced is written on")
    os.close(fd)
    wait_until(lambda: m.store.run("ls", "-1", "/t") == b"old\n", "a replaced file to go with its last handle")
    fd = os.open(m / "t/kept", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"kept")
    open(m / "t/from", "wb").close()
    os.stat(m / "t/from") # the kernel believes in it for a second
    m.store.run("rm", "/t/from")
    refused(errno.ENOENT, os.rename, m / "t/from", m / "t/kept")
    os.write(fd, b" all the same")
    os.close(fd)
    wait_until(lambda: m.store.run("ls", "-1", "/t") == b"kept\nold\n", "what was not replaced to have one name")
    check(content(m / "t/kept") == b"kept all the same", "a rename that failed took nothing")
    fd = os.open(m / "t/half", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"half")
    os.unlink(m / "t/half")
    refused(errno.ENOENT, os.stat, m / "t/half")
    os.write(fd, b" and half")
    os.fsync(fd)
    shutil.rmtree(m / "t") # and with it the name that it has still
    refused(errno.ESTALE, os.close, fd)
    fd = os.open(m / "two", os.O_WRONLY | os.O_CREAT)
    os.link(m / "two", m / "names")
    os.unlink(m / "two")
    os.write(fd, b"two")
    os.close(fd)
    check(content(m / "names") == b"two" and not m.store.craton("stat", "/two", check=False).stdout, "one name of two goes")


def lengths(m):
    """Files that are written again: cut, made longer, appended to, with holes; by handles that were open before."""
    path = m / "l"
    with open(path, "wb") as f:
        f.write(b"x" * 100_000)
    old = os.open(path, os.O_RDONLY)
    check(os.pread(old, 10, 0) == b"x" * 10 and os.pread(old, 10, 99_995) == b"xxxxx", "both ends of a file")
    for text in (b"second", b"third, longer than the second", b""):
        with open(path, "wb") as f: # O_TRUNC
            f.write(text)
        check(os.pread(old, 1000, 0) == text, f"written again, by a handle from before: {text}")
        check(content(path) == text and os.stat(path).st_size == len(text), f"written again: {text}")
        check(not text or m.store.json("stat", "/l")["complete"], "complete when close has returned")
        check(m.store.run("cat", "/l") == text, f"by craton cat: {text}")
    for i in range(5):
        with open(path, "ab") as f:
            f.write(b"%d" % i * 1000)
    want = b"".join(b"%d" % i * 1000 for i in range(5))
    check(content(path) == want and os.pread(old, 9999, 0) == want, "appended")
    os.truncate(path, 1500)
    check(content(path) == want[:1500] and os.pread(old, 9999, 0) == want[:1500], "cut")
    os.truncate(path, 3000)
    check(content(path) == want[:1500] + bytes(1500), "made longer")
    fd = os.open(path, os.O_RDWR)
    os.ftruncate(fd, 10)
    os.pwrite(fd, b"abc", 5000)
    check(os.pread(fd, 9999, 0) == want[:10] + bytes(4990) + b"abc", "a hole before a write")
    os.ftruncate(fd, 5001)
    os.pwrite(fd, b"z", 5001)
    os.close(fd)
    check(content(path) == want[:10] + bytes(4990) + b"az" == m.store.run("cat", "/l"), "cut while it is written")
    two = [os.open(path, os.O_WRONLY | os.O_APPEND) for _ in range(2)]
    for i in range(20):
        os.write(two[i % 2], b"%02d" % i)
    for fd in two:
        os.close(fd)
    check(content(path)[5002:] == b"".join(b"%02d" % i for i in range(20)), "two handles append")
    subprocess.run(["sh", "-c", f"(echo a; /bin/echo b; echo c) > {path}; /bin/echo d >> {path}"], check=True)
    check(content(path) == b"a\nb\nc\nd\n", "a shell's redirections")
    os.close(old)
    sparse = m.store.path("sparse")
    with open(sparse, "wb") as f:
        f.write(b"begin")
        f.seek(3 * MIB)
        f.write(b"end")
    subprocess.run(["cp", "--sparse=always", sparse, m / "sparse"], check=True)
    check(content(sparse) == content(m / "sparse"), "a file with a hole")
    with open(path, "wb") as f:
        f.write(b"old")
    m.store.run("put", sparse, "/l")
    with open(path, "ab") as f: # by a name that may be old: what is there now is appended to
        f.write(b"!")
    check(content(path) == content(sparse) + b"!", "an append to what craton put has replaced")


def links(m):
    with open(m / "target", "wb") as f:
        f.write(b"linked")
    os.symlink("target", m / "soft")
    os.symlink("no/where", m / "dangling")
    check(os.readlink(m / "soft") == "target" and content(m / "soft") == b"linked", "a symbolic link")
    refused(errno.ENOENT, os.stat, m / "dangling")
    check(os.path.islink(m / "dangling") and sorted(e.name for e in os.scandir(m.path) if e.is_symlink()) == ["dangling", "soft"], "listed as links")
    os.link(m / "target", m / "hard")
    check(os.stat(m / "hard").st_nlink == 2 and os.path.samefile(m / "hard", m / "target"), "a hard link")
    os.unlink(m / "target")
    check(content(m / "hard") == b"linked" and os.stat(m / "hard").st_nlink == 1, "the other name stays")
    refused(errno.EPERM, os.link, m / "d", m / "dir-link")
    os.setxattr(m / "hard", "user.color", b"green")
    os.setxattr(m / "hard", "user.empty", b"")
    check(os.getxattr(m / "hard", "user.color") == b"green" and os.getxattr(m / "hard", "user.empty") == b"", "attributes")
    check(sorted(os.listxattr(m / "hard")) == ["user.color", "user.empty"], "the list of attributes")
    refused(errno.EEXIST, os.setxattr, m / "hard", "user.color", b"red", os.XATTR_CREATE)
    os.removexattr(m / "hard", "user.color")
    refused(errno.ENODATA, os.getxattr, m / "hard", "user.color")
    refused(errno.ENODATA, os.removexattr, m / "hard", "user.color")
    refused(errno.EOPNOTSUPP, os.setxattr, m / "hard", "security.x", b"1")


def big(m, rng):
    source = m.store.path("source")
    for size in (0, 1, 4095, 4096, 16384, MIB - 1, MIB + 1, 16 * MIB + 1, 37 * MIB + 4321):
        write_random(source, size, rng)
        shutil.copyfile(source, m / "big")
        check(sha256_file(source) == sha256_file(m / "big"), f"{size} bytes came back different")
        check(content(source) == past_the_cache(m / "big"), f"{size} bytes came back different with O_DIRECT")
        if size > 3:
            with open(source, "rb") as a, open(m / "big", "rb") as b:
                for _ in range(20):
                    at, n = rng.randrange(size), rng.randrange(1, 3 * MIB)
                    check(os.pread(a.fileno(), n, at) == os.pread(b.fileno(), n, at), f"{n} bytes at {at} of {size}")
        wait_until(lambda: size or m.store.json("stat", "/big")["complete"], "an empty file to be complete")
        m.store.run("get", "/big", m.store.path("out"))
        check(sha256_file(source) == sha256_file(m.store.path("out")), f"{size} bytes, by craton get")
        os.unlink(m / "big")


def others(m):
    """What is changed past the mount is seen: at once by an open, within a second by the rest."""
    source = m.store.path("source")
    for text in (b"first", b"the second, longer", b"3"):
        with open(source, "wb") as f:
            f.write(text)
        m.store.run("put", source, "/outside")
        check(content(m / "outside") == text, f"an open after {text}")
        check(os.stat(m / "outside").st_size == len(text), "the size after the open")
    m.store.run("mkdir", "/appeared")
    wait_until(lambda: "appeared" in os.listdir(m.path), "a new name", 10)
    m.store.run("rm", "/outside")
    wait_until(lambda: not os.path.exists(m / "outside"), "a removed name to go", 10)


def hosts(store):
    """Two mounts, as on two hosts: what one has closed the other opens."""
    a, b = Mounted(store, "mnt-a"), Mounted(store, "mnt-b")
    want = b""
    for i in range(10):
        x, y = (a, b) if i % 2 else (b, a)
        with open(x / "shared", "ab") as f:
            f.write(b"%d" % i * 700)
        want += b"%d" % i * 700
        check(content(y / "shared") == want and os.stat(y / "shared").st_size == len(want), f"seen after close {i}")
    early = os.open(a / "shared", os.O_WRONLY | os.O_APPEND)
    with open(b / "shared", "ab") as f:
        f.write(b"between")
    os.write(early, b"late")
    os.close(early)
    check(content(b / "shared") == want + b"betweenlate", "an append goes to the end as it is then")
    first = os.open(a / "shared", os.O_WRONLY | os.O_APPEND)
    os.write(first, b"lost")
    second = os.open(b / "shared", os.O_WRONLY | os.O_APPEND)
    os.write(second, b"won")
    reader = os.open(a / "shared", os.O_RDONLY)
    refused(errno.ESTALE, os.fsync, first)
    refused(errno.ESTALE, os.write, first, b"more")
    check(os.pread(reader, 9999, 0) == want + b"betweenlate", "a reader beside a writer that has failed")
    check(content(a / "shared") == want + b"betweenlate", "and one that comes later")
    os.close(reader)
    os.fsync(second)
    check(content(a / "shared") == want + b"betweenlatewon", "and what another host has written meanwhile")
    for _ in range(2):
        refused(errno.ESTALE, os.open, a / "shared", os.O_WRONLY | os.O_TRUNC)
    refused(errno.ESTALE, os.close, first)
    os.close(second)
    check(content(a / "shared") == want + b"betweenlatewon", "of two writers the later one wins, and the other is told")
    for name, end in (("removed", lambda: os.unlink(b / "removed")), ("replaced", lambda: os.replace(b / "other", b / "replaced"))):
        with open(b / "other", "wb") as f:
            f.write(b"other")
        fd = os.open(a / name, os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"synced")
        os.fsync(fd)
        reader = os.open(a / name, os.O_RDONLY)
        end()
        refused(errno.ESTALE, lambda: (os.write(fd, b" and lost"), os.fsync(fd)))
        check(os.pread(reader, 99, 0) == b"synced", f"a reader of a file that was {name} by another host")
        os.close(reader)
        refused(errno.ESTALE, os.close, fd)
    with open(a / "shared", "wb") as f: # none of the opens that failed has left a handle, and with it the error
        f.write(b"new")
    check(content(b / "shared") == b"new", "written anew after that")
    for m in (a, b):
        code, said = m.end("umount")
        check(code == 0 and not said, f"end: exit {code}: {said}")


def ends(store, rng):
    """By signals and by umount, idle and with files open; a killed process; what was written is there."""
    data = rng.randbytes(5 * MIB + 3)
    for n, how in enumerate((signal.SIGTERM, signal.SIGINT, "umount")):
        m = Mounted(store)
        with open(m / f"end-{n}", "wb") as f:
            f.write(data)
        code, said = m.end(how)
        check(code == 0 and not said, f"end by {how}: exit {code}: {said}")
        check(store.run("cat", f"/end-{n}") == data, f"the bytes after {how}")

    m = Mounted(store)
    fd = os.open(m / "busy", os.O_WRONLY | os.O_CREAT)
    check(os.write(fd, data) == len(data), "a write")
    check(store.craton("umount", m.path, check=False).returncode == 1, "umount of a busy mount")
    open(m / "from", "wb").close()
    os.stat(m / "from")
    store.run("rm", "/from") # the kernel believes in it for a second yet
    refused(errno.ENOENT, os.rename, m / "from", m / "busy") # it keeps its name, and is committed under it
    code, said = m.end(signal.SIGTERM)
    check(code == 0 and not said, f"an end with open files: exit {code}: {said}")
    refused(errno.ENOTCONN, os.write, fd, b"more")
    refused(errno.ENOTCONN, os.fsync, fd)
    refused(errno.ENOTCONN, os.close, fd)
    check(store.json("stat", "/busy")["size"] == len(data), "an end commits what was written")

    m = Mounted(store)
    fd = os.open(m / "gone", os.O_WRONLY | os.O_CREAT)
    os.unlink(m / "gone")
    os.write(fd, data)
    code, said = m.end(signal.SIGTERM)
    check(code == 0 and not said, f"an end with a removed file open: exit {code}: {said}")
    refused(errno.ENOTCONN, os.close, fd)
    check(b"removed" not in store.run("ls", "/"), "an end removes what was removed while it was open")

    m = Mounted(store)
    m.proc.kill()
    m.proc.wait()
    refused(errno.ENOTCONN, os.listdir, m.path)
    for path in (m.path, m.path + "//"):
        done = store.craton("mount", path, check=False)
        check(done.returncode == 1 and b"craton umount" in done.stderr, f"mount over a dead mount: {done.stderr}")
    store.run("umount", m.path + "/")
    check(not is_mounted(m.path) and os.listdir(m.path) == [], "a dead mount is cleared")

    caller = store.path("caller")
    os.mkdir(caller)
    store.run("mount", m.path, cwd=caller)
    check(is_mounted(m.path) and "end-0" in os.listdir(m.path), "a mount in the background")
    check(not [pid for pid in os.listdir("/proc") if pid.isdigit() and directory_of(pid) == caller], "it keeps the caller's directory busy")
    done = store.craton("mount", m.path, "--json", check=False)
    check(done.returncode == 1 and "already" in json.loads(done.stdout)["error"], "mounted twice")
    store.run("umount", m.path)
    check(not is_mounted(m.path), "umount")
    store.run("mount", m.path, "-o", "ro")
    refused(errno.EROFS, os.mkdir, os.path.join(m.path, "x"))
    store.run("umount", m.path)


def away(store):
    """The store is away for a while: a time-out for who needs it, again for who looks at fsync and close only, and nobody after that."""
    m = Mounted(store, options=("--timeout", "5s"))
    with open(m / "away", "wb") as f:
        f.write(b"before")
    fd = os.open(m / "away", os.O_WRONLY | os.O_APPEND)
    reader = os.open(m / "away", os.O_RDONLY)
    store.kill9("metad-1")
    refused(errno.ETIMEDOUT, os.write, fd, b"lost")
    refused(errno.ETIMEDOUT, os.mkdir, m / "away-dir")
    store.start("metad-1")
    refused(errno.ETIMEDOUT, os.fsync, fd)
    check(os.pread(reader, 100, 0) == b"before", "a reader beside a writer that has failed")
    refused(errno.ETIMEDOUT, os.close, fd)
    os.close(reader)
    with open(m / "away", "ab") as f:
        f.write(b" and after")
    check(content(m / "away") == b"before and after", "writing goes on when the store is back")
    code, said = m.end()
    check(code == 0 and not said, f"end: exit {code}: {said}")


def children(store):
    """A child ends, and so closes what its parent has open: it waits for what it wrote itself, and for nothing else."""
    m = Mounted(store, options=("--timeout", "20s"))

    def child(script, fd):
        subprocess.run(["sh", "-c", script.format(fd)], pass_fds=(fd,), check=True)

    fd = os.open(m / "inherited", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for i in range(20): # more than are told apart
        child(f"echo child {i} >&{{}}", fd)
        want = b"".join(b"child %d\n" % n for n in range(i + 1))
        check(store.run("cat", "/inherited") == want, f"what child {i} wrote is there when it has ended")
    os.write(fd, b"parent\n")
    store.kill9("metad-1")
    # had it tried to commit in vain, the parent would hear of it
    started = time.monotonic()
    child("true", fd)
    check(time.monotonic() - started < 15, "a child that has not written waits for a metad that is away")
    store.start("metad-1")
    os.fsync(fd)
    check(store.json("stat", "/inherited")["complete"] is False, "synced, and still open")
    child("true", fd)
    os.close(fd)
    check(store.run("cat", "/inherited") == want + b"parent\n" and store.json("stat", "/inherited")["complete"], "what the parent wrote")
    code, said = m.end()
    check(code == 0 and not said, f"end: exit {code}: {said}")


def wrong_places(store):
    def says(what, *args, code=1):
        done = store.craton(*args, check=False)
        text = done.stderr.decode()
        check(done.returncode == code and what in text and len(text.strip().splitlines()) <= (2 if code == 2 else 1), f"craton {args}: {text}")

    empty = store.path("empty")
    os.mkdir(empty)
    says("does not exist", "mount", "/no/such/place")
    says("Not a directory", "mount", craton_file(store))
    says("not empty", "mount", store.dir)
    says("unknown mount option", "mount", "-o", "ro,bogus", empty, code=2)
    says("expects MOUNTPOINT", "mount", code=2)
    says("nothing is mounted", "umount", empty)
    says("use umount", "umount", "/proc")
    store.run("local", "down", store.store)
    says("does not answer", "mount", "--timeout", "500ms", empty)
    check(not is_mounted(empty), "a mount of a store that is down")
    store.run("local", "up", store.store)


def craton_file(store):
    path = store.path("a-file")
    with open(path, "wb"):
        return path


def main():
    why_not = can_mount()
    if why_not:
        print(f"skipped: {why_not}")
        sys.exit(SKIP)
    rng = random.Random(7)
    store = LocalStore()
    for env in ({}, {"CRATON_IO": "epoll"}):
        m = Mounted(store, env=env)
        for test in (names, attributes, listing, writes, lengths, links, others):
            test(m)
        big(m, rng)
        code, said = m.end()
        check(code == 0 and not said, f"end: exit {code}: {said}")
        store.run("rm", "-r", "-f", *[f"/{name}" for name in store.run("ls", "-1", "/").decode().split()])
        print(f"ok: {env or 'io_uring'}", flush=True)
    hosts(store)
    ends(store, rng)
    away(store)
    children(store)
    wrong_places(store)
    print("mount: ok")


main()
