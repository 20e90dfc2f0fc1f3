# SPDX-License-Identifier: Apache-2.0
# patient.sh: time limits that grow on a busy machine. Sourced. patient.py and patient.h do the same.

# patience: prints how much longer something takes now than on an idle machine, at least 1. It is the larger of two
# ratios: the shell's wall time to its processor time, and the runnable processes to the processors.
patience() {
    local TIMEFORMAT='%R %U %S' load running took cpus i real user sys all
    took=$( { time for ((i = 0; i < 4000; i++)); do :; done; } 2>&1)
    read -r real user sys <<<"${took//[.,]/}" # in ms
    read -r load _ _ running _ </proc/loadavg
    cpus=$(nproc)
    all=$((10#$user + 10#$sys))
    if [ "$all" -lt 4 ]; then # too short to be measured
        [ "$all" -ge 2 ] || all=2
        [ $((10#$real)) -ge 4 ] || all=4
    fi
    load=$((10#${load%.*} / cpus)) running=$((${running%/*} / cpus)) took=$((10#$real / all))
    [ "$running" -le "$load" ] || load=$running
    [ "$took" -le "$load" ] || load=$took
    echo $((load > 1 ? load : 1))
}
