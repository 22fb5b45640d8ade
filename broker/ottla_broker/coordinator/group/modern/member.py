"""A member of a group of the consumer protocol. Kafka: ``ConsumerGroupMember``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ottla_broker.coordinator.group.metadata_limit import MEMBER, names_bytes, topics_bytes
from ottla_broker.coordinator.group.modern.states import LEAVE_STATIC_EPOCH, MemberState
from ottla_protocol.errors import ErrorCode, KafkaError

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; without empty sets. Never changed."""


class ClassicSide(NamedTuple):
    """The statements of a member that uses the classic protocol, made when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def name(self) -> str:
        return self.protocols[0][0]

    @property
    def subscription(self) -> bytes:
        return self.protocols[0][1]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member; replaced, not changed.

    Attributes:
        topics: the names it subscribes to, sorted.
        regex: topics whose name matches it as a whole are subscribed as well.
        assignor: the assignor it prefers; None for the group's default.
        classic: set where the member uses the classic protocol.
        assigned: the partitions that it has, or was given in its last answer.
        revoking: the partitions that it was asked to give up and hasn't confirmed.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    regex: str | None = None
    assignor: str | None = None
    classic: ClassicSide | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)

    def moved_to(
        self, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
    ) -> ConsumerMember:
        """The member after a step of its reconciliation."""
        return replace(
            self,
            previous_epoch=self.epoch,
            epoch=epoch,
            state=state,
            assigned=assigned,
            revoking=revoking,
        )

    def without_partitions(self, member_id: str | None = None) -> ConsumerMember:
        """The member, perhaps under another id, as it joins: with the subscription and no partitions."""
        return replace(
            self,
            member_id=self.member_id if member_id is None else member_id,
            epoch=0,
            previous_epoch=0,
            state=MemberState.STABLE,
            assigned={},
            revoking={},
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    @property
    def has_left_for_a_while(self) -> bool:
        return self.epoch == LEAVE_STATIC_EPOCH

    @property
    def stated_bytes(self) -> int:
        """The size of the member with all that it has stated, in bytes."""
        names = names_bytes(
            self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host, self.regex
        )
        protocols = () if self.classic is None else self.classic.protocols
        stated = sum(len(name) + len(metadata) for name, metadata in protocols)
        return MEMBER + names + topics_bytes(self.topics) + stated

    def check_id(self, member_id: str) -> None:
        """Raises KafkaError: FENCED_INSTANCE_ID if the static member has been replaced, and has another id."""
        if self.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {self.instance_id} was fenced by member {self.member_id}.",
            )

    def has_same_subscription(self, other: ConsumerMember) -> bool:
        return self.topics == other.topics and self.regex == other.regex


def partitions_of(pairs: Iterable[tuple[bytes, Iterable[int]]]) -> dict[bytes, frozenset[int]]:
    """Partitions from pairs of topic id and indexes; a repeated topic's are put together."""
    found: dict[bytes, frozenset[int]] = {}
    for topic_id, indexes in pairs:
        both = found.get(topic_id, frozenset()) | frozenset(indexes)
        if both:
            found[topic_id] = both
    return found
