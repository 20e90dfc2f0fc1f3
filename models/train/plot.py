#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot.py: loss curves as a picture (SVG): plot.py OUT.svg NAME=loss.csv ...

Above the loss per token of held-out text, below the share of right held-out answers, both over minutes of training.
"""

import csv
import math
import sys

W, H, LEFT, TOP, GAP = 760, 250, 60, 30, 50
COLOURS = ["#1f5fa8", "#c0392b", "#2e8b57", "#8e5ea2"]


def read(path):
    with open(path) as f:
        rows = list(csv.DictReader(f))
    return [(float(r["seconds"]) / 60, float(r["held_loss"]), float(r["held_answers"])) for r in rows]


def panel(out, runs, column, y0, lo, hi, ticks, title):
    end = max(r[-1][0] for r in runs.values())

    def x(v):
        return LEFT + v / end * (W - LEFT - 20)

    def y(v):
        return y0 + H - (min(max(v, lo), hi) - lo) / (hi - lo) * H

    out.append(f'<text x="{LEFT}" y="{y0 - 8}" font-weight="bold">{title}</text>')
    for t in ticks:
        out.append(f'<line x1="{LEFT}" x2="{W - 20}" y1="{y(t):.1f}" y2="{y(t):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(t) + 4:.1f}" text-anchor="end">{t:g}</text>')
    for m in range(0, math.floor(end) + 1, 10 if end > 60 else 5 if end > 12 else 1):
        out.append(f'<text x="{x(m):.1f}" y="{y0 + H + 16}" text-anchor="middle">{m}</text>')
    for (name, rows), colour in zip(runs.items(), COLOURS):
        points = " ".join(f"{x(r[0]):.1f},{y(r[column]):.1f}" for r in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')


def main():
    runs = {name: read(path) for name, path in (a.split("=", 1) for a in sys.argv[2:])}
    out = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{W}" height="{2 * H + TOP + 2 * GAP}"'
            ' font-family="sans-serif" font-size="12">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    panel(out, runs, 1, TOP, 0.5, 2.5, [0.5, 1, 1.5, 2, 2.5], "held-out loss, nats per token, over minutes of training")
    panel(
        out,
        runs,
        2,
        TOP + H + GAP,
        0,
        1,
        [0, 0.25, 0.5, 0.75, 0.9, 1],
        "held-out answers that are right, teacher-forced",
    )
    for i, name in enumerate(runs):
        out.append(f'<text x="{W - 120}" y="{TOP + 20 + 18 * i}" fill="{COLOURS[i]}" font-weight="bold">{name}</text>')
    with open(sys.argv[1], "w") as f:
        f.write("\n".join(out + ["</svg>", ""]))


if __name__ == "__main__":
    main()
