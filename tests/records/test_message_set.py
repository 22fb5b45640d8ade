"""Message sets of formats 0 and 1: what is written is read, what is damaged is refused."""

from __future__ import annotations

import random
import resource
import struct
import tracemalloc
import warnings
from collections import Counter
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records.golden_files import as_golden, load_messages
from tests.support.depth import inputs

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.batch import CorruptRecordError, UnsupportedMagicError
from ottla_protocol.records.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    DecompressedTooLargeError,
    decompress,
)
from ottla_protocol.records.formats import decode_any, is_intact, read_any_header
from ottla_protocol.records.message_set import (
    OVERHEAD,
    UNKNOWN_COUNT,
    InvalidMessageError,
    compress_set,
    decode_messages,
    decompress_set,
    encode_messages,
    message_crc_is_valid,
    read_message,
    wrap_messages,
)
from ottla_protocol.records.record import Record, encode_batch
from ottla_protocol.records.xxh32 import xxh32

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from aiokafka.record.legacy_records import _LegacyRecordBatchBuilderPy, _LegacyRecordBatchPy
    from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

CODECS = (NONE, GZIP, SNAPPY, LZ4)
MAGICS = (0, 1)
TIME = 1_700_000_000_000
RECORDS = [
    Record(100, TIME, b"key", b"value"),
    Record(101, TIME + 1, None, b"fox jumps " * 9),
    Record(104, TIME - 70, b"gone", None),
    Record(105, TIME + 100_000, b"", b""),
]
GOLDEN = load_messages()

every_format = pytest.mark.parametrize("magic", MAGICS)
every_codec = pytest.mark.parametrize("codec", CODECS, ids=("none", "gzip", "snappy", "lz4"))


def decode_set(data: bytes, *, strict: bool = True) -> list[Record]:
    """All records of a message set, whose messages are whole and undamaged."""
    records: list[Record] = []
    position = 0
    while position < len(data):
        header = read_any_header(data, position)
        assert is_intact(data, position, header)
        if header.magic < 2:
            records += map(Record, *decode_messages(data, position, header, strict=strict))
        else:
            records += decode_any(data, position, header)
        position += header.size
    assert position == len(data)
    return records


records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.one_of(st.just(-1), st.integers(0, 2**63 - 1)),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=200),
        st.just(()),
    ),
    min_size=1,
    max_size=30,
)


@given(
    st.sampled_from(MAGICS),
    st.sampled_from(CODECS),
    records,
    st.integers(0, 2**62),
    st.lists(st.integers(1, 1000), min_size=30, max_size=30),
    st.one_of(st.none(), st.integers(0, 2**62)),
)
def test_round_trip(
    magic: int, codec: int, rows: list[Record], base: int, gaps: list[int], append_time: int | None
) -> None:
    numbered = []
    for row, gap in zip(rows, gaps, strict=False):
        base += gap
        numbered.append(row._replace(offset=base))
    data = encode_messages(numbered, magic, codec=codec, append_time_ms=append_time)
    stamp: dict[str, Any] = {}
    if magic == 0:
        stamp = {"timestamp": -1}
    elif append_time is not None:
        stamp = {"timestamp": append_time}
    assert decode_set(data) == [record._replace(**stamp) for record in numbered]
    if codec:
        header = read_message(data)
        assert header.last_offset == numbered[-1].offset
        assert header.record_count == UNKNOWN_COUNT
        newest = max(record.timestamp for record in numbered) if append_time is None else append_time
        assert header.max_timestamp == (newest if magic else -1)
        assert header.is_log_append_time == bool(magic and append_time is not None)


@every_format
def test_the_header_of_a_message(magic: int) -> None:
    data = encode_messages(RECORDS[:1], magic)
    assert len(data) == OVERHEAD[magic] + 8
    header = read_message(b"..." + data, 3)
    assert (header.magic, header.size, header.record_count, header.codec) == (magic, len(data), 1, NONE)
    assert header.base_offset == header.last_offset == 100
    assert header.base_timestamp == header.max_timestamp == (TIME if magic else -1)
    assert header.producer_id == header.base_sequence == header.partition_leader_epoch == -1
    assert not header.is_control
    assert not header.is_transactional


