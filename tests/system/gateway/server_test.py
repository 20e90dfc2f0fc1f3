#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx-gateway: the paths and fields of llama-server and vLLM, echo with the likelihood of a prompt, answers that go on
from the assistant's own message, limits in each API's words, and pages of other origins."""

import json
import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal, events, make_model  # noqa: E402

CTX = 512
tmp = tempfile.TemporaryDirectory(prefix="ntx-gateway-")
SHAPE = "--layers 3 --embd 64 --ff 128 --heads 2 --kv 1 --seed 5 --vocab-size 2400 --chat-template chatml".split()
model = make_model(os.path.join(tmp.name, "m.gguf"), *SHAPE, "--ctx", str(CTX))
GREEDY = {"temperature": 0}
TALK = [{"role": "user", "content": "What is it?"}]


def completion(g):
    text = g.post("/v1/completions", {"prompt": "One day", "max_tokens": 9, **GREEDY})[1]["choices"][0]["text"]
    for path in ("/completion", "/completions"):
        status, said = g.post(path, {"prompt": "One day", "n_predict": 9, **GREEDY})
        equal((status, said["content"], said["stop"], said["stop_type"]), (200, text, True, "limit"), path)
        equal((said["tokens_predicted"], said["stopping_word"], said["truncated"]), (9, "", False), path)
    status, _, body = g.request("POST", "/completion", {"prompt": "One day", "n_predict": 9, "stream": True, **GREEDY})
    parts = [json.loads(e) for e in events(body)]
    equal("".join(p["content"] for p in parts), text, "streamed")
    equal([p["stop"] for p in parts], [False] * (len(parts) - 1) + [True], "the end of the stream")
    word = text[2:5]
    said = g.post("/completion", {"prompt": "One day", "n_predict": 9, "stop": [word], **GREEDY})[1]
    equal((said["content"], said["stop_type"], said["stopping_word"]), (text[: text.index(word)], "word", word), "stop")
    ids = g.post("/tokenize", {"content": "One day", "add_special": True})[1]["tokens"]
    equal(g.post("/completion", {"prompt": ids, "n_predict": 9, **GREEDY})[1]["content"], text, "tokens as the prompt")
    warm = {"prompt": "A long beginning of a story " * 5, "n_predict": 0, **GREEDY}
    first, said = (g.post("/completion", warm)[1] for _ in range(2))
    equal((said["content"], said["tokens_predicted"], said["stop_type"]), ("", 0, "limit"), "an empty answer")
    check(said["timings"]["cache_n"] > first["timings"]["cache_n"] or first["timings"]["cache_n"], "it is kept", said)
    status, _, body = g.request("POST", "/completion", dict(warm, stream=True))
    parts = [json.loads(e) for e in events(body)]
    equal(("".join(p["content"] for p in parts), parts[-1]["stop"]), ("", True), "an empty stream")
    for never in ([[ids[-1], False]], {str(ids[-1]): -100}):
        said = g.post("/completion", {"prompt": ids, "n_predict": 30, "return_tokens": True, "logit_bias": never})
        equal(said[0], 200, said)
    equal(g.post("/completion", {"prompt": "a", "logit_bias": [["a", 1]]})[0], 400, "a pair without a number")
    equal(g.post("/completion", {"prompt": ["a", "b"]})[0], 400, "two prompts")
    equal(g.post("/chat/completions", {"messages": TALK, "max_tokens": 1})[0], 200, "chat without /v1")
    equal(len(g.post("/embeddings", {"input": "a"})[1]["data"]), 1, "embeddings without /v1")


def forms(g):
    """Constraints in other servers' words."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}
    choice = ["left", 'ri"ght\\\n', "über"]
    for fields, fits in (
        ({"grammar": 'root ::= "yes" | "no"'}, lambda t: t in ("yes", "no")),
        ({"guided_grammar": 'root ::= [ab]{3}'}, lambda t: len(t) == 3 and set(t) <= set("ab")),
        ({"json_schema": schema}, lambda t: json.loads(t)["n"] <= 9),
        ({"guided_json": schema}, lambda t: json.loads(t)["n"] <= 9),
        ({"guided_json": json.dumps(schema)}, lambda t: json.loads(t)["n"] <= 9),
        ({"guided_choice": choice}, lambda t: t in choice),
        ({"structured_outputs": {"choice": choice}}, lambda t: t in choice),
        ({"structured_outputs": {"json": schema}}, lambda t: json.loads(t)["n"] <= 9),
        ({"structured_outputs": {"grammar": 'root ::= "x"'}}, lambda t: t == "x"),
        ({"guided_regex": r'(\d{3}-)?[a-f"\\\n]{2,4}\.'}, re.compile(r'(\d{3}-)?[a-f"\\\n]{2,4}\.').fullmatch),
        ({"structured_outputs": {"regex": "^(?!a)[a-c]{3}$"}}, re.compile("(?!a)[a-c]{3}").fullmatch),
        ({"grammar": ""}, lambda t: True),
    ):
        for path, body, text in (
            ("/v1/chat/completions", {"messages": TALK}, lambda r: r["choices"][0]["message"]["content"]),
            ("/v1/completions", {"prompt": "It is"}, lambda r: r["choices"][0]["text"]),
            ("/completion", {"prompt": "It is", "n_predict": 40}, lambda r: r["content"]),
        ):
            more = {} if path == "/completion" else {"max_tokens": 40}
            status, said = g.post(path, {**body, **fields, **more, "seed": 3})
            check(status == 200 and fits(text(said)), path, fields, said)
    for fields, words in (
        ({"grammar": 5}, "'grammar' must be a string"),
        ({"grammar": "root ::= ("}, "grammar"),
        ({"guided_json": "{"}, "'guided_json' must be a schema"),
        ({"guided_choice": []}, "'guided_choice' must be a list"),
        ({"guided_choice": [""]}, "not empty"),
        ({"guided_regex": 5}, "'guided_regex' must be a string"),
        ({"guided_regex": "(a)\\1"}, "an escape that is not supported (backreferences and \\b are not)"),
        ({"structured_outputs": {"regex": "(?i)a"}}, "a kind of group, that is not supported"),
        ({"grammar": 'root ::= "x"', "guided_json": schema}, "has another form of the answer already"),
    ):
        status, said = g.post("/v1/chat/completions", {"messages": TALK, "max_tokens": 4, **fields})
        check(status == 400 and words in said["error"]["message"], fields, said)


