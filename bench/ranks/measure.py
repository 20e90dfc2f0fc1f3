#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several machines as one, all emulated on this one: tokens per second, bytes read, and the time of messages.

    bench/ranks/measure.py MODEL [--ranks 1,2,3,4] [--ram 80M] [--link nvme=100M]
                           [--net 117M,100us[:RATE,TIME...]] [--unlike LINK:LINK...] [--split rows,layers]
                           [-n 5] [--prompt 1] [--rounds 1]

Each row is a fresh `mpirun ... ntx up` with one thread per rank, O_DIRECT reads of emulated drives, and one answer of
-n tokens (greedy) to a prompt of --prompt tokens; in rounds, each with all rows once. --net: each of these networks in
turn, and none (MPI's own speed on this machine). --unlike: a drive for each rank. --split: each of these in turn. With
an emulated network, "messages say" is the time that `ntx plan --machines` predicts for it, and "messages took" the
token's time beyond that of the same ranks without one. "alone": bench/ranks/floor with as many exchanges of as many
bytes, the same MPI calls without the product (--floor PATH). CSV; medians over rounds. Needs mpirun and a quiet
machine.
"""

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "tests", "lib"))
import mpi  # noqa: E402

ARGS = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ARGS.add_argument("model")
ARGS.add_argument("--bin", default="build/bin")
ARGS.add_argument("--floor", default="build/bench/bench_ranks_floor")
ARGS.add_argument("--ranks", default="1,2,3,4")
ARGS.add_argument("--ram")
ARGS.add_argument("--link", default="")
ARGS.add_argument("--unlike", default="")
ARGS.add_argument("--net", default="")
ARGS.add_argument("--split", default="rows")
ARGS.add_argument("-n", type=int, default=5)
ARGS.add_argument("--prompt", type=int, default=1)
ARGS.add_argument("--ctx", type=int, default=1024)
ARGS.add_argument("--rows", type=int, default=0)
ARGS.add_argument("--threads", type=int, default=1)
ARGS.add_argument("--rounds", type=int, default=1)
A = ARGS.parse_args()
NTX = os.path.join(A.bin, "ntx")


def environment(tmp):
    return mpi.environment(tmp, OMPI_MCA_hwloc_base_binding_policy="none")


def measure(links, net, split):
    """Statistics of one answer by len(links) ranks, each with its drive."""
    tmp = tempfile.mkdtemp(prefix="ntx-bench-")
    env = environment(tmp)
    words = ["mpirun", "--oversubscribe"]
    for i, link in enumerate(links):
        both = ",".join(p for p in (link, "net=" + net if net else "") if p)
        words += ([":"] if i else []) + [
            "-n",
            "1",
            NTX,
            "up",
            A.model,
            "--ctx",
            str(A.ctx),
            "--threads",
            str(A.threads),
            "--draft",
            "off",
            "--split",
            split,
        ]
        words += (
            (["--rows", str(A.rows)] if A.rows else [])
            + (["--ram", A.ram] if A.ram else [])
            + (["--link", both] if both else [])
        )
    with open(os.path.join(tmp, "log"), "w+") as log:
        p = subprocess.Popen(words, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            while True:
                log.seek(0)
                text = log.read()
                if "ready with" in text:
                    break
                if p.poll() is not None:
                    sys.exit("ntx up ended: " + text)
                time.sleep(0.1)
            path = os.path.join(tmp, "stats")
            subprocess.run(
                [
                    NTX,
                    "generate",
                    "a" * A.prompt,
                    "-n",
                    str(A.n),
                    "--temp",
                    "0",
                    "--raw",
                    "--ignore-eos",
                    "--quiet",
                    "--stats",
                    path,
                ],
                env=env,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            with open(path) as f:
                s = json.load(f)
            subprocess.run([NTX, "stop"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            p.wait(30)
        finally:
            if p.poll() is None:
                p.terminate()  # mpirun ends all ranks; killed it would leave them
                p.wait(60)
    shutil.rmtree(tmp, ignore_errors=True)
    return s


def plan(n, net, split):
    with tempfile.NamedTemporaryFile("w", suffix=".machines") as f:
        f.write(
            "".join("m%d ram=16G,drive=3.3G,memory=20G\n" % i for i in range(n)) + ("net=%s\n" % net if net else "")
        )
        f.flush()
        return json.loads(
            subprocess.run(
                [NTX, "plan", A.model, "--json", "--split", split, "--machines", f.name],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )


def alone(n, exchanges, bytes_):
    """Seconds of a token's exchanges without products."""
    tmp = tempfile.mkdtemp(prefix="ntx-bench-")
    out = subprocess.run(
        [
            "mpirun",
            "--oversubscribe",
            "-n",
            str(n),
            A.floor,
            os.path.join(A.bin, "libntx-mpi.so"),
            str(exchanges),
            str(int(bytes_)),
            "50",
        ],
        env=environment(tmp),
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    shutil.rmtree(tmp, ignore_errors=True)
    return float(out.split()[0])


ROWS = []
for net in [""] + [x for x in A.net.split(":") if x]:
    if A.unlike:
        ROWS += [(A.unlike.split(":"), net, split) for split in A.split.split(",")]
    else:
        ROWS += [
            ([A.link] * int(n), net, split)
            for n in A.ranks.split(",")
            for split in A.split.split(",")
            if int(n) > 1 or (net == "" and split == A.split.split(",")[0])
        ]
GOT = [[] for _ in ROWS]
for _ in range(A.rounds):
    for got, (links, net, split) in zip(GOT, ROWS):
        got.append(measure(links, net, split))
        print(
            len(links),
            net,
            split,
            "%.4g tok/s, prefill %.4g" % (got[-1]["decode_tok_s"], got[-1]["prefill_tok_s"]),
            file=sys.stderr,
        )

out = csv.writer(sys.stdout)
out.writerow(
    "ranks net split prompt tok_s prefill_tok_s prompt_tokens read_mb_token wait_s_pass message_s_pass crossed_kb_pass"
    " say_kb_token exchanges messages_took_s messages_say_s alone_s".split()
)
free = {}
for got, (links, net, split) in zip(GOT, ROWS):
    n = len(links)
    mid = lambda key: statistics.median(key(s) for s in got)
    token = 1 / mid(lambda s: s["decode_tok_s"])
    p = plan(n, net, split) if n > 1 else None
    if not net:
        free[n, split] = token
    floor = (
        alone(n, p["exchanges"], p["rank_bytes"] / p["exchanges"])
        if n > 1 and not net and os.path.exists(A.floor)
        else ""
    )
    out.writerow(
        [
            n,
            net or "loopback",
            split,
            A.prompt,
            "%.4g" % (1 / token),
            "%.4g" % mid(lambda s: s["prefill_tok_s"]),
            got[0]["prompt_tokens"],
            "%.4g" % (mid(lambda s: s["bytes_read_per_token"]) / 1e6),
            "%.4g" % mid(lambda s: s.get("rank_wait_s", 0) / s["passes"]),
            "%.4g" % mid(lambda s: max([r["message_s"] for r in s.get("other_ranks", [])] + [0]) / s["passes"]),
            "%.4g" % mid(lambda s: s.get("rank_bytes", 0) / s["passes"] / 1e3),
            "%.4g" % (p["rank_bytes"] / 1e3 if p else 0),
            p["exchanges"] if p else 0,
            "%.4g" % (token - free[n, split]) if net else "",
            "%.4g" % p["messages_s"] if net else "",
            "%.4g" % floor if floor else "",
        ]
    )
