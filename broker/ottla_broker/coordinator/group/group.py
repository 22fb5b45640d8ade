"""A classic group: its members, its generation, and the protocol they agreed on.

Kafka: ``GroupMetadata.scala``, without the committed offsets (``offsets.py``) and the states (``states.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ottla_broker.clock import TimerHandle
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.initial_delay import InitialDelay
from ottla_broker.coordinator.group.member import (
    JoinReply,
    Member,
    PendingMember,
    Protocols,
    Sender,
    SyncReply,
)
from ottla_broker.coordinator.group.metadata_limit import MEMBER, StatedBytes, names_bytes
from ottla_broker.coordinator.group.offsets import Committed, OffsetTable, TopicPartition
from ottla_broker.coordinator.group.states import COMMIT, Event, GroupState, GroupStateMachine
from ottla_broker.coordinator.shard import Shard
from ottla_broker.events import get_logger
from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla_protocol.messages.group_records import GroupMetadataValue
from ottla_protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla_protocol.messages.sync_group import SyncGroupResponse
from ottla_protocol.versioned import peek_version

_log = get_logger()

CLASSIC_TYPE = "classic"
"""The type of classic groups in ListGroups (KIP-848)."""
PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers, whose metadata names the topics they read. Connect and others have their own."""
MOST_SUBSCRIBED: Final = 200_000
"""Names of topics in the different subscriptions of a group; of more, the group's subscription counts as unknown."""