def echo(g):
    """The likelihood of a prompt: as a measuring program asks for it, and equal to that of generated tokens."""

    def ask(prompt, **more):
        status, said = g.post("/v1/completions", {"prompt": prompt, "echo": True, "logprobs": 1, **GREEDY, **more})
        equal(status, 200, said)
        return said["choices"]

    text = "Once upon a time there was a little house"
    ids = g.post("/tokenize", {"content": text, "add_special": True})[1]["tokens"]
    whole = ask(ids, max_tokens=1)[0]
    probs = whole["logprobs"]
    equal([len(v) for v in probs.values()], [len(ids) + 1] * 4, "one entry a token")
    equal((probs["token_logprobs"][0], probs["top_logprobs"][0]), (None, None), "nothing is before the first token")
    equal("".join(probs["tokens"]), whole["text"], "the tokens' texts are the text")
    equal(whole["text"][: len("<s> " + text)], "<s> " + text, "the prompt begins the answer")
    for i in range(1, len(ids)):
        check(max(probs["top_logprobs"][i].values()) >= probs["token_logprobs"][i], "no token is likelier", i)
    for i in (1, 4, len(ids) - 1):  # the likeliest next token of a shorter prompt is the one that would be written
        said = g.post(
            "/v1/completions", {"prompt": ids[:i], "max_tokens": 1, "logprobs": 1, "ignore_eos": True, **GREEDY}
        )
        value = said[1]["choices"][0]["logprobs"]["token_logprobs"][0]
        check(abs(value - max(probs["top_logprobs"][i].values())) < 1e-4, "place", i, value, probs["top_logprobs"][i])
    alone = ask(text, max_tokens=0)[0]
    equal((alone["text"], alone["finish_reason"]), (text, "length"), "the prompt alone")
    equal(alone["logprobs"]["token_logprobs"], probs["token_logprobs"][:-1], "its values")
    equal(
        alone["logprobs"]["text_offset"][:3], [0, 0, text.index(alone["logprobs"]["tokens"][2])], "places of its tokens"
    )
    equal(ask(text, max_tokens=0, logprobs=None)[0]["logprobs"], None, "without logprobs")
    two = ask([ids, ids[:3]], max_tokens=0)
    equal([len(c["logprobs"]["tokens"]) for c in two], [len(ids), 3], "two prompts")
    equal(two[1]["logprobs"]["token_logprobs"], probs["token_logprobs"][:3], "the shorter one's values")
    status, _, body = g.request(
        "POST", "/v1/completions", {"prompt": text, "echo": True, "max_tokens": 3, "stream": True, **GREEDY}
    )
    said = "".join(json.loads(e)["choices"][0]["text"] for e in events(body)[:-1])
    plain = g.post("/v1/completions", {"prompt": text, "max_tokens": 3, **GREEDY})[1]["choices"][0]["text"]
    equal(said, text + plain, "a stream")
    # A task as measuring programs have it: the likelier of two endings.
    ends = [" big house", " zzqx qqz"]
    sums = [sum(ask(text + e, max_tokens=0)[0]["logprobs"]["token_logprobs"][1:]) for e in ends]
    check(all(v < 0 for v in sums) and sums[0] != sums[1], "endings", sums)
    equal(g.post("/v1/completions", {"prompt": "a", "max_tokens": 0})[0], 400, "no answer without echo")


