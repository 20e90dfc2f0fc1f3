# SPDX-License-Identifier: Apache-2.0
"""A file system with one file whose reads never finish: a FUSE server in the standard library.

Reads get no answer, nor do flushes of ntx's processes, which close() waits for. So these processes can neither read nor
close the file. While a read waits, other processes cannot close or open it either. So there is one descriptor, which is
closed after the file system has ended; start no process meanwhile.

    with Stuck() as fd: ...

The test is skipped where the machine has no FUSE, or mounting is refused."""

import contextlib
import ctypes
import os
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


def attr(ino):
    mode, size = (0o40755, 0) if ino == 1 else (0o100644, SIZE)
    return struct.pack("<6Q10I", ino, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(op, body):
    if op == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 0, 0, 1 << 16, 1, 0, 0, *[0] * 8)
    if op == LOOKUP:
        return struct.pack("<4Q2I", 2, 1, 3600, 3600, 0, 0) + attr(2)
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


class Stuck:
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
            serve(dev)
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
