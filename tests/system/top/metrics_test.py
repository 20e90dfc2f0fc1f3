#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ntx-metrics: over HTTP on a unix socket and on a port, and once on standard output.

The text is valid for Prometheus and its values are those of the run. Every metric that the dashboard uses exists.
"""

import atexit
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Daemons, Watch, check, equal, fail, make_model, patience, wait_for  # noqa: E402

METRICS = os.path.join(BIN, "ntx-metrics")


def http(address, request):
    s = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET, socket.SOCK_STREAM)
    s.settimeout(10 * patience())
    s.connect(address)
    s.sendall(request)
    s.shutdown(socket.SHUT_WR)
    data = b""
    while True:
        got = s.recv(65536)
        if not got:
            break
        data += got
    s.close()
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, head.decode(), body.decode()


GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def parse(text):
    """Parses the exposition format strictly.

    HELP and TYPE before the samples of a family, each family once, histograms cumulative.
    """
    types, values, family = {}, {}, None
    for line in text.splitlines():
        m = re.fullmatch(r"# (HELP|TYPE) ([a-z_:][a-z0-9_:]*) (.+)", line)
        if m:
            if m[1] == "TYPE":
                check(m[2] == family and m[2] not in types, "TYPE of", m[2])
                check(m[3] in ("counter", "gauge", "histogram"), line)
                types[m[2]] = m[3]
            family = m[2]
            continue
        m = re.fullmatch(r"([a-z_:][a-z0-9_:]*)(\{(?:[a-z]+=\"(?:[^\"\\\n]|\\.)*\",?)+\})? (\S+)", line)
        check(m, "no sample:", line)
        base = re.sub(r"_(bucket|sum|count)$", "", m[1]) if types.get(family) == "histogram" else m[1]
        equal(base, family, "family of " + line)
        key = m[1] + (m[2] or "")
        check(key not in values, "twice:", key)
        values[key] = float(m[3])
    for name in (n for n, t in types.items() if t == "histogram"):
        counts = [v for k, v in values.items() if k.startswith(name + "_bucket")]
        equal(counts, sorted(counts), name + " is cumulative")
        equal(counts[-1], values[name + "_count"], name + "_count")
    for name, kind in types.items():
        equal(name.endswith("_total"), kind == "counter", "name of " + name)
    return types, values


def prometheus(text, values):
    """Prometheus' own parser, and promtool where installed, read the same values as this test."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        print("python3-prometheus-client is not installed: its parser is not asked")
    else:
        seen = {}
        for family in text_string_to_metric_families(text):
            check(family.type in ("counter", "gauge", "histogram") and family.documentation, family)
            for s in family.samples:
                labels = (
                    "{"
                    + ",".join(
                        '%s="%s"' % (k, v.replace("\\", "\\\\").replace('"', '\\"')) for k, v in s.labels.items()
                    )
                    + "}"
                    if s.labels
                    else ""
                )
                seen[s.name + labels] = s.value
        equal(seen, values, "what the parser of prometheus_client sees")
        print("prometheus_client's parser takes it: %d samples" % len(seen))
    if shutil.which("promtool"):
        tool = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        equal((tool.returncode, tool.stdout + tool.stderr), (0, ""), "promtool")
        print("promtool takes it")


def serve(d, where):
    p = subprocess.Popen([METRICS, "--runtime", d.dir, "--listen", where], stderr=subprocess.PIPE, text=True)
    atexit.register(p.kill)  # it would outlive a test that fails
    check("serving /metrics at " + where in p.stderr.readline(), "no server at", where)
    return p


def stop(p):
    p.send_signal(signal.SIGTERM)
    equal(p.wait(10 * patience()), 0, "exit code")
    p.stderr.close()


def busy(d, where, why):
    said = subprocess.run([METRICS, "--runtime", d.dir, "--listen", where], capture_output=True, text=True, timeout=60)
    check(
        said.returncode == 111 and said.stderr.count("\n") == 1 and why in said.stderr,
        where,
        said.returncode,
        said.stderr,
    )


