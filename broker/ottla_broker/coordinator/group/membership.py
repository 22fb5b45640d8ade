"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of a group that is loaded here.

Kafka: ``doNewMemberJoinGroup``, ``doCurrentMemberJoinGroup``, ``updateStaticMemberAndRebalance``,
``doSyncGroup``, ``handleHeartbeat`` and ``handleLeaveGroup`` of ``GroupCoordinator.scala``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.group import Group, join_error, sync_error
from ottla_broker.coordinator.group.group_shard import GroupShard
from ottla_broker.coordinator.group.member import JoinReply, Member, Protocols, Sender, SyncReply
from ottla_broker.coordinator.group.member_ids import random_uuid
from ottla_broker.coordinator.group.rebalance import Rebalancer
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.coordinator.group.states import HEARTBEAT, SYNC, GroupState
from ottla_broker.events import get_logger

if TYPE_CHECKING:
    from random import Random

_log = get_logger()

DEFAULT_REASON = "not provided"
_LONGEST_PREFIX: Final = 255
"""Characters of a client's name in the ids that the broker makes: with all that a name may have, an id could not be
encoded, and two thousand ids would take 60 MiB."""


class JoinRequest(NamedTuple):
    """A JoinGroup request without its group, the same for all versions. Times are in milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool
    """Version 4 and later: a dynamic member gets an id first, and joins with it (KIP-394)."""
    can_skip_assignment: bool
    """Version 9 and later: the answer can ask a returning static leader not to assign (KIP-814)."""
    reason: str
    """As the client states it (KIP-800), for the log."""


class LeaveRequest(NamedTuple):
    member_id: str
    instance_id: str | None
    reason: str


class Membership:
    """The requests of a group's members. Owned by the loop thread; it keeps no state of its own.

    Each reply is called once: before the method returns, or later.
    """

    def __init__(self, settings: GroupSettings, rebalancer: Rebalancer, random: Random) -> None:
        self._settings = settings
        self._rebalancer = rebalancer
        self._random = random

    # JoinGroup

    def join(
        self, group_id: str, group: Group | None, shard: GroupShard, request: JoinRequest, reply: JoinReply
    ) -> None:
        """Join, or join again; ``group`` is None where the group does not exist."""
        is_new = request.member_id == ""
        if group is None:
            if not is_new:
                reply(join_error(request.member_id, codes.UNKNOWN_MEMBER_ID))
                return
            group = shard.create(group_id)
            shard.adopt(group)
        if not self._has_room(group, request.member_id):
            self._turn_away(group, request.member_id)
            reply(join_error("", codes.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, request.protocols):
            reply(join_error(request.member_id, codes.INCONSISTENT_GROUP_PROTOCOL))
        elif is_new:
            self._join_new(group, request, reply)
        else:
            self._join_known(group, request, reply)
        self._rebalancer.check_join(group)

    def _has_room(self, group: Group, member_id: str) -> bool:
        """Whether ``group.max.size`` admits this member.

        Members stay; while a rebalance is prepared, those that join first are admitted.
        """
        maximum = self._settings.max_size
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING:
            return (member is not None and member.join_reply is not None) or group.awaiting_join < maximum
        return member is not None or len(group.members) < maximum

    def _turn_away(self, group: Group, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalancer.expel(group, member, "group.max.size reached")
        else:
            group.remove(member_id)

    def _join_new(self, group: Group, request: JoinRequest, reply: JoinReply) -> None:
        instance_id = request.instance_id
        prefix = request.client_id if instance_id is None else instance_id
        member_id = f"{prefix[:_LONGEST_PREFIX]}-{random_uuid(self._random)}"
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is not None:
                self._replace_static(group, group.members[current], member_id, request, reply)
                return
        elif request.needs_known_id:
            self._rebalancer.add_pending(group, member_id, request.session_timeout_ms)
            _log.debug("member id given out", group=group.group_id, member=member_id)
            reply(join_error(member_id, codes.MEMBER_ID_REQUIRED))
            return
        self._add(group, member_id, request, reply)

    def _join_known(self, group: Group, request: JoinRequest, reply: JoinReply) -> None:
        member_id = request.member_id
        pending = group.pending.get(member_id)
        if pending is not None:
            if request.instance_id is not None:
                # The id was given to a dynamic member; no client joins with it as a static one.
                reply(join_error("", codes.UNKNOWN_SERVER_ERROR))
                return
            self._rebalancer.deadlines.clear(pending)
            self._add(group, member_id, request, reply)
            return
        error = group.check_member(member_id, request.instance_id)
        if error == codes.NONE and group.state is GroupState.EMPTY:
            error = codes.UNKNOWN_MEMBER_ID
        if error != codes.NONE:
            reply(join_error(member_id, error))
            return
        member = group.members[member_id]
        same = member.protocols == request.protocols
        if group.state is GroupState.PREPARING:
            why = "joins"
        elif group.state is GroupState.COMPLETING:
            if same:
                # The answer was lost; the leader's member list has the same metadata.
                reply(group.join_response(member_id))
                return
            why = "joins with other metadata"
        elif member_id == group.leader_id:
            why = "leader joins again"
        elif same:
            reply(group.join_response(member_id))
            return
        else:
            why = "joins with other metadata"
        self._update(group, member, request, reply)
        self._rebalancer.maybe_prepare(group, f"member {member_id} {why}; client reason: {request.reason}")

    def _add(self, group: Group, member_id: str, request: JoinRequest, reply: JoinReply) -> None:
        """Add a new member; it waits for the next generation."""
        member = Member(
            group.group_id,
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
        )
        instance = f" (instance {request.instance_id})" if request.instance_id is not None else ""
        reason = f"new member {member_id}{instance}; client reason: {request.reason}"
        self._rebalancer.add(group, member, request.protocol_type, reply, reason)

    def _update(self, group: Group, member: Member, request: JoinRequest, reply: JoinReply) -> None:
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        group.await_join(member, reply)

    # Static members (KIP-345)

    def _replace_static(
        self, group: Group, member: Member, new_id: str, request: JoinRequest, reply: JoinReply
    ) -> None:
        """Give a static member that returns under a new id its old place, and fence the old id.

        There is no rebalance if nothing changes for the other members.
        """
        old_id, old_leader = member.member_id, group.leader_id
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        _log.info(
            "static member returns",
            group=group.group_id,
            instance=member.instance_id,
            old=old_id,
            new=new_id,
            state=group.state.value,
        )
        self._fence_and_rename(group, member, new_id)
        self._update(group, member, request, reply)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            generation = group.generation

            def stored(error: int) -> None:
                if member.join_reply is not reply:
                    return  # it has been answered: superseded, expelled, or unloaded
                if group.state is not GroupState.STABLE or group.generation != generation:
                    return  # a rebalance has begun since, and answers it
                if error != codes.NONE:
                    _log.warning("static member not written", group=group.group_id, error=error)
                    group.update(member, *before)
                    self._rename(group, member, old_id)
                    group.answer_join(member, join_error("", error))
                elif request.can_skip_assignment:
                    is_leader = group.leader_id == new_id
                    group.answer_join(member, group.join_response(new_id, skip_assignment=is_leader))
                else:
                    # As the leader it would assign, and a stable group doesn't notice that.
                    group.answer_join(member, group.join_response(new_id, leader=old_leader))

            self._rebalancer.store(group, stored)
        elif group.state is not GroupState.PREPARING:
            # While the rebalance completes, the leader assigns to the member's old id.
            self._rebalancer.maybe_prepare(
                group, f"static member {member.instance_id} returns; client reason: {request.reason}"
            )

    def _fence_and_rename(self, group: Group, member: Member, new_id: str) -> None:
        old_id = member.member_id
        join, sync = group.release_replies(member)
        self._rename(group, member, new_id)
        if join is not None:
            join(join_error(old_id, codes.FENCED_INSTANCE_ID))
        if sync is not None:
            sync(sync_error(codes.FENCED_INSTANCE_ID))

    def _rename(self, group: Group, member: Member, member_id: str) -> None:
        group.rename(member, member_id)
        self._rebalancer.touch(member)

    # SyncGroup

    def sync(
        self,
        group: Group,
        sender: Sender,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: dict[str, bytes],
        reply: SyncReply,
    ) -> None:
        """Ask for the member's share of the assignment; the leader's request contains all shares."""
        error = group.check_generation(sender)
        if error == codes.NONE and (
            (protocol_type is not None and protocol_type != group.protocol_type)
            or (protocol_name is not None and protocol_name != group.protocol_name)
        ):
            error = codes.INCONSISTENT_GROUP_PROTOCOL
        if error == codes.NONE:
            error = SYNC[group.state]
        if error != codes.NONE:
            reply(sync_error(error))
            return
        member = group.members[sender.member_id]
        self._rebalancer.synced(group, member.member_id)
        if group.state is GroupState.STABLE:
            self._rebalancer.touch(member)
            reply(group.sync_response(member))
            return
        group.await_sync(member, reply)
        if member.member_id == group.leader_id:
            self._rebalancer.assign(group, assignments)

    # Heartbeat

    def heartbeat(self, group: Group, sender: Sender) -> int:
        """Extend the member's session; the answer says whether to join again."""
        error = group.check_generation(sender)
        if error != codes.NONE:
            return error
        self._rebalancer.touch(group.members[sender.member_id])
        return HEARTBEAT[group.state]

    # LeaveGroup

    def leave(self, group: Group, request: LeaveRequest) -> int:
        """Remove a member; a static one may be named by its instance alone (KIP-345)."""
        member_id = request.member_id
        if member_id == "":
            current = None
            if request.instance_id is not None:
                current = group.static_members.get(request.instance_id)
            if current is None:
                return codes.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id in group.pending:
            self._rebalancer.deadlines.clear(group.pending[member_id])
            group.remove(member_id)
            self._rebalancer.check_join(group)
            return codes.NONE
        else:
            error = group.check_member(member_id, request.instance_id)
            if error != codes.NONE:
                return error
        _log.info("member leaves", group=group.group_id, member=member_id, reason=request.reason)
        self._rebalancer.expel(group, group.members[member_id], f"leaves; client reason: {request.reason}")
        return codes.NONE
