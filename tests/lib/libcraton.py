# SPDX-License-Identifier: Apache-2.0
"""libcraton: as much of craton.h as proofs need, by ctypes, so that many operations are under way from the threads of one process."""

import ctypes
import os

from localstore import build_dir

READ, WRITE, ATOMIC, APPEND = 1, 2, 8, 16


class Stat(ctypes.Structure):
    _fields_ = [("inode", ctypes.c_uint64), ("size", ctypes.c_uint64), ("mtime_ns", ctypes.c_int64), ("ctime_ns", ctypes.c_int64),
                ("mode", ctypes.c_uint32), ("uid", ctypes.c_uint32), ("gid", ctypes.c_uint32), ("nlink", ctypes.c_uint32),
                ("type", ctypes.c_uint8), ("complete", ctypes.c_uint8)]


class Dirent(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 256), ("stat", Stat)]


class Options(ctypes.Structure):
    _fields_ = [("config", ctypes.c_char_p), ("timeout_ms", ctypes.c_uint32), ("buffer_bytes", ctypes.c_uint64),
                ("ignore_servers", ctypes.c_uint32)]


class StoreError(OSError):
    pass


class Library:
    def __init__(self):
        self.c = ctypes.CDLL(os.path.join(build_dir(), ".libs", "libcraton.so"))
        self.c.cr_error.restype = ctypes.c_char_p
        self.c.cr_pread.restype = ctypes.c_ssize_t
        self.c.cr_pwrite.restype = ctypes.c_ssize_t
        self.c.cr_readlink.restype = ctypes.c_ssize_t
        self.c.cr_getxattr.restype = ctypes.c_ssize_t

    def check(self, result):
        if result < 0:
            raise StoreError(-result, self.c.cr_error().decode(errors="replace"))
        return result


class Store:
    """One cr_store. Methods raise StoreError; any thread."""

    def __init__(self, config, timeout_ms):
        self.library = Library()
        self.c = self.library.c
        self.handle = ctypes.c_void_p()
        options = Options(config.encode(), timeout_ms, 0, 0)
        self.check(self.c.cr_connect(ctypes.byref(options), ctypes.byref(self.handle)))

    def check(self, result):
        return self.library.check(result)

    def close(self):
        self.c.cr_disconnect(self.handle)

    def stat(self, path):
        stat = Stat()
        self.check(self.c.cr_stat(self.handle, path.encode(), ctypes.byref(stat)))
        return stat

    def mkdir(self, path):
        self.check(self.c.cr_mkdir(self.handle, path.encode(), 0o755))

    def rmdir(self, path):
        self.check(self.c.cr_rmdir(self.handle, path.encode()))

    def unlink(self, path):
        self.check(self.c.cr_unlink(self.handle, path.encode()))

    def rename(self, source, target):
        self.check(self.c.cr_rename(self.handle, source.encode(), target.encode(), 0))

    def symlink(self, target, path):
        self.check(self.c.cr_symlink(self.handle, target.encode(), path.encode()))

    def link(self, source, target):
        self.check(self.c.cr_link(self.handle, source.encode(), target.encode()))

    def readlink(self, path):
        buffer = ctypes.create_string_buffer(4096)
        count = self.check(self.c.cr_readlink(self.handle, path.encode(), buffer, ctypes.c_size_t(len(buffer))))
        return buffer.raw[:count].decode()

    def setxattr(self, path, name, value):
        self.check(self.c.cr_setxattr(self.handle, path.encode(), name.encode(), value, ctypes.c_size_t(len(value)), 0))

    def getxattr(self, path, name):
        buffer = ctypes.create_string_buffer(4096)
        count = self.check(self.c.cr_getxattr(self.handle, path.encode(), name.encode(), buffer, ctypes.c_size_t(len(buffer))))
        return buffer.raw[:count]

    def removexattr(self, path, name):
        self.check(self.c.cr_removexattr(self.handle, path.encode(), name.encode()))

    def truncate(self, path, size):
        self.check(self.c.cr_truncate(self.handle, path.encode(), ctypes.c_uint64(size)))

    def list(self, path):
        folder, entry, entries = ctypes.c_void_p(), Dirent(), {}
        self.check(self.c.cr_opendir(self.handle, path.encode(), ctypes.byref(folder)))
        try:
            while self.check(self.c.cr_readdir(folder, ctypes.byref(entry))):
                entries[entry.name.decode()] = (entry.stat.type, entry.stat.size, entry.stat.complete)
        finally:
            self.c.cr_closedir(folder)
        return entries

    def open(self, path, flags):
        file = ctypes.c_void_p()
        self.check(self.c.cr_open(self.handle, path.encode(), flags, 0o644, ctypes.byref(file)))
        return File(self, file)

    def read(self, path):
        file = self.open(path, READ)
        try:
            return file.read()
        finally:
            self.c.cr_close(file.handle)


class File:
    def __init__(self, store, handle):
        self.store, self.handle = store, handle

    def read(self):
        stat = Stat()
        self.store.check(self.store.c.cr_fstat(self.handle, ctypes.byref(stat)))
        buffer = ctypes.create_string_buffer(stat.size + 1)
        count = self.store.check(self.store.c.cr_pread(self.handle, buffer, ctypes.c_size_t(stat.size + 1), ctypes.c_uint64(0)))
        return buffer.raw[:count]

    def write(self, data, offset):
        self.store.check(self.store.c.cr_pwrite(self.handle, data, ctypes.c_size_t(len(data)), ctypes.c_uint64(offset)))

    def fsync(self):
        self.store.check(self.store.c.cr_fsync(self.handle))

    def close(self):
        handle, self.handle = self.handle, None
        self.store.check(self.store.c.cr_close(handle))

    def abort(self):
        if self.handle:
            self.store.c.cr_abort(self.handle)
            self.handle = None
