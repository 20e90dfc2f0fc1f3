#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several machines as a user starts them: mpirun starts `ntx up` on each (all on this one). The text is one machine's,
whatever the split; a worker that dies is started again; incompatible settings are reported with the machine's name."""

import json
import os
import re
import signal
import subprocess
import sys
import time

from machines import ASK, BIN, DEMO, MODELS, NTX, PROMPT, SLOW, Machines, cleanup, daemons, env, fail, ntx, stats, tmp

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gguf_edit import F32, STR, Gguf  # noqa: E402

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests"))
from patient import patience  # noqa: E402

want = ntx("run", DEMO, PROMPT, *ASK).stdout
want_q8 = ntx("run", DEMO, PROMPT, *ASK, "--kv-type", "q8_0").stdout


def output(name, *args):
    p = subprocess.run(
        [os.path.join(BIN, name), "--runtime", tmp, *args],
        env=dict(env, LC_ALL="C.UTF-8", COLUMNS="120", LINES="40"),
        capture_output=True,
        text=True,
        timeout=60 * SLOW * patience(),
    )
    if p.returncode:
        fail("%s: %s" % (name, p.stderr))
    return p.stdout


def seen():
    """ntx-top, the metrics and a trace show the other machine while it works; its drive is the slower one."""
    path = os.path.join(tmp, "trace.json")
    work = subprocess.Popen(
        [NTX, "generate", PROMPT, "--temp", "0", "-n", "80", "--raw", "--ignore-eos", "--quiet"],
        env=env,
        stdout=subprocess.DEVNULL,
    )
    time.sleep(0.5)
    top = json.loads(output("ntx-top", "--json", "--interval", "1"))
    screen = output("ntx-top", "--once", "--interval", "0.5")
    ntx("trace", "-o", path, "--seconds", "0.7")
    metrics = output("ntx-metrics")
    if work.wait(60 * SLOW * patience()):
        fail("generate beside ntx-top")
    m = top["machines"]
    if (
        m["ranks"] != 2
        or len(m["others"]) != 1
        or not m["others"][0]["name"].endswith("(rank 1)")
        or not m["others"][0]["drive_bps"] > 1e6
        or not 0 < m["others"][0]["stall"] <= m["others"][0]["multiply"] <= 1
    ):
        fail("ntx-top: %s" % m)
    other = m["others"][0]
    if (
        not 0 < other["message"] <= m["wait"] + 0.05
        or not m["wait"] <= 1
        or not other["ring_ready"] <= other["ring_slots"]
        or not 1 < other["ring_slots"] < 100
        or other["bytes_kv"] != 0
    ):  # K and V are the first one's
        fail("ntx-top: %s" % m)
    if (
        not m["rank_bps"] > 0
        or not re.search(
            r"\(rank 1\) +drive 0\.\d\d GB/s, waits \d+ %; products \d+ %; messages \d+ %; ring \d+ of "
            + str(other["ring_slots"])
            + "; KV 0 MB",
            screen,
        )
        or "machines  2; " not in screen
    ):
        fail("ntx-top: %s %s" % (m, screen))
    waited = re.search(r'^ntx_machine_stall_seconds_total\{.*\} (\S+)$', metrics, re.M)  # since it began
    if (
        'ntx_machine_read_bytes_total{machine="' not in metrics
        or "ntx_machine_multiply_seconds_total" not in metrics
        or not waited
        or not float(waited[1]) > 0
    ):
        fail("metrics: " + "\n".join(l for l in metrics.splitlines() if "ntx_machine" in l))
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    ours = [e for e in events if e["ph"] == "X" and e["pid"] == 3 and e["name"].startswith("layer ")]
    others = [e for e in events if e["ph"] == "X" and e["pid"] == 4]
    if len(others) < 20 or not any(
        e["ph"] == "M" and e["pid"] == 4 and e["args"]["name"] == "machine of rank 1" for e in events
    ):
        fail("the trace has %d products of the other machine" % len(others))
    inside = 0  # by the clocks that were set, products of a layer are while the first machine is in that layer
    for e in others:
        inside += any(
            o["ts"] <= e["ts"] and e["ts"] + e["dur"] <= o["ts"] + o["dur"] for o in ours if o["name"] == e["name"]
        )
    if inside < 0.8 * sum(any(o["name"] == e["name"] for o in ours) for e in others):
        fail("%d of %d products lie in their layers" % (inside, len(others)))


