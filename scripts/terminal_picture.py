"""Record a program in a terminal, and render the recording as an animated SVG.

    python scripts/terminal_picture.py record docs/drawings/demo.cast -- make demo
    python scripts/terminal_picture.py draw docs/drawings/demo.cast docs/drawings/demo.svg

The recording is in asciinema's format, version 2. Viewers without support for animations show the last screen. The same
recording always gives the same SVG.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import json
import os
import pathlib
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from html import escape

SPEED = 4  # playback speed relative to the program
FRAME = 0.8  # seconds of the recording between two frames
LETTER, LINE, MARGIN, HEAD = 7.8, 17, 12, 28  # pixels
STYLE = "text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d8dee9;white-space:pre}"
Cast = list[tuple[float, str]]  # seconds since the start, and the output at that time


def record(command: list[str], columns: int) -> Cast:
    """Run the command in a terminal with this many columns, and copy its output to ours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 50, columns, 0, 0))
    # Variables that make passes to its children are not part of the recorded program.
    environ = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    began, cast, decode = time.monotonic(), [], codecs.getincrementaldecoder("utf-8")("replace").decode
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environ, start_new_session=True)
    os.close(slave)
    while data := _read(master):
        cast.append((round(time.monotonic() - began, 3), decode(data)))
        sys.stdout.write(cast[-1][1])
        sys.stdout.flush()
    if process.wait():
        sys.exit(f"{shlex.join(command)} failed with exit code {process.returncode}; nothing was recorded")
    return cast


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:  # end of file of a terminal on Linux
        return b""


def save(path: pathlib.Path, command: list[str], columns: int, cast: Cast) -> None:
    """Write an asciicast file."""
    head = {"version": 2, "width": columns, "height": 50, "title": shlex.join(command)}
    lines = [head, *([at, "o", text] for at, text in cast)]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def load(path: pathlib.Path) -> tuple[str, int, Cast]:
    """Return the title, the columns and the events of an asciicast file."""
    head, *events = map(json.loads, path.read_text().splitlines())
    return head["title"], head["width"], [(at, text) for at, kind, text in events if kind == "o"]


class Screen:
    """A minimal terminal screen: line ends and erasing lines, without colors."""

    def __init__(self) -> None:
        self.lines, self._column = [""], 0

    def write(self, text: str) -> None:
        """Process the output of a program."""
        for piece in re.findall(r"\x1b\[[\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", text):
            if piece == "\r":
                self._column = 0
            elif piece == "\n":
                self.lines.append("")
            elif piece == "\x1b[K":
                self.lines[-1] = self.lines[-1][: self._column]
            elif piece[0] != "\x1b":
                before, after = self.lines[-1][: self._column], self.lines[-1][self._column + len(piece) :]
                self.lines[-1] = before + piece + after
                self._column += len(piece)


@dataclass
class Shown:
    """A text on a line of the screen, from one time to another; without an end it stays."""

    row: int
    text: str
    begin: float
    end: float | None = None


def shown(cast: Cast) -> list[Shown]:
    """Return the texts of all lines with their times, rounded to frames."""
    screen, found = Screen(), {}
    done: list[Shown] = []
    for number, (at, text) in enumerate(cast):
        screen.write(text)
        is_last = number + 1 == len(cast)
        if not is_last and cast[number + 1][0] // FRAME == at // FRAME:
            continue
        moment = round((cast[-1][0] if is_last else (at // FRAME + 1) * FRAME) / SPEED, 2)
        for row, line in enumerate(screen.lines):
            before = found.get(row)
            if before is None or before.text != line:
                if before is not None:
                    before.end = moment
                found[row] = Shown(row, line, moment)
                done.append(found[row])
    return [each for each in done if each.text.strip()]


def draw(title: str, columns: int, cast: Cast) -> str:
    """Return the SVG."""
    texts = shown(cast)
    rows = 1 + max(each.row for each in texts)
    width, height = columns * LETTER + 2 * MARGIN, rows * LINE + HEAD + 2 * MARGIN
    head = f"$ {title}   ({cast[-1][0]:.0f} s, played {SPEED} times as fast)"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{escape(head)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#20242c"/>',
        f'<rect width="{width:g}" height="{HEAD}" rx="8" fill="#3b4252"/>',
        f'<text x="{MARGIN}" y="19">{escape(head)}</text>',
    ]
    for each in texts:
        place = f'x="{MARGIN}" y="{HEAD + MARGIN + LINE * each.row + 12:g}" xml:space="preserve"'
        lines.append(f"<text {place}{_timed(each)}</text>")
    return "\n".join([*lines, "</svg>", ""])


def _timed(each: Shown) -> str:
    """Return the rest of a text element: its visibility, its animation, and the text."""
    if each.end is None:  # visible without animations
        return f'><set attributeName="opacity" to="0" begin="0s" end="{each.begin:g}s"/>{escape(each.text)}'
    moments = f'begin="{each.begin:g}s" end="{each.end:g}s"'
    return f' opacity="0"><set attributeName="opacity" to="1" {moments}/>{escape(each.text)}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", help="run a command and write a recording of it")
    recording.add_argument("cast", type=pathlib.Path)
    recording.add_argument("--columns", type=int, default=100)
    recording.add_argument("command", nargs="+")
    drawing = actions.add_parser("draw", help="draw a recording")
    drawing.add_argument("cast", type=pathlib.Path)
    drawing.add_argument("svg", type=pathlib.Path)
    args = parser.parse_args()
    if args.action == "record":
        save(args.cast, args.command, args.columns, record(args.command, args.columns))
    else:
        args.svg.write_text(draw(*load(args.cast)))


if __name__ == "__main__":
    main()
