"""A group of the consumer protocol, as the coordinator holds it. Kafka: ``ConsumerGroup``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.deadlines import Deadline
from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.metadata_limit import StatedBytes
from ottla_broker.coordinator.group.modern import records
from ottla_broker.coordinator.group.modern.member import ConsumerMember
from ottla_broker.coordinator.group.modern.membership import Membership
from ottla_broker.coordinator.group.modern.states import ModernState
from ottla_broker.coordinator.group.offsets import MODERN_COMMIT, OffsetTable, TopicPartition
from ottla_broker.coordinator.shard import Shard

CONSUMER_TYPE = "consumer"
"""The type of these groups in ListGroups, and their protocol type."""

UNKNOWN_VERSION = -1


class TimerKind(Enum):
    """A kind of timer, by what the member is late with; its value is the reason in the log of events."""

    SESSION = "the session timed out"
    REBALANCE = "the member didn't give up partitions within its rebalance timeout"
    JOIN = "the classic member didn't join again within its rebalance timeout"
    SYNC = "the classic member didn't ask for its assignment within its rebalance timeout"


@dataclass(eq=False, slots=True)
class MemberTimer(Deadline):
    """The deadline of one member. ``epoch`` is the member's when it was set, for rebalances."""

    group_id: str
    member_id: str
    kind: TimerKind
    epoch: int = 0


class ConsumerGroup:
    """One group. Owned by the loop thread. Its membership is replaced, never changed.

    Attributes:
        metadata_version: of the topics when they were looked up last.
        stated: what the members have stated, in bytes.
        end_offset: the end of the log after the group's last record: answers wait until it is committed.
        is_listed: it is in the coordinator's index; a group whose first record isn't written yet isn't.
    """

    def __init__(
        self,
        group_id: str,
        shard: Shard,
        membership: Membership | None = None,
        offsets: OffsetTable | None = None,
    ) -> None:
        self.group_id = group_id
        self.shard = shard
        self.membership = Membership() if membership is None else membership
        self.stated = StatedBytes(group_id)
        self.stated.add(self.membership.stated_bytes)
        self.offsets = OffsetTable() if offsets is None else offsets
        self.stated.count_staged(self.offsets.staged_bytes)
        self.metadata_version = UNKNOWN_VERSION
        self.end_offset = 0
        self.is_dead = False
        self.is_listed = False
        self.timers: dict[tuple[str, TimerKind], MemberTimer] = {}

    @property
    def state(self) -> ModernState:
        return ModernState.DEAD if self.is_dead else self.membership.state

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        """By member id."""
        return self.membership.members

    @property
    def generation(self) -> int:
        """The group's epoch, which rises with each rebalance."""
        return self.membership.epoch

    def put(self, membership: Membership) -> None:
        """Replace the membership."""
        self.stated.add(membership.stated_bytes - self.membership.stated_bytes)
        self.membership = membership

    # Committed offsets: what both kinds of groups have

    @property
    def is_empty(self) -> bool:
        return not self.is_dead and not self.membership.members

    def may_commit(self, sender: Sender, version: int) -> int:
        """The error code for an OffsetCommit of this version (``ConsumerGroup.validateOffsetCommit``)."""
        if self.is_dead:
            return codes.COORDINATOR_NOT_AVAILABLE
        if sender.generation < 0 and self.is_empty:
            return codes.NONE
        member = self.membership.members.get(sender.member_id)
        if member is not None and member.classic is None and version < MODERN_COMMIT:
            return codes.UNSUPPORTED_VERSION
        return self._check_epoch(sender)

    def may_commit_transactional(self, sender: Sender) -> int:
        """The error code for a TxnOffsetCommit; producers need not name a member."""
        if self.is_dead:
            return codes.COORDINATOR_NOT_AVAILABLE
        if not sender.is_member or (sender.generation < 0 and self.is_empty):
            return codes.NONE
        return self._check_epoch(sender)

    def may_fetch(self, member_id: str | None, epoch: int) -> int:
        """The error code for an OffsetFetch, which names a member from version 9 on."""
        if member_id is None and epoch < 0:
            return codes.NONE
        return self._check_epoch(Sender(member_id or "", None, epoch))

    def _check_epoch(self, sender: Sender) -> int:
        member = self.membership.members.get(sender.member_id)
        if member is None:
            return codes.UNKNOWN_MEMBER_ID
        if sender.instance_id not in (None, member.instance_id) and member.classic is not None:
            return codes.FENCED_INSTANCE_ID
        if member.epoch == sender.generation:
            return codes.NONE
        return codes.ILLEGAL_GENERATION if member.classic is not None else codes.STALE_MEMBER_EPOCH

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.membership.topics or topic in self.membership.subscribed_names()

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """The offsets whose retention time is over, counted from the commit; subscribed topics keep theirs."""
        keep = frozenset(self.membership.subscribed_names()) if self.membership.members else frozenset()
        return self.offsets.expired(now_ms, retention_ms, lambda committed: committed.commit_ms, keep)

    def is_spent(self, removing: int) -> bool:
        """Whether the group can be removed when ``removing`` of its offsets are."""
        return self.is_empty and not self.offsets.has_pending and len(self.offsets) == removing

    def tombstones(self) -> list[tuple[bytes, bytes | None]]:
        """Records that remove the group, without its offsets."""
        if not self.membership.exists:
            return []
        found = self.membership
        return list(map(records.encode, records.without_group(self.group_id, found.members, found.regexes)))
