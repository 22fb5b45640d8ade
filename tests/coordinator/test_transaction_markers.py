"""The markers of the transaction coordinator: who gets them, what is sent again, what needs none."""

from __future__ import annotations

import pytest
from tests.coordinator.transactions import TransactionWorld

from ottla_protocol.errors import ErrorCode as Code


def test_markers_go_to_each_leader_together() -> None:
    world = TransactionWorld()
    producers = {name: world.producer(name) for name in "abc"}
    world.brokers.hold = True
    for name, producer in producers.items():
        world.add(producer, (0, 1, 2), name)
        world.end(producer, name=name)
    # The first transaction's are on their way; those of the others wait for the answer.
    assert sorted(each.broker_id for each in world.brokers.waiting) == [1, 2]
    world.brokers.deliver()
    world.brokers.deliver()
    assert world.state("a") == "CompleteCommit"
    assert sorted(len(each.markers) for each in world.brokers.waiting) == [2, 2]
    world.brokers.deliver()
    world.brokers.deliver()
    assert world.state("c") == "CompleteCommit"
    assert not world.brokers.waiting


def test_a_marker_whose_answer_is_lost_is_sent_again() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.brokers.hold = True
    world.end(producer)
    world.brokers.deliver(answer=False)
    assert world.state() == "PrepareCommit"
    world.clock.advance(0.1)
    world.brokers.deliver()
    assert world.state() == "CompleteCommit"
    assert len(world.markers()) == 2


def test_markers_follow_a_partition_to_its_new_leader() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.hold = True
    world.end(producer)
    world.brokers.leaders["t", 0] = 9
    world.brokers.hold = False
    while world.brokers.waiting:
        world.brokers.deliver()
    world.clock.advance(1)
    assert world.state() == "CompleteCommit"
    assert len(world.markers(0)) == len(world.markers(1)) == 1


def test_markers_wait_for_a_leader() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.leaders["t", 0] = -1
    world.end(producer)
    world.clock.advance(100)
    assert world.state() == "PrepareCommit"
    assert world.coordinator.describe("x").partitions == [("t", 0)]
    assert len(world.markers(1)) == 1
    world.brokers.leaders["t", 0] = 2
    world.clock.advance(2)
    assert world.state() == "CompleteCommit"


def test_deleted_topics_are_passed_over() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1, 2))
    world.brokers.hold = True
    del world.brokers.leaders["t", 2]
    world.end(producer)
    # This one is deleted while its marker is under way.
    del world.brokers.leaders["t", 0]
    world.brokers.hold = False
    while world.brokers.waiting:
        world.brokers.deliver()
    world.clock.advance(1)
    assert world.state() == "CompleteCommit"
    world.add(producer, (1,))
    del world.brokers.leaders["t", 1]
    assert world.end(producer) == [Code.NONE]
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize(
    "code",
    [
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.REQUEST_TIMED_OUT,
        Code.KAFKA_STORAGE_ERROR,
        Code.INVALID_PRODUCER_EPOCH,
        Code.TRANSACTION_COORDINATOR_FENCED,
        Code.CORRUPT_MESSAGE,
        Code.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_a_partition_that_refuses_its_marker(code: Code) -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.errors["t", 0] = code
    world.end(producer)
    world.clock.advance(60)
    assert world.state() == "PrepareCommit"
    assert world.clock.pending < 10
    world.brokers.errors.clear()
    world.clock.advance(10)
    assert world.state() == "CompleteCommit"
    assert len(world.markers(0)) == len(world.markers(1)) == 1


@pytest.mark.parametrize("code", [Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, Code.UNSUPPORTED_VERSION])
def test_partitions_without_transactions_need_no_marker(code: Code) -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.errors["t", 0] = code
    world.end(producer)
    assert world.state() == "CompleteCommit"


def test_a_request_has_a_limit() -> None:
    world = TransactionWorld()
    world.brokers.hold = True
    for number in range(1203):
        name = f"x{number}"
        producer = world.producer(name)
        world.add(producer, (0,), name)
        world.end(producer, name=name)
    sizes = []
    while world.brokers.waiting:
        sizes.append(len(world.brokers.waiting[0].markers))
        world.brokers.deliver()
    assert sizes == [1, 500, 500, 202]
    assert len(world.markers()) == 1203
