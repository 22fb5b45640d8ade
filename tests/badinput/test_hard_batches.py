"""Small batches that are much work to read: of empty or tiny parts, huge records, many records, wrong offset deltas.

None holds the event loop or takes much memory, neither when it is produced nor when a record in it is looked for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import snappy  # type: ignore[import-untyped]
from tests.badinput.hostile_check import measure
from tests.badinput.requests import crowded_batch, now_ms, records
from tests.support.topics import create_topic
from tests.support.watched import WatchedBroker
from tests.support.wire import Wire, request_bytes

from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.batch import HEADER_SIZE, write_crc
from ottla_protocol.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from ottla_protocol.records.record import encode_varint

pytestmark = pytest.mark.ottla_only

LATER = 1_000
"""The last record is so many ms later than the others."""
SIZE = 900_000


def record(delta: int, value: bytes = b"", stamp: int = 0) -> bytes:
    body = (
        b"\0"
        + encode_varint(stamp)
        + encode_varint(delta)
        + b"\1"
        + encode_varint(len(value))
        + value
        + b"\0"
    )
    return encode_varint(len(body)) + body


TWO = record(0) + record(1, stamp=LATER)


def packed(codec: int, data: bytes, timestamp: int, count: int = 2) -> bytes:
    """A batch of compressed ``data``."""
    batch = records(b"v", timestamp=timestamp)[:HEADER_SIZE] + data
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">hi", batch, 21, codec, count - 1)
    struct.pack_into(">qq", batch, 27, timestamp, timestamp + LATER)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch, 0, len(batch))
    return bytes(batch)


def empty_members(now: int) -> bytes:
    empty = compress(GZIP, b"")
    return packed(GZIP, empty * (SIZE // len(empty)) + compress(GZIP, TWO), now)


def empty_blocks(now: int) -> bytes:
    stream = compress(SNAPPY, TWO)
    return packed(SNAPPY, stream[:16] + (struct.pack(">i", 1) + b"\0") * (SIZE // 5) + stream[16:], now)


def tiny_members(now: int) -> bytes:
    body = record(0, b"x" * 40_000) + record(1, stamp=LATER)
    return packed(GZIP, b"".join(compress(GZIP, body[at : at + 1]) for at in range(len(body))), now)


def tiny_snappy_blocks(now: int) -> bytes:
    body = record(0, b"x" * 100_000) + record(1, stamp=LATER)
    blocks = (bytes(snappy.compress(body[at : at + 1])) for at in range(len(body)))
    stream = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return packed(SNAPPY, compress(SNAPPY, b"")[:16] + stream, now)


def tiny_lz4_blocks(now: int) -> bytes:
    body = record(0, b"x" * 180_000) + record(1, stamp=LATER)
    blocks = b"".join(struct.pack("<IB", 1 | 1 << 31, byte) for byte in body)
    return packed(LZ4, compress(LZ4, b"")[:7] + blocks + bytes(4), now)


def skippable_frames(now: int) -> bytes:
    return packed(ZSTD, struct.pack("<II", 0x184D2A50, 0) * (SIZE // 8) + compress(ZSTD, TWO), now)


def empty_zstd_blocks(now: int) -> bytes:
    last = struct.pack("<I", len(TWO) << 3 | 1)[:3] + TWO
    return packed(ZSTD, struct.pack("<IBB", 0xFD2FB528, 0, 0x58) + bytes(3) * (SIZE // 3) + last, now)


def large_record(now: int) -> bytes:
    return packed(GZIP, compress(GZIP, record(0, bytes(150 << 20)) + record(1, stamp=LATER)), now)


def many_headers(now: int) -> bytes:
    body = b"\0\0\0\1\1" + encode_varint(500_000) + b"\0\0" * 500_000
    return packed(ZSTD, compress(ZSTD, encode_varint(len(body)) + body + record(1, stamp=LATER)), now)


def equal_deltas(now: int) -> bytes:
    many = 500_000
    return packed(ZSTD, compress(ZSTD, record(0) * (many - 1) + record(0, stamp=LATER)), now, many)


def many_records(now: int) -> bytes:
    return crowded_batch(300_000, now, LATER)


KINDS: list[Callable[[int], bytes]] = [
    empty_members,
    empty_blocks,
    tiny_members,
    tiny_snappy_blocks,
    tiny_lz4_blocks,
    skippable_frames,
    empty_zstd_blocks,
    large_record,
    many_headers,
    equal_deltas,
    many_records,
]
LAST = {"equal_deltas": 499_999, "many_records": 299_999}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    folder: Path = tmp_path_factory.mktemp("hard")
    broker = WatchedBroker(folder / "data", {}).start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_batch_that_is_hard_to_read_does_not_hold_the_loop(
    watched: WatchedBroker, kind: Callable[[int], bytes]
) -> None:
    topic, now = kind.__name__, now_ms()
    create_topic(watched, topic)
    batch = kind(now)
    part = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=[part])]
    )
    assert measure(watched, f"produce of {topic}", request_bytes(request, 9)[4:])
    for timestamp in (now + 1, -3):
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        look = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        assert measure(watched, f"{timestamp} in {topic}", request_bytes(look, 8)[4:])
        with Wire(watched.port) as wire:
            assert wire.call(look, 8).topics[0].partitions[0].offset == LAST.get(topic, 1)
