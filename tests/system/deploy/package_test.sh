#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The .deb that cpack makes: its files, that its programs run, and its man pages.
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

# Documents exist where the units, the programs, the configuration and the man pages refer to them. Paths are those of
# an
# installation in /usr.
exists() { # PAGE(SECTION) or a path of the documentation
    case $1 in
    *\(*) name=${1%(*} section=${1#*(}; ls "$tmp/x/usr/share/man/man${section%)}/$name.${section%)}"* >/dev/null 2>&1 ;;
    /usr/* | /etc/*) [ -e "$tmp/x$1" ] ;;
    *) [ -e "$tmp/x/usr/share/doc/ntx/$1" ] ;;
    esac
}
sed -n 's/^Documentation=//p' "$tmp"/x/usr/lib/systemd/system/ntx* | tr ' ' '\n' | sed 's/^[a-z]*://' >"$tmp/named"
[ "$(wc -l <"$tmp/named")" -ge 10 ] || fail "the units name no documents: $(cat "$tmp/named")"
documents='(docs|deploy|models|predictor)/[A-Za-z0-9_/-]+\.md|(README|SECURITY|CONTRIBUTING|CHANGELOG)\.md'
documents+='|/usr/share/doc/ntx/[A-Za-z0-9_./-]*[a-z]|/etc/ntx/[a-z]+\.conf'
grep -ohaE "$documents" "$tmp"/x/usr/bin/* "$tmp/x/etc/ntx/ntx.conf" >>"$tmp/named"
if [ -d "$tmp/x/usr/share/man" ]; then
    zcat "$tmp"/x/usr/share/man/man?/* | sed 's/\\f.//g;s/\\-/-/g' |
        grep -oE "ntx[a-z-]*\([1-8]\)|$documents" >>"$tmp/named"
else
    sed -i '/(/d' "$tmp/named"
fi
sort -u "$tmp/named" >"$tmp/names"
while read -r name; do exists "$name" || fail "$name is referred to, and is not in the package"; done <"$tmp/names"

model "$tmp/m.gguf" --layers 2 --embd 64 --ff 128 --heads 2 --kv 1 --type Q8_0 --seed 3
"$tmp/x/usr/bin/ntx" run "$tmp/m.gguf" Once --raw --ignore-eos -n 4 --ram 64M --ctx 64 \
    --quiet >"$tmp/out" 2>"$tmp/err" || fail "the packaged ntx: $(cat "$tmp/err")"

# Man pages: one for each program and command, with all options of --help-all, and without complaints.
commands=$("$tmp/x/usr/bin/ntx" --help | sed -n 's/^  ntx \([a-z-]*\) .*/\1/p')
man=$tmp/x/usr/share/man
page() { # SECTION NAME: unpacks it to $tmp/page, checked for what every page has
    local title=${2^^} part
    [ -s "$man/man$1/$2.$1.gz" ] || fail "no man page $2($1)"
    zcat "$man/man$1/$2.$1.gz" >"$tmp/roff" && sed 's/\\-/-/g' "$tmp/roff" >"$tmp/page"
    grep -q "^\.TH $title $1 [0-9-]* \"ntx " "$tmp/page" || fail "title of $2($1): $(grep '^.TH' "$tmp/page")"
    grep -q "^$2 - [a-zA-Z]" "$tmp/page" || fail "$2($1): its NAME"
    for part in NAME SYNOPSIS DESCRIPTION EXAMPLES FILES "SEE ALSO"; do
        grep -qx "\.SH $part" "$tmp/page" || fail "$2($1) lacks $part"
    done
    if command -v mandoc >/dev/null; then
        mandoc -T lint -W style "$tmp/roff" >"$tmp/lint" 2>&1 || fail "$2($1): $(cat "$tmp/lint")"
    fi
    if command -v man >/dev/null; then
        man --warnings -E UTF-8 -l "$tmp/roff" 2>&1 >/dev/null | grep . && fail "$2($1): groff warns"
    fi
}
for c in $commands; do
    page 1 "ntx-$c"
    for o in $("$tmp/x/usr/bin/ntx" "$c" --help-all | grep -o -- ' --[a-z][a-z-]*'); do
        grep -q -- "$o" "$tmp/page" || fail "ntx-$c(1) lacks $o"
    done
done
for p in 1.ntx-top 1.ntx-metrics 1.ntx-gateway 8.ntx-computed 8.ntx-iod 8.ntx-predictor; do
    page ${p%%.*} ${p#*.}
    for o in $("$tmp/x/usr/bin/${p#*.}" --help | grep -o -- ' --[a-z][a-z-]*'); do
        grep -q -- "$o" "$tmp/page" || fail "${p#*.}(${p%%.*}) lacks $o"
    done
done
page 1 ntx
for c in $commands; do grep -q "^.fBntx $c " "$tmp/page" || fail "ntx(1) lacks $c"; done
page 5 ntx.conf
for key in $(sed -n 's/^#\([a-z_]*\) =.*/\1/p' "$NTX_SOURCE/deploy/ntx.conf"); do
    grep -q "^.fB$key =" "$tmp/page" || fail "ntx.conf(5) lacks $key"
done
[ "$(find "$man" -name '*.gz' | wc -l)" = $(($(echo "$commands" | wc -w) + 8)) ] || fail "other man pages"
command -v mandoc >/dev/null || left_out "no mandoc here: man pages are not checked by it"

# Completion: completion_test.py tries it; here are the files' places.
for f in bash-completion/completions/ntx zsh/vendor-completions/_ntx fish/vendor_completions.d/ntx.fish; do
    [ -s "$tmp/x/usr/share/$f" ] || fail "$f is not in the package"
done
finish "$(basename "$deb"): $(stat -c %s "$deb") bytes, $(echo $commands | wc -w) commands"
