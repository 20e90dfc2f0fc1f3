#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified clients from PyPI against ntx-gateway: openai, anthropic, ollama and the program llm.

tests/run --long adds litellm, langchain-openai and tool loops. Whole answers, streams and errors; each client must get
the text that ntx-computed itself gives. NTX_CLIENTS names an environment that has the clients; otherwise one is made in
the build directory, once.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal, make_model, patience  # noqa: E402

LONG = bool(os.environ.get("NTX_LONG"))
PACKAGES = ["openai==3.57.0", "anthropic==2.14.0", "ollama==0.6.3", "llm==0.36"]
MORE = ["litellm", "langchain-openai"]  # as they are today: these change the most, and a campaign is to show it
PIP_S = 120  # for the small ones


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def make(home, packages, seconds):
    """An environment with these packages, made beside its final place and renamed when complete."""
    new = "%s.%d" % (home, os.getpid())
    try:
        venv.create(new, with_pip=True)
    except (subprocess.CalledProcessError, OSError) as e:
        shutil.rmtree(new, ignore_errors=True)
        skip("no environment for clients (Debian has it in python3-venv): %s" % e)
    try:
        got = subprocess.run(
            [
                os.path.join(new, "bin", "python"),
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                "--no-compile",
                "--retries",
                "1",
                "--timeout",
                "15",
                *packages,
            ],
            capture_output=True,
            text=True,
            timeout=seconds * patience(),
        )
        why = got.stderr.strip().splitlines()[-1:] if got.returncode else None
    except subprocess.TimeoutExpired:
        why = ["not done within %d s" % seconds]
    if why is not None:
        shutil.rmtree(new, ignore_errors=True)
        skip("PyPI is not reached: " + "".join(why))
    shutil.rmtree(home, ignore_errors=True)
    os.rename(new, home)


def home_of(packages):
    """The environment's folder: its name depends on the packages' versions."""
    return os.path.join(
        os.environ["NTX_BUILD"], "clients-" + ("long" if LONG else "-".join(p.replace("==", "-") for p in packages))
    )


if __name__ == "__main__" and len(sys.argv) == 1:
    packages = PACKAGES + (MORE if LONG else [])
    home = os.environ.get("NTX_CLIENTS") or home_of(packages)
    if not os.environ.get("NTX_CLIENTS") and (LONG or not os.path.exists(home)):
        make(home, packages, 900 if LONG else PIP_S)
    sys.exit(subprocess.run([os.path.join(home, "bin", "python"), __file__, "inside"]).returncode)

SYSTEM, HELLO = "Be brief.", "Hello"
MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": HELLO}]
MOST = 8


def refused(call, words):
    try:
        call()
    except Exception as e:
        check(words in str(e) or words == getattr(e, "code", None), "refused with", repr(e), getattr(e, "code", None))
        return type(e).__name__
    check(False, "not refused:", words)


def with_openai(url, want, n):
    import openai

    c = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    equal([m.id for m in c.models.list()], ["random"], "openai: models")
    r = c.chat.completions.create(model="x", messages=MESSAGES, temperature=0, max_completion_tokens=MOST, seed=1)
    equal((r.choices[0].message.content, r.usage.prompt_tokens, r.object), (want, n, "chat.completion"), "openai: chat")
    with c.chat.completions.create(
        model="x",
        messages=MESSAGES,
        temperature=0,
        max_tokens=MOST,
        stream=True,
        stream_options={"include_usage": True},
    ) as s:
        chunks = list(s)
    equal("".join(k.choices[0].delta.content or "" for k in chunks if k.choices), want, "openai: stream")
    equal((chunks[-1].usage.prompt_tokens, chunks[-1].choices), (n, []), "openai: usage")
    with c.chat.completions.stream(model="x", messages=MESSAGES, temperature=0, max_tokens=MOST) as s:
        equal("".join(e.delta for e in s if e.type == "content.delta"), want, "openai: the stream helper")
    equal(
        len(c.completions.create(model="x", prompt=["Once", "A dog"], n=2, max_tokens=3).choices),
        4,
        "openai: completions",
    )
    equal(
        refused(
            lambda: c.chat.completions.create(model="x", messages=[{"role": "user", "content": "a " * 3000}]),
            "context_length_exceeded",
        ),
        "BadRequestError",
        "openai: too long",
    )
    equal(
        refused(lambda: c.chat.completions.create(model="x", messages=MESSAGES, top_logprobs=3), "needs 'logprobs'"),
        "BadRequestError",
        "openai: refused",
    )


