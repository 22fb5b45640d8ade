"""Idempotent producers after compaction: the log keeps their last sequence while they are remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.log.cleaner import CleanerSettings
from ottla_broker.log.log import Log
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.record import encode_batch

from .conftest import START_MS, Broker, append, batches, pairs, roll


def produce(log: Log, producer_id: int, sequence: int, *keys: bytes) -> int:
    """Append as a client does; returns the offset."""
    data = encode_batch(
        [(START_MS, key, b"v", ()) for key in keys],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return log.append(memoryview(data), leader_epoch=0, now_ms=START_MS, from_client=True).first_offset


async def test_the_last_batch_of_a_producer_stays_empty(broker: Broker) -> None:
    log = broker.create()
    produce(log, 1, 0, b"a")
    produce(log, 1, 1, b"a", b"b")
    produce(log, 2, 0, b"a", b"b")
    append(log, (b"a", b"w"), (b"b", b"w"))
    roll(log)

    await broker.clean(log)

    found = [
        (each.base_offset, each.last_offset, each.producer_id, each.record_count) for each in batches(log)
    ]
    assert found == [(1, 2, 1, 0), (3, 4, 2, 0), (5, 6, -1, 2)]
    assert [each.last_sequence for each in batches(log)[:2]] == [2, 1]


async def test_an_empty_batch_stays_until_its_producer_is_forgotten(
    broker: Broker,
) -> None:
    log = broker.create()
    produce(log, 1, 0, b"a")
    append(log, (b"a", b"w"))
    roll(log)
    await broker.clean(log)
    append(log, (b"b", b"w"))
    roll(log)
    await broker.clean(log)
    assert [each.producer_id for each in batches(log)] == [1, -1, -1]

    log.producers.producers.clear()
    append(log, (b"c", b"w"))
    roll(log)
    await broker.clean(log)
    assert [each.producer_id for each in batches(log)] == [-1, -1, -1]


@pytest.mark.parametrize("clean_stop", [True, False])
async def test_sequences_go_on_after_compaction_and_a_restart(
    tmp_path: Path, settings: CleanerSettings, clean_stop: bool
) -> None:
    broker = await Broker(tmp_path / "data", settings).open()
    log = broker.create()
    produce(log, 1, 0, b"a", b"b")
    produce(log, 1, 2, b"a", b"b")
    append(log, (b"a", b"w"), (b"b", b"w"))
    roll(log)
    await broker.clean(log)
    await broker.close()
    if not clean_stop:
        # The restart has only the log itself.
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
        (tmp_path / "data" / "recovery-point-offset-checkpoint").unlink()
        for path in (tmp_path / "data" / "t-0").glob("*.snapshot"):
            path.unlink()

    broker = await Broker(tmp_path / "data", settings).open()
    found = broker.logs.get("t", 0)
    assert found is not None
    found.open()
    assert produce(found, 1, 2, b"a", b"b") == 2, "a repetition is answered with the first answer"
    with pytest.raises(KafkaError) as refused:
        produce(found, 1, 5, b"a")
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(found, 1, 4, b"a") == 6
    assert pairs(found) == [(4, b"a", b"w"), (5, b"b", b"w"), (6, b"a", b"v")]
    await broker.close()
