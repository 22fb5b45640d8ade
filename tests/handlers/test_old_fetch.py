"""Fetch 0 to 3: what the log has, converted for old consumers.

The answers are Kafka 3.9.1's, byte for byte where nothing is compressed: the tests hold there too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.badinput.requests import now_ms, produce
from tests.records.test_message_set import decode_set
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla_protocol.records.compression import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD
from ottla_protocol.records.formats import decode_any, iter_headers
from ottla_protocol.records.message_set import encode_messages
from ottla_protocol.records.record import Record, encode_batch

Topic = Callable[..., str]

# Not so old that retention removes them.
T = now_ms()
OLD = (0, 1, 2, 3)
every_version = pytest.mark.parametrize("version", OLD)


def rows(count: int, first: int = 0) -> list[Record]:
    return [
        Record(
            first + n,
            T + n,
            b"k%d" % n if n % 3 else None,
            b"v" * (n * 7 % 50) if n % 4 else None,
            (("h", b"1"),) if n % 5 == 0 else (),
        )
        for n in range(count)
    ]


def expected(records: list[Record], version: int) -> list[Record]:
    return [
        record._replace(headers=(), timestamp=record.timestamp if version >= 2 else -1) for record in records
    ]


def request(topic: str, offset: int, size: int = 1 << 20, **options: Any) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
    given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **options}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[asked])], **given)


def fetch(wire: Wire, version: int, topic: str, offset: int, size: int = 1 << 20, **options: Any) -> Any:
    """The partition's answer."""
    return wire.call(request(topic, offset, size, **options), version).responses[0].partitions[0]


def whole(data: bytes) -> tuple[bytes, bytes]:
    """The whole messages, and what is behind them."""
    end = 0
    for position, header in iter_headers(data):
        end = position + header.size
    return data[:end], data[end:]


def read(wire: Wire, version: int, topic: str, offset: int, size: int = 1 << 20) -> list[Record]:
    """All records from an offset on, as an old consumer reads them."""
    found: list[Record] = []
    while True:
        answer = fetch(wire, version, topic, offset, size)
        assert answer.error_code == 0
        data, _ = whole(bytes(answer.records))
        records = [record for record in decode_set(data) if record.offset >= offset]
        assert {header.magic for _, header in iter_headers(data)} <= {0, 1 if version >= 2 else 0}
        if not records:
            return found
        found += records
        offset = records[-1].offset + 1


