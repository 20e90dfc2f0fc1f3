#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks cmake/rooms, which says which room's headers another room may include.

Every #include of product code is one that its room may have; the list has no unused entry and no unnamed circle.
Message types are used only at the edge, tensor names only in their table, and the name of a GPU's interface only in the
plug-in and in the table of back ends. Header guards are named after the header's path. Within a room no circle of
modules (a .c file with its header, and the header that its parts share) has more than a few. Other programs use only
those rooms of a daemon that are declared a library; of tests/ the benches use tests/lib alone.
"""

import collections
import os
import re
import sys

SOURCE = os.environ["NTX_SOURCE"]
GENERATED = {"proto/ntx.pb-c.h"}
CIRCLE_MOST = 4  # modules: a file of AVX-512 and what it gives to others
WIRE = re.compile(
    r"proto/|computed/main|computed/(server|workers)/|computed/engine/(reply_queue|reply)\.|iod/|predictor/|"
    r"client/(?!quantize|delta|doctor)"
)  # who knows messages
NAMED = re.compile(r"model/tensors\.h|model/arch/")  # who names tensors: the table, and what tells an architecture
TENSORS = set(re.findall(r'"([\w.]+\.(?:weight|bias))"', open(os.path.join(SOURCE, "model/tensors.h")).read()))
may, circles, libraries = {}, [], set()
for line in open(os.path.join(SOURCE, "cmake", "rooms")):
    words = line.split("#")[0].split()
    if words and words[0] == "circle":
        circles.append(set(words[1:]))
    elif words and words[0] == "library":
        libraries.update(words[1:])
    elif words:
        may[words[0]] = set(words[1:])

bad = []
used = collections.defaultdict(set)
module_uses = collections.defaultdict(set)
files = 0


def module(path):
    return re.sub(r"(_impl)?\.\w+$", "", path)


for room in may:
    for name in sorted(os.listdir(os.path.join(SOURCE, room))):
        if not name.endswith((".c", ".h", ".cu")):
            continue
        files += 1
        with open(os.path.join(SOURCE, room, name)) as f:
            text = f.read()
        place = "%s/%s" % (room, name)
        if "Ntx__" in text and not WIRE.match(place):
            bad.append("%s knows messages' types" % place)
        if room != "cuda" and place != "common/backends.h" and re.search(r'"cuda"', text):
            bad.append("%s goes by the name cuda" % place)
        for tensor in (
            set(
                re.findall(
                    r'"(?:blk\.(?:%u|\d+)\.)?([\w.]+\.(?:weight|bias))"', re.sub(r"/\*.*?\*/", "", text, flags=re.S)
                )
            )
            & TENSORS
        ):
            if not NAMED.match(place):
                bad.append("%s names tensor %s: tensors.h does" % (place, tensor))
        if name.endswith(".h"):
            guard = "NTX_" + re.sub(r"[^A-Z0-9]", "_", ("%s/%s" % (room, name)).upper())
            first = re.search(r"^#ifndef (\w+)\n#define (\w+)\n", text, re.M)
            if first and first.groups() != (guard, guard):
                bad.append("%s/%s: its guard is %s, not %s" % (room, name, first.group(1), guard))
        for path in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M):
            other = os.path.dirname(path)
            module_uses[module("%s/%s" % (room, name))].add(module(path if other else "%s/%s" % (room, path)))
            if not other or other == room:
                continue
            if not os.path.exists(os.path.join(SOURCE, path)) and path not in GENERATED:
                bad.append("%s/%s includes %s, which is no file" % (room, name, path))
            used[room].add(other)
            if other != "common" and other not in may[room]:
                bad.append("%s/%s includes %s: %s may not (cmake/rooms)" % (room, name, path, room))
DAEMONS = ("iod", "computed", "predictor")
borrowed = set()
for room in may:
    for other in sorted(used[room]):
        if other.split("/")[0] in DAEMONS and other.split("/")[0] != room.split("/")[0]:
            borrowed.add(other)
            if other not in libraries:
                bad.append("%s includes %s, which is its daemon's own: no library of cmake/rooms" % (room, other))
bad.extend(
    "%s is a library that nobody else uses: take it out of cmake/rooms" % other
    for other in sorted(libraries - borrowed)
)
for room in may:
    for other in sorted(may[room] - used[room]):
        bad.append("%s no longer needs %s: take it out of cmake/rooms" % (room, other))

for folder, _, names in os.walk(SOURCE):
    room = os.path.relpath(folder, SOURCE)
    if room.split("/")[0] in ("tests", "bench") or any(
        part.startswith((".", "build")) for part in room.split("/") if part != "."
    ):
        continue
    if room not in may and any(name.endswith((".c", ".cu")) for name in names):
        bad.append("%s is a room that cmake/rooms does not know" % room)

for folder, _, names in os.walk(os.path.join(SOURCE, "bench")):
    for name in names:
        if name.endswith((".c", ".h")):
            path = os.path.join(folder, name)
            for other in re.findall(r'^\s*#\s*include\s+"(tests/(?!lib/)[^"]+)"', open(path).read(), re.M):
                bad.append(
                    "%s includes %s: benches have tests/lib, nothing else of tests/"
                    % (os.path.relpath(path, SOURCE), other)
                )


def reaches(a, b, seen):
    """b from a, but not by a circle that is named."""
    for n in used[a]:
        if {a, n} in circles or n in seen:
            continue
        seen.add(n)
        if n == b or reaches(n, b, seen):
            return True
    return False


for room in may:
    if reaches(room, room, set()):
        bad.append("%s is in a circle of rooms" % room)

# Modules in a circle with m: those that it reaches and that reach it.
reached = {m: set() for m in module_uses}
for m in module_uses:
    todo = [m]
    while todo:
        for n in module_uses.get(todo.pop(), ()):
            if n not in reached[m]:
                reached[m].add(n)
                todo.append(n)
circles_found = {frozenset(n for n in reached[m] if m in reached.get(n, ())) for m in reached}
for c in circles_found:
    if len(c) > CIRCLE_MOST:
        bad.append("%d modules include one another in a circle: %s" % (len(c), " ".join(sorted(c))))
if files < 100:
    bad.append("only %d files were looked at" % files)
print("\n".join(bad) or "%d files keep to their rooms, at most %d in a circle" % (files, max(map(len, circles_found))))
sys.exit(1 if bad else 0)
