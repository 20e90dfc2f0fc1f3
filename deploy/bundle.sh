# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# bundle.sh: the tarball and the OCI image of deploy/release. Sourced, not run.
#
#   ntx-VERSION-linux-ARCH/bin/        the programs; their DT_RPATH is $ORIGIN/../lib/ntx. It is DT_RPATH, not
#                                      DT_RUNPATH, since it must hold for libraries of libraries and for dlopen too
#                          lib/ntx/    the libraries, all but glibc's, and the CUDA plug-in where it was built
#                          share/      man pages, completion, documents, licences of the libraries
#                          etc/ntx/    ntx.conf
# The image has the same below /usr, and glibc, certificates and descriptions of terminals. No shell, no package
# manager.
bundle_rpath="\$ORIGIN/../lib/ntx"
bundle_glibc_max=2.36

# bundle_architecture amd64|arm64: of what follows
bundle_architecture() {
    bundle_arch=$1
    case $1 in
    amd64) bundle_triplet=x86_64-linux-gnu bundle_tool='' bundle_loader=lib64/ld-linux-x86-64.so.2 ;;
    arm64) bundle_triplet=aarch64-linux-gnu bundle_tool=aarch64-linux-gnu- bundle_loader=lib/ld-linux-aarch64.so.1 ;;
    esac
}

# bundle_sysroot DIRECTORY: where the libraries lie; '': this machine
bundle_sysroot() { bundle_root=$1; }

# bundle_library SONAME: prints its path
bundle_library() {
    local d
    for d in "$bundle_root/usr/lib/$bundle_triplet" "$bundle_root/lib/$bundle_triplet"; do
        [ ! -e "$d/$1" ] || { echo "$d/$1"; return 0; }
    done
    return 1
}

# bundle_of_glibc SONAME: is it glibc's, or the GPU driver's? Such libraries are the target's own.
bundle_of_glibc() {
    case $1 in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | libmvec.so.*) return 0 ;;
    ld-linux* | libcuda.so.*) return 0 ;;
    esac
    return 1
}

