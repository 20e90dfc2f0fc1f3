#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Texts with the same beginning: what was computed of it is reused, however the next request is made.

The answer is the same as without.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Daemons, check, equal, make_model  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-prefix-")
os.environ["XDG_CACHE_HOME"] = os.path.join(tmp.name, "cache")  # draft statistics are kept there
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
windows = make_model(
    os.path.join(tmp.name, "w.gguf"),
    "--arch",
    "gpt-oss",
    "--layers",
    "6",
    "--embd",
    "512",
    "--ff",
    "512",
    "--heads",
    "8",
    "--kv",
    "2",
    "--experts",
    "4",
    "--type",
    "Q8_0",
    "--seed",
    "5",
    "--window",
    "48",
)
hybrid = make_model(
    os.path.join(tmp.name, "h.gguf"),
    "--arch",
    "qwen35",
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
    "--head-dim",
    "64",
    "--rotated",
    "16",
    "--delta-head",
    "48",
    "--delta-heads",
    "6",
    "--delta-keys",
    "2",
    "--attention-every",
    "3",
    "--type",
    "Q8_0",
    "--seed",
    "5",
)
chatml = make_model(
    os.path.join(tmp.name, "c.gguf"),
    "--layers",
    "2",
    "--embd",
    "256",
    "--ff",
    "512",
    "--type",
    "Q8_0",
    "--seed",
    "5",
    "--chat-template",
    "chatml",
)
BLOCK = 32
LONG = sys.argv[1:] == ["--long"]
DOCUMENT = 30000 if LONG else 1600  # tokens
WAITS = 3600 if LONG else 60  # seconds that a client has patience for
if LONG and "NTX_LONG" not in os.environ:
    print("skipped: a document of 30,000 tokens is part of tests/run --long (NTX_LONG is set there)")
    sys.exit(77)
STREAMED, RESIDENT = {"ram_bytes": 16 << 20, "max_rows": 64}, {"ram_bytes": 96 << 20}


def ids(n, seed, start=0):
    return [3 + (seed * 7919 + i * i * 31 + i) % 250 for i in range(start, start + n)]


PREAMBLE = ids(200, 1)


def ask(c, tokens, n=6, **more):
    return c.ask(tokens=tokens, ignore_eos=True, max_tokens=n, temp=0.0, **more)


def loaded(d, file=None, **load):
    c = d.client(WAITS)
    c.load(file or model, **load)
    return c


def answers_without(d, prompts, **load):
    c = loaded(d, no_prefix_cache=1, **load)
    found = [ask(c, p) for p in prompts]
    check(not any(a.cached for a in found), "tokens are cached with --prefix-cache off")
    c.close()
    return [a.tokens for a in found]


def turns(d, exact=True, **load):
    """A stateless client: each turn repeats all before it."""
    prompts, text = [], PREAMBLE
    c = loaded(d, no_prefix_cache=1, ctx=512, **load)
    for turn in range(4):
        text = text + ids(9, 50 + turn)
        prompts.append(text)
        text = text + ask(c, text).tokens
    c.close()
    want = answers_without(d, prompts, ctx=512, **load)
    c = loaded(d, ctx=512, **load)
    before = 0
    for turn, p in enumerate(prompts):
        a = ask(c, p)
        equal(a.tokens, want[turn], "turn %d" % turn)
        equal(json.loads(a.stats)["cached_tokens"], a.cached, "cached_tokens of the statistics")
        if exact:
            equal(a.cached, before, "cached tokens of turn %d" % turn)
        else:
            check(a.cached >= before - before % BLOCK - 6 - BLOCK, "cached tokens of turn", turn, a.cached, before)
        before = len(p) + (5 if exact else 0)
    equal(a.started["prompt_tokens"], len(p), "prompt_tokens")
    equal(json.loads(a.stats)["bytes_storage"] > 0, load["ram_bytes"] == STREAMED["ram_bytes"], "streaming")
    c.close()


