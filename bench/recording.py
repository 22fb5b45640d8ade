"""``python -m bench.recording [FILE]`` records `ottla cluster --watch` while a broker is killed and comes back.

The file is an animated SVG, ``docs/cluster-watch.svg`` by default. It needs Java for ZooKeeper, as ``make cluster``.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import socket
import struct
import sys
import tempfile
import termios
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from harness.ports import free_port
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from bench.local import LocalCluster
from bench.local_options import read_options
from ottla_client.admin import NewTopic
from ottla_client.sync import Admin, Producer

COLUMNS, ROWS = 84, 26
COMMAND = "ottla cluster --watch --interval 0.5"
# Seconds: healthy, without the broker, and with it again.
BEFORE, AWAY, AFTER = 4.0, 6.0, 6.0
# A still picture at the end, before the recording starts over.
PAUSE = 2.0

# Units of the SVG: a character's width and height, and the margin.
_WIDE, _HIGH, _MARGIN = 8.4, 18, 14
_HOME = b"\x1b[H"
# By the number of the terminal's colour: red, green and yellow.
_COLOURS = {1: "#ff7b72", 2: "#7ee787", 3: "#e3b341"}


@dataclass(frozen=True, slots=True)
class Frame:
    """What the terminal shows from ``at`` seconds on, with escapes."""

    at: float
    text: str


class Terminal:
    """The command in a pseudo-terminal. Each update of its full-screen view begins at the top left."""

    def __init__(self, bootstrap: str) -> None:
        self._began = time.monotonic()
        self._output = b""
        self.frames: list[Frame] = []
        self.pid, self._fd = pty.fork()
        if not self.pid:
            os.environ.update(TERM="xterm-256color", OTTLA_BOOTSTRAP_SERVER=bootstrap)
            os.environ.pop("NO_COLOR", None)
            os.execv(sys.executable, [sys.executable, "-m", "ottla_cli", *COMMAND.split()[1:]])
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def watch(self, seconds: float) -> None:
        """Collect frames for this long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._fd], [], [], left)[0]:
                return
            self._output += os.read(self._fd, 65_536)
            *whole, self._output = self._output.split(_HOME)
            for screen in whole:
                self._add(screen)

    def _add(self, screen: bytes) -> None:
        text = screen.decode().replace("\r\n", "\n").rstrip()
        if "Brokers" in text and (not self.frames or self.frames[-1].text != text):
            self.frames.append(Frame(time.monotonic() - self._began, text))

    def close(self) -> None:
        os.kill(self.pid, signal.SIGINT)
        os.waitpid(self.pid, 0)
        os.close(self._fd)


def record(folder: Path) -> tuple[list[Frame], float]:
    """Run a cluster and kill its second broker. Returns the frames, and the seconds until the end."""
    ports = ["--port", str(_consecutive(3)), "--zookeeper-port", str(free_port()), "--console-port", "0"]
    cluster = LocalCluster(read_options(["--data", str(folder), *ports]))
    try:
        cluster.start()
        with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
            admin.create_topics([NewTopic("flights", partitions=6)])
            producer.send_batch("flights", [b"%d" % number for number in range(100_000)]).result(60)
        terminal = Terminal(cluster.bootstrap)
        try:
            terminal.watch(BEFORE)
            cluster.brokers[1].kill()
            terminal.watch(AWAY)
            cluster.brokers[1].spawn()
            terminal.watch(AFTER)
        finally:
            terminal.close()
        return terminal.frames, BEFORE + AWAY + AFTER
    finally:
        cluster.stop()
        cluster.kill()


def _consecutive(count: int) -> int:
    """The first of some free ports in a row."""
    while True:
        first = free_port()
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
        return first


def draw(frames: list[Frame], seconds: float) -> str:
    """The recording as an SVG, whose frames a style sheet shows in turn."""
    whole = seconds - frames[0].at + PAUSE
    width, height = COLUMNS * _WIDE + 2 * _MARGIN, (ROWS + 1) * _HIGH + 2 * _MARGIN
    ends = [frame.at for frame in frames[1:]]
    styles, groups = [], []
    for number, (frame, end) in enumerate(zip(frames, [*ends, None], strict=True)):
        start = 100 * (frame.at - frames[0].at) / whole
        stop = 100.0 if end is None else 100 * (end - frames[0].at) / whole
        steps = [f"0%,{start:.2f}%{{visibility:hidden}}"] if number else []
        steps.append(f"{start + 0.01 if number else 0:.2f}%,{stop:.2f}%{{visibility:visible}}")
        if end is not None:
            steps.append(f"{stop + 0.01:.2f}%,100%{{visibility:hidden}}")
        styles.append(f"@keyframes f{number}{{{''.join(steps)}}}")
        styles.append(f".f{number}{{animation:f{number} {whole:.1f}s step-end infinite}}")
        groups.append(f'<g class="f{number}"{_hidden(end is not None)}>{_screen(frame.text)}</g>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>{escape(COMMAND)}: a broker is killed and comes back</title>",
            "<style>text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;"
            "white-space:pre}.b{font-weight:bold}.d{opacity:.6}",
            *styles,
            "</style>",
            f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#0d1117"/>',
            _line([Segment("$ ", Style(dim=True)), Segment(COMMAND)], 0),
            *groups,
            "</svg>\n",
        ]
    )


def _hidden(hidden: bool) -> str:
    """Where the style sheet isn't followed, only the last frame shows."""
    return ' visibility="hidden"' if hidden else ""


def _screen(text: str) -> str:
    console = Console(width=COLUMNS, force_terminal=True, color_system="standard")
    lines = Text.from_ansi(text).split("\n")
    return "".join(_line(list(line.render(console)), row) for row, line in enumerate(lines[:ROWS], 1))


def _line(segments: list[Segment], row: int) -> str:
    column = 0
    parts = []
    for segment in segments:
        content = segment.text.rstrip("\n")
        if content.strip():
            x = _MARGIN + column * _WIDE
            length = len(content) * _WIDE
            parts.append(
                f'<tspan x="{x:.1f}" textLength="{length:.1f}"{_look(segment.style)}>{escape(content)}</tspan>'
            )
        column += len(content)
    return f'<text y="{_MARGIN + (row + 0.8) * _HIGH:.1f}">{"".join(parts)}</text>' if parts else ""


def _look(style: Style | None) -> str:
    if style is None:
        return ""
    classes = " ".join(name for name, on in (("b", style.bold), ("d", style.dim)) if on)
    number = None if style.color is None else style.color.number
    colour = None if number is None else _COLOURS.get(number % 8)
    return (f' class="{classes}"' if classes else "") + (f' fill="{colour}"' if colour else "")


def main(arguments: list[str]) -> int:
    target = Path(arguments[0] if arguments else "docs/cluster-watch.svg")
    with tempfile.TemporaryDirectory(prefix="ottla-recording-") as folder:
        frames, seconds = record(Path(folder))
    target.write_text(draw(frames, seconds), encoding="utf-8")
    print(f"{len(frames)} frames, {target.stat().st_size:,} bytes in {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
