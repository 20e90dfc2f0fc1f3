#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""eval_chat.py: what the chat model does with held-out conversations, over HTTP.

Run ntx serve models/demo-chat.gguf, then

  eval_chat.py held.jsonl --url http://127.0.0.1:8080 [--talks 200] [--pad TOKENS]

Each of the model's messages is requested greedily, after the conversation as it should have been. A tool loop, from the
user's message to the answer made of the results, is right if each message of it is. --pad puts earlier turns before
each conversation, so that the context is nearly that long.
"""

import argparse
import json
import urllib.request


def ask(url, messages, tools):
    body = {"messages": messages, "temperature": 0, "max_tokens": 120}
    if tools:
        body["tools"] = tools
    r = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    return json.load(urllib.request.urlopen(r))["choices"][0]["message"]


def sent(m):
    """As the API has it: arguments are texts there."""
    m = dict(m)
    if "tool_calls" in m:
        m["tool_calls"] = [
            dict(c, function=dict(c["function"], arguments=json.dumps(c["function"]["arguments"])))
            for c in m["tool_calls"]
        ]
    return m


def calls(m):
    return [
        (
            c["function"]["name"],
            (
                c["function"]["arguments"]
                if isinstance(c["function"]["arguments"], dict)
                else json.loads(c["function"]["arguments"])
            ),
        )
        for c in m.get("tool_calls") or []
    ]


def same(got, want):
    return calls(got) == calls(want) and (got.get("content") or "").strip() == (want.get("content") or "").strip()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("held")
    a.add_argument("--url", default="http://127.0.0.1:8080")
    a.add_argument("--talks", type=int, default=200)
    a.add_argument("--pad", type=int, default=0)
    a.add_argument("--show", type=int, default=0)
    a = a.parse_args()
    all = [json.loads(line) for line in open(a.held)]
    count = {k: [0, 0] for k in ("messages", "calls", "told after tools", "JSON valid", "JSON right", "other", "loops")}

    def score(kind, right):
        count[kind][0] += bool(right)
        count[kind][1] += 1

    for t in all[: a.talks]:
        before, at, loop = [], 0, None
        if a.pad:
            for other in all[a.talks :]:
                if len(json.dumps(before)) > 2.2 * a.pad:
                    break
                if not other["tools"]:
                    before += [m for m in other["messages"] if m["role"] != "system"]
            head = [m for m in t["messages"] if m["role"] == "system"]
            t["messages"] = head + before + [m for m in t["messages"] if m["role"] != "system"]
            at = len(head) + len(before)
        for i, m in enumerate(t["messages"]):
            if m["role"] == "user" and i >= at:
                loop = True
            if m["role"] != "assistant" or i < at:
                continue
            got = ask(a.url, [sent(x) for x in t["messages"][:i]], t["tools"])
            ok = same(got, m)
            loop = loop and ok
            score("messages", ok)
            if not ok and a.show:
                a.show -= 1
                print("wanted", json.dumps(m), "\n   got", json.dumps(got))
            if "tool_calls" in m:
                score("calls", calls(got) == calls(m))
            elif t["messages"][i - 1]["role"] == "tool":
                score("told after tools", ok)
                score("loops", loop)
            elif m["content"].startswith("{"):
                try:
                    score("JSON right", json.loads(got["content"] or "") == json.loads(m["content"]))
                    score("JSON valid", True)
                except ValueError:
                    score("JSON right", False)
                    score("JSON valid", False)
            else:
                score("other", ok)
    for k, (right, n) in count.items():
        print(f"{k}: {right} of {n} ({100 * right / max(n, 1):.1f} %)")


if __name__ == "__main__":
    main()
