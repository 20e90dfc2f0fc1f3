#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Options that users know from other programs: -h, -m, -p, -c, -t, -n -1, `ntx help COMMAND`; errors that name the
# option; the output formats of ntx bench.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 2 --embd 256 --ff 768 --heads 4 --kv 2 --type Q8_0 --seed 7
n=$NTX_BIN/ntx

"$n" run -h >"$tmp/h" && "$n" run --help >"$tmp/help" && "$n" help run >"$tmp/helped" || fail "-h, --help or help"
[ -s "$tmp/h" ] && same "$tmp/h" "$tmp/help" "-h" && same "$tmp/h" "$tmp/helped" "help run"
for o in '-h, --help' '-m, --model=MODEL' '-p, --prompt=TEXT' '-c, --ctx=N' '-t, --threads=N' '-v, --verbose' \
    '-V, --version'; do grep -q -- "$o" "$tmp/h" || fail "run -h lacks $o"; done
[ "$("$n" -h | head -1)" = "$("$n" --help | head -1)" ] && "$n" -h | grep -q 'ntx bench' || fail "ntx -h"
for p in ntx-top ntx-metrics ntx-gateway; do "$NTX_BIN/$p" -h | grep -q '^Usage: ' || fail "$p -h"; done
python3 - "$n" "$NTX_SOURCE" <<'PY' || fail "--help, --help-all"
import re, subprocess, sys
ntx, source = sys.argv[1:]
out = lambda *a: subprocess.run([ntx, *a], capture_output=True, text=True, check=True).stdout
main = out("--help").splitlines()
assert len(main) <= 60 and max(map(len, main)) <= 80, (len(main), max(main, key=len))
assert [l for l in main if re.fullmatch("[A-Z][a-z]+:", l)] == ["Run:", "Serve:", "Models:", "Measure:", "Tools:"], main
commands = [m[1] for l in main if (m := re.match("  ntx ([a-z-]+) ", l))]
table = open(source + "/client/commands/table.c", encoding="utf-8").read()
named = re.findall(r'\{NTX_KIND_[A-Z]+,\s*"([a-z-]+)"', table)
assert sorted(commands) == sorted(named) and len(set(commands)) == len(commands) > 20, (commands, named)
options = lambda text: set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text.split("Examples:")[0]))
usual, every = set(), set()
for c in commands:
    short, all = out(c, "--help"), out(c, "--help-all")
    lines = short.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80, (c, len(lines), max(lines, key=len))
    assert {"--help", "--help-all", "--version"} <= options(short) <= options(all), (c, options(short) - options(all))
    usual |= options(short)
    every |= options(all)
run = out("run", "--help")
for c in commands:
    examples = out(c, "--help").split("Examples:\n")[1].splitlines()
    assert sum(1 for l in examples if re.search(r"\bntx %s\b" % c, l)) >= 2, (c, examples)
hidden = {"--skip-verify", "--chunk", "--ring", "--fault", "--trace-experts", "--kernel", "--source", "--link"}
assert not hidden & options(run) and hidden <= options(out("run", "--help-all")), hidden & options(run)
def table_options(path):
    text = open(source + "/" + path, encoding="utf-8").read()
    return set("--" + n for n in re.findall(r'^    \{"([a-z][a-z0-9-]*)", (?:0|\'.\'), ', text, re.M))
declared = table_options("client/options_table.c") | table_options("proto/settings_load.c")
assert len(declared) > 100 and declared <= every, declared - every
brief = open(source + "/client/options_brief.c", encoding="utf-8").read()
briefs = set("--" + n for n in re.findall(r'\{NTX_OPT_[A-Z]+, "([a-z0-9-]+)"', brief))
assert briefs <= usual and len(briefs) > 50, briefs - usual
PY
"$n" run x y --skip-verify 2 --chunk 1M --fault x -m z -p w 2>&1 | grep -q 'given twice' ||
    fail "an option of --help-all is not parsed"

