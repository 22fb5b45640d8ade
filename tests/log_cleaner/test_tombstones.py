"""A tombstone stays for ``delete.retention.ms`` from the first cleaning that meets it (KIP-534)."""

from __future__ import annotations

from .conftest import START_MS, Broker, append, batches, pairs, records, roll


async def make_dirty(broker: Broker, log: object) -> None:
    """Append another record, so that the log is dirty."""
    append(log, (b"other", b"x"))  # type: ignore[arg-type]
    roll(log)  # type: ignore[arg-type]


async def test_a_tombstone_gets_a_horizon_and_is_removed_after_it(broker: Broker) -> None:
    log = broker.create(delete_retention_ms=1000)
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", None), (b"c", b"1"))
    roll(log)

    await broker.clean(log)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    assert [each.delete_horizon_ms for each in batches(log)] == [None, START_MS + 1000]
    assert [each.timestamp for each in records(log)] == [START_MS + 1, START_MS, START_MS + 1]

    broker.clock.time += 0.999
    await make_dirty(broker, log)
    await broker.clean(log)
    assert (2, b"a", None) in pairs(log)
    assert batches(log)[1].delete_horizon_ms == START_MS + 1000

    broker.clock.time += 0.001
    await make_dirty(broker, log)
    await broker.clean(log)
    assert [each[:2] for each in pairs(log)] == [(1, b"b"), (3, b"c"), (5, b"other")]
    assert records(log)[1].timestamp == START_MS + 1


async def test_a_tombstone_of_a_compressed_batch(broker: Broker) -> None:
    log = broker.create(delete_retention_ms=1000)
    append(log, (b"a", None), (b"b", b"1"), codec=4, now_ms=START_MS - 5_000)
    roll(log)

    await broker.clean(log)

    assert [(each.timestamp - START_MS, each.key) for each in records(log)] == [(-5000, b"a"), (-4999, b"b")]
    assert batches(log)[0].max_timestamp == START_MS - 4999
    assert batches(log)[0].codec == 4


async def test_a_batch_with_log_append_time_keeps_it(broker: Broker) -> None:
    log = broker.create(delete_retention_ms=1000, message_timestamp_type="LogAppendTime")
    append(log, (b"a", None), (b"b", b"1"))
    roll(log)

    await broker.clean(log)

    assert [each.timestamp for each in records(log)] == [START_MS, START_MS]


async def test_a_value_after_a_tombstone_wins(broker: Broker) -> None:
    log = broker.create()
    append(log, (b"a", b"1"))
    append(log, (b"a", None))
    append(log, (b"a", b"2"))
    roll(log)

    await broker.clean(log)

    assert pairs(log) == [(2, b"a", b"2")]


async def test_a_tombstone_that_the_map_has_not_seen_gets_no_horizon(broker: Broker) -> None:
    from ottla_broker.log.cleaner import CleanerSettings

    broker.cleaner._settings = CleanerSettings(dedupe_buffer_size=24 * 4)
    log = broker.create()
    for key in (b"a", b"b", b"c", b"d"):
        append(log, (key, b"1"))
    append(log, (b"e", None))
    roll(log)

    await broker.clean(log)

    assert batches(log)[-1].delete_horizon_ms is None