def test_attributes_without_a_meaning_are_left_out() -> None:
    for magic, meant in ((0, 0x00), (1, 0x08)):
        data = bytearray(encode_messages(RECORDS[:1], magic))
        data[17] = 0xF8
        data[12:16] = crc32(data[16:]).to_bytes(4, "big")
        assert read_message(data).attributes == meant


@every_format
@pytest.mark.parametrize(("size", "error"), [(13, "least"), (0, "least"), (-1, "least"), (-(2**31), "least")])
def test_an_impossible_size(magic: int, size: int, error: str) -> None:
    data = bytearray(encode_messages(RECORDS[:1], magic))
    data[8:12] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecordError, match=error):
        read_message(data)


def test_a_message_cut_short() -> None:
    data = encode_messages(RECORDS[:1], 1)
    header = read_message(data)
    assert not message_crc_is_valid(data[:-1], 0, header)
    with pytest.raises(CorruptRecordError, match="cut off after"):
        decode_messages(data[:-1], 0, header)
    for end in range(26):
        with pytest.raises(CorruptRecordError):
            read_any_header(data[:end])


@pytest.mark.parametrize("magic", [3, 127, -1, -128])
def test_an_unknown_format(magic: int) -> None:
    data = bytearray(encode_messages(RECORDS[:2], 1))
    data[16] = magic & 0xFF
    with pytest.raises(CorruptRecordError):
        read_message(data)
    with pytest.raises(UnsupportedMagicError):
        read_any_header(data)


def test_formats_are_told_apart() -> None:
    data = (
        encode_messages(RECORDS, 0)
        + encode_messages(RECORDS, 1)
        + bytes(encode_batch(RECORDS, base_offset=7))
    )
    assert len(decode_set(data)) == 12
    # A last message shorter than a batch's header.
    assert decode_set(encode_messages([Record(1, -1, None, None)], 0)) == [Record(1, -1, None, None)]


@every_format
@every_codec
def test_a_wrong_checksum(magic: int, codec: int) -> None:
    data = bytearray(encode_messages(RECORDS, magic, codec=codec))
    header = read_message(data)
    data[header.size - 1] ^= 1
    assert not message_crc_is_valid(data, 0, header)


def inner(magic: int, change: Any) -> bytes:
    """A wrapper whose second message is changed."""
    messages = bytearray(encode_messages([r._replace(offset=n) for n, r in enumerate(RECORDS)], magic))
    at = read_message(messages).size
    change(messages, at)
    return wrap_messages(bytes(messages), magic, codec=GZIP, last_offset=3, timestamp=TIME)


@every_format
def test_only_strict_reading_verifies_the_messages_in_a_wrapper(magic: int) -> None:
    def wrong_crc(messages: bytearray, at: int) -> None:
        messages[at + 13] ^= 1

    data = inner(magic, wrong_crc)
    assert len(decode_set(data, strict=False)) == 4
    with pytest.raises(CorruptRecordError, match="CRC") as caught:
        decode_set(data)
    assert not isinstance(caught.value, InvalidMessageError)


def test_the_format_within_a_wrapper() -> None:
    data = wrap_messages(
        encode_messages([RECORDS[0]._replace(offset=0)], 0), 1, codec=GZIP, last_offset=8, timestamp=TIME
    )
    assert decode_set(data, strict=False) == [RECORDS[0]._replace(offset=8, timestamp=-1)]
    with pytest.raises(InvalidMessageError, match="format 0 is in a set of format 1"):
        decode_set(data)

    def unknown(messages: bytearray, at: int) -> None:
        messages[at + 16] = 2

    with pytest.raises(InvalidMessageError, match="magic"):
        decode_set(inner(1, unknown), strict=False)