greedy="--raw --temp 0 --ignore-eos --ram 64M --quiet"
"$n" run "$tmp/m.gguf" "Once upon" $greedy --ctx 32 --threads 1 -n 5 >"$tmp/want" || fail "the long way"
"$n" run -m "$tmp/m.gguf" -p "Once upon" $greedy -c 32 -t 1 -n 5 --stats "$tmp/s" >"$tmp/got" || fail "the short way"
same "$tmp/want" "$tmp/got" "-m -p -c -t"
[ "$(stat_of "$tmp/s" threads)" = 1 ] && grep -q '"ctx": 32' "$tmp/s" || fail "-t 1 -c 32: $(cat "$tmp/s")"
"$n" run "Once upon" -m "$tmp/m.gguf" $greedy -c 32 -n 5 >"$tmp/got" && same "$tmp/want" "$tmp/got" "PROMPT -m"
"$n" run "$tmp/m.gguf" -p "Once upon" $greedy -c 32 -n 5 >"$tmp/got" && same "$tmp/want" "$tmp/got" "MODEL -p"
"$n" run "$tmp/m.gguf" "Once upon" $greedy -c 32 -n -1 --stats "$tmp/s" >/dev/null || fail "-n -1"
[ "$(stat_of "$tmp/s" finish)" = length ] && [ "$(stat_of "$tmp/s" generated_tokens)" -gt 20 ] ||
    fail "-n -1: $(cat "$tmp/s")"
"$n" inspect -m "$tmp/m.gguf" | grep -q 'GGUF version' || fail "inspect -m"

# wrong PATTERN ARGUMENT...: exit 100 and the pattern
wrong() {
    local pattern=$1 code; shift
    "$n" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; code=$?
    [ $code = 100 ] && grep -q -- "$pattern" "$tmp/err" || fail "$*: exit $code: $(cat "$tmp/err") lacks $pattern"
}
m=$tmp/m.gguf
wrong "^ntx run: --ram: 'lots' is not a size" run "$m" x --ram lots
wrong "^ntx run: -n: '-3' is not a whole number" run "$m" x -n -3
wrong "^ntx run: --ctx: '0' is not" run "$m" x -c 0
wrong "^ntx run: --threads: '99999999' is more than" run "$m" x -t 99999999
wrong "^ntx run: --temp: 'hot' is not a number from 0 to 100" run "$m" x --temp hot
wrong "^ntx run: --seed: 'x' is not a seed" run "$m" x --seed x
wrong "^ntx run: --backend: 'tpu' is not" run "$m" x --backend tpu
wrong "^ntx run: --link: 'usb=3' is not" run "$m" x --link usb=3
wrong "^ntx run: --skip-kv: 'x' is not a way to keep KV at skipped layers; there are hole and propagate" run "$m" x \
    --skip-kv x
wrong "^ntx run: --kv-type: 'q5_0' is not a type of keys and values; .* f16, q8_0 and q4_0; did you mean q8_0?" run \
    "$m" x --kv-type q5_0
wrong "^ntx bench: --output: 'xml' is not a form" bench "$m" -o xml
wrong "^ntx bench: --prompt: '16,' is not a list" bench "$m" -p 16,
wrong "^ntx bench: -n: '0' is not a whole number of at least 1" bench "$m" -n 4,0
"$NTX_BIN/ntx-top" --interval x 2>&1 | grep -q "^ntx-top: --interval: 'x' is not a number" ||
    fail "ntx-top names no option"
wrong "given twice" run "$m" x -m "$m" -p y
wrong "'frobnicate' is not a command" help frobnicate

