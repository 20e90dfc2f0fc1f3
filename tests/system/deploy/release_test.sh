#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tarball and the image of deploy/release, made of this build (deploy/bundle.sh): the same bytes twice; no path of
# this machine; they run where there is only glibc, from any directory, and write the text that this build writes. With
# io_uring refused, as containers have it, they say so and write it too. The image is a valid OCI layout.
. "$(dirname "$0")/../../lib/test.sh"
sanitized && skip "a release of sanitized programs is no release"
command -v readelf strip dpkg-query >/dev/null || skip "no binutils or dpkg here"
[ "$(dpkg --print-architecture)" = amd64 ] || skip "releases are built on amd64"
[ -e /usr/share/ca-certificates/mozilla ] && [ -e /lib/terminfo ] || skip "no ca-certificates or ncurses-base here"
[ "$(printf '%s\n' "$(getconf GNU_LIBC_VERSION | sed 's/.* //')" 2.36 | sort -V | tail -n 1)" = 2.36 ] ||
    skip "a release is built with glibc 2.36 at most"
. "$NTX_SOURCE/deploy/packages.sh"
. "$NTX_SOURCE/deploy/bundle.sh"
set -e
export SOURCE_DATE_EPOCH=1700000000 LC_ALL=C.UTF-8 TZ=UTC
umask 022
bundle_architecture amd64
bundle_sysroot ''
mkdir "$tmp/1" "$tmp/2"
for i in 1 2; do
    bundle_stage "$NTX_BUILD" 9.9 "$tmp/work$i"
    bundle_tarball "$tmp/$i/ntx.tar.gz"
    bundle_image "$tmp/$i/image.tar"
    sleep 1.1 # so that no time of now is the same
done
set +e
same "$tmp/1/ntx.tar.gz" "$tmp/2/ntx.tar.gz" "the tarball made twice"
same "$tmp/1/image.tar" "$tmp/2/image.tar" "the image made twice"

# ---- the tarball
where="$tmp/base/some where"
mkdir -p "$where" "$tmp/base"/{proc,dev,tmp} && bundle_glibc "$tmp/base" &&
    tar -xf "$tmp/1/ntx.tar.gz" -C "$where" || fail "tar"
ntx=$where/ntx-9.9-linux-amd64
for f in bin/ntx bin/ntx-computed lib/ntx/libcurl.so.4 lib/ntx/libuv.so.1 lib/ntx/libgcc_s.so.1 etc/ntx/ntx.conf \
    share/doc/ntx/README.md share/doc/ntx/copyright share/doc/ntx/libraries/libuv1.copyright \
    share/bash-completion/completions/ntx; do
    [ -s "$ntx/$f" ] || fail "$f is not in the tarball"
done
[ "$(find "$ntx/lib/ntx" -name '*.so*' | wc -l)" -ge "$(find "$ntx/share/doc/ntx/libraries" | wc -l)" ] &&
    ! ls "$ntx/lib/ntx" | grep -E '^(libc|libm|ld-linux.*)\.so' || fail "libraries: $(ls "$ntx/lib/ntx")"
"$NTX_SOURCE"/tests/style/docs_test.py "$ntx/share/doc/ntx" >"$tmp/docs" || fail "documents: $(cat "$tmp/docs")"

# ---- the image
mkdir "$tmp/oci" "$tmp/image" && tar -xf "$tmp/1/image.tar" -C "$tmp/oci" || fail "tar"
python3 - "$tmp/oci" >"$tmp/layer" <<'END' || fail "the OCI layout: $(cat "$tmp/layer")"
import gzip, hashlib, json, os, sys
at = sys.argv[1]
def blob(d):
    with open(os.path.join(at, "blobs", *d["digest"].split(":")), "rb") as f:
        data = f.read()
    assert len(data) == d["size"] and "sha256:" + hashlib.sha256(data).hexdigest() == d["digest"], d
    return data
def load(name):
    with open(os.path.join(at, name)) as f:
        return json.load(f)
