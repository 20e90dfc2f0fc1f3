#!/bin/sh
# man.sh BIN OUT: man pages from the programs' own --help, by help2man: ntx(1) and a page for each of its commands, ntx-top(1),
# ntx-metrics(1), ntx-gateway(1), and the daemons in section 8. Prints nothing when all is well.
set -eu
bin=$1 out=$2
mkdir -p "$out/man1" "$out/man8"
page() { # SECTION NAME WHAT PROGRAM
    help2man --no-info --no-discard-stderr --section="$1" --name="$3" --output="$out/man$1/$2.$1" "$4"
    # help2man takes the first word of the usage, "ntx", for the name of all of them
    sed -i "1,5{s/^\.TH [^ ]* /.TH $(echo "$2" | tr a-z A-Z) /;s/^[a-z-]* \\\\- /$2 \\\\- /}" "$out/man$1/$2.$1"
    gzip -9nf "$out/man$1/$2.$1"
}
page 1 ntx "run language models that are bigger than memory" "$bin/ntx"
page 1 ntx-top "what the ntx daemons do right now" "$bin/ntx-top"
page 1 ntx-metrics "the ntx daemons' counters for Prometheus" "$bin/ntx-metrics"
page 1 ntx-gateway "ntx over HTTP, as other programs speak it" "$bin/ntx-gateway"
page 8 ntx-computed "the ntx daemon that computes" "$bin/ntx-computed"
page 8 ntx-iod "the ntx daemon that reads from the drive" "$bin/ntx-iod"
page 8 ntx-predictor "the ntx daemon that predicts" "$bin/ntx-predictor"
# help2man wants a program: one that is `ntx COMMAND`
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$bin/ntx" --help | sed -n 's/^  ntx \([a-z]*\) .*/\1/p' | while read -r command; do
    printf '#!/bin/sh\ncase $1 in --version) exec "%s/ntx" --version;; esac\nexec "%s/ntx" %s "$@"\n' "$bin" "$bin" "$command" >"$tmp/ntx-$command"
    chmod +x "$tmp/ntx-$command"
    page 1 "ntx-$command" "the command $command of ntx" "$tmp/ntx-$command"
done