@every_format
def test_a_wrapper_in_a_wrapper(magic: int) -> None:
    once = encode_messages([RECORDS[0]._replace(offset=0)], magic, codec=GZIP)
    data = wrap_messages(once, magic, codec=SNAPPY, last_offset=0, timestamp=TIME)
    with pytest.raises(InvalidMessageError, match="compressed itself"):
        decode_set(data)


@every_format
@pytest.mark.parametrize(
    ("at", "number"), [(18, 2**31 - 1), (18, 12), (18, -2), (25, 2**31 - 1), (25, 6), (25, -(2**31))]
)
def test_sizes_of_fields_that_are_wrong(magic: int, at: int, number: int) -> None:
    data = bytearray(encode_messages(RECORDS[:1], magic))
    data[at + 8 * magic : at + 8 * magic + 4] = number.to_bytes(4, "big", signed=True)
    if number < 0:
        # Any negative size is none, as in Kafka; what is behind is read as the next field, or ignored.
        with pytest.raises(InvalidMessageError) if at == 18 else warnings.catch_warnings():
            assert decode_messages(data).values == [None]
    else:
        with pytest.raises(InvalidMessageError, match="larger than the message"):
            decode_messages(data)


@every_format
def test_bytes_behind_the_value_are_ignored(magic: int) -> None:
    data = bytearray(encode_messages(RECORDS[:1], magic)) + b"more"
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    assert decode_messages(data).values == [b"value"]


def test_offsets_in_a_wrapper_of_format_1() -> None:
    messages = encode_messages([Record(n, TIME, None, b"x") for n in (0, 1, 4)], 1)

    def wrapped(last_offset: int) -> list[int]:
        data = wrap_messages(messages, 1, codec=GZIP, last_offset=last_offset, timestamp=TIME)
        return decode_messages(data).offsets

    assert wrapped(104) == [100, 101, 104]
    assert wrapped(4) == [0, 1, 4]
    # From librdkafka.
    assert wrapped(0) == [0, 1, 4]
    for last_offset in (3, -1):
        with pytest.raises(InvalidMessageError, match="less than 4"):
            wrapped(last_offset)


def test_offsets_in_a_wrapper_of_format_0_are_their_own() -> None:
    messages = encode_messages([Record(n, -1, None, b"x") for n in (7, 5, 900)], 0)
    data = wrap_messages(messages, 0, codec=GZIP, last_offset=12, timestamp=-1)
    assert decode_messages(data).offsets == [7, 5, 900]


@every_format
def test_a_wrapper_without_messages(magic: int) -> None:
    empty = wrap_messages(b"", magic, codec=GZIP, last_offset=0, timestamp=TIME)
    with pytest.raises(InvalidMessageError, match="no messages"):
        decode_messages(empty)
    cut = wrap_messages(
        encode_messages(RECORDS[:1], magic)[:-1], magic, codec=GZIP, last_offset=0, timestamp=TIME
    )
    with pytest.raises(InvalidMessageError, match="no messages"):
        decode_messages(cut)
    data = bytearray(encode_messages([Record(0, TIME, None, None)], magic))
    data[17] = GZIP
    with pytest.raises(InvalidMessageError, match="no value"):
        decode_messages(data)


@every_format
def test_a_last_message_cut_short_in_a_wrapper_is_left_out(magic: int) -> None:
    messages = encode_messages([r._replace(offset=n) for n, r in enumerate(RECORDS)], magic)
    data = wrap_messages(messages[:-1], magic, codec=GZIP, last_offset=2, timestamp=TIME)
    assert decode_messages(data).offsets == [0, 1, 2]