def seen_network(s):
    """With a latency of 1 ms each exchange waits for two of them. That time is not counted as the other's products."""
    other = s["other_ranks"][0]
    if (
        not s["passes"] * 12 * 4 * 2e-3 * 0.9 < other["message_s"] <= s["rank_wait_s"] + 1e-3
        or not other["multiply_s"] < other["message_s"]
    ):
        fail("messages of a network of 1 ms: %s" % s)
    work = subprocess.Popen(
        [NTX, "generate", PROMPT, "--temp", "0", "-n", "24", "--raw", "--ignore-eos", "--quiet"],
        env=env,
        stdout=subprocess.DEVNULL,
    )
    time.sleep(0.5)
    top = json.loads(output("ntx-top", "--json", "--interval", "1"))
    if (
        work.wait(60 * SLOW * patience())
        or not top["machines"]["others"][0]["message"] > 0.5
        or top["limit"] != "the network between the machines"
    ):
        fail("ntx-top of a network of 1 ms: %s %s" % (top["limit"], top["machines"]))


def seen_heads(s):
    """Two of three machines keep one head of K and V each: half of what one machine alone keeps, and lists."""
    kept = [r["bytes_kv"] for r in s["other_ranks"]] + [s["bytes_kv"]]
    one = 256 * 12 * 2 * 64 // 32 * 34  # of one head, in Q8_0
    if sorted(k > one // 100 for k in kept) != [False, True, True] or not all(
        k <= one // 100 or one <= k < 1.1 * one for k in kept
    ):
        fail("K and V by heads, %d bytes each: %s" % (one, s))
    others = json.loads(output("ntx-top", "--json", "--interval", "0.2"))["machines"]["others"]
    metrics = [int(b) for b in re.findall(r"^ntx_machine_kv_bytes\{.*\} (\d+)$", output("ntx-metrics"), re.M)]
    if [o["bytes_kv"] for o in others] != kept[:-1] or metrics != kept[:-1]:
        fail("K and V by heads: %s, %s, and the statistics %s" % (others, metrics, kept))