def values_of_a_run(values, stats):
    equal(values["ntx_up"], 1, "ntx_up")
    equal(values["ntx_comp_tokens_total"], 20, "tokens")
    equal(values["ntx_comp_passes_total"], stats["passes"], "passes")
    equal(values["ntx_ttft_seconds_count"], 1, "first tokens")
    equal(values["ntx_inter_token_seconds_count"], 19, "later tokens")
    equal(values["ntx_throughput_tokens_per_second_count"], 1, "answers")
    for name, want in (
        ("ntx_ttft_seconds_sum", stats["ttft_s"]),
        ("ntx_throughput_tokens_per_second_sum", stats["decode_tok_s"]),
    ):
        check(abs(values[name] - want) < 0.001 + want * 1e-4, name, values[name], "is not", want)
    equal(
        sum(values["ntx_comp_bytes_" + tier] for tier in ("device", "host", "storage")),
        values["ntx_comp_bytes_model"],
        "bytes by tier",
    )
    check(values["ntx_iod_bytes_stream_total"] >= values["ntx_comp_bytes_storage"] * 19, "bytes streamed")
    check(0 < values["ntx_comp_stall_seconds_total"] < values["ntx_comp_pass_seconds_total"], "stalls")
    check(any(k.startswith('ntx_model_info{model="random",arch="llama"') for k in values), "model_info")


def dashboard(types):
    with open(os.path.join(os.environ["NTX_SOURCE"], "deploy", "grafana.json")) as f:
        board = json.load(f)
    names = {n for p in board["panels"] for t in p["targets"] for n in re.findall(r"\bntx_[a-z_]+", t["expr"])}
    check(len(names) > 15, "the dashboard asks for", names)
    for n in names:
        check(re.sub(r"_(bucket|sum|count)$", "", n) in types or n in types, "the dashboard asks for", n)
    if not shutil.which("promtool"):
        return
    asked = [t["expr"].replace("$__rate_interval", "1m") for p in board["panels"] for t in p["targets"]]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as rules:
        json.dump(
            {
                "groups": [
                    {"name": "dashboard", "rules": [{"record": "x:%d" % i, "expr": e} for i, e in enumerate(asked)]}
                ]
            },
            rules,
        )
        rules.flush()
        tool = subprocess.run(["promtool", "check", "rules", rules.name], capture_output=True, text=True)
    equal(tool.returncode, 0, "promtool of the dashboard's expressions: " + tool.stdout + tool.stderr)
    print("promtool takes the dashboard's %d expressions" % len(asked))


def page(text):
    """docs/operating.md has each metric with its meaning, in the words of its HELP line."""
    with open(os.path.join(os.environ["NTX_SOURCE"], "docs", "operating.md")) as f:
        have = set(f.read().splitlines())
    want = ["| `%s` | %s |" % m for m in re.findall(r"^# HELP (\S+) (.*)$", text, re.M)]
    check(len(want) > 60, "only", len(want), "metrics")
    texts = [m[1] for m in re.findall(r"^# HELP (\S+) (.*)$", text, re.M)]
    for said in texts:  # a person sees one of them, in a dashboard's tooltip
        check(
            not re.search(r"\b[Oo]f (those|that|these|the hits)\b", said) and len(said.split()) > 1,
            "HELP does not stand alone:",
            said,
        )
    equal(len(set(texts)), len(texts), "HELP texts, each once")
    missing = [row for row in want if row not in have]
    check(not missing, "docs/operating.md lacks:\n" + "\n".join(missing))


def beside(address):
    """Retries if the crowd had the last place for a moment; all within the time that an answer may take."""
    for _ in range(20):
        try:
            return http(address, GET)[0]
        except ConnectionResetError:
            time.sleep(0.05)
    return 0


def drip(p, address):
    """Hundreds of connections that send a byte now and then: others are served at once, at no cost in memory or CPU."""
    crowd = []
    for _ in range(400):
        s = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET, socket.SOCK_STREAM)
        s.connect(address)
        crowd.append(s)
    worst = 0.0
    for i in range(20):
        for s in crowd:
            try:
                s.send(b"GET /metrics HTTP/1.1\r\n"[i : i + 1])
            except OSError:  # it was sent away
                pass
        watch = Watch()
        equal(beside(address), 200, "an answer beside the crowd")
        worst = max(worst, watch.took())
    check(worst < 2, "an answer took", worst, "s")
    there = len(os.listdir("/proc/%d/fd" % p.pid))
    check(there < 100, "descriptors:", there)
    with open("/proc/%d/status" % p.pid) as f:
        anon = next(int(line.split()[1]) for line in f if line.startswith("RssAnon"))
    check(anon < 16 << 10 or float(os.environ.get("NTX_TEST_SLOW", "1")) > 1, "memory:", anon, "KiB")
    print(
        "400 dripping connections: the longest answer took %.0f ms, %d descriptors, %d KiB"
        % (1000 * worst, there, anon)
    )
    for s in crowd:
        s.close()


