# SPDX-License-Identifier: Apache-2.0
"""A server in ntx-computed's place: writes what a test tells it to, in pieces of every length, and keeps requests."""

import contextlib
import json
import os
import select
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import gateway  # noqa: F401 (finds tests/system/server)
import wire  # noqa: E402

wire.MESSAGE.setdefault(3, ("fields", "b"))
wire.GENERATE.setdefault(14, ("variables", "b"))
wire.REQUEST.setdefault(
    22,
    (
        "text",
        {
            1: ("text", "b"),
            2: ("tokens", "z*"),
            3: ("bos", "v"),
            4: ("special", "v"),
            5: ("infill", "v"),
            6: ("suffix", "b"),
            7: ("pieces", "v"),
            8: ("messages", wire.MESSAGE, "*"),
            9: ("variables", "b"),
            10: ("template", "v"),
            11: ("think", "s"),
        },
    ),
)
wire.REQUEST[8][1].setdefault(13, ("pool", "v"))
wire.REPLY.setdefault(23, ("text", {1: ("tokens", "z*"), 2: ("text", "b"), 3: ("lengths", "v*")}))
wire.REPLY.setdefault(21, ("states", {1: ("row", "v"), 2: ("state", "b")}))


class Computed:
    """Says `text` to every Generate, in pieces of `step` bytes; keeps the last request."""

    def __init__(self, dir):
        self.dir, self.text, self.step, self.request = dir, "", 1000, None
        self.format, self.done = "hermes", {"finish": "stop"}
        self.names, self.asked = [], []  # of its template; all requests but those for the status
        self.thinking = {"thinks": True, "switch": True, "levels": ["low", "high"]}
        self.deaf, self.left = (
            False,
            threading.Event(),
        )  # takes a request and does not read it; until the other side has left
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(dir, "ntx.sock"))
        self.listener.listen(16)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            s, _ = self.listener.accept()
            threading.Thread(target=self.attend, args=(s,), daemon=True).start()

    def attend(self, s):
        with s, contextlib.suppress(OSError):  # who has what it wanted leaves
            if self.deaf:
                p = select.poll()
                p.register(s, select.POLLRDHUP)
                if p.poll(20000):
                    self.left.set()
            else:
                self.answer(s)

    def read(self, s):
        """The next request, or None when the other side has left."""
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from("<I", data)[0]:
            more = s.recv(4 - len(data) if len(data) < 4 else 4 + struct.unpack_from("<I", data)[0] - len(data))
            if not more:
                return None
            data += more
        return wire.unpack(wire.REQUEST, data[4:])

    def send(self, s, q, reply):
        body = wire.pack(wire.REPLY, dict(reply, id=q["id"]))
        s.sendall(struct.pack("<I", len(body)) + body)

    def answer(self, s):
        while q := self.read(s):
            for kind, reply in (
                ("status", self.status),
                ("models", lambda _: [{"status": {"json": '{"models": [], "loaded": "", "other": true}'}}]),
                ("text", self.words),
                ("logits", self.states),
                ("generate", self.generate),
            ):
                if kind in q:
                    for r in reply(q[kind]):
                        self.send(s, q, r)

    def status(self, _):
        return [
            {
                "status": {
                    "json": json.dumps(
                        {
                            "state": "ready",
                            "model": "m",
                            "arch": "llama",
                            "ctx": 512,
                            "reply_format": self.format,
                            "template_names": self.names,
                            "thinking": self.thinking,
                        }
                    )
                }
            }
        ]

    def words(self, m):
        self.asked.append(("text", m))
        lengths = {"lengths": [1, 1, 1]} if m.get("pieces") else {}
        return [{"text": {"tokens": [1, 2, 3], "text": b"abc", **lengths}}]

    def states(self, m):
        self.asked.append(("logits", m))
        return [
            {"states": {"row": 3, "state": struct.pack("<2f", 3, 4)}},
            {"done": {"finish": "stop", "stats_json": "{}"}},
        ]

    def generate(self, m):
        self.asked.append(("generate", m))
        self.request = m
        said = self.text
        replies = [{"started": {"prompt_tokens": 5}}]
        replies += [
            {"token": {"token": i, "text": said[i : i + self.step].encode()}} for i in range(0, len(said), self.step)
        ]
        return replies + [{"done": dict(self.done, stats_json="{}")}]