# bundle_needed FILE: the libraries that it names
bundle_needed() { readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'; }

# bundle_closure FILE... : the libraries that these files, libcurl (opened at run time) and threads need, sorted
bundle_closure() {
    local todo=("$@") f name
    local -A have=()
    for name in "$(sed -n 's/^NTX_LIBCURL:INTERNAL=//p' "$bundle_build/CMakeCache.txt")" libgcc_s.so.1; do
        have[$name]=1
        todo+=("$(bundle_library "$name")") || die "no library $name"
    done
    while [ ${#todo[@]} -gt 0 ]; do
        f=${todo[0]}
        todo=("${todo[@]:1}")
        [ -e "$f" ] || continue # a pattern without files
        for name in $(bundle_needed "$f"); do
            ! bundle_of_glibc "$name" && [ -z "${have[$name]:-}" ] || continue
            have[$name]=1
            todo+=("$(bundle_library "$name")") || die "no library $name, which $f needs"
        done
    done
    printf '%s\n' "${!have[@]}" | sort
}

# bundle_licences TO LIBRARY...: the copyright files of the packages that they are of, as TO/PACKAGE.copyright
bundle_licences() {
    local to=$1 name package
    shift
    # asked once and by path, since a search by pattern takes minutes; a package may name it below /lib or /usr/lib
    { dpkg-query -S "${@/#/"$bundle_root/usr/lib/$bundle_triplet/"}" "${@/#/"$bundle_root/lib/$bundle_triplet/"}" \
        2>/dev/null || :; } >"$bundle_work/owners"
    for name; do
        package=$(grep -m 1 "/$name\$" "$bundle_work/owners" | sed 's/[:,].*//')
        [ -n "$package" ] && [ -r "$bundle_root/usr/share/doc/$package/copyright" ] ||
            die "no copyright file of $name (package '$package'), whose licence asks for it"
        cp -L "$bundle_root/usr/share/doc/$package/copyright" "$to/$package.copyright"
    done
}

# bundle_stage BUILD VERSION [WORK]: programs, libraries and documents, as they are in the tarball, in WORK
# (BUILD/release), which is emptied
bundle_stage() {
    local to p name most licences
    bundle_build=$(realpath "$1") bundle_version=$2
    bundle_work=${3:-$bundle_build/release} bundle_name=ntx-$2-linux-$bundle_arch
    to=$bundle_work/$bundle_name licences=$to/share/doc/ntx/libraries
    rm -rf "$bundle_work"
    mkdir -p "$to"/{bin,lib/ntx,etc/ntx}
    DESTDIR=$bundle_work/installed cmake --install "$bundle_build" --prefix /usr >"$bundle_work/install.log"
    cp -R "$bundle_work/installed/usr/share" "$to/"
    mkdir "$licences"
    cp "$bundle_work/installed/etc/ntx/ntx.conf" "$to/etc/ntx/"
    for p in "$bundle_work"/installed/usr/bin/*; do
        p=$(basename "$p")
        "${bundle_tool}strip" -o "$to/bin/$p" "$bundle_work/installed/usr/bin/$p"
        readelf -dW "$to/bin/$p" | grep -qF "(RPATH)              Library rpath: [$bundle_rpath]" ||
            die "$p does not look for its libraries at $bundle_rpath: $(readelf -dW "$to/bin/$p" | grep PATH)"
    done
    for p in "$bundle_work"/installed/usr/lib/ntx/*.so; do # plug-ins
        [ ! -e "$p" ] || "${bundle_tool}strip" -o "$to/lib/ntx/$(basename "$p")" "$p"
    done
    bundle_closure "$to"/bin/* "$to"/lib/ntx/* >"$bundle_work/libraries"
    while read -r name; do
        cp -L "$(bundle_library "$name")" "$to/lib/ntx/$name"
        chmod 644 "$to/lib/ntx/$name"
    done <"$bundle_work/libraries"
    # shellcheck disable=SC2046 # names without blanks
    bundle_licences "$licences" $(cat "$bundle_work/libraries")
    most=$(readelf -VW "$to"/bin/* "$to"/lib/ntx/* | grep -o 'GLIBC_2[0-9.]*' | sort -uV | tail -n 1)
    [ "$(printf '%s\n' "${most#GLIBC_}" $bundle_glibc_max | sort -V | tail -n 1)" = $bundle_glibc_max ] ||
        die "these programs need $most, and a release may need $bundle_glibc_max at most: build on Debian 12"
}

# bundle_tar DIRECTORY NAME...: tar to stdout, the same for the same content
bundle_tar() {
    local at=$1
    shift
    tar -c -C "$at" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -- "$@"
}

# bundle_tarball FILE: of what bundle_stage left
bundle_tarball() { bundle_tar "$bundle_work" "$bundle_name" | gzip -6n >"$1"; }

# bundle_glibc TO: glibc and its loader, where programs look for them
bundle_glibc() {
    local to=$1 name
    mkdir -p "$to/usr/lib/$bundle_triplet" "$to/usr/${bundle_loader%/*}"
    for name in lib lib64; do ln -s "usr/$name" "$to/$name"; done
    for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2; do
        cp -L "$(bundle_library "$name")" "$to/usr/lib/$bundle_triplet/"
    done
    cp -L "$bundle_root/$bundle_loader" "$to/usr/$bundle_loader"
    chmod 755 "$to/usr/$bundle_loader"
}

# bundle_root_files TO: the image's files
bundle_root_files() {
    local to=$1
    mkdir -p "$to"/{etc/ssl/certs,tmp,data,usr/share/terminfo}
    cp -R "$bundle_work/$bundle_name"/{bin,lib,share} "$to/usr/"
    cp -R "$bundle_work/$bundle_name/etc" "$to/"
    ln -s usr/bin "$to/bin"
    bundle_glibc "$to"
    bundle_licences "$to/usr/share/doc/ntx/libraries" libc.so.6
    # these are for all architectures, so they are this machine's
    cp -R /lib/terminfo/. "$to/usr/share/terminfo/"
    cat /usr/share/ca-certificates/mozilla/*.crt >"$to/etc/ssl/certs/ca-certificates.crt"
    printf '%s\n' 'root:x:0:0:root:/root:/sbin/nologin' 'ntx:x:65532:65532:ntx:/data:/sbin/nologin' >"$to/etc/passwd"
    printf '%s\n' root:x:0: ntx:x:65532: >"$to/etc/group"
    chmod 1777 "$to/tmp" "$to/data" # any user's: `--user` may name another
}

# bundle_blob DIRECTORY FILE: moves it to its place in an OCI layout; prints its digest
bundle_blob() {
    local sum
    sum=$(sha256sum "$2" | cut -d ' ' -f 1)
    mv "$2" "$1/blobs/sha256/$sum"
    echo "$sum"
}

# bundle_image FILE: an OCI layout in a tar file, of one layer; with docker's manifest.json beside it
bundle_image() {
    local at=$bundle_work/image root=$bundle_work/root version=$bundle_version
    local created diff layer layer_size config config_size manifest size
    bundle_root_files "$root"
    mkdir -p "$at/blobs/sha256"
    created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    bundle_tar "$root" . >"$at/layer"
    diff=$(sha256sum "$at/layer" | cut -d ' ' -f 1)
    gzip -6n "$at/layer"
    layer_size=$(stat -c %s "$at/layer.gz")
    layer=$(bundle_blob "$at" "$at/layer.gz")
    cat >"$at/config" <<END
{"created": "$created", "architecture": "$bundle_arch", "os": "linux",
 "config": {"User": "65532:65532", "WorkingDir": "/data", "Entrypoint": ["/usr/bin/ntx"], "Cmd": ["--help"],
  "Env": ["PATH=/usr/bin", "HOME=/data", "LC_ALL=C.UTF-8", "XDG_DATA_HOME=/data", "XDG_CACHE_HOME=/data"],
  "Volumes": {"/data": {}}, "StopSignal": "SIGTERM",
  "Labels": {"org.opencontainers.image.title": "ntx", "org.opencontainers.image.version": "$version",
   "org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.revision": "$(git rev-parse HEAD)"}},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$diff"]},
 "history": [{"created": "$created", "created_by": "deploy/release"}]}
END
    config_size=$(stat -c %s "$at/config")
    config=$(bundle_blob "$at" "$at/config")
    cat >"$at/manifest" <<END
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
 "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:$config", "size": $config_size},
 "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:$layer",
  "size": $layer_size}]}
END
    size=$(stat -c %s "$at/manifest")
    manifest=$(bundle_blob "$at" "$at/manifest")
    cat >"$at/index.json" <<END
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
 "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:$manifest", "size": $size,
  "platform": {"architecture": "$bundle_arch", "os": "linux"},
  "annotations": {"org.opencontainers.image.ref.name": "ntx:$version"}}]}
END
    echo '{"imageLayoutVersion": "1.0.0"}' >"$at/oci-layout"
    cat >"$at/manifest.json" <<END
[{"Config": "blobs/sha256/$config", "RepoTags": ["ntx:$version"], "Layers": ["blobs/sha256/$layer"]}]
END
    bundle_tar "$at" blobs index.json manifest.json oci-layout >"$1"
}
