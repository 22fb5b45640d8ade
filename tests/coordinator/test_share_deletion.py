"""The deletion of a share group whose state is deleted only in part, or that gets a member meanwhile; of its topics."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.coordinator.share_cluster import StateReplica
from tests.support.clock import FakeClock

from ottla_broker.coordinator.group.share.deleted_topics import DeletedTopics
from ottla_broker.coordinator.group.share.group import InitializedTopic, ShareGroup, ShareMember
from ottla_broker.coordinator.group.share.groups import ShareGroups
from ottla_broker.coordinator.share.in_flight import Batch
from ottla_broker.coordinator.share.state_batches import UNINITIALIZED, ShareKey, StateChange
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator, StateSettings
from ottla_broker.coordinator.share.states import RecordState
from ottla_protocol.errors import ErrorCode, KafkaError

TOPIC = bytes(16)
Settled = Callable[[KafkaError | None], None]


class Keeper:
    def __init__(self) -> None:
        self.deleted: list[tuple[ShareKey, Settled]] = []

    def initialize(self, key: ShareKey, epoch: int, start: int, settled: Settled) -> None:
        settled(None)

    def delete(self, key: ShareKey, settled: Settled) -> None:
        self.deleted.append((key, settled))


class Log:
    def __init__(self) -> None:
        self.rows = 0

    def write(self, rows: list[object]) -> int:
        self.rows += len(rows)
        return self.rows


@pytest.mark.parametrize("joins", [True, False])
def test_members_of_a_group_that_was_not_deleted_need_new_state(joins: bool) -> None:
    keeper, log, answers = Keeper(), Log(), list[int]()
    groups = ShareGroups(keeper, cast(Any, None), cast(Any, None), lambda: 10, FakeClock())
    group = ShareGroup("g", cast(Any, log))
    group.initialized = {TOPIC: InitializedTopic("t", frozenset({0, 1}))}
    groups.delete(group, answers.append)
    (_, first), (_, second) = keeper.deleted
    first(None)
    if joins:
        group.put(ShareMember("m"))
    second(None if joins else KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert answers == [ErrorCode.NON_EMPTY_GROUP if joins else ErrorCode.COORDINATOR_NOT_AVAILABLE]
    left = {} if joins else {TOPIC: InitializedTopic("t", frozenset({1}))}
    assert group.initialized == left
    assert log.rows == 1


class Topics:
    """A cluster with these topics, by id; and two groups that have state of two, ``t`` and ``u``."""

    def __init__(self) -> None:
        self.clock, self.keeper = FakeClock(), Keeper()
        self.names = {TOPIC: "t", b"u" * 16: "u"}
        self.is_known = True
        view = cast(Any, SimpleNamespace(name_of=self.names.get))
        groups = ShareGroups(self.keeper, cast(Any, None), view, lambda: 10, self.clock)
        self.deleted = DeletedTopics(groups, self.keeper, view, lambda: self.is_known, self.clock, 60_000)
        self.deleted.start()
        self.groups: list[ShareGroup] = []
        for name in "gh":
            group = ShareGroup(name, cast(Any, Log()))
            group.initialized = {
                topic_id: InitializedTopic(topic, frozenset({0, 1})) for topic_id, topic in self.names.items()
            }
            groups.groups[name] = group
            self.groups.append(group)

    def asked(self, answer: KafkaError | None = None) -> list[tuple[str, bytes, int]]:
        """The states that are to be deleted until nothing is left to do."""
        found = []
        self.clock.run_due()
        while self.keeper.deleted:
            key, settled = self.keeper.deleted.pop(0)
            found.append((key.group_id, key.topic_id, key.partition))
            settled(answer)
            self.clock.run_due()
        return found


OF_T = [("g", TOPIC, 0), ("g", TOPIC, 1), ("h", TOPIC, 0), ("h", TOPIC, 1)]


def test_the_state_of_a_deleted_topic_is_deleted() -> None:
    world = Topics()
    # One of the name was made again meanwhile.
    del world.names[TOPIC]
    world.names[b"n" * 16] = "t"
    world.deleted.on_partitions_deleted("t", [0, 1])
    world.clock.run_due()
    # One group after the other.
    assert {key.group_id for key, _ in world.keeper.deleted} == {"g"}
    assert world.asked() == OF_T
    assert all(set(group.initialized) == {b"u" * 16} for group in world.groups)
    assert [cast(Any, group.shard).rows for group in world.groups] == [1, 1]
    world.clock.advance(300)
    assert not world.asked()
    world.deleted.close()
    assert not world.clock.pending


def test_a_deletion_that_was_missed_is_found_by_the_second_look() -> None:
    world = Topics()
    del world.names[TOPIC]
    world.is_known = False
    world.clock.advance(180)
    assert not world.asked()
    world.is_known = True
    world.clock.advance(60)
    assert not world.asked()
    # It hadn't heard of this one yet.
    hidden = world.names.pop(b"u" * 16)
    world.clock.advance(60)
    assert world.asked(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)) == OF_T
    world.names[b"u" * 16] = hidden
    assert all(len(group.initialized) == 2 for group in world.groups)
    world.groups[1].is_dead = True
    world.clock.advance(60)
    assert world.asked() == OF_T[:2]
    assert list(world.groups[0].initialized) == [b"u" * 16]
    world.deleted.close()


def leading(settings: StateSettings, cuts: list[tuple[int, int]]) -> tuple[FakeClock, ShareStateCoordinator]:
    """A coordinator that leads the only partition, and its clock; what is cut off its log goes to ``cuts``."""
    clock = FakeClock()
    coordinator = ShareStateCoordinator(settings, clock, lambda: 1, lambda *cut: cuts.append(cut))
    coordinator.start()
    coordinator.on_leader(cast(Any, StateReplica(0)))
    clock.run_due()
    return clock, coordinator


def test_a_log_that_has_only_tombstones_is_cut_at_its_end() -> None:
    cuts = list[tuple[int, int]]()
    clock, coordinator = leading(StateSettings(topic_partitions=1, prune_interval_ms=1_000), cuts)
    key, answers = ShareKey("g", TOPIC, 0), list[KafkaError | None]()
    coordinator.initialize(key, 1, UNINITIALIZED, answers.append)
    coordinator.write(key, StateChange(1, 0, 5, 0), answers.append)
    clock.advance(1)
    coordinator.delete(key, answers.append)
    clock.advance(1)
    clock.run_due()
    assert answers == [None, None, None]
    # First before the snapshot, then behind the tombstone.
    assert cuts == [(0, 0), (0, 3)]
    coordinator.stop()


def test_one_round_moves_all_idle_states_to_the_end_of_the_log() -> None:
    cuts = list[tuple[int, int]]()
    settings = StateSettings(topic_partitions=1, prune_interval_ms=1_000, updates_per_snapshot=1)
    clock, coordinator = leading(settings, cuts)
    answers = list[KafkaError | None]()
    for partition in range(10):
        coordinator.initialize(ShareKey("g", TOPIC, partition), 1, UNINITIALIZED, answers.append)
    clock.advance(1)
    for offset in range(1_500):
        coordinator.write(ShareKey("g", TOPIC, 9), StateChange(1, 0, offset, 0), answers.append)
    clock.advance(2)
    clock.run_due()
    assert answers == [None] * 1_510
    # The other nine are behind the busy one now, whose last snapshot is the oldest.
    assert cuts[0] == (0, 0)
    assert cuts[-1] == (0, 1_509)
    coordinator.stop()


def test_states_have_a_limit() -> None:
    clock, coordinator = leading(StateSettings(topic_partitions=1, most_states=2), [])
    answers = list[KafkaError | None]()
    for partition, epoch in ((0, 1), (1, 1), (2, 1), (0, 2)):
        coordinator.initialize(ShareKey("g", TOPIC, partition), epoch, UNINITIALIZED, answers.append)
    coordinator.delete(ShareKey("g", TOPIC, 0), answers.append)
    coordinator.initialize(ShareKey("g", TOPIC, 2), 1, UNINITIALIZED, answers.append)
    clock.run_due()
    refused = [each for each in answers if each is not None]
    assert [each.code for each in refused] == [ErrorCode.POLICY_VIOLATION]
    assert len(answers) == 6
    coordinator.stop()


def test_ranges_of_all_states_have_a_limit() -> None:
    """A byte of an acknowledgement made a range of 450 bytes, and a group has thousands on each partition."""
    clock, coordinator = leading(StateSettings(topic_partitions=1, most_batches=1_000), [])
    keys = [ShareKey("g", TOPIC, partition) for partition in range(3)]
    for key in keys:
        coordinator.initialize(key, 1, UNINITIALIZED, lambda _: None)
    clock.run_due()

    def write(partition: int, count: int, start: int = 0) -> ErrorCode | None:
        answers = list[KafkaError | None]()
        batches = [Batch(2 * each, 2 * each, RecordState.ACKNOWLEDGED, 1) for each in range(count)]
        coordinator.write(keys[partition], StateChange(1, 0, start, 0, batches), answers.append)
        clock.run_due()
        (error,) = answers
        return None if error is None else error.code

    assert write(0, 900) is None
    assert write(1, 300) is ErrorCode.POLICY_VIOLATION
    assert write(2, 200) is None  # A few have room.
    clock.advance(1)
    assert write(0, 901) is ErrorCode.POLICY_VIOLATION
    assert write(0, 900) is None  # They are the same.
    assert write(0, 300, start=5_000) is None
    clock.advance(1)
    assert write(1, 300) is None
    coordinator.stop()
