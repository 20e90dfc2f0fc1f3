#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""swarm.py MODEL MODEL [--minutes 10] [--cap 0.6] [--ctx 32768] [--usual 8192]: a swarm on published models.

The swarm of tests/system/gateway/swarm_test.py (64 clients, prompts from ten tokens to nearly all of the context, half
of the clients leave, the models are swapped) with real sizes: a context of 32,768 tokens makes prompts of up to 30,000.
With --usual two clients alone ask for those, of the model whose name comes first, and stay; others ask for less.
--ram is CAP times the larger file, and the memory for the context. It fails for an error other than 429 and 503, a gap
of 10 s between two tokens, a wait of ten minutes, more memory than the budget, or another text afterwards. Needs
NTX_BIN (build/bin).
"""

import argparse
import os
import sys
import time

os.environ.setdefault("NTX_SOURCE", os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
for folder in ("lib", "system/gateway"):
    sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", folder))
import swarm_test  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("models", nargs=2, metavar="MODEL")
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--cap", type=float, default=0.6, help="of the larger file's bytes")
    p.add_argument("--ctx", type=int, default=32768)
    p.add_argument("--usual", type=int, help="the context that most clients' prompts reach")
    p.add_argument("--context-mib", type=int, default=0, help="memory for the context, beside the cap")
    a = p.parse_args()
    names = {os.path.basename(m).removesuffix(".gguf"): os.path.abspath(m) for m in a.models}
    ram = int(a.cap * max(os.path.getsize(m) for m in a.models)) // (1 << 20) + a.context_mib
    begun = time.monotonic()
    print(swarm_test.run(names, ram, a.ctx, 60 * a.minutes, "", patient=600, usual=a.usual))
    print("%.0f s in all; %s; --ram %dM" % (time.monotonic() - begun, ", ".join(names), ram))


main()
