"""Writes librdkafka.json: record batches as librdkafka (confluent-kafka) sends them.

A socket that answers just enough for a producer (ApiVersions, Metadata, InitProducerId, Produce) stands in
for the broker, so that what it keeps owes nothing to the code that is tested with it:

    python tests/records/golden/capture_librdkafka.py > tests/records/golden/librdkafka.json
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from hashlib import sha256

from confluent_kafka import Producer, libversion

TIME = 1_700_000_000_000
TOPIC = b"t"
# The APIs that are offered: key, least and greatest version, all of them from before flexible messages.
# librdkafka looks for Fetch 4 to believe in format 2, for Produce and Fetch 10 to believe in zstd.
OFFERED = [(0, 0, 7), (1, 0, 10), (2, 0, 1), (3, 0, 4), (18, 0, 0), (22, 0, 1), (10, 0, 1)]

Message = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

TEXT = b"The quick brown fox jumps over the lazy dog. " * 20
MESSAGES: list[Message] = [
    (TIME, b"key", b"value", []),
    (TIME + 1, None, TEXT, []),
    (TIME - 70, b"gone", None, []),
    (TIME + 100_000, b"", b"", []),
    (TIME + 3, b"h", TEXT, [("trace", b"abc"), ("empty", b""), ("null", None), ("é漢", b"x")]),
]
LARGE: list[Message] = [(TIME, None, bytes(i // 100 & 0xFF for i in range(100_000)), [])]


class FakeBroker:
    """Serves one connection after the other and keeps the record sets it is sent."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.batches: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                request = stream.read(struct.unpack(">i", size)[0])
                key, version, correlation, client = struct.unpack_from(">hhih", request)
                answer = self._answer(key, version, request[10 + max(client, 0) :])
                if answer is not None:
                    connection.sendall(struct.pack(">ii", len(answer) + 4, correlation) + answer)

    def _answer(self, key: int, version: int, body: bytes) -> bytes | None:
        if key == 18:
            error = 35 if version > 0 else 0
            return struct.pack(">hi", error, len(OFFERED)) + b"".join(
                struct.pack(">hhh", *api) for api in OFFERED
            )
        if key == 3:
            host = struct.pack(">h9s", 9, b"127.0.0.1")
            brokers = struct.pack(">ii", 1, 1) + host + struct.pack(">ih", self.port, -1)
            partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
            topic = struct.pack(">hh1sbi", 0, 1, TOPIC, 0, 1) + partition
            return struct.pack(">i", 0) + brokers + struct.pack(">hii", -1, 1, 1) + topic
        if key == 22:
            return struct.pack(">ihqh", 0, 0, 4711, 3)
        if key == 0:
            return self._produce(body)
        raise AssertionError(f"librdkafka asked for API {key}")

    def _produce(self, body: bytes) -> bytes:
        (transactional_id,) = struct.unpack_from(">h", body)
        at = 2 + max(transactional_id, 0) + 2 + 4
        topics, name = struct.unpack_from(">ih", body, at)
        partitions, _, size = struct.unpack_from(">iii", body, at + 6 + name)
        assert (topics, partitions) == (1, 1)
        start = at + 6 + name + 12
        self.batches.append(body[start : start + size])
        result = struct.pack(">ihqqq", 0, 0, 0, -1, 0)
        return struct.pack(">ih1si", 1, 1, TOPIC, 1) + result + struct.pack(">i", 0)


def capture(messages: list[Message], **config: object) -> bytes:
    """The one batch that ``messages`` become: they are all there before the connection is."""
    broker = FakeBroker()
    failures: list[object] = []
    settings = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "linger.ms": 300, **config}
    producer = Producer(settings)
    for timestamp, key, value, headers in messages:
        producer.produce(
            TOPIC.decode(),
            partition=0,
            timestamp=timestamp,
            key=key,
            value=value,
            headers=headers,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    left = producer.flush(20)
    assert left == 0, f"{left} messages are not delivered"
    assert not failures, failures
    (batch,) = broker.batches
    return batch


def hexed(value: bytes | None) -> str | None:
    """As it stands in the file: in hexadecimal, or as a digest if it is long."""
    if value is None or len(value) < 2000:
        return None if value is None else value.hex()
    return "sha256:" + sha256(value).hexdigest()


def main() -> None:
    cases = []
    for name, messages, config in [
        *(
            (codec, MESSAGES, {"compression.type": codec})
            for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        ),
        ("idempotent", MESSAGES, {"enable.idempotence": True}),
        *((f"large-{codec}", LARGE, {"compression.type": codec}) for codec in ("snappy", "lz4", "zstd")),
    ]:
        batch = capture(messages, **config)
        records = [
            [
                timestamp,
                hexed(key),
                hexed(value),
                [[header.encode().hex(), hexed(of)] for header, of in headers],
            ]
            for timestamp, key, value, headers in messages
        ]
        cases.append({"name": name, "bytes": batch.hex(), "records": records})
    json.dump({"librdkafka": libversion()[0], "batches": cases}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
