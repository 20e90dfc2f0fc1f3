#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx-computed of `ntx serve` and `ntx up` is killed: it comes back with the model that it served last.

That is so whether the command line named the model or `ntx load` loaded it, and with the same options. Requests that
arrive meanwhile get no error about a missing model. A model that was unloaded stays unloaded.
"""

import atexit
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import BIN, check, equal, free_port, make_model, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-revive-")
SHAPE = [
    "--layers",
    "4",
    "--embd",
    "256",
    "--ff",
    "512",
    "--heads",
    "4",
    "--kv",
    "2",
    "--type",
    "Q8_0",
    "--chat-template",
    "chatml",
]
first = make_model(os.path.join(tmp.name, "first.gguf"), *SHAPE, "--seed", "3")
second = make_model(os.path.join(tmp.name, "second.gguf"), *SHAPE[2:], "--layers", "6", "--seed", "5")
ENV = dict(os.environ, NTX_RUNTIME=os.path.join(tmp.name, "rt"), XDG_RUNTIME_DIR="")
NTX = os.path.join(BIN, "ntx")
ASK = {"prompt": "Once", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def ask(port, method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        c.request(method, path, json.dumps(body) if body else None)
        r = c.getresponse()
        return r.status, r.getheader("Retry-After"), json.loads(r.read())
    finally:
        c.close()


def ntx(*args):
    return subprocess.run([NTX, *args], env=ENV, capture_output=True, text=True, timeout=120)


def status():
    said = ntx("status", "--json")
    return json.loads(said.stdout) if not said.returncode else {"state": "", "pid": 0, "serving": False}


def computed(p):
    said = subprocess.run(
        ["pgrep", "-P", str(p.pid), "-x", "ntx-computed"], capture_output=True, text=True
    ).stdout.split()
    return int(said[0]) if said else 0


def kill(p):
    """Kills ntx-computed, and returns when its successor runs."""
    before = computed(p)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: computed(p) not in (0, before) and status()["pid"] == computed(p), 20, "another ntx-computed")


def start(*args):
    log = open(os.path.join(tmp.name, "log"), "w+")
    p = subprocess.Popen([NTX, *args], env=ENV, stderr=log, stdout=subprocess.DEVNULL)
    atexit.register(p.kill)
    wait_for(lambda: status()["serving"] or p.poll() is not None, 30, "the daemons")
    check(p.poll() is None, "ended:", open(log.name).read())
    return p


def text(port):
    return ask(port, "POST", "/v1/completions", ASK)[2]["choices"][0]["text"]


def watched(port, stop, seen):
    """What a load balancer and an impatient client get meanwhile."""
    while not stop.is_set():
        for method, path, body in (("GET", "/health", None), ("POST", "/v1/completions", ASK)):
            seen.append((path, *ask(port, method, path, body)))


def serve():
    port = free_port()
    p = start("serve", first, "--ram", "64M", "--ctx", "96", "--listen", "127.0.0.1:%d" % port)
    wait_for(lambda: ask(port, "GET", "/health")[0] == 200, 20, "health")
    want = {first: text(port)}
    stop, seen = threading.Event(), []
    t = threading.Thread(target=watched, args=(port, stop, seen))
    t.start()
    kill(p)
    wait_for(lambda: status()["serving"], 30, "the model of the command line again")
    stop.set()
    t.join()
    for path, code, retry, body in seen:
        check(code in (200, 503), path, code, body)
        check(
            "load one first" not in json.dumps(body) and body.get("status") != "empty",
            "told while it loads:",
            path,
            code,
            body,
        )
        if code == 503:
            check(int(retry) > 0, "Retry-After", path, retry, body)
    equal((text(port), status()["ctx"]), (want[first], 96), "the model of the command line again")

    equal(ntx("load", second, "--ram", "48M", "--ctx", "64", "--quiet").returncode, 0, "ntx load")
    want[second] = text(port)
    size = status()["bytes_model"]
    check(want[first] != want[second], "the models write alike")
    moved = second + ".moved"
    os.rename(second, moved)  # its path is of no use any more
    for i in range(2):
        kill(p)
        wait_for(lambda: status()["serving"], 30, "the model of ntx load again")
        s = status()
        equal((text(port), s["ctx"], s["bytes_model"]), (want[second], 64, size), "the model of ntx load again, %d" % i)
    os.rename(moved, second)

    equal(ntx("unload").returncode, 0, "ntx unload")
    kill(p)
    equal(
        (status()["state"], ask(port, "GET", "/health")[::2]),
        (
            "empty",
            (
                503,
                {
                    "status": "empty",
                    "error": {
                        "code": 503,
                        "message": "no model is loaded: load one first (ntx load MODEL)",
                        "type": "unavailable_error",
                    },
                },
            ),
        ),
        "after ntx unload",
    )
    p.send_signal(signal.SIGINT)
    equal(p.wait(60), 0, "exit code")


def up():
    """The model's file is damaged meanwhile: the reason is in the log and in the status."""
    mine = os.path.join(tmp.name, "mine.gguf")
    shutil.copy(first, mine)
    p = subprocess.Popen(
        [NTX, "up"], env=ENV, stderr=open(os.path.join(tmp.name, "log"), "w"), stdout=subprocess.DEVNULL
    )
    atexit.register(p.kill)
    wait_for(lambda: status()["state"] == "empty", 20, "ntx up")
    equal(ntx("load", mine, "--ram", "64M", "--ctx", "96", "--quiet").returncode, 0, "ntx load")
    kill(p)
    wait_for(lambda: status()["serving"], 30, "the model of ntx load again")
    os.truncate(mine, 1000)
    wait_for(lambda: status()["state"] == "degraded", 10, "a shorter file")
    check("has become shorter" in status()["reasons"][0], status())
    kill(p)
    wait_for(lambda: status()["state"] == "empty", 30, "the end of the try")
    reason = status()["reasons"][0]
    check("served before ntx-computed ended could not be loaded again: " in reason and mine in reason, reason)
    said = ntx("generate", "Once", "--raw", "-n", "2", "--quiet")
    check(said.returncode == 111 and said.stderr == "ntx: %s\n" % reason, said)
    check("reasons " in ntx("status").stdout and reason[:60] in ntx("status").stdout, ntx("status").stdout)
    equal(open(os.path.join(tmp.name, "log")).read().count("degraded: " + reason), 1, "times that the log says so")
    equal(ntx("stop").returncode, 0, "ntx stop")
    equal(p.wait(60), 0, "exit code")


serve()
up()