def the_same_text():
    none = ["--draft", "off"]  # refused draft tokens cross the network, too, and the plan does not know how many
    ways = [
        [["--ram", "40M", "--threads", "1", *none]] * 3,  # all in memory
        [
            ["--ram", "12M", "--split", "rows", "--threads", "2", "--link", "nvme=20M"],
            ["--ram", "9M", "--threads", "1", "--kernel", "generic", "--link", "nvme=10M"],
        ],  # unlike machines
        [["--ram", "40M", "--threads", "1", "--split", "rows", "--link", "net=200M,1000us"]]
        * 2,  # a slow network, played
        [
            ["--ram", "30M", "--split", "layers", "--threads", "2", "--link", "nvme=400M", *none],
            ["--ram", "9M", "--threads", "1", "--link", "nvme=200M", *none],
            ["--ram", "9M", "--threads", "1", *none],
        ],  # whole layers
        [["--ram", "9M", "--threads", "1", "--link", "nvme=100M,net=2M,1000us"]]
        * 2,  # a network that is too slow for rows: by itself
    ]
    ways.append(
        [
            [
                "--ram",
                "40M",
                "--threads",
                "1",
                "--split",
                "heads",
                "--draft",
                "lookup",
                "--draft-nodes",
                "5",
                "--kv-type",
                "q8_0",
            ]
        ]
        * 3
    )  # K and V by heads
    split = [None, "rows", "rows", "layers", "layers", "heads"]
    for i, rows in enumerate(ways):
        m = Machines(*[[DEMO, "--ctx", "256", *r] for r in rows])
        if not m.ready():
            fail("way %d: %s" % (i, m.text()))
        path = os.path.join(tmp, "stats")
        got = ntx("generate", PROMPT, *ASK, "--stats", path).stdout
        if got != (want if i < 5 else want_q8):
            fail("way %d: '%s' instead of '%s'" % (i, got, want))
        if (
            i == 5
        ):  # what begins alike is shared, what was cut goes on elsewhere; and the other machines have most of K and V
            for more in (" there was a farm. The farm had", " there was a farm. The dog had"):
                if (
                    ntx("generate", PROMPT + more, *ASK).stdout
                    != ntx("run", DEMO, PROMPT + more, *ASK, "--kv-type", "q8_0").stdout
                ):
                    fail("a text that begins alike, with K and V by heads")
        s = stats(path)
        if (
            s["ranks"] != len(rows)
            or len(s["other_ranks"]) != len(rows) - 1
            or not s["rank_bytes"] > 24 * 12 * 4 * 256
            or not s["rank_wait_s"] >= 0
        ):
            fail("way %d: statistics: %s" % (i, s))
        if s["split"] != (split[i] or s["split"]):
            fail("way %d: split by %s" % (i, s["split"]))
        if i == 0 or i == 3:  # as many bytes as the plan says
            hosts = os.path.join(tmp, "three")
            with open(hosts, "w") as f:
                f.write("".join("m%d ram=16G,drive=1G,memory=20G\n" % k for k in range(3)))
            say = json.loads(ntx("plan", DEMO, "--machines", hosts, "--split", s["split"], "--json").stdout)[
                "rank_bytes"
            ] * (s["prompt_tokens"] + s["generated_tokens"] - 1)
            if not 0.85 < s["rank_bytes"] / say < 1.2:
                fail("%d bytes crossed, and the plan says %d" % (s["rank_bytes"], say))
        if i == 2:
            seen_network(s)
        if i == 5:
            seen_heads(s)
        if i == 1:
            seen()
            if not all(r["bytes_read"] > 0 for r in s["other_ranks"]):
                fail("the other machine has read nothing: %s" % s)
            for name in ("ntx-iod", "ntx-predictor"):  # of the second machine: started again, nothing is lost
                os.kill(daemons(name)[1], signal.SIGKILL)
                if ntx("generate", PROMPT, *ASK).stdout != want:
                    fail("%s was killed on the second machine, and the text is another" % name)
        if ntx("load", DEMO, rc=111).stderr.find("start them again for another one") < 0:
            fail("a second model")
        ntx("stop")
        if m.ended(30) != 0:
            fail("mpirun: %s" % m.text())
        for word in ("is loaded", "the first machine is done"):
            if word not in m.text():
                fail("'%s' is missing in: %s" % (word, m.text()))


def unlike_drives():
    """Shares follow what each machine keeps once it has planned, so that different drives need the same time for a
    token: a drive of three times the rate reads three times as much."""
    model, out = (
        make(
            "unlike.gguf",
            "--layers",
            "12",
            "--embd",
            "512",
            "--heads",
            "8",
            "--kv",
            "2",
            "--ff",
            "1536",
            "--type",
            "Q8_0",
        ),
        os.path.join(tmp, "stats"),
    )
    all_of = [
        "--ctx",
        "256",
        "--ram",
        "13M",
        "--rows",
        "16",
        "--threads",
        "1",
        "--split",
        "rows",
        "--draft",
        "off",
        "--link",
    ]
    m = Machines([model, *all_of, "nvme=40M"], [model, *all_of, "nvme=120M"])
    if not m.ready():
        fail("unlike drives: " + m.text())
    reads = []
    for _ in range(2):
        ntx("generate", PROMPT, *ASK, "--stats", out)
        s = stats(out)
        reads.append(s["other_ranks"][0]["bytes_read"])
    ratio = (reads[1] - reads[0]) / s["bytes_read"]
    if not 2.5 < ratio < 3.9:  # what so little memory keeps falls in steps
        fail("of drives of 40 and 120 MB/s the second one reads %.2f times as much: %s" % (ratio, s))
    ntx("stop")
    m.ended(30)


def refused(rows, *words, by=()):
    m = Machines(*rows, by=by)
    if m.ready():
        fail("was not refused: %s" % rows)
    if m.ended(60) == 0:
        fail("mpirun ended well: %s" % rows)
    for w in words:
        if w not in m.text():
            fail("'%s' is missing in: %s" % (w, m.text()))


