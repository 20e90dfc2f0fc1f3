#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several models: each request is answered by the model that it names, under traffic, kills and failed loads."""

import json
import os
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import BIN, Daemons, Gateway, check, equal, events, make_model, patience, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-models-")
DIR = os.path.join(tmp.name, "models")
SHAPE = ["--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2", "--kv", "1", "--chat-template", "chatml"]
PROMPT = "The sea is"


def path(name):
    return os.path.join(DIR, name)


def make_files():
    os.makedirs(path("OWNER/REPO"))
    make_model(path("alpha.gguf"), *SHAPE, "--seed", "3")
    make_model(path("beta.gguf"), *SHAPE, "--seed", "4")
    make_model(path("OWNER/REPO/gam ma-Q8_0.gguf"), *SHAPE, "--seed", "5")
    with open(path("beta.gguf"), "rb") as f:
        whole = f.read()
    with open(os.path.join(tmp.name, "broken.gguf"), "wb") as f:
        f.write(whole[: len(whole) // 2])
    conf = os.path.join(tmp.name, "ntx.conf")
    with open(conf, "w") as f:
        f.write(
            "[model]\nram = 64M\nctx = 256\nmodels = %s, small=%s,broken=%s/broken.gguf\n"
            % (DIR, path("alpha.gguf"), tmp.name)
        )
    return conf


def direct(file):
    said = subprocess.run(
        [
            os.path.join(BIN, "ntx"),
            "run",
            path(file),
            PROMPT,
            "--raw",
            "--temp",
            "0",
            "-n",
            "8",
            "--ignore-eos",
            "--quiet",
            "--ram",
            "64M",
            "--ctx",
            "256",
        ],
        capture_output=True,
        text=True,
        timeout=120 * patience(),
    )
    equal(said.returncode, 0, "ntx run: " + said.stderr)
    return said.stdout.rstrip("\n")


def ask(g, model, **more):
    body = {"model": model, "prompt": PROMPT, "temperature": 0, "max_tokens": 8, "ignore_eos": True, **more}
    status, _, text = g.request("POST", "/v1/completions", body, timeout=120)
    if more.get("stream"):
        equal(status, 200, text)
        parts = [json.loads(e) for e in events(text) if e != "[DONE]"]
        return "".join(p["choices"][0]["text"] for p in parts if p["choices"])
    j = json.loads(text)
    equal(status, 200, "an answer of %s: %s" % (model, text[:300]))
    return j["choices"][0]["text"]


def listed(g):
    status, j = g.get("/v1/models")
    equal(status, 200, j)
    return {m["id"]: m for m in j["data"]}


def state(g):
    return {k: m["status"]["value"] for k, m in listed(g).items()}


def check_lists(g):
    ids = listed(g)
    equal(sorted(ids), ["alpha", "beta", "broken", "gam-ma-Q8_0"], "the ids")
    equal({m["status"]["value"] for m in ids.values()}, {"unloaded"}, "nothing is loaded yet")
    check("small" in ids["alpha"]["aliases"], ids["alpha"])
    check("OWNER/REPO:Q8_0" in ids["gam-ma-Q8_0"]["aliases"], ids["gam-ma-Q8_0"])
    equal(ids["beta"]["created"], int(os.stat(path("beta.gguf")).st_mtime), "the file's time")
    check(ids["beta"]["context_length"] > 0, ids["beta"])
    equal(g.get("/health"), (200, {"status": "ok"}), "requests would be answered")
    equal(g.get("/v1/models/beta")[1]["id"], "beta", "one model")
    tags = {m["name"]: m for m in g.get("/api/tags")[1]["models"]}
    equal(tags["beta"]["size"], os.stat(path("beta.gguf")).st_size, "the file's size")
    check(tags["beta"]["digest"] != tags["alpha"]["digest"], "digests are the files' own")
    check(tags["beta"]["details"]["parameter_size"] and not tags["beta"]["modified_at"].startswith("1970"), tags)


def check_unknown(g):
    for route, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}),
        ("/v1/responses", {"input": "x"}),
        ("/api/chat", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/embeddings", {"input": "x"}),
        ("/api/show", {}),
    ):
        status, j = g.post(route, dict(body, model="alpa"))
        equal(status, 404, (route, j))
        check("alpa" in json.dumps(j) and "did you mean alpha?" in json.dumps(j), route, j)
    equal(
        g.post("/v1/messages", {"model": "zz", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4})[1][
            "error"
        ]["type"],
        "not_found_error",
        "Anthropic's form",
    )
    equal(g.post("/v1/completions", {"model": "zz", "prompt": "x"})[1]["error"]["code"], "model_not_found", "OpenAI's")