def measures(d, g):
    """The requests of lm-eval's loglikelihood (its model local-completions), read as it reads their answers: endings of
    a context in one batch, by tokens; the likelier one, and whether greedy writing gives it."""
    context = g.post("/tokenize", {"content": "Once upon a time there was", "add_special": True})[1]["tokens"]
    c = d.client()
    greedy = c.ask(tokens=context, max_tokens=6, ignore_eos=True).tokens
    c.close()
    endings = [greedy, [7, 9], greedy[:1]]
    body = {"prompt": [context + e for e in endings], "model": "any", "max_tokens": 1, "logprobs": 1, "seed": 1234}
    status, said = g.post("/v1/completions", {**body, "echo": True, **GREEDY})
    equal(status, 200, said)
    seen = []
    for choice in sorted(said["choices"], key=lambda c: c["index"]):
        each = choice["logprobs"]["token_logprobs"][len(context) : -1]
        top = choice["logprobs"]["top_logprobs"][len(context) : -1]
        equal(len(each), len(endings[choice["index"]]), "a value for each token of the ending")
        seen.append((sum(each) / len(each), all(v == max(t.values()) for v, t in zip(each, top))))
    check(seen[0][0] > seen[1][0], "the likelier ending", seen)
    equal([greedily for _, greedily in seen], [True, False, True], "what greedy writing gives")


def prompts(g):
    """/apply-template, counting, and an answer that goes on."""
    said = g.post("/apply-template", {"messages": TALK})[1]["prompt"]
    equal(said, "<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n", "the prompt of a chat")
    ids = g.post("/tokenize", {"content": said, "add_special": True})[1]["tokens"]
    count = lambda talk: g.post("/v1/messages/count_tokens", {"messages": talk})  # noqa: E731
    equal(count(TALK), (200, {"input_tokens": len(ids)}), "its tokens")
    long = [{"role": "user", "content": "word " * 3 * CTX}]
    status, n = count(long)
    check(status == 200 and n["input_tokens"] > CTX, "more than the context holds can be counted:", n)
    begun = TALK + [{"role": "assistant", "content": "It is a"}]
    equal(g.post("/apply-template", {"messages": begun})[1]["prompt"], said + "It is a", "the last message stays open")
    want = g.post("/v1/completions", {"prompt": said + "It is a", "max_tokens": 5, **GREEDY})[1]["choices"][0]["text"]
    chat = {"messages": begun, "max_tokens": 5, **GREEDY}
    got = g.post("/v1/chat/completions", chat)[1]["choices"][0]["message"]["content"]
    for more in ({"continue_final_message": True}, {"add_generation_prompt": False}):
        equal(g.post("/v1/chat/completions", {**chat, **more})[1]["choices"][0]["message"]["content"], got, more)
    equal(g.post("/v1/messages", chat)[1]["content"][0]["text"], got, "Anthropic's prefill")
    ollama = {"messages": begun, "stream": False, "options": {"num_predict": 5, "temperature": 0}}
    equal(g.post("/api/chat", ollama)[1]["message"]["content"], got, "Ollama's")
    check(want, "a continuation")
    for more, words in (
        ({"continue_final_message": False}, "can only be continued"),
        ({"messages": TALK, "continue_final_message": True}, "is not the assistant's"),
        ({"messages": TALK, "add_generation_prompt": False}, "may be false only"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "exclude each other"),
    ):
        status, e = g.post("/v1/chat/completions", {**chat, **more})
        check(status == 400 and words in e["error"]["message"], more, e)


