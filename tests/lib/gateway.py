# SPDX-License-Identifier: Apache-2.0
"""ntx-gateway with the test's daemons, and HTTP by the standard library."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys

from daemons import BIN, Daemons, Deadline, Watch, check, equal, fail, make_model, patience, wait_for  # noqa: E402,F401
from daemons import refused  # noqa: E402,F401

GATEWAY = os.path.join(BIN, "ntx-gateway")
# A model for chats that streams when it is loaded with PLAN; messages, and an answer's settings.
MODEL = (
    "--layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 5 --chat-template chatml --ctx 2048".split()
)
PLAN = {"ram_bytes": 24 << 20, "ctx": 512, "sessions": 4, "threads": 2, "ring_slots": 4, "chunk_bytes": 1 << 20}
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
FIXED = dict(temperature=0.7, top_k=20, top_p=0.9, min_p=0.1, seed=7, max_tokens=12, ignore_eos=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Gateway:
    """with Gateway(d) as g: g.post("/v1/completions", {...})"""

    def __init__(self, d, *options, listen="127.0.0.1", env=None):
        self.port = free_port()
        self.p = subprocess.Popen(
            [GATEWAY, "--runtime", d.dir, "--listen", "%s:%d" % (listen, self.port), *options],
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.first = self.p.stderr.readline()
        check("serving http://%s:%d" % (listen, self.port) in self.first, "the gateway said:", self.first)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGTERM)
        try:
            code = self.p.wait(20 * patience())
        except subprocess.TimeoutExpired:
            self.p.kill()
            fail("the gateway does not end")
        text = self.p.stderr.read()
        self.p.stderr.close()
        if kind:
            sys.stderr.write(text[-3000:])
        else:
            equal(code, 0, "the gateway's exit code; it said: " + text[-2000:])

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * patience())
        try:
            c.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body), headers or {})
            r = c.getresponse()
            return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
        finally:
            c.close()

    def get(self, path, **more):
        status, _, body = self.request("GET", path, **more)
        return status, json.loads(body)

    def post(self, path, body, **more):
        status, _, text = self.request("POST", path, body, **more)
        return status, json.loads(text)

    def raw(self, data, timeout=30):
        """The answer to these bytes, up to its end, or until no byte comes for `timeout` seconds."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout * patience())
        got = b""
        try:
            s.sendall(data)
            while True:
                more = s.recv(65536)
                if not more:
                    break
                got += more
        except (ConnectionResetError, BrokenPipeError, TimeoutError):
            pass
        finally:
            s.close()
        return got


def events(body):
    """The data of an event stream, parsed strictly.

    Each event is an optional event line, one data line and an empty line. A comment is a block of its own."""
    out = []
    check(body.endswith(b"\n\n"), "the stream's end:", body[-40:])
    for block in body.decode()[:-2].split("\n\n"):
        if block.startswith(":"):
            continue
        m = re.fullmatch(r"(?:event: (\S+)\n)?data: (.*)", block)
        check(m, "no event:", block)
        out.append((m[1], m[2]) if m[1] else m[2])
    return out


class Serve(Gateway):
    """`ntx serve` in a folder, with the rest of its command line; its log is FOLDER/log."""

    def __init__(self, folder, *arguments, ready=(200,), env=os.environ):
        self.port, self.rt, self.ready = free_port(), os.path.join(folder, "rt"), ready
        self.log = open(os.path.join(folder, "log"), "w+")
        self.p = subprocess.Popen(
            [os.path.join(BIN, "ntx"), "serve", *arguments, "--listen", "127.0.0.1:%d" % self.port],
            env=dict(env, NTX_RUNTIME=self.rt, XDG_RUNTIME_DIR=""),
            stderr=self.log,
        )
        try:
            wait_for(lambda: self.there() or self.p.poll() is not None, 60, "ntx serve")
            check(self.p.poll() is None, "ntx serve ended:", open(self.log.name).read())
        except BaseException:
            self.p.kill()
            raise

    def there(self):
        try:
            return self.request("GET", "/health")[0] in self.ready
        except OSError:
            return False

    def __exit__(self, kind, value, trace):
        if kind:
            sys.stderr.write(open(self.log.name).read()[-3000:])
        self.p.send_signal(signal.SIGINT)
        equal(self.p.wait(60 * patience()), 0, "the exit code")