@every_version
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4], ids=CODEC_NAMES[:4])
def test_records_are_converted(version: int, codec: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    for first in range(0, 100, 20):
        assert produce(wire, topic, encode_batch(rows(20), codec=codec)) == (0, first)
    everything = [record for first in range(0, 100, 20) for record in expected(rows(20, first), version)]
    for offset in (0, 1, 19, 20, 55, 99):
        assert read(wire, version, topic, offset) == everything[offset:]
        # A client whose buffer has no room for a batch: a single one comes all the same, since version 3.
        small = read(wire, version, topic, offset, 50)
        assert small == (everything[offset:] if version == 3 else [])
    answer = fetch(wire, version, topic, 0)
    assert answer.high_watermark == 100
    assert fetch(wire, version, topic, 100).records == b""
    for offset in (101, -1):
        assert fetch(wire, version, topic, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@every_version
def test_records_before_the_offset(version: int, wire: Wire, new_topic: Topic) -> None:
    """Uncompressed they are left out, for librdkafka; in a wrapper they stay."""
    topic = new_topic()
    for codec in (0, GZIP):
        produce(wire, topic, encode_batch(rows(20), codec=codec))
    for offset, first in ((0, 0), (7, 7), (19, 19), (20, 20), (33, 20), (39, 20)):
        data, _ = whole(bytes(fetch(wire, version, topic, offset).records))
        assert decode_set(data)[0].offset == first


@every_version
def test_the_size_of_an_answer(version: int, wire: Wire, new_topic: Topic) -> None:
    """It is announced before all is converted: as in Kafka, that of the batches, or of the first one converted."""
    topic = new_topic()
    large = encode_batch([(T, None, b"v" * 500, (("h", b"x" * 300),))] * 3)
    for _ in range(4):
        produce(wire, topic, large)
    overhead = 34 if version >= 2 else 26
    # Smaller, because the headers go: the rest is one message that is cut off.
    data, rest = whole(bytes(fetch(wire, version, topic, 0).records))
    assert len(decode_set(data)) == 12
    assert len(data) + len(rest) == 4 * len(large)
    assert struct.unpack_from(">qi", rest) == (-1, len(rest) + 1)
    assert not any(rest[12:])
    # Larger, because each record becomes a message: those that don't fit are for the next fetch.
    topic = new_topic()
    small = encode_batch([(T, None, b"v", ())] * 10)
    for _ in range(3):
        produce(wire, topic, small)
    answer = bytes(fetch(wire, version, topic, 0).records)
    assert len(answer) == max(3 * len(small), 10 * (overhead + 1))
    assert [record.offset for record in read(wire, version, topic, 0)] == list(range(30))


@every_version
def test_zstd(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    for codec in (0, ZSTD, 0):
        produce(wire, topic, encode_batch(rows(20), codec=codec))
    assert [record.offset for record in read_until_error(wire, version, topic)] == list(range(20))
    for offset in (20, 39):
        answer = fetch(wire, version, topic, offset)
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (answer.high_watermark, not answer.records) == (-1, True)
    assert [record.offset for record in read(wire, version, topic, 40)] == list(range(40, 60))
    topic = new_topic(**{"compression.type": "zstd"})
    produce(wire, topic, encode_batch(rows(1)))
    assert fetch(wire, version, topic, 0).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_batch_that_is_too_large_for_memory(wire: Wire, new_topic: Topic) -> None:
    """A few hundred kilobytes that decompress to more than 64 MiB; where batches may be larger, they are converted."""
    topic = new_topic(**{"max.message.bytes": 1 << 20})
    produce(wire, topic, encode_batch(rows(20)))
    large = encode_batch([(T, None, bytes(65 << 20), ())], codec=LZ4)
    assert produce(wire, topic, large) == (0, 20)
    produce(wire, topic, encode_batch(rows(20)))
    assert [record.offset for record in read_until_error(wire, 3, topic)] == list(range(20))
    assert fetch(wire, 3, topic, 20).error_code == ErrorCode.CORRUPT_MESSAGE
    assert [record.offset for record in read(wire, 3, topic, 21)] == list(range(21, 41))
    larger = new_topic(**{"max.message.bytes": 17 << 20})
    produce(wire, larger, large)
    assert fetch(wire, 3, larger, 0).error_code == 0


def read_until_error(wire: Wire, version: int, topic: str) -> list[Record]:
    data, rest = whole(bytes(fetch(wire, version, topic, 0).records))
    assert rest
    return decode_set(data)


@every_version
def test_a_topic_without_conversion(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(**{"message.downconversion.enable": "false"})
    for _ in range(2):
        for offset in (0, 99):
            answer = fetch(wire, version, topic, offset)
            assert (answer.error_code, answer.high_watermark) == (ErrorCode.UNSUPPORTED_VERSION, -1)
            assert not answer.records
        produce(wire, topic, encode_batch(rows(3)))
    data = bytes(fetch(wire, 4, topic, 0).records)
    assert next(iter_headers(data))[1].magic == 2


def test_conversion_can_be_switched_off_for_the_broker(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(settings={"log.message.downconversion.enable": False})
    with Wire(broker.port) as wire:
        create_topic(broker, "t")
        create_topic(broker, "on", **{"message.downconversion.enable": "true"})
        for topic in ("t", "on"):
            produce(wire, topic, encode_batch(rows(3)))
        assert fetch(wire, 3, "t", 0).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert len(read(wire, 3, "on", 0)) == 3


@every_version
def test_log_append_time(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    for codec in (0, LZ4):
        produce(wire, topic, encode_batch(rows(3), codec=codec))
    modern = bytes(fetch(wire, 4, topic, 0).records)
    stamps = [
        record.timestamp
        for position, header in iter_headers(modern)
        for record in decode_any(modern, position, header)
    ]
    found = read(wire, version, topic, 0)
    assert [record.timestamp for record in found] == (stamps if version >= 2 else [-1] * 6)
    for offset in (0, 3):
        _, header = next(iter_headers(bytes(fetch(wire, version, topic, offset).records)))
        assert header.is_log_append_time == (version >= 2)


@every_version
def test_a_fetch_that_waits(version: int, wire: Wire, new_topic: Topic, broker: BrokerProcess) -> None:
    topic = new_topic()
    wire.send(request_bytes(request(topic, 0, max_wait_ms=60_000), version))
    with Wire(broker.port) as other:
        produce(other, topic, encode_batch(rows(3)))
    data = wire.receive()
    _, position = parse_response_header(data, 1, version)
    answer = FetchResponse.decode(data, version, position).responses[0].partitions[0]
    assert decode_set(whole(bytes(answer.records))[0]) == expected(rows(3), version)
    # Its time is up, or its client leaves.
    assert fetch(wire, version, topic, 3, max_wait_ms=10).records == b""
    with Wire(broker.port) as other:
        other.send(request_bytes(request(topic, 3, max_wait_ms=60_000), version))
    assert produce(wire, topic, encode_batch(rows(1))) == (0, 3)


@every_version
def test_several_partitions_and_topics(version: int, wire: Wire, new_topic: Topic) -> None:
    one, two = new_topic(3), new_topic(1)
    produce(wire, one, encode_batch(rows(5)), partition=0)
    produce(wire, one, encode_batch(rows(7), codec=ZSTD), partition=2)
    produce(wire, two, encode_batch(rows(9), codec=GZIP))
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in parts
            ],
        )
        for topic, parts in ((one, (0, 1, 2, 9)), (two, (0,)), ("none-such", (0,)))
    ]
    answer = wire.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), version)
    found = {(t.topic, p.partition_index): p for t in answer.responses for p in t.partitions}
    assert {key: p.error_code for key, p in found.items()} == {
        (one, 0): 0,
        (one, 1): 0,
        (one, 2): ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        (one, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (two, 0): 0,
        ("none-such", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [len(decode_set(whole(bytes(p.records or b""))[0])) for p in found.values()] == [5, 0, 0, 0, 9, 0]


@every_version
def test_what_old_producers_have_sent(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    plain = [record._replace(headers=()) for record in rows(10)]
    for codec in (0, LZ4):
        assert produce(wire, topic, encode_messages(plain, 1, codec=codec), version=2)[0] == 0
    again = [record._replace(offset=record.offset + 10) for record in plain]
    assert read(wire, version, topic, 0) == expected(plain + again, version)


@pytest.mark.parametrize("codec", [0, LZ4])
def test_megabytes(codec: int, wire: Wire, new_topic: Topic, broker: BrokerProcess) -> None:
    """Much more than a piece; and clients that don't read hold up only themselves."""
    topic = new_topic(**{"max.message.bytes": 3_000_000})
    batch = encode_batch([(T, b"%06d" % n, b"v" * 90, ()) for n in range(20_000)], codec=codec)
    for _ in range(6):
        assert produce(wire, topic, batch)[0] == 0
    slow = [Wire(broker.port) for _ in range(4)]
    for each in slow:
        each.send(request_bytes(request(topic, 0, 1 << 25, max_bytes=1 << 25), 3) * 3)
    answer = fetch(wire, 3, topic, 0, 1 << 25, max_bytes=1 << 25)
    found = decode_set(whole(bytes(answer.records))[0])
    assert [record.offset for record in found] == list(range(len(found)))
    assert len(found) >= 20_000
    assert all(record.key == b"%06d" % (record.offset % 20_000) for record in found)
    for each in slow:
        data = each.receive()
        assert len(data) >= len(answer.records)
        # It leaves without its other answers.
        each.close()
    assert wait_for(lambda: fetch(wire, 3, topic, 0).error_code == 0, "an answer")