def limits(g):
    """A prompt that is too long, in the words by which clients know it."""
    long = [{"role": "user", "content": "word " * 3 * CTX}]
    n = g.post("/v1/messages/count_tokens", {"messages": long})[1]["input_tokens"]
    status, e = g.post("/v1/messages", {"messages": long, "max_tokens": 5})
    check(e["error"]["message"].startswith("prompt is too long: %d tokens > %d maximum" % (n, CTX)), status, e)
    status, e = g.post("/v1/chat/completions", {"messages": long})
    words = "context length is %d tokens. However, your prompt has %d tokens. Shorten it" % (CTX, n)
    check(words in e["error"]["message"], e)
    equal((status, e["error"]["code"], e["error"]["param"]), (400, "context_length_exceeded", "messages"), "OpenAI's")
    status, e = g.post("/v1/completions", {"prompt": list(range(100, 200)) * 9})
    check("maximum context length is %d tokens. However, your prompt has 900" % CTX in e["error"]["message"], e)


def stable(d, g):
    """What Claude Code changes in each request does not hide the prompt from the prefix cache."""
    rules = " ".join("Rule %d: keep it short." % i for i in range(20))

    def ask(g, hash_):
        bill = "x-anthropic-billing-header: cc_version=2.1.2.%s; cc_entrypoint=cli; cch=%s;" % (hash_, hash_)
        system = [{"type": "text", "text": bill}, {"type": "text", "text": rules}]
        status, head, body = g.request("POST", "/v1/messages", {"max_tokens": 3, "system": system, "messages": TALK})
        use = json.loads(body)["usage"]
        equal(status, 200, body)
        return use["cache_read_input_tokens"], use.get("input_tokens"), head.get("warning", "")

    ask(g, "a1b")
    cached, fresh, warning = ask(g, "77f")
    check(cached > 100 and fresh <= 1, "cached", cached, "computed", fresh)
    check("x-anthropic-billing-header" in warning, "the answer names it:", warning)
    with Gateway(d, "--stable-prompts", "no") as other:
        ask(other, "0d9")
        cached, _, warning = ask(other, "e11")
        check(cached < 60 and warning == "", "as it is:", cached, warning)


