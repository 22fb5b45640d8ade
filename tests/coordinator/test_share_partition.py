"""One share partition on a log that counts how often it is read."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from tests.support.clock import FakeClock

from ottla_broker.coordinator.deadlines import Deadlines
from ottla_broker.coordinator.share.in_flight import Batch
from ottla_broker.coordinator.share.settings import ShareSettings
from ottla_broker.coordinator.share.share_partition import SharePartition
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState
from ottla_broker.coordinator.share.states import RecordState
from ottla_protocol.records.record import encode_batch


class Keeper:
    """Has the state of ten records that were delivered once and released."""

    def read(self, key: ShareKey, leader_epoch: int, read: Callable[[ShareState], None]) -> None:
        read(ShareState(1, 0, 0, [Batch(0, 9, RecordState.AVAILABLE, 1)]))

    def write(self, *args: Any) -> None:
        args[-1](None)


def test_records_too_far_ahead_of_the_start_are_read_once_by_a_fetch() -> None:
    clock = FakeClock()
    batch = bytes(encode_batch([(0, None, b"v", ())] * 10))
    reads: list[int] = []

    def read(offset: int, *_: object, **__: object) -> object:
        reads.append(offset)
        return SimpleNamespace(read=lambda: batch)

    log = SimpleNamespace(log_start_offset=0, log_end_offset=10, reader=SimpleNamespace(read=read))
    partition = SimpleNamespace(
        topic="t", leader_epoch=0, log=log, high_watermark=10, is_led_here=True, check_leader=lambda: None
    )
    share = SharePartition(
        ShareKey("g", bytes(16), 0),
        cast(Any, partition),
        cast(Any, Keeper()),
        lambda _: ShareSettings(most_locks=5),
        clock,
        Deadlines(clock, lambda _: None),
        lambda _: None,
    )
    share.load()
    first = share.fetch("m", 5, 1 << 20, True)
    assert first is not None
    assert [each[:2] for each in first.batches] == [(0, 4)]
    reads.clear()
    assert share.fetch("m", 5, 1 << 20, True) is None
    assert reads == [5]