@every_format
@pytest.mark.parametrize("codec", [ZSTD, 5, 6, 7])
def test_codecs_that_the_formats_lack(magic: int, codec: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_messages(RECORDS, magic, codec=codec)
    data = bytearray(encode_messages(RECORDS[:1], magic))
    data[17] = codec
    with pytest.raises(InvalidMessageError, match=f"codec {codec}"):
        decode_messages(data)


@every_format
@pytest.mark.parametrize("codec", CODECS[1:])
def test_broken_compression(magic: int, codec: int) -> None:
    data = bytearray(encode_messages(RECORDS, magic, codec=codec))
    data[OVERHEAD[magic] + 20 : OVERHEAD[magic] + 24] = b"\xff\xff\xff\xff"
    with pytest.raises(CorruptRecordError):
        decode_messages(data)


@every_format
@pytest.mark.parametrize("codec", CODECS[1:])
def test_bombs(magic: int, codec: int) -> None:
    bomb = wrap_messages(
        encode_messages([Record(0, TIME, None, bytes(40_000_000))], magic),
        magic,
        codec=codec,
        last_offset=0,
        timestamp=TIME,
    )
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLargeError):
            decode_messages(bomb, max_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 24_000_000
    finally:
        tracemalloc.stop()


def test_no_records() -> None:
    with pytest.raises(LocalProtocolError):
        encode_messages([], 1)
    with pytest.raises(LocalProtocolError):
        encode_messages(RECORDS, 2)
    with pytest.raises(LocalProtocolError, match="number"):
        encode_messages([Record(2**63, TIME, None, None)], 1)


# The checksum of an lz4 frame's header.


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32(data: bytes, digest: int) -> None:
    assert xxh32(data) == digest


def test_the_checksum_of_lz4_headers() -> None:
    wrong, right = compress_set(LZ4, b"data" * 9, 0), compress_set(LZ4, b"data" * 9, 1)
    assert wrong[:6] == right[:6] == bytes.fromhex("04224d186040")
    assert wrong[7:] == right[7:]
    # As in KAFKA-3160, with magic bytes and without.
    assert (wrong[6], right[6]) == (xxh32(right[:6]) >> 8 & 0xFF, xxh32(right[4:6]) >> 8 & 0xFF)
    assert wrong[6] != right[6]
    # Any checksum will do in format 0, in format 1 only the right one.
    for checksum in (wrong[6], right[6], 0):
        frame = right[:6] + bytes((checksum,)) + right[7:]
        assert decompress_set(LZ4, frame, 0) == b"data" * 9
    with pytest.raises(CorruptRecordError):
        decompress_set(LZ4, wrong, 1)
    for frame in (b"", wrong[:4], wrong[:6], b"\xff" * 12):
        with pytest.raises(CorruptRecordError):
            decompress_set(LZ4, frame, 0)


def test_an_lz4_frame_with_its_content_size() -> None:
    import lz4.frame  # type: ignore[import-untyped]

    frame = bytearray(lz4.frame.compress(b"data" * 9, store_size=True, block_linked=False))
    frame[14] ^= 0x55
    assert decompress_set(LZ4, bytes(frame), 0) == b"data" * 9


# Other implementations.


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden.kind}-{golden.name}")
def test_java_s_message_sets_are_read(golden: Any) -> None:
    assert [as_golden(record) for record in decode_set(golden.data)] == golden.records


@pytest.mark.parametrize(
    "golden", [each for each in GOLDEN if each.kind == "built"], ids=lambda golden: golden.name
)
def test_message_sets_are_written_as_java_does(golden: Any) -> None:
    ours = encode_messages(
        decode_set(golden.data),
        golden.magic,
        codec=read_message(golden.data).codec,
        append_time_ms=TIME + 5 if golden.name.endswith("append-time") else None,
    )
    header = read_message(golden.data)
    if header.codec == NONE:
        assert ours == golden.data
        return
    assert read_message(ours)._replace(crc=0, batch_length=0) == header._replace(crc=0, batch_length=0)
    inner, theirs = (decode_messages(each).offsets for each in (ours, golden.data))
    assert inner == theirs
    at = OVERHEAD[golden.magic]
    if header.codec != GZIP:
        # Snappy's header of 16 bytes and lz4's of 7, with its checksum.
        size = {SNAPPY: 16, LZ4: 7}[header.codec]
        assert ours[at : at + size] == golden.data[at : at + size]
    assert decompress(GZIP, golden.data[at:]) if header.codec == GZIP else True


ROWS = [
    (TIME, b"key", b"value"),
    (TIME + 300, None, b"x" * 900),
    (TIME - 9000, b"gone", None),
    (TIME, b"", b""),
]