def clients(d, **load):
    """Eight clients at once with one preamble: it is computed once."""
    prompts = [PREAMBLE + ids(10, 80 + i) for i in range(8)]
    want = answers_without(d, prompts, ctx=256, sessions=8, **load)
    c = loaded(d, ctx=256, sessions=8, **load)
    begun = json.loads(c.status())["prompt_tokens"]
    several = [d.client() for _ in prompts]
    requests = [k.generate(tokens=p, ignore_eos=True, max_tokens=6, temp=0.0) for k, p in zip(several, prompts)]
    for i, (k, request) in enumerate(zip(several, requests)):
        equal(k.answer(request).tokens, want[i], "client %d" % i)
        k.close()
    computed = json.loads(c.status())["prompt_tokens"] - begun
    check(computed <= len(PREAMBLE) + 8 * (10 + BLOCK), "prompt tokens computed for eight:", computed)
    c.close()


def parted(d, file=None, **load):
    """Layers with a window (passes are short beside the context) or with a recurrent state.

    Passes leave snapshots, and the second text that departs from a kept one leaves a snapshot at that point.
    """
    prompts = [PREAMBLE + ids(60, 80 + i) for i in range(4)]
    want = answers_without(d, prompts, file=file, ctx=512, sessions=2, **load)
    c = loaded(d, file=file, ctx=512, sessions=2, **load)
    cached = []
    for i, p in enumerate(prompts):
        a = ask(c, p)
        equal(a.tokens, want[i], "text %d" % i)
        cached.append(a.cached)
    equal(
        cached,
        [0, 192, 192, 192] if "max_rows" in load else [0, 0, 192, 192] if file is hybrid else [0, 200, 200, 200],
        "cached tokens",
    )
    c.close()


def asked_for(d, **load):
    """`ntx prefix FILE`: a preamble is computed in advance, and kept longer than texts that are used less."""
    text = "You help whoever asks, with few words. " * 4
    path = os.path.join(tmp.name, "system.txt")
    with open(path, "w") as f:
        f.write(text + "\n")
    say = [{"role": "system", "text": text.encode()}, {"role": "user", "text": b"Who was there?"}]
    talk = lambda c: c.ask(messages=say, chat_template="chatml", max_tokens=5, ignore_eos=True, temp=0.0)
    c = loaded(d, file=chatml, ctx=512, no_prefix_cache=1, **load)
    want = talk(c).tokens
    c.close()
    c = loaded(d, file=chatml, ctx=512, **load)
    for there in (0, 1):
        r = subprocess.run(
            [os.path.join(BIN, "ntx"), "prefix", path, "--socket", d.socket()], capture_output=True, text=True
        )
        n, cached = (int(w) for w in re.search(r"kept: (\d+) tokens, (\d+) of them", r.stderr).groups())
        check(r.returncode == 0 and n > 60 and cached == (n - 1 if there else 0), r.returncode, r.stdout, r.stderr)
    ask(c, ids(300, 40)), ask(c, ids(300, 41))  # others come, and need nearly all there is
    a = talk(c)
    equal(a.tokens, want, "behind a preamble")
    check(a.cached >= n - n % BLOCK - BLOCK, "cached tokens of", n, "are", a.cached)
    r = subprocess.run(
        [os.path.join(BIN, "ntx"), "prefix", "/no/such/file", "--socket", d.socket()], capture_output=True, text=True
    )
    check(r.returncode == 111 and "/no/such/file" in r.stderr and r.stderr.count("\n") == 1, r.returncode, r.stderr)
    c.close()


def together(d, file=None, **load):
    """Eight open conversations about one document, with KV for two that share nothing.

    The document's state is in memory once, and each conversation continues from it as it does alone.
    """
    document = ids(DOCUMENT, 6)
    prompts = [document + ids(10, 60 + i) for i in range(8)]
    load = {**load, "ctx": DOCUMENT + 128, "max_rows": 256, "sessions": 2}
    told = (7,) if LONG else (0, 1, 7)
    want = answers_without(d, [prompts[i] for i in told], file=file, **load)
    c = loaded(d, file=file, **load)
    several = [d.client(WAITS) for _ in prompts]
    open_ones = [ask(k, p, keep=True) for k, p in zip(several, prompts)]
    for i, w in zip(told, want):
        equal(open_ones[i].tokens, w, "conversation %d" % i)
    check(all(a.cached >= DOCUMENT - BLOCK for a in open_ones[1:]), "cached tokens:", [a.cached for a in open_ones])
    used = json.loads(c.status())["kv_blocks_used"]
    equal(
        used,
        DOCUMENT // BLOCK + 8 * -(-(128 + DOCUMENT % BLOCK) // BLOCK),
        "blocks that are taken, or promised up to the context, for eight conversations about one document",
    )
    computed = sum(json.loads(a.stats)["prompt_tokens"] - a.cached for a in open_ones)
    check(computed <= len(prompts[0]) + 7 * (10 + BLOCK), "prompt tokens computed for eight:", computed)
    print(
        "a document of %d tokens, eight conversations: %d tokens computed, %d blocks, first tokens after %s s"
        % (DOCUMENT, computed, used, ", ".join("%.2f" % json.loads(a.stats)["ttft_s"] for a in open_ones))
    )
    for k in several:
        k.close()
    c.close()


