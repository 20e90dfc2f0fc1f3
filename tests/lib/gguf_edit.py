# SPDX-License-Identifier: Apache-2.0
"""Parses a GGUF and writes it again, so that a test can change any part of it."""

import os
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STR, ARR = 8, 9
U32, I32, F32, BOOL, U64, I64, I8, F64 = 4, 5, 6, 7, 10, 11, 1, 12
BLOCK = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    13: (256, 176),
    8: (32, 34),
    12: (256, 144),
    14: (256, 210),
    23: (256, 136),
    24: (1, 1),
    26: (1, 4),
    29: (256, 56),
    30: (1, 2),
    39: (32, 17),
}  # type: values, bytes


class Gguf:
    """keys: {name: (type, value)} with (ARR, (element type, list)); tensors: {name: [shape, type, bytes]}"""

    def __init__(self, path):
        self.b = open(path, "rb").read()
        self.at = 4
        self.version, n_tensors, n_keys = self.get("<IQQ")
        self.keys, self.tensors = {}, {}
        for _ in range(n_keys):
            name = self.string()
            (kind,) = self.get("<I")
            self.keys[name] = (kind, self.value(kind))
        heads = []
        for _ in range(n_tensors):
            name = self.string()
            (n_dims,) = self.get("<I")
            heads.append((name, self.get("<%dQ" % n_dims), *self.get("<IQ")))
        align = self.keys[b"general.alignment"][1] if b"general.alignment" in self.keys else 32
        data = (self.at + align - 1) // align * align
        for name, shape, kind, offset in heads:
            values, size = BLOCK[kind]
            n = size
            for d in shape:
                n *= d
            self.tensors[name] = [shape, kind, bytearray(self.b[data + offset : data + offset + n // values])]

    def get(self, form):
        v = struct.unpack_from(form, self.b, self.at)
        self.at += struct.calcsize(form)
        return v

    def string(self):
        (n,) = self.get("<Q")
        self.at += n
        return self.b[self.at - n : self.at]

    def value(self, kind):
        if kind == STR:
            return self.string()
        if kind == ARR:
            elem, n = self.get("<IQ")
            return elem, [self.value(elem) for _ in range(n)] if elem == STR else list(
                self.get("<%d%s" % (n, SCALARS[elem]))
            )
        return self.get("<" + SCALARS[kind])[0]

    @staticmethod
    def packed(kind, v):
        def string(s):
            s = s.encode() if isinstance(s, str) else s
            return struct.pack("<Q", len(s)) + s

        if kind == STR:
            return string(v)
        if kind == ARR:
            elem, items = v
            body = (
                b"".join(map(string, items))
                if elem == STR
                else struct.pack("<%d%s" % (len(items), SCALARS[elem]), *items)
            )
            return struct.pack("<IQ", elem, len(items)) + body
        return struct.pack("<" + SCALARS[kind], v)

    def write(self, path, offsets={}):
        """offsets: {name: offset}, a false offset of a tensor's data from the start of all data"""
        head, data = bytearray(), bytearray()
        for name, (kind, v) in self.keys.items():
            name = name.encode() if isinstance(name, str) else name
            head += struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + self.packed(kind, v)
        for name, (shape, kind, body) in self.tensors.items():
            head += (
                struct.pack("<Q", len(name))
                + name
                + struct.pack("<I%dQIQ" % len(shape), len(shape), *shape, kind, offsets.get(name, len(data)))
            )
            data += body + bytes(-len(body) % 32)
        head = b"GGUF" + struct.pack("<IQQ", self.version, len(self.tensors), len(self.keys)) + head
        open(path, "wb").write(head + bytes(-len(head) % 32) + data)
        return path


def cut_demo(path, layers, same=False):
    """The first layers of models/demo.gguf, for what needs no whole model; same: each layer is the first one."""
    g = Gguf(os.environ["NTX_SOURCE"] + "/models/demo.gguf")
    g.keys[b"llama.block_count"] = (U32, layers)
    for name in [n for n in g.tensors if n.startswith(b"blk.")]:
        layer, of = name.split(b".", 2)[1:]
        if int(layer) >= layers:
            g.tensors.pop(name)
        elif same:
            g.tensors[name] = g.tensors[b"blk.0." + of]
    return g.write(path)
