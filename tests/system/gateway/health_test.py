#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the service reports about itself is true: status, /health, metrics, ntx-top and the log.

Tried while a worker is stopped, silent or gone; after a file of the model was changed; and while ntx-computed, which
was killed, loads the former model again.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import BIN, Daemons, Gateway, check, equal, make_model, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-health-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--layers",
    "6",
    "--embd",
    "512",
    "--ff",
    "1536",
    "--heads",
    "8",
    "--kv",
    "2",
    "--type",
    "Q8_0",
    "--seed",
    "3",
    "--chat-template",
    "chatml",
)
other = make_model(
    os.path.join(tmp.name, "o.gguf"),
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
)
LOAD = {"ram_bytes": 16 << 20, "ctx": 128}
ASK = {"prompt": "Once", "max_tokens": 4, "temperature": 0, "ignore_eos": True}


def connected(d):
    try:
        return d.client()
    except OSError:
        return None


def status(d):
    c = d.client()
    try:
        return json.loads(c.status())
    finally:
        c.close()


def load(d, path, named=None, **more):
    c = d.client(120)
    fd = os.open(path, os.O_RDONLY)
    i = c.send("load", dict(LOAD, names=[named or path], **more), [fd])
    os.close(fd)
    c.until(i, "loaded")
    c.close()


def state(d):
    s = status(d)
    return s["state"], s["serving"], s["reasons"]


def health(g):
    code, headers, body = g.request("GET", "/health")
    return code, json.loads(body), headers.get("retry-after")


def metrics(d):
    text = subprocess.run(
        [os.path.join(BIN, "ntx-metrics"), "--runtime", d.dir], capture_output=True, text=True, check=True
    ).stdout
    return dict(re.findall(r"^(ntx_(?:state|trouble|up)\S*) (\S+)$", text, re.M))


