# SPDX-License-Identifier: Apache-2.0
# patient.sh: how many times as long as alone on this machine something takes now, for limits of time. Sourced.
# patient.py and patient.h are its twins.
# The larger of two: what the shell's own time by the clock is to its time of the processor, and the processes that
# want to run to the processors.

# patience: prints a number, at least 1.
patience() {
    local TIMEFORMAT='%R %U %S' load running took cpus i real user sys all
    took=$( { time for ((i = 0; i < 4000; i++)); do :; done; } 2>&1)
    read -r real user sys <<<"${took//[.,]/}" # in ms
    read -r load _ _ running _ </proc/loadavg
    cpus=$(nproc)
    all=$((10#$user + 10#$sys))
    [ "$all" -ge 4 ] || all=$((10#$real < 4 ? 4 : all < 2 ? 2 : all)) # too short to be measured
    load=$((10#${load%.*} / cpus)) running=$((${running%/*} / cpus)) took=$((10#$real / all))
    [ "$running" -le "$load" ] || load=$running
    [ "$took" -le "$load" ] || load=$took
    echo $((load > 1 ? load : 1))
}
