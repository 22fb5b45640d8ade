"""Ten million commits to one partition of ``__consumer_offsets``: the rate, and what compaction leaves of them.

A hundred groups commit the offsets of 200 partitions by turns, one request after the other, so that each key is
written 500 times. The partition has segments of 10 MiB instead of 100 MiB, and both brokers look for work every
100 ms. What is left is measured when its size hasn't changed for five seconds.
"""

from __future__ import annotations

import time
from pathlib import Path

from harness import wire
from harness.brokers import HOST, Broker

from bench import procstat
from bench.context import Bench

_GROUPS, _PARTITIONS = 100, 200
_SEGMENT = 10 << 20
_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(_SEGMENT),
}
_PATIENCE = 120.0
_QUIET = 5.0


def _commit(connection: wire.Connection, topic: str, group: int, offset: int) -> int:
    offsets = dict.fromkeys(range(_PARTITIONS), offset)
    request = wire.offset_commit(f"group-{group}", -1, "", topic, offsets)
    return wire.commit_error(connection.call(wire.OFFSET_COMMIT, request))


def _wait_ready(connection: wire.Connection, topic: str) -> None:
    """Make the topic of the offsets, and wait until it takes commits."""
    deadline = time.perf_counter() + _PATIENCE
    while True:
        connection.call(wire.FIND_COORDINATOR, wire.find_coordinator("group-0"))
        error = _commit(connection, topic, 0, 0)
        if not error:
            return
        if time.perf_counter() > deadline:
            raise RuntimeError(f"commits are refused with error {error}")
        time.sleep(0.1)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def _left(folder: Path) -> int:
    """The bytes of the segments, once they stay the same."""
    deadline = time.perf_counter() + _PATIENCE
    size, since = -1, time.perf_counter()
    while time.perf_counter() < min(since + _QUIET, deadline):
        time.sleep(0.1)
        try:
            found = _size(folder)
        except FileNotFoundError:
            # The cleaner has just removed a segment.
            found = -1
        if found != size:
            size, since = found, time.perf_counter()
    return size


def measure(bench: Bench) -> None:
    count = bench.scaled(10_000_000, 400_000)
    label = f"{count / 1e6:g} M commits"
    for _ in range(bench.repeats):
        with bench.all_up(_SETTINGS) as brokers:
            for broker in brokers:
                _one(bench, broker, count // _PARTITIONS, label)


def _one(bench: Bench, broker: Broker, requests: int, label: str) -> None:
    topic = bench.topic(broker, _PARTITIONS)
    connection = wire.Connection(HOST, broker.port)
    try:
        _wait_ready(connection, topic)
        spent = procstat.cpu_seconds(broker.pid)
        began = time.perf_counter()
        for number in range(requests):
            error = _commit(connection, topic, number % _GROUPS, number)
            if error:
                raise RuntimeError(f"{broker.name} answered a commit with error {error}")
        seconds = time.perf_counter() - began
    finally:
        connection.close()
    left = _left(broker.data / "__consumer_offsets-0")
    spent = procstat.cpu_seconds(broker.pid) - spent
    bench.add("commits", f"{label}: rate", "/s", "higher", broker, requests * _PARTITIONS / seconds)
    bench.add("commits", f"{label}: CPU, compaction included", "s", "lower", broker, spent)
    bench.add("commits", f"{label}: left, in segments of 10 MiB", "", "lower", broker, left / _SEGMENT)