def top(d, *options):
    return subprocess.run(
        [os.path.join(BIN, "ntx-top"), "--runtime", d.dir, "--interval", "0.05", *options],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def said(d, words):
    return d.text().count(words)


WELL = ("ready", True, [])


def troubled(d, g, serving, pattern, part, word):
    """All sources of the status report the same trouble."""
    wait_for(lambda: state(d)[0] == "degraded" and re.search(pattern, state(d)[2][0]), 12, "degraded: " + pattern)
    s = status(d)
    equal(s["serving"], serving, "serving")
    equal(len(s["reasons"]), 1, "reasons")
    code, said_, retry = health(g)
    if serving:
        equal(
            (code, said_, retry), (200, {"status": "ok", "state": "degraded", "reasons": s["reasons"]}, None), "health"
        )
    else:
        equal(
            (code, said_, retry),
            (
                503,
                {
                    "status": "degraded",
                    "state": "degraded",
                    "reasons": s["reasons"],
                    "error": {"code": 503, "message": s["reasons"][0], "type": "unavailable_error"},
                },
                "5",
            ),
            "health",
        )
    m = metrics(d)
    equal(
        [m['ntx_state{state="%s"}' % k] for k in ("ready", "degraded", "loading", "down")],
        ["0", "1", "0", "0"],
        "ntx_state",
    )
    equal(m['ntx_trouble{part="%s"}' % part], "1" if serving else "2", "ntx_trouble")
    j = json.loads(top(d, "--json"))
    equal((j["state"], j["reasons"]), ("degraded", s["reasons"]), "ntx-top --json")
    check("degraded: " in top(d, "--once") and word in top(d, "--once"), top(d, "--once"))
    equal(said(d, "degraded: " + s["reasons"][0]), 1, "times that the log says so")
    return s["reasons"][0]


def well(d, g, reason):
    wait_for(lambda: state(d) == WELL, 12, "the end of: " + reason)
    wait_for(lambda: said(d, "over: " + reason), 5, "the log's word that it is over: " + reason)
    equal(said(d, "over: " + reason), 1, "times that the log says that it is over")
    equal(health(g), (200, {"status": "ok"}, None), "health afterwards")
    equal([v for k, v in metrics(d).items() if "trouble" in k], ["0"] * 4, "ntx_trouble afterwards")


def workers(d, g):
    pid = d.child["iod"].pid
    with d.held("iod"):
        reason = troubled(
            d, g, False, r"^ntx-iod \(pid %d\) is stopped \(SIGSTOP\).*kill -CONT %d" % (pid, pid), "iod", "stopped"
        )
    well(d, g, reason)
    equal(g.post("/v1/completions", ASK)[0], 200, "an answer afterwards")
    with d.held("predictor"):
        reason = troubled(d, g, True, r"^ntx-predictor \(pid \d+\) is stopped", "predictor", "stopped")
        equal(g.post("/v1/completions", ASK)[0], 200, "an answer without the predictor")
    well(d, g, reason)
    d.restart = False
    d.kill("iod")
    reason = troubled(d, g, False, r"^ntx-iod is not running", "iod", "not running")
    d.restart = True
    well(d, g, reason)


def silent(d, g):
    """A worker that runs but does nothing, held by a debugger."""
    pid = d.child["iod"].pid
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    with d.lock:  # or who waits for its death takes the news
        if libc.ptrace(16, pid, None, None):  # PTRACE_ATTACH
            print("a silent worker is not tried: ptrace is refused (%s)" % os.strerror(ctypes.get_errno()))
            return
        os.waitpid(pid, 0)
    reason = troubled(d, g, False, r"^ntx-iod \(pid %d\) has not answered for 5 s" % pid, "iod", "not answered")
    check(not libc.ptrace(17, pid, None, None), "PTRACE_DETACH")
    well(d, g, reason)


def files(d, g):
    """The model's file changed in place, in length, replaced by another of the same name, and removed."""
    again = r"load the model again \(ntx load MODEL\)"
    mine = os.path.join(tmp.name, "mine.gguf")
    data = open(model, "rb").read()
    shutil.copy(model, mine)
    load(d, mine)
    equal(state(d), WELL, "loaded")
    with open(mine, "r+b") as f:
        f.seek(len(data) // 2)
        f.write(b"\0" * 8)
    troubled(d, g, False, r"^a file of the model has been changed .*%s: %s$" % (again, mine), "files", "changed")
    code, e = g.post("/v1/completions", ASK)
    check(code == 503 and "changed while it was loaded: load the model again" in e["error"]["message"], code, e)
    os.truncate(mine, len(data) - 4096)
    troubled(
        d,
        g,
        False,
        r"^a file of the model has become shorter since it was loaded \(%d bytes, it had %d\).*%s: %s$"
        % (len(data) - 4096, len(data), again, mine),
        "files",
        "shorter",
    )
    with open(mine, "wb") as f:
        f.write(data + b"\0" * 4096)
    reason = troubled(
        d,
        g,
        False,
        r"^a file of the model has become longer since it was loaded \(%d bytes, it had %d\)"
        % (len(data) + 4096, len(data)),
        "files",
        "longer",
    )
    shutil.copy(model, mine)
    load(d, mine)
    well(d, g, reason)
    shutil.copy(model, mine + ".new")
    threading.Event().wait(1.5)  # a look at the name while it leads to the file
    os.rename(mine + ".new", mine)
    reason = troubled(
        d, g, True, r"^another file has taken the place of a file of the model.*%s" % again, "files", "another file"
    )
    equal(g.post("/v1/completions", ASK)[0], 200, "an answer from the file that was loaded")
    load(d, mine)
    well(d, g, reason)
    threading.Event().wait(1.5)
    os.unlink(mine)
    reason = troubled(d, g, True, r"^a file of the model has been removed or renamed; .*%s$" % mine, "files", "removed")
    load(d, model)
    well(d, g, reason)


def death(d, g, want):
    """ntx-computed is killed: its successor loads the same model, and reports that it is loading until then."""
    load(d, model, link_nvme_bps=4e6)  # slow enough to be seen loading
    d.kill("computed")
    code, said_, retry = health(g)  # nobody is there at all
    equal(
        (code, said_["status"], said_["error"], retry),
        (503, "loading", {"code": 503, "message": "Loading model", "type": "unavailable_error"}, "2"),
        "health without ntx-computed",
    )
    check("is started again; then the model that it served is loaded again" in said_["reasons"][0], said_)
    code, headers, body = g.request("POST", "/v1/completions", ASK)
    equal(
        (code, headers.get("retry-after"), json.loads(body)["error"]["code"]),
        (503, "2", "unavailable"),
        "a request meanwhile",
    )
    check(b"load one first" not in body and b"is started again" in body, body)
    equal((metrics(d)["ntx_up"], metrics(d)['ntx_state{state="down"}']), ("0", "1"), "metrics of a dead ntx-computed")
    d.spawn("computed")
    wait_for(lambda: connected(d), 10, "the next one")
    s = status(d)
    equal((s["state"], s["serving"]), ("loading", False), "while it loads")
    check(
        re.search(
            r"ntx-computed had ended unexpectedly, and the model that it served is loaded again: %s" % model,
            s["reasons"][0],
        ),
        s["reasons"],
    )
    code, said_, retry = health(g)
    equal(
        (code, said_["status"], said_["error"]["message"], retry, said_["reasons"]),
        (503, "loading", "Loading model", "2", s["reasons"]),
        "health while it loads",
    )
    equal(metrics(d)['ntx_state{state="loading"}'], "1", "ntx_state while it loads")
    equal(g.post("/v1/completions", ASK, timeout=300)[1]["choices"][0]["text"], want, "who asked while it loads")
    wait_for(lambda: state(d) == WELL, 60, "the model again")
    equal((status(d)["ctx"], status(d)["bytes_model"] > 0), (128, True), "its settings")


def replaced_then_death(d, g):
    """The former model is served again through its descriptor, though its name is another file's by then."""
    mine = os.path.join(tmp.name, "away.gguf")
    shutil.copy(other, mine)
    load(d, mine)
    name = status(d)["bytes_model"]
    os.unlink(mine)
    d.kill("computed")
    d.spawn("computed")
    wait_for(lambda: connected(d) and state(d)[1], 30, "the model again")
    equal(status(d)["bytes_model"], name, "the model")
    troubled(d, g, True, r"^a file of the model has been removed or renamed", "files", "removed")


def unloaded(d, g):
    """A model that was unloaded does not come back; a regular stop leaves nothing behind."""
    c = d.client()
    c.until(c.send("unload", {}), "done")
    c.close()
    d.kill("computed")
    d.spawn("computed")
    wait_for(lambda: connected(d), 10, "the next one")
    equal(state(d), ("empty", False, []), "after an unload")
    equal(
        health(g),
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
            None,
        ),
        "health of none",
    )


def given_up(d, g):
    """A model that ends ntx-computed at every load is not loaded for ever; one that no longer loads is reported."""
    mine = os.path.join(tmp.name, "heavy.gguf")
    shutil.copy(model, mine)
    load(d, mine, link_nvme_bps=1e6)
    for i in range(4):
        d.kill("computed")
        d.spawn("computed")
        wait_for(lambda: connected(d) and status(d)["state"], 10, "the next one, which has begun")
    s = state(d)
    equal(s[:2], ("empty", False), "after three tries")
    check(
        re.search(
            r"%s is not loaded again: ntx-computed has ended 3 times while it was loaded: load a model" % mine, s[2][0]
        ),
        s,
    )
    code, said_, retry = health(g)
    equal((code, said_["error"]["message"], retry), (503, s[2][0], None), "health")
    code, headers, body = g.request("POST", "/v1/completions", ASK)
    equal((code, json.loads(body)["error"]["message"], headers.get("retry-after")), (503, s[2][0], None), "a request")
    load(d, mine)
    well(d, g, s[2][0])
    os.truncate(mine, 4096)
    d.kill("computed")
    d.spawn("computed")
    wait_for(lambda: connected(d) and state(d)[0] == "empty", 20, "the end of its try")
    s = state(d)
    check(
        re.search(
            r"^the model that was served before ntx-computed ended could not be loaded again: .*%s.*; load a model"
            r" \(ntx load MODEL\)$" % mine,
            s[2][0],
        ),
        s,
    )
    equal((health(g)[0], health(g)[1]["error"]["message"]), (503, s[2][0]), "health")
    equal(said(d, "degraded: " + s[2][0]), 1, "times that the log says so")


def main():
    with Daemons(keep=True) as d:
        with Gateway(d) as g:
            load(d, model)
            equal(state(d), WELL, "status")
            equal(health(g), (200, {"status": "ok"}, None), "health")
            equal(g.get("/v1/health"), (200, {"status": "ok"}), "its other name")
            m = metrics(d)
            equal(
                (m["ntx_up"], m['ntx_state{state="ready"}'], m['ntx_state{state="down"}']), ("1", "1", "0"), "metrics"
            )
            want = g.post("/v1/completions", ASK)[1]["choices"][0]["text"]
            parts = [
                (workers, ()),
                (silent, ()),
                (files, ()),
                (death, (want,)),
                (replaced_then_death, ()),
                (unloaded, ()),
                (given_up, ()),
            ]
            for part, more in parts:
                if len(sys.argv) < 2 or part.__name__ in sys.argv[1:]:
                    part(d, g, *more)


main()
