#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""no_uring.py PROGRAM ARGS...: runs PROGRAM under a seccomp filter that refuses io_uring, as containers have it.

Exits 77 if no filter can be set.
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # classic BPF: load a word, jump if equal, return
ALLOW, ERRNO, IO_URING_SETUP = 0x7FFF0000, 0x00050000, 425

steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, ERRNO | errno.EPERM), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *s) for s in steps))


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


libc = ctypes.CDLL(None)
program = Program(len(steps), ctypes.addressof(code))
libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
if libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0):
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