assert load("oci-layout") == {"imageLayoutVersion": "1.0.0"}
manifest = json.loads(blob(load("index.json")["manifests"][0]))
config = json.loads(blob(manifest["config"]))
layer = gzip.decompress(blob(manifest["layers"][0]))
assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
assert (config["architecture"], config["os"], config["created"]) == ("amd64", "linux", "2023-11-14T22:13:20Z")
docker = load("manifest.json")[0]
assert docker["Layers"] == ["blobs/" + manifest["layers"][0]["digest"].replace(":", "/")]
assert docker["Config"] == "blobs/" + manifest["config"]["digest"].replace(":", "/")
assert os.path.lexists(os.path.join(at, docker["Layers"][0]))
print(os.path.join(at, docker["Layers"][0]))
END
tar -xzf "$(cat "$tmp/layer")" -C "$tmp/image" || fail "tar"
tar -tvzf "$(cat "$tmp/layer")" | awk '$2 != "0/0" {print; bad = 1} END {exit bad}' || fail "owners in the image"
for f in usr/bin/ntx usr/lib/ntx/libuv.so.1 lib64/ld-linux-x86-64.so.2 etc/ssl/certs/ca-certificates.crt \
    usr/share/terminfo/x/xterm usr/share/doc/ntx/libraries/libc6.copyright; do
    [ -s "$tmp/image/$f" ] || fail "$f is not in the image"
done
! grep -rlaF -e "$NTX_BUILD" -e "$tmp" "$tmp/image/usr/bin" "$tmp/image/usr/lib/ntx" || fail "a path of this machine"

# ---- both run, where there is nothing else
[ "$(id -u)" = 0 ] && unshare --mount --pid --fork true 2>/dev/null || {
    left_out "not run: needs root and namespaces"
    finish
    exit
}
demo=$NTX_SOURCE/models/demo.gguf
run=(run /tmp/m.gguf "Once upon a time" --raw --temp 0 -n 16 --ram 14M --ctx 64 --draft off)
"$NTX_BIN/ntx" run "$demo" "${run[@]:2}" --quiet >"$tmp/want" || fail "run here"
# there ROOT COMMAND...: by $1 of the caller's `through`, such as no_uring.py
through=()
there() {
    local root=$1
    shift
    unshare --mount --pid --fork --kill-child bash -c 'root=$0 && mount -t proc proc "$root/proc" &&
        mount --rbind /dev "$root/dev" && mount -t tmpfs tmpfs "$root/tmp" && touch "$root/tmp/m.gguf" &&
        mount --bind "$1" "$root/tmp/m.gguf" && shift && exec "$@"' \
        "$root" "$demo" /usr/bin/env -i PATH=/usr/bin HOME=/tmp LC_ALL=C.UTF-8 \
        NTX_HUB=http://127.0.0.1:1 "${through[@]}" \
        /usr/sbin/chroot "$root" "$@"
}
mkdir -p "$tmp/image"/{proc,dev}
path=${ntx#"$tmp/base"}
there "$tmp/base" "$path/bin/ntx" "${run[@]}" --quiet >"$tmp/got" 2>"$tmp/err" ||
    fail "the tarball's ntx, with glibc alone: $(cat "$tmp/err")"
same "$tmp/want" "$tmp/got" "the tarball's text"
there "$tmp/image" /usr/bin/ntx "${run[@]}" --quiet >"$tmp/got" 2>"$tmp/err" || fail "the image: $(cat "$tmp/err")"
same "$tmp/want" "$tmp/got" "the image's text"
# libcurl is opened at run time
there "$tmp/image" /usr/bin/ntx pull hf:a/b >"$tmp/out" 2>&1 &&
    fail "a pull without a hub"
grep -qi 'connect' "$tmp/out" && ! grep -q libcurl "$tmp/out" || fail "libcurl in the image: $(cat "$tmp/out")"

# ---- io_uring refused
through=("$NTX_SOURCE/tests/system/pipeline/no_uring.py")
for _ in 1 2 3 4 5; do # ntx-iod tells it beside the load, whose end may come first
    there "$tmp/image" /usr/bin/ntx "${run[@]}" >"$tmp/got" 2>"$tmp/err"
    rc=$?
    [ $rc != 77 ] || { left_out "no filter of system calls can be set here"; break; }
    [ $rc = 0 ] || fail "without io_uring: $(cat "$tmp/err")"
    ! grep -q 'io_uring is refused here: Operation not permitted' "$tmp/err" || break
done
[ $rc = 77 ] || grep -q 'io_uring is refused here: Operation not permitted' "$tmp/err" ||
    fail "io_uring refused: it does not say so: $(cat "$tmp/err")"
[ $rc = 77 ] || same "$tmp/want" "$tmp/got" "the text without io_uring"
finish "tarball $(stat -c %s "$tmp/1/ntx.tar.gz") bytes, image $(stat -c %s "$tmp/1/image.tar") bytes, the same twice"
