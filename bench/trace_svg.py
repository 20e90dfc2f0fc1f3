#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace_svg.py TRACE.json OUT.svg [--ms LENGTH] [--at SECONDS]: a picture of a piece of an `ntx run --trace` file.

Above, all of the time between two tokens, as shares of each pixel. Below, the last LENGTH ms before a token (or those
from SECONDS on), slice by slice: the reads under way, each slot of the ring, layers, waits, tokens.
"""

import argparse
import json

W, LEFT, RIGHT, ROW, SLOT = 1000, 92, 12, 9, 5
COLOUR = {
    "read": "#1f5fa8",
    "fill": "#7fb2e5",
    "ready": "#e6e6e6",
    "use": "#2e8b57",
    "layer": "#2e8b57",
    "wait": "#c0392b",
    "pass": "#8e5ea2",
    "token": "#b8860b",
}


def load(path):
    """{(process name, thread name): [(begin, end, name)]} in seconds."""
    names, tracks = {}, {}
    events = json.load(open(path))["traceEvents"]
    for e in events:
        if e["ph"] == "M":
            names[(e["name"], e["pid"], e["tid"])] = e["args"]["name"]
    for e in events:
        if e["ph"] == "X":
            key = names[("process_name", e["pid"], 0)], names[("thread_name", e["pid"], e["tid"])]
            tracks.setdefault(key, []).append((e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6, e["name"]))
    return tracks


def kind(process, thread, name):
    if process.startswith("drive"):
        return "read"
    if process == "ring":
        return name.split()[0]
    return {"layers": "layer", "waits": "wait", "passes": "pass"}.get(thread, "token")


class Panel:
    def __init__(self, out, begin, end, y):
        self.out, self.begin, self.end, self.y = out, begin, end, y

    def x(self, t):
        return LEFT + (min(max(t, self.begin), self.end) - self.begin) / (self.end - self.begin) * (W - LEFT - RIGHT)

    def title(self, text):
        self.out.append(f'<text x="{LEFT}" y="{self.y + 12}" font-weight="bold">{text}</text>')
        self.y += 20

    def label(self, text, height):
        self.out.append(f'<text x="{LEFT - 6}" y="{self.y + height / 2 + 4:.1f}" text-anchor="end">{text}</text>')

    def row(self, slices, process, thread, height):
        """One rectangle per slice, narrow neighbours of a colour joined."""
        last = None
        for t0, t1, name in sorted(slices):
            if t1 < self.begin or t0 > self.end:
                continue
            a, b, c = self.x(t0), max(self.x(t1), self.x(t0) + 0.25), COLOUR[kind(process, thread, name)]
            if last and last[2] == c and a - last[1] < 0.3 and b - last[0] < 2:
                last[1] = max(b, last[1])
                continue
            if last:
                self.rect(last, height)
            last = [a, b, c]
        if last:
            self.rect(last, height)
        self.y += height + 1

    def rect(self, r, height):
        gap = 0.3 if r[1] - r[0] > 1.5 else 0
        self.out.append(
            f'<rect x="{r[0]:.1f}" y="{self.y:.1f}" width="{r[1] - r[0] - gap:.2f}" height="{height}" fill="{r[2]}"/>'
        )

    def share(self, slices, colour, height, most=1.0):
        """How much of each pixel is covered (by how many), as an area."""
        n = W - LEFT - RIGHT
        sums, step = [0.0] * n, (self.end - self.begin) / n
        for t0, t1, _ in slices:
            t0, t1 = max(t0, self.begin), min(t1, self.end)
            i = int((t0 - self.begin) / step)
            while i < n and self.begin + i * step < t1:
                lo = self.begin + i * step
                sums[i] += max(0.0, min(t1, lo + step) - max(t0, lo)) / step
                i += 1
        y0 = self.y + height
        points = " ".join(f"{LEFT + i},{y0 - min(v / most, 1) * height:.1f}" for i, v in enumerate(sums))
        self.out.append(f'<polygon points="{LEFT},{y0} {points} {W - RIGHT},{y0}" fill="{colour}"/>')
        self.y += height + 3

    def axis(self):
        step = next(
            s
            for s in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
            if (self.end - self.begin) / s <= 10
        )
        k = 0
        while k * step <= self.end - self.begin:
            x, t = self.x(self.begin + k * step), k * step * 1000
            self.out.append(
                f'<text x="{x:.1f}" y="{self.y + 12}" text-anchor="middle" fill="#666">{t:g}{" ms" if k else ""}</text>'
            )
            k += 1
        self.y += 22


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trace")
    p.add_argument("out")
    p.add_argument("--ms", type=float, default=40)
    p.add_argument("--at", type=float)
    p.add_argument("--slots", type=int, default=24)
    o = p.parse_args()
    tracks = load(o.trace)
    reads = [s for (p, _), ss in tracks.items() if p.startswith("drive") for s in ss]
    computed = {t: ss for (p, t), ss in tracks.items() if p == "ntx-computed"}
    passes, waits = computed["passes"], computed.get("waits", [])
    tokens = next(ss for t, ss in computed.items() if t.startswith("session"))
    token = tokens[len(tokens) // 2]
    out = []
    a = Panel(out, token[0], token[1], 4)
    a.title(f"One token, {1000 * (token[1] - token[0]):.0f} ms")
    a.label("drive reads", 22)
    a.share(reads, COLOUR["read"], 22, most=3)
    a.label("computing", 22)
    a.share(computed["layers"], COLOUR["layer"], 22)
    a.y -= 25
    a.share(waits, COLOUR["wait"], 22)
    a.axis()
    begin = o.at if o.at is not None else token[1] - o.ms / 1000 * 0.75
    b = Panel(out, begin, begin + o.ms / 1000, a.y + 4)
    b.title(f"{o.ms:g} ms of it, around the token's end: the drive goes on reading for the next one")
    seen = lambda slices: any(t1 > b.begin and t0 < b.end for t0, t1, _ in slices)
    lanes = sorted(
        (t for (p, t), ss in tracks.items() if p.startswith("drive") and seen(ss)), key=lambda t: int(t.split()[1])
    )
    b.label("reads", (ROW + 1) * len(lanes))
    for t in lanes:
        b.row(next(ss for (p, k), ss in tracks.items() if p.startswith("drive") and k == t), "drive", t, ROW)
    b.y += 5
    slots = sorted((t for (p, t), ss in tracks.items() if p == "ring" and seen(ss)), key=lambda t: int(t.split()[1]))[
        : o.slots
    ]
    b.label("ring slots", (SLOT + 1) * len(slots))
    for t in slots:
        b.row(tracks[("ring", t)], "ring", t, SLOT)
    b.y += 5
    for t, slices in (("layers", computed["layers"]), ("waits", waits), ("passes", passes), ("tokens", tokens)):
        b.label(t, ROW)
        b.row(slices, "ntx-computed", t, ROW)
    b.axis()
    x = LEFT
    for name, text in (
        ("read", "a read"),
        ("fill", "slot: being filled"),
        ("ready", "ready"),
        ("use", "in use; a layer"),
        ("wait", "computing waits"),
        ("pass", "pass"),
        ("token", "token"),
    ):
        out.append(
            f'<rect x="{x}" y="{b.y}" width="10" height="10" fill="{COLOUR[name]}" stroke="#999"'
            f' stroke-width="0.4"/><text x="{x + 14}" y="{b.y + 9}">{text}</text>'
        )
        x += 30 + 6.2 * len(text)
    h = b.y + 20
    with open(o.out, "w") as f:
        f.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {h:.0f}" width="{W}" height="{h:.0f}"'
            ' font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(out)
            + "\n</svg>\n"
        )


if __name__ == "__main__":
    main()
