# SPDX-License-Identifier: Apache-2.0
# test.sh: functions of the shell tests. Sourced, not run.
# Needs NTX_BIN (as ctest sets it). Makes the directory $tmp, which is removed at exit.
set -u
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../patient.sh"
: "${NTX_BIN:?run through ctest, or set NTX_BIN to build/bin}"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/ntx-test-XXXXXX")
export TMPDIR=$tmp XDG_RUNTIME_DIR=
unset NTX_RUNTIME
cleanup=()
at_exit() { [ "$BASHPID" = $$ ] || return; for c in "${cleanup[@]}"; do eval "$c"; done; rm -rf "$tmp"; }
trap at_exit EXIT
trap 'exit 1' INT TERM

ntx() { "$NTX_BIN/ntx" "$@"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
# left_out WHY: a part of the test cannot run here. Such a test ends by `finish` and counts as skipped, since "passed"
# means all parts.
parts_left=()
left_out() { echo "left out: $*"; parts_left+=("$*"); }
finish() {
    echo "$*"
    [ ${#parts_left[@]} = 0 ] || skip "in part, the rest passed: $(printf '%s; ' "${parts_left[@]}")"
}
same() { cmp -s "$1" "$2" || fail "$3: $1 and $2 differ"; }
sanitized() { nm -D "$NTX_BIN/ntx-computed" 2>/dev/null | grep -q '__asan_init\|__tsan_init'; }
# stat FILE KEY: a number from a --stats file
stat_of() { sed -n "s/^ *\"$2\": *\"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p" "$1" | head -1; }
# wait_for SECONDS COMMAND...: polls until the command succeeds. SECONDS: time on an idle machine. The limit is five
# times as much, and more on a busy machine (patient.sh).
wait_for() {
    local seconds=$1 end=$((SECONDS + 5 * $1)) last=''; shift
    until "$@"; do
        [ -n "$last" ] || [ $SECONDS -lt $end ] || { last=yes; end=$((end + 5 * seconds * ($(patience) - 1))); }
        [ $SECONDS -lt $end ] || return 1
        read -rt 0.02 <> <(:) || :
    done
}
# idle_share BEFORE: idle share of the processors' time since BEFORE (a line that `processors` printed)
processors() { head -1 /proc/stat; }
idle_share() {
    { echo "$1"; processors; } | awk '
        {
            t = 0
            for (i = 2; i <= 9; i++) t += $i
            i0 = idle; t0 = all; idle = $5 + $6; all = t
        }
        END {printf "%.2f", all > t0 ? (idle - i0) / (all - t0) : 1}'
}
# model FILE [mkmodel options]: makes a random model
model() { local out=$1; shift; "$NTX_BIN/ntx-mkmodel" "$@" "$out" >/dev/null || fail "ntx-mkmodel $*"; }
# words BYTES: a prompt of so many bytes, the same each time; a longer one begins with a shorter one. A test takes its
# text from here and not from a document: how its tokens fall decides what a pass reads.
words() {
    local with=(b d f g k l m n p r s t v w st tr) of=(a e i o u ai ea ou)
    local -i x=1
    local text=''
    while [ ${#text} -lt "$1" ]; do
        x=$((x * 16807 % 2147483647))
        text+=${with[x >> 4 & 15]}${of[x >> 8 & 7]}
        [ $((x >> 11 & 3)) -gt 1 ] || text+=' '
    done
    printf %s "${text:0:$1}"
}
# child PID NAME: children of that name of a private run of `ntx`
child() { pgrep -P "$1" -x "$2"; }
gone() { ! kill -0 "$1" 2>/dev/null; }
