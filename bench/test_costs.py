#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor seconds of each test, which decide how long tests/run takes: both cores are busy all the while.

    bench/test_costs.py BUILD [REGEX]      runs the tests of a build directory one by one; prints the dearest first

Counts all processes that a test started, also daemons that outlived their parent. ctest knows wall time only.
"""

import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def used():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def reap_orphans():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def cost_of(test, build):
    properties = {p["name"]: p["value"] for p in test["properties"]}
    environment = dict(os.environ, **dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", [])))
    before, begin = used(), time.monotonic()
    code = subprocess.call(
        test["command"],
        env=environment,
        cwd=properties.get("WORKING_DIRECTORY", build),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    reap_orphans()
    return used() - before, time.monotonic() - begin, code, test["name"]


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    build, wanted = os.path.abspath(sys.argv[1]), re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    listed = json.loads(subprocess.check_output(["ctest", "--test-dir", build, "--show-only=json-v1"]))["tests"]
    costs = [cost_of(t, build) for t in listed if "command" in t and wanted.search(t["name"])]
    print("processor s  wall s  code  test")
    for cost in sorted(costs, reverse=True):
        print("%11.2f %7.2f %5d  %s" % cost)
    print("%11.2f all of %d" % (sum(c[0] for c in costs), len(costs)))


if __name__ == "__main__":
    main()
