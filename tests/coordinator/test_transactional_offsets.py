"""Offsets that a transaction commits: hidden until its marker, checked like the member's own commits."""

from __future__ import annotations

import pytest
from tests.coordinator.harness import World

from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.records.formats import iter_headers

P = (7, 0)
Q = (8, 3)


def test_offsets_count_when_the_transaction_is_committed() -> None:
    world = World()
    world.commit(1)
    assert world.commit_transactional(P, 10, partitions=(0, 1)) == [Code.NONE, Code.NONE]
    assert world.offset() == 1
    assert world.offset(partition=1) == -1
    assert world.unstable()
    assert world.unstable(partition=1)
    world.end_transaction(P, True)
    assert world.offset(require_stable=True) == 10
    assert world.offset(partition=1, require_stable=True) == 10


def test_offsets_are_dropped_when_the_transaction_is_aborted() -> None:
    world = World()
    world.commit(1)
    world.commit_transactional(P, 10)
    world.end_transaction(P, False)
    assert world.offset(require_stable=True) == 1


def test_producers_do_not_disturb_each_other() -> None:
    world = World()
    world.commit_transactional(P, 10)
    world.commit_transactional(Q, 20)
    world.end_transaction(P, True)
    assert world.offset() == 10
    assert world.unstable()
    world.end_transaction(Q, False)
    assert world.offset(require_stable=True) == 10


@pytest.mark.parametrize("restart", [False, True])
def test_the_later_of_two_commits_counts(restart: bool) -> None:
    world = World()
    world.commit_transactional(P, 10)
    world.commit(20)
    world.end_transaction(P, True)
    assert (world.restart() if restart else world).offset() == 20
    world.commit_transactional(Q, 30)
    world.commit_transactional(Q, 31)
    world.end_transaction(Q, True)
    assert (world.restart() if restart else world).offset() == 31


def test_a_batch_is_part_of_the_transaction() -> None:
    world = World()
    world.commit_transactional(Q, 10, partitions=(0, 1))
    [header] = [header for _, header in iter_headers(world.partition.batches[-1])]
    assert header.is_transactional
    assert not header.is_control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 3, 0)
    assert header.last_offset_delta == 1


def test_transactions_continue_on_another_broker() -> None:
    world = World()
    world.commit_transactional(P, 10)
    world.commit_transactional(Q, 20, partitions=(1,), group="h")
    again = world.restart()
    assert again.unstable()
    again.end_transaction(P, True)
    assert again.offset(require_stable=True) == 10
    third = again.restart()
    assert third.offset(require_stable=True) == 10
    assert third.unstable(group="h", partition=1)
    third.end_transaction(Q, False)
    assert not third.unstable(group="h", partition=1)


def test_members_are_checked() -> None:
    world = World()
    [member], generation = world.stable()
    assert world.commit_transactional(P, member_id=member, generation=generation) == [Code.NONE]
    assert world.commit_transactional(P, member_id=member, generation=generation - 1) == [
        Code.ILLEGAL_GENERATION
    ]
    assert world.commit_transactional(P, member_id="other", generation=generation) == [Code.UNKNOWN_MEMBER_ID]
    assert world.commit_transactional(P, member_id=member) == [Code.ILLEGAL_GENERATION]
    assert world.commit_transactional(P, instance="i") == [Code.UNKNOWN_MEMBER_ID]
    # Before KIP-447 producers didn't name a member.
    assert world.commit_transactional(P) == [Code.NONE]
    assert world.commit_transactional(P, group="new", member_id="m", generation=1) == [Code.UNKNOWN_MEMBER_ID]
    assert world.coordinator.describe("new").state == "Dead"


def test_static_members_are_fenced() -> None:
    world = World()
    join = world.join(instance="one")
    world.clock.advance(3)
    [member], generation = world.finish([join])
    options = {"generation": generation, "instance": "one"}
    assert world.commit_transactional(P, member_id=member, **options) == [Code.NONE]
    assert world.commit_transactional(P, member_id="old", **options) == [Code.FENCED_INSTANCE_ID]


@pytest.mark.parametrize("group", [None, ""])
def test_groups_that_cannot_be_served(group: str | None) -> None:
    world = World()
    if group is None:
        world.coordinator.on_stop("__consumer_offsets", 0)
        assert world.commit_transactional(P) == [Code.NOT_COORDINATOR]
    else:
        assert world.commit_transactional(P, group="") == [Code.INVALID_GROUP_ID]


def test_metadata_that_is_too_long() -> None:
    world = World(offset_metadata_max_bytes=4)
    assert world.commit_transactional(P, metadata="12345") == [Code.OFFSET_METADATA_TOO_LARGE]
    assert not world.partition.batches


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (Code.NOT_ENOUGH_REPLICAS, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_COORDINATOR),
        (Code.MESSAGE_TOO_LARGE, Code.INVALID_COMMIT_OFFSET_SIZE),
        (Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_log_that_refuses(refused: Code, code: Code) -> None:
    world = World()
    world.partition.refuse = refused
    assert world.commit_transactional(P) == [code]
    assert not world.unstable()


def test_a_commit_that_takes_too_long_is_still_part_of_the_transaction() -> None:
    world = World()
    world.partition.hold = True
    answer = world.commit_transactional(P, 10)
    world.clock.advance(5)
    assert answer == [Code.REQUEST_TIMED_OUT]
    world.partition.hold = False
    world.end_transaction(P, True)
    assert world.offset() == 10
    assert world.restart().offset() == 10


@pytest.mark.parametrize("restart", [False, True])
def test_offsets_of_a_deleted_topic_do_not_come_back(restart: bool) -> None:
    world = World()
    world.commit_transactional(P, 10, partitions=(0, 1))
    world.coordinator.on_partitions_deleted("t", [0])
    world.clock.run_due()
    if restart:
        world = world.restart()
    world.end_transaction(P, True)
    assert world.offset(partition=0) == -1
    assert world.offset(partition=1) == 10


@pytest.mark.parametrize("restart", [False, True])
def test_a_deleted_group_does_not_come_back(restart: bool) -> None:
    world = World()
    world.commit_transactional(P, 10)
    answers: list[dict[str, int]] = []
    world.coordinator.delete(["g"], answers.append)
    assert answers == [{"g": 0}]
    world.commit(1)
    if restart:
        world = world.restart()
    world.end_transaction(P, True)
    assert world.offset() == 1


def test_a_group_with_an_open_transaction_does_not_expire() -> None:
    world = World()
    world.commit_transactional(P, 10)
    world.clock.advance(8 * 24 * 3600)
    world.end_transaction(P, True)
    assert world.offset() == 10
    world.clock.advance(8 * 24 * 3600)
    assert world.offset() == -1
