#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The .deb that cpack makes: its files, that its programs run, that each man page names all options of --help-all, and
# completion works.
. "$(dirname "$0")/../../lib/test.sh"
command -v cpack dpkg-deb dpkg-shlibdeps >/dev/null || skip "no cpack, dpkg-deb or dpkg-shlibdeps"
sanitized && skip "a package of sanitized programs is no package"
(cd "$NTX_BUILD" && cpack -B "$tmp/pkg") >"$tmp/log" 2>&1 || fail "cpack: $(cat "$tmp/log")"
deb=$(ls "$tmp"/pkg/ntx_*.deb) || fail "no .deb: $(cat "$tmp/log")"
dpkg-deb -x "$deb" "$tmp/x" && dpkg-deb -e "$deb" "$tmp/control" || fail "dpkg-deb"
for f in usr/bin/ntx{,-top,-metrics,-gateway,-computed,-iod,-predictor} \
    usr/lib/systemd/system/ntx{.target,.slice,-computed.service,-iod.service,-predictor.service} \
    usr/lib/systemd/system/ntx{-metrics.service,-gateway.service} \
    usr/lib/sysusers.d/ntx.conf usr/lib/tmpfiles.d/ntx.conf etc/ntx/ntx.conf usr/share/bash-completion/completions/ntx \
    usr/share/ntx/grafana.json \
    usr/share/doc/ntx/{README.md,copyright,deploy/README.md,docs/operating.md,docs/http-api.md} \
    usr/share/doc/ntx/docs/{usage/speculation.md,top.svg}; do
    [ -s "$tmp/x/$f" ] || fail "$f is not in the package"
done
"$NTX_SOURCE"/tests/style/docs_test.py "$tmp/x/usr/share/doc/ntx" >"$tmp/docs" ||
    fail "documents of the package: $(cat "$tmp/docs")"
grep -q '^License: Apache-2.0' "$tmp/x/usr/share/doc/ntx/copyright" && grep -q 'Apache License' "$NTX_SOURCE/LICENSE" ||
    fail "copyright"
! find "$tmp/x" -path '*mkmodel*' | grep . || fail "a test program is in the package"
grep -qx /etc/ntx/ntx.conf "$tmp/control/conffiles" || fail "ntx.conf is no conffile"
for s in postinst prerm postrm; do sh -n "$tmp/control/$s" || fail "$s"; done
for lib in libuv1 liburing2 libnanomsg5 libc6 libcurl; do grep -q "^Depends:.*$lib" "$tmp/control/control" ||
    fail "does not depend on $lib: $(cat "$tmp/control/control")"; done
grep -q '^ExecStart=/usr/bin/ntx-computed .*--config /etc/ntx/ntx.conf' \
    "$tmp/x/usr/lib/systemd/system/ntx-computed.service" || fail "the unit's paths"

model "$tmp/m.gguf" --layers 2 --embd 64 --ff 128 --heads 2 --kv 1 --type Q8_0 --seed 3
"$tmp/x/usr/bin/ntx" run "$tmp/m.gguf" Once --raw --ignore-eos -n 4 --ram 64M --ctx 64 \
    --quiet >"$tmp/out" 2>"$tmp/err" || fail "the packaged ntx: $(cat "$tmp/err")"

commands=$("$tmp/x/usr/bin/ntx" --help | sed -n 's/^  ntx \([a-z-]*\) .*/\1/p')
if [ -d "$tmp/x/usr/share/man" ]; then
    for c in $commands; do
        page=$tmp/x/usr/share/man/man1/ntx-$c.1.gz
        [ -s "$page" ] || fail "no man page for ntx $c"
        zcat "$page" | sed 's/\\-/-/g' >"$tmp/page"
        grep -q "^\.TH NTX-${c^^} " "$tmp/page" || fail "title of ntx-$c(1): $(grep '^.TH' "$tmp/page")"
        for o in $("$tmp/x/usr/bin/ntx" "$c" --help-all | grep -o -- ' --[a-z][a-z-]*'); do
            grep -q -- "$o" "$tmp/page" || fail "ntx-$c(1) lacks $o"
        done
    done
else
    left_out "no help2man here: no man pages"
fi

# shellcheck disable=SC1090,SC1091,SC2034
complete_line() { # WORD...: what the last one is completed to
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _ntx
    printf '%s\n' "${COMPREPLY[@]}"
}
. "$tmp/x/usr/share/bash-completion/completions/ntx"
[ "$(complete_line "$tmp/x/usr/bin/ntx" ru)" = run ] ||
    fail "completion of 'ru': $(complete_line "$tmp/x/usr/bin/ntx" ru)"
complete_line "$tmp/x/usr/bin/ntx" run --tem | grep -qx -- --temp || fail "completion of 'run --tem'"
[ "$(complete_line "$tmp/x/usr/bin/ntx" help benc)" = bench ] || fail "completion of 'help benc'"
[ "$(complete_line "$tmp/x/usr/bin/ntx" run --backend c | tr '\n' ' ')" = "cpu cuda " ] ||
    fail "completion of 'run --backend c'"
[ "$(complete_line "$tmp/x/usr/bin/ntx" run --prefetch '' | tr '\n' ' ')" = "on off " ] ||
    fail "completion of 'run --prefetch'"
[ "$(complete_line "$tmp/x/usr/bin/ntx" run --kv-type q | tr '\n' ' ')" = "q8_0 q4_0 " ] ||
    fail "completion of 'run --kv-type q'"
export XDG_DATA_HOME=$tmp/data
mkdir -p "$XDG_DATA_HOME/ntx/models/some/Tiny-GGUF"
cp "$NTX_SOURCE/models/demo-draft.gguf" "$XDG_DATA_HOME/ntx/models/some/Tiny-GGUF/Tiny-Q8_0.gguf"
for command in run serve rm; do
    [ "$(complete_line "$tmp/x/usr/bin/ntx" $command so)" = some/Tiny-GGUF:Q8_0 ] || fail "completion of '$command so'"
done
finish "$(basename "$deb"): $(stat -c %s "$deb") bytes, $(echo $commands | wc -w) commands"
