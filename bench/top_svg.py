#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""top_svg.py OUT.svg [--size 80x24] [--seconds 3] -- ntx-top [options]: a picture of ntx-top after some seconds.

Needs python3-pyte, which emulates the terminal.
"""

import argparse
import fcntl
import html
import os
import pty
import select
import signal
import struct
import termios
import time

import pyte

CELL_W, CELL_H, PAD = 8.4, 18, 12
COLOUR = {
    "default": "#d8dee9",
    "black": "#3b4252",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "yellow": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#eceff4",
}
PAPER = "#1e222a"


def watch(command, columns, lines, seconds):
    """The screen that the command has drawn after so many seconds."""
    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp(command[0], command)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            stream.feed(os.read(fd, 65536))
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    return screen


def runs(row, columns):
    """[(first column, text, colour, bold, reverse)]: neighbours of one look together."""
    out = []
    for x in range(columns):
        c = row[x]
        look = (c.fg, c.bold, c.reverse)
        if out and out[-1][2:] == look:
            out[-1] = (out[-1][0], out[-1][1] + c.data, *look)
        else:
            out.append((x, c.data, *look))
    return [r for r in out if r[1].strip() or r[4]]


def svg(screen):
    w, h = screen.columns * CELL_W + 2 * PAD, screen.lines * CELL_H + 2 * PAD
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="monospace" font-size="14">'
        % (w, h),
        '<rect width="100%%" height="100%%" rx="8" fill="%s"/>' % PAPER,
    ]
    for y in range(screen.lines):
        for x, text, fg, bold, reverse in runs(screen.buffer[y], screen.columns):
            left, base, ink = (
                PAD + x * CELL_W,
                PAD + y * CELL_H,
                COLOUR.get(fg, "#" + fg if len(fg) == 6 else COLOUR["default"]),
            )
            if reverse:
                out.append(
                    '<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>'
                    % (left, base, len(text) * CELL_W, CELL_H, ink)
                )
                ink = PAPER
            out.append(
                '<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s"%s xml:space="preserve">%s</text>'
                % (left, base + 14, len(text) * CELL_W, ink, ' font-weight="bold"' if bold else "", html.escape(text))
            )
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out")
    p.add_argument("--size", default="80x24")
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("command", nargs="+")
    a = p.parse_args()
    columns, lines = map(int, a.size.split("x"))
    with open(a.out, "w") as f:
        f.write(svg(watch(a.command, columns, lines, a.seconds)))


if __name__ == "__main__":
    main()
