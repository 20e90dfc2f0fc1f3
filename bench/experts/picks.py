#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which experts a run used, for bench_experts.

    picks.py T.json OUT --experts N [--decode]      N: experts of a layer; --decode: passes of one row only

T.json is a trace of `ntx run ... --trace-experts --trace T.json` (or `ntx trace` of daemons that were loaded so). OUT
gets a line "LAYERS EXPERTS", then "LAYER E E ..." for each layer of each pass in order.
"""

import argparse
import json

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("trace")
p.add_argument("out")
p.add_argument("--experts", type=int, required=True)
p.add_argument("--decode", action="store_true")
a = p.parse_args()
with open(a.trace) as f:
    trace = json.load(f)
wanted, rows = {}, {}
for e in trace["traceEvents"]:
    if e["name"] == "experts":
        wanted.setdefault((e["args"]["pass"], e["args"]["layer"]), []).extend(e["args"]["experts"])
    elif e["name"].startswith("layer "):
        rows[e["args"]["pass"]] = max(
            rows.get(e["args"]["pass"], 0), e["args"]["rows"]
        )  # the last layer may have fewer
layers = 1 + max(l for _, l in wanted)
with open(a.out, "w") as f:
    print(layers, a.experts, file=f)
    for key in sorted(wanted):
        if not a.decode or rows.get(key[0]) == 1:
            print(key[1], *sorted(wanted[key]), file=f)
if trace["otherData"]["missed"]:
    print("%d records of the trace were missed" % trace["otherData"]["missed"])
