"""A coordinator with groups of the consumer protocol, topics that tests change, and members as clients keep them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.coordinator.harness import FakePartition, World
from tests.support.clock import FakeClock

from ottla_broker.coordinator.group.coordinator import GroupCoordinator
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_broker.coordinator.group.modern.heartbeats import Heartbeat, HeartbeatAnswer
from ottla_broker.coordinator.group.modern.settings import ConsumerGroupSettings, GroupTimes
from ottla_broker.coordinator.group.modern.topics import SubscribedTopic
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_protocol.errors import ErrorCode

SESSION_MS = 45_000
REBALANCE_MS = 60_000
HEARTBEAT_MS = 5_000

_seeds = count()


class FakeTopics:
    """Topics by name, as the coordinator's view of them."""

    def __init__(self, **partitions: int) -> None:
        self.version = 1
        self._topics: dict[str, SubscribedTopic] = {}
        for name, number in partitions.items():
            self.put(name, number)

    def put(self, name: str, partitions: int, racks: Iterable[Iterable[str]] = ()) -> bytes:
        """Create a topic, or give it partitions."""
        topic_id = name.encode().ljust(16, b"_")
        self._topics[name] = SubscribedTopic(topic_id, partitions, tuple(frozenset(each) for each in racks))
        self.version += 1
        return topic_id

    def remove(self, name: str) -> None:
        self._topics.pop(name, None)
        self.version += 1

    def find(self, name: str) -> SubscribedTopic | None:
        return self._topics.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, topic in self._topics.items() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._topics)


class ConsumerWorld(World):
    """A coordinator of group ``g`` on one partition of the offsets topic, with topics."""

    def __init__(
        self,
        topics: FakeTopics,
        partition: FakePartition | None = None,
        load: bool = True,
        clock: FakeClock | None = None,
        times: dict[str, GroupTimes] | None = None,
        group_max_size: int = 2**31 - 1,
        max_metadata_bytes: int = 256 * 1024 * 1024,
        **settings: Any,
    ) -> None:
        self.topics = topics
        self.options = settings
        self.clock = FakeClock() if clock is None else clock
        self.partition = FakePartition() if partition is None else partition
        self.partition.clock = self.clock
        self.times = {} if times is None else times
        usual = GroupTimes(SESSION_MS, HEARTBEAT_MS)
        self.coordinator = GroupCoordinator(
            GroupSettings(
                initial_rebalance_delay_ms=0,
                max_size=group_max_size,
                max_metadata_bytes=max_metadata_bytes,
                consumer=ConsumerGroupSettings(**settings),
            ),
            self.clock,
            random.Random(next(_seeds)),
            lambda: 1,
            topics,
            lambda group_id: self.times.get(group_id, usual),
        )
        self.coordinator.start()
        self.coordinator.on_leader(self.partition)
        if load:
            self.clock.run_due()

    def consumer_heartbeat(self, request: Heartbeat, group: str = "g") -> HeartbeatAnswer:
        """The answer, which must have come at once."""
        answers: list[HeartbeatAnswer] = []
        self.coordinator.consumer_heartbeat(group, request, answers.append)
        assert len(answers) == 1
        return answers[0]

    def group(self, group: str = "g") -> ConsumerGroup:
        found = self.coordinator._groups[group]
        assert isinstance(found, ConsumerGroup)
        return found

    def kind(self, group: str = "g") -> str:
        return next(each.group_type for each in self.listed([], [])[1] if each.group_id == group)

    def failover(self) -> ConsumerWorld:
        """Another broker takes over with the same log."""
        partition = FakePartition(self.partition.partition)
        partition.batches, partition.end_offset = list(self.partition.batches), self.partition.end_offset
        world = ConsumerWorld(self.topics, partition, load=False, times=self.times, **self.options)
        world.clock.time = self.clock.time
        world.clock.run_due()
        return world


@dataclass
class Client:
    """A member of the consumer protocol as its client keeps it: what it owns, and what it has to give up next."""

    world: ConsumerWorld
    member_id: str
    topics: tuple[str, ...] | None = ("t",)
    instance: str | None = None
    regex: str | None = None
    assignor: str | None = None
    rack: str | None = None
    epoch: int = 0
    owned: dict[bytes, frozenset[int]] = field(default_factory=dict)

    def heartbeat(self, *, expect: ErrorCode = ErrorCode.NONE) -> HeartbeatAnswer:
        """As :meth:`try_heartbeat`; the answer must have this error code."""
        answer, code = self.try_heartbeat()
        assert code is expect, answer
        return answer

    def try_heartbeat(self) -> tuple[HeartbeatAnswer, ErrorCode]:
        """Join, or send a heartbeat with everything; then have what the answer gives, or begin again without it."""
        if self.epoch == 0:
            self.owned = {}
        answer = self.world.consumer_heartbeat(
            Heartbeat(
                self.member_id,
                self.epoch,
                instance_id=self.instance,
                rack_id=self.rack,
                rebalance_timeout_ms=REBALANCE_MS,
                topics=self.topics,
                regex=self.regex,
                assignor=self.assignor,
                owned=self.owned,
                client_id="client",
                client_host="/127.0.0.1",
                needs_member_id=True,
            )
        )
        code = ErrorCode.NONE if answer.error is None else answer.error.code
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.epoch, self.owned = 0, {}
        elif code is ErrorCode.NONE:
            self.take(answer)
        return answer, code

    def take(self, answer: HeartbeatAnswer) -> None:
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.owned = dict(answer.assignment)

    def leave(self, *, for_a_while: bool = False) -> HeartbeatAnswer:
        self.owned, self.epoch = {}, 0
        return self.world.consumer_heartbeat(
            Heartbeat(self.member_id, -2 if for_a_while else -1, instance_id=self.instance)
        )

    @property
    def partitions(self) -> set[tuple[bytes, int]]:
        return {(topic, index) for topic, indexes in self.owned.items() for index in indexes}


def settle(clients: Iterable[Client], rounds: int = 10) -> None:
    """Have each send heartbeats until nothing changes."""
    members = list(clients)
    for _ in range(rounds):
        before = [(client.epoch, client.owned) for client in members]
        for client in members:
            client.heartbeat()
        if before == [(client.epoch, client.owned) for client in members]:
            return
    raise AssertionError("the group doesn't settle")
