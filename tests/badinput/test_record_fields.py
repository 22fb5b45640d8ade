"""Batches with a good checksum and a header that agrees, whose records break the format: one field at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from tests.badinput.requests import fetch, now_ms, produce, produce_answer, produce_request, records
from tests.support.wire import Wire, request_bytes

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.produce import ProduceResponse
from ottla_protocol.records.batch import crc_is_valid, read_header, write_crc
from ottla_protocol.records.compression import CODEC_NAMES, LZ4, ZSTD, compress
from ottla_protocol.records.record import decode_records, encode_varint

Topic = Callable[..., str]
HEADER = 61


def record(
    *,
    length: int | None = None,
    stamp: bytes = b"\0",
    delta: int = 0,
    key: bytes | None = b"k",
    key_size: int | None = None,
    value: bytes | None = b"value",
    value_size: int | None = None,
    count: int | None = None,
    headers: tuple[tuple[bytes, int | None, bytes, int | None], ...] = (),
    more: bytes = b"",
) -> bytes:
    """An encoded record; sizes that are given lie. A header is name, size of it, value, size of that."""

    def field(data: bytes | None, size: int | None) -> bytes:
        if size is None:
            size = -1 if data is None else len(data)
        return encode_varint(size) + (data or b"")

    body = b"\0" + stamp + encode_varint(delta) + field(key, key_size) + field(value, value_size)
    body += encode_varint(len(headers) if count is None else count)
    for name, name_size, content, size in headers:
        body += field(name, name_size) + field(content, size)
    body += more
    return encode_varint(len(body) if length is None else length) + body


def batch(
    body: bytes, *, count: int = 1, codec: int = 0, base_timestamp: int = 0, max_timestamp: int | None = None
) -> bytes:
    """A batch whose header and checksum are right, around any body."""
    data = bytearray(records(b"v"))[:HEADER]
    data += compress(codec, body) if codec else body
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">hi", data, 21, codec, count - 1)
    base_timestamp = base_timestamp or now_ms()
    struct.pack_into(
        ">qq", data, 27, base_timestamp, base_timestamp if max_timestamp is None else max_timestamp
    )
    struct.pack_into(">i", data, 57, count)
    write_crc(data, 0, len(data))
    return bytes(data)


GOOD = record()
BROKEN: dict[str, tuple[bytes, int]] = {
    "no-records": (b"", 1),
    "fewer-than-counted": (GOOD + record(delta=1), 3),
    "more-than-counted": (GOOD + record(delta=1), 1),
    "trailing-byte": (GOOD + b"\0", 1),
    "length-cut": (b"\x80", 1),
    "length-of-six-bytes": (b"\x80\x80\x80\x80\x80\x01", 1),
    "timestamp-of-eleven-bytes": (record(stamp=b"\xff" * 10 + b"\x01"), 1),
    "key-beyond-the-record": (record(key_size=100), 1),
    "key-of-two-gigabytes": (record(key_size=2**31 - 1), 1),
    "value-beyond-the-record": (record(value_size=100), 1),
    "value-of-two-gigabytes": (record(value_size=2**31 - 1), 1),
    "headers-negative": (record(count=-1), 1),
    "headers-missing": (record(count=3), 1),
    "headers-two-billion": (record(count=2**31 - 1), 1),
    "header-name-null": (record(headers=((b"", -1, b"", None),)), 1),
    "header-name-beyond-the-record": (record(headers=((b"h", 90, b"v", None),)), 1),
    "header-value-beyond-the-record": (record(headers=((b"h", None, b"v", 90),)), 1),
}
# Kafka skips these in a compressed batch, which no client can read then.
WRONG_LENGTHS: dict[str, tuple[bytes, int]] = {
    "length-zero": (b"\0" + GOOD[1:], 1),
    "length-negative": (record(length=-1), 1),
    "length-beyond-the-batch": (record(length=50), 1),
    "length-too-small": (record(length=len(GOOD) - 2), 1),
    "more-after-the-headers": (record(more=b"xyz"), 1),
}
# Kafka takes these too: other clients read them in different ways, or not at all.
AMBIGUOUS: dict[str, tuple[bytes, int]] = {
    "key-size-minus-two": (record(key=None, key_size=-2), 1),
    "value-size-minus-two": (record(value=None, value_size=-2), 1),
    "header-value-size-minus-two": (record(headers=((b"h", None, b"", -2),)), 1),
    "timestamp-beyond-64-bits": (record(stamp=encode_varint(2**63 - 1)), 1),
}
every_codec = pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
every_compression = pytest.mark.parametrize("codec", range(1, 5), ids=CODEC_NAMES[1:])


def refused(wire: Wire, topic: str, data: bytes) -> int:
    """The error of a batch; the topic goes on with offset 0."""
    code, offset = produce(wire, topic, data)
    assert offset == -1
    assert produce(wire, topic, records(b"good")) == (0, 0)
    return code


@every_codec
@pytest.mark.parametrize("case", BROKEN)
def test_a_record_that_breaks_the_format(
    case: str, codec: int, wire: Wire, new_topic: Topic, is_kafka: bool
) -> None:
    body, count = BROKEN[case]
    code = refused(wire, new_topic(), batch(body, count=count, codec=codec))
    # Kafka has no error of its own for a number of too many bytes.
    assert code == ErrorCode.INVALID_RECORD or (is_kafka and case == "length-of-six-bytes")


@every_codec
@pytest.mark.parametrize("case", WRONG_LENGTHS)
def test_a_record_with_a_wrong_length(
    case: str, codec: int, wire: Wire, new_topic: Topic, is_kafka: bool
) -> None:
    if is_kafka and codec:
        pytest.skip("Kafka stores it")
    body, count = WRONG_LENGTHS[case]
    data = batch(body, count=count, codec=codec)
    assert refused(wire, new_topic(), data) == ErrorCode.INVALID_RECORD


@pytest.mark.ottla_only
@every_codec
@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_record_that_clients_read_differently(case: str, codec: int, wire: Wire, new_topic: Topic) -> None:
    body, count = AMBIGUOUS[case]
    data = batch(body, count=count, codec=codec)
    assert refused(wire, new_topic(), data) == ErrorCode.INVALID_RECORD


@every_compression
@pytest.mark.parametrize("how", ["garbage", "cut", "nothing"])
def test_a_body_that_cannot_be_decompressed(
    how: str, codec: int, wire: Wire, new_topic: Topic, is_kafka: bool
) -> None:
    data = bytearray(batch(GOOD, codec=codec))
    if how == "garbage":
        data[HEADER:] = b"\x93" * (len(data) - HEADER)
    else:
        del data[HEADER if how == "nothing" else len(data) - 5 :]
    struct.pack_into(">i", data, 8, len(data) - 12)
    write_crc(data, 0, len(data))
    code = refused(wire, new_topic(), bytes(data))
    assert code == ErrorCode.INVALID_RECORD or (is_kafka and code == ErrorCode.UNKNOWN_SERVER_ERROR)


@every_codec
@pytest.mark.parametrize("deltas", [(5,), (-1,), (0, 0, 0), (2, 1, 0)], ids=str)
def test_offset_deltas_are_put_right(
    deltas: tuple[int, ...], codec: int, wire: Wire, new_topic: Topic, is_kafka: bool
) -> None:
    if is_kafka:
        pytest.skip("Kafka stores them, or answers UNKNOWN_SERVER_ERROR to compressed ones")
    topic = new_topic()
    values = [b"%d" % number for number in range(len(deltas))]
    body = b"".join(record(delta=delta, value=value) for delta, value in zip(deltas, values, strict=True))
    assert produce(wire, topic, batch(body, count=len(deltas), codec=codec)) == (0, 0)
    data = fetch(wire, topic, 0)[1]
    assert read_header(data).codec == codec
    assert [(one.offset, one.value) for one in decode_records(data)] == list(enumerate(values))


@every_codec
@pytest.mark.parametrize("claimed", [-1, 0, 1, 2**62])
def test_a_wrong_largest_timestamp_is_put_right(
    claimed: int, codec: int, wire: Wire, new_topic: Topic
) -> None:
    topic = new_topic()
    now = now_ms()
    body = record() + record(delta=1, stamp=encode_varint(700)) + record(delta=2, stamp=encode_varint(-9))
    data = batch(body, count=3, codec=codec, base_timestamp=now, max_timestamp=claimed)
    assert produce(wire, topic, data) == (0, 0)
    data = fetch(wire, topic, 0)[1]
    assert read_header(data).max_timestamp == now + 700
    assert crc_is_valid(data, 0, read_header(data))
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-3)])
    answer = wire.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7).topics[0].partitions[0]
    assert answer.timestamp == now + 700


@every_codec
def test_a_timestamp_that_the_header_hides(codec: int, wire: Wire, new_topic: Topic) -> None:
    """The limits hold for the records, whatever the header says."""
    topic = new_topic(message_timestamp_before_max_ms=10_000, message_timestamp_after_max_ms=10_000)
    now = now_ms()
    body = record() + record(delta=1, stamp=encode_varint(60_000)) + record(delta=2, stamp=encode_varint(1))
    answer = produce_answer(
        wire, topic, batch(body, count=3, codec=codec, base_timestamp=now, max_timestamp=now)
    )
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert produce(wire, topic, records(b"good")) == (0, 0)


@pytest.mark.ottla_only  # Kafka decompresses it all
@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_a_bomb(codec: int, wire: Wire, new_topic: Topic) -> None:
    """It is refused, and what its connection sends after it is answered in order."""
    topic = new_topic(max_message_bytes=20_000_000)
    bomb = batch(record(value=bytes(300 << 20)), codec=codec)
    for data in (bomb, bytes(records(b"good"))):
        wire.send(request_bytes(produce_request(topic, data), 9))
    codes = []
    for _ in range(2):
        answer = ProduceResponse.decode(wire.receive(), 9, 5)
        codes.append(answer.responses[0].partition_responses[0].error_code)
    assert codes == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]
