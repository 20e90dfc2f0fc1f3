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
import wire  # noqa: E402
from daemons import Daemons, check, equal, make_model, refused, wait_for  # noqa: E402
from images_cases import ANSWER, CASES, EMBD, MODEL, text_of  # noqa: E402
from projector import make_projector, name_marks, pixels, png  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-images-", dir=os.environ.get("TMPDIR"))


def path(name):
    return os.path.join(tmp.name, name)


model = name_marks(make_model(path("m.gguf"), *MODEL))
projector = make_projector(path("mmproj.gguf"), EMBD)
state = path("state")


def load(d, mmproj=projector, **options):
    c = d.client(300)
    files = [os.open(p, os.O_RDONLY) for p in ([model, mmproj] if mmproj else [model])]
    if mmproj:
        options.update(mmproj=mmproj, projector=1)
    options.setdefault("ram_bytes", 1 << 30)
    request = c.send("load", dict(options, names=[model], ctx=512), files)
    for f in files:
        os.close(f)
    return c, json.loads(c.until(request, "loaded")["info_json"])


def request_of(parts):
    images = [
        {"at": len(text_of(parts[:i])), "data": png(w, h, pixels(w, h, seed))}
        for i, (w, h, seed) in ((i, p) for i, p in enumerate(parts) if not isinstance(p, str))
    ]
    return dict(prompt=text_of(parts), images=images, raw=1, ignore_eos=1, max_tokens=ANSWER)


def answers(c):
    return [c.ask(**request_of(parts)) for _, parts, _ in CASES]


def right(got, what):
    for a, (name, _, want) in zip(got, CASES):
        equal(a.tokens, want, (what, name))


def many_ways():
    with Daemons() as d:
        c, info = load(d)
        check(info["images"], info)
        first = answers(c)
        right(first, "an answer")
        for a, (_, parts, _) in zip(first, CASES):
            rows = sum(p[0] * p[1] // 32**2 for p in parts if not isinstance(p, str))
            check(rows < a.started["prompt_tokens"] < rows + 30, a.started, "rows of pictures count")
        again = answers(c)
        right(again, "from the prefix cache")
        for a, b in zip(first, again):
            equal(b.cached, a.started["prompt_tokens"] - 1, "cached tokens")
        other = CASES[2][1][:1] + [(160, 128, 9)] + CASES[2][1][2:]  # another picture of the same size
        a = c.ask(**request_of(other))
        check(a.cached < 32 and a.tokens != CASES[2][2], "another picture is another text", a.cached, a.tokens)
        chat = dict(request_of([]), raw=0, messages=[{"role": "user", "text": b"see ok", "images": []}])
        del chat["prompt"], chat["images"]
        chat["messages"][0]["images"] = [{"at": 4, "data": png(96, 96, pixels(96, 96, 4))}]
        check(c.ask(chat_template="chatml", keep=1, **chat).finish == "length", "a picture in a message")
        errors(c)
    for what, options in (
        ("with little memory", {"ram_bytes": 0}),
        ("with one thread, in passes of 7 rows", {"threads": 1, "max_rows": 7}),
        ("without drafts", {"draft": "off", "no_prefix_cache": 1}),
    ):
        with Daemons() as d:
            if not options.get("ram_bytes", 1):
                said = refused(lambda: load(d, ram_bytes=1 << 20), "would do is", "1 MiB")
                check("the projector and its pictures take" in said, said)
                options["ram_bytes"] = int(re.search(r"\((\d+) bytes\)", said).group(1))
            right(answers(load(d, **options)[0]), what)


def errors(c):
    text, image = "ab", png(64, 64, pixels(64, 64, 1))

    def ask(images, **more):
        return lambda: c.ask(**dict(request_of([text]), images=images, **more))

    refused(ask([{"at": 1, "data": b"GIF89a" + bytes(20)}]), "picture 1: ", "a damaged picture")
    refused(ask([{"at": 1, "data": image}, {"at": 1, "data": b"text"}]), "picture 2: ", "no picture")
    refused(ask([{"at": 1, "data": image}], tokens=[5]), "pictures stand in a text", "pictures beside tokens")
    right([c.ask(**request_of(CASES[0][1]))], "after errors")


def names_in(end):
    return {n for n in os.listdir(state) if n.endswith(end)}


def over_restarts():
    conf, long_text = path("ntx.conf"), ["so many words " * 12, (160, 128, 3), " of the sea"]
    with open(conf, "w") as f:
        f.write("[prefix]\nstate = %s\n" % state)
    with Daemons("--config", conf) as d:
        c, _ = load(d)
        right(answers(c), "with a state directory")
        want = c.ask(**request_of(long_text))
        wait_for(lambda: names_in(".prefix"), 10, "a saved text")
    rows = names_in(".rows")
    equal(len(rows), 7, "files of pictures")
    marked = next(iter(rows))
    for n in rows:  # a picture that is encoded again is written again
        os.utime(os.path.join(state, n), (1, 1))
        os.chmod(os.path.join(state, n), 0o400)
    with Daemons("--config", conf) as d:
        c, _ = load(d)
        got = c.ask(**request_of(long_text))
        equal((got.tokens, got.cached), (want.tokens, want.started["prompt_tokens"] - 1), "over a restart")
        right(answers(c), "after a restart")
    equal(names_in(".rows"), rows, "files of pictures")
    for n in rows:
        equal(
            os.stat(os.path.join(state, n)).st_mode & 0o777, 0o400, "the file of a picture that was not encoded again"
        )
    os.chmod(os.path.join(state, marked), 0o600)
    with open(os.path.join(state, marked), "ab") as f:
        f.write(b"x")
    with Daemons("--config", conf) as d:
        right(answers(load(d)[0]), "after damage")
        check(marked in d.text() and "is not used" in d.text(), d.text())


def refusals():
    with Daemons() as d:
        c, info = load(d, mmproj=None)
        check(not info["images"], info)
        refused(lambda: c.ask(**request_of(CASES[0][1])), "--mmproj FILE", "a picture without a projector")
        equal(c.ask("abc", max_tokens=1).finish, "length", "a text without pictures")
        wide = make_projector(path("wide.gguf"), 2 * EMBD)
        refused(lambda: load(d, mmproj=wide), "projector", "a projector of another model")
        refused(lambda: load(d, mmproj=model), "projector", "a model in the projector's place")


many_ways()
over_restarts()
refusals()
