"""``ottla produce`` of lines from a file, and ``ottla consume`` to a file, compared with kcat.

A million lines of 100 B, from the start of the process to its end, with acks=all and four partitions. Without kcat (a
Debian package) only Ottla is measured.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness.brokers import Broker

from bench.context import Bench
from bench.load import BATCH, payloads

_OTTLA = [str(Path(sys.executable).with_name("ottla"))]
_TIMEOUT = 300


def _seconds(command: list[str], output: Path | None = None) -> float:
    """Return the seconds of a command. Raises RuntimeError with its last lines if it fails."""
    began = time.perf_counter()
    with open(output or "/dev/null", "wb") as stdout:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, timeout=_TIMEOUT
        )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return seconds


def _produce(tool: str, broker: Broker, topic: str, lines: Path) -> list[str]:
    if tool == "ottla":
        return [*_OTTLA, "produce", topic, str(lines), "-b", broker.address]
    return ["kcat", "-P", "-b", broker.address, "-t", topic, "-X", "acks=all", "-l", str(lines)]


def _consume(tool: str, broker: Broker, topic: str, count: int) -> list[str]:
    if tool == "ottla":
        return [*_OTTLA, "consume", topic, "-b", broker.address, "--from", "beginning", "-n", str(count)]
    return ["kcat", "-C", "-q", "-b", broker.address, "-t", topic, "-o", "beginning", "-c", str(count)]


def measure(bench: Bench) -> None:
    count = bench.scaled(1_000_000, 100_000)
    tools = ["ottla"]
    if shutil.which("kcat"):
        tools.append("kcat")
    else:
        print("  kcat is left out: it isn't installed (apt-get install kcat)", flush=True)
    lines = bench.folder / "lines"
    text = b"".join(value + b"\n" for value in payloads(100, BATCH))
    lines.write_bytes(text * (count // BATCH))
    received = bench.folder / "received"
    with bench.all_up() as brokers:
        for _ in range(bench.repeats):
            for tool in tools:
                for broker in brokers:
                    topic = bench.topic(broker)
                    seconds = _seconds(_produce(tool, broker, topic, lines))
                    bench.add("cli", f"{tool} produce", "lines/s", "higher", broker, count / seconds)
                    seconds = _seconds(_consume(tool, broker, topic, count), received)
                    bench.add("cli", f"{tool} consume", "lines/s", "higher", broker, count / seconds)
                    if received.stat().st_size != lines.stat().st_size:
                        raise RuntimeError(
                            f"{tool} consumed {received.stat().st_size} bytes of {lines.stat().st_size}"
                        )
                    bench.drop(broker, topic)
    lines.unlink()
    received.unlink()
