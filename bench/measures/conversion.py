"""Records for a consumer older than Kafka 0.11: a topic of batches, read with Fetch 2 and 1 (message formats 1 and 0).

An untimed first pass walks the messages to learn where each answer ends. The timed pass asks for the same offsets, one
request after the other, and drains the answers without a look at them. A client produces a record every 2 ms to another
topic, before and meanwhile: the delays are those of its acknowledgements.
"""

from __future__ import annotations

import struct
import time

from harness import wire
from harness.brokers import HOST, Broker

from bench import load, procstat
from bench.context import Bench
from bench.measures.cleaning import Probe
from bench.measures.latency import add_percentiles

_PIECE = 4 << 20
_FRAME = struct.Struct(">i")
_next_message = struct.Struct(">qi").unpack_from


def _request(version: int, topic: str, offset: int) -> bytes:
    """Fetch 1 and 2: no limit of the whole answer."""
    part = struct.pack(">iqi", 0, offset, _PIECE)
    body = struct.pack(">iii", -1, 500, 1) + wire.array([wire.string(topic) + wire.array([part])])
    return wire.frame((1, version), body)


def _answer(connection: wire.Connection) -> memoryview:
    length = memoryview(bytearray(4))
    connection.fill(length)
    body = memoryview(bytearray(_FRAME.unpack(length)[0]))
    connection.fill(body)
    return body


def _plan(broker: Broker, version: int, topic: str, end: int) -> list[int]:
    """The offsets of successive fetches."""
    connection = wire.Connection(HOST, broker.port)
    offsets: list[int] = []
    offset = 0
    while offset < end:
        offsets.append(offset)
        connection.socket.sendall(_request(version, topic, offset))
        body = wire.Reader(_answer(connection))
        body.int32(), body.int32(), body.int32(), body.string(), body.int32(), body.int32()
        error = body.int16()
        if error:
            raise RuntimeError(f"{broker.name} answered a fetch at {offset} with error {error}")
        body.skip(8)
        records = body.blob()
        position = 0
        while position + 12 <= len(records):
            found, size = _next_message(records, position)
            if position + 12 + size > len(records):
                break
            offset = found + 1
            position += 12 + size
        if offset == offsets[-1]:
            raise RuntimeError(f"{broker.name} sent no whole message at {offset}")
    connection.close()
    return offsets


def _drain(broker: Broker, version: int, topic: str, offsets: list[int]) -> float:
    """Fetch them all; the seconds it took."""
    connection = wire.Connection(HOST, broker.port)
    view = memoryview(bytearray(1 << 20))
    length = memoryview(bytearray(4))
    began = time.perf_counter()
    for offset in offsets:
        connection.socket.sendall(_request(version, topic, offset))
        connection.fill(length)
        left: int = _FRAME.unpack(length)[0]
        while left:
            count = connection.socket.recv_into(view[: min(left, len(view))])
            if not count:
                raise ConnectionError("the broker closed the connection")
            left -= count
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def measure(bench: Bench) -> None:
    size = 100
    records = bench.scaled(10_000_000, 500_000)
    label = f"{records * size / 1e9:g} GB"
    with bench.all_up() as brokers:
        topics = {}
        for broker in brokers:
            topics[broker.name] = bench.topic(broker, 1)
            load.run(load.Job("produce", broker.address, topics[broker.name], records, size, partitions=1))
        plans = {
            (broker.name, version): _plan(broker, version, topics[broker.name], records)
            for broker in brokers
            for version in (2, 1)
        }
        for _ in range(bench.repeats):
            for broker in brokers:
                topic, other = topics[broker.name], bench.topic(broker, 1)
                with Probe(broker, other) as probe:
                    quiet = probe.quiet()
                    spent = procstat.cpu_seconds(broker.pid)
                    seconds = _drain(broker, 2, topic, plans[broker.name, 2])
                    spent = procstat.cpu_seconds(broker.pid) - spent
                    busy = probe.take()
                    older = _drain(broker, 1, topic, plans[broker.name, 1])
                bench.add("conversion", f"{label} to format 1", "s", "lower", broker, seconds)
                bench.add("conversion", f"{label} to format 1, CPU", "s", "lower", broker, spent)
                bench.add("conversion", f"{label} to format 0", "s", "lower", broker, older)
                memory = procstat.resident_mb(broker.pid)
                bench.add("conversion", "memory afterwards", "MB", "lower", broker, memory)
                add_percentiles(bench, "conversion", "produce p%, quiet", broker, quiet)
                add_percentiles(bench, "conversion", "produce p%, converting", broker, busy)
                bench.drop(broker, other)
