"""Share groups of topics with very many partitions, and groups whose log refuses a record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.support.clock import FakeClock

from ottla_broker.coordinator.group.metadata_limit import MetadataLimit
from ottla_broker.coordinator.group.modern.heartbeats import HeartbeatAnswer
from ottla_broker.coordinator.group.modern.membership import MOST_NAMES
from ottla_broker.coordinator.group.modern.settings import GroupTimes
from ottla_broker.coordinator.group.share.groups import ShareGroups, ShareHeartbeat
from ottla_broker.coordinator.refusals import Refusals
from ottla_broker.coordinator.share.state_batches import UNINITIALIZED, ShareKey
from ottla_broker.coordinator.share.state_coordinator import Settled
from ottla_protocol.errors import ErrorCode, KafkaError

TOPIC = bytes(16)


class Keeper:
    def __init__(self) -> None:
        self.made: list[int] = []
        self.starts: list[int] = []

    def initialize(self, key: ShareKey, epoch: int, start: int, settled: Settled) -> None:
        self.made.append(key.partition)
        self.starts.append(start)
        settled(None)

    def delete(self, key: ShareKey, settled: Settled) -> None:
        settled(None)


class Log:
    """A shard whose log refuses the writes with the numbers ``refused``."""

    def __init__(self) -> None:
        self.writes = 0
        self.refused: set[int] = set()

    def write(self, rows: list[object]) -> int:
        self.writes += 1
        if self.writes in self.refused:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.writes

    def when_committed(self, end: int, written: Any) -> None:
        written(0, end)


class Groups:
    def __init__(self, partitions: int) -> None:
        self.clock, self.keeper, self.log = FakeClock(), Keeper(), Log()
        topic = self.topic = SimpleNamespace(topic_id=TOPIC, partitions=partitions)
        self.groups = ShareGroups(
            self.keeper,
            lambda _: GroupTimes(45_000, 5_000, False),
            cast(Any, SimpleNamespace(find=lambda name: topic)),
            lambda: 10,
            self.clock,
        )
        self.answers: list[HeartbeatAnswer] = []

    def join(self, member: str, topics: tuple[str, ...] = ("t",)) -> None:
        request = ShareHeartbeat(member, 0, topics=list(topics))
        self.groups.heartbeat("g", cast(Any, self.log), request, self.answers.append)


def test_the_states_of_many_partitions_are_made_a_few_at_a_time() -> None:
    world = Groups(100)
    world.join("m1")
    assert len(world.keeper.made) == 32
    # A second member doesn't wait for them.
    world.join("m2")
    assert [each.assignment for each in world.answers] == [{}]
    world.clock.run_due()
    assert world.keeper.made == list(range(100))
    (partitions,) = (world.answers[1].assignment or {}).values()
    assert world.answers[1].member_id == "m1"
    assert len(partitions) == 50


def test_partitions_that_a_topic_gets_later_begin_at_their_start() -> None:
    """Kafka: KAFKA-20742. The first ones begin where share.auto.offset.reset says."""
    world = Groups(2)
    world.join("m1")
    world.topic.partitions = 4
    world.join("m2")
    assert world.keeper.made == [0, 1, 2, 3]
    assert world.keeper.starts == [UNINITIALIZED, UNINITIALIZED, 0, 0]


def test_a_group_that_is_unloaded_has_no_more_states_made() -> None:
    world = Groups(100)
    world.join("m1")
    world.groups.unload(cast(Any, world.log))
    world.clock.run_due()
    assert len(world.keeper.made) == 32
    (answer,) = world.answers
    assert answer.error is not None
    assert answer.error.code is ErrorCode.NOT_COORDINATOR


def test_a_heartbeat_that_the_log_refuses_changes_nothing() -> None:
    world = Groups(2)
    # Writes: the member, the states, then the assignment.
    world.log.refused = {3}
    world.join("m1")
    group = world.groups.groups["g"]
    assert world.answers[0].error is not None
    before = group.members["m1"]
    assert (before.assigned, group.target, group.assignment_epoch) == ({}, {}, 0)
    world.join("m1")
    assert world.answers[1].error is None
    assert world.answers[1].assignment == {TOPIC: frozenset({0, 1})}
    assert group.assignment_epoch == group.epoch


def test_the_members_of_a_group_name_a_bounded_number_of_topics() -> None:
    world = Groups(0)
    half = tuple(f"a{number}" for number in range(MOST_NAMES // 2))
    world.join("m1", half)
    world.join("m2", half)
    world.join("m3", tuple(f"b{number}" for number in range(MOST_NAMES // 2 + 1)))
    world.join("m3", half)
    errors = [None if each.error is None else each.error.code for each in world.answers]
    assert errors == [None, None, ErrorCode.GROUP_MAX_SIZE_REACHED, None]
    assert list(world.groups.groups["g"].subscribers["a0"]) == ["m1", "m2", "m3"]


def test_a_group_that_was_made_first_counts_what_its_members_state() -> None:
    world = Groups(2)
    limit = world.groups.metadata_limit = MetadataLimit(100_000, Refusals(world.clock))
    group = world.groups.make("g", cast(Any, world.log))
    world.join("m1")
    assert limit.used == group.stated.bytes > len("g")
    world.groups.unload(cast(Any, world.log))
    assert limit.used == 0