def all_cores():
    """mpirun would give each of two processes one core. A machine's only process takes all cores that mpirun has,
    unless mpirun was told how to bind."""
    mine = os.sched_getaffinity(0)
    for bind, want_all in ((), True), (("--bind-to", "core"), False):
        m = Machines(
            [DEMO, "--ctx", "256", "--threads", "1"],
            [DEMO, "--ctx", "256", "--threads", "1"],
            by=("env", "OMPI_COMM_WORLD_LOCAL_SIZE=1"),
            options=bind,
        )
        if not m.ready():
            fail(m.text())
        has = [os.sched_getaffinity(pid) for pid in daemons("ntx-computed") + daemons("ntx-iod")]
        if len(has) != 4 or any((h == mine) != (want_all or len(mine) == 1) for h in has):
            fail("%s: cores %s of %s" % (bind, has, mine))
        ntx("stop")
        m.ended(30)


def what_does_not_go_together():
    refused(
        [[DEMO], [os.path.join(MODELS, "demo-draft.gguf")]],
        "(rank 1) has another model than",
        "copy the same file to all machines",
    )
    refused([[DEMO], [DEMO, "--ram", "5M"]], "(rank 1): the smallest memory budget that would do is")
    refused([[DEMO, "--backend", "cuda"], [DEMO]], "several machines compute on their CPUs only: --backend cpu")
    refused(
        [[DEMO, "--split", "heads", "--state", os.path.join(tmp, "state")], [DEMO]],
        "(rank 0): --split heads: keys and values stay with the first machine, for --state keeps texts on the first "
        "machine's drive: use --split rows",
    )
    refused(
        [[DEMO], [DEMO]],
        "several machines need MPI, and this build's plug-in for it cannot be loaded: ",
        "install libopenmpi-dev and build again",
        by=("env", "NTX_MPI_LIBRARY=/no/such/library"),
    )
    refused([[], []], "machines that share a model are started with it: mpirun ... ntx up MODEL")


def files_of_shares():
    """Each machine's file has only the rows that it reads, else holes. ntx plan --machines made unequal parts."""
    hosts = os.path.join(tmp, "machines")
    with open(hosts, "w") as f:
        f.write("net=117M,100us\na ram=2M,drive=300M,memory=20G\nb ram=2M,drive=100M,memory=20G\n")
    parts, blocks = [], []
    for i in (1, 2):
        path = os.path.join(tmp, "part%d.gguf" % i)
        parts.append(path)
        told = json.loads(
            ntx("pack", DEMO, path, "--share", "%d/2" % i, "--machines", hosts, "--split", "rows", "--json").stdout
        )
        if (
            told["rank"] != i - 1
            or told["ranks"] != 2
            or not 0 < told["bytes"] < os.path.getsize(DEMO)
            or len(told["parts"]) != 2
            or told["parts"][0] <= told["parts"][1]
        ):
            fail("pack --share: %s" % told)
        blocks.append(told["bytes"])
        if os.stat(path).st_blocks * 512 > told["bytes"] * 1.5 + (1 << 20):
            fail("the file of a share takes %d bytes for %d" % (os.stat(path).st_blocks * 512, told["bytes"]))
    if blocks[1] > 0.6 * blocks[0]:
        fail("parts of 3 : 1 have %s bytes" % blocks)
    layers = [os.path.join(tmp, "layers%d.gguf" % i) for i in (1, 2)]
    told = [
        json.loads(ntx("pack", DEMO, path, "--share", "%d/2" % (i + 1), "--split", "layers", "--json").stdout)
        for i, path in enumerate(layers)
    ]
    if told[1]["split"] != "layers" or not 0.8 < told[0]["bytes"] / told[1]["bytes"] < 1.3:
        fail("pack --share --split layers: %s" % told)
    refused([[parts[0]], [layers[1]]], "has a file of other parts than another machine")
    for a, b in ((parts[0], parts[1]), (DEMO, parts[1]), (layers[0], layers[1])):  # a whole file beside one of a share
        m = Machines(
            [a, "--ctx", "256", "--ram", "40M", "--threads", "1"], [b, "--ctx", "256", "--ram", "13M", "--threads", "1"]
        )
        if not m.ready():
            fail(m.text())
        if ntx("generate", PROMPT, *ASK).stdout != want:
            fail("files of shares: another text")
        ntx("stop")
        m.ended(30)
    refused([[parts[1]], [parts[0]]], "is machine 1 of 2: start the machines in the order of their files")
    equal = os.path.join(tmp, "equal.gguf")
    ntx("pack", DEMO, equal, "--share", "2/2")
    refused([[parts[0]], [equal]], "has a file of other parts than another machine")
    for args, words in (
        (["run", parts[0], PROMPT], "is the share of machine 1 of 2 (ntx pack --share)"),
        (["quantize", parts[0], equal + ".q", "Q4_0"], "this needs the whole file"),
        (["pack", parts[0], equal + ".p"], "this needs the whole file"),
        (["analyze", parts[0]], "this needs the whole file"),
        (["run", DEMO, PROMPT, "--draft", parts[0]], "the share of machine 1"),
        (["pack", DEMO, equal, "--share", "3/2"], "write the number of the machine and of all, as 2/3"),
        (["pack", DEMO, DEMO, "--share", "1/2"], "this is the model itself"),
        (["pack", DEMO, "/dev/full/x", "--share", "1/2"], "cannot write"),
    ):
        p = subprocess.run([NTX, *args], env=env, capture_output=True, text=True, timeout=60 * SLOW * patience())
        if p.returncode == 0 or words not in p.stderr:
            fail("ntx %s: %s" % (" ".join(args), p.stderr))


