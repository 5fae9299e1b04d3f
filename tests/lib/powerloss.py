# SPDX-License-Identifier: Apache-2.0
"""powerloss: reads what tests/power/recorder noted of a directory, and makes of it what a loss of power at a moment may have left there.

What is durable: a write, a size or an allocation once a sync of its file that began when it had ended has ended (of an O_DSYNC write: once it has
ended itself); a name once a sync of its directory has. Of what is not, each write is there, or not, or some of its sectors are; of the
names of a directory the first so many changes are (so do ext4 and XFS). A process that was killed and started again has lost nothing by that. Files whose
name ends with -lock, LMDB's shared memory, are left out. Files are kept as blocks that are never changed, so that a copy is cheap."""

import os
import struct

END, WRITE, SIZE, ALLOCATE, SYNC, CREATE, MKDIR, RENAME, UNLINK, START = range(10)
FAILED, DURABLE = 1, 2
RECORD = struct.Struct("=QIIQQQQQ")
BLOCK, SECTOR = 4096, 512
ZERO = bytes(BLOCK)
TORN_EACH = 0.5  # so many sectors of a torn write are there


class Record:
    __slots__ = ("number", "kind", "flags", "inode", "offset", "length", "data", "end")

    def __init__(self, number, kind, flags, inode, offset, length, data):
        self.number, self.kind, self.flags, self.inode, self.offset, self.length, self.data = number, kind, flags, inode, offset, length, data
        self.end = None

    def is_sync(self):
        return self.kind == SYNC or (self.kind == WRITE and self.flags & DURABLE)

    def paths(self):
        return [os.fsdecode(p) for p in self.data.split(b"\0")[:-1]]


def read_trace(path):
    """All records, in order; of those that failed neither. A record's `end` is the number of that which tells of its end."""
    records, by_number, failed = [], {}, set()
    with open(path, "rb") as f:
        while head := f.read(RECORD.size):
            if len(head) < RECORD.size:
                break  # killed while it wrote this: no call has begun
            number, kind, flags, begun, inode, offset, length, size = RECORD.unpack(head)
            data = f.read(size)
            if len(data) < size:
                break
            record = Record(number, kind, flags, inode, offset, length, data)
            if kind == END:
                record.data = begin = by_number[begun]
                begin.end = number
                if flags & FAILED:
                    failed.add(begin.number)
                elif begin.kind == WRITE and length != len(begin.data):
                    raise ValueError(f"record {begin.number}: only {length} of {len(begin.data)} bytes were taken; that is not known here")
                if begin.kind in (CREATE, MKDIR):
                    begin.inode = inode
            by_number[number] = record
            records.append(record)
    return [r for r in records if (r.data if r.kind == END else r).number not in failed]