def marks(g):
    """Control tokens of a raw text are tokens; in a chat, where anybody may write them, they are text."""
    text = "<|im_start|>user\nHi<|im_end|>\n"
    special, plain = (
        g.post("/tokenize", {"content": text, "add_special": True, "parse_special": p})[1]["tokens"]
        for p in (True, False)
    )
    check(len(special) + 15 < len(plain), "the tokens differ", special, plain)
    one = {"max_tokens": 1}
    asks = (
        ("/v1/completions", {"prompt": text, **one}, lambda r: r["usage"]["prompt_tokens"]),
        ("/completion", {"prompt": text, "n_predict": 1}, lambda r: r["tokens_evaluated"]),
        (
            "/api/generate",
            {"prompt": text, "raw": True, "stream": False, "options": {"num_predict": 1}},
            lambda r: r["prompt_eval_count"],
        ),
    )
    for path, body, count in asks:
        for more, want in (({}, special), ({"parse_special": True}, special), ({"parse_special": False}, plain)):
            status, said = g.post(path, {**body, **more})
            equal((status, count(said)), (200, len(want)), (path, more))
        equal(g.post(path, {**body, "parse_special": "no"})[0], 400, path)
    echoed = {"prompt": text, "echo": True, "logprobs": 1, "max_tokens": 0}
    for more, want in (({}, special), ({"parse_special": False}, plain)):
        said = g.post("/v1/completions", {**echoed, **more})[1]["choices"][0]
        equal((said["text"], len(said["logprobs"]["tokens"])), (text, len(want)), "echo")
    talk = lambda content: {"messages": [{"role": "user", "content": content}]}  # noqa: E731
    n = g.post("/v1/messages/count_tokens", talk("x"))[1]["input_tokens"]
    for path, body, count in (
        ("/v1/chat/completions", {**talk("x" + text), **one}, lambda r: r["usage"]["prompt_tokens"]),
        ("/v1/messages/count_tokens", talk("x" + text), lambda r: r["input_tokens"]),
    ):
        check(count(g.post(path, body)[1]) >= n + len(plain) - 3, path, "takes a user's marks for text")
    said = g.post("/apply-template", talk("Hi"))[1]["prompt"]
    want = g.post("/v1/chat/completions", {**talk("Hi"), **one, **GREEDY})[1]
    got = g.post("/v1/completions", {"prompt": said, **one, **GREEDY})[1]
    equal(
        (got["usage"]["prompt_tokens"], got["choices"][0]["text"]),
        (want["usage"]["prompt_tokens"], want["choices"][0]["message"]["content"]),
        "a chat that the client has written itself",
    )


CLOCK = (
    "{{ '<|im_start|>system\nIt is ' + strftime_now('%Y-%m-%d %H:%M:%S') + '<|im_end|>\n' }}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)


def clock(g):
    """A time that the template writes stays that of the conversation's beginning, and hides nothing from the cache."""
    rules = " ".join("Rule %d: keep it short." % i for i in range(20))
    begin = [{"role": "system", "content": rules}, {"role": "user", "content": "Begin."}]
    talk = begin + [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}]
    show = lambda m: g.post("/apply-template", {"messages": m})[1]["prompt"].split("<|im_end|>")[0]  # noqa: E731
    ask = lambda m: g.post("/v1/chat/completions", {"messages": m, "max_tokens": 1, **GREEDY})[1]["usage"]  # noqa: E731
    first = ask(begin)
    at = show(talk)
    time.sleep(1.1)
    equal(show(talk), at, "the conversation goes on")
    second = ask(talk)
    cached = second["prompt_tokens_details"]["cached_tokens"]
    check(cached >= first["prompt_tokens"] - 2, "cached", cached, "of", first, second)
    check(show(begin) != at, "another conversation has its own time")


REFUSES = "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}"
NINE = (
    "{% for m in messages %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}"
    "{% if c.id is not defined or c.id|length != 9 %}" + REFUSES + "{% endif %}[{{ c.id }}]{% endfor %}"
    "{% elif m.role == 'tool' %}{% if m.tool_call_id is not defined or m.tool_call_id|length != 9 %}"
    + REFUSES
    + "{% endif %}"
    "<{{ m.tool_call_id }}>{% else %}{{ m.role + ': ' + m.content }}{% endif %}{% endfor %}"
)


def ids(g):
    """Calls and results keep together by ids of the form that the template wants."""
    fn = {"name": "f", "arguments": "{}"}
    for call, result in (
        ({"id": "call_0123456789abcdef", "function": fn}, {"tool_call_id": "call_0123456789abcdef"}),
        ({"id": "abcDEF123", "function": fn}, {"tool_call_id": "abcDEF123"}),
        ({"function": fn}, {}),
    ):
        talk = TALK + [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "x", **result}]
        status, said = g.post("/apply-template", {"messages": talk})
        check(status == 200 and re.search(r"\[([0-9A-Za-z]{9})\]<\1>", said["prompt"]), "ids", said)
        equal(g.post("/v1/chat/completions", {"messages": talk, "max_tokens": 1})[0], 200, "an answer")
        check(call.get("id") != "abcDEF123" or "[abcDEF123]" in said["prompt"], "an id that fits stays", said)


