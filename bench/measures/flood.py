"""One client floods a broker while twenty behave: their p99 beside their quiet one, with quotas on.

The flood comes from 127.0.0.2 and the client id ``flooder``: at most 1 MB/s of records, a quarter of a thread's time
for requests, and ten new connections a second. Each kind of flood is a process, ``python -m bench.measures.flood KIND
PORT TOPIC``, which goes on until it is ended.
"""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final

from harness import wire
from harness.brokers import HOST

from bench import steady_clients
from bench.context import Bench
from bench.load import payloads
from bench.measures.latency import percentile
from bench.secured import Secured, all_secured
from ottla_client.sync import Admin

FLOODER: Final = "flooder"
_FROM: Final = "127.0.0.2"
_CLIENTS: Final = 20
_WAITED: Final = 60.0
"""How long the flood waits for an answer: a broker may hold it back."""


def measure(bench: Bench) -> None:
    seconds = float(bench.scaled(6, 2))
    with all_secured(bench) as brokers:
        for each in brokers:
            with Admin(each.broker.address) as admin:
                admin.alter_client_quotas(
                    {"client-id": FLOODER},
                    {
                        "producer_byte_rate": 1_000_000,
                        "consumer_byte_rate": 1_000_000,
                        "request_percentage": 25,
                    },
                )
                admin.alter_client_quotas({"ip": _FROM}, {"connection_creation_rate": 10})
        for _ in range(bench.repeats):
            for each in brokers:
                topic = bench.topic(each.broker, 1)
                quiet = percentile(steady_clients.run(each.broker.address, topic, _CLIENTS, seconds), 99)
                bench.add("flood", "p99 of twenty clients, quiet", "ms", "lower", each.broker, quiet)
                for kind in FLOODS:
                    with _flooding(kind, each, topic):
                        times = steady_clients.run(each.broker.address, topic, _CLIENTS, seconds)
                    worse = percentile(times, 99) / quiet
                    bench.add("flood", f"p99 beside quiet: {kind}", "x", "lower", each.broker, worse)
                bench.drop(each.broker, topic)


@contextmanager
def _flooding(kind: str, each: Secured, topic: str) -> Iterator[None]:
    port = each.port if kind == "handshakes" else each.broker.port
    command = [sys.executable, "-m", "bench.measures.flood", kind, str(port), topic]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield
        if process.poll() is not None:
            assert process.stderr is not None
            raise RuntimeError(f"the flood {kind} ended:\n{process.stderr.read().decode()[-2000:]}")
    finally:
        process.kill()
        process.communicate()


def _connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), _WAITED, source_address=(_FROM, 0))


def _frame(api: tuple[int, int], body: bytes) -> bytes:
    return wire.frame(api, body, client=FLOODER)


def _ask(requests: Iterator[bytes], port: int, under_way: int) -> None:
    """Send requests with so many unanswered, as fast as the broker takes them."""
    while True:
        with suppress(OSError), _connect(port) as sock, sock.makefile("rb") as answers:
            for number, request in enumerate(requests):
                sock.sendall(request)
                if number >= under_way:
                    size = answers.read(4)
                    if len(size) < 4 or not answers.read(int.from_bytes(size, "big")):
                        break


def _produce(port: int, topic: str) -> None:
    request = _frame(wire.PRODUCE, wire.produce(topic, 0, wire.record_batch(payloads(100, 5_000)), 1))
    _ask((request for _ in count()), port, 8)


def _metadata(port: int, topic: str) -> None:
    request = _frame(wire.METADATA, wire.metadata(None, create=False))
    _ask((request for _ in count()), port, 64)


def _joins(port: int, topic: str) -> None:
    """A member without an id each, which the broker names and forgets, in a new group each."""
    _ask((_frame(wire.JOIN_GROUP, wire.join_group(f"flood-{n}", "", topic)) for n in count()), port, 64)


def _connections(port: int, topic: str) -> None:
    """They are reset: after closing them the machine would soon look for free ports instead of connecting."""
    at_once = struct.pack("ii", 1, 0)
    while True:
        with suppress(OSError), _connect(port) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)


def _handshakes(port: int, topic: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    while True:
        with suppress(OSError), _connect(port) as plain, context.wrap_socket(plain):
            pass


FLOODS: Final[dict[str, Callable[[int, str], None]]] = {
    "produce": _produce,
    "metadata": _metadata,
    "joins": _joins,
    "connections": _connections,
    "handshakes": _handshakes,
}


def main() -> None:
    kind, port, topic = sys.argv[1:]
    FLOODS[kind](int(port), topic)


if __name__ == "__main__":
    main()