class Content:
    """The bytes of a file."""

    def __init__(self):
        self.blocks, self.size = {}, 0

    def copy(self):
        other = Content()
        other.blocks, other.size = dict(self.blocks), self.size
        return other

    def put(self, offset, data):
        at = 0
        while at < len(data):
            number, within = divmod(offset + at, BLOCK)
            piece = data[at:at + BLOCK - within]
            old = self.blocks.get(number, ZERO)
            self.blocks[number] = piece if len(piece) == BLOCK else old[:within] + piece + old[within + len(piece):]
            at += len(piece)
        self.size = max(self.size, offset + len(data))

    def resize(self, size):
        if size < self.size:
            last, within = divmod(size, BLOCK)
            for number in [n for n in self.blocks if n > last or (n == last and not within)]:
                del self.blocks[number]
            if last in self.blocks:
                self.blocks[last] = self.blocks[last][:within] + bytes(BLOCK - within)
        self.size = size

    def apply(self, record, torn=None):
        """torn: of a write only the sectors for which it is true."""
        if record.kind == SIZE:
            self.resize(record.offset)
        elif record.kind == ALLOCATE:
            self.size = max(self.size, record.offset + record.length)
        elif torn is None:
            self.put(record.offset, record.data)
        else:
            for start in range(record.offset // SECTOR * SECTOR, record.offset + len(record.data), SECTOR):
                if torn():
                    low, high = max(start, record.offset), min(start + SECTOR, record.offset + len(record.data))
                    self.put(low, record.data[low - record.offset:high - record.offset])

    def write_to(self, path):
        with open(path, "wb", buffering=0) as f:
            f.truncate(self.size)
            for number, block in self.blocks.items():
                if block != ZERO:
                    f.seek(number * BLOCK)
                    f.write(block[:max(0, self.size - number * BLOCK)])


class File:
    def __init__(self, path, is_dir):
        self.path, self.is_dir, self.pending = path, is_dir, []  # path: as it was made
        self.durable = {} if is_dir else Content()  # of a directory: files by name

    def ended_before(self, number):
        return [r for r in self.pending if r.end is not None and r.end < number]

    def change(self, names, record, made):
        """A change of names of this directory."""
        here = [os.path.basename(p) for p in record.paths()]
        if record.kind in (CREATE, MKDIR):
            names[here[0]] = made[record.number]
        elif record.kind == UNLINK:
            names.pop(here[0], None)
        elif here[0] in names:
            names[here[1]] = names.pop(here[0])

    def settle(self, records, made):
        """These are durable now."""
        for r in records:
            if self.is_dir:
                self.change(self.durable, r, made)
            else:
                self.durable.apply(r)
        gone = set(map(id, records))
        self.pending = [r for r in self.pending if id(r) not in gone]


def is_lock(path):
    return path.endswith("-lock")


class Disk:
    """The recorded directory, record by record."""

    def __init__(self, root):
        self.root, self.root_inode = root, os.stat(root).st_ino
        self.files = {}   # by inode; an inode that is used again is another file
        self.made = {}    # by the record that made it
        self.top = File(root, True)
        self.known = {root: self.top}  # directories by path, as the process sees them

    def begin(self, r):
        """A record that begins something: from now on it may be there. Of one of which the end was not recorded nothing was said to anybody."""
        if r.kind in (CREATE, MKDIR):
            self.made[r.number] = file = File(r.paths()[0], r.kind == MKDIR)
            if r.inode:
                self.files[r.inode] = file
            if r.kind == MKDIR:
                self.known[r.paths()[0]] = file
        if r.kind in (CREATE, MKDIR, RENAME, UNLINK):
            parents = {os.path.dirname(p) for p in r.paths()}
            if len(parents) != 1:
                raise ValueError(f"{r.paths()}: a rename from one directory to another is not known here")
            if not is_lock(r.paths()[0]):
                self.known[parents.pop()].pending.append(r)
        elif r.kind in (WRITE, SIZE, ALLOCATE) and not is_lock(self.files[r.inode].path):
            self.files[r.inode].pending.append(r)

    def end(self, r):
        """A record of an end."""
        begun = r.data
        if begun.kind == SYNC:
            file = self.top if begun.inode == self.root_inode else self.files[begun.inode]
            file.settle(file.ended_before(begun.number), self.made)
        elif begun.kind == WRITE and begun.flags & DURABLE:
            file, low, high = self.files[begun.inode], begun.offset, begun.offset + len(begun.data)
            before = [w for w in file.pending if w.number < begun.number]
            # What was written to the same place before is under it.
            under = [w for w in before if w.kind == WRITE and w.offset < high and low < w.offset + len(w.data)]
            if any(w.offset < low or w.offset + len(w.data) > high for w in under) or any(w.kind == SIZE and w.offset < high for w in before):
                raise ValueError(f"record {begun.number}: what is not durable reaches over it; that is not known here")
            file.settle([*under, begun], self.made)

    def start(self, r):
        """The process was started again: what it had begun has ended."""
        for file in [self.top, *self.files.values()]:
            for w in file.pending:
                w.end = w.end or r.number

    def step(self, r):
        {END: self.end, START: self.start}.get(r.kind, self.begin)(r)

    # ---- what is left ----

    def content(self, file, kind, rng, counts):
        content = file.durable.copy()
        for r in file.pending:
            fate = {"whole": 0.0, "lost": 1.0}.get(kind)
            fate = rng.random() if fate is None else fate
            if fate < 1 / 3:
                content.apply(r)
            elif fate < 2 / 3 and r.kind == WRITE:
                content.apply(r, lambda: rng.random() < TORN_EACH)
                counts["torn"] += 1
            else:
                counts["lost"] += 1
        return content

    def leave(self, path, kind, rng, counts, file=None):
        """Makes at `path`, which does not exist, what is left: kind "whole" (a killed process), "lost" (nothing that was not durable) or "mixed"."""
        file = file or self.top
        os.mkdir(path)
        names = dict(file.durable)
        there = {"whole": len(file.pending), "lost": 0}.get(kind)
        there = rng.randint(0, len(file.pending)) if there is None else there
        counts["lost"] += len(file.pending) - there
        for r in file.pending[:there]:
            file.change(names, r, self.made)
        for name, entry in names.items():
            if entry.is_dir:
                self.leave(os.path.join(path, name), kind, rng, counts, entry)
            else:
                self.content(entry, kind, rng, counts).write_to(os.path.join(path, name))


def differing(left, right):
    """Paths below two directories that differ."""
    found = []
    for name in sorted({*os.listdir(left), *os.listdir(right)}):
        a, b = os.path.join(left, name), os.path.join(right, name)
        if is_lock(name):
            continue
        if os.path.isdir(a) and os.path.isdir(b):
            found += differing(a, b)
        elif not (os.path.isfile(a) and os.path.isfile(b)):
            found.append(b)
        else:
            with open(a, "rb") as f, open(b, "rb") as g:
                if f.read() != g.read():
                    found.append(b)
    return found
