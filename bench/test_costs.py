#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor seconds of each test, which decide how long tests/run takes: both cores are busy all the while.

    bench/test_costs.py [-j N] BUILD [REGEX]    runs N tests (1) of a build directory at a time; the dearest come first

Counts all processes that a test started, also daemons that outlived their parent. ctest knows wall time only.
A sanitized build runs what tests/run runs there: no test that is labelled slow or plain.
"""

import argparse
import ctypes
import json
import multiprocessing
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


def become_reaper():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cost_of(test):
    """Runs in a process that runs one test at a time, so that all processes that it reaps belong to this test."""
    properties = {p["name"]: p["value"] for p in test["properties"]}
    environment = dict(os.environ, **dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", [])))
    before, begin = used(), time.monotonic()
    code = subprocess.call(
        test["command"],
        env=environment,
        cwd=properties.get("WORKING_DIRECTORY"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    reap_orphans()
    return used() - before, time.monotonic() - begin, code, test["name"]


def sanitized(build):
    with open(f"{build}/CMakeCache.txt") as cache:
        return re.search("^NTX_SANITIZE:STRING=.", cache.read(), re.M) is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", type=int, default=1, help="tests at a time")
    parser.add_argument("build")
    parser.add_argument("regex", nargs="?", default="")
    options = parser.parse_args()
    build, wanted = os.path.abspath(options.build), re.compile(options.regex)
    chosen = ["-LE", "slow|plain"] if sanitized(build) else []
    listed = json.loads(subprocess.check_output(["ctest", "--test-dir", build, "--show-only=json-v1", *chosen]))[
        "tests"
    ]
    tests = [t for t in listed if "command" in t and wanted.search(t["name"])]
    costs = []
    with multiprocessing.Pool(options.j, become_reaper) as pool:
        for cost in pool.imap_unordered(cost_of, tests):
            costs.append(cost)
            print("%d of %d" % (len(costs), len(tests)), cost, file=sys.stderr, flush=True)
    print("processor s  wall s  code  test")
    for cost in sorted(costs, reverse=True):
        print("%11.2f %7.2f %5d  %s" % cost)
    print("%11.2f all of %d" % (sum(c[0] for c in costs), len(costs)))


if __name__ == "__main__":
    main()
