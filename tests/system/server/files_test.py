#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files that a Load announces, against the descriptors that come with it.

Files are parts, copies, adapters, drafters and a sidecar. Too few, too many or other ones are refused with a message,
whatever the configuration names for its own model, and the loaded model stays.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import Daemons, check, equal, make_model, refused, wait_for  # noqa: E402
from rights import service  # noqa: E402
from gguf_edit import F32, STR, Gguf  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-files-")
os.chmod(tmp.name, 0o755)
LOAD = {"ram_bytes": 16 << 20, "ctx": 64}
if "NTX_TEST_KERNEL" in os.environ:
    LOAD["kernel"] = os.environ["NTX_TEST_KERNEL"]


def path(name):
    return os.path.join(tmp.name, name)


def make_adapter(name):
    g = Gguf(model)
    g.keys = {
        b"general.architecture": (STR, b"llama"),
        b"general.type": (STR, b"adapter"),
        b"adapter.type": (STR, b"lora"),
        b"adapter.lora.alpha": (F32, 4.0),
    }
    g.tensors = {
        b"blk.0.attn_q.weight.lora_a": [[64, 2], 0, bytearray(b"\0\0\x80\x3e" * 128)],
        b"blk.0.attn_q.weight.lora_b": [[2, 64], 0, bytearray(b"\0\0\x80\x3e" * 128)],
    }
    g.write(path(name))
    return path(name)


def send(c, files, **more):
    fds = [os.open(f, os.O_RDONLY) for f in files]
    try:
        return c.send("load", dict(LOAD, **more), fds)
    finally:
        for fd in fds:
            os.close(fd)


def load(c, files, **more):
    return json.loads(c.until(send(c, files, **more), "loaded")["info_json"])


def text(c):
    return c.ask("Once", max_tokens=9, ignore_eos=True).tokens


model = make_model(
    path("m.gguf"), "--type", "F32", "--layers", "2", "--embd", "64", "--ff", "96", "--heads", "4", "--kv", "4"
)
copy = make_model(
    path("copy.gguf"), "--type", "F32", "--layers", "2", "--embd", "64", "--ff", "96", "--heads", "4", "--kv", "4"
)
make_model(
    path("s.gguf"),
    "--type",
    "F32",
    "--layers",
    "2",
    "--embd",
    "64",
    "--ff",
    "96",
    "--heads",
    "4",
    "--kv",
    "4",
    "--split",
    "2",
)
parts = [path("s-0000%d-of-00002.gguf" % i) for i in (1, 2)]
one, two = make_adapter("one.gguf"), make_adapter("two.gguf")

# Files, their announcement, and the message of the refusal.
WRONG = (
    ([model], dict(lora="one.gguf"), "--lora names 1 adapters, and 1 files came"),
    ([model, one], dict(lora="one.gguf,two.gguf"), "--lora names 2 adapters, and 2 files came"),
    ([model, one, two], dict(lora="one.gguf"), "2 adapters came with the model, and --lora names 1"),
    ([model, one], {}, "1 adapters came with the model, and --lora names 0"),
    ([one, model], dict(lora="one.gguf"), "split.count"),
    ([model, copy], dict(lora="copy.gguf"), "split.count|adapter"),
    ([model, one, copy, two], dict(lora="one.gguf", copies=2), "do not go together"),
    ([model], dict(names=[model, one], lora="one.gguf"), "2 files of the model are named, and 1 came"),
    ([model, one], dict(names=[model], lora="one.gguf"), "1 files of the model are named, and 2 came"),
    ([model, copy], dict(names=[model]), "1 files of the model are named, and 2 came"),
    ([model, copy], {}, "split.count"),
    ([model, copy, model], dict(copies=2), "are not 2 copies"),
    ([model], dict(copies=2), "are not 2 copies"),
    (parts[:1], {}, "split.count"),
    (parts[::-1], {}, "split.no"),
    ([*parts, model], {}, "split.count"),
    ([model], dict(sidecar=1), "neither a path nor descriptors"),
    ([model, copy], dict(sidecar=1), "a sidecar came, and nothing uses it"),
    ([model], dict(skip="static"), "needs a sidecar, and none came"),
    ([model], dict(drafters=1), "neither a path nor descriptors"),
    ([model], dict(drafters=1 << 31), "neither a path nor descriptors"),
    ([model, copy], dict(drafters=1, draft="off"), "names 0 drafters, and 1 are announced"),
    ([model, copy], dict(drafters=1, draft="lookup"), "names 0 drafters, and 1 are announced"),
    ([model], dict(draft="d.gguf"), "names 1 drafters, and 0 are announced"),
    ([model, copy], dict(drafters=1, draft="d.gguf,e.gguf"), "names 2 drafters, and 1 are announced"),
    ([model, copy, copy], dict(drafters=2), "names 1 drafters, and 2 are announced"),
    ([model] + [copy] * 4, dict(drafters=4, draft="a,b,c,d"), "names more than 3 files"),
    ([], dict(lora="one.gguf"), "not their paths"),
    ([], dict(lora=one), "not their paths"),
    ([], dict(draft="lookup,d.gguf"), "not their paths"),
    ([], dict(names=[model]), "neither a path nor descriptors"),
    ([], dict(sidecar=1), "neither a path nor descriptors"),
    ([], dict(drafters=1), "neither a path nor descriptors"),
    ([], dict(copies=2), "neither a path nor descriptors"),
)