def make(name, *how):
    subprocess.run([os.path.join(BIN, "ntx-mkmodel"), *how, os.path.join(tmp, name)], check=True, capture_output=True)
    return os.path.join(tmp, name)


def split_in_planes(model, *how):
    """A model of `model`'s weights in high and low bits."""
    split = model[:-5] + ".p.gguf"
    ntx("pack", model, split, "--planes", *how)
    return split


def high_and_low_bits():
    """Each machine keeps the high bits of its own rows, and streams their low bits. The text is the whole model's."""
    dense, experts = os.path.join(tmp, "q4.gguf"), make(
        "experts.gguf",
        *("--arch", "qwen3moe", "--layers", "6", "--embd", "256", "--ff", "256", "--heads", "8", "--kv", "2"),
        *("--head-dim", "64", "--experts", "16", "--experts-used", "2", "--expert-ff", "512", "--type", "Q4_K"),
        *("--seed", "7"),
    )
    ntx("quantize", DEMO, dense, "Q4_K", "--pure", "--quiet")
    streamed = ["--threads", "1", "--draft", "lookup", "--rows", "8", "--link", "nvme=50M"]
    for model, split, ram, bits in (
        (dense, "rows", ("8M", "8M"), ()),
        (dense, "layers", ("9M", "8M"), ("--low-bits", "1")),
        (dense, "heads", ("60M", "60M"), ()),
        (experts, "rows", ("12M", "11M"), ()),
    ):
        parts, out = split_in_planes(model, *bits), os.path.join(tmp, "stats")
        plain = ntx("run", model, PROMPT, *ASK, "--draft", "off").stdout
        m = Machines(*[[parts, "--ctx", "256", "--ram", r, "--split", split, *streamed] for r in ram])
        if not m.ready():
            fail("high and low bits, %s of %s: %s" % (split, model, m.text()))
        if ntx("generate", PROMPT, *ASK, "--stats", out).stdout != plain:
            fail("high and low bits, %s of %s: another text" % (split, model))
        s = stats(out)
        if split != "heads" and not (s["bytes_read"] > 0 or s["other_ranks"][0]["bytes_read"] > 0):
            fail("high and low bits, %s of %s: nothing was streamed: %s" % (split, model, s))
        for i in (0, 1) if split == "layers" else ():
            os.kill(daemons("ntx-iod")[i], signal.SIGKILL)
            if ntx("generate", PROMPT, *ASK).stdout != plain:
                fail("ntx-iod was killed, and the text of high and low bits is another")
        ntx("stop")
        m.ended(30)
    refused([[parts, "--ram", "60M", "--draft", "self"]] * 2, "use --draft lookup")