# "Did you mean": commands, options, words and models; sizes without a unit.
wrong "^ntx: 'statsu' is not a command; did you mean ntx status?" statsu
wrong "^ntx: 'bnech' is not a command; did you mean ntx bench?" help bnech
wrong "^ntx run: there is no option '--tempp'; did you mean --temp?" run "$m" x --tempp 1
wrong "^ntx chat: there is no option '--ram'" chat --ram 3G
wrong "^ntx run: there is no option '-y'" run "$m" x -y
wrong "^ntx run: --kv-type: 'q8' is not .*; did you mean q8_0?" run "$m" x --kv-type q8
wrong "^ntx bench: --output: 'cvs' is not .*; did you mean csv?" bench "$m" -o cvs
wrong "^ntx run: --ram: '3' has no unit and would be bytes; did you mean 3G?" run "$m" x --ram 3
wrong "^ntx quantize: --split: '700' has no unit .*; did you mean 700M?" quantize "$m" y Q8_0 --split 700
wrong "^ntx: config: 'chek' is no action of it; did you mean ntx config check?" config chek
for d in ntx-computed:--check-confg:--check-config ntx-iod:--runtim2:--runtime ntx-predictor:--alife-fd:--alive-fd \
    ntx-top:--jsno:--json ntx-metrics:--lisetn:--listen ntx-gateway:--corsss:--cors; do
    IFS=: read -r p given meant <<<"$d"
    "$NTX_BIN/$p" "$given" x >"$tmp/out" 2>"$tmp/err"; code=$?
    [ $code = 100 ] && grep -q "^$p: there is no option '$given'; did you mean $meant?" "$tmp/err" ||
        fail "$p $given: exit $code: $(cat "$tmp/err")"
    [ "$("$NTX_BIN/$p" --help | sed '1,/^Examples:/d' | grep -c "^  .*$p")" -ge 2 ] || fail "$p: two examples"
done
"$NTX_BIN/ntx-computed" --log-level inof 2>&1 | grep -q 'did you mean info?' || fail "--log-level inof"
# meant PATTERN ARGUMENT...: exit 111 and the pattern
meant() {
    local pattern=$1 code; shift
    XDG_DATA_HOME=$tmp/data "$n" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; code=$?
    { [ $code = 111 ] || [ $code = 100 ]; } && grep -q -- "$pattern" "$tmp/err" ||
        fail "$*: exit $code: $(cat "$tmp/err") lacks $pattern"
}
mkdir -p "$tmp/data/ntx/models/some/Tiny-GGUF" "$tmp/models"
cp "$m" "$tmp/data/ntx/models/some/Tiny-GGUF/Tiny-Q8_0.gguf"
cp "$m" "$tmp/models/kitten.gguf"
for c in "run -p x" plan up serve load inspect bench; do
    # shellcheck disable=SC2086 # a command and its options
    meant "did you mean $tmp/models/kitten.gguf?" $c "$tmp/models/kiten.gguf"
    # shellcheck disable=SC2086
    meant "did you mean some/Tiny-GGUF:Q8_0?" $c some/Tiny-GGFU:Q8_0
done
meant "^ntx: 'Tinny-GGUF' is no model of .ntx list.; did you mean Tiny-GGUF?" rm Tinny-GGUF
meant "did you mean Q4_K_M?" quantize "$m" "$tmp/out.gguf" Q4_KM
meant "did you mean lookup?" run "$m" x --draft lookpu
meant "did you mean chatml?" run "$m" x --ram 64M --chat-template chatlm
meant "did you mean predictive?" run "$m" x --ram 64M --skip predictiv

for d in ntx-top ntx-metrics ntx-gateway ntx-computed ntx-iod ntx-predictor; do
    "$NTX_BIN/$d" -h >"$tmp/h" 2>&1 && "$NTX_BIN/$d" --help | cmp -s - "$tmp/h" || fail "$d -h: $(head -2 "$tmp/h")"
done