class Group(GroupStateMachine):
    """One group. Owned by the loop thread.

    Its members and what they agreed on change only through the methods here. ``Rebalancer`` alone moves the group from
    state to state; it owns the fields that say what the group waits for: ``join_timer``, ``sync_timer``,
    ``pending_sync``, ``initial_delay``. ``Commits`` changes ``offsets``.

    Invariants: ``awaiting_join`` is the number of members with a ``join_reply``; ``supported[p]`` is the number of
    members that support protocol p; ``leader_id`` is a member's id, or None where there is no member or none has been
    elected since the group was loaded.

    Attributes:
        shard: the partition of ``__consumer_offsets`` that the group is written to.
        static_members: member ids by group.instance.id (KIP-345).
        pending: member ids given out but not in use yet (KIP-394).
        stated: what the members have stated, for all protocols that they support, in bytes.
        pending_sync: members of this generation whose SyncGroup has not come.
        subscribed: topics that the members consume; None where that is unknown.
        initial_delay: the first rebalance is prepared, which waits its time even when everyone has joined.
    """

    def __init__(
        self,
        group_id: str,
        shard: Shard,
        now_ms: int,
        state: GroupState = GroupState.EMPTY,
        offsets: OffsetTable | None = None,
    ) -> None:
        super().__init__(state, now_ms)
        self.group_id = group_id
        self.shard = shard
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending: dict[str, PendingMember] = {}
        self.pending_sync: set[str] = set()
        self.awaiting_join = 0
        self.supported: Counter[str] = Counter()
        self.stated = StatedBytes(group_id)
        self.subscribed: frozenset[str] | None = None
        self.initial_delay: InitialDelay | None = None
        self.join_timer: TimerHandle | None = None
        self.sync_timer: TimerHandle | None = None
        self.offsets = OffsetTable() if offsets is None else offsets
        self.stated.count_staged(self.offsets.staged_bytes)

    @classmethod
    def loaded(
        cls, group_id: str, shard: Shard, value: GroupMetadataValue, offsets: OffsetTable | None
    ) -> Group:
        """The group of a record: stable with the members in it, or empty."""
        state = GroupState.STABLE if value.members else GroupState.EMPTY
        group = cls(group_id, shard, value.current_state_timestamp, state, offsets)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        for read in value.members:
            member = Member(
                group_id,
                read.member_id,
                read.group_instance_id,
                read.client_id,
                read.client_host,
                read.rebalance_timeout,
                read.session_timeout,
                ((value.protocol or "", bytes(read.subscription)),),
                bytes(read.assignment),
            )
            group._insert(member)
        group.leader_id = value.leader if value.leader in group.members else None
        group.subscribed = group._compute_subscribed()
        return group

    # Members

    def add(self, member: Member, protocol_type: str, reply: JoinReply) -> None:
        """Add a member whose join waits. The caller has checked its protocols."""
        if not self.members:
            self.protocol_type = protocol_type
        self._insert(member)
        self._set_join_reply(member, reply)

    def _insert(self, member: Member) -> None:
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        self._weigh(member)
        self.pending.pop(member.member_id, None)

    def add_pending(self, member_id: str) -> PendingMember:
        pending = self.pending[member_id] = PendingMember(self.group_id, member_id)
        return pending

    def remove(self, member_id: str) -> tuple[JoinReply | None, SyncReply | None]:
        """Remove a member or a pending member; returns the replies that it waits for."""
        replies: tuple[JoinReply | None, SyncReply | None] = (None, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            replies = self.release_replies(member)
            self._count_protocols(member.protocols, -1)
            self._count(member, 0)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.pending_sync.discard(member_id)
        return replies

    def rename(self, member: Member, new_id: str) -> None:
        """Give a static member a new id; the requests that waited under the old one have been answered."""
        old_id = member.member_id
        del self.members[old_id]
        member.member_id = new_id
        self.members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)

    def update(
        self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Replace what a member stated when it joined."""
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        self._weigh(member)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def check_member(self, member_id: str, instance_id: str | None) -> int:
        """The error code for a request that claims to be from this member; NONE when it is."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return codes.UNKNOWN_MEMBER_ID
            if current != member_id:
                _log.info(
                    "static member fenced",
                    group=self.group_id,
                    instance=instance_id,
                    member=member_id,
                    current=current,
                )
                return codes.FENCED_INSTANCE_ID
        return codes.NONE if member_id in self.members else codes.UNKNOWN_MEMBER_ID

    def check_generation(self, sender: Sender) -> int:
        """The error code for a request that claims to be from this member in this generation."""
        error = self.check_member(sender.member_id, sender.instance_id)
        if error == codes.NONE and sender.generation != self.generation:
            return codes.ILLEGAL_GENERATION
        return error

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        size, supported = len(self.members), self.supported
        return any(supported[name] == size for name, _ in protocols)

    def select_protocol(self) -> str | None:
        """The protocol with the most votes among those that every member supports; None if there is none."""
        size = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0] if votes else None

    def _count_protocols(self, protocols: Protocols, by: int) -> None:
        supported = self.supported
        for name, _ in protocols:
            supported[name] += by
            if not supported[name]:
                del supported[name]

    def _weigh(self, member: Member) -> None:
        stated = names_bytes(member.member_id, member.instance_id, member.client_id, member.client_host)
        stated += metadata_bytes(member.protocols) + len(member.assignment)
        self._count(member, MEMBER + stated)

    def _count(self, member: Member, size: int) -> None:
        self.stated.add(size - member.counted)
        member.counted = size

    def _put_assignment(self, member: Member, assignment: bytes) -> None:
        growth = len(assignment) - len(member.assignment)
        member.assignment = assignment
        if growth:
            self._count(member, member.counted + growth)

    def _compute_subscribed(self) -> frozenset[str] | None:
        """The union of the members' subscriptions, if they are consumers whose metadata can be read."""
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        distinct = {member.metadata(self.protocol_name) for member in self.members.values()}
        try:
            named = sum(map(count_topics, distinct))
            if named > MOST_SUBSCRIBED:
                raise ProtocolError(f"they name {named} topics, and {MOST_SUBSCRIBED} are read")
            return frozenset().union(*map(subscribed_topics, distinct))
        except ProtocolError as error:
            _log.warning("group subscriptions can't be read", group=self.group_id, reason=str(error))
            return None

    def refresh_subscribed(self) -> None:
        """Read the members' subscriptions again."""
        self.subscribed = self._compute_subscribed()

    # Committed offsets: what both kinds of groups have

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_dead(self) -> bool:
        return self.state is GroupState.DEAD

    def may_commit(self, sender: Sender, version: int) -> int:
        """The error code for an OffsetCommit; ``version`` is the request's."""
        if sender.generation < 0 and self.state is GroupState.EMPTY:
            return codes.NONE
        if not sender.is_member:
            return codes.UNKNOWN_MEMBER_ID  # the group has members, and this is none of them
        error = self.check_generation(sender)
        return error if error != codes.NONE else COMMIT[self.state]

    def may_commit_transactional(self, sender: Sender) -> int:
        """The error code for a TxnOffsetCommit; producers need not name a member: before KIP-447 none did."""
        if self.state is GroupState.DEAD:
            return codes.COORDINATOR_NOT_AVAILABLE
        if not sender.is_member or (sender.generation < 0 and self.state is GroupState.EMPTY):
            return codes.NONE
        return self.check_generation(sender)

    def may_fetch(self, member_id: str | None, epoch: int) -> int:
        """The error code for an OffsetFetch: any client may read the offsets."""
        return codes.NONE

    def subscribes_to(self, topic: str) -> bool:
        """Whether members read a topic, as far as their subscriptions can be read."""
        return self.subscribed is None or topic in self.subscribed

    def is_spent(self, removing: int) -> bool:
        """Whether the group can be removed when ``removing`` of its offsets are."""
        return (
            self.state is GroupState.EMPTY
            and not self.pending
            and not self.offsets.has_pending
            and len(self.offsets) == removing
        )

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """The offsets whose retention time is over; the group's state decides when it begins (KIP-211)."""
        offsets = self.offsets
        if self.protocol_type is None:
            # Simple consumers: at the commit.
            return offsets.expired(now_ms, retention_ms, _commit_time)
        if self.state is GroupState.EMPTY:
            since = self.state_since_ms
            if since == -1:
                # The group's record has an old version, without the time when it became empty.
                return offsets.expired(now_ms, retention_ms, _commit_time)
            return offsets.expired(now_ms, retention_ms, lambda _: since)
        if (
            self.state is GroupState.STABLE
            and self.protocol_type == PROTOCOL_TYPE
            and self.subscribed is not None
        ):
            # Topics without subscribers: at the commit.
            return offsets.expired(now_ms, retention_ms, _commit_time, self.subscribed)
        return []

    # Generations

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader. False where no member has joined."""
        leader = None if self.leader_id is None else self.members[self.leader_id]
        if leader is not None and leader.join_reply is not None:
            return True
        for member_id, member in self.members.items():
            if member.join_reply is not None:
                _log.info("group leader replaced", group=self.group_id, old=self.leader_id, new=member_id)
                self.leader_id = member_id
                return True
        return False

    def next_generation(self, now_ms: int) -> None:
        """Begin the next generation with the present members; each has yet to ask for its assignment."""
        self.generation += 1
        self.protocol_name = self.select_protocol()
        self.subscribed = self._compute_subscribed()
        self.pending_sync = set(self.members)
        for member in self.members.values():
            member.is_new = False
        self.fire(Event.JOINED if self.members else Event.EMPTIED, now_ms)

    def withdraw_assignments(self) -> list[tuple[Member, SyncReply]]:
        """Forget the members' assignments; returns who waited for one, for the caller to answer."""
        waiting = []
        for member in self.members.values():
            self._put_assignment(member, b"")
            if member.sync_reply is not None:
                waiting.append((member, member.sync_reply))
                member.sync_reply = None
        return waiting

    def assign(self, shares: dict[str, bytes], now_ms: int) -> list[Member]:
        """Give each member its share, which makes the group stable; returns the members."""
        self.fire(Event.ASSIGNED, now_ms)
        members = list(self.members.values())
        for member in members:
            self._put_assignment(member, shares.get(member.member_id, b""))
        return members

    # Waiting requests

    def await_join(self, member: Member, reply: JoinReply) -> None:
        """Have a member's JoinGroup wait.

        An earlier one that still waits is answered: its sender has given it up, and on its connection an unanswered
        request would hold back all later answers.
        """
        self.answer_join(member, join_error(member.member_id, codes.REBALANCE_IN_PROGRESS))
        self._set_join_reply(member, reply)

    def answer_join(self, member: Member, response: JoinGroupResponse) -> None:
        """Answer the member's waiting JoinGroup, if there is one."""
        reply = member.join_reply
        if reply is not None:
            self._set_join_reply(member, None)
            reply(response)

    def await_sync(self, member: Member, reply: SyncReply) -> None:
        """Have a member's SyncGroup wait; an earlier one is answered, as in :meth:`await_join`."""
        superseded, member.sync_reply = member.sync_reply, reply
        if superseded is not None:
            superseded(sync_error(codes.REBALANCE_IN_PROGRESS))

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> None:
        """Answer the member's waiting SyncGroup, if there is one."""
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            reply(response)

    def release_replies(self, member: Member) -> tuple[JoinReply | None, SyncReply | None]:
        """Have no request of the member wait any longer; the caller answers those that did."""
        join, sync = member.join_reply, member.sync_reply
        self._set_join_reply(member, None)
        member.sync_reply = None
        return join, sync

    def _set_join_reply(self, member: Member, reply: JoinReply | None) -> None:
        self.awaiting_join += (reply is not None) - (member.join_reply is not None)
        member.join_reply = reply

    # Answers

    def member_list(self) -> list[JoinGroupResponseMember]:
        """All members with their metadata for the chosen protocol, from which the leader computes the assignment."""
        protocol = self.protocol_name
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(protocol),
            )
            for member in self.members.values()
        ]

    def join_response(
        self, member_id: str, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """The answer to a member of the current generation; the leader gets the member list.

        ``leader`` is named instead of the real one, to keep a returning static leader from assigning again.
        """
        named = self.leader_id if leader is None else leader
        return JoinGroupResponse(
            error_code=codes.NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=named or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=self.member_list() if named == member_id else [],
        )

    def sync_response(self, member: Member) -> SyncGroupResponse:
        """The member's share of the assignment."""
        return SyncGroupResponse(
            error_code=codes.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )


def count_topics(metadata: bytes) -> int:
    """Return the number of topics that a consumer's metadata says it names. Raises ProtocolError."""
    if len(metadata) < 6:
        raise ProtocolError(f"a subscription has at least six bytes, and there are {len(metadata)}")
    return int.from_bytes(metadata[2:6], "big", signed=True)


def subscribed_topics(metadata: bytes) -> Sequence[str]:
    """The topics in a consumer's metadata. Raises ProtocolError.

    Read as version 0, with which every version begins, as Kafka does: some clients state a later version than they
    write.
    """
    if peek_version(metadata) < 0:
        raise ProtocolError("a subscription has a negative version")
    return ConsumerProtocolSubscription.decode(metadata, 0, 2).topics


def _commit_time(committed: Committed) -> int:
    return committed.commit_ms


def metadata_bytes(protocols: Protocols) -> int:
    """Return the size of what a member states for the protocols that it supports, in bytes."""
    size = 0
    for name, metadata in protocols:
        size += len(name) + len(metadata)
    return size


def join_error(member_id: str, code: int) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None, member_id=member_id)


def sync_error(code: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")
