# SPDX-License-Identifier: Apache-2.0
# packages.sh: installs missing packages, for quickstart and tests/run. Sourced, not run.
# It needs root or sudo only when a package is missing.

ntx_build_packages="gcc libc6-dev cmake ninja-build pkg-config protobuf-c-compiler liburing-dev libuv1-dev
    libnanomsg-dev libprotobuf-c-dev libpcre2-dev libjansson-dev libutf8proc-dev libinih-dev libncurses-dev libedit-dev
    libmicrohttpd-dev libseccomp-dev libcurl4-openssl-dev nettle-dev libjpeg-dev libpng-dev libwebp-dev libgif-dev
    ca-certificates"

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 111; }

# Prints the packages that are not installed. pkg-config may be provided by a package of another name.
packages_missing() {
    local p
    for p; do
        dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed && continue
        [ "$p" = pkg-config ] && command -v pkg-config >/dev/null && continue
        printf '%s ' "$p"
    done
}

# apt_get ARGUMENT...: runs apt-get by ${root[@]}. While another program holds one of apt's locks, it waits and says so:
# apt itself waits for one of its locks only.
apt_get() {
    local errors code limit=${NTX_APT_LOCK_S:-600} said= holder
    local end=$((SECONDS + limit))
    errors=$(mktemp)
    while :; do
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
            apt-get -q -o DPkg::Lock::Timeout=5 "$@" 2>"$errors" && code=0 || code=$?
        [ "$code" != 0 ] || break
        grep -qE 'Could not get lock|Unable to (lock|acquire)' "$errors" && [ $SECONDS -lt $end ] || break
        if [ -z "$said" ]; then
            holder=$(sed -n 's/.*held by \(process [0-9]* ([^)]*)\).*/\1/p' "$errors" | head -1)
            say "another program holds apt's lock ($holder); waiting for it, $limit s at most"
            said=yes
        fi
        sleep "${NTX_APT_LOOK_S:-5}"
    done
    cat "$errors" >&2
    rm -f "$errors"
    return "$code"
}

# packages_install PACKAGE...: returns 0 when all are installed afterwards.
packages_install() {
    local missing root=()
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "no apt-get here: assuming that these packages are installed: $*"
        return 0
    fi
    missing=$(packages_missing "$@")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { say "missing packages; as root: apt-get install $missing"; return 1; }
        root=(sudo)
    fi
    say "installing $missing"
    # After a failed update (no network, one bad source) the present lists may still suffice.
    apt_get update || say "apt-get update failed; trying with the present lists"
    # shellcheck disable=SC2086 # a list of words
    apt_get install -y --no-install-recommends $missing
}

# configure DIRECTORY [-D...]: configures a build directory, which keeps its generator.
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
