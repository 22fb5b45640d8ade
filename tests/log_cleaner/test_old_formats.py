"""Compaction of messages of the formats 0 and 1, beside record batches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from ottla_broker.log.log import Log
from ottla_protocol.records.formats import decode_any, iter_headers
from ottla_protocol.records.message_set import encode_messages
from ottla_protocol.records.record import Record

from .conftest import START_MS, Broker, append, roll
from .ways import WAYS, cleaning

Row = tuple[bytes | None, bytes | None]


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with cleaning(request.param):
        yield request.param


def append_old(log: Log, magic: int, *rows: Row, **how: Any) -> None:
    """Append messages of an old format, in a wrapper if there is a codec."""
    first = log.log_end_offset
    records = [Record(first + i, START_MS + i, key, value) for i, (key, value) in enumerate(rows)]
    log.append_as_follower(bytearray(encode_messages(records, magic, **how)))


def found(log: Log) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Format, offset, key and value of each record."""
    return [
        (header.magic, record.offset, record.key, record.value)
        for chunk in log.reader.scan_batches(0)
        for position, header in iter_headers(chunk)
        for record in decode_any(chunk, position, header)
    ]


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
async def test_the_last_message_of_a_key_stays(broker: Broker, magic: int, codec: int) -> None:
    log = broker.create()
    append_old(log, magic, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (None, b"x"), codec=codec)
    append_old(log, magic, (b"b", b"2"), (b"d", b"1"), codec=codec)
    append(log, (b"a", b"3"), (b"e", b"1"))
    append_old(log, magic, (b"e", b"2"))
    roll(log)

    stats = await broker.clean(log)

    assert found(log) == [
        (magic, 2, b"c", b"1"),
        (magic, 4, b"b", b"2"),
        (magic, 5, b"d", b"1"),
        (2, 6, b"a", b"3"),
        (magic, 8, b"e", b"2"),
    ]
    assert (stats.records_read, stats.records_kept, stats.keyless) == (9, 5, 1)
    assert log.log_end_offset == 9
    if codec:
        headers = [header for chunk in log.reader.scan_batches(0) for _, header in iter_headers(chunk)]
        assert [header.codec for header in headers] == [codec, codec, 0, 0]
        assert [header.last_offset for header in headers] == [2, 5, 7, 8]


@pytest.mark.parametrize("append_time", [None, START_MS + 77])
async def test_a_wrapper_keeps_its_kind_of_timestamps(broker: Broker, append_time: int | None) -> None:
    log = broker.create()
    append_old(log, 1, (b"a", b"1"), (b"b", b"1"), codec=1, append_time_ms=append_time)
    append(log, (b"a", b"2"))
    roll(log)

    await broker.clean(log)

    chunk = next(iter(log.reader.scan_batches(0)))
    position, header = next(iter_headers(chunk))
    assert header.is_log_append_time == (append_time is not None)
    assert [record.timestamp for record in decode_any(chunk, position, header)] == [
        append_time or START_MS + 1
    ]


async def test_a_tombstone_goes_when_its_segment_is_old_enough(broker: Broker) -> None:
    log = broker.create(delete_retention_ms=1000, segment_bytes=100)
    append_old(log, 1, (b"a", None))
    roll(log)
    append_old(log, 1, (b"b", b"1" * 50))
    roll(log)

    await broker.clean(log)
    assert [each[1] for each in found(log)] == [0, 1], "no segment was clean before"

    written = [START_MS, START_MS + 999]
    for number, (segment, modified) in enumerate(zip(log.segments, written, strict=False)):
        os.utime(segment.file.path, ns=(modified * 10**6, modified * 10**6))
        append_old(log, 1, (b"c", b"%d" % number * 50))
        roll(log)
    await broker.clean(log)
    assert [each[1] for each in found(log)] == [0, 1, 3]

    modified = START_MS + 2000
    for segment in log.segments[1:-1]:
        os.utime(segment.file.path, ns=(modified * 10**6, modified * 10**6))
    append_old(log, 1, (b"d", b"1" * 50))
    roll(log)
    await broker.clean(log)
    assert [each[1] for each in found(log)] == [1, 3, 4]


async def test_a_damaged_message_makes_the_log_uncleanable(broker: Broker) -> None:
    log = broker.create()
    append_old(log, 1, (b"a", b"1"), codec=1)
    append(log, (b"a", b"2"))
    roll(log)
    log.segments[0].file.write(b"\xff", 40)

    assert await broker.clean_now(log) is None
    assert broker.cleaner.uncleanable == {("t", 0)}
