#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ntx serve`: daemons and gateway in one terminal.

The gateway's death, refusals before anything starts, the end by Ctrl-C and by SIGKILL; and [gateway] in an ntx.conf.
"""

import atexit
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import BIN, GATEWAY, check, equal, free_port, make_model, patience, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-serve-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--layers",
    "2",
    "--embd",
    "64",
    "--ff",
    "128",
    "--heads",
    "2",
    "--kv",
    "1",
    "--seed",
    "3",
    "--chat-template",
    "chatml",
)
ENV = dict(os.environ, NTX_RUNTIME=os.path.join(tmp.name, "rt"), XDG_RUNTIME_DIR="")
NTX = os.path.join(BIN, "ntx")


def ask(port, method, path, body=None, headers=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60 * patience())
    try:
        c.request(method, path, json.dumps(body) if body else None, headers or {})
        r = c.getresponse()
        return r.status, json.loads(r.read())
    finally:
        c.close()


def health(port):
    try:
        return ask(port, "GET", "/health")[0]
    except OSError:
        return 0


def start(port, *options):
    log = open(os.path.join(tmp.name, "log"), "w+")
    p = subprocess.Popen(
        [NTX, "serve", model, "--ram", "64M", "--ctx", "128", "--listen", "127.0.0.1:%d" % port, *options],
        env=ENV,
        stderr=log,
        stdout=subprocess.DEVNULL,
    )
    atexit.register(p.kill)
    wait_for(lambda: health(port) == 200 or p.poll() is not None, 30, "an answer of ntx serve")
    check(p.poll() is None, "ntx serve ended:", open(log.name).read())
    return p


def child(p, name):
    said = subprocess.run(["pgrep", "-P", str(p.pid), "-x", name], capture_output=True, text=True).stdout.split()
    return int(said[0]) if said else 0


def refused(words, *options, command=(NTX, "serve", model), env=ENV, code=(100, 111)):
    said = subprocess.run([*command, *options], env=env, capture_output=True, text=True, timeout=60 * patience())
    check(
        said.returncode in code and said.stderr.count("\n") == 1 and words in said.stderr,
        options,
        said.returncode,
        said.stderr,
    )


def main():
    port = free_port()
    p = start(port)
    hello = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    status, first = ask(port, "POST", "/v1/chat/completions", hello)
    equal((status, first["usage"]["completion_tokens"]), (200, 4), "an answer")
    other = dict(ENV, NTX_RUNTIME=os.path.join(tmp.name, "rt2"))
    refused("Address already in use", "--listen", "127.0.0.1:%d" % port, env=other)
    refused("give an API key", "--listen", "0.0.0.0:%d" % free_port(), env=other)
    refused("cannot be read", "--api-key-file", "/none/there", env=other)
    refused("another ntx-computed", "--listen", "127.0.0.1:%d" % free_port())

    # The gateway dies: clients that connect meanwhile wait at the listening socket, and are answered.
    gateway = child(p, "ntx-gateway")
    os.kill(gateway, signal.SIGKILL)
    equal(ask(port, "POST", "/v1/chat/completions", hello)[1]["choices"], first["choices"], "after the gateway's death")
    check(child(p, "ntx-gateway") not in (0, gateway), "no other gateway")
    computed = child(p, "ntx-computed")
    os.kill(computed, signal.SIGKILL)
    wait_for(lambda: health(port) == 200 and child(p, "ntx-computed") != computed, 30, "another ntx-computed")
    equal(ask(port, "POST", "/v1/chat/completions", hello)[1]["choices"], first["choices"], "after computed's death")

    p.send_signal(signal.SIGINT)
    equal(p.wait(60 * patience()), 0, "exit code after Ctrl-C")
    equal(health(port), 0, "nobody listens")

    key = os.path.join(tmp.name, "key")
    with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write("sesame-open\n")
    p = start(port, "--api-key-file", key, "--cors", "https://a.example")
    equal(ask(port, "GET", "/v1/models")[0], 401, "without the key")
    equal(
        ask(port, "GET", "/v1/models", headers={"x-api-key": "sesame-open", "Origin": "https://a.example"})[0],
        200,
        "with it",
    )
    gateway = child(p, "ntx-gateway")
    p.kill()
    p.wait()
    wait_for(
        lambda: (
            not os.path.exists("/proc/%d" % gateway) or open("/proc/%d/stat" % gateway).read().split(") ")[1][0] == "Z"
        ),
        10,
        "the gateway's end with its parent",
    )

    conf = os.path.join(tmp.name, "ntx.conf")
    with open(conf, "w") as f:
        f.write("[metrics]\nlisten = x\n[gateway]\ncors = https://a.example\n")
    said = subprocess.run([GATEWAY, "--config", conf], capture_output=True, text=True, timeout=30 * patience())
    check(said.returncode == 0 and "nothing to do" in said.stderr, said)
    with open(conf, "a") as f:
        f.write("listen = 127.0.0.1:%d\napi_key_file = %s\n" % (port, key))
    p = subprocess.Popen([GATEWAY, "--config", conf, "--runtime", tmp.name], stderr=subprocess.PIPE, text=True)
    atexit.register(p.kill)
    check("serving" in p.stderr.readline(), "no gateway by ntx.conf")
    equal(
        (ask(port, "GET", "/v1/models")[0], ask(port, "GET", "/v1/models", headers={"x-api-key": "sesame-open"})[0]),
        (401, 503),
        "by ntx.conf",
    )
    p.terminate()
    equal(p.wait(20 * patience()), 0, "its exit code")
    p.stderr.close()


main()
