"""Bytes per second of cached data that a broker sends, compared with a bare ``os.sendfile`` loop over loopback.

The client drains responses into one buffer and decodes nothing. An untimed first pass walks the batch headers to
learn the end offset of each response. The timed passes then keep two requests in flight with the same offsets. The
bare loop, in its own process, sends a file of the same size in pieces of the same size.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import wire
from harness.brokers import HOST, Broker

from bench import load
from bench.context import Bench

PIECE = 4 << 20
_FRAME = struct.Struct(">i")


def _serve(path: str, size: int, listener: socket.socket) -> None:
    with listener, open(path, "rb") as file:
        while True:
            peer, _ = listener.accept()
            with peer:
                sent = 0
                while sent < size:
                    sent += os.sendfile(peer.fileno(), file.fileno(), sent, min(PIECE, size - sent))


@contextmanager
def bare_sendfile(path: Path) -> Iterator[Callable[[], float]]:
    """Start a bare loop that serves one file; the returned function runs one pass and returns bytes per second."""
    size = path.stat().st_size
    listener = socket.create_server((HOST, 0))
    address = listener.getsockname()
    server = multiprocessing.get_context("fork").Process(
        target=_serve, args=(str(path), size, listener), daemon=True
    )
    server.start()
    listener.close()
    view = memoryview(bytearray(PIECE))

    def drain() -> float:
        with socket.create_connection(address, 60) as client:
            left = size
            began = time.perf_counter()
            while left:
                count = client.recv_into(view)
                if not count:
                    raise ConnectionError("the bare sendfile loop closed the connection")
                left -= count
            return size / (time.perf_counter() - began)

    try:
        yield drain
    finally:
        server.kill()
        server.join()


def _plan(broker: Broker, topic: str, end: int) -> list[int]:
    """Find the offsets of successive fetches by walking the batches of each response."""
    connection = wire.Connection(HOST, broker.port)
    offsets: list[int] = []
    offset = 0
    while offset < end:
        offsets.append(offset)
        body = connection.call(wire.FETCH, wire.fetch(topic, 0, offset, PIECE))
        body.int32(), body.int32(), body.string(), body.int32(), body.int32()
        error = body.int16()
        if error:
            raise RuntimeError(f"{broker.name} answered a fetch at {offset} with error {error}")
        body.skip(16)
        for _ in range(body.int32()):
            body.skip(16)
        records = memoryview(body.blob())
        position = 0
        while position + 61 <= len(records):
            base, length = struct.unpack_from(">qi", records, position)
            if position + 12 + length > len(records):
                break
            offset = base + struct.unpack_from(">i", records, position + 23)[0] + 1
            position += 12 + length
        if offset == offsets[-1]:
            raise RuntimeError(f"{broker.name} sent no whole batch at {offset}")
    connection.close()
    return offsets


def _drain(broker: Broker, topic: str, offsets: list[int]) -> float:
    """Run one pass with two requests in flight, and return bytes per second."""
    connection = wire.Connection(HOST, broker.port)
    requests = [wire.frame(wire.FETCH, wire.fetch(topic, 0, offset, PIECE)) for offset in offsets]
    view = memoryview(bytearray(PIECE + (1 << 20)))
    length = memoryview(bytearray(4))
    total = 0
    began = time.perf_counter()
    for request in requests[:2]:
        connection.socket.sendall(request)
    for index in range(len(requests)):
        connection.fill(length)
        size: int = _FRAME.unpack(length)[0]
        left = size
        while left:
            count = connection.socket.recv_into(view[: min(left, PIECE)])
            if not count:
                raise ConnectionError("the broker closed the connection")
            left -= count
        total += size
        if index + 2 < len(requests):
            connection.socket.sendall(requests[index + 2])
    seconds = time.perf_counter() - began
    connection.close()
    return total / seconds


def measure(bench: Bench) -> None:
    records = bench.scaled(1_000_000, 250_000)
    passes = bench.scaled(9, 5)
    with bench.all_up() as brokers:
        topics = {}
        for broker in brokers:
            topics[broker.name] = bench.topic(broker, 1)
            load.run(load.Job("produce", broker.address, topics[broker.name], records, 1024, partitions=1))
        plans = {broker.name: _plan(broker, topics[broker.name], records) for broker in brokers}
        bare_file = bench.folder / "bare"
        with bare_file.open("wb") as out:
            for _ in range(records * 1024 // PIECE):
                out.write(b"\x5a" * PIECE)
        with bare_sendfile(bare_file) as bare:
            for _ in range(bench.repeats):
                # Alternate passes and take the best, so that other load on the machine affects all alike.
                best = dict.fromkeys(["bare", *plans], 0.0)
                for _ in range(passes):
                    best["bare"] = max(best["bare"], bare())
                    for broker in brokers:
                        rate = _drain(broker, topics[broker.name], plans[broker.name])
                        best[broker.name] = max(best[broker.name], rate)
                print(f"  bare sendfile: {best['bare'] / 1e9:.2f} GB/s", flush=True)
                for broker in brokers:
                    rate = best[broker.name]
                    bench.add("fetch", "cached data", "MB/s", "higher", broker, rate / 1e6)
                    bench.add("fetch", "of bare sendfile", "", "higher", broker, rate / best["bare"])
        bare_file.unlink()
