"""The contents of a log after compaction."""

from __future__ import annotations

import pytest

from ottla_broker.log.cleaner import CleanerSettings
from ottla_protocol.records.batch import HEADER_SIZE

from .conftest import START_MS, Broker, append, batches, pairs, records, roll


async def test_the_last_value_of_a_key_stays_at_its_offset(broker: Broker) -> None:
    log = broker.create()
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", b"2"), (b"c", b"1"))
    roll(log)
    append(log, (b"a", b"3"))

    await broker.clean(log)

    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1"), (4, b"a", b"3")]
    assert [(each.base_offset, each.last_offset) for each in batches(log)] == [(0, 1), (2, 3), (4, 4)]
    assert log.log_end_offset == 5


async def test_a_batch_that_loses_records_keeps_everything_else(broker: Broker) -> None:
    log = broker.create()
    headers = (("h", b"1"), ("n", None))
    from ottla_protocol.records.record import encode_batch

    data = encode_batch(
        [(START_MS + i, key, b"v", headers) for i, key in enumerate((b"a", b"b", b"c"))],
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
    )
    log.append(memoryview(data), leader_epoch=5, now_ms=START_MS, from_client=False)
    append(log, (b"a", b"new"), (b"c", b"new"))
    roll(log)

    await broker.clean(log)

    first = batches(log)[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)
    assert (first.base_sequence, first.last_sequence, first.producer_id, first.producer_epoch) == (
        40,
        42,
        7,
        2,
    )
    assert first.partition_leader_epoch == 5
    assert first.max_timestamp == START_MS + 1
    kept = records(log)[0]
    assert (kept.offset, kept.timestamp, kept.key, kept.value, kept.headers) == (
        1,
        START_MS + 1,
        b"b",
        b"v",
        headers,
    )


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
async def test_a_batch_keeps_its_codec(broker: Broker, codec: int) -> None:
    log = broker.create()
    append(log, *((b"k%d" % (i % 5), b"value" * 20) for i in range(20)), codec=codec)
    roll(log)

    await broker.clean(log)

    assert [(each.offset, each.key) for each in records(log)] == [(15 + i, b"k%d" % i) for i in range(5)]
    assert batches(log)[0].codec == codec


async def test_batches_that_keep_all_their_records_are_copied_byte_for_byte(broker: Broker) -> None:
    log = broker.create()
    append(log, (b"a", b"1"), (b"b", b"1"), codec=1)
    append(log, (b"c", b"1"))
    append(log, (b"c", b"2"))
    roll(log)
    before = [bytes(batch) for _, _, batch in log.segments[0].batches()]

    await broker.clean(log)

    assert [bytes(batch) for _, _, batch in log.segments[0].batches()] == [before[0], before[2]]


async def test_a_segment_that_loses_nothing_is_not_rewritten(broker: Broker) -> None:
    log = broker.create(segment_bytes=200)
    for key in range(6):
        append(log, (b"%d" % key, b"v" * 60))
    roll(log)
    before = log.segments

    stats = await broker.clean(log)

    assert stats.segments == 0
    assert log.segments == before
    assert len(pairs(log)) == 6


async def test_records_without_a_key_are_removed(broker: Broker) -> None:
    log = broker.create()
    append(log, (None, b"1"), (b"a", b"1"))
    roll(log)

    stats = await broker.clean(log)

    assert pairs(log) == [(1, b"a", b"1")]
    assert stats.keyless == 1


async def test_the_active_segment_is_never_touched(broker: Broker) -> None:
    log = broker.create()
    append(log, (b"a", b"1"), (b"a", b"2"))

    assert await broker.clean_now(log) is None
    assert len(pairs(log)) == 2


async def test_nothing_above_the_last_stable_offset_is_cleaned(broker: Broker) -> None:
    log = broker.create()
    append(log, (b"a", b"1"))
    append(log, (b"a", b"2"))
    roll(log)
    append(log, (b"a", b"3"))
    roll(log)
    append(log, (b"a", b"4"))
    broker.cleaner._stable_offset_of = lambda log: 2

    await broker.clean(log)
    assert pairs(log) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]

    assert await broker.clean_now(log) is None, "the segment of the stable offset is not cleaned in part"


async def test_the_last_batch_of_the_stretch_stays_as_a_header(broker: Broker) -> None:
    log = broker.create()
    append(log, (b"a", b"1"))
    append(log, (None, b"no key"))
    roll(log)

    await broker.clean(log)

    last = batches(log)[-1]
    assert (last.base_offset, last.last_offset, last.record_count, last.size) == (1, 1, 0, HEADER_SIZE)


async def test_old_segments_are_merged_as_far_as_they_fit(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000)
    for _ in range(5):
        for key in range(10):
            append(log, (b"%d" % key, b"v" * 100))
    roll(log)
    count = len(log.segments)
    await broker.clean(log)
    after_one = len(log.segments)
    for key in range(10):
        append(log, (b"%d" % key, b"w" * 100))
    roll(log)
    await broker.clean(log)

    assert after_one <= count
    assert len(log.segments) < count
    assert all(each.size <= 1000 for each in log.segments)
    assert [each.key for each in records(log)] == [b"%d" % key for key in range(10)]


async def test_several_passes_when_the_map_is_too_small(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000)
    for turn in range(3):
        for key in range(100):
            append(log, (b"key-%d" % key, b"%d" % turn))
    roll(log)
    # Room for 37 keys at a time.
    small = CleanerSettings(dedupe_buffer_size=1000)
    broker.cleaner._settings = small

    passes = 0
    while await broker.clean_now(log) is not None:
        passes += 1
        assert {each.key: each.value for each in records(log)} == {b"key-%d" % k: b"2" for k in range(100)}

    assert passes > 2
    assert [(each.key, each.value) for each in records(log)] == [(b"key-%d" % k, b"2") for k in range(100)]


async def test_a_batch_larger_than_the_read_buffer(broker: Broker) -> None:
    log = broker.create()
    broker.cleaner._settings = CleanerSettings(dedupe_buffer_size=1 << 20, io_buffer_size=1)
    append(log, (b"a", b"x" * 20_000), (b"b", b"y" * 20_000))
    append(log, (b"a", b"z" * 20_000))
    roll(log)

    await broker.clean(log)

    assert pairs(log) == [(1, b"b", b"y" * 20_000), (2, b"a", b"z" * 20_000)]