@every_format
@every_codec
@pytest.mark.parametrize("make", [LegacyRecordBatchBuilder, _LegacyRecordBatchBuilderPy])
def test_python_clients_write_the_same(make: Any, magic: int, codec: int) -> None:
    if codec == LZ4 and magic == 0:
        pytest.skip("they can't, without xxhash or at all")
    builder = make(magic, codec, 1 << 20)
    for offset, (timestamp, key, value) in enumerate(ROWS):
        assert builder.append(offset, timestamp=timestamp, key=key, value=value)
    theirs = bytes(builder.build())
    expected = [Record(n, row[0] if magic else -1, *row[1:]) for n, row in enumerate(ROWS)]
    if codec and magic:
        # They write a wrapper with offset 0.
        assert read_message(theirs).base_offset == 0
    assert decode_set(theirs) == expected
    if codec == NONE:
        assert encode_messages([Record(n, *row) for n, row in enumerate(ROWS)], magic) == theirs


@every_format
@every_codec
@pytest.mark.parametrize("reader", [LegacyRecordBatch, _LegacyRecordBatchPy])
def test_python_clients_read_ours(reader: Any, magic: int, codec: int) -> None:
    if codec == LZ4 and magic == 0:
        pytest.skip("they can't, without xxhash or at all")
    written = [Record(n, *row) for n, row in enumerate(ROWS, 7)]
    data = encode_messages(written, magic, codec=codec)
    read = []
    position = 0
    while position < len(data):
        size = read_message(data, position).size
        batch = reader(data[position : position + size], magic)
        assert batch.validate_crc()
        read += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
        position += size
    assert read == [(r.offset, r.timestamp if magic else None, r.key, r.value) for r in written]


# Damage.

INPUTS = inputs()
MAX_BYTES = 1 << 20
NUMBERS = (0, 1, 2, 13, 14, 22, 1000, 2**31 - 1, 2**31, 2**32 - 1)


def seeds() -> list[bytes]:
    numbered = [record._replace(offset=n) for n, record in enumerate(RECORDS)]
    return [encode_messages(numbered, magic, codec=codec) for magic in MAGICS for codec in CODECS]


def damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    kind = chance.randrange(6)
    if kind == 0:
        del changed[chance.randrange(len(changed)) :]
    elif kind == 1:
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    elif kind == 2:
        at = chance.choice((8, 18, 22, 26, 30))
        changed[at : at + 4] = struct.pack(">I", chance.choice(NUMBERS))
    elif kind == 3:
        at = chance.randrange(12, len(changed))
        changed[at : at + chance.randint(0, 6)] = chance.randbytes(chance.randint(0, 6))
        changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    elif kind == 4:
        changed[17] = chance.randrange(256)
    else:  # within a wrapper
        magic = chance.choice(MAGICS)
        messages = damaged(encode_messages(RECORDS, magic), chance)
        return wrap_messages(
            messages, magic, codec=chance.choice(CODECS[1:]), last_offset=chance.randrange(9), timestamp=TIME
        )
    return bytes(changed)


def check(data: bytes) -> str:
    try:
        header = read_any_header(data)
        is_intact(data, 0, header)
        if header.magic == 2:
            decode_any(data, 0, header, max_bytes=MAX_BYTES)
            return "batch"
        messages = decode_messages(data, 0, header, max_bytes=MAX_BYTES, strict=True)
    except InvalidMessageError:
        return "invalid"
    except CorruptRecordError:
        return "corrupt"
    assert len(set(map(len, messages))) == 1
    return "read"


def test_many_damaged_message_sets() -> None:
    chance = random.Random(20_160_229)
    originals = seeds()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = Counter(check(damaged(chance.choice(originals), chance)) for _ in range(INPUTS))
    assert results["read"] > INPUTS // 10
    assert results["invalid"] > INPUTS // 50
    assert results["corrupt"] > INPUTS // 10
    # Kilobytes: no size that is claimed is allocated.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
