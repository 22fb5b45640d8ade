"""The wait of a test or script before its first line: ``import ottla_client``, and its own broker.

Each runs in a new process with warm files. The broker's time counts from the process's first line, including the
import of ``ottla_broker``, to the end of ``EmbeddedBroker``'s start; and until ``ottla_client`` gets a first record
in a new topic acknowledged.
"""

from __future__ import annotations

import subprocess
import sys

from bench.context import Bench
from bench.results import number

_CLOCK = "import time; began = time.perf_counter()\n"
_SAY = "print(time.perf_counter() - began)\n"
_IMPORTS = {
    "ottla_client": f"{_CLOCK}import ottla_client\n{_SAY}",
    "ottla_client, Producer and Consumer": f"{_CLOCK}from ottla_client import Consumer, Producer\n{_SAY}",
}
_FIXTURE = f"""{_CLOCK}
from ottla_broker import EmbeddedBroker
with EmbeddedBroker() as broker:
    {_SAY}
    import asyncio
    from ottla_client import Producer
    async def first():
        async with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            await producer.send_and_wait("first", b"record")
    asyncio.run(first())
    {_SAY}
"""


def _times(program: str) -> list[float]:
    """Run a program that prints seconds, one per line."""
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [float(line) for line in done.stdout.split()]


def _add(bench: Bench, measure: str, name: str, seconds: float) -> None:
    """Like ``Bench.add``, for a figure without a broker."""
    bench.results.add(measure, name, "s", "lower", "ottla", seconds)
    print(f"  {name}: {number(seconds, 's')}", flush=True)


def measure_import(bench: Bench) -> None:
    for program in _IMPORTS.values():
        _times(program)
    for _ in range(bench.scaled(15, 5)):
        for name, program in _IMPORTS.items():
            _add(bench, "import", name, *_times(program))


def measure_fixture(bench: Bench) -> None:
    _times(_FIXTURE)
    for _ in range(bench.scaled(15, 5)):
        ready, acknowledged = _times(_FIXTURE)
        _add(bench, "fixture", "ready", ready)
        _add(bench, "fixture", "first record acknowledged", acknowledged)
