"""Produce 0 to 2: every field of the message formats 0 and 1 wrong, one at a time and at random.

Where Kafka answers UNKNOWN_SERVER_ERROR, because its parser fails, Ottla names what is wrong.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from zlib import crc32

import pytest
from tests.badinput.requests import fetch, now_ms, produce_answer
from tests.badinput.test_produce import end_offset
from tests.records.test_message_set import damaged, seeds
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.compression import GZIP, LZ4, SNAPPY
from ottla_protocol.records.message_set import encode_messages, wrap_messages
from ottla_protocol.records.record import Record, decode_records, encode_batch

Topic = Callable[..., str]

T = now_ms()
ROWS = [Record(n, T, b"k%d" % n, b"value%d" % n) for n in range(3)]
CORRUPT, INVALID, LARGE = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE
BAD_TIME = ErrorCode.INVALID_TIMESTAMP
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
RANDOM_INPUTS = int(os.environ.get("OTTLA_FUZZ_FRAMES", "600"))


def send(wire: Wire, topic: str, data: bytes | None, *, version: int = 2, acks: int = 1) -> tuple[int, int]:
    answer = produce_answer(wire, topic, data, version=version, acks=acks)
    return answer.error_code, answer.base_offset


def with_crc(data: bytes) -> bytes:
    size = 12 + int.from_bytes(data[8:12], "big")
    return data[:12] + crc32(data[16:size]).to_bytes(4, "big") + data[16:]


def put(data: bytes, at: int, number: int, size: int, *, crc: bool = True) -> bytes:
    changed = bytearray(data)
    changed[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, "big")
    return with_crc(bytes(changed)) if crc else bytes(changed)


def broken() -> list[Any]:
    """Message sets, each with the error it gets from Ottla and from Kafka."""
    cases: list[tuple[str, bytes, ErrorCode, ErrorCode]] = []

    def add(name: str, data: bytes, ottla: ErrorCode, kafka: ErrorCode | None = None) -> None:
        cases.append((f"{magic}-{name}", data, ottla, ottla if kafka is None else kafka))

    for magic in (0, 1):
        one, many, head = encode_messages(ROWS[:1], magic), encode_messages(ROWS, magic), 18 + 8 * magic
        other = encode_messages(ROWS[:1], 1 - magic)
        add("crc", put(one, 12, 1, 4, crc=False), CORRUPT)
        for size in (-(2**31), -1, 0, 13):
            add(f"size {size}", put(one, 8, size, 4, crc=False), CORRUPT)
        add("size within", put(one, 8, len(one) - 13, 4, crc=False), CORRUPT)
        for number in (3, 127, -1):
            add(f"magic {number}", put(one, 16, number, 1), CORRUPT)
        add("codec zstd", put(one, 17, 4, 1), INVALID)
        for codec in (5, 7):
            add(f"codec {codec}", put(one, 17, codec, 1), INVALID, UNKNOWN)
        for size in (3, 100, 2**31 - 1):
            add(f"key size {size}", put(one, head, size, 4), INVALID, UNKNOWN)
        for size in (7, 100, 2**31 - 1):
            add(f"value size {size}", put(one, head + 6, size, 4), INVALID, UNKNOWN)
        add("another format behind", one + other, INVALID)
        add("a batch behind", one + bytes(encode_batch(ROWS)), INVALID)
        add("too large", encode_messages([Record(0, T, b"k", bytes(1_100_000))], magic), LARGE)
        add(
            "too large together",
            encode_messages([Record(n, T, b"k", bytes(1000)) for n in range(1200)], magic),
            LARGE,
        )
        for codec in (GZIP, SNAPPY, LZ4):
            wrapped = partial(wrap_messages, magic=magic, codec=codec, last_offset=2, timestamp=T)
            packed = encode_messages(ROWS, magic, codec=codec)
            add(f"{codec} twice", packed + packed, INVALID)
            add(f"{codec} behind others", many + packed, INVALID)
            add(f"{codec} before others", packed + many, INVALID)
            changed = with_crc(packed[:-6] + b"\xff" * 6)
            # Snappy has no checksum of its own.
            add(f"{codec} broken", changed, *((CORRUPT,) if codec == SNAPPY else (INVALID, UNKNOWN)))
            none = encode_messages([Record(0, T, None, None)], magic)
            add(f"{codec} without a value", put(none, 17, codec, 1), INVALID)
            add(f"{codec} of nothing", wrapped(b""), INVALID)
            add(f"{codec} of a part", wrapped(one[:-1]), INVALID)
            add(f"{codec} inner crc", wrapped(put(many, 13, ~many[13], 1, crc=False)), CORRUPT)
            add(f"{codec} inner size", wrapped(put(many, 8, 13, 4, crc=False)), CORRUPT)
            add(f"{codec} another format within", wrapped(other), INVALID)
            add(f"{codec} nested", wrapped(encode_messages(ROWS, magic, codec=GZIP)), INVALID)
            if magic:
                add(f"{codec} wrapper's offset", wrapped(many, last_offset=1), INVALID)
                add(
                    f"{codec} append time", encode_messages(ROWS, 1, codec=codec, append_time_ms=-1), BAD_TIME
                )
                negative = encode_messages([Record(0, -5, b"k", b"v")], 1)
                add(f"{codec} inner timestamp", wrapped(negative), BAD_TIME, UNKNOWN)
    magic = 1
    add("timestamp negative", put(encode_messages(ROWS[:1], 1), 18, -2, 8), BAD_TIME, UNKNOWN)
    add("append time", encode_messages(ROWS[:1], 1, append_time_ms=-1), BAD_TIME)
    return [pytest.param(*case, id=case[0]) for case in cases]


@pytest.mark.parametrize(("name", "data", "ottla", "kafka"), broken())
def test_broken_message_sets(
    name: str,
    data: bytes,
    ottla: ErrorCode,
    kafka: ErrorCode,
    wire: Wire,
    new_topic: Topic,
    is_kafka: bool,
) -> None:
    topic = new_topic()
    for version in (0, 2):
        assert send(wire, topic, data, version=version) == (kafka if is_kafka else ottla, -1)
    assert end_offset(wire, topic) == 0
    assert send(wire, topic, encode_messages(ROWS, 1)) == (0, 0)


def stored(wire: Wire, topic: str, offset: int) -> list[Record]:
    error, data = fetch(wire, topic, offset)
    assert error == 0
    assert read_header(data).magic == 2
    return decode_records(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_odd_but_taken(magic: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    one, many = encode_messages(ROWS[:1], magic), encode_messages(ROWS, magic)
    head = 18 + 8 * magic
    backwards = [row._replace(offset=2 - row.offset) for row in ROWS]
    odd = [
        ("a part behind", many + one[:-1], 3),
        ("some bytes behind", many + one[:11], 3),
        ("attributes without a meaning", put(one, 17, 0xF0, 1), 1),
        ("a negative key size", put(encode_messages([Record(0, T, None, b"v")], magic), head, -9, 4), 1),
        (
            "a negative value size",
            put(encode_messages([Record(0, T, b"k", None)], magic), head + 5, -9, 4),
            1,
        ),
        ("bytes behind the value", with_crc(put(one + b"...", 8, len(one) - 9, 4, crc=False)), 1),
        ("offsets that go back", encode_messages(backwards, magic), 3),
        ("any offset", put(one, 0, -(2**63), 8), 1),
        ("a part within", wrap_messages(many[:-1], magic, codec=GZIP, last_offset=1, timestamp=T), 2),
        ("librdkafka's offset", wrap_messages(many, magic, codec=GZIP, last_offset=0, timestamp=T), 3),
        (
            "offsets that go back within",
            wrap_messages(encode_messages(backwards, magic), magic, codec=GZIP, last_offset=2, timestamp=T),
            3,
        ),
        ("log append time", encode_messages(ROWS, magic, append_time_ms=T), 3),
    ]
    for name, data, count in odd:
        error, offset = send(wire, topic, data)
        assert error == 0, name
        records = stored(wire, topic, offset)
        assert [record.offset for record in records] == list(range(offset, offset + count)), name
        assert {record.timestamp for record in records} == {T if magic else -1}, name
    end = end_offset(wire, topic)
    # Nothing to append is no error.
    for data in (b"", one[:11], one[:12], one[:17], one[:-1]):
        assert send(wire, topic, data) == (0, -1)
        assert send(wire, topic, data, acks=-1) == (0, -1)
    assert end_offset(wire, topic) == end


def test_batches_of_format_2(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    batch = bytes(encode_batch(ROWS))
    for data in (batch, batch + batch[:30], bytes(encode_batch(ROWS, codec=4))):
        error, offset = send(wire, topic, data)
        assert error == 0
        assert len(stored(wire, topic, offset)) == 3
    assert send(wire, topic, batch + batch) == (INVALID, -1)
    assert send(wire, topic, batch[:-1]) == (0, -1)
    assert send(wire, topic, batch + encode_messages(ROWS, 1)) == (INVALID, -1)


@pytest.mark.parametrize("version", [3, 7, 9])
@pytest.mark.parametrize("magic", [0, 1])
def test_newer_requests_carry_no_message_sets(version: int, magic: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    for data in (
        encode_messages(ROWS, magic),
        encode_messages(ROWS[:1], magic),
        encode_messages(ROWS, magic, codec=GZIP),
        put(encode_messages(ROWS, magic), 12, 1, 4, crc=False),
    ):
        assert send(wire, topic, data, version=version) == (INVALID, -1)
    assert end_offset(wire, topic) == 0


def test_what_a_topic_asks_for(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    for magic in (0, 1):
        for codec in (0, GZIP):
            keyless = encode_messages(
                [Record(0, T, None, b"v"), Record(1, T, b"k", b"v")], magic, codec=codec
            )
            assert send(wire, topic, keyless) == (INVALID, -1)
    topic = new_topic(
        **{"message.timestamp.before.max.ms": 100_000, "message.timestamp.after.max.ms": 100_000}
    )
    now = now_ms()
    for stamp in (now - 200_000, now + 200_000, 0):
        assert send(wire, topic, encode_messages([Record(0, stamp, b"k", b"v")], 1)) == (BAD_TIME, -1)
    # Without a timestamp there is nothing to check.
    assert send(wire, topic, encode_messages([Record(0, -1, b"k", b"v")], 1)) == (0, 0)
    assert send(wire, topic, encode_messages([Record(0, 0, b"k", b"v")], 0)) == (0, 1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
def test_log_append_time(magic: int, codec: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    answer = produce_answer(wire, topic, encode_messages(ROWS, magic, codec=codec), version=2, acks=1)
    assert answer.error_code == 0
    assert answer.log_append_time_ms > T - 60_000
    assert {record.timestamp for record in stored(wire, topic, 0)} == {answer.log_append_time_ms}
    taken = encode_messages(ROWS, 1, codec=codec, append_time_ms=T)
    assert send(wire, topic, taken) == (BAD_TIME, -1)


@pytest.mark.parametrize("kind", ["uncompressed", "gzip", "zstd"])
def test_the_topic_s_compression(kind: str, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(**{"compression.type": kind})
    for codec in (0, LZ4):
        error, offset = send(wire, topic, encode_messages(ROWS, 1, codec=codec))
        assert error == 0
        error, data = fetch(wire, topic, offset)
        assert read_header(data).codec == {"uncompressed": 0, "gzip": 1, "zstd": 4}[kind]
        assert [record.value for record in decode_records(data)] == [row.value for row in ROWS]


def test_answers_of_the_versions(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    for version in (0, 1, 2):
        answer = produce_answer(wire, topic, encode_messages(ROWS, 1), version=version)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 3 * version, -1)


def test_without_acknowledgement(wire: Wire, new_topic: Topic, broker: Any) -> None:
    from tests.badinput.requests import produce_request
    from tests.support.wire import request_bytes

    topic = new_topic()
    wire.send(request_bytes(produce_request(topic, encode_messages(ROWS, 1), acks=0), 2))
    wire.send(request_bytes(produce_request(topic, b"", acks=0), 2))
    assert send(wire, topic, encode_messages(ROWS, 0)) == (0, 3)
    bad = put(encode_messages(ROWS, 1), 12, 1, 4, crc=False)
    wire.send(request_bytes(produce_request(topic, bad, acks=0), 2))
    assert wire.is_closed()


def test_message_sets_changed_at_random(wire: Wire, new_topic: Topic, is_kafka: bool) -> None:
    # The timestamps are too old for retention.
    topic = new_topic(**{"retention.ms": -1})
    chance = random.Random(20_130_708)
    originals = seeds()
    results: Counter[int] = Counter()
    for _ in range(100 if is_kafka else RANDOM_INPUTS):
        data = damaged(chance.choice(originals), chance)
        end = end_offset(wire, topic)
        error, offset = send(wire, topic, data, version=chance.choice((0, 1, 2)))
        results[error] += 1
        if error:
            assert offset == -1
        elif offset >= 0:
            assert offset == end
            assert stored(wire, topic, offset)
            continue
        assert end_offset(wire, topic) == end
    assert results[0]
    assert results[CORRUPT]
    assert is_kafka or results[INVALID]