def check_drafter(model, draft, hits, right=True):
    """Drafts over two machines give the text without drafts, also when a reader of either machine dies."""
    plain, out = ntx("run", model, PROMPT, *ASK, "--draft", "off").stdout, os.path.join(tmp, "stats")
    m = Machines(
        *[[model, "--ctx", "256", "--ram", "60M", "--threads", "1", "--draft", draft, "--draft-nodes", "6"]] * 2
    )
    if not m.ready():
        fail("%s: %s" % (hits, m.text()))
    if (
        ntx("generate", PROMPT, *ASK, "--stats", out).stdout != plain
        or not stats(out)["draft_nodes_per_pass"] > 1
        or (right and (not stats(out)["draft_hits"][hits] > 4 or not stats(out)["accepted_per_pass"] > 1.3))
    ):
        fail("%s over two machines: %s" % (hits, stats(out)))
    for i in (0, 1):
        os.kill(daemons("ntx-iod")[i], signal.SIGKILL)
        if ntx("generate", PROMPT, *ASK).stdout != plain:
            fail("ntx-iod was killed, and the text with drafts is another")
    ntx("stop")
    m.ended(30)


def check_drafters():
    """The model's own block drafts on the first machine, whole in its memory, and so does a drafter that uses states of
    layers. From the file of a share the block cannot be read."""
    small = ["--embd", "128", "--heads", "4", "--type", "Q8_0"]
    model = make(
        "nextn.gguf",
        "--arch",
        "glm4moe",
        "--layers",
        "3",
        *small,
        "--kv",
        "2",
        "--head-dim",
        "32",
        "--experts",
        "6",
        "--experts-used",
        "2",
        "--expert-ff",
        "64",
        "--shared-ff",
        "64",
        "--dense",
        "1",
        "--rotated",
        "16",
        "--nextn",
        "1",
        "--nextn-agrees",
        "0.1",
    )
    check_drafter(model, "nextn", "nextn")
    head = make(
        "eagle.gguf",
        "--arch",
        "eagle3",
        "--layers",
        "1",
        *small,
        "--kv",
        "4",
        "--ff",
        "128",
        "--taps",
        "1,2,4",
        "--bare",
        "--nextn-agrees",
        "0.05",
    )
    states = make("states.gguf", "--layers", "4", *small, "--kv", "2", "--ff", "256", "--nextn-agrees", "0.1")
    check_drafter(states, head, "file")
    check_drafter(
        states,
        make(
            "dflash.gguf",
            "--arch",
            "dflash",
            "--layers",
            "2",
            *small,
            "--kv",
            "4",
            "--ff",
            "128",
            "--taps",
            "1,2,3",
            "--bare",
            "--block",
            "4",
        ),
        "file",
        right=False,
    )  # random, it is never right
    part = os.path.join(tmp, "nextn1.gguf")
    ntx("pack", model, part, "--share", "1/2")
    ntx("pack", model, part + "b", "--share", "2/2")
    refused(
        [[part, "--draft", "nextn"], [part + "b", "--draft", "nextn"]],
        "--draft nextn",
        "a next-token block is the share of machine 1 of 2",
    )


