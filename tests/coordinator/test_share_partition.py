"""One share partition on a log in memory."""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.share_world import Keeper, ShareWorld

from ottla_broker.config.group_configs import ShareSettings
from ottla_broker.coordinator.share.fetched import batches_with, find_batches
from ottla_broker.coordinator.share.in_flight import Batch
from ottla_broker.coordinator.share.state_batches import ShareState
from ottla_broker.coordinator.share.states import Acknowledge, RecordState
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.formats import iter_headers


def test_records_too_far_ahead_of_the_start_are_not_read() -> None:
    released = ShareState(1, 0, 0, [Batch(0, 9, RecordState.AVAILABLE, 1)])
    world = ShareWorld(ShareSettings(most_locks=5), Keeper(released))
    world.log.append([None] * 10)
    assert world.offsets("m", 5) == [0, 1, 2, 3, 4]
    world.log.reads.clear()
    assert world.offsets("m", 5) == []
    assert world.log.reads == []


def test_a_fetch_looks_at_a_thousand_batches_in_a_turn() -> None:
    world = ShareWorld(ShareSettings(most_locks=2_000))
    for _ in range(2_050):
        world.log.append([None])
    first = world.share.fetch("m", 5_000, 1 << 20, True)
    assert first.acquired is not None
    assert [(each.first, each.last) for each in first.acquired.batches] == [(0, 999)]
    assert first.work == 1_001  # batches, and the range
    second = world.share.fetch("m", 5_000, 1 << 20, True)
    assert second.acquired is not None
    assert [(each.first, each.last) for each in second.acquired.batches] == [(1_000, 1_999)]
    # Fewer records, less work.
    world = ShareWorld(ShareSettings())
    for _ in range(50):
        world.log.append([None])
    assert world.share.fetch("m", 7, 1 << 20, True).work == 8


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_fetch_learns_why_the_state_cannot_be_read(code: ErrorCode, shown: ErrorCode) -> None:
    world = ShareWorld(ShareSettings())
    world.log.append([None])
    world.keeper.failure = KafkaError(code, "a reason")
    world.restart()
    with pytest.raises(KafkaError, match="a reason") as error:
        world.fetch("m")
    assert error.value.code is shown
    # What is kept is another one: a raised error keeps its frames, and all that they have.
    assert world.share.failure is not None
    assert world.share.failure.__traceback__ is None


def test_large_batches_stay_in_the_file() -> None:
    released = ShareState(1, 0, 0, [Batch(2_000, 2_000, RecordState.ACKNOWLEDGED, 1)])
    world = ShareWorld(ShareSettings(most_locks=10_000), Keeper(released))
    for count in (2_000, 1, 1, 2_000, 2_000, 1):
        world.log.append([None] * count)
    found = world.fetch("m", 10_000)
    assert found is not None
    data = world.log.read(0, 1 << 20, max_offset=10_000, min_one=True)
    sizes = [header.size for _, header in iter_headers(data.read())]
    # One piece for what lies together; small ones are copied.
    assert list(map(len, found.records.parts)) == [sizes[0], sizes[2] + sum(sizes[3:])]
    assert found.records.copied == 0
    small = batches_with(data, find_batches(data, 10_000, 100), [(2_000, 2_000)])
    assert (len(small), small.copied) == (sizes[1], sizes[1])
    (part,) = small.parts
    assert part == data.read()[sizes[0] : sizes[0] + sizes[1]]


@pytest.mark.parametrize("cut", [0, 1, 70])
def test_headers_are_found_wherever_they_lie(cut: int) -> None:
    world = ShareWorld(ShareSettings())
    for number in range(600):
        world.log.append([b"k" * (37 * number % 5_000)])
    whole = world.log.read(0, 1 << 30, max_offset=600, min_one=True)
    data = whole.part(0, len(whole) - cut)
    every = list(iter_headers(data.read()))
    assert find_batches(data, 600, 1_000) == every
    assert find_batches(data, 400, 1_000) == every[:401]
    assert find_batches(data, 600, 7) == every[:7]


def test_only_batches_with_acquired_records_are_sent() -> None:
    released = ShareState(1, 0, 0, [Batch(1, 2, RecordState.ACKNOWLEDGED, 1)])
    world = ShareWorld(ShareSettings(), Keeper(released))
    for _ in range(4):
        world.log.append([None])
    found = world.fetch("m")
    assert found is not None
    assert [(each.first, each.last) for each in found.batches] == [(0, 0), (3, 3)]
    assert len(found.records) * 2 == len(world.log.read(0, 1 << 20, max_offset=4, min_one=True).read())


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_acknowledgement_learns_why_it_is_not_written(code: ErrorCode, shown: ErrorCode) -> None:
    class Refusing(Keeper):
        def write(self, *arguments: Any, **_: Any) -> None:
            arguments[-1](KafkaError(code))

    released = ShareState(1, 0, 0, [Batch(0, 0, RecordState.AVAILABLE, 1)])
    world = ShareWorld(ShareSettings(), Refusing(released))
    world.log.append([None])
    assert world.offsets("m") == [0]
    refused = world.acknowledge("m", {0: Acknowledge.ACCEPT})
    assert refused is not None
    assert refused.code is shown


def test_what_no_consumer_accepts_is_counted() -> None:
    world = ShareWorld(ShareSettings(lock_ms=1_000, most_deliveries=2))
    world.log.append([None] * 4)
    assert world.offsets("m") == [0, 1, 2, 3]
    assert (
        world.acknowledge("m", {0: Acknowledge.ACCEPT, 1: Acknowledge.REJECT, 2: Acknowledge.RELEASE}) is None
    )
    world.clock.advance(1.5)
    tally = world.tally
    assert (tally.timeouts, tally.rejected, tally.given_up) == (1, 1, 0)
    assert world.offsets("m") == [2, 3]
    assert world.acknowledge("m", {2: Acknowledge.RELEASE, 3: Acknowledge.ACCEPT}) is None
    assert (tally.rejected, tally.given_up) == (1, 1)
    assert [(each.topic, each.partition, each.first, each.rejected) for each in tally.losses] == [
        ("t", 0, 1, True),
        ("t", 0, 2, False),
    ]
    assert tally.types == {Acknowledge.ACCEPT: 2, Acknowledge.REJECT: 1, Acknowledge.RELEASE: 2}
