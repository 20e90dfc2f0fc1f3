#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions: several at once write what each writes alone; conversations keep their KV.

Stop strings, cancelling, waiting, refusals.
"""

import json
import math
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import Daemons, check, equal, make_model, refused, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-model-")
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
    "5",
)
LOAD = {"ram_bytes": 16 << 20, "ctx": 128, "sessions": 4}
PROMPTS = ["Once upon a time", "The little dog " * 6, "In the park they saw", "A", "He said: " * 9, "big tree"]


def options(i, **more):
    return dict(
        more,
        ignore_eos=True,
        max_tokens=12 + 3 * i,
        temp=0.0 if i % 2 else 0.9,
        seed=100 + i,
        sampling={"top_k": 40, "repeat_penalty": 1.1},
    )


def together(d, c):
    alone = [c.ask(p, **options(i)) for i, p in enumerate(PROMPTS)]
    check(alone[0].text != alone[3].text, "all prompts give the same text")
    for i, a in enumerate(alone):
        equal(len(a.tokens), 12 + 3 * i, "tokens of answer %d" % i)
        equal(a.finish, "length", "finish")
    # All at once from one client, then from a client each that starts while the others write.
    ids = [c.generate(p, **options(i)) for i, p in enumerate(PROMPTS)]
    for i, request in enumerate(ids):
        a = c.answer(request)
        equal((a.tokens, a.text), (alone[i].tokens, alone[i].text), "answer %d in a batch" % i)
    clients = [d.client() for _ in PROMPTS]
    ids = []
    for i, k in enumerate(clients):
        ids.append(k.generate(PROMPTS[i], **options(i)))
        if i:
            k.until(ids[-1], "started")
    for i, k in enumerate(clients):
        equal(k.answer(ids[i]).text, alone[i].text, "client %d" % i)
        k.close()
    stats = json.loads(alone[1].stats)
    equal(
        (stats["finish"], stats["generated_tokens"], stats["seed"], stats["lossy"]),
        ("length", 15, 101, []),
        "statistics",
    )
    for name in ("ttft_s", "prefill_tok_s", "decode_tok_s", "io_gb_s", "compute_s"):
        check(stats[name] > 0, name, "is", stats[name])
    check(stats["bytes_read"] >= stats["bytes_storage"] * 14, "bytes_read", stats["bytes_read"])
    check(stats["peak_bytes"] > stats["bytes_host"], "peak_bytes", stats["peak_bytes"])
    return alone


def stop_strings(c, alone):
    text = alone[1].text.decode()
    at = len(text) // 2
    stop = text[at : at + 3]
    a = c.ask(PROMPTS[1], **options(1, stop=["nowhere in it", stop]))
    equal((a.text.decode(), a.finish), (text[: text.index(stop)], "stop"), "stop string")
    # Text that was held back as the possible beginning of a stop string comes at the end.
    last = text[-1]
    a = c.ask(PROMPTS[1], **options(1, stop=[last + "\x01never"]))
    equal((a.text.decode(), a.finish), (text, "length"), "text that looked like a stop string")


def conversation(c):
    """A kept session goes on as if its whole text had been given at once; so do messages."""
    whole = c.ask("Once upon a time there was", ignore_eos=True, max_tokens=20)
    first = c.ask("Once upon a time", keep=True, ignore_eos=True, max_tokens=1)
    session = first.started["session"]
    second = c.ask(tokens=[5, 6, 7], session=session, keep=True, ignore_eos=True, max_tokens=8)
    equal(second.started["session"], session, "session")
    equal(second.started["prompt_tokens"], 3, "only what is new is computed")
    check(json.loads(second.stats)["passes"] <= 9, "passes", second.stats)
    ids = c.ask("Once upon a time", ignore_eos=True, max_tokens=1)
    equal(ids.tokens, first.tokens, "first token")
    equal(whole.finish, "length", "finish")
    refused(lambda: c.ask("x", session=session + 1000), "not there any more", "an unknown session")
    c.until(c.send("close_session", {"session": session}), "done")
    refused(lambda: c.ask("x", session=session), "not there any more", "a closed session")
    say = lambda text: [{"role": "user", "text": text.encode()}]
    a = c.ask(messages=say("hello"), chat_template="plain", keep=True, max_tokens=6)
    b = c.ask(messages=say("and then?"), chat_template="plain", keep=True, max_tokens=6, session=a.started["session"])
    turns = say("hello") + [{"role": "assistant", "text": a.text}] + say("and then?")
    at_once = c.ask(messages=turns, chat_template="plain", max_tokens=6)
    if a.finish == "stop":  # otherwise bytes that are no text differ between the two
        equal(b.text, at_once.text, "second turn")
    refused(lambda: c.ask(messages=say("x"), chat_template="nope"), "plain", "an unknown template")
    refused(lambda: c.ask(messages=[{"role": "robot", "text": b"x"}], chat_template="plain"), "role", "an unknown role")
    again(c, say, a, b)
    c.until(c.send("close_session", {"session": a.started["session"]}), "done")


def again(c, say, a, b):
    """The conversation goes on from an earlier place, whose KV is kept; a request may ask for more context."""
    form = {"chat_template": "plain", "keep": True, "max_tokens": 6, "session": a.started["session"]}
    equal(a.started["context"], a.started["prompt_tokens"], "tokens of a new conversation")
    equal(b.started["ctx"], LOAD["ctx"], "context")
    x = c.ask(messages=say("something else"), cut_to=2, **form)
    check(x.tokens != b.tokens, "the question counts for nothing")
    y = c.ask(messages=say("and then?"), cut_to=2, **form)
    equal(
        (y.tokens, y.text, y.started["context"], y.started["prompt_tokens"]),
        (b.tokens, b.text, b.started["context"], b.started["prompt_tokens"]),
        "asked again",
    )
    check(json.loads(y.stats)["passes"] <= 7, "what is said before is computed again:", y.stats)
    for n in (1, 3, 4, 99):
        refused(
            lambda: c.ask(messages=say("x"), cut_to=n, **form), "cut back to %d messages: it has 4" % n, "cut to %d" % n
        )
    words = (
        LOAD["ctx"] - y.started["context"] - 30
    )  # a token each, and some more for the form: fewer than a quarter are left
    for leave in (32, 2**32 - 1):
        refused(
            lambda: c.ask(messages=say("the " * words), leave=leave, **form),
            "fewer than 32 of the context's 128 for the answer",
            "no room for an answer",
        )
    z = c.ask(messages=say("the " * words), leave=4, **form)
    check(LOAD["ctx"] - 32 < z.started["context"] <= LOAD["ctx"] - 4, "context", z.started["context"])


def scores(c):
    ids = [1, 259, 306, 337, 326, 328, 514, 357, 477, 421]
    rows = [struct.unpack("<%df" % (len(r) // 4), r) for r in c.logits(ids)]
    got = c.until(c.send("score", {"tokens": ids, "from": 4}), "score")
    want = []
    for i in range(4, len(ids)):
        row = rows[i - 1]
        want.append(math.log(sum(math.exp(x - max(row)) for x in row)) + max(row) - row[ids[i]])
    equal(got["count"], 6, "scored tokens")
    check(abs(got["nll"] - sum(want)) < 1e-6, "nll", got["nll"], sum(want))
    check(max(abs(a - b) for a, b in zip(got["each"], want)) < 1e-5, "each", got["each"], want)
    greedy = c.ask(tokens=ids, max_tokens=1, ignore_eos=True).tokens[0]
    equal(greedy, max(range(len(rows[-1])), key=rows[-1].__getitem__), "the best token")
    refused(lambda: c.until(c.send("score", {"tokens": ids, "from": 0}), "score"), "scored", "a score without context")
    refused(lambda: c.logits([1, 999999]), "999999.*vocabulary", "a token that is none")
    refused(lambda: c.logits([]), "no tokens", "no tokens")


def refusals(c):
    text = refused(
        lambda: c.ask("word " * 400),
        "prompt has (more than )?[0-9]+ tokens.*context holds 128",
        "a prompt beyond the context",
    )
    check("--ctx" in text, "no way out in:", text)
    refused(lambda: c.ask("x" * 100000), "context holds 128", "a prompt far beyond the context")
    a = c.ask("word " * 20, max_tokens=0, ignore_eos=True)
    equal(a.finish, "length", "a full context")
    stats = json.loads(a.stats)
    equal(stats["prompt_tokens"] + stats["generated_tokens"], 129, "tokens of a full context (the last is not fed)")


def cancelling(d, c):
    request = c.generate("Once upon", max_tokens=0, ignore_eos=True)
    c.until(request, "token")
    with d.held("iod"):  # so that it does not end by itself
        done = c.send("cancel", {"target": request})
        a = c.answer(request)
    equal(a.finish, "cancel", "finish")
    c.until(done, "done")
    # Another client cannot cancel it; the sessions of a client that leaves end.
    other = d.client()
    request = other.generate("Once upon", max_tokens=0, ignore_eos=True)
    other.until(request, "token")
    c.until(c.send("cancel", {"target": request}), "done")
    check(json.loads(c.status())["sessions"] == 1, "cancelled by somebody else")
    other.close()
    wait_for(lambda: json.loads(c.status())["kv_blocks_used"] == 0, 10, "blocks of a client that went away are freed")


def waiting(d, c):
    """More requests than fit in memory: the rest waits in line until there is room."""
    clients = [d.client() for _ in range(7)]
    ids = [k.generate("Once upon a time", max_tokens=0 if i < 4 else 5, ignore_eos=True) for i, k in enumerate(clients)]
    wait_for(lambda: json.loads(c.status())["queued"] == 3, 10, "three wait")
    clients[5].close()
    wait_for(lambda: json.loads(c.status())["queued"] == 2, 10, "one that waits has gone")
    answers = [clients[i].answer(ids[i]) for i in (0, 1, 2, 3, 4, 6)]
    check(any(p["phase"] == "queue" for p in answers[5].progress), "nobody told that it waits")
    equal(answers[4].tokens, answers[0].tokens[:5], "text after waiting")
    # An idle kept session gives its memory up, and is computed again later.
    kept = [c.ask("Once upon a time", keep=True, max_tokens=2, ignore_eos=True) for _ in range(4)]
    equal(
        clients[0].ask("Once upon a time", max_tokens=5, ignore_eos=True).tokens,
        answers[4].tokens,
        "beside idle sessions",
    )
    more = [c.ask(tokens=[9], session=k.started["session"], max_tokens=4, ignore_eos=True).tokens for k in kept]
    equal(more, [more[0]] * 4, "sessions that were pushed out")
    for k in clients:
        k.close()


with Daemons() as d:
    c = d.client()
    info = json.loads(c.load(model, **LOAD)["info_json"])
    check(info["bytes_storage"] > 0, "nothing is streamed")
    alone = together(d, c)
    stop_strings(c, alone)
    conversation(c)
    scores(c)
    refusals(c)
    c.load(
        model, **LOAD, link_nvme_bps=info["bytes_storage"] / 0.05
    )  # 0.05 s for a pass: who writes until the context is full does so for 6 s
    cancelling(d, c)
    waiting(d, c)
    # The same with few rows per pass.
    c.until(c.send("unload"), "done")
    c.load(model, **LOAD, max_rows=2, threads=1)
    ids = [c.generate(p, **options(i)) for i, p in enumerate(PROMPTS)]
    for i, request in enumerate(ids):
        equal(c.answer(request).text, alone[i].text, "answer %d by passes of two rows" % i)
print("sessions behave alone as together")