def check_traffic(g, texts):
    names = ["alpha", "beta", "small", "beta.gguf", "alpha", "BETA", "gam-ma-Q8_0", "alpha:latest"]
    which = [0, 1, 0, 1, 0, 1, 2, 0]
    wrong, done = [], []

    def client(i):
        for n in range(4):
            got = ask(g, names[i], stream=n % 2 == 1)
            done.append(i)
            if got != texts[which[i]]:
                wrong.append((names[i], got))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(len(names))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(wrong, [], "answers of another model")
    equal(len(done), 32, "answers")


def check_kill(d, g, texts):
    """ntx-computed is killed while models are swapped: requests that wait are answered by its successor."""
    ask(g, "alpha")
    got = {}
    threads = [
        threading.Thread(target=lambda m=m: got.__setitem__(m, ask(g, m)), daemon=True) for m in ("beta", "gam-ma-Q8_0")
    ]
    for t in threads:
        t.start()
    d.kill("computed")
    d.spawn("computed")
    for t in threads:
        t.join(60 * patience())
    equal(got, {"beta": texts[1], "gam-ma-Q8_0": texts[2]}, "answers after the kill")


def check_failed_load(g, texts):
    equal(ask(g, "alpha"), texts[0], "before")
    status, j = g.post("/v1/completions", {"model": "broken", "prompt": "x"})
    equal(status, 503, j)
    check("broken.gguf" in j["error"]["message"], j)
    equal(state(g)["alpha"], "loaded", "the model before stays")
    equal(ask(g, "alpha"), texts[0], "after")
    moved = path("beta.gguf") + ".away"
    os.rename(path("beta.gguf"), moved)
    wait_for(lambda: "beta" not in listed(g), 10, "a list without the file")
    equal(g.post("/v1/completions", {"model": "beta", "prompt": "x"})[0], 404, "a file that vanished")
    os.rename(moved, path("beta.gguf"))
    wait_for(lambda: "beta" in listed(g), 10, "a list with the file")
    equal(ask(g, "beta"), texts[1], "the file is back")


def check_keep_alive(g, texts):
    status, j = g.post("/api/generate", {"model": "alpha"})
    equal((status, j["done"], j["done_reason"], j["model"]), (200, True, "load", "alpha"), "a load")
    ps = g.get("/api/ps")[1]["models"]
    equal([m["name"] for m in ps], ["alpha"], "what is loaded")
    check(ps[0]["expires_at"] > "2100", ps)
    j = g.post("/api/generate", {"model": "alpha", "keep_alive": 0})[1]
    equal((j["done"], j["done_reason"]), (True, "unload"), "an unload")
    wait_for(lambda: set(state(g).values()) == {"unloaded"}, 20, "an empty service")
    equal(g.get("/api/ps")[1]["models"], [], "nothing is loaded")
    j = g.post("/api/chat", {"model": "beta", "messages": [], "keep_alive": "5m"})[1]
    equal(j["done_reason"], "load", "a load by messages")
    check(g.get("/api/ps")[1]["models"][0]["expires_at"] < "2100", "it is unloaded some time")
    hello = {
        "model": "beta",
        "prompt": PROMPT,
        "raw": True,
        "stream": False,
        "keep_alive": 0,
        "options": {"temperature": 0, "num_predict": 8},
    }
    status, j = g.post("/api/generate", hello)
    equal((status, j["model"]), (200, "beta"), j)
    wait_for(lambda: set(state(g).values()) == {"unloaded"}, 20, "an unload after the answer")
    equal(ask(g, "beta", ttl=0), texts[1], "it is loaded again")
    wait_for(lambda: set(state(g).values()) == {"unloaded"}, 20, "an unload by ttl")
    equal(g.post("/models/load", {"model": "small"}), (200, {"success": True}), "llama-server's load")
    equal(state(g)["alpha"], "loaded", "it is loaded")
    equal(g.post("/models/unload", {"model": "alpha"}), (200, {"success": True}), "llama-server's unload")
    wait_for(lambda: set(state(g).values()) == {"unloaded"}, 20, "an unload by name")
    equal(g.post("/models/unload", {"model": "alpha"})[0], 400, "it is not loaded")
    equal(g.post("/api/generate", {"model": "alpha", "keep_alive": "soon"})[0], 400, "no time")


def main():
    conf = make_files()
    texts = [direct("alpha.gguf"), direct("beta.gguf"), direct("OWNER/REPO/gam ma-Q8_0.gguf")]
    equal(len(set(texts)), 3, "the models differ")
    with Daemons("--config", conf) as d, Gateway(d) as g:
        check_lists(g)
        check_unknown(g)
        check_traffic(g, texts)
        check_failed_load(g, texts)
        check_keep_alive(g, texts)
        check_kill(d, g, texts)
        check_traffic(g, texts)


main()
