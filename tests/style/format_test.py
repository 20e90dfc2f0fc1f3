#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All C and CUDA is as clang-format 14 and .clang-format write it. Skipped where that version is not installed."""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.environ["NTX_SOURCE"]
VERSION = "14."
EXEMPT = {"model/codes.h"}  # tables of numbers, made by a tool


def formatter():
    for name in ("clang-format-14", "clang-format"):
        path = shutil.which(name)
        said = path and subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        if said and re.search(r"version " + re.escape(VERSION), said):
            return path
    print("skipped: clang-format %sx is not installed" % VERSION)
    sys.exit(77)


def sources():
    for folder, folders, names in os.walk(SOURCE):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "build")))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), SOURCE)
            if name.endswith((".c", ".h", ".cu", ".cuh")) and path not in EXEMPT:
                yield path


def differs(tool, files):
    """Names of the files that the tool would change."""
    p = subprocess.run([tool, "--dry-run", "-Werror", *files], cwd=SOURCE, capture_output=True, text=True)
    return sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error: code should be clang-formatted", p.stderr, re.M)))


def main():
    tool, files = formatter(), list(sources())
    some = [files[i : i + 20] for i in range(0, len(files), 20)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = [name for names in pool.map(lambda s: differs(tool, s), some) for name in names]
    if len(files) < 500:
        bad.append("only %d files were looked at" % len(files))
    for name in bad:
        print("%s: run clang-format (14) on it" % name)
    print("%d files looked at" % len(files))
    return 1 if bad else 0


sys.exit(main())
