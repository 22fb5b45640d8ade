"""Groups whose consumers coordinate in ZooKeeper, as ListGroups and DescribeGroups show them.

Kafka shows such a group as one without members, if it has offsets in Kafka. Here it is a classic group of another
protocol, as those of the coordinator of 2012 are: the protocol type is ``zookeeper``. The broker that its id hashes to
shows it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from functools import partial
from typing import Final

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.coordinator import GroupDescription
from ottla_broker.coordinator.group.states import GroupState
from ottla_broker.coordinator.old_consumers import COORDINATED, ZOOKEEPER_TYPE, OldConsumers
from ottla_broker.coordinator.push.nodes import GroupNodes, consumer_of
from ottla_broker.events import get_logger
from ottla_broker.store.api import NoNodeError, StoreError
from ottla_broker.store.keys import ConsumerIdsNode
from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.messages import consumer_protocol as wire

_log = get_logger()

_VERSION: Final = 0
"""Of the subscriptions and assignments, which are written as those of the classic protocol's consumers."""
_AT_ONCE: Final = 200
"""Groups, or members of a group, that are read at a time."""
_MOST_BYTES: Final = 64 << 10
"""Of a consumer's node. More is taken for malformed: it would keep the loop."""
_LONGEST_ID: Final = 1_000
"""Consumers with longer ids are left out: an answer has no room for them."""
_SECONDS: Final = 5.0
"""How long ZooKeeper may take."""


class ZooKeeperMember:
    """A consumer in ZooKeeper, which has no client id and no address: its own id stands for the first."""

    instance_id: None = None
    client_host = ""

    def __init__(self, consumer_id: str) -> None:
        self.member_id = self.client_id = consumer_id


class ZooKeeperGroups:
    """Owned by the loop thread."""

    def __init__(self, old_consumers: OldConsumers) -> None:
        self._old_consumers = old_consumers
        self._store = old_consumers.store
        self._clock = old_consumers.clock
        self._nodes = GroupNodes(old_consumers.store, -1)

    @property
    def names(self) -> frozenset[str]:
        """The groups that may have consumers in ZooKeeper."""
        return self._old_consumers.in_zookeeper

    @property
    def coordinated(self) -> frozenset[str]:
        """The groups of the coordinator of 2012, which shows them itself."""
        return self._old_consumers.coordinated

    async def with_consumers(self, names: Iterable[str]) -> list[str]:
        """Those of these groups that have consumers in ZooKeeper, as far as it says so in time."""
        found: list[str] = []
        rest = list(names)
        try:
            async with self._clock.timeout(_SECONDS):
                while rest:
                    some, rest = rest[:_AT_ONCE], rest[_AT_ONCE:]
                    await self._ask(some, found)
                    await asyncio.sleep(0)
        except TimeoutError:
            _log.warning(
                "ZooKeeper hasn't said in time which groups have consumers there", not_asked=len(rest)
            )
        return found

    async def _ask(self, names: list[str], found: list[str]) -> None:
        waiting = len(names)
        done = asyncio.Event()

        def answered(name: str, holder: str | None) -> None:
            nonlocal waiting
            waiting -= 1
            if holder is not None and holder != COORDINATED:
                found.append(name)
            if not waiting:
                done.set()

        for name in names:
            self._old_consumers.ask(name, partial(answered, name))
        await done.wait()

    async def describe(self, group_id: str) -> GroupDescription | None:
        """A group's consumers and what they own; None if it has none in ZooKeeper.

        Raises StoreError, TimeoutError: they can't be read now; don't ask for more.
        """
        try:
            async with self._clock.timeout(_SECONDS):
                return await self._describe(group_id)
        except (StoreError, TimeoutError) as error:
            _log.warning(
                "a group's consumers can't be read now", group=group_id, reason=str(error) or "no answer"
            )
            raise

    async def _describe(self, group_id: str) -> GroupDescription | None:
        ids = await self._nodes.zookeeper_members(group_id)
        consumers = [each for each in ids if len(each) <= _LONGEST_ID]
        if not consumers:
            return None
        owned: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), stream in sorted((await self._nodes.owners(group_id)).items()):
            owned.setdefault(consumer_of(stream), {}).setdefault(topic, []).append(partition)
        members = []
        for start in range(0, len(consumers), _AT_ONCE):
            some = consumers[start : start + _AT_ONCE]
            topics = await asyncio.gather(*(self._topics(group_id, each) for each in some))
            for consumer, its in zip(some, topics, strict=True):
                members.append((ZooKeeperMember(consumer), its, _assignment(owned.get(consumer, {}))))
        return GroupDescription(codes.NONE, GroupState.STABLE.value, ZOOKEEPER_TYPE, "", members)

    async def _topics(self, group_id: str, consumer: str) -> bytes:
        """The topics that a consumer names, as a subscription; patterns name none."""
        try:
            data, _ = await self._store.get(f"{ConsumerIdsNode.path(group_id)}/{consumer}")
            return _subscription(data)
        except (AttributeError, LocalProtocolError, NoNodeError, RecursionError, ValueError):
            return _subscription(b"{}")  # it has just left, or its node is malformed: the consumers log that


def _subscription(data: bytes) -> bytes:
    """What a consumer's node says. Raises AttributeError, LocalProtocolError, RecursionError, ValueError."""
    node = json.loads(data) if len(data) <= _MOST_BYTES else {}
    topics = {} if node.get("pattern", "static") != "static" else node.get("subscription", {})
    return wire.encode_subscription(wire.ConsumerProtocolSubscription(topics=sorted(topics.keys())), _VERSION)


def _assignment(by_topic: dict[str, list[int]]) -> bytes:
    assigned = [wire.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    try:
        return wire.encode_assignment(wire.ConsumerProtocolAssignment(assigned_partitions=assigned), _VERSION)
    except LocalProtocolError:
        return _assignment({})  # a node among the owners has a name that no topic or partition has
