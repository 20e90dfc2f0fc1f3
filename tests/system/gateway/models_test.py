#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several models: each request is answered by the model that it names, under traffic, kills and failed loads."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import BIN, Daemons, Gateway, check, equal, events, free_port  # noqa: E402
from gateway import make_model, patience, refused, wait_for  # noqa: E402

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
    equal(g.get("/props")[1]["model_alias"], ps[0]["name"], "llama-server's name of the loaded model")
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


def check_embeddings(g):
    """Embeddings load, keep and unload as answers do."""

    def gone(what):
        wait_for(lambda: set(state(g).values()) == {"unloaded"}, 20, what)

    status, j = g.post("/api/embed", {"model": "alpha", "input": "x", "keep_alive": 0})
    equal((status, len(j["embeddings"])), (200, 1), j)
    gone("an unload after Ollama's embedding")
    equal(g.post("/api/embed", {"model": "alpha"})[1]["embeddings"], [], "a load without input")
    equal(state(g)["alpha"], "loaded", "it is loaded")
    status, j = g.post("/api/embed", {"model": "alpha", "input": "", "keep_alive": 0})
    equal((status, j), (200, {"model": "alpha", "embeddings": []}), "an unload without input")
    gone("an unload")
    equal(g.post("/api/embeddings", {"model": "beta", "keep_alive": "1h"})[1], {"embedding": []}, "the older one's")
    check(g.get("/api/ps")[1]["models"][0]["expires_at"] < "2100", "it goes some time")
    equal(g.post("/api/embeddings", {"model": "beta", "prompt": "", "keep_alive": 0})[0], 200, "the older one's unload")
    gone("an unload by the older one")
    status, j = g.post("/v1/embeddings", {"model": "beta", "input": "x", "ttl": 0})
    equal(status, 200, j)
    gone("an unload by ttl")
    equal(g.post("/api/embed", {"model": "alpha", "input": "x", "keep_alive": "soon"})[0], 400, "no time")


def check_empty():
    """A list without models: a load by name is refused at once."""
    conf = os.path.join(tmp.name, "empty.conf")
    os.mkdir(os.path.join(tmp.name, "nothing"))
    with open(conf, "w") as f:
        f.write("[model]\nram = 64M\nmodels = %s/nothing\n" % tmp.name)
    with Daemons("--config", conf) as d:
        c = d.client()
        refused(lambda: c.until(c.send("load", {"known": "x"}), "loaded"), "'x' is no known model", "a load by name")


def check_one(texts):
    """A folder with one model: the first request loads it; after `ntx unload` it stays away, as with `ntx up`."""
    folder, conf = os.path.join(tmp.name, "single"), os.path.join(tmp.name, "single.conf")
    os.mkdir(folder)
    os.symlink(path("alpha.gguf"), os.path.join(folder, "alpha.gguf"))
    with open(conf, "w") as f:
        f.write("[model]\nram = 64M\nctx = 256\nmodels = %s\n" % folder)
    with Daemons("--config", conf) as d, Gateway(d) as g:
        equal(state(g), {"alpha": "unloaded"}, "the list at first")
        equal(ask(g, "alpha"), texts[0], "the first request")
        equal(state(g), {"alpha": "loaded"}, "the list")
        c = d.client()
        c.until(c.send("unload", {}), "done")
        c.close()
        status, j = g.post("/v1/completions", {"model": "alpha", "prompt": "x"})
        check(status == 503 and "no model is loaded" in j["error"]["message"], status, j)


