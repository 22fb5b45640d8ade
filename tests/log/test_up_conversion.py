"""Message sets of old producers: the batches they become, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.log.conftest import NOW_MS, OpenLog
from tests.records.golden_files import load_messages
from tests.records.test_message_set import damaged, seeds
from tests.support import depth

from ottla_broker.log import up_conversion
from ottla_broker.log.config import LogConfig
from ottla_broker.log.up_conversion import is_message_set, to_batch
from ottla_broker.log.validator import RecordsRefused
from ottla_broker.tasks import run_whole
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records import compiled_messages
from ottla_protocol.records.batch import assign_offset, crc_is_valid, read_header, set_log_append_time
from ottla_protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, DecompressedTooLargeError
from ottla_protocol.records.message_set import encode_messages, wrap_messages
from ottla_protocol.records.record import Record, decode_records, encode_batch

T = NOW_MS


@contextmanager
def in_python() -> Iterator[None]:
    """Without the compiled module."""
    with patch.object(up_conversion, "IS_COMPILED", False):
        yield


@pytest.fixture(params=["compiled", "python"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with the compiled module and without."""
    if request.param == "python":
        with in_python():
            yield
    elif compiled_messages.IS_COMPILED:
        yield
    else:
        pytest.skip("the compiled module is missing")


ROWS = [
    Record(0, T, b"key", b"value"),
    Record(1, T + 7, None, b"other"),
    Record(2, -1, b"gone", None),
]
CODECS = (NONE, GZIP, SNAPPY, LZ4)
UP = [golden for golden in load_messages() if golden.kind == "up"]


def converted(data: bytes, **config: Any) -> list[Record]:
    batch = to_batch(memoryview(bytearray(data)), LogConfig(**config), "t-0")
    assert batch is not None
    header = read_header(batch)
    assert crc_is_valid(batch, 0, header)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset_delta) == (0, header.record_count - 1)
    assert header.producer_id == -1
    return decode_records(batch)