def durations(g):
    """The times of an answer, where each API has a place for them."""

    def whole(t):
        check(t["prompt_n"] + t["cache_n"] > 0 and t["predicted_n"] == 4 and t["predicted_ms"] > 0, "timings", t)

    talk = {"messages": TALK, "ignore_eos": True, "max_tokens": 4}
    claude = {"messages": TALK, "max_tokens": 4}
    many = {"input": "Hi", "max_output_tokens": 4}
    whole(g.post("/v1/chat/completions", talk)[1]["timings"])
    for path, body in (("/v1/messages", claude), ("/v1/responses", many)):
        t = g.post(path, body)[1]["timings"]
        check(t["predicted_n"] >= 1 and t["predicted_ms"] > 0 and t["queue_ms"] >= 0, path, t)
        said = g.request("POST", path, {**body, "stream": True})[2].decode()
        equal(said.count('"timings"'), 1, path + ", a stream")
    at = time.monotonic()
    said = g.post("/api/chat", {"messages": TALK, "stream": False, "options": {"num_predict": 8}})[1]
    wall = (time.monotonic() - at) * 1e9
    parts = said["load_duration"] + said["prompt_eval_duration"] + said["eval_duration"]
    check(0 < said["eval_duration"] and 0 < said["prompt_eval_duration"], "durations", said)
    check(parts <= said["total_duration"] * 1.01 <= wall * 1.02, "their sum", parts, said["total_duration"], wall)


def views(g):
    status, p = g.get("/props")
    equal((status, p["default_generation_settings"]["n_ctx"], p["total_slots"] >= 1), (200, CTX, True), "props")
    check("im_start" in p["chat_template"] and p["modalities"] == {"vision": False, "audio": False}, p)
    status, t = g.get("/tokenizer_info")
    equal((status, t["chat_template"], t["model_max_length"]), (200, p["chat_template"], CTX), "tokenizer_info")
    for name in ("bos_token", "eos_token"):
        ids = g.post("/tokenize", {"prompt": t[name], "add_special_tokens": False})[1]["tokens"]
        equal((p[name], len(ids)), (t[name], 1), name + " is one token of the vocabulary")
    slots = g.get("/slots")[1]
    equal((len(slots), [s["is_processing"] for s in slots]), (p["total_slots"], [False] * len(slots)), "slots")
    for path in ("/rerank", "/v1/rerank", "/v1/reranking"):
        status, e = g.post(path, {"query": "a", "documents": ["b"]})
        check(status == 400 and "reranker" in e["error"]["message"], path, e)


def origins(d):
    def asks(g, origin):
        status, head, _ = g.request("GET", "/v1/models", headers={"Origin": origin})
        return status, head.get("access-control-allow-origin")

    ours = ("http://localhost:3000", "https://127.0.0.1", "http://[::1]:80", "app://x", "vscode-webview://abc")
    others = ("https://evil.example", "http://localhost.evil.example", "null", "http://evil.example/localhost")
    with Gateway(d) as g:
        for origin in ours:
            equal(asks(g, origin), (200, origin), origin)
        for origin in others:
            equal(asks(g, origin), (403, None), origin)
        check("CORS" in g.request("GET", "/v1/models", headers={"Origin": others[0]})[2].decode(), "the word CORS")
    with Gateway(d, "--cors", "none") as g:
        for origin in ours + others:
            equal(asks(g, origin), (403, None), "none: " + origin)
        own = "http://127.0.0.1:%d" % g.port
        equal(asks(g, own)[0], 200, "its own page")


with Daemons() as d:
    c = d.client()
    c.load(model, ctx=CTX, sessions=2, threads=1)
    with Gateway(d) as g:
        completion(g)
        forms(g)
        echo(g)
        measures(d, g)
        prompts(g)
        limits(g)
        stable(d, g)
        views(g)
        marks(g)
        durations(g)
        c.load(model, ctx=CTX, sessions=2, threads=1, chat_template=CLOCK)
        clock(g)
        c.load(model, ctx=CTX, sessions=2, threads=1, chat_template=NINE)
        ids(g)
    origins(d)
    c.close()
tmp.cleanup()
