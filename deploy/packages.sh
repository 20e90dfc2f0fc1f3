# SPDX-License-Identifier: Apache-2.0
# packages.sh: installs what is missing, for quickstart and tests/run. Sourced, not run.
# Where nothing is missing, nothing is done and no right is needed; else root, or sudo.

ntx_build_packages="gcc libc6-dev cmake ninja-build pkg-config protobuf-c-compiler liburing-dev libuv1-dev libnanomsg-dev
    libprotobuf-c-dev libpcre2-dev libjansson-dev libutf8proc-dev libinih-dev libncurses-dev libedit-dev libmicrohttpd-dev libseccomp-dev
    libcurl4-openssl-dev nettle-dev ca-certificates"

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 111; }

# Prints those of the packages that are not installed. Some have another name elsewhere, provided by what is installed.
packages_missing() {
    local p
    for p; do
        dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed && continue
        [ "$p" = pkg-config ] && command -v pkg-config >/dev/null && continue
        printf '%s ' "$p"
    done
}

# apt_get ARGUMENT...: as ${root[@]}. While another program holds a lock of apt's, it is waited for, and said to be:
# apt itself waits for one of its locks only.
apt_get() {
    local errors code end=$((SECONDS + ${NTX_APT_LOCK_S:-600})) said=
    errors=$(mktemp)
    while :; do
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -q -o DPkg::Lock::Timeout=5 "$@" 2>"$errors" && code=0 || code=$?
        [ "$code" != 0 ] && grep -qE 'Could not get lock|Unable to (lock|acquire)' "$errors" && [ $SECONDS -lt $end ] || break
        [ -n "$said" ] || say "another program holds apt's lock ($(sed -n 's/.*held by \(process [0-9]* ([^)]*)\).*/\1/p' "$errors" | head -1)); waiting for it, ${NTX_APT_LOCK_S:-600} s at most"
        said=yes
        sleep "${NTX_APT_LOOK_S:-5}"
    done
    cat "$errors" >&2
    rm -f "$errors"
    return "$code"
}

# packages_install PACKAGE...: 0 when all are there afterwards.
packages_install() {
    local missing root=()
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "no apt-get here: going on in the hope that this is installed: $*"
        return 0
    fi
    missing=$(packages_missing "$@")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { say "missing packages; as root: apt-get install $missing"; return 1; }
        root=(sudo)
    fi
    say "installing $missing"
    # An update that fails (no network, one bad source) may still leave lists that will do.
    apt_get update || say "apt-get update failed; trying with the lists that are there"
    # shellcheck disable=SC2086 # a list of words
    apt_get install -y --no-install-recommends $missing
}

# configure DIRECTORY [-D...]: build/ keeps the generator that it was made with.
configure() {
    local dir=$1 generator=()
    shift
    [ -e "$dir/CMakeCache.txt" ] || generator=(-G Ninja)
    cmake -S . -B "$dir" "${generator[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo "$@" >"$dir.log" 2>&1 || {
        cat "$dir.log"
        die "configuring $dir failed"
    }
    rm -f "$dir.log"
}
