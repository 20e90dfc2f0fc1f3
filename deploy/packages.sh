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
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q || say "apt-get update failed; trying with the lists that are there"
    # shellcheck disable=SC2086 # a list of words
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
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
