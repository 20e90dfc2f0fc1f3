#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deploy/packages.sh with a fake apt-get: missing packages are installed; it waits for a lock of another program, with a
# message and a limit; any other failure is reported at once.
. "$(dirname "$0")/../../lib/test.sh"
fake=${tmp:?}/bin
mkdir "$fake" || fail "no place for programs"
# Reports a held lock as often as the file `locked` says, one less each time; fails if there is a file `broken`.
cat >"$fake/apt-get" <<'END'
#!/bin/bash
echo "$*" >>"$FAKE/asked"
n=$(cat "$FAKE/locked" 2>/dev/null || echo 0)
if [ "$n" != 0 ]; then
    echo $((n - 1)) >"$FAKE/locked"
    echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4242 (unattended-upgr)" >&2
    exit 100
fi
[ ! -e "$FAKE/broken" ] || { echo "E: Unable to locate package nonsense" >&2; exit 100; }
case $* in *install*) touch "$FAKE/there" ;; esac
END
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ -e "$FAKE/there" ] && echo installed\n' >"$fake/dpkg-query"
printf '#!/bin/sh\nexec "$@"\n' >"$fake/sudo"
chmod +x "$fake/apt-get" "$fake/dpkg-query" "$fake/sudo"
export FAKE=$tmp NTX_APT_LOOK_S=0.1

install() { # packages_install in a shell of its own, which lacks the package
    rm -f "$tmp/asked" "$tmp/there"
    # shellcheck disable=SC2016
    PATH=$fake:$PATH timeout $((60 * $(patience))) bash \
        -euc '. "$NTX_SOURCE/deploy/packages.sh"; packages_install "$@"' packages \
        "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
}
asked() { grep -c -e "$1" "$tmp/asked"; }

install nonsense || fail "nothing in the way: exit $?: $(cat "$tmp/err")"
[ "$(asked update)" = 1 ] && [ "$(asked 'install -y .* nonsense')" = 1 ] ||
    fail "apt-get was asked: $(cat "$tmp/asked")"
grep -q 'apt.s lock' "$tmp/out" && fail "a lock is told that nobody holds: $(cat "$tmp/out")"

echo 3 >"$tmp/locked"
install nonsense || fail "a lock: exit $?: $(cat "$tmp/out" "$tmp/err")"
[ "$(asked update)" = 4 ] && [ "$(asked 'install -y')" = 1 ] || fail "apt-get was asked: $(cat "$tmp/asked")"
[ "$(grep -c "another program holds apt's lock (process 4242 (unattended-upgr)); waiting for it, 600 s at most" \
    "$tmp/out")" = 1 ] || fail "the wait is told: $(cat "$tmp/out")"

echo 1000000 >"$tmp/locked"
NTX_APT_LOCK_S=1 install nonsense && fail "a lock that is never given back: installed"
grep -q 'held by process 4242' "$tmp/err" || fail "a lock that is never given back: $(cat "$tmp/err")"
rm "$tmp/locked"

touch "$tmp/broken"
install nonsense && fail "no such package: installed"
[ "$(asked 'install -y')" = 1 ] && grep -q 'Unable to locate package' "$tmp/err" ||
    fail "another failure: $(cat "$tmp/asked" "$tmp/err")"
finish "apt's lock is waited for"