def hostile(sock):
    equal(http(sock, b"GET /etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")[0], 404, "another page")
    equal(
        http(sock, b"POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc")[0],
        405,
        "POST",
    )
    get, host, close = b"GET /metrics HTTP/1.1\r\n", b"Host: x\r\n", b"Connection: close\r\n\r\n"
    for what, sent, words in (
        ("two lengths", get + host + b"Content-Length: 0\r\nContent-Length: 3\r\n" + close, "one Content-Length"),
        (
            "a length and chunks",
            get + host + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" + close + b"0\r\n\r\n" + GET,
            "one Content-Length",
        ),
        ("another coding", get + host + b"Transfer-Encoding: gzip\r\n" + close, "'chunked'"),
        ("two Hosts", get + host + host + close, "one Host"),
        ("no Host", get + close, "Host header is missing"),
        ("a length that is none", get + host + b"Content-Length: -1\r\n" + close, "no number"),
        ("a body", get + host + b"Content-Length: 3\r\n" + close + b"abc", "no body"),
        ("a control character", get + host + b"X: a\x01\r\n" + close, "control"),
        ("a header without a name", get + host + b": a\r\n" + close, "no name"),
        ("no name, no value", get + host + b":\r\n" + close, "no name"),
        ("LF ends each line", (get + host + close).replace(b"\r", b""), "LF alone"),
        ("LF ends a header", get + b"Host: x\n" + close, "LF alone"),
        ("LF ends the last header", get + b"Host: x\n\r\n", "LF alone"),
        ("LF is the empty line", get + host + b"\n", "LF alone"),
    ):
        status, head, body = http(sock, sent)
        equal(
            (status, (head + body).count("HTTP/1.1 400"), words in body),
            (400, 1, True),
            "%s: %s %s" % (what, head, body),
        )
    for bad in (b"\x00\xff" * 2000, b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 200000 + b"\r\n\r\n", b""):
        try:
            status = http(sock, bad)[0]
        except OSError:
            status = 0
        check(status in (0, 400, 413, 414, 431), "garbage was answered with", status)


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-metrics-") as tmp, Daemons() as d:
        model = make_model(
            os.path.join(tmp, "m.gguf"),
            "--layers",
            "6",
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
        sock = os.path.join(tmp, "m.sock")
        p = serve(d, "unix:" + sock)
        equal(parse(http(sock, GET)[2])[1].get("ntx_model_info"), None, "no model yet")
        c = d.client()
        c.load(model, ram_bytes=16 << 20, ctx=256)
        stats = json.loads(c.ask("Once upon a time", ignore_eos=True, max_tokens=20, temp=0.0).stats)
        status, head, text = http(sock, GET)
        equal(status, 200, "status")
        check("text/plain; version=0.0.4" in head, head)
        types, values = parse(text)
        values_of_a_run(values, stats)
        dashboard(types)
        page(text)
        hostile(sock)
        drip(p, sock)
        equal(os.stat(sock).st_mode & 0o777, 0o660, "mode of the socket")
        busy(d, "unix:" + sock, "somebody serves there already")
        equal(http(sock, GET)[0], 200, "after another one wanted the same socket")
        p.kill()
        p.wait()
        p.stderr.close()
        p = serve(d, "unix:" + sock)  # in the place of the one that was killed
        stop(p)
        check(not os.path.exists(sock), "the socket is left behind")
        with open("/dev/full", "w") as full:
            said = subprocess.run([METRICS, "--runtime", d.dir], stdout=full, stderr=subprocess.PIPE, text=True)
        equal((said.returncode, said.stderr.count("\n")), (111, 1), "on a full disk: " + said.stderr)
        once = subprocess.run([METRICS, "--runtime", d.dir], capture_output=True, text=True)
        equal(set(parse(once.stdout)[0]), set(types), "the same on standard output")
        free = socket.socket()
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        p = serve(d, "127.0.0.1:%d" % port)
        equal(http(("127.0.0.1", port), GET)[0], 200, "over TCP")
        drip(p, ("127.0.0.1", port))
        busy(d, "127.0.0.1:%d" % port, "Address already in use")
        c.close()
        prometheus(text, values)
    values = parse(http(("127.0.0.1", port), GET)[2])[1]
    equal((values["ntx_up"], len(values)), (0, 2), "without daemons")
    stop(p)
    for where in ("nowhere", "localhost:80", "127.0.0.1:99999x", "unix:"):
        bad = subprocess.run(
            [METRICS, "--runtime", tempfile.gettempdir(), "--listen", where],
            capture_output=True,
            text=True,
            timeout=10 * patience(),
        )
        check(bad.returncode == 100 and bad.stderr.count("\n") == 1, where, bad.returncode, bad.stderr)


main()
