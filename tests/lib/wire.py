# SPDX-License-Identifier: Apache-2.0
"""The client protocol in the standard library: frames, and the kinds of protobuf fields that ntx.proto uses.

Messages are dicts by field name. The schema is written by hand, so that the tests check the wire format itself."""

import array
import os
import socket
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
from patient import patience  # noqa: E402

# kind: v varint, z signed varint (int32), b bytes, s string, a dict message, f float, d double; "*" repeated (numbers
# are packed)
IMAGE = {1: ("at", "v"), 2: ("data", "b")}
MESSAGE = {1: ("role", "s"), 2: ("text", "b"), 4: ("images", IMAGE, "*")}
SAMPLING = {
    1: ("temp", "f"),
    2: ("top_k", "v"),
    3: ("top_p", "f"),
    4: ("min_p", "f"),
    5: ("repeat_penalty", "f"),
    6: ("seed", "v"),
    7: ("repeat_last", "v"),
    8: ("presence_penalty", "f"),
    9: ("frequency_penalty", "f"),
    10: ("typical_p", "f"),
    11: ("mirostat", "v"),
    12: ("mirostat_tau", "f"),
    13: ("mirostat_eta", "f"),
}
LOAD = {
    1: ("names", "s*"),
    2: ("ram_bytes", "v"),
    3: ("ctx", "v"),
    4: ("threads", "v"),
    5: ("backend", "s"),
    6: ("kernel", "s"),
    7: ("link_nvme_bps", "d"),
    8: ("chunk_bytes", "v"),
    9: ("ring_slots", "v"),
    10: ("sessions", "v"),
    11: ("source", "s"),
    12: ("fault", "s"),
    13: ("skip", "s"),
    14: ("max_rows", "v"),
    15: ("path", "s"),
    20: ("copies", "v"),
    21: ("also", "s*"),
    41: ("sidecar", "v"),
    46: ("kv_type", "s"),
    88: ("drafters", "v"),
    95: ("lora", "s"),
    89: ("state", "s"),
    90: ("state_max", "v"),
    91: ("kv_ram", "v"),
    72: ("draft", "s"),
    74: ("no_prefix_cache", "v"),
    111: ("think", "s"),
    112: ("chat_template", "s"),
    113: ("known", "s"),
    115: ("max_gap", "f"),
    114: ("when", "v"),
    116: ("beside_bytes", "v"),
    117: ("mmproj", "s"),
    118: ("projector", "v"),
}
GENERATE = {
    1: ("session", "v"),
    2: ("keep", "v"),
    3: ("prompt", "b"),
    4: ("messages", MESSAGE, "*"),
    5: ("tokens", "z*"),
    6: ("raw", "v"),
    7: ("chat_template", "s"),
    8: ("stop", "s*"),
    9: ("ignore_eos", "v"),
    10: ("max_tokens", "v"),
    11: ("sampling", SAMPLING),
    12: ("leave", "v"),
    13: ("cut_to", "v"),
    15: ("constraint", {1: ("kind", "s"), 2: ("text", "b"), 3: ("soft", "v")}),
    16: ("bias", {1: ("token", "z"), 2: ("add", "f")}, "*"),
    17: ("logprobs", "v"),
    18: ("top_logprobs", "v"),
    19: ("adapter", "s"),
    20: ("model", "s"),
    31: ("think", "s"),
    32: ("no_special", "v"),
    33: ("images", IMAGE, "*"),
    40: ("prefix", "v"),
}
REQUEST = {
    1: ("id", "v"),
    2: ("load", LOAD),
    3: ("unload", {}),
    4: ("generate", GENERATE),
    5: ("cancel", {1: ("target", "v")}),
    6: ("status", {}),
    7: ("stop", {1: ("grace_ms", "v")}),
    8: ("logits", {1: ("tokens", "z*"), 2: ("from", "v"), 12: ("steps", "v")}),
    9: ("score", {1: ("tokens", "z*"), 2: ("from", "v")}),
    10: ("close_session", {1: ("session", "v")}),
    15: ("build", "s"),
    16: ("known", "s"),
    17: ("client", "d"),
    23: (
        "models",
        {
            1: ("list", "s"),
            2: ("defaults", LOAD),
            3: ("queue", {1: ("waiting", "v"), 2: ("next", "s"), 3: ("waited_ms", "v")}),
            4: ("each_state", "v"),
            5: ("on_request", "v"),
        },
    ),
}
REPLY = {
    1: ("id", "v"),
    2: ("error", {1: ("err", "z"), 2: ("text", "s")}),
    3: (
        "progress",
        {
            1: ("phase", "s"),
            2: ("done", "v"),
            3: ("total", "v"),
            4: ("bytes_per_s", "d"),
            5: ("left_s", "d"),
            6: ("layer", "v"),
            7: ("layers", "v"),
            8: ("prompt_done", "v"),
            9: ("prompt_total", "v"),
        },
    ),
    4: ("loaded", {1: ("info_json", "s"), 2: ("notes", "s*"), 3: ("details", "s*")}),
    5: (
        "token",
        {
            1: ("token", "z"),
            2: ("text", "b"),
            3: ("own", "b"),
            4: ("logprob", "f"),
            5: ("top", {1: ("token", "z"), 2: ("logprob", "f"), 3: ("own", "b")}, "*"),
        },
    ),
    6: ("done", {1: ("finish", "s"), 2: ("stats_json", "s"), 3: ("cached_tokens", "v"), 4: ("stop", "s")}),
    7: ("status", {1: ("json", "s")}),
    8: ("logits", {1: ("row", "v"), 2: ("f32", "b")}),
    9: ("score", {1: ("nll", "d"), 2: ("count", "v"), 3: ("each", "f*"), 4: ("best", "f*"), 5: ("best_token", "z*")}),
    10: (
        "started",
        {
            1: ("session", "v"),
            2: ("prompt_tokens", "v"),
            3: ("seed", "v"),
            4: ("context", "v"),
            5: ("ctx", "v"),
            6: ("note", "s"),
            17: ("think_note", "s"),
        },
    ),
    22: (
        "step",
        {
            1: ("row", "v"),
            2: ("layer", "v"),
            3: ("step", "v"),
            4: ("name", "s"),
            5: ("buffer", "s"),
            6: ("width", "v"),
            7: ("digest", "d"),
            8: ("min", "d"),
            9: ("max", "d"),
            10: ("mean", "d"),
            11: ("values", "b"),
        },
    ),
}


