#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A known model on a drive that does not answer: the list and the other models stay, and nobody waits for it twice."""

import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from fuse import Stuck  # noqa: E402
from gateway import Daemons, Gateway, check, equal, make_model, patience, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-stuck-")
SHAPE = ["--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2", "--kv", "1"]
DIR = os.path.join(tmp.name, "models")


def listed(g):
    begin = time.monotonic()
    status, j = g.get("/v1/models")
    equal(status, 200, j)
    return sorted(m["id"] for m in j["data"]), time.monotonic() - begin


def ask(g, model):
    status, j = g.post("/v1/completions", {"model": model, "prompt": "The sea", "max_tokens": 2, "ignore_eos": True})
    equal((status, j.get("model")), (200, model), j)


def check_load(g, stuck):
    """A known model whose file hangs meanwhile: its request fails with the reason, and the others go on soon."""
    file = os.path.join(DIR, "beta.gguf")
    os.rename(file, os.path.join(tmp.name, "beta.gguf"))
    os.symlink(os.path.join(stuck.dir, "model.gguf"), file)
    said = []
    body = {"model": "beta", "prompt": "x", "max_tokens": 1}
    asking = threading.Thread(target=lambda: said.append(g.post("/v1/completions", body, timeout=60)))
    begin = time.monotonic()
    asking.start()
    wait_for(lambda: b"ntx_gateway_turns_waiting 1" in g.request("GET", "/metrics")[2], 10, "a request for it")
    ask(g, "alpha")
    check(time.monotonic() - begin < 20 * patience(), "the other model:", time.monotonic() - begin)
    asking.join()
    (status, j), *_ = said
    equal(status, 503, j)
    check("does their file system still answer" in j["error"]["message"], j)
    os.unlink(file)
    os.rename(os.path.join(tmp.name, "beta.gguf"), file)


def main():
    os.mkdir(DIR)
    for i, name in enumerate(("alpha", "beta")):
        make_model(os.path.join(DIR, name + ".gguf"), *SHAPE, "--seed", str(i))
    gamma = make_model(os.path.join(tmp.name, "gamma.gguf"), *SHAPE, "--seed", "9")
    conf = os.path.join(tmp.name, "ntx.conf")
    with open(conf, "w") as f:
        f.write("[model]\nram = 64M\nctx = 128\nmodels = %s\n" % DIR)
    with Daemons("--config", conf) as d, Gateway(d) as g:
        ask(g, "alpha")
        stuck = Stuck()
        with stuck:
            link = os.path.join(DIR, "stuck.gguf")
            os.symlink(os.path.join(stuck.dir, "model.gguf"), link)
            wait_for(lambda: listed(g)[1] > 1, 20, "a list that is waited for")
            for _ in range(2):
                time.sleep(1.1)  # the gateway's own list is fresh for a second
                names, seconds = listed(g)
                equal(names, ["alpha", "beta"], "the last list")
                check(seconds < 1 * patience(), "the folder is known to hang:", seconds)
            begin = time.monotonic()
            ask(g, "alpha")
            check(time.monotonic() - begin < 2 * patience(), "the loaded model answers as ever")
            os.unlink(link)
            check_load(g, stuck)
        os.rename(gamma, os.path.join(DIR, "gamma.gguf"))
        wait_for(lambda: listed(g)[0] == ["alpha", "beta", "gamma"], 20, "a new file, once the drive answers again")
        ask(g, "beta")


main()
