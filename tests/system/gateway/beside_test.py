#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two models at once within one --ram (`ntx serve --at-once`), a third one under traffic, and a kill in between."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import BIN, Daemons, Gateway, Serve, check, equal, make_model, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-beside-")
NTX = os.path.join(BIN, "ntx")
SHAPE = ["--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2", "--kv", "1", "--chat-template", "chatml"]
NAMES = ["alpha", "beta", "gamma"]
PROMPT = "The sea is"
RAM = 144 << 20
MORE = 64 << 20  # what the daemons of a place may take beside the budget of its model


def path(name):
    return os.path.join(tmp.name, name + ".gguf")


def direct(name):
    command = [NTX, "run", path(name), PROMPT, "--raw", "--temp", "0", "-n", "8", "--ignore-eos", "--quiet"]
    said = subprocess.run(command + ["--ram", "64M", "--ctx", "256"], capture_output=True, text=True, timeout=300)
    equal(said.returncode, 0, said.stderr)
    return said.stdout.rstrip("\n")


class Three(Serve):
    def __init__(self, *options):
        models = [path(n) for n in NAMES]
        super().__init__(tmp.name, *models, "--ram", "%dM" % (RAM >> 20), "--ctx", "256", "--at-once", "3", *options)

    def ask(self, model):
        body = {"model": model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        status, j = self.post("/v1/completions", body, timeout=120)
        equal(status, 200, j)
        return j["choices"][0]["text"]

    def loaded(self):
        return {m["id"] for m in self.get("/v1/models")[1]["data"] if m["status"]["value"] == "loaded"}

    def metric(self, name):
        text = self.request("GET", "/metrics")[2].decode()
        return float(next(line.split()[1] for line in text.splitlines() if line.startswith(name + " ")))

    def status(self, place):
        socket = os.path.join(self.rt, *(["place-%d" % (place + 1)] if place else []), "ntx.sock")
        said = subprocess.run([NTX, "status", "--socket", socket, "--json"], capture_output=True, text=True)
        return json.loads(said.stdout) if said.returncode == 0 else {}

    def taken(self):
        """Bytes of the budget that all loaded models take."""
        totals = [s["bytes_total"] for s in map(self.status, range(3)) if "bytes_total" in s]
        return sum(totals) + MORE * max(len(totals) - 1, 0), totals


def check_two(g, texts):
    equal(g.ask("alpha"), texts["alpha"], "the first model")
    equal(g.ask("beta"), texts["beta"], "the second one")
    equal(g.loaded(), {"alpha", "beta"}, "both stay")
    equal(sorted(m["name"] for m in g.get("/api/ps")[1]["models"]), ["alpha", "beta"], "Ollama's list of them")
    swaps = g.metric("ntx_gateway_swaps_total")
    for name in ("alpha", "beta", "alpha"):
        equal(g.ask(name), texts[name], "no model is swapped")
    equal(g.metric("ntx_gateway_swaps_total"), swaps, "loads of models that are there")
    taken, totals = g.taken()
    check(len(totals) == 2 and taken <= RAM, "two of three places are used, within the budget:", taken, totals)


def check_third(g, texts):
    """A third model has no room: the least recently used one goes."""
    equal(g.ask("gamma"), texts["gamma"], "the third model")
    equal(g.loaded(), {"alpha", "gamma"}, "beta was used least recently")
    equal(g.ask("alpha"), texts["alpha"], "the one that stayed")
    equal(g.ask("beta"), texts["beta"], "it comes back")
    equal(g.loaded(), {"alpha", "beta"}, "in place of gamma")


def check_traffic(g, texts):
    wrong, sums, over, told = [], [], threading.Event(), threading.Event()

    def client(i):
        for n in range(60):
            if n >= 4 and told.is_set():
                break
            name = NAMES[(i + n) % 3]
            got = g.ask(name)
            if got != texts[name]:
                wrong.append((name, got))

    def watch():
        while not over.wait(0.05):
            sums.append(g.taken()[0])
            if g.status(0).get("models_waiting", 0):
                told.set()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    watcher = threading.Thread(target=watch)
    for t in [*threads, watcher]:
        t.start()
    wait_for(lambda: g.metric("ntx_gateway_turns_waiting") > 0, 20, "a request that waits")
    pids = [s["pid"] for s in map(g.status, range(3)) if s.get("model")]
    os.kill(pids[-1], signal.SIGKILL)
    for t in threads:
        t.join()
    over.set()
    watcher.join()
    equal(wrong, [], "answers of another model")
    check(max(sums) <= RAM, "the budget was exceeded:", max(sums))
    check(told.is_set(), "the status shows those that wait")
    peaks = [s["peak_bytes"] for s in map(g.status, range(3)) if "peak_bytes" in s]
    check(len(peaks) == 3 and sum(peaks) <= RAM + MORE, "what all daemons took at most:", peaks)
    wait_for(lambda: g.status(0).get("models_waiting") == 0, 10, "nobody waits any more")


def check_state(texts):
    """What a model knew of a text's beginning survives a swap, wherever it is loaded then."""
    talk = {"messages": [{"role": "user", "content": "word " * 60}], "max_tokens": 2, "temperature": 0}
    with Three("--state", os.path.join(tmp.name, "state")) as g:
        cached = {}
        for name in ("alpha", "beta", "gamma", "beta", "alpha"):
            status, j = g.post("/v1/chat/completions", dict(talk, model=name))
            equal((status, j["model"]), (200, name), j)
            cached.setdefault(name, []).append(j["usage"]["prompt_tokens_details"]["cached_tokens"])
    equal([cached[n][0] for n in NAMES], [0, 0, 0], "nothing is known at first")
    check(cached["alpha"][1] > 0 and cached["beta"][1] > 0, "the beginnings are known again:", cached)


def check_service(texts):
    """[model] at_once: the model of `path` and another one, each in daemons of its own; texts survive swaps."""
    conf, store = os.path.join(tmp.name, "ntx.conf"), os.path.join(tmp.name, "kept")
    with open(conf, "w") as f:
        f.write("[model]\nram = %d\nctx = 256\nat_once = 2\npath = %s\n" % (RAM, path("alpha")))
        f.write("models = %s\n[prefix]\nstate = %s\n" % (", ".join(map(path, NAMES)), store))
    computed = [os.path.join(BIN, "ntx-computed"), "--config", conf]
    equal(subprocess.run([*computed, "--places"], capture_output=True, text=True).stdout, "2\n", "--places")
    over = subprocess.run([*computed, "--place", "3"], capture_output=True, text=True, timeout=60)
    equal(over.returncode, 0, over.stderr)
    check("at_once is 2" in over.stderr, over.stderr)
    talk = {"messages": [{"role": "user", "content": "word " * 60}], "max_tokens": 2, "temperature": 0}
    with Daemons("--config", conf) as d:
        second = Daemons("--config", conf, "--place", "2", place=os.path.join(d.dir, "place-2"))
        with second, Gateway(d, "--config", conf) as g:

            def loaded():
                return {m["id"] for m in g.get("/v1/models")[1]["data"] if m["status"]["value"] == "loaded"}

            wait_for(lambda: loaded() == {"alpha"}, 20, "the model of path, and none in the second place")
            cached = {}
            for name in ("alpha", "beta", "alpha", "gamma", "beta", "gamma", "alpha"):
                status, j = g.post("/v1/chat/completions", dict(talk, model=name))
                equal((status, j["model"]), (200, name), j)
                cached.setdefault(name, []).append(j["usage"]["prompt_tokens_details"]["cached_tokens"] > 0)
                if name == "beta":
                    check(name in loaded() and len(loaded()) == 2, "two at once:", loaded())
            equal(cached, {"alpha": [0, 1, 1], "beta": [0, 1], "gamma": [0, 1]}, "beginnings are known again")
            body = {"model": "beta", "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
            equal(g.post("/v1/completions", body)[1]["choices"][0]["text"], texts["beta"], "the text")
            second.kill("computed")
            second.spawn("computed")
            equal(g.post("/v1/completions", body)[1]["choices"][0]["text"], texts["beta"], "after a kill")
    equal(sorted(os.listdir(store)), NAMES, "a folder for each model")


def main():
    texts = {}
    for i, name in enumerate(NAMES):
        make_model(path(name), *SHAPE, "--seed", str(i + 3))
        texts[name] = direct(name)
    equal(len(set(texts.values())), 3, "the models differ")
    with Three() as g:
        check_two(g, texts)
        check_third(g, texts)
        check_traffic(g, texts)
        check_two(g, texts)
    check_state(texts)
    check_service(texts)
    said = subprocess.run([NTX, "serve", path("alpha"), "--at-once", "9"], capture_output=True, text=True)
    check(said.returncode and "--at-once" in said.stderr, said)


main()
