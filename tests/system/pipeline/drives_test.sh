#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Copies of a model on several drives: the same text, read from both, at the sum of their rates; a file that is no copy
# is refused. And --link keeps its rate in the whole pipeline.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/a.gguf" --layers 8 --embd 512 --ff 2048 --heads 8 --kv 2 --type Q8_0 --seed 3
cp "$tmp/a.gguf" "$tmp/b.gguf"
cp "$tmp/a.gguf" "$tmp/c.gguf"
gen() { # STATS TEXT OPTIONS...
    ntx run "$tmp/a.gguf" "Once upon a time" --raw -n 12 --ignore-eos --quiet --stats "$tmp/$1" "${@:3}" >"$tmp/$2" ||
        fail "run ${*:3}"
}
gen s0 t0 --ram 1G
least="--ram 20M --ctx 64 --rows 1"
for also in "--also $tmp/b.gguf" "--also $tmp/b.gguf --also $tmp/c.gguf" "--also $tmp/b.gguf --source pread"; do
    # shellcheck disable=SC2086
    gen s1 t1 $least $also
    same "$tmp/t0" "$tmp/t1" "text with $also"
    [ "$(stat_of "$tmp/s1" bytes_storage)" -gt 10000000 ] || fail "nothing was streamed"
done

# Rates, with each drive at 60 MB/s: one keeps this rate (within 3 % in tests/unit/iod; here with the rest of the
# pipeline), two give twice as much.
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.3f", a / b}'; }
within() { awk -v x="$1" -v lo="$2" -v hi="$3" 'BEGIN {exit !(x >= lo && x <= hi)}'; }
rate() { # OPTIONS...: bytes per second while decoding
    gen s1 t1 --ram 20M --ctx 64 --rows 1 --link nvme=60M "$@"
    same "$tmp/t0" "$tmp/t1" "text at an emulated rate"
    awk -v b="$(stat_of "$tmp/s1" bytes_read_per_token)" -v t="$(stat_of "$tmp/s1" decode_tok_s)" \
        'BEGIN {printf "%.0f", b * t}'
}
rates_add_up() {
    local try before idle one two three
    for try in 1 2 3; do
        before=$(processors)
        one=$(rate) two=$(rate --also "$tmp/b.gguf") three=$(rate --also "$tmp/b.gguf" --also "$tmp/c.gguf")
        echo "one drive $one B/s, two $two ($(ratio "$two" "$one")), three $three ($(ratio "$three" "$one"))"
        within "$(ratio "$one" 60000000)" 0.9 1.06 && within "$(ratio "$two" "$one")" 1.85 2.15 &&
            within "$(ratio "$three" "$one")" 2.6 3.3 && return
        idle=$(idle_share "$before") # ours take next to nothing at these rates
        [ $try -lt 3 ] && continue
        within "$idle" 0 0.4 || fail "rates do not add up"
        within "$one" 1 63600000 && within "$(ratio "$two" "$one")" 0.1 2.15 &&
            within "$(ratio "$three" "$one")" 0.1 3.3 || fail "more than the emulated rates"
        left_out "others use the processors (idle: $idle): only rates that are too high would have been noticed"
    done
}
if [ "${NTX_TEST_SLOW:-1}" -lt 10 ]; then rates_add_up; else left_out \
    "rates: under TSan computing is slower than these drives"; fi

# These are no copies: other sizes, other bytes, other numbers of parts, no file.
refused() { # WORDS OPTIONS...
    ntx run "$tmp/a.gguf" hello --raw -n 1 "${@:2}" >/dev/null 2>"$tmp/err"
    [ $? = 111 ] || fail "exit code with ${*:2}"
    grep -q "$1" "$tmp/err" || fail "'$1' is not in: $(cat "$tmp/err")"
}
head -c 1000000 "$tmp/a.gguf" >"$tmp/short.gguf"
refused "not copies" --also "$tmp/short.gguf"
cp "$tmp/a.gguf" "$tmp/bad.gguf"
printf '\x55\xaa\x55' | dd of="$tmp/bad.gguf" bs=1 seek=$(($(stat -c %s "$tmp/a.gguf") - 3)) conv=notrunc status=none
refused "differ near byte" --also "$tmp/bad.gguf"
model "$tmp/p.gguf" --layers 8 --embd 512 --ff 2048 --heads 8 --kv 2 --type Q8_0 --seed 3 --split 2
refused "not as many parts" --also "$tmp/p-00001-of-00002.gguf"
refused "nowhere" --also "$tmp/nowhere.gguf"
ntx run "$tmp/a.gguf" --also 1 --also 2 --also 3 --also 4 >/dev/null 2>&1
[ $? = 100 ] || fail "a fourth --also is wrong usage"
finish "copies: the same text from all drives, their rates together"
