"""A classic group: its members, its generation, and the protocol they agreed on.

Kafka: ``GroupMetadata.scala``, without the committed offsets (``offsets.py``) and the states (``states.py``).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla_broker.clock import TimerHandle
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.member import JoinReply, Member, PendingMember, Protocols
from ottla_broker.coordinator.group.offsets import OffsetTable
from ottla_broker.coordinator.group.states import Event, GroupState, GroupStateMachine
from ottla_broker.coordinator.group.subscription import PROTOCOL_TYPE, subscribed_topics
from ottla_broker.events import get_logger
from ottla_protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla_protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from ottla_broker.coordinator.group.machine import GroupShard

log = get_logger()


class Group(GroupStateMachine):
    """One group. Owned by the loop thread; ``rebalance.py`` and ``membership.py`` change it, nobody else.

    Invariants: ``awaiting_join`` is the number of members with a ``join_reply``; ``supported[p]`` is the
    number of members that support protocol p; ``leader_id`` is a member's id, or None where there is no
    member.
    """

    __slots__ = (
        "awaiting_join",
        "generation",
        "group_id",
        "home",
        "initial_delay",
        "join_timer",
        "leader_id",
        "members",
        "new_member_added",
        "offsets",
        "pending",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "static_members",
        "subscribed",
        "supported",
        "sync_timer",
    )

    def __init__(
        self, group_id: str, home: GroupShard, now_ms: int, state: GroupState = GroupState.EMPTY
    ) -> None:
        super().__init__(state, now_ms)
        self.group_id = group_id
        self.home = home
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """group.instance.id → member id (KIP-345)."""
        self.pending: dict[str, PendingMember] = {}
        """Ids given out that nobody has joined with yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        """Members of this generation whose SyncGroup has not come."""
        self.awaiting_join = 0
        self.supported: Counter[str] = Counter()
        self.subscribed: frozenset[str] | None = None
        """Topics that the members consume; None where that is not known."""
        self.new_member_added = False
        self.initial_delay = False
        """Preparing the first rebalance, which waits its time even when everybody has joined."""
        self.join_timer: TimerHandle | None = None
        self.sync_timer: TimerHandle | None = None
        self.offsets = OffsetTable()

    # Members

    def add(self, member: Member) -> None:
        """Take a member in; its ``join_reply`` may be set already. The caller has checked its protocols."""
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        if member.join_reply is not None:
            self.awaiting_join += 1
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Let a member or a pending member go; what it waits for is for the caller to answer."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member.protocols, -1)
            if member.join_reply is not None:
                self.awaiting_join -= 1
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.pending_sync.discard(member_id)
        return member

    def rename(self, member: Member, new_id: str) -> None:
        """Let a static member go on under a new id; what waits under the old one has been answered."""
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
        """Note what a member said when it joined again."""
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def check_member(self, member_id: str, instance_id: str | None) -> int:
        """The error code for a request that says it is from this member; NONE when it is."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return codes.UNKNOWN_MEMBER_ID
            if current != member_id:
                log.info(
                    "static member fenced",
                    group=self.group_id,
                    instance=instance_id,
                    member=member_id,
                    current=current,
                )
                return codes.FENCED_INSTANCE_ID
        return codes.NONE if member_id in self.members else codes.UNKNOWN_MEMBER_ID

    @property
    def all_joined(self) -> bool:
        """Whether there is nobody to wait for any more."""
        return self.awaiting_join == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asked for."""
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

    # Generations

    def elect_joined_leader(self) -> bool:
        """See that the leader is a member that has joined. False where nobody has, or nobody is there."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is not None:
            return True
        for member_id, member in self.members.items():
            if member.join_reply is not None:
                log.info("group leader replaced", group=self.group_id, old=self.leader_id, new=member_id)
                self.leader_id = member_id
                return True
        return False

    def next_generation(self, now_ms: int) -> None:
        """Begin the next generation with the members there are."""
        self.generation += 1
        self.protocol_name = self.select_protocol()
        self.subscribed = self.compute_subscribed()
        self.pending_sync.clear()
        self.fire(Event.JOINED if self.members else Event.EMPTIED, now_ms)

    def compute_subscribed(self) -> frozenset[str] | None:
        """The union of the members' subscriptions, where they are consumers and say so in the known form."""
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        distinct = {member.metadata(self.protocol_name) for member in self.members.values()}
        try:
            return frozenset().union(*map(subscribed_topics, distinct))
        except ValueError as error:
            log.warning("subscriptions of a group not understood", group=self.group_id, reason=str(error))
            return None

    # Answers

    def member_list(self) -> list[JoinGroupResponseMember]:
        """Everybody with their metadata for the chosen protocol: what the leader computes the assignment
        from."""
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
        """What a member of the current generation is told; the leader gets the member list.

        ``leader`` is named instead of the real one, to keep a returning static leader of old from assigning
        again.
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

    def await_join(self, member: Member, reply: JoinReply) -> None:
        """Let a member's JoinGroup wait. One that waits already is superseded: its sender has given it up,
        and on the connection that it came by an unanswered request would hold back all later answers."""
        self.answer_join(member, join_error(member.member_id, codes.REBALANCE_IN_PROGRESS))
        member.join_reply = reply
        self.awaiting_join += 1

    def answer_join(self, member: Member, response: JoinGroupResponse) -> None:
        """Answer the member's waiting JoinGroup, if there is one."""
        reply = member.join_reply
        if reply is not None:
            member.join_reply = None
            self.awaiting_join -= 1
            reply(response)

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> bool:
        """Answer the member's waiting SyncGroup; False if there is none."""
        reply = member.sync_reply
        if reply is None:
            return False
        member.sync_reply = None
        reply(response)
        return True


def join_error(member_id: str, code: int) -> JoinGroupResponse:
    """A JoinGroup that failed."""
    return JoinGroupResponse(error_code=code, protocol_name=None, member_id=member_id)


def sync_error(code: int) -> SyncGroupResponse:
    """A SyncGroup that failed."""
    return SyncGroupResponse(error_code=code, assignment=b"")