"$n" bench "$m" -p 16,32 -n 4 -r 3 -t 2 --ram 64M >"$tmp/md" 2>"$tmp/err" || fail "bench: $(cat "$tmp/err")"
python3 - "$n" "$m" "$tmp/md" <<'PY' || fail "bench: $(cat "$tmp/md")"
import csv, json, subprocess, sys
ntx, model, md = sys.argv[1:]
rows = [[c.strip() for c in l.strip().strip("|").split("|")] for l in open(md, encoding="utf-8") if l.startswith("|")]
assert rows[0] == ["model", "size", "type", "backend", "threads", "test", "tok/s"], rows[0]
assert set("".join(rows[1])) <= set("-:"), rows[1]
assert len({len(l) for l in open(md, encoding="utf-8") if l.startswith("|")}) == 1, "columns are not aligned"
assert [r[5] for r in rows[2:]] == ["pp16", "pp32", "tg4 @ d16"], rows
for r in rows[2:]:
    assert r[0] == "random" and r[2] == "Q8_0" and r[3:5] == ["cpu", "2"] and r[1].endswith("iB"), r
    mean, spread = r[6].split(" ± ")
    assert float(mean) > 0 and float(spread) >= 0, r
def bench(*more):
    command = [ntx, "bench", model, "-r", "3", "--ram", "64M", *more]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
j = json.loads(bench("-p", "8", "-n", "4,6", "-o", "json"))
tests = [(r["test"], r["prompt_tokens"], r["generated_tokens"]) for r in j]
assert tests == [("pp8", 8, 0), ("tg4 @ d8", 8, 4), ("tg6 @ d8", 8, 6)], j
for r in j:
    v = r["tok_s_samples"]
    mean = sum(v) / 3
    assert len(v) == 3 and abs(r["tok_s"] - mean) < 1e-6 * mean, r
    assert [r["tok_s_min"], r["tok_s_median"], r["tok_s_max"]] == sorted(v), r
    assert abs(r["tok_s_stddev"] - (sum((x - mean) ** 2 for x in v) / 2) ** 0.5) < 1e-6 * mean, r
c = list(csv.DictReader(bench("-p", "8", "-n", "4", "-o", "csv").splitlines()))
tests = [(r["test"], r["type"], r["prompt_tokens"]) for r in c]
assert tests == [("pp8", "Q8_0", "8"), ("tg4 @ d8", "Q8_0", "8")] and float(c[0]["tok_s"]) > 0, c
one, = [json.loads(l) for l in bench("-p", "8", "-n", "4", "--json").splitlines()]
assert one["runs"] == 3 and one["prompt_tokens"] == 8 and one["generated_tokens"] == 4, one
assert one["decode_tok_s_min"] <= one["decode_tok_s"] <= one["decode_tok_s_max"], one
assert len(bench("-p", "8,9", "-n", "4", "--json").splitlines()) == 2
tests = [r["test"] for r in json.loads(bench("-p", "8", "-n", "1,3", "-o", "json"))]
assert tests == ["pp8", "tg3 @ d8"], "a single token that comes with its prompt has no rate"
one, = [json.loads(l) for l in bench("-p", "8", "-n", "1", "--json").splitlines()]
assert one["generated_tokens"] == 1 and one["prefill_tok_s"] > 0, one
assert not [k for k in one if k.startswith("decode_tok_s")], one
# the statistics have the load that the machine's profile was measured under, and a busy one's is a warning
import os
cache = os.path.join(os.path.dirname(md), "cache")
os.makedirs(cache + "/ntx")
profile = {"ntx_profile": 1, "source": "measured", "cpu": {"threads": 2}, "ram": {"gb_s": 10},
           "kernels": [{"type": "*", "rows": 1, "gb_s": 10}, {"type": "*", "rows": 64, "gflops": 50}]}
for load in (1.25, 0.25):
    with open(cache + "/ntx/profile.json", "w") as f:
        json.dump({**profile, "load": load}, f)
    out = subprocess.run([ntx, "bench", model, "-p", "8", "-n", "2", "-r", "1", "--ram", "64M", "--json"], check=True,
                         stdout=subprocess.PIPE, text=True, env={**os.environ, "XDG_CACHE_HOME": cache}).stdout
    one = json.loads(out)
    assert one["profile_load"] == load and one["predicted_tok_s"] > 0, one
    assert ("a load of 1.2 per processor" in one.get("warning", "")) == (load > 1), one
PY
echo "hands find what they are used to"