def scarce(d, **load):
    """With KV for one context, kept texts make room at once; when they come again, they are computed again."""
    prompts = [ids(300, 20 + i) for i in range(3)]
    want = answers_without(d, prompts, ctx=512, **load)
    c = loaded(d, ctx=512, **load)
    for again in range(2):
        for i, p in enumerate(prompts):
            a = c.ask(tokens=p, ignore_eos=True, max_tokens=6 if again else 0, temp=0.0)
            equal(a.tokens[:6], want[i], "text %d" % i)
    end = time.monotonic() + WAITS  # an answer's blocks come back behind its last token
    while (s := json.loads(c.status()))["kv_blocks_used"] and time.monotonic() < end:
        time.sleep(0.01)
    check(
        s["kv_blocks_used"] == 0 and 0 < s["kv_blocks_kept"] <= s["kv_blocks"],
        "blocks:",
        s["kv_blocks_used"],
        s["kv_blocks_kept"],
    )
    c.close()


def edited(d, **load):
    """A conversation is cut back, while another one continues from its former text."""
    say = lambda text: [{"role": "user", "text": text.encode()}]
    talk = lambda c, text, **more: c.ask(
        messages=say(text), chat_template="plain", keep=True, max_tokens=40, ignore_eos=True, temp=0.0, **more
    )
    texts = []
    for off in (1, 0):
        c = loaded(d, ctx=512, sessions=2, no_prefix_cache=off, **load)
        a = talk(c, "The little dog went to the park. " * 3)
        session = a.started["session"]
        b = talk(c, "And then?", session=session)
        other = talk(c, "The little dog went to the park. " * 3)
        e = talk(c, "And who was there?", session=session, cut_to=2)
        f = talk(c, "And then?", session=other.started["session"])
        texts.append([x.tokens for x in (a, b, other, e, f)])
        c.close()
    equal(texts[1], texts[0], "a conversation that was cut back")


def killed(d, **load):
    """Workers die in the middle of a preamble that two clients share; the text stays the same."""
    prompts = [PREAMBLE + ids(10, 90 + i) for i in range(2)]
    want = answers_without(d, prompts, ctx=256, sessions=2, **load)
    c = loaded(d, ctx=256, sessions=2, **load)
    for name in ("iod", "predictor"):
        requests = [c.generate(tokens=p, ignore_eos=True, max_tokens=6, temp=0.0) for p in prompts]
        c.until(requests[0], "started")
        d.kill(name)
        for i, request in enumerate(requests):
            equal(c.answer(request).tokens, want[i], "text %d while %s died" % (i, name))
    c.close()


if not LONG:
    with Daemons() as d:
        turns(d, **STREAMED)
        turns(d, draft="lookup", **STREAMED)
        clients(d, **STREAMED)
        scarce(d, **STREAMED)
        edited(d, **STREAMED)
        asked_for(d, **RESIDENT)
        turns(d, file=windows, **STREAMED)
        scarce(d, file=windows, **STREAMED)
        edited(d, file=windows, **STREAMED)
        parted(d, file=windows, **STREAMED)
        turns(d, file=hybrid, **STREAMED)
        turns(d, file=hybrid, sessions=3, **STREAMED)
        scarce(d, file=hybrid, **STREAMED)
        edited(d, file=hybrid, **STREAMED)
        parted(d, file=hybrid, **STREAMED)
        killed(d, **STREAMED)
        turns(d, kv_type="q8_0", **STREAMED)
        turns(d, exact=False, skip="random:0.5,1-3,7", **STREAMED)
        # resident, and with passes of other lengths
        turns(d, **RESIDENT)
        clients(d, **RESIDENT)
        parted(d, file=windows, **RESIDENT)
        parted(d, file=hybrid, **RESIDENT)
with Daemons() as d:
    together(d, file=chatml)
print("what begins alike is computed once")
