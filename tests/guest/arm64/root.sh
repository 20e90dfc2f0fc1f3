#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# root.sh DIRECTORY [PACKAGE...]: makes of DIRECTORY a root of this machine's distribution for 64-bit Arm: the libraries
# that ntx is built against, and these packages with what they depend on. Unpacked only, nothing of it runs; apt works
# on lists of its own in DIRECTORY.apt, so that this machine's packages and architectures stay as they are, and no right
# is needed. NTX_SUITE: of that release of the distribution instead, and the packages only.
set -eu
. "$(dirname "$(realpath "$0")")/../../../deploy/packages.sh"
root=$(realpath -m "$1") own=$(realpath -m "$1").apt
shift
mkdir -p "$root/usr"/{lib,bin,sbin} "$own"/{state/lists,cache/archives}/partial "$own/unpacked"
for d in lib bin sbin; do ln -sfn usr/$d "$root/$d"; done # before anything lies there
: >"$own/status"
sources=()
libraries=
if [ "${NTX_SUITE:-}" ]; then
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | head -n 1)
    echo "deb $archive $NTX_SUITE main" >"$own/sources.list"
    sources=(-o "Dir::Etc::sourcelist=$own/sources.list" -o Dir::Etc::sourceparts=-)
else
    for p in $ntx_build_packages; do
        case $p in *-dev) libraries+=" $p" ;; esac
    done
fi
apt_arm64() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$own/state" \
        -o Dir::State::status="$own/status" -o Dir::Cache="$own/cache" -o APT::Sandbox::User= \
        "${sources[@]}" "$@"
}
[ "$(find "$own/state/lists" -maxdepth 1 -name '*_Packages*' -mmin -1440)" ] || apt_arm64 update # a day old at most
# shellcheck disable=SC2086 # a list of words
apt_arm64 install -y --no-install-recommends --download-only $libraries "$@"
# DIRECTORY.apt/dpkg tells dpkg-shlibdeps (DPKG_ADMINDIR) which package a library of this root is of.
info=$own/dpkg/info
mkdir -p "$info" && echo 1 >"$info/format" # names with architectures
for deb in "$own"/cache/archives/*.deb; do
    done=$own/unpacked/$(basename "$deb")
    [ ! -e "$done" ] || continue
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink --no-same-owner
    name=$(dpkg-deb -f "$deb" Package)
    [ "$(dpkg-deb -f "$deb" Multi-Arch)" != same ] || name+=:arm64
    rm -rf "$own/control" && dpkg-deb -e "$deb" "$own/control"
    for f in symbols shlibs; do
        [ ! -e "$own/control/$f" ] || mv "$own/control/$f" "$info/$name.$f"
    done
    dpkg-deb --fsys-tarfile "$deb" | tar -t | sed "s|^\./\(usr/\)\{0,1\}|$root/usr/|;s|/\$||" >"$info/$name.list"
    { dpkg-deb -f "$deb" Package Architecture Multi-Arch Version &&
        printf 'Status: install ok installed\nMaintainer: none\nDescription: none\n\n'; } >>"$own/dpkg/status"
    : >"$done"
done
