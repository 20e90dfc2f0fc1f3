#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds from a bare Debian to the first text of deploy/quickstart.

    bench/quickstart.py [--runs 5] [--suite bookworm] [--mirror URL] [--apt-conf FILE] [--root DIR] [--install]

Needs root, debootstrap and the network. debootstrap makes a root of variant minbase once. Each run copies it and the
committed files of this checkout, and starts deploy/quickstart there, in namespaces of its own. Printed for each run and
as the median: seconds until the packages are there, until the programs are built, until the first text appears, the
difference of the last and the first, and the processor seconds of all of it. --install goes on with
`cmake --install build` and checks that each program, unit, man page and plug-in (where nvcc is) is
there. --root: such a root that was made before. --apt-conf: a file for /etc/apt/apt.conf.d, such as a proxy's. A busy
machine only makes the numbers larger; the load at the start of each run is printed beside them.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ENTER = (
    'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/tmp" && mount -t tmpfs tmpfs "$0/run" && '
    'mount --rbind /dev "$0/dev" && '
    'chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 $2 bash -c "cd /ntx && $1"'
)
COLUMNS = ("packages", "built", "first text", "without packages", "processor s", "load before")


def inside(root, command):
    proxies = " ".join(f"{k}={v}" for k, v in os.environ.items() if k.lower() in ("http_proxy", "https_proxy"))
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "bash",
        "-c",
        ENTER,
        root,
        command,
        proxies,
    ]


def make_root(args, root):
    command = ["debootstrap", "--variant=minbase", args.suite, root] + ([args.mirror] if args.mirror else [])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc/resolv.conf"))
    if args.apt_conf:
        shutil.copy(args.apt_conf, os.path.join(root, "etc/apt/apt.conf.d/"))


def copy_checkout(root):
    os.mkdir(os.path.join(root, "ntx"))
    archive = subprocess.Popen(["git", "-C", TOP, "archive", "HEAD"], stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", os.path.join(root, "ntx")], stdin=archive.stdout, check=True)
    if archive.wait():
        sys.exit("git archive failed")


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def follow(process, begin):
    """Times of the lines that quickstart prints, and its output."""
    marks = ((b"== building into", "packages"), (b"== built,", "built"), (b"\nOnce upon a time", "first text"))
    times, said = {}, b""
    while True:
        some = os.read(process.stdout.fileno(), 65536)
        if not some:
            return times, said
        said += some
        for mark, name in marks:
            if name not in times and mark in said:
                times[name] = time.monotonic() - begin


def run_once(args, bare, root):
    subprocess.run(["cp", "-a", bare, root], check=True)
    copy_checkout(root)
    load, used, begin = os.getloadavg()[0], processor_seconds(), time.monotonic()
    process = subprocess.Popen(inside(root, "deploy/quickstart"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    times, said = follow(process, begin)
    if process.wait() or len(times) != 3:
        sys.exit(f"quickstart: exit code {process.returncode}, reached {list(times)}:\n{said.decode(errors='replace')}")
    times["without packages"] = times["first text"] - times["packages"]
    times["processor s"] = processor_seconds() - used
    times["load before"] = load
    if args.install:
        check_installation(root)
    return times


def check_installation(root):
    command = inside(root, "cmake --install build")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    programs = ["ntx", "ntx-top", "ntx-metrics", "ntx-gateway", "ntx-computed", "ntx-iod", "ntx-predictor"]
    wanted = ["bin/" + p for p in programs] + ["lib/systemd/system/ntx.target", "share/man/man1/ntx.1.gz"]
    if os.path.exists(os.path.join(root, "ntx/build/cuda/cards")):
        wanted.append("lib/ntx/libntx-cuda.so")
    missing = [f for f in wanted if not os.path.exists(os.path.join(root, "usr/local", f))]
    if done.returncode or missing:
        sys.exit(f"cmake --install: exit code {done.returncode}, missing {missing}:\n{done.stdout[-4000:]}")
    kernels = os.path.join(root, "ntx/build/CMakeCache.txt")
    with open(kernels) as f:
        if "NTX_THIS_CPU:BOOL=OFF" not in f.read():
            sys.exit("cmake --install left kernels of other processors out")
    print("cmake --install: complete", flush=True)


def show(name, row):
    print(f"{name:8}" + "".join(f"{row[c]:>18.1f}" for c in COLUMNS), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--mirror")
    parser.add_argument("--apt-conf")
    parser.add_argument("--root")
    parser.add_argument("--install", action="store_true")
    args = parser.parse_args()
    if os.geteuid() != 0 or not (args.root or shutil.which("debootstrap")):
        sys.exit("needs root and debootstrap")
    with tempfile.TemporaryDirectory(prefix="ntx-quickstart-") as tmp:
        bare = args.root or os.path.join(tmp, "bare")
        if not args.root:
            make_root(args, bare)
        print(f"{'run':8}" + "".join(f"{c:>18}" for c in COLUMNS), flush=True)
        rows = []
        for i in range(args.runs):
            root = os.path.join(tmp, "root")
            rows.append(run_once(args, bare, root))
            show(str(i + 1), rows[-1])
            subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)
        show("median", {c: statistics.median(row[c] for row in rows) for c in COLUMNS})


if __name__ == "__main__":
    main()
