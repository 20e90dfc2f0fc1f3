#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A known model on a drive that does not answer, before or while it is read: its requests get a reason, the list and
the other models stay, and nobody waits for it twice.

With NTX_LONG also a drive that halts between the weights (a minute and a half). Where the system cannot end ntx-iod
meanwhile, requests for other models get that reason, at once, until the drive goes on."""

import contextlib
import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from fuse import Halting, Stuck  # noqa: E402
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
    check(time.monotonic() - begin < 4 * patience(), "the other model:", time.monotonic() - begin)
    asking.join()
    (status, j), *_ = said
    equal(status, 503, j)
    check("does their file system still answer" in j["error"]["message"], j)
    os.unlink(file)
    os.rename(os.path.join(tmp.name, "beta.gguf"), file)


def ask_meanwhile(g, offset, seconds):
    """For the other model. Until the files of the new one are open, it is still loaded; later ntx-iod may be stuck."""
    begin = time.monotonic()
    body = {"model": "alpha", "prompt": "The sea", "max_tokens": 2, "ignore_eos": True}
    status, j = g.post("/v1/completions", body, timeout=seconds)
    if offset and status == 503:
        text = j["error"]["message"]
        check("the system cannot end it" in text or "no byte of the model came" in text, j)
        return
    equal((status, j.get("model")), (200, "alpha"), j)
    if not offset:
        check(time.monotonic() - begin < 4 * patience(), "the other model:", time.monotonic() - begin)


def check_halts(g, h, offset, most_s, words):
    """The drive halts behind the offset at a swap: a reason for those who want its model, and nobody waits longer."""
    ask(g, "halting")
    ask(g, "alpha")
    h.halt(offset)
    said = []

    def want():
        body = {"model": "halting", "prompt": "x", "max_tokens": 1}
        said.append(g.post("/v1/completions", body, timeout=most_s + 60))

    begin = time.monotonic()
    wanting = [threading.Thread(target=want) for _ in range(3)]
    for t in wanting:
        t.start()
    wait_for(lambda: b"ntx_gateway_turns_waiting 3" in g.request("GET", "/metrics")[2], 10, "requests for it")
    while any(t.is_alive() for t in wanting):
        ask_meanwhile(g, offset, most_s)
        equal(g.get("/v1/models")[0], 200, "the list")
        time.sleep(0.2)
    check(time.monotonic() - begin < most_s * patience(), "they waited for", time.monotonic() - begin)
    for status, j in said:
        equal(status, 503, j)
        check(words in j["error"]["message"], j)
    ask_meanwhile(g, offset, most_s)
    h.go()
    again = {"model": "halting", "prompt": "x", "max_tokens": 1}
    wait_for(lambda: g.post("/v1/completions", again)[0] == 200, 30, "the drive goes on")
    ask(g, "alpha")


@contextlib.contextmanager
def going(h):
    """The drive goes on before the daemons are ended, also after a failure: they cannot end without it."""
    try:
        yield
    finally:
        h.go()


def halts(tmp):
    shape = ["--layers", "4", "--embd", "256", "--ff", "1024", "--heads", "4", "--kv", "2", "--seed", "3"]
    source = make_model(os.path.join(tmp, "source.gguf"), *shape)
    conf = os.path.join(tmp, "halts.conf")
    with Halting(source) as h:
        with open(conf, "w") as f:
            f.write("[model]\nram = 64M\nctx = 128\nmodels = %s,%s\n" % (os.path.join(DIR, "alpha.gguf"), h.path))
        with Daemons("--config", conf) as d, Gateway(d) as g, going(h):
            check_halts(g, h, 0, 40, "does their file system still answer")
            if os.environ.get("NTX_LONG"):
                check_halts(g, h, os.path.getsize(source) - 4096, 120, "no byte of the model came")


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
            wait_for(lambda: listed(g)[1] > 0.4, 20, "a list that is waited for")
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
    halts(tmp.name)


main()
