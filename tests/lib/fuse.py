# SPDX-License-Identifier: Apache-2.0
"""A file system with one file whose reads never finish, or halt when a test says so: a FUSE server in the standard
library.

Reads get no answer, nor do flushes of ntx's processes, which close() waits for. So these processes can neither read nor
close the file. While a read waits, other processes cannot close or open it either. So there is one descriptor, which is
closed after the file system has ended; start no process meanwhile.

    with Stuck() as fd: ...
    with Halting(path) as h: h.halt(4096); ...; h.go()      a file's bytes; reads behind an offset wait meanwhile

The test is skipped where the machine has no FUSE, or mounting is refused."""

import contextlib
import ctypes
import mmap
import os
import select
import struct
import sys
import tempfile

SIZE = 1 << 20
MNT_DETACH = 2
LOOKUP, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, INTERRUPT, FORGET, BATCH_FORGET = (
    1,
    3,
    14,
    15,
    17,
    18,
    25,
    26,
    36,
    2,
    42,
)
libc = ctypes.CDLL(None, use_errno=True)


def attr(ino, size=SIZE):
    mode, size = (0o40755, 0) if ino == 1 else (0o100644, size)
    return struct.pack("<6Q10I", ino, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(op, body, size=SIZE):
    if op == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 0, 0, 1 << 16, 1, 0, 0, *[0] * 8)
    if op == LOOKUP:
        return struct.pack("<4Q2I", 2, 1, 3600, 3600, 0, 0) + attr(2, size)
    if op == OPEN:
        return struct.pack("<Q2I", 1, 0, 0)
    if op == STATFS:
        return struct.pack("<5Q4I6I", 0, 0, 0, 0, 0, 4096, 255, 4096, 0, *[0] * 6)
    return b""


def of_ntx(pid):
    try:
        with open("/proc/%d/comm" % pid) as f:
            return f.read().startswith("ntx-")
    except OSError:
        return False


def serve(dev):
    while True:
        try:
            q = os.read(dev, 1 << 17)
        except OSError:
            os._exit(0)
        _, op, unique, node, _, _, pid, _ = struct.unpack_from("<IIQQIIII", q)
        if op in (FORGET, BATCH_FORGET, INTERRUPT, READ) or (op == FLUSH and of_ntx(pid)):
            continue
        out = struct.pack("<Q2I", 3600, 0, 0) + attr(node) if op == GETATTR else answer(op, q[40:])
        known = op in (INIT, LOOKUP, GETATTR, OPEN, STATFS, RELEASE, FLUSH)
        os.write(dev, struct.pack("<IiQ", 16 + len(out), 0 if known else -38, unique) + out)


def reply(dev, unique, out, error=0):
    with contextlib.suppress(OSError):  # the process that asked is gone
        os.write(dev, struct.pack("<IiQ", 16 + len(out), error, unique) + out)


def serve_file(dev, path, limit):
    """Answers reads behind the offset in `limit` only once it is larger."""
    size, file, waiting = os.path.getsize(path), os.open(path, os.O_RDONLY), []
    while True:
        now = struct.unpack("<Q", limit[:8])[0]
        for unique, at, n in [w for w in waiting if w[1] + w[2] <= now]:
            reply(dev, unique, os.pread(file, n, at))
        waiting = [w for w in waiting if w[1] + w[2] > now]
        if not select.select([dev], [], [], 0.02)[0]:
            continue
        try:
            q = os.read(dev, 1 << 18)
        except OSError:
            os._exit(0)
        _, op, unique, node, _, _, _, _ = struct.unpack_from("<IIQQIIII", q)
        if op == READ:
            waiting.append((unique, *struct.unpack_from("<QI", q, 48)))
        elif op == GETATTR:
            reply(dev, unique, struct.pack("<Q2I", 3600, 0, 0) + attr(node, size))
        elif op in (INIT, LOOKUP, OPEN, STATFS, RELEASE, FLUSH):
            reply(dev, unique, answer(op, q[40:], size))
        elif op not in (FORGET, BATCH_FORGET, INTERRUPT):
            reply(dev, unique, b"", -38)


class Stuck:
    def serve(self, dev):
        serve(dev)

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="ntx-fuse-")
        try:
            dev = os.open("/dev/fuse", os.O_RDWR)
        except OSError as e:
            self.skip("/dev/fuse: %s" % e.strerror)
        options = "fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other" % (dev, os.getuid(), os.getgid())
        if libc.mount(b"stuck", self.dir.encode(), b"fuse.stuck", 0, options.encode()):
            self.skip("mount: %s" % os.strerror(ctypes.get_errno()))
        self.child = os.fork()
        if not self.child:
            self.serve(dev)
        os.close(dev)
        self.fd = os.open(os.path.join(self.dir, "model.gguf"), os.O_RDONLY)
        return self.fd

    def skip(self, why):
        os.rmdir(self.dir)
        print("skipped:", why)
        sys.exit(77)

    def __exit__(self, *_):
        os.kill(self.child, 9)  # waiting processes get an error now
        os.waitpid(self.child, 0)
        with contextlib.suppress(OSError):  # the flush fails: the server has ended
            os.close(self.fd)
        libc.umount2(self.dir.encode(), MNT_DETACH)
        os.rmdir(self.dir)


class Halting(Stuck):
    """The file at self.path has the bytes of another one."""

    def __init__(self, source):
        self.source, self.limit = source, mmap.mmap(-1, mmap.PAGESIZE)
        self.go()

    def halt(self, offset):
        self.limit[:8] = struct.pack("<Q", offset)

    def go(self):
        self.halt(1 << 62)

    def serve(self, dev):
        serve_file(dev, self.source, self.limit)

    def __enter__(self):
        super().__enter__()
        self.path = os.path.join(self.dir, "halting.gguf")  # any name is that of the file
        return self

    def __exit__(self, *_):
        self.go()
        super().__exit__()
