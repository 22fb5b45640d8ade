"""Compares round trips of clients: one process per client, which take turns.

A trip takes between a few tenths of a millisecond and a few milliseconds, and other load on the machine matters more
than the client. So all clients run at once and take short turns. ``python -m bench.rounds NAME JSON`` is one of the
processes: for each line with a number it makes that many trips, one at a time, and writes their times in milliseconds
as a line of JSON. The names are those of ``TRIPS``. Records go to partition 0, with acks=all and no linger.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

from bench.clients import PATIENCE, Job, aiokafka_consumer, aiokafka_producer, ottla_consumer, ottla_producer
from bench.load import payloads

Trip = Callable[[bytes], Coroutine[Any, Any, Any]]
Open = Callable[..., AbstractAsyncContextManager[Any]]

FIRST = 10
"""Uncounted trips at the start of each turn, after another process used the processor's caches."""


@asynccontextmanager
async def _acknowledged(producing: Open, job: Job) -> AsyncIterator[Trip]:
    async with producing(job, linger_ms=0) as producer:
        yield lambda value: producer.send_and_wait(job.topic, value, partition=0)


@asynccontextmanager
async def _came_back(producing: Open, consuming: Open, job: Job) -> AsyncIterator[Trip]:
    async with producing(job, linger_ms=0) as producer, consuming(job, reset="latest") as consumer:
        yield await _there_and_back(job, producer, consumer)


async def _there_and_back(job: Job, producer: Any, consumer: Any) -> Trip:
    # Fix the position at the log's end before the first record is sent.
    for partition in sorted(consumer.assignment()):
        await consumer.position(partition)

    async def trip(value: bytes) -> None:
        await producer.send(job.topic, value, partition=0)
        await consumer.getone()

    return trip


TRIPS: dict[str, Callable[[Job], AbstractAsyncContextManager[Trip]]] = {
    "ottla acknowledged": partial(_acknowledged, ottla_producer),
    "aiokafka acknowledged": partial(_acknowledged, aiokafka_producer),
    "ottla back at a consumer": partial(_came_back, ottla_producer, ottla_consumer),
    "aiokafka back at a consumer": partial(_came_back, aiokafka_producer, aiokafka_consumer),
}
COMPARED = (
    ("ottla acknowledged", "aiokafka acknowledged"),
    ("ottla back at a consumer", "aiokafka back at a consumer"),
)


class Traveller:
    """One client's process."""

    def __init__(self, name: str, job: Job, errors: IO[bytes]) -> None:
        self._name = name
        self._errors = errors
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.rounds", name, json.dumps(asdict(job))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def take(self, count: int) -> list[float]:
        """Make this many trips, and return their times in ms. Raises RuntimeError with the client's last lines."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            process.wait(PATIENCE)
            self._errors.seek(0)
            raise RuntimeError(
                f"{self._name} failed:\n{self._errors.read().decode(errors='replace')[-2000:]}"
            )
        taken: list[float] = json.loads(line)
        return taken

    def close(self) -> None:
        """End the process, by SIGKILL if necessary."""
        try:
            self._process.communicate("", PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@contextmanager
def travellers(jobs: dict[str, Job], folder: Path) -> Iterator[dict[str, Traveller]]:
    """Start a process for each of ``jobs``, by the client's name, and end them after the block."""
    with ExitStack() as stack:
        started: dict[str, Traveller] = {}
        for name, job in jobs.items():
            errors = stack.enter_context(open(folder / f"{name}.err", "w+b"))
            started[name] = Traveller(name, job, errors)
            stack.callback(started[name].close)
        yield started


async def _serve(name: str, job: Job) -> None:
    values = payloads(job.size, 1000)
    async with TRIPS[name](job) as trip:
        while line := await asyncio.to_thread(sys.stdin.readline):
            count = int(line)
            taken: list[float] = []
            async with asyncio.timeout(PATIENCE + count / 10):
                for index in range(FIRST + count):
                    sent = time.perf_counter()
                    await trip(values[index % 1000])
                    taken.append((time.perf_counter() - sent) * 1000)
            print(json.dumps(taken[FIRST:]), flush=True)


def main() -> None:
    name, text = sys.argv[1:]
    asyncio.run(_serve(name, Job(**json.loads(text))))


if __name__ == "__main__":
    main()
