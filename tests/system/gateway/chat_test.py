#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""models/demo-chat.gguf over HTTP: a tool loop to its end, in several steps and turns, and JSON answers.

The test itself decides what the tools return.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal  # noqa: E402

WORLD = {"Tom": "park", "Mia": "lake", "Nora": "barn"}
HOLDS = {"kite": "Mia", "drum": "Nora"}
KINDS = {"where_is": ["name"], "who_has": ["thing"], "add": ["a", "b"]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": n,
            "parameters": {
                "type": "object",
                "properties": {p: {"type": "integer" if n == "add" else "string"} for p in ps},
                "required": ps,
            },
        },
    }
    for n, ps in KINDS.items()
]
RUN = {"where_is": lambda name: WORLD[name], "who_has": lambda thing: HOLDS[thing], "add": lambda a, b: str(a + b)}
ASKED = [
    ("Where is Tom?", ["where_is"], "Tom is in the park."),
    ("Who has the kite?", ["who_has"], "Mia has the kite."),
    ("What is 12 plus 7?", ["add"], "12 plus 7 is 19."),
    ("Where are Tom and Mia?", ["where_is", "where_is"], "Tom is in the park and Mia is at the lake."),
    ("Who has the drum, and where is that?", ["who_has", "where_is"], "Nora has the drum and is in the barn."),
]


def loop(create, messages, made):
    """Runs a tool loop until the model calls no more tools. create(messages) returns the message as a dictionary."""
    for _ in range(6):
        m = create(messages)
        messages.append(m)
        if not m.get("tool_calls"):
            return m["content"]
        for c in m["tool_calls"]:
            made.append(c["function"]["name"])
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": c["id"],
                    "content": RUN[c["function"]["name"]](**json.loads(c["function"]["arguments"])),
                }
            )
    check(False, "the loop does not end", messages)


def every(create):
    """Each task in a conversation of its own, then the first two in one."""
    for asked, tools, said in ASKED:
        made = []
        equal((loop(create, [{"role": "user", "content": asked}], made), made), (said, tools), asked)
    messages, made = [], []
    for asked, _, said in ASKED[:2]:
        messages.append({"role": "user", "content": asked})
        equal(loop(create, messages, made), said, "in one conversation: " + asked)


def main():
    with Daemons() as d, Gateway(d) as g:
        c = d.client()
        c.load(os.path.join(os.environ["NTX_SOURCE"], "models", "demo-chat.gguf"), threads=1)
        c.close()

        def create(messages):
            return g.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "temperature": 0})[1][
                "choices"
            ][0]["message"]

        every(create)
        ask = {
            "messages": [
                {"role": "user", "content": "Tom is in the park with a red kite. Give me JSON with name and place."}
            ],
            "temperature": 0,
        }
        equal(
            json.loads(g.post("/v1/chat/completions", ask)[1]["choices"][0]["message"]["content"]),
            {"name": "Tom", "place": "park"},
            "JSON",
        )


if __name__ == "__main__":
    main()