def with_anthropic(url, want, n):
    import anthropic

    c = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    ask = dict(
        model="x",
        max_tokens=MOST,
        system=SYSTEM,
        messages=[{"role": "user", "content": HELLO}],
        extra_body={"temperature": 0},
    )
    r = c.messages.create(**ask)
    equal(
        (r.content[0].text, r.usage.input_tokens + r.usage.cache_read_input_tokens), (want, n), "anthropic: a message"
    )
    with c.messages.stream(**ask) as s:
        text = "".join(s.text_stream)
        equal((text, s.get_final_message().content[0].text), (want, want), "anthropic: stream")
    equal(
        c.messages.count_tokens(model="x", system=SYSTEM, messages=ask["messages"]).input_tokens,
        n,
        "anthropic: count_tokens",
    )
    equal(
        refused(
            lambda: c.messages.create(
                **dict(
                    ask, tool_choice={"type": "tool", "name": "bash"}, tools=[{"type": "bash_20250124", "name": "bash"}]
                )
            ),
            "ntx cannot offer",
        ),
        "BadRequestError",
        "anthropic: refused",
    )


def with_litellm(url, want, n):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    r = litellm.completion(
        model="openai/x", api_base=url + "/v1", api_key="none", messages=MESSAGES, temperature=0, max_tokens=MOST
    )
    equal((r.choices[0].message.content, r.usage.prompt_tokens), (want, n), "litellm: openai")
    s = litellm.completion(
        model="openai/x",
        api_base=url + "/v1",
        api_key="none",
        messages=MESSAGES,
        temperature=0,
        max_tokens=MOST,
        stream=True,
    )
    equal("".join(k.choices[0].delta.content or "" for k in s), want, "litellm: stream")
    r = litellm.completion(
        model="anthropic/x", api_base=url, api_key="none", messages=MESSAGES, temperature=0, max_tokens=MOST
    )
    equal(r.choices[0].message.content, want, "litellm: anthropic")


def with_langchain(url, want, n):
    from langchain_openai import ChatOpenAI

    c = ChatOpenAI(base_url=url + "/v1", api_key="none", model="x", temperature=0, max_tokens=MOST, max_retries=0)
    said = [("system", SYSTEM), ("human", HELLO)]
    equal(c.invoke(said).content, want, "langchain: invoke")
    equal("".join(k.content for k in c.stream(said)), want, "langchain: stream")


def with_ollama(url, want, n):
    import ollama

    c = ollama.Client(host=url)
    options = {"temperature": 0, "num_predict": MOST}
    r = c.chat(model="x", messages=MESSAGES, options=options)
    equal((r.message.content, r.prompt_eval_count), (want, n), "ollama: chat")
    equal(
        "".join(k.message.content for k in c.chat(model="x", messages=MESSAGES, options=options, stream=True)),
        want,
        "ollama: stream",
    )
    equal(c.generate(model="x", prompt=HELLO, system=SYSTEM, options=options).response, want, "ollama: generate")
    equal([m.model for m in c.list().models], ["random"], "ollama: list")
    equal(
        [(m.model, m.context_length, m.size_vram, m.expires_at.year > 2100) for m in c.ps().models],
        [("random", 512, 0, True)],
        "ollama: ps",
    )
    v = c.embed(model="x", input=[HELLO, SYSTEM])
    equal((len(v.embeddings), c.embeddings(model="x", prompt=HELLO).embedding), (2, v.embeddings[0]), "ollama: embed")
    equal(c.show("x").details.family, "llama", "ollama: show")


LLM_MODELS = """\
- {model_id: chat, model_name: x, api_base: "URL", supports_schema: true, supports_tools: true}
- {model_id: text, model_name: x, api_base: "URL", completion: true}
- {model_id: items, model_name: x, api_base: "URL", responses: true}
"""
TOOL = "def double(n: int) -> int:\n    return 2 * n\n"


