"""Requests in few words, for tests that then break them."""

from __future__ import annotations

import struct
import time
from typing import Any

from tests.support.wire import Wire

from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.batch import HEADER_SIZE, write_crc
from ottla_protocol.records.compression import ZSTD, compress
from ottla_protocol.records.record import encode_batch, encode_varint


def now_ms() -> int:
    return int(time.time() * 1000)


def records(
    *values: bytes, key: bytes | None = b"k", timestamp: int | None = None, **options: Any
) -> bytearray:
    """A batch of records with these values; options as of ``encode_batch``."""
    at = now_ms() if timestamp is None else timestamp
    return encode_batch([(at, key, value, ()) for value in values], **options)


def produce_request(topic: str, batch: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data])


def produce_answer(
    wire: Wire, topic: str, batch: bytes | None, partition: int = 0, acks: int = -1, version: int = 9
) -> Any:
    """The partition's whole answer."""
    answer = wire.call(produce_request(topic, batch, partition, acks), version)
    return answer.responses[0].partition_responses[0]


def produce(wire: Wire, topic: str, batch: bytes | None, **options: Any) -> tuple[int, int]:
    """Error and base offset."""
    answer = produce_answer(wire, topic, batch, **options)
    return answer.error_code, answer.base_offset


def fetch_request(topic: str, offset: int, partition: int = 0, **options: Any) -> FetchRequest:
    """Options of FetchRequest, and ``leader_epoch`` of the partition."""
    asked = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=options.pop("leader_epoch", -1),
    )
    given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **options}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[asked])], **given)


def fetch(wire: Wire, topic: str, offset: int, partition: int = 0, **options: Any) -> tuple[int, bytes]:
    """Error and records of one partition."""
    answer = wire.call(fetch_request(topic, offset, partition, **options), 12)
    if answer.error_code:
        return answer.error_code, b""
    found = answer.responses[0].partitions[0]
    return found.error_code, bytes(found.records or b"")


def crowded_batch(count: int, timestamp: int, later: int = 1) -> bytes:
    """A batch of very many empty records, the last so many ms later than the others; it compresses well."""
    body = bytearray()
    for delta in range(count):
        record = b"\0" + encode_varint(later * (delta == count - 1)) + encode_varint(delta) + b"\1\1\0"
        body += encode_varint(len(record)) + record
    batch = records(b"v", timestamp=timestamp)[:HEADER_SIZE]
    batch += compress(ZSTD, bytes(body))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">hi", batch, 21, ZSTD, count - 1)
    struct.pack_into(">qq", batch, 27, timestamp, timestamp + later)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch, 0, len(batch))
    return bytes(batch)