def varint(n):
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, kind, value):
    if isinstance(kind, dict):
        body = pack(kind, value)
        return varint(number << 3 | 2) + varint(len(body)) + body
    if kind in "vz":
        return varint(number << 3) + varint(int(value))
    if kind == "f":
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if kind == "d":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else bytes(value)
    return varint(number << 3 | 2) + varint(len(data)) + data


def pack(schema, message):
    out = b""
    names = {spec[0]: (number, spec) for number, spec in schema.items()}
    for name, value in message.items():
        number, spec = names[name]
        if len(spec) == 3:
            out += b"".join(field(number, spec[1], v) for v in value)
        elif not isinstance(spec[1], dict) and spec[1].endswith("*"):
            if spec[1][0] == "s":
                out += b"".join(field(number, "s", v) for v in value)
            else:
                body = b"".join(varint(v) for v in value)
                out += varint(number << 3 | 2) + varint(len(body)) + body
        else:
            out += field(number, spec[1], value)
    return out


def read_varint(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return n, at


def unpack(schema, data):
    out, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        name, kind, *several = schema[key >> 3]
        wire = key & 7
        if wire == 0:
            value, at = read_varint(data, at)
            if kind[0] == "z" and value >> 63:
                value -= 1 << 64
        elif wire == 5:
            (value,), at = struct.unpack_from("<f", data, at), at + 4
        elif wire == 1:
            (value,), at = struct.unpack_from("<d", data, at), at + 8
        else:
            n, at = read_varint(data, at)
            value, at = data[at : at + n], at + n
            if isinstance(kind, dict):
                value = unpack(kind, value)
            elif kind[0] == "s":
                value = value.decode()
            elif kind == "f*":
                value = array.array("f", value).tolist()
        if several or (not isinstance(kind, dict) and kind == "s*"):
            out.setdefault(name, []).append(value)
        else:
            out[name] = value
    return out


def frame(request):
    body = pack(REQUEST, request)
    return struct.pack("<I", len(body)) + body


class Refused(Exception):
    """An Error reply."""


class Gone(Exception):
    """The daemon closed the connection."""


class Client:
    """A connection. Replies to other requests than the wanted one wait in a queue."""

    def __init__(self, path, timeout=60):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(timeout * patience())
        self.sock.connect(path)
        self.buf = b""
        self.waiting = []
        self.last_id = 0

    def close(self):
        self.sock.close()

    def send(self, kind, body=None, fds=()):
        self.last_id += 1
        data = frame({"id": self.last_id, kind: body or {}})
        if fds:
            socket.send_fds(self.sock, [data], list(fds))
        else:
            self.sock.sendall(data)
        return self.last_id

    def reply(self):
        while True:
            if len(self.buf) >= 4:
                n = struct.unpack_from("<I", self.buf)[0]
                if len(self.buf) >= 4 + n:
                    body, self.buf = self.buf[4 : 4 + n], self.buf[4 + n :]
                    return unpack(REPLY, body)
            try:
                got = self.sock.recv(1 << 20)
            except ConnectionResetError:
                got = b""
            if not got:
                raise Gone()
            self.buf += got

    def next(self, request):
        """The next reply to a request; an Error raises Refused."""
        for i, r in enumerate(self.waiting):
            if r.get("id", 0) == request:
                del self.waiting[i]
                break
        else:
            r = self.reply()
            while r.get("id", 0) != request:
                if not r.get("id", 0) and "error" in r:
                    raise Refused(r["error"]["text"])
                self.waiting.append(r)
                r = self.reply()
        if "error" in r:
            raise Refused(r["error"]["text"])
        return r

    def until(self, request, *kinds):
        while True:
            r = self.next(request)
            for k in kinds:
                if k in r:
                    return r[k]

    def load(self, path, **options):
        if "NTX_TEST_KERNEL" in os.environ:  # sanitized threads have too little stack for the widest kernel
            options.setdefault("kernel", os.environ["NTX_TEST_KERNEL"])
        fd = os.open(path, os.O_RDONLY)
        try:
            request = self.send("load", dict(options, names=[path]), [fd])
        finally:
            os.close(fd)
        return self.until(request, "loaded")

    def generate(self, prompt=None, **options):
        return self.send("generate", generation(prompt, **options))

    def answer(self, request):
        """Reads an answer to its end; returns an Answer."""
        a = Answer()
        while True:
            r = self.next(request)
            if "started" in r:
                a.started = r["started"]
            elif "progress" in r:
                a.progress.append(r["progress"])
            elif "token" in r:
                a.text += r["token"].get("text", b"")
                a.tokens.append(r["token"].get("token", 0))
            elif "done" in r:
                a.finish = r["done"].get("finish", "")
                a.stats = r["done"].get("stats_json", "")
                a.cached = r["done"].get("cached_tokens", 0)
                return a

    def ask(self, prompt=None, **options):
        return self.answer(self.generate(prompt, **options))

    def logits(self, tokens):
        """Rows of floats, one per token."""
        request, rows = self.send("logits", {"tokens": tokens}), {}
        while True:
            r = self.next(request)
            if "logits" in r:
                rows[r["logits"].get("row", 0)] = r["logits"]["f32"]
            elif "done" in r:
                return [rows[i] for i in range(len(tokens))]

    def status(self):
        return self.until(self.send("status"), "status")["json"]


class Answer:
    def __init__(self):
        self.text, self.tokens, self.progress, self.started, self.finish, self.stats = b"", [], [], {}, None, ""


def generation(prompt=None, temp=0.0, seed=1, **options):
    g = dict(options)
    g["sampling"] = dict(g.pop("sampling", {}), temp=temp, seed=seed)
    if prompt is not None:
        g["prompt"] = prompt
        g.setdefault("raw", True)
    return g
