"""Groups of the 2012 coordinator as ListGroups and DescribeGroups show them.

Kafka has no such groups. Here they are classic groups of another protocol, as those of Connect are: the protocol type
is ``coordinated``. The broker that is the 2012 coordinator shows them, whichever broker their ids hash to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.coordinator import GroupDescription, GroupListing
from ottla_broker.coordinator.group.group import CLASSIC_TYPE
from ottla_broker.coordinator.group.states import GroupState as ShownState
from ottla_broker.coordinator.old_consumers import COORDINATED_TYPE
from ottla_broker.coordinator.push.coordinator import PushCoordinator
from ottla_broker.coordinator.push.registry import ConsumerRegistry, GroupRegistry
from ottla_broker.coordinator.push.states import GroupState
from ottla_broker.coordinator.push.subscription import PushSubscription
from ottla_protocol.messages import consumer_protocol as wire

_VERSION: Final = 0
"""Of the subscriptions and assignments, which are written as those of the classic protocol's consumers."""
_SHOWN: Final[dict[GroupState, ShownState]] = {
    GroupState.IDLE: ShownState.STABLE,
    GroupState.COMPUTING: ShownState.PREPARING,
    GroupState.STOPPING: ShownState.PREPARING,
    GroupState.COMMITTING: ShownState.PREPARING,
    GroupState.STARTING: ShownState.COMPLETING,
    GroupState.RECORDING: ShownState.COMPLETING,
    GroupState.BACKING_OFF: ShownState.PREPARING,
}


class CoordinatedMember(NamedTuple):
    """A consumer, which has no client id: its own id stands for that."""

    member_id: str
    client_host: str
    instance_id: str | None = None

    @property
    def client_id(self) -> str:
        return self.member_id


class CoordinatedGroups:
    """Owned by the loop thread."""

    def __init__(self, coordinator: PushCoordinator) -> None:
        self._coordinator = coordinator

    def listings(self, states: Sequence[str], types: Sequence[str]) -> list[GroupListing]:
        """The groups of the named states and types, if any; case doesn't matter."""
        wanted = {name.lower() for name in states}
        if types and CLASSIC_TYPE not in {name.lower() for name in types}:
            return []
        listed = (
            GroupListing(group.group_id, COORDINATED_TYPE, _state(group).value, CLASSIC_TYPE)
            for group in self._coordinator.groups.values()
        )
        return [each for each in listed if not wanted or each.state.lower() in wanted]

    def describe(self, group_id: str) -> GroupDescription | None:
        """A group; None if it has no consumers here."""
        group = self._coordinator.groups.get(group_id)
        if group is None:
            return None
        subscriptions = {
            each: _topics(each) for each in {consumer.subscription for consumer in group.members.values()}
        }
        return GroupDescription(
            codes.NONE,
            _state(group).value,
            COORDINATED_TYPE,
            "",
            [
                (
                    CoordinatedMember(consumer.consumer_id, _host(consumer)),
                    subscriptions[consumer.subscription],
                    _assignment(consumer),
                )
                for consumer in group.members.values()
            ],
        )


def _state(group: GroupRegistry) -> ShownState:
    if not group.members:
        return ShownState.EMPTY
    shown = _SHOWN[group.state]
    if shown is ShownState.STABLE and not all(each.confirmed for each in group.members.values()):
        return ShownState.PREPARING
    return shown


def _host(consumer: ConsumerRegistry) -> str:
    return "/" + consumer.channel.peer.rpartition(":")[0]


def _topics(subscription: PushSubscription) -> bytes:
    return wire.encode_subscription(
        wire.ConsumerProtocolSubscription(topics=sorted(subscription.found)), _VERSION
    )


def _assignment(consumer: ConsumerRegistry) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(consumer.assigned or ()):
        by_topic.setdefault(topic, []).append(partition)
    assigned = [wire.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return wire.encode_assignment(wire.ConsumerProtocolAssignment(assigned_partitions=assigned), _VERSION)