def all_wrong(d, c, want):
    for files, more, words in WRONG:
        what = "%s with %s" % ([os.path.basename(f) for f in files], more)
        request = send(c, files, **more)
        refused(lambda: c.next(request), words, what)
        equal(text(c), want, "an answer after " + what)
    # Descriptors with a request that takes none.
    with open(model) as f:
        for kind, body in (
            ("status", {}),
            ("generate", {"prompt": b"x", "raw": True, "max_tokens": 1}),
            ("unload", {}),
        ):
            request = c.send(kind, body, [f.fileno()])
            refused(lambda: c.next(request), "only a load brings files", kind + " with a descriptor")
    equal(text(c), want, "an answer after descriptors with other requests")


def of_a_client():
    with Daemons() as d:
        c = d.client()
        want = (load(c, parts), text(c))[1]
        load(c, [model])
        equal(text(c), want, "one file's text")
        all_wrong(d, c, want)
        load(c, [model, copy], copies=2, names=[model, copy])
        equal(text(c), want, "two copies' text")
        load(c, [model, one, two], lora="one.gguf,b=two.gguf", names=[model, one, two])
        equal(json.loads(c.status())["adapters"], ["one", "b"], "the adapters")
        equal(c.ask("Once", max_tokens=9, ignore_eos=True, adapter="base").tokens, want, "the text without adapters")


def of_a_service():
    """The adapters of the configuration belong to its own model.

    A client's own model has none of them; a client that brings no adapters can name none.
    """
    with service("[model]\npath = %s\nram = 32M\nctx = 64\nlora = conf=%s\n" % (model, one)) as d:
        c = d.client()
        c.until(c.send("load", {}), "loaded")
        wait_for(lambda: json.loads(c.status()).get("adapters") == ["conf"], 10, "the configuration's adapters")
        all_wrong(d, c, text(c))
        equal(json.loads(c.status())["adapters"], ["conf"], "the configuration's adapters, after all of that")
        load(c, [model])
        equal(json.loads(c.status())["adapters"], [], "adapters of a client's model")
        load(c, [model, two], lora="mine=two.gguf")
        equal(json.loads(c.status())["adapters"], ["mine"], "a client's own adapters")


def drafters_of_a_service():
    """A client's model does not draft with the configured model's files, nor skip by its sidecar; warnings remain."""
    with service("[model]\nram = 32M\nctx = 64\ndraft = lookup,/nowhere/d.gguf\nskip = static\n") as d:
        c = d.client()
        load(c, [model])
        check(text(c), "no answer of a client's model")
        refused(lambda: load(c, [model], skip="static"), "none came", "a policy that the client names")


of_a_client()
of_a_service()
drafters_of_a_service()
print("files that loads announce: %d ways to be wrong" % len(WRONG))
