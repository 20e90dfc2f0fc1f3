#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Read errors that pass.

A daemon that loaded its model at start stays up when a part of the arena cannot be read: requests that need it fail
with the reason as long as the error lasts, and succeed afterwards, without a reload.
"""

import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import Daemons, check, equal, make_model, refused, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-model-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--layers",
    "4",
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
TELL = dict(ignore_eos=True, max_tokens=4)
TRIES = 4  # of ntx-iod, per read


def want():
    with Daemons("--model", model) as d:
        c = d.client()
        tokens = c.ask("A dog", **TELL).tokens
        c.close()
    equal(len(tokens), 4, "tokens")
    return tokens


def passing(rounds, right):
    """The chunk's reads fail during the load and `rounds` more requests."""
    with Daemons("--model", model, "--fault", "iod:eio@chunk=9,count=%d" % (TRIES * (1 + rounds))) as d:
        wait_for(lambda: "tried again when a request needs it" in d.text(), 20, "the failure in the log")
        c = d.client()
        for _ in range(rounds):
            refused(lambda: c.ask("A dog", **TELL), "m.gguf.*Input/output error", "a request that needs the part")
        equal(c.ask("A dog", **TELL).tokens, right, "the answer once the error is over")
        check('"state":"ready"' in c.status(), "status", c.status())
        c.close()


right = want()
passing(0, right)
passing(2, right)