def refused(data: bytes, **config: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        to_batch(memoryview(bytearray(data)), LogConfig(**config), "t-0")
    assert "t-0" in str(caught.value)
    return caught.value.code


@pytest.mark.parametrize("golden", UP, ids=lambda golden: golden.name)
def test_kafka_s_conversions(golden: Any) -> None:
    names = {0: "uncompressed", 1: "gzip", 2: "snappy", 3: "lz4"}
    for kind in ("producer", names[golden.codec]):
        if kind == "producer" and "-to-" in golden.name:
            continue
        batch = to_batch(memoryview(bytearray(golden.original)), LogConfig(compression_type=kind), "t-0")
        assert batch is not None
        assert is_message_set(memoryview(golden.original))
        header = read_header(batch)
        if golden.append_time:
            header = set_log_append_time(batch, 0, header, T + 5)
        assign_offset(batch, 0, 1000, 9)
        if golden.codec == NONE:
            assert batch == golden.data
        else:
            expected = read_header(golden.data)
            assert read_header(batch)._replace(crc=0, batch_length=0) == expected._replace(
                crc=0, batch_length=0
            )
            assert decode_records(batch) == decode_records(golden.data)


@given(
    st.sampled_from((0, 1)),
    st.sampled_from(CODECS),
    st.lists(
        st.tuples(
            st.integers(-1, 2**62), st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=60)
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from(("producer", "uncompressed", "gzip", "zstd")),
)
def test_any_set(magic: int, codec: int, rows: list[tuple[int, Any, Any]], kind: str) -> None:
    records = [Record(n, *row) for n, row in enumerate(rows)]
    expected = [r._replace(timestamp=r.timestamp if magic else -1) for r in records]
    assert converted(encode_messages(records, magic, codec=codec), compression_type=kind) == expected


def test_offsets_in_the_set_do_not_matter() -> None:
    for codec in (NONE, GZIP):
        for offsets in ((0, 0, 0), (7, 5, 900), (-4, -3, -2)):
            rows = [row._replace(offset=offset) for row, offset in zip(ROWS, offsets, strict=True)]
            data = encode_messages(rows, 0, codec=codec)
            assert [record.offset for record in converted(data)] == [0, 1, 2]


def test_a_part_of_a_message_at_the_end_is_left_out() -> None:
    data = encode_messages(ROWS, 1)
    assert len(converted(data + data[:30])) == 3
    assert len(converted(data[:-1])) == 2
    for end in (0, 11, 12, 16, 17, 40):
        assert to_batch(memoryview(bytearray(data[:end])), LogConfig(), "t-0") is None


def test_the_first_damaged_message_refuses_all() -> None:
    for magic in (0, 1):
        data = bytearray(encode_messages(ROWS, magic))
        data[-1] ^= 1
        assert refused(data) is ErrorCode.CORRUPT_MESSAGE
        data = bytearray(encode_messages(ROWS, magic))
        data[8:12] = b"\0\0\0\x0d"
        assert refused(data) is ErrorCode.CORRUPT_MESSAGE
        data = bytearray(encode_messages(ROWS, magic))
        data[16] = 3
        assert refused(data) is ErrorCode.CORRUPT_MESSAGE


def test_formats_and_codecs_are_not_mixed() -> None:
    old, new = encode_messages(ROWS, 0), encode_messages(ROWS, 1)
    batch = bytes(encode_batch(ROWS))
    packed = encode_messages(ROWS, 1, codec=GZIP)
    for data in (old + new, new + old, new + batch, packed + packed, new + packed, packed + new):
        assert refused(data) is ErrorCode.INVALID_RECORD
    assert refused(new + batch[:-1] + b"?") is ErrorCode.CORRUPT_MESSAGE
    for codec in (ZSTD, 5, 7):
        data = wrap_messages(b"", 1, codec=GZIP, last_offset=0, timestamp=T)
        changed = bytearray(data)
        changed[17] = codec
        assert refused(with_crc(changed)) is ErrorCode.INVALID_RECORD


def with_crc(data: bytearray) -> bytearray:
    data[12:16] = crc32(data[16:]).to_bytes(4, "big")
    return data


def test_inner_messages_are_checked() -> None:
    inner = bytearray(encode_messages(ROWS, 1))
    inner[13] ^= 1

    def wrapped(messages: bytes) -> bytes:
        return wrap_messages(messages, 1, codec=SNAPPY, last_offset=2, timestamp=T)

    assert refused(wrapped(inner)) is ErrorCode.CORRUPT_MESSAGE
    assert refused(wrapped(encode_messages(ROWS, 0))) is ErrorCode.INVALID_RECORD
    assert refused(wrapped(encode_messages(ROWS, 1, codec=GZIP))) is ErrorCode.INVALID_RECORD
    assert refused(wrapped(b"")) is ErrorCode.INVALID_RECORD
    broken = bytearray(wrapped(encode_messages(ROWS, 1)))
    broken[-5:] = b"?????"
    assert refused(with_crc(broken)) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_sizes() -> None:
    data = encode_messages([Record(0, T, None, b"x" * 500)] * 3, 1)
    assert refused(data, max_message_bytes=533) is ErrorCode.MESSAGE_TOO_LARGE
    # Together they may be larger: the size of the batch counts, which the log checks.
    assert len(converted(data, max_message_bytes=534)) == 3
    many = encode_messages([Record(0, T, None, b"")] * 1000, 1)
    assert refused(many, max_message_bytes=1000) is ErrorCode.MESSAGE_TOO_LARGE
    # Compressed they may fit.
    assert len(converted(many, max_message_bytes=1000, compression_type="gzip")) == 1000


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit(codec: int) -> None:
    data = encode_messages([Record(n, T, None, bytes(1000)) for n in range(100)], 1, codec=codec)
    with pytest.raises(DecompressedTooLargeError):
        to_batch(memoryview(bytearray(data)), LogConfig(), "t-0", limit=99_999)
    assert to_batch(memoryview(bytearray(data)), LogConfig(), "t-0", limit=200_000) is not None


def test_pauses() -> None:
    for codec in (NONE, GZIP):
        data = encode_messages([Record(n, T, None, b"v") for n in range(1000)], 1, codec=codec)
        pauses: list[int] = []
        with in_python():
            to_batch(memoryview(bytearray(data)), LogConfig(), "t-0", pause=partial(pauses.append, 1))
        assert len(pauses) == 3


def test_timestamps() -> None:
    negative = [Record(0, T, None, b"v"), Record(1, -2, None, b"v")]
    assert refused(encode_messages(negative, 1)) is ErrorCode.INVALID_TIMESTAMP
    assert refused(encode_messages(negative, 1, codec=GZIP)) is ErrorCode.INVALID_TIMESTAMP
    assert len(converted(encode_messages(negative, 0))) == 2


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_the_timestamp_type_of_a_producer(codec: int) -> None:
    with_time = encode_messages(ROWS[:2], 1, codec=codec, append_time_ms=T)
    assert [record.timestamp for record in converted(with_time)] == [T, T]
    without = encode_messages(ROWS[:2], 1, codec=codec, append_time_ms=-1)
    for data, kind in ((without, "CreateTime"), (without, "LogAppendTime"), (with_time, "LogAppendTime")):
        with pytest.raises(RecordsRefused) as caught:
            to_batch(memoryview(bytearray(data)), LogConfig(message_timestamp_type=kind), "t-0")
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
        assert [number for number, _ in caught.value.records] == [0, 1]


@pytest.mark.parametrize("said_by", [0, 1])
def test_the_timestamp_type_of_a_later_message(said_by: int) -> None:
    parts = [encode_messages([row], 1) for row in ROWS[:2]]
    parts[said_by] = encode_messages([ROWS[said_by]], 1, append_time_ms=-1)
    with pytest.raises(RecordsRefused) as caught:
        to_batch(memoryview(bytearray(b"".join(parts))), LogConfig(), "t-0")
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in caught.value.records] == [said_by]


def test_the_log_checks_what_holds_for_all_formats(open_log: OpenLog) -> None:
    log = open_log(compact=True, message_timestamp_before_max_ms=1000)

    def append(rows: list[Record], magic: int) -> ErrorCode | int:
        batch = to_batch(memoryview(bytearray(encode_messages(rows, magic))), log.config, log.name)
        assert batch is not None
        try:
            info = log.append(batch, leader_epoch=0, now_ms=NOW_MS, from_client=True)
        except KafkaError as error:
            return error.code
        return info.first_offset

    assert append([Record(0, T, b"k", b"v"), Record(1, T, b"k", None)], 1) == 0
    assert append([Record(0, T, b"k", b"v"), Record(1, T, None, b"v")], 1) is ErrorCode.INVALID_RECORD
    assert append([Record(0, T - 1001, b"k", b"v")], 1) is ErrorCode.INVALID_TIMESTAMP
    # Without a timestamp there is nothing to check.
    assert append([Record(0, -1, b"k", b"v")], 1) == 2
    assert append([Record(0, 0, b"k", b"v")], 0) == 3
    assert run_whole(log.reader.find_max_timestamp()) == (0, T, 0)


def test_anything_is_converted_or_refused() -> None:
    chance = random.Random(20_110_101)
    originals = seeds()
    config = LogConfig(max_message_bytes=2000)
    results: Counter[object] = Counter()
    for _ in range(20_000):
        data = damaged(chance.choice(originals), chance)
        if chance.randrange(3) == 0:
            data += damaged(chance.choice(originals), chance)
        try:
            batch = to_batch(memoryview(bytearray(data)), config, "t-0", limit=1 << 20)
        except KafkaError as error:
            results[error.code] += 1
        except DecompressedTooLargeError:
            results["too large"] += 1
        else:
            if batch is None:
                results["nothing"] += 1
                continue
            header = read_header(batch)
            assert crc_is_valid(batch, 0, header)
            assert len(decode_records(batch)) == header.record_count
            results["converted"] += 1
    assert results["converted"] > 1000
    assert results["nothing"] > 100
    for code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD):
        assert results[code] > 500