def with_llm(url, want, n):
    """The program `llm` as people start it, with models of its file extra-openai-models.yaml."""
    with tempfile.TemporaryDirectory(prefix="ntx-llm-") as home:
        with open(os.path.join(home, "extra-openai-models.yaml"), "w") as f:
            f.write(LLM_MODELS.replace("URL", url + "/v1"))
        env = dict(os.environ, LLM_USER_PATH=home, PYTHONWARNINGS="ignore")

        def llm(*arguments):
            command = [sys.executable, "-m", "llm", *arguments]
            got = subprocess.run(
                command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120 * patience()
            )
            equal(got.returncode, 0, "llm %s: %s" % (arguments, got.stderr[-1000:]))
            return got.stdout.rstrip("\n")

        fixed = ["-o", "temperature", "0", "-o", "max_tokens", str(MOST)]
        asked = [HELLO, "-m", "chat", "-s", SYSTEM, *fixed]
        equal(llm(*asked), want.rstrip("\n"), "llm: a stream")
        equal(llm(*asked, "--no-stream"), want.rstrip("\n"), "llm: whole")
        check("%d input" % n in llm("logs", "-n", "1", "-u"), "llm: usage", llm("logs", "-n", "1", "-u"))
        check(llm("-c", "And more?", *fixed), "llm: a conversation goes on")
        check(llm("Once", "-m", "text", *fixed), "llm: completions")
        check(llm(HELLO, "-m", "items", "-o", "max_tokens", "16"), "llm: Responses")
        made = json.loads(llm("A dog", "-m", "chat", "--schema", "old bool", "-o", "temperature", "0"))
        check(list(made) == ["old"] and isinstance(made["old"], bool), "llm: a schema", made)
        check(llm("2?", "-m", "chat", "--functions", TOOL, *fixed) is not None, "llm: a tool is offered")


def agent(url):
    """A tool loop with the unmodified client, by chat completions and by Responses."""
    import openai
    from chat_test import ASKED, RUN, TOOLS, every

    c = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    every(
        lambda messages: (
            c.chat.completions.create(model="x", messages=messages, tools=TOOLS, temperature=0)
            .choices[0]
            .message.model_dump(exclude_none=True)
        )
    )
    flat = [dict(t["function"], type="function") for t in TOOLS]
    for asked, tools, said in ASKED:
        items, made = [{"role": "user", "content": asked}], []
        while len(made) < 6:
            r = c.responses.create(model="x", input=items, tools=flat, temperature=0)
            calls = [o for o in r.output if o.type == "function_call"]
            if not calls:
                break
            items += [o.model_dump(exclude_none=True) for o in r.output]
            made += [o.name for o in calls]
            items += [
                {"type": "function_call_output", "call_id": o.call_id, "output": RUN[o.name](**json.loads(o.arguments))}
                for o in calls
            ]
        equal((r.output_text, made), (said, tools), "responses: " + asked)


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-gateway-") as tmp, Daemons() as d, Gateway(d) as g:
        model = make_model(
            os.path.join(tmp, "m.gguf"),
            "--layers",
            "2",
            "--embd",
            "64",
            "--ff",
            "128",
            "--heads",
            "2",
            "--kv",
            "1",
            "--seed",
            "5",
            "--chat-template",
            "chatml",
            "--ctx",
            "2048",
        )
        c = d.client()
        c.load(model, ctx=512, threads=1)
        a = c.ask(messages=[{"role": m["role"], "text": m["content"]} for m in MESSAGES], max_tokens=MOST)
        c.close()
        more = (with_litellm, with_langchain) if LONG else ()
        for part in (with_openai, with_anthropic, with_ollama, with_llm, *more):
            part("http://127.0.0.1:%d" % g.port, a.text.decode(), a.started["prompt_tokens"])
            print(part.__name__, "has its answers")
        if not LONG:
            return
        c = d.client()
        c.load(os.path.join(os.environ["NTX_SOURCE"], "models", "demo-chat.gguf"), threads=1)
        c.close()
        agent("http://127.0.0.1:%d" % g.port)
        print("the loops of tools came to their ends")


main()
