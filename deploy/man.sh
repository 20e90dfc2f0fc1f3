#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# man.sh BIN OUT [EMULATOR...]: makes man pages from the programs' --help, by help2man: ntx(1) and a page for each of
# its commands, ntx-top(1), ntx-metrics(1), ntx-gateway(1), and the daemons in section 8. EMULATOR runs programs of
# another machine. Prints nothing on success.
set -eu
bin=$1 out=$2
shift 2
mkdir -p "$out/man1" "$out/man8"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
page() { # SECTION NAME WHAT PROGRAM [HELP OPTION]
    help2man --help-option="${5:---help}" --no-info --no-discard-stderr --section="$1" --name="$3" \
        --output="$out/man$1/$2.$1" "$4"
    # help2man uses the first word of the usage, "ntx", as the name of every page
    sed -i "1,5{s/^\.TH [^ ]* /.TH $(echo "$2" | tr a-z A-Z) /;s/^[a-z-]* \\\\- /$2 \\\\- /}" "$out/man$1/$2.$1"
    gzip -9nf "$out/man$1/$2.$1"
}
# help2man needs a program of one word, so a script runs it with an emulator or as a command of ntx.
script() { # NAME PROGRAM [COMMAND]
    cat >"$tmp/$1" <<END
#!/bin/sh
case \$1 in --version) exec $emulator "$bin/$2" --version;; esac
exec $emulator "$bin/$2" ${3:-} "\$@"
END
    chmod +x "$tmp/$1"
}
emulator=$*
programs="ntx ntx-top ntx-metrics ntx-gateway ntx-computed ntx-iod ntx-predictor"
for p in $programs; do script "$p" "$p"; done
page 1 ntx "run language models that are bigger than memory" "$tmp/ntx"
page 1 ntx-top "what the ntx daemons do right now" "$tmp/ntx-top"
page 1 ntx-metrics "the ntx daemons' counters for Prometheus" "$tmp/ntx-metrics"
page 1 ntx-gateway "an HTTP server for ntx with the APIs of other servers" "$tmp/ntx-gateway"
page 8 ntx-computed "the ntx daemon that computes" "$tmp/ntx-computed"
page 8 ntx-iod "the ntx daemon that reads from the drive" "$tmp/ntx-iod"
page 8 ntx-predictor "the ntx daemon that predicts" "$tmp/ntx-predictor"
"$tmp/ntx" --help | sed -n 's/^  ntx \([a-z-]*\) .*/\1/p' | while read -r command; do
    script "ntx-$command" ntx "$command"
    page 1 "ntx-$command" "the command $command of ntx" "$tmp/ntx-$command" --help-all
done