def outcome(data: bytes, config: LogConfig) -> object:
    try:
        return to_batch(memoryview(bytearray(data)), config, "t-0", limit=1 << 20)
    except KafkaError as error:
        return error.code
    except DecompressedTooLargeError:
        return "too large"


@pytest.mark.skipif(not compiled_messages.IS_COMPILED, reason="the compiled module is missing")
def test_damaged_sets_are_the_same_both_ways(way: None) -> None:
    """Whatever is in a set, the compiled module and Python make the same batch of it, and refuse the same."""
    chance = random.Random(20_120_101)
    originals = seeds()
    config = LogConfig(max_message_bytes=2000)
    for _ in range(depth.inputs() // 10):
        data = damaged(chance.choice(originals), chance)
        if chance.randrange(5) == 0:
            data += damaged(chance.choice(originals), chance)
        if len(data) >= 17 and chance.randrange(2):
            # With checksums that are right, what is behind them counts.
            data = with_all_crcs(data)
        compiled = outcome(data, config)
        with in_python():
            assert outcome(data, config) == compiled


def with_all_crcs(data: bytes) -> bytes:
    changed = bytearray(data)
    position = 0
    while len(changed) - position >= 17:
        end = (
            position + 12 + max(0, int.from_bytes(changed[position + 8 : position + 12], "big", signed=True))
        )
        if end <= position + 16 or end > len(changed):
            break
        changed[position + 12 : position + 16] = crc32(changed[position + 16 : end]).to_bytes(4, "big")
        position = end
    return bytes(changed)
