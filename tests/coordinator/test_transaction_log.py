"""What transaction coordinators write and load: fail-over, records that are invalid, listings, bytes."""

from __future__ import annotations

import struct

import pytest
from tests.coordinator.transactions import LOGGED, Marker, TransactionWorld, world_in

from ottla_broker.coordinator.shard import ShardState
from ottla_broker.coordinator.transaction.metadata import TransactionMetadata
from ottla_broker.coordinator.transaction.records import transaction_key, transaction_value
from ottla_broker.coordinator.transaction.states import TransactionState
from ottla_broker.metadata.internal_topics import TRANSACTION_TOPIC
from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.records.record import encode_batch

S = TransactionState


@pytest.mark.parametrize("state", LOGGED)
def test_loading_each_state(state: TransactionState) -> None:
    world = world_in(state)
    world.brokers.hold = False
    while world.brokers.waiting:
        world.brokers.deliver()
    assert world.state() == state.value.replace("Prepare", "Complete")
    assert world.metadata().producer_epoch == 3


def test_requests_while_loading() -> None:
    world = TransactionWorld()
    producer = world.producer()
    again = world.restart(load=False)
    assert again.add(producer) == [Code.COORDINATOR_LOAD_IN_PROGRESS]
    assert again.init()[0].error == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert again.state() == "COORDINATOR_LOAD_IN_PROGRESS"
    assert again.listed([], [], -1)[0] == Code.COORDINATOR_LOAD_IN_PROGRESS
    again.clock.run_due()
    assert again.add(producer) == [Code.NONE]


def test_a_new_coordinator_sends_the_markers_with_its_epoch() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.hold = True
    world.end(producer)
    world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    again = world.restart()
    assert len(again.brokers.waiting) == 4
    again.brokers.hold = False
    while again.brokers.waiting:
        again.brokers.deliver(-1)
    # Those of the old coordinator come too late.
    assert world.markers(0) == world.markers(1) == [Marker(1000, 0, True, 1)]
    assert again.state() == "CompleteCommit"
    written = len(again.partition.batches)
    world.clock.advance(100)
    assert len(again.partition.batches) == written
    assert len(world.partition.batches) == written - 1


@pytest.mark.parametrize("bumps", [False, True])
def test_markers_have_the_version_of_their_transaction(bumps: bool) -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add_for_leader(producer)
    world.brokers.hold = True
    if bumps:
        world.end_with_bump(producer)
    else:
        world.end(producer)
    world.restart()
    versions = [each.transaction_version for waiting in world.brokers.waiting for each in waiting.markers]
    assert versions == [2 if bumps else 0] * 2


def test_waiting_requests_are_answered_when_the_partition_moves() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.producer("y")
    world.partition.hold = True
    ended, initialized = world.end(producer), world.init("y")
    world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    assert ended == [Code.NOT_COORDINATOR]
    assert initialized == [(Code.NOT_COORDINATOR, -1, -1)]
    world.partition.release(Code.NOT_LEADER_OR_FOLLOWER)
    world.clock.advance(1000)
    assert world.add(producer) == [Code.NOT_COORDINATOR]
    assert not world.markers()


def test_before_the_start_and_after_the_stop() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.coordinator.stop()
    assert world.add(producer) == [Code.COORDINATOR_NOT_AVAILABLE]
    assert world.listed([], [], -1)[0] == Code.COORDINATOR_NOT_AVAILABLE
    assert world.clock.pending == 0


def test_a_decision_that_the_new_coordinator_does_not_have_was_never_carried_out() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.partition.hold = True
    world.end(producer)
    world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    again = world.restart(lose={len(world.partition.batches) - 1})
    assert again.state() == "Ongoing"
    assert not again.markers()
    assert again.end(producer, False) == [Code.NONE]
    assert again.markers() == [Marker(1000, 0, False, 1)]


def test_a_log_that_cannot_be_read() -> None:
    world = TransactionWorld()
    producer = world.producer()
    again = world.restart(load=False)
    again.partition.unreadable = True
    again.clock.run_due()
    assert again.add(producer) == [Code.NOT_COORDINATOR]
    assert next(iter(again.coordinator._host.shards.values())).state is ShardState.FAILED


@pytest.mark.parametrize(
    "row",
    [
        (0, None, b"", ()),
        (0, b"", b"", ()),
        (0, transaction_key("y"), b"\x00\x09", ()),
        (0, transaction_key("y"), b"", ()),
        (0, struct.pack(">h", 3), b"", ()),
        (
            0,
            transaction_key("y"),
            transaction_value(TransactionMetadata(7, 0, state=S.PREPARE_EPOCH_FENCE)),
            (),
        ),
        (0, transaction_key("y"), transaction_value(TransactionMetadata(7, 0))[:12] + b"\x63", ()),
    ],
)
def test_invalid_records_are_skipped(row: tuple[int, bytes | None, bytes, tuple[()]]) -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.partition.append_internal(encode_batch([row]), 0)
    again = world.restart()
    assert again.state("y") == "TRANSACTIONAL_ID_NOT_FOUND"
    assert again.add(producer) == [Code.NONE]


# Administration


def test_list_and_describe() -> None:
    world = TransactionWorld()
    a, b = world.producer("a"), world.producer("b")
    world.clock.advance(10)
    world.add(a, (2, 1), "a")
    world.clock.advance(5)
    every = world.listed([], [], -1)
    assert every == (0, [], [("a", a.id, "Ongoing"), ("b", b.id, "Empty")])
    assert world.listed(["Ongoing", "Lost"], [], -1) == (0, ["Lost"], [("a", a.id, "Ongoing")])
    assert world.listed(["Lost"], [], -1) == (0, ["Lost"], [])
    assert world.listed([], [b.id], -1)[2] == [("b", b.id, "Empty")]
    # Kafka counts from the epoch for an id without a transaction.
    assert len(world.listed([], [], 4999)[2]) == 2
    assert world.listed([], [], 5000)[2] == [("b", b.id, "Empty")]
    found = world.coordinator.describe("a")
    assert found.partitions == [("t", 1), ("t", 2)]
    assert found.metadata is not None
    assert found.metadata.start_ms == world.clock.now_ms() - 5000


# The bytes


def test_bytes_of_the_records() -> None:
    world = TransactionWorld()
    producer = world.producer("é")
    empty, now = world.partition.records()[-1], world.clock.now_ms()
    assert empty.key == struct.pack(">hh2s", 0, 2, "é".encode())
    assert empty.value == struct.pack(">hqhibiqq", 0, 1000, 0, 60_000, 0, -1, now, -1)
    world.add(producer, (2, 0), "é")
    ongoing = world.partition.records()[-1]
    assert ongoing.value == (
        struct.pack(">hqhib", 0, 1000, 0, 60_000, 1)
        + struct.pack(">ih1siii", 1, 1, b"t", 2, 0, 2)
        + struct.pack(">qq", now, now)
    )
    world.end(producer, name="é")
    prepared, complete = world.partition.records()[-2:]
    assert prepared.value == ongoing.value.replace(
        struct.pack(">ib", 60_000, 1), struct.pack(">ib", 60_000, 2)
    )
    assert complete.value == struct.pack(">hqhibiqq", 0, 1000, 0, 60_000, 4, 0, now, now)