def kv_on_the_drive():
    """A text whose K and V do not fit into --kv-ram: older ones are read back from the first machine's drive for each
    pass."""
    kept, out, ram = os.path.join(tmp, "kept"), os.path.join(tmp, "stats"), 10 << 20
    os.mkdir(kept)
    if subprocess.run(["stat", "-f", "-c", "%T", kept], capture_output=True, text=True).stdout.strip() == "tmpfs":
        print("%s lies in memory: K and V on a drive are left out" % kept)
        return
    model = make(
        "long.gguf",
        "--layers",
        "20",
        "--embd",
        "256",
        "--heads",
        "4",
        "--kv",
        "2",
        "--head-dim",
        "64",
        "--ff",
        "256",
        "--type",
        "Q8_0",
        "--ctx",
        "2048",
    )
    text = (PROMPT + " there was a farm. ") * 50
    all_of = ["--ctx", "2048", "--ram", "60M", "--threads", "1", "--rows", "64"]
    alone = ntx("run", model, text, *ASK, *all_of).stdout
    for split in ("rows", "layers"):
        m = Machines([model, *all_of, "--split", split, "--kv-ram", str(ram), "--state", kept], [model, *all_of])
        if not m.ready():
            fail("--kv-ram over two machines: " + m.text())
        if ntx("generate", text, *ASK, "--stats", out).stdout != alone:
            fail("--kv-ram over two machines: another text")
        s = stats(out)
        if (
            s["ranks"] != 2
            or s["split"] != split
            or s["kv_ram"] != ram
            or not s["kv_held_most"] <= ram
            or not s["kv_read_bytes"] > ram
        ):
            fail("--kv-ram over two machines: %s" % s)
        ntx("stop")
        m.ended(30)
    refused(
        [[model, *all_of, "--split", "heads", "--kv-ram", str(ram), "--state", kept], [model, *all_of]],
        "--split heads: keys and values stay with the first machine",
    )


def other_settings():
    """Each other option of a load works with several machines and gives the same text, or is refused by name."""
    model, packed, adapter, out = (os.path.join(tmp, n) for n in ("base.gguf", "packed.gguf", "adapter.gguf", "stats"))
    all_of = ["--ctx", "256", "--ram", "40M", "--threads", "1"]
    for what, more in (
        ("draft", ["--draft", os.path.join(MODELS, "demo-draft.gguf"), "--draft-nodes", "5"]),
        ("skip", ["--skip", "random:0.4,2-4,7"]),
    ):
        alone = ntx("run", DEMO, PROMPT, *ASK, *all_of, *more, "--stats", out)
        skipped = stats(out).get("skipped_layers_per_token", 0)
        m = Machines([DEMO, *all_of, *more], [DEMO, *all_of])
        if not m.ready():
            fail("%s: %s" % (what, m.text()))
        if ntx("generate", PROMPT, *ASK, "--stats", out).stdout != alone.stdout:
            fail("%s over two machines: another text" % what)
        s = stats(out)
        if (
            s["ranks"] != 2
            or (what == "draft" and not s["accepted_per_pass"] > 1)
            or (what == "skip" and not s["skipped_layers_per_token"] == skipped > 0)
        ):
            fail("%s: %s" % (what, s))
        ntx("stop")
        m.ended(30)
    subprocess.run(
        [os.path.join(BIN, "ntx-mkmodel"), "--arch", "llama", "--layers", "2", "--type", "F32", model],
        check=True,
        capture_output=True,
    )
    g = Gguf(model)
    w = g.tensors[b"blk.0.ffn_up.weight"][0]
    g.keys = {
        b"general.architecture": (STR, b"llama"),
        b"general.type": (STR, b"adapter"),
        b"adapter.type": (STR, b"lora"),
        b"adapter.lora.alpha": (F32, 8.0),
    }
    g.tensors = {
        b"blk.0.ffn_up.weight.lora_a": [[w[0], 2], 0, bytearray(8 * w[0])],
        b"blk.0.ffn_up.weight.lora_b": [[2, w[1]], 0, bytearray(8 * w[1])],
    }
    g.write(adapter)
    refused([[model, "--lora", adapter]] * 2, "--lora: adapters run on one machine only")
    ntx("pack", os.path.join(MODELS, "demo-relu.gguf"), packed, "--force", "--quiet")
    refused([[packed]] * 2, "a packed model (ntx pack) runs on one machine only")
    refused(
        [[os.path.join(MODELS, "demo-shared.gguf")]] * 2,
        "a model whose layers share matrices, or add to them, runs on one machine only",
    )


try:
    the_same_text()
    all_cores()
    unlike_drives()
    what_does_not_go_together()
    files_of_shares()
    check_drafters()
    high_and_low_bits()
    kv_on_the_drive()
    other_settings()
finally:
    cleanup()
print("the same text over several machines")