def check_up():
    """`ntx up` with a gateway: ids have no blanks, and the lists are true."""
    env = dict(os.environ, NTX_RUNTIME=os.path.join(tmp.name, "up"), XDG_RUNTIME_DIR="")
    file = path("OWNER/REPO/gam ma-Q8_0.gguf")
    for options, name in (([], "gam-ma-Q8_0"), (["--alias", "my-model"], "my-model")):
        p = subprocess.Popen(
            [os.path.join(BIN, "ntx"), "up", file, "--ram", "64M", "--ctx", "128", "--quiet", *options], env=env
        )
        d = type("Dir", (), {"dir": env["NTX_RUNTIME"]})
        try:
            with Gateway(d) as g:
                wait_for(lambda: g.get("/health")[0] == 200 or p.poll() is not None, 60, "ntx up")
                check_true(g, file, name)
                if not options:
                    load = [os.path.join(BIN, "ntx"), "load", file, "--ctx", "128", "--quiet"]
                    equal(subprocess.run(load, env=env).returncode, 0, "another load of it")
                    check_true(g, file, None)
        finally:
            p.send_signal(signal.SIGINT)
            equal(p.wait(60 * patience()), 0, "exit code after Ctrl-C")


def check_true(g, file, name):
    """What every list tells of the one model."""
    m = g.get("/v1/models")[1]["data"][0]
    check(m["id"] == name if name else " " not in m["id"], m)
    equal(m["created"], int(os.stat(file).st_mtime), "the file's time")
    tag, running = (g.get(p)[1]["models"][0] for p in ("/api/tags", "/api/ps"))
    for entry in (tag, running):
        equal(entry["name"], m["id"], "the same name everywhere")
        check(len(entry["digest"]) == 32 and entry["details"]["parameter_size"], entry)
        check(entry["details"]["quantization_level"], entry)
    check(not tag["modified_at"].startswith("1970"), tag)
    equal(tag["size"], os.stat(file).st_size, "the file's size")
    equal(running["context_length"], 128, "the context that there is")
    show = g.post("/api/show", {"model": m["id"]})[1]
    equal(show["details"], tag["details"], "details of /api/show")
    status, j = g.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
    equal((status, j["model"]), (200, m["id"]), "the answer's name of it")


def check_state(conf):
    """With a prefix store, a model that is swapped in again knows the beginnings that it knew."""
    store = os.path.join(tmp.name, "state")
    with open(conf, "a") as f:
        f.write("[prefix]\nstate = %s\n" % store)
    talk = {"messages": [{"role": "user", "content": "word " * 60}], "max_tokens": 2, "temperature": 0}
    with Daemons("--config", conf) as d, Gateway(d) as g:
        cached = []
        for model in ("alpha", "beta", "alpha"):
            status, j = g.post("/v1/chat/completions", dict(talk, model=model))
            equal((status, j["model"]), (200, model), j)
            cached.append(j["usage"]["prompt_tokens_details"]["cached_tokens"])
    equal(cached[:2], [0, 0], "nothing is known at first")
    check(cached[2] > 0, "the prefix store has the beginning:", cached)


