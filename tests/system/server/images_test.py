#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model that sees, by ntx-computed's socket: answers to texts with pictures are llama.cpp's, the same with little
memory, any number of threads, passes of other sizes, drafts, and from the prefix cache. Over a restart neither the text
is computed nor a picture encoded again. What cannot be seen is refused by name."""

import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import images_cases as cases  # noqa: E402
from daemons import BIN, Daemons, check, equal, refused, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-images-", dir=os.environ.get("TMPDIR"))
if not os.path.exists(os.path.join(BIN, "ntx-mkmodel")):
    print("skipped: ntx-mkmodel is not built")
    sys.exit(77)


def path(name):
    return os.path.join(tmp.name, name)


ROWS = {"gemma3": 16, "deepseek4v": 400}  # of a pass: pictures whose rows see one another must fit
POOLING = ("deepseek4v",)  # a text goes on from few places, as with recurrent models
state = path("state")
for kind in cases.MODELS:
    cases.make(BIN, kind, path(kind), path(kind + ".mmproj"))


def load(d, kind, mmproj=None, **options):
    c = d.client(300)
    files = [os.open(p, os.O_RDONLY) for p in (path(kind), mmproj or path(kind + ".mmproj")) if p]
    if mmproj == "":
        os.close(files.pop())
    else:
        options.update(mmproj="mmproj.gguf", projector=1)
    options.setdefault("ram_bytes", 1 << 30)
    request = c.send("load", dict(options, names=[kind], ctx=512), files)
    for f in files:
        os.close(f)
    return c, json.loads(c.until(request, "loaded")["info_json"])


def request_of(parts):
    images = [
        {"at": len(cases.text_of(parts[:i])), "data": cases.png(p)}
        for i, p in enumerate(parts)
        if not isinstance(p, str)
    ]
    return dict(prompt=cases.text_of(parts), images=images, raw=1, ignore_eos=1, max_tokens=cases.ANSWER)


def answers(c, kind):
    return {name: c.ask(**request_of(cases.parts_of(kind, name))) for name in cases.texts_of(kind)}


def right(got, kind, what):
    for name, a in got.items():
        equal(a.tokens, cases.MODELS[kind][3][name], (what, kind, name))


def least_ram(d, kind):
    said = refused(lambda: load(d, kind, ram_bytes=1 << 20), "would do is", "1 MiB")
    check("the projector and its pictures take" in said, said)
    return int(re.search(r"\((\d+) bytes\)", said).group(1))


def many_ways(kind):
    with Daemons() as d:
        c, info = load(d, kind)
        check(info["images"], info)
        first = answers(c, kind)
        right(first, kind, "an answer")
        again = answers(c, kind)
        right(again, kind, "from the prefix cache")
        for name, a in again.items() if kind not in POOLING else ():
            equal(a.cached, first[name].started["prompt_tokens"] - 1, (kind, name, "cached tokens"))
        check(not info["projector_streams"], info)
        c, info = load(d, kind, ram_bytes=least_ram(d, kind))
        check(info["projector_streams"], info)
        right(answers(c, kind), kind, "with little memory")
        rows = ROWS.get(kind, 7)
        c, _ = load(d, kind, threads=1, max_rows=rows, draft="off", no_prefix_cache=1)
        right(answers(c, kind), kind, "with one thread, in passes of %d rows, without drafts" % rows)


def not_within_a_picture():
    text = "the quick brown fox jumps over the lazy dog and then " * 4
    with Daemons() as d:
        c, _ = load(d, "deepseek4v")
        request = request_of([text, (5, 4, 3)])
        first = c.ask(**request)
        check(first.started["prompt_tokens"] > 192, first.started, "the picture has the 192nd token")
        alone = c.ask(text, raw=1, max_tokens=1).started["prompt_tokens"]
        for _ in range(2):
            again = c.ask(**request)
            check(128 <= again.cached <= alone, again.cached, "a text goes on before a picture")
            equal(again.tokens, first.tokens, "and has the same answer")


def one_model():
    kind = "qwen3vl_merger"
    with Daemons() as d:
        c, _ = load(d, kind)
        a = c.ask(**request_of(cases.TEXTS["between"]))
        check(20 < a.started["prompt_tokens"] < 50, a.started, "rows of pictures count")
        other = c.ask(**request_of(["a picture ", (5, 4, 9), " of the sea"]))
        check(other.cached < 20 and other.tokens != a.tokens, "another picture is another text", other.cached)
        chat = {"role": "user", "text": b"see ok", "images": [{"at": 4, "data": cases.png((3, 3, 4))}]}
        a = c.ask(chat_template="chatml", keep=1, messages=[chat], max_tokens=3)
        check(a.finish in ("length", "stop"), "a picture in a message")
        more = {"role": "user", "text": b"and", "images": [{"at": 3, "data": cases.png((2, 4, 5))}]}
        a = c.ask(chat_template="chatml", session=a.started["session"], messages=[more], max_tokens=3)
        check(a.finish in ("length", "stop"), "a picture in a conversation that goes on")
        errors(c, kind)


def errors(c, kind):
    image = {"at": 1, "data": cases.png((3, 3, 1))}

    def tell(*images, **more):
        return lambda: c.ask(**dict(request_of(["ab"]), images=list(images), **more))

    refused(tell({"at": 1, "data": b"GIF89a" + bytes(20)}), "picture 1: ", "a damaged picture")
    refused(tell(image, {"at": 1, "data": b"text"}), "picture 2: ", "no picture")
    refused(tell(image, tokens=[5]), "beside tokens", "pictures beside tokens")
    right({"first": c.ask(**request_of(cases.TEXTS["first"]))}, kind, "after errors")


def names_in(end):
    return {n for n in os.listdir(state) if n.endswith(end)}


def over_restarts():
    conf, long_text = path("ntx.conf"), ["so many words " * 12, (5, 4, 3), " of the sea"]
    kind = "qwen3vl_merger"
    with open(conf, "w") as f:
        f.write("[prefix]\nstate = %s\n" % state)
    with Daemons("--config", conf) as d:
        c, _ = load(d, kind)
        right(answers(c, kind), kind, "with a state directory")
        want = c.ask(**request_of(long_text))
        wait_for(lambda: names_in(".prefix"), 10, "a saved text")
    rows = names_in(".rows")
    equal(len(rows), 7, "files of pictures")
    marked = next(iter(rows))
    for n in rows:  # a picture that is encoded again is written again
        os.utime(os.path.join(state, n), (1, 1))
        os.chmod(os.path.join(state, n), 0o400)
    with Daemons("--config", conf) as d:
        c, _ = load(d, kind)
        got = c.ask(**request_of(long_text))
        equal((got.tokens, got.cached), (want.tokens, want.started["prompt_tokens"] - 1), "over a restart")
        right(answers(c, kind), kind, "after a restart")
    equal(names_in(".rows"), rows, "files of pictures")
    for n in rows:
        equal(
            os.stat(os.path.join(state, n)).st_mode & 0o777, 0o400, "the file of a picture that was not encoded again"
        )
    os.chmod(os.path.join(state, marked), 0o600)
    with open(os.path.join(state, marked), "ab") as f:
        f.write(b"x")
    with Daemons("--config", conf) as d:
        right(answers(load(d, kind)[0], kind), kind, "after damage")
        check(marked in d.text() and "is not used" in d.text(), d.text())


def refusals():
    kind = "qwen3vl_merger"
    with Daemons() as d:
        c, info = load(d, kind, mmproj="")
        check(not info["images"], info)
        refused(lambda: c.ask(**request_of(cases.TEXTS["first"])), "--mmproj FILE", "a picture without a projector")
        equal(c.ask("abc", max_tokens=1).finish, "length", "a text without pictures")
        for what, name in (("a projector of another kind of model", "gemma3.mmproj"), ("a model", kind)):
            refused(lambda: load(d, kind, mmproj=path(name)), "projector", what)
        c, _ = load(d, "gemma3", max_rows=8)
        refused(lambda: c.ask(**request_of(cases.parts_of("gemma3", "first"))), "9 rows .* --rows", "passes of 8 rows")


for kind in cases.MODELS:
    many_ways(kind)
not_within_a_picture()
one_model()
over_restarts()
refusals()
