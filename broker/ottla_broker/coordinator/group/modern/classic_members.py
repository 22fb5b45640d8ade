"""Members of the classic protocol in a group of the consumer protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A group that is being migrated has members of both. The broker assigns to all. A classic member is asked to join again
whenever it has to move a step; SyncGroup gives it what it has after that step. It is never the leader, so it never
assigns. Kafka: ``classicGroupJoinToConsumerGroup`` and its neighbours in ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.errors import max_size_reached, refused, unknown_instance
from ottla_broker.coordinator.group.group import PROTOCOL_TYPE, join_error, sync_error
from ottla_broker.coordinator.group.member import JoinReply, Sender, SyncReply
from ottla_broker.coordinator.group.membership import JoinRequest, LeaveRequest
from ottla_broker.coordinator.group.modern import rebalance
from ottla_broker.coordinator.group.modern.change import Change
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup, TimerKind
from ottla_broker.coordinator.group.modern.conversion import (
    assignment_bytes,
    named_partitions,
    read_subscription,
)
from ottla_broker.coordinator.group.modern.fencing import Fencing
from ottla_broker.coordinator.group.modern.member import ClassicSide, ConsumerMember
from ottla_broker.coordinator.group.modern.membership import Membership
from ottla_broker.coordinator.group.modern.migration import Migration
from ottla_broker.coordinator.group.modern.states import MemberState, ModernState
from ottla_broker.coordinator.group.modern.writer import when_written
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla_protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla_protocol.messages.join_group import JoinGroupResponse
from ottla_protocol.messages.sync_group import SyncGroupResponse

_log = get_logger()


class ClassicMembers:
    """Owned by the loop thread; it keeps no state of its own. Each reply is called once."""

    def __init__(self, fencing: Fencing, migration: Migration) -> None:
        self._fencing = fencing
        self._migration = migration
        self._parts = fencing.parts

    # JoinGroup

    def join(self, group: ConsumerGroup, request: JoinRequest, new_id: str, reply: JoinReply) -> None:
        """Join, or take the next step; ``new_id`` is for a member that has none."""
        try:
            self._join(group, request, new_id, reply)
        except KafkaError as error:
            _log.info(
                "classic member refused",
                group=group.group_id,
                member=request.member_id,
                error=error.code.name,
                reason=error.message,
            )
            reply(join_error(request.member_id, int(error.code)))

    def _join(self, group: ConsumerGroup, request: JoinRequest, new_id: str, reply: JoinReply) -> None:
        parts = self._parts
        is_unknown = request.member_id == ""
        member_id = new_id if is_unknown else request.member_id
        self._check_room(group, member_id, request)
        if is_unknown and request.instance_id is None and request.needs_known_id:
            reply(join_error(member_id, codes.MEMBER_ID_REQUIRED))
            return
        try:
            subscription = read_subscription(request.protocols[0][1])
        except ProtocolError as error:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"malformed subscription of member {member_id}: {error}",
            ) from error
        change = Change(group.group_id, group.membership)
        member = self._member(change, request, member_id, is_unknown)
        updated = _restated(member, request, subscription)
        parts.check_room(group, change, change.before.members.get(member_id), updated)
        bump = change.put_member(updated)
        if bump or group.metadata_version != parts.topics.version:
            bump = rebalance.refresh_topics(change, parts.topics, parts.now_ms()) or bump
        if bump:
            change.bump_epoch()
        rebalance.update_target(change, parts.settings.assignors[0])
        owned = named_partitions(parts.topics, subscription.owned_partitions)
        moved = rebalance.reconcile_member(change, change.after.members[member_id], owned)
        response = JoinGroupResponse(
            error_code=codes.NONE,
            generation_id=moved.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0][0],
            member_id=member_id,
        )
        if self._migration.is_downgrade(group, change.after):
            # A static member of the consumer protocol, the last one, returns with the classic protocol.
            self._downgrade(group, change, response, reply)
            return
        parts.write(group, change)
        # The member can lose its session while it waits for the log as well.
        parts.timers.set(group, member_id, TimerKind.SESSION, request.session_timeout_ms)
        parts.timers.clear(group, member_id, TimerKind.REBALANCE)

        def written(error: KafkaError | None) -> None:
            if error is not None:
                reply(join_error(member_id, int(error.code)))
                return
            if member_id in group.membership.members and not group.is_dead:
                parts.timers.clear(group, member_id, TimerKind.JOIN)
                parts.timers.set(group, member_id, TimerKind.SESSION, request.session_timeout_ms)
                parts.timers.set(group, member_id, TimerKind.SYNC, request.rebalance_timeout_ms)
            reply(response)

        when_written(group, written)

    def _downgrade(
        self, group: ConsumerGroup, change: Change, response: JoinGroupResponse, reply: JoinReply
    ) -> None:
        """The group becomes a classic one; the member that joins is answered when the log has that."""
        rebalances = change.after.state is not ModernState.STABLE
        classic, end_offset = self._migration.downgrade(group, change.after, rebalances)
        response.generation_id = classic.generation
        response.protocol_name = classic.protocol_name

        def written(code: int, _: int) -> None:
            if code != codes.NONE:
                reply(join_error(response.member_id, int(refused(classic.group_id, code).code)))
            else:
                reply(response)

        classic.shard.when_committed(end_offset, written)

    def _check_room(self, group: ConsumerGroup, member_id: str, request: JoinRequest) -> None:
        membership, maximum = group.membership, self._parts.settings.max_size
        if member_id not in membership.members and len(membership.members) >= maximum:
            raise max_size_reached("consumer", maximum)
        supported = request.protocol_type == PROTOCOL_TYPE and any(
            membership.classic_protocols[name] == membership.classic_members for name, _ in request.protocols
        )
        if not supported:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id} is held by the consumer protocol, and shares no assignor of its classic"
                f" members with {member_id} (type {request.protocol_type!r})",
            )

    @staticmethod
    def _member(change: Change, request: JoinRequest, member_id: str, is_unknown: bool) -> ConsumerMember:
        after, instance_id = change.after, request.instance_id
        if instance_id is None:
            return after.members.get(member_id, ConsumerMember(member_id))
        existing = after.static_member(instance_id)
        if is_unknown:
            if existing is None:
                return ConsumerMember(member_id)
            _log.info(
                "static member returns",
                group=change.group_id,
                instance=instance_id,
                old=existing.member_id,
                new=member_id,
            )
            return change.replace_static(existing, member_id)
        if existing is None:
            raise unknown_instance(instance_id)
        existing.check_id(member_id)
        return existing

    # SyncGroup

    def sync(
        self,
        group: ConsumerGroup,
        sender: Sender,
        protocol_type: str | None,
        protocol_name: str | None,
        reply: SyncReply,
    ) -> None:
        """Give the member the partitions that it has after its last step."""
        try:
            member, side = _checked(group.membership, sender)
            if protocol_type not in (None, PROTOCOL_TYPE) or protocol_name not in (None, side.name):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if group.membership.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._await_join(group, member)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            reply(sync_error(int(error.code)))
            return
        self._parts.timers.clear(group, member.member_id, TimerKind.SYNC)
        self._parts.timers.set(group, member.member_id, TimerKind.SESSION, side.session_timeout_ms)
        response = SyncGroupResponse(
            error_code=codes.NONE,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=side.name,
            assignment=assignment_bytes(self._parts.topics, member.assigned, side.subscription),
        )
        when_written(group, lambda error: reply(response if error is None else sync_error(int(error.code))))

    # Heartbeat

    def heartbeat(self, group: ConsumerGroup, sender: Sender) -> int:
        """Extend the member's session; REBALANCE_IN_PROGRESS asks it to join again."""
        membership = group.membership
        try:
            member, side = _checked(membership, sender)
        except KafkaError as error:
            return int(error.code)
        self._parts.timers.set(group, member.member_id, TimerKind.SESSION, side.session_timeout_ms)
        if (
            member.epoch < membership.epoch
            or group.metadata_version != self._parts.topics.version
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not membership.waits_for_others(member))
        ) and self._is_due(group, member):
            self._await_join(group, member)
            return codes.REBALANCE_IN_PROGRESS
        return codes.NONE

    def _is_due(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Whether the member has to join again. If the topics may have changed, look them up first."""
        if group.metadata_version == self._parts.topics.version:
            return True
        change = Change(group.group_id, group.membership)
        try:
            if rebalance.refresh_topics(change, self._parts.topics, self._parts.now_ms()):
                change.bump_epoch()
            self._parts.write(group, change)
        except KafkaError as error:
            _log.warning("topics of a group not looked up", group=group.group_id, error=error.code.name)
            return False
        after = group.membership
        return (
            member.epoch < after.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not after.waits_for_others(member))
        )

    def _await_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._parts.timers.set_if_absent(group, member.member_id, TimerKind.JOIN, member.rebalance_timeout_ms)

    # LeaveGroup

    def leave(self, group: ConsumerGroup, requests: Sequence[LeaveRequest]) -> list[int]:
        """Remove members; returns an error code for each."""
        codes_: list[int] = []
        leaving: dict[str, None] = {}
        for request in requests:
            try:
                member = _leaving(group.membership, request)
            except KafkaError as error:
                codes_.append(int(error.code))
                continue
            _log.info("member leaves", group=group.group_id, member=member.member_id, reason=request.reason)
            leaving[member.member_id] = None
            codes_.append(codes.NONE)
        if leaving:
            try:
                self._fencing.fence(group, list(leaving))
            except KafkaError as error:
                return [code or int(error.code) for code in codes_]
        return codes_


def _checked(membership: Membership, sender: Sender) -> tuple[ConsumerMember, ClassicSide]:
    """The member that sends a request, if it uses the classic protocol and is of its epoch. Raises KafkaError."""
    if sender.instance_id is None:
        member = membership.members.get(sender.member_id)
    else:
        member = membership.static_member(sender.instance_id)
        if member is not None:
            member.check_id(sender.member_id)
    if member is None or member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.epoch != sender.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _leaving(membership: Membership, request: LeaveRequest) -> ConsumerMember:
    if request.instance_id is None:
        member = membership.members.get(request.member_id)
    else:
        member = membership.static_member(request.instance_id)
        if member is not None and request.member_id:
            member.check_id(request.member_id)
    if member is None or member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _restated(
    member: ConsumerMember, request: JoinRequest, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    """The member with what its request says."""
    return replace(
        member,
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=tuple(sorted(set(subscription.topics))),
        regex=None,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicSide(request.session_timeout_ms, request.protocols),
    )
