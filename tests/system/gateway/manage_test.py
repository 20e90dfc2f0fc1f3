#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ollama's pull, delete, create and copy: what they do, what they leave alone, and who may ask for it."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
sys.path.insert(1, os.path.join(os.environ["NTX_SOURCE"], "tests", "unit", "pull"))
from gateway import BIN, Serve, check, equal, free_port, make_model, patience, wait_for  # noqa: E402
from hub import Site  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-manage-")
NTX = os.path.join(BIN, "ntx")
SHAPE = ["--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2", "--kv", "1", "--chat-template", "chatml"]
OWN = make_model(os.path.join(tmp.name, "own.gguf"), *SHAPE, "--seed", "3")


class Managed(Serve):
    """ntx serve with one model of the test's folder, and options."""

    def __init__(self, site, *options):
        super().__init__(tmp.name, OWN, "--ram", "64M", "--ctx", "128", *options, ready=(200, 503), env=site.env)

    def lines(self, path, body, method="POST", **more):
        status, headers, text = self.request(method, path, body, **more)
        equal((status, headers["content-type"]), (200, "application/x-ndjson"), text)
        return [json.loads(line) for line in text.decode().splitlines()]

    def tags(self):
        return {m["name"]: m for m in self.get("/api/tags")[1]["models"]}

    def ask(self, model):
        body = {"model": model, "prompt": "The sea", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
        status, j = self.post("/v1/completions", body)
        equal(status, 200, j)
        return j["choices"][0]["text"]


def check_off(site):
    with Managed(site) as g:
        for method, path, body in (
            ("POST", "/api/pull", {"model": "some/Tiny"}),
            ("DELETE", "/api/delete", {"model": "own"}),
            ("POST", "/api/copy", {"source": "own", "destination": "x"}),
            ("POST", "/api/create", {"model": "x", "from": "own"}),
        ):
            status, _, text = g.request(method, path, body)
            equal(status, 403, (path, text))
            check("--manage yes" in json.loads(text)["error"], text)
    equal(site.seen, [], "nobody asked the hub")
    for options in (["--manage", "yes"], ["--manage", "perhaps"]):
        key = os.path.join(tmp.name, "key")
        more = ["--listen", "0.0.0.0:%d" % free_port(), "--api-key-file", key]
        said = subprocess.run([NTX, "serve", OWN, *more, *options], env=site.env, capture_output=True, text=True)
        check(said.returncode and "--manage" in said.stderr, said)


def check_pull(site, g, model):
    lines = g.lines("/api/pull", {"model": "hf.co/some/Tiny-GGUF:Q8_0", "insecure": True})
    status = [x["status"] for x in lines]
    equal(status[0], "pulling manifest", "the beginning")
    equal(status[-3:], ["verifying sha256 digest", "writing manifest", "success"], "the end")
    last = lines[-4]
    equal(last["digest"], "sha256:" + site.sha("Tiny-Q8_0.gguf"), "the file's digest")
    equal((last["total"], last["completed"]), (len(model), len(model)), "all of its bytes")
    equal(site.kept(), ["some/Tiny-GGUF/Tiny-Q8_0.gguf"], "the folder of models")
    check("Tiny-Q8_0" in g.tags(), g.tags())
    text = g.ask("hf.co/some/Tiny-GGUF:Q8_0")
    equal([g.ask(n) for n in ("some/Tiny-GGUF:Q8_0", "Tiny-Q8_0", "tiny-q8_0:latest")], [text] * 3, "its names")
    check(text != g.ask("own"), "it is another model")
    equal(g.post("/api/pull", {"model": "some/Tiny-GGUF:Q8_0", "stream": False}), (200, {"status": "success"}), "again")
    status, j = g.post("/api/pull", {"model": "some/Tiny-GGUF:Q2_K", "stream": False})
    check(status == 404 and "no file is of this type" in j["error"], status, j)
    check(
        "no file is of this type" in g.lines("/api/pull", {"name": "some/Tiny-GGUF:Q2_K"})[-1]["error"], "an error line"
    )
    for name in ("-h", "--list", "http://127.0.0.1/x.gguf", "file:///etc/passwd", "../x", "a/../b", "", 7):
        before = len(site.seen)
        status, j = g.post("/api/pull", {"model": name, "stream": False})
        check(status in (400, 404), name, status, j)
        equal(len(site.seen), before, (name, "nobody is asked"))
    equal(g.post("/api/pull", {"model": "some/Tiny", "password": "x"})[0], 400, "a field that ntx lacks")


def check_left(site, g, model):
    """The client leaves: the pull ends, and the next one goes on with it."""
    site.files["Other-Q8_0.gguf"] = model
    site.faults.append(("hang", 20000))
    body = json.dumps({"model": "some/Tiny-GGUF:Other-Q8_0"}).encode()
    with socket.create_connection(("127.0.0.1", g.port), 60 * patience()) as s:
        s.sendall(b"POST /api/pull HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        check(site.hanging.wait(60 * patience()), "the download has begun")
        part = site.path("some/Tiny-GGUF/.Other-Q8_0.gguf.part")
        wait_for(lambda: os.path.exists(part) and os.path.getsize(part), 20, "a part of the file")
    pulls = ["pgrep", "-f", "^%s pull" % NTX]
    wait_for(lambda: subprocess.run(pulls, capture_output=True).returncode, 20, "the end of ntx pull")
    site.go_on.set()
    check(any(".part" in f for f in site.kept()), site.kept())
    equal(g.lines("/api/pull", {"model": "some/Tiny-GGUF:Other-Q8_0"})[-1], {"status": "success"}, "the second try")
    last = [q["range"] for q in site.seen if (q["range"] or "").endswith("-")][-1]
    check(int(last[len("bytes=") : -1]) > 0, "it went on where the first one ended:", last)


def check_names(site, g):
    text = g.ask("own")
    status, _, said = g.request("POST", "/api/copy", {"source": "own", "destination": "team/best:latest"})
    equal((status, said), (200, b""), "a copy")
    equal(g.lines("/api/create", {"model": "pulled", "from": "Tiny-Q8_0"}), [{"status": "success"}], "an alias")
    tags = g.tags()
    for alias, model in (("team/best:latest", "own"), ("pulled", "Tiny-Q8_0")):
        equal(dict(tags[alias], name=0, model=0), dict(tags[model], name=0, model=0), "the same model")
    equal([g.ask("team/best:latest"), g.ask("TEAM/BEST:latest")], [text, text], "an answer by its alias")
    models = {m["id"]: m for m in g.get("/v1/models")[1]["data"]}
    check("pulled" in models["Tiny-Q8_0"]["aliases"], models)
    for body, code in (
        ({"model": "own", "from": "Tiny-Q8_0"}, 400),
        ({"model": "a b", "from": "own"}, 400),
        ({"model": "x", "from": "nothing"}, 404),
        ({"model": "x"}, 400),
        ({"model": "x", "from": "own", "template": "{{ .Prompt }}"}, 400),
        ({"model": "x", "from": "own", "system": 7}, 400),
        ({"model": "x", "from": "own", "parameters": {"temperature": "hot"}}, 400),
        ({"model": "x", "from": "own", "parameters": {"num_predict": -7}}, 400),
        ({"model": "x", "from": "own", "parameters": [1]}, 400),
        ({"model": "x", "from": "own", "files": {"a": "sha256:0"}}, 400),
    ):
        equal(g.post("/api/create", body)[0], code, body)
    return text


SYSTEM = "You are a pirate."
FIXED = {"temperature": 0, "num_predict": 5, "stop": ["zzz"], "top_k": 3, "seed": 11}


def check_made(site, g):
    """A name with defaults of its own: they hold where a request says nothing else, in every API."""
    status, head, body = g.request(
        "POST", "/api/create", {"model": "mario", "from": "own", "system": SYSTEM, "parameters": dict(FIXED, mystery=1)}
    )
    equal((status, json.loads(body)), (200, {"status": "success"}), body)
    equal(head.get("warning"), '299 ntx "ignored: options.mystery"', "what is not followed")
    show = g.post("/api/show", {"model": "mario"})[1]
    equal((show["system"], show["details"]["parent_model"]), (SYSTEM, "own"), show)
    lines = sorted(" ".join(line.split()) for line in show["parameters"].splitlines())
    equal(lines, ["mystery 1", "num_predict 5", "seed 11", 'stop "zzz"', "temperature 0", "top_k 3"], show)
    check("system" not in g.post("/api/show", {"model": "own"})[1], "the model itself has none")
    made_answers(g)
    status, said = g.post("/api/create", {"model": "luigi", "from": "mario", "parameters": {"num_predict": 2}})
    equal(status, 200, said)
    equal(g.post("/api/show", {"model": "luigi"})[1]["system"], SYSTEM, "taken from the other name")
    said = g.post("/api/generate", {"model": "luigi", "prompt": "Hi", "stream": False})[1]
    equal(said["eval_count"], 2, said)
    equal(remove(g, "luigi"), (200, ""), "it goes as it came")


def made_answers(g):
    """The name's answers are those of the model with the same fields in the request, from each API."""
    talk, system = [{"role": "user", "content": "Hi"}], {"role": "system", "content": SYSTEM}
    chat, fixed = "/v1/chat/completions", dict(temperature=0, max_tokens=5, top_k=3, seed=11)
    whole = g.post(chat, {"model": "own", "messages": [system, *talk], **fixed})[1]
    want, n = whole["choices"][0]["message"]["content"], whole["usage"]["prompt_tokens"]
    for name in ("mario", "Mario:latest"):
        said = g.post(chat, {"model": name, "messages": talk})[1]
        equal((said["choices"][0]["message"]["content"], said["usage"]["prompt_tokens"]), (want, n), said)
    for path, body in (
        ("/api/chat", {"messages": talk, "stream": False}),
        ("/api/generate", {"prompt": "Hi", "stream": False}),
    ):
        said = g.post(path, {"model": "mario", **body})[1]
        text = said.get("response") or said["message"]["content"]
        equal((text, said["prompt_eval_count"], said["eval_count"]), (want, n, 5), said)
    said = g.post("/v1/responses", {"model": "mario", "input": "Hi"})[1]
    equal((said["output"][0]["content"][0]["text"], said["usage"]["input_tokens"]), (want, n), said)
    said = g.post("/v1/messages", {"model": "mario", "messages": talk, "max_tokens": 3})[1]
    equal((said["usage"]["output_tokens"], want.startswith(said["content"][0]["text"])), (3, True), said)
    said = g.post("/api/chat", {"model": "mario", "messages": talk, "stream": False, "options": {"num_predict": 7}})[1]
    equal(said["eval_count"], 7, "the request's own limit")
    own = g.post(chat, {"model": "mario", "messages": [dict(system, content="Be brief."), *talk]})[1]
    check(own["usage"]["prompt_tokens"] != n, "the request's own system text", own)
    said = g.post("/v1/completions", {"model": "mario", "prompt": "Once"})[1]
    equal(said["usage"]["completion_tokens"], 5, "a text has the parameters, too")


def remove(g, name):
    status, _, text = g.request("DELETE", "/api/delete", {"model": name})
    return status, json.loads(text)["error"] if text else ""


def check_delete(site, g):
    outside = os.path.join(tmp.name, "outside.gguf")
    shutil.copy(OWN, outside)
    os.symlink(outside, site.path("linked.gguf"))
    wait_for(lambda: "linked" in g.tags(), 10, "a model behind a link")
    for name in ("own", "linked", "outside"):
        status, why = remove(g, name)
        check(status == 403 and "not in ntx's own folder" in why, name, status, why)
    check(os.path.exists(OWN) and os.path.exists(outside), "files elsewhere stay")
    os.unlink(site.path("linked.gguf"))
    equal(remove(g, "nothing")[0], 404, "an unknown name")
    equal(remove(g, "team/best:latest"), (200, ""), "an alias")
    check("team/best:latest" not in g.tags() and os.path.exists(OWN), "the model of an alias stays")
    g.ask("Tiny-Q8_0")
    status, why = remove(g, "some/Tiny-GGUF:Q8_0")
    check(status == 400 and "means 2 models" in why, "a name of two models:", status, why)
    equal(remove(g, "Tiny-Q8_0"), (200, ""), "a pulled model, while it is loaded")
    check("some/Tiny-GGUF/Other-Q8_0.gguf" in site.kept(), site.kept())
    check("some/Tiny-GGUF/Tiny-Q8_0.gguf" not in site.kept(), site.kept())
    check(not {"Tiny-Q8_0", "pulled"} & set(g.tags()), "the model and its alias are gone")
    equal(g.post("/v1/completions", {"model": "Tiny-Q8_0", "prompt": "x"})[0], 404, "it is unknown")
    check(g.ask("own"), "the others answer")


def check_rights(site):
    key, manage = os.path.join(tmp.name, "key"), os.path.join(tmp.name, "manage")
    for path, text in ((key, "an-ordinary-key"), (manage, "a-key-of-the-admin")):
        with open(path, "w") as f:
            f.write(text + "\n")
        os.chmod(path, 0o600)
    copy = {"source": "own", "destination": "by-key"}
    with Managed(site, "--api-key-file", key, "--manage-key-file", manage) as g:
        ordinary = {"Authorization": "Bearer an-ordinary-key"}
        admin = {"x-api-key": "a-key-of-the-admin"}
        equal(g.request("POST", "/api/copy", copy)[0], 401, "without a key")
        equal(g.request("POST", "/api/copy", copy, ordinary)[0], 403, "with the ordinary key")
        equal(g.request("POST", "/api/copy", copy, admin)[0], 200, "with the right key")
        equal(g.request("GET", "/v1/models", None, admin)[0], 200, "it is an API key, too")
        page = dict(admin, Origin="http://localhost:3000")
        equal(g.request("POST", "/api/copy", copy, page)[0], 403, "a page of another origin")


def main():
    model = open(make_model(os.path.join(tmp.name, "t.gguf"), *SHAPE, "--seed", "4"), "rb").read()
    with open(os.path.join(tmp.name, "key"), "w") as f:
        f.write("an-ordinary-key\n")
    os.chmod(os.path.join(tmp.name, "key"), 0o600)
    with Site(tmp.name) as site:
        site.files = {"Tiny-Q8_0.gguf": model}
        check_off(site)
        with Managed(site, "--manage", "yes") as g:
            check_pull(site, g, model)
            check_left(site, g, model)
            check_names(site, g)
            check_made(site, g)
        with Managed(site, "--manage", "yes") as g:
            check("team/best:latest" in g.tags(), "aliases outlive the server")
            equal(g.post("/api/show", {"model": "mario"})[1]["system"], SYSTEM, "their defaults, too")
            equal(g.post("/api/generate", {"model": "mario", "prompt": "a", "stream": False})[1]["eval_count"], 5, "it")
            check_delete(site, g)
        check_rights(site)


main()
