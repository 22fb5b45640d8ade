"""What is left of a log after it was compacted."""

from __future__ import annotations

from .conftest import Broker, append, batches, pairs, records, roll


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
