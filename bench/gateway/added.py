#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""added.py [CLIENTS] [SECONDS]: the time that ntx-gateway adds to a token.

Measured from the write of a Token frame on ntx-computed's side to the event at the HTTP client. In ntx-computed's place
is a server of this program's (with the wire format written by hand, as in the tests), which sends each stream a token
every 20 ms, with the time as its text. The clients are threads of this process, so Python's own time is included.
Prints a CSV line with the percentiles, in ms. Needs NTX_BIN (build/bin); run nothing else on the machine.
"""

import http.client
import json
import os
import socket
import struct
import sys
import tempfile
import threading
import time

os.environ.setdefault("NTX_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import wire  # noqa: E402
from gateway import Gateway  # noqa: E402

EVERY = 0.02


def send(s, reply):
    body = wire.pack(wire.REPLY, reply)
    s.sendall(struct.pack("<I", len(body)) + body)


def computed(s, tokens):
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from("<I", data)[0]:
        data += s.recv(65536)
    request = wire.unpack(wire.REQUEST, data[4:])
    send(s, {"id": request["id"], "started": {"prompt_tokens": 5}})
    begin = time.monotonic()
    for i in range(tokens):
        wait = begin + i * EVERY - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        send(s, {"id": request["id"], "token": {"token": i, "text": b"%d" % time.monotonic_ns()}})
    send(s, {"id": request["id"], "done": {"finish": "length", "stats_json": "{}"}})
    s.close()


def client(port, took):
    c = http.client.HTTPConnection("127.0.0.1", port)
    c.request("POST", "/v1/completions", json.dumps({"prompt": "x", "stream": True}))
    r = c.getresponse()
    for line in r:
        now = time.monotonic_ns()
        if line.startswith(b"data: {"):
            text = json.loads(line[6:])["choices"][0]["text"]
            if text:
                took.append((now - int(text)) / 1e6)
    c.close()


def main():
    clients, seconds = int((sys.argv + [16])[1]), float((sys.argv + [16, 10])[2] if len(sys.argv) > 2 else 10)
    took = []

    class D:
        dir = tempfile.mkdtemp(prefix="ntx-added-")

    path = os.path.join(D.dir, "ntx.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)

    def accept():
        while True:
            s, _ = listener.accept()
            threading.Thread(target=computed, args=(s, int(seconds / EVERY)), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with Gateway(D) as g:
        threads = [threading.Thread(target=client, args=(g.port, took)) for _ in range(clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    os.unlink(path)
    os.rmdir(D.dir)
    took.sort()
    print("clients,tokens,p50_ms,p90_ms,p99_ms,max_ms")
    print(
        "%d,%d,%.3f,%.3f,%.3f,%.3f"
        % (clients, len(took), *(took[int(len(took) * p)] for p in (0.5, 0.9, 0.99)), took[-1])
    )


main()
