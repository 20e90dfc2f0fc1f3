#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of one gateway take turns: one with many requests keeps another one waiting for one answer, not for all.

Both come from one address and are told apart by their API keys. There is memory for one answer at a time.
"""

import os
import sys
import threading

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal, wait_for  # noqa: E402

DEMO = os.path.join(os.environ["NTX_SOURCE"], "models", "demo.gguf")
MANY = 20


def main():
    order, lock = [], threading.Lock()

    def ask(g, who):
        status, body = g.post(
            "/v1/completions",
            {"prompt": "Once upon a time", "max_tokens": 220, "ignore_eos": True, "temperature": 0},
            headers={"Content-Type": "application/json", "Authorization": "Bearer " + who},
        )
        with lock:
            order.append(who)
        equal(status, 200, body)

    with Daemons() as d, Gateway(d) as g:
        c = d.client()
        c.load(DEMO, ctx=256, sessions=1)
        c.close()
        many = [threading.Thread(target=ask, args=(g, "many")) for _ in range(MANY)]
        for t in many:
            t.start()
        wait_for(lambda: order, 30, "the first answer")
        one = threading.Thread(target=ask, args=(g, "one"))
        before = len(order)
        one.start()
        for t in [*many, one]:
            t.join()
        equal((len(order), order.count("many")), (MANY + 1, MANY), "answers")
        # those that ran or ended meanwhile, and the one whose turn it was
        check(order.index("one") <= before + 4, "the one came", order.index("one"), "th after", before)


main()
