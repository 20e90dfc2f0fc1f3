#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every test of the build runs by tests/alone, and each folder has at least one that is labelled quick.

tests/alone gives a test directories of its own, passes its exit code on, ends a test that exceeds its time together
with all that it started, and leaves nothing behind.
"""

import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ["NTX_SOURCE"]
ALONE = os.path.join(SOURCE, "tests", "alone")
PLACES = ("TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
ELSEWHERE = {
    "arm64",
    "eval",
    "guest",
    "linux",
    "quantize",
}  # folders of long tests: other machines; eval; quantize, whose quick part is model-quantize
PRINT = (
    "import json, os; print(json.dumps([dict(os.environ), {n: oct(os.stat(os.environ[n]).st_mode & 0o777) for n in"
    " %r}]))" % (PLACES,)
)


def check(ok, *text):
    if not ok:
        sys.exit("FAILED: " + " ".join(map(str, text)))


def alone(*command, **env):
    env = {**os.environ, "TMPDIR": tmp, "NTX_TEST_LIMIT": "", **env}
    return subprocess.run([ALONE, *command], env=env, capture_output=True, text=True)


def test_all():
    """A test that is added in another way would meet the user's own daemons."""
    said = json.loads(
        subprocess.run(
            ["ctest", "--test-dir", os.environ["NTX_BUILD"], "--show-only=json-v1"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    found = said["tests"]
    tests = {t["name"]: t for t in found if "command" in t}
    quick, folders = set(), collections.defaultdict(set)
    check(len(tests) > 100, "only", len(tests), "tests were looked at")
    for name, t in tests.items():
        check(
            os.path.realpath(t["command"][0]) == os.path.realpath(ALONE),
            name,
            "does not run by tests/alone: add it by ntx_add_test, ntx_test or ntx_script_test (cmake/ntx_test.cmake)",
        )
        own = {p["name"]: p["value"] for p in t["properties"]}
        limit = [int(v[len("NTX_TEST_LIMIT=") :]) for v in own["ENVIRONMENT"] if v.startswith("NTX_TEST_LIMIT=")]
        if "quick" in own.get("LABELS", ()):
            quick.add(name)
        folders[folder_of(t, said["backtraceGraph"])].add(name)
        check(
            limit and own["TIMEOUT"] >= 4 * limit[0] + 60,
            name,
            "has no limit by which it ends before ctest ends it:",
            limit,
            own.get("TIMEOUT"),
        )

    left = sorted(f for f, names in folders.items() if f not in ELSEWHERE and not names & quick)
    check(not left, "no test of these folders is quick (cmake/ntx_test.cmake):", left)
    listed = re.search(r"set\(ntx_test_quick\s([^)]*)\)", read(os.path.join(SOURCE, "cmake", "ntx_test.cmake")))
    named = set(listed.group(1).split())
    if sanitized():
        named &= set(tests)  # this build leaves some folders out
    check(not named - quick, "named as quick, and no test, or labelled otherwise:", sorted(named - quick))


def sanitized():
    return bool(re.search(r"^NTX_SANITIZE:\w+=.", read(os.path.join(os.environ["NTX_BUILD"], "CMakeCache.txt")), re.M))


def folder_of(t, graph):
    """Where the CMakeLists.txt lies that added it."""
    at = t["backtrace"]
    while at is not None:
        node = graph["nodes"][at]
        file = graph["files"][node["file"]]
        if file.endswith("CMakeLists.txt"):
            return os.path.basename(os.path.dirname(file))
        at = node.get("parent")
    return ""


def test_places():
    user = {n: "/somewhere" for n in (*PLACES, "NTX_RUNTIME") if n != "TMPDIR"}
    seen = []
    for _ in range(2):
        env, modes = json.loads(alone(sys.executable, "-c", PRINT, **user).stdout)
        check("NTX_RUNTIME" not in env, "the user's NTX_RUNTIME is there")
        for n in PLACES:
            check(env[n].startswith(tmp + "/ntx-t."), n, "is", env[n])
            check(modes[n] == ("0o711" if n == "TMPDIR" else "0o700"), n, "has mode", modes[n])
        seen.append(env["TMPDIR"])
    check(seen[0] != seen[1], "two tests share", seen)
    check(len(seen[0]) - len(tmp) < 16, "a long path leaves sockets no room:", seen)


def test_ends():
    for code in (0, 1, 77):
        check(alone("sh", "-c", "exit %d" % code).returncode == code, "exit code", code)
    mark = "86.%d" % os.getpid()  # seconds that nobody else sleeps
    begin = time.monotonic()
    p = alone("sh", "-c", "(sleep %s & sleep %s & wait) & wait" % (mark, mark), NTX_TEST_LIMIT="1")
    check(p.returncode == 137 and "FAILED: not done within 1 s" in p.stdout, p)
    check(time.monotonic() - begin < 80, "it was not ended:", time.monotonic() - begin)
    asleep = [c for c in glob.glob("/proc/[0-9]*/cmdline") if mark in read(c)]
    check(not asleep, "still there:", asleep)
    check(os.listdir(tmp) == [], "left:", os.listdir(tmp))


def read(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def test_patience():
    """The twins say about the same, at least 1, and more where others want the processors, too."""
    for twin in (
        ["bash", "-c", ". %s/tests/patient.sh; patience" % SOURCE],
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, %r); import patient; print(patient.patience())" % (SOURCE + "/tests"),
        ],
    ):
        alone_, crowd = (
            float(output(twin)),
            [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(3 * (os.cpu_count() or 1))],
        )
        try:
            busy = max(float(output(twin)) for _ in range(3))
        finally:
            for p in crowd:
                p.kill()
                p.wait()
        check(alone_ >= 1 and busy >= 2, twin[0], "said", alone_, "and beside three for each processor", busy)


def output(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


with tempfile.TemporaryDirectory(prefix="h-") as tmp:
    test_all()
    test_places()
    test_ends()
    test_patience()
print("every test runs alone")