def check_when(conf):
    """`ntx load` while an answer is generated: refused, or after its end, or instead of it."""
    longer = os.path.join(tmp.name, "longer.conf")
    with open(conf) as f, open(longer, "w") as to:
        to.write(f.read().replace("ctx = 256", "ctx = 4096"))
    with Daemons("--config", longer) as d, Gateway(d) as g:
        said = []

        def load(*options):
            call = [os.path.join(BIN, "ntx"), "load", path("beta.gguf"), "--socket", d.socket(), "--quiet", *options]
            return subprocess.run(call, capture_output=True, text=True, timeout=120 * patience())

        def answer():
            body = {"model": "alpha", "prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True}
            said.append(g.post("/v1/completions", body)[1])

        for options in ([], ["--drain"], ["--wait"], ["--force"]):
            t = threading.Thread(target=answer)
            t.start()
            wait_for(lambda: busy(g), 20, "an answer under way")
            r = load(*options)
            t.join()
            j = said.pop()
            whole = j.get("usage", {}).get("completion_tokens") == 4000
            if options:
                equal(r.returncode, 0, (options, r.stderr))
                wait_for(lambda: state(g)["beta"] == "loaded", 20, "the other model")
            else:
                check(r.returncode and "answers are being generated" in r.stderr, r)
            equal(whole, options != ["--force"], (options, "the whole answer", str(j)[:200]))
        check_waiting_stream(d, g, answer)


def check_waiting_stream(d, g, answer):
    """A stream that waits for its model gets comments."""
    equal(ask(g, "alpha"), direct("alpha.gguf"), "an answer")
    t = threading.Thread(target=answer)
    t.start()
    wait_for(lambda: busy(g), 20, "an answer under way")
    body = json.dumps({"model": "beta", "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", g.port), 60 * patience()) as s:
        s.sendall(head % len(body) + body)
        wait_for(lambda: b"\nntx_gateway_turns_waiting 1\n" in g.request("GET", "/metrics")[2], 20, "a waiting request")
        got = b""
        with d.held("computed"):
            while b": waiting for the model\n\n" not in got:
                more = s.recv(65536)
                check(more, "the stream's end:", got)
                got += more
        while more := s.recv(65536):
            got += more
    t.join()
    check(b"200 OK" in got and b"[DONE]" in got and b'"model":"beta"' in got, got)


def busy(g):
    slots = g.get("/slots")[1]
    return bool(slots) and slots[0]["is_processing"]


def check_serve(texts):
    """`ntx serve` with several models, which it names again to another ntx-computed."""
    env = dict(os.environ, NTX_RUNTIME=os.path.join(tmp.name, "rt"), XDG_RUNTIME_DIR="")
    port = free_port()
    command = [os.path.join(BIN, "ntx"), "serve", path("alpha.gguf"), "second=" + path("beta.gguf"), "--alias", "first"]
    p = subprocess.Popen(
        command + ["--ram", "64M", "--ctx", "256", "--listen", "127.0.0.1:%d" % port, "--quiet"], env=env
    )
    try:
        g = Client(port)
        wait_for(lambda: g.there() or p.poll() is not None, 60, "ntx serve")
        wait_for(lambda: state(g) == {"first": "loaded", "second": "unloaded"}, 20, "the first one")
        equal([ask(g, m) for m in ("second", "alpha", "beta")], [texts[1], texts[0], texts[1]], "answers")
        said = subprocess.run(["pgrep", "-P", str(p.pid), "-x", "ntx-computed"], capture_output=True, text=True).stdout
        os.kill(int(said), signal.SIGKILL)
        equal([ask(g, m) for m in ("first", "second")], texts[:2], "answers of its successor")
    finally:
        p.send_signal(signal.SIGINT)
        equal(p.wait(60 * patience()), 0, "exit code after Ctrl-C")
    p = subprocess.Popen(
        [*command[:2], os.path.join(tmp.name, "single"), "--ram", "64M", "--ctx", "256", "--quiet"]
        + ["--listen", "127.0.0.1:%d" % port],
        env=env,
    )
    try:  # a folder with one model, which the first request loads
        wait_for(lambda: g.there() or p.poll() is not None, 60, "ntx serve FOLDER")
        equal(ask(g, "alpha"), texts[0], "the first request of ntx serve FOLDER")
    finally:
        p.send_signal(signal.SIGINT)
        equal(p.wait(60 * patience()), 0, "exit code after Ctrl-C")
    said = subprocess.run([BIN + "/ntx", "serve", path("alfa.gguf")], env=env, capture_output=True, text=True)
    check(said.returncode and "did you mean" in said.stderr, said)


def check_config():
    bad = os.path.join(tmp.name, "bad.conf")
    with open(bad, "w") as f:
        f.write("[model]\nmodels = %s, x=a.gguf, y=/none/b.gguf\n[gateway]\nkeep_alive = soon\n" % DIR)
    said = subprocess.run([BIN + "/ntx", "config", "check", bad], capture_output=True, text=True).stderr
    check("'a.gguf' is no absolute path" in said and "/none/b.gguf: No such file" in said, said)
    check("keep_alive: 'soon' is no time" in said and "3 errors" in said, said)


class Client(Gateway):
    """A gateway that somebody else started."""

    def __init__(self, port):
        self.port = port

    def there(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False


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
        check_embeddings(g)
        check_kill(d, g, texts)
        check_traffic(g, texts)
    check_config()
    check_empty()
    check_one(texts)
    check_up()
    check_when(conf)
    check_serve(texts)
    check_state(conf)


main()
