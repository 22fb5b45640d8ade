"""ConsumerGroupHeartbeat: members of the consumer protocol join, stay and leave.

Kafka: ``consumerGroupHeartbeat``, ``consumerGroupLeave`` of ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ottla_broker.coordinator.group.errors import max_size_reached, unknown_instance, unknown_member
from ottla_broker.coordinator.group.modern import rebalance, records
from ottla_broker.coordinator.group.modern.change import Change
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup, TimerKind
from ottla_broker.coordinator.group.modern.fencing import Fencing
from ottla_broker.coordinator.group.modern.member import ConsumerMember, Partitions
from ottla_broker.coordinator.group.modern.patterns import compile_pattern
from ottla_broker.coordinator.group.modern.states import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    MemberState,
)
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

_NOTHING: Final[frozenset[int]] = frozenset()
MOST_REGEXES: Final = 256
"""The most different regular expressions of a group's members."""


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request without its group. None, and -1 for the timeout: as before."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    may_see: Callable[[str], bool] = lambda _: True
    """Whether the client may know of a topic, for topics by regular expression."""
    needs_member_id: bool = False
    """Version 1 and later: the client makes its member id."""

    @property
    def leaves(self) -> bool:
        return self.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

    @property
    def is_full(self) -> bool:
        """Whether the member states everything: it joins, or an answer was lost. It gets its assignment again."""
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat. ``assignment`` None: as before."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assignment: Partitions | None = None
    error: KafkaError | None = None


HeartbeatReply = Callable[[HeartbeatAnswer], None]


def check(request: Heartbeat, group_id: str, assignors: Sequence[str]) -> None:
    """Check what needs no group. Raises KafkaError, with Kafka's messages."""
    if not group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if (request.needs_member_id or request.epoch != JOIN_EPOCH) and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if request.epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.topics is None and request.regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif request.epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif request.epoch < LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch is invalid: {request.epoch}.")
    if request.assignor is not None and request.assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
    if request.regex:
        compile_pattern(request.regex)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


class Heartbeats:
    """The requests of members of the consumer protocol. Owned by the loop thread; it keeps no state of its own."""

    def __init__(self, fencing: Fencing) -> None:
        self._fencing = fencing
        self._parts = fencing.parts

    def heartbeat(
        self, group: ConsumerGroup, change: Change, request: Heartbeat, member_id: str
    ) -> HeartbeatAnswer:
        """Serve a heartbeat of the member; ``change`` has what a conversion of the group has written already.

        Raises KafkaError; then nothing has changed.
        """
        parts = self._parts
        before = change.after.members.get(member_id)
        self._check_room(change, before)
        if request.instance_id is None:
            member = self._dynamic(group, change, request, member_id)
        else:
            member = self._static(group, change, request, member_id, request.instance_id)
        updated = self._updated(member, request)
        if updated is not before:
            parts.check_room(group, change, before, updated)
            _check_regexes(change, updated)
        if self._is_settled(group, change, before, updated):
            interval = self._touch(group, member_id)
            assignment = updated.assigned if request.is_full else None
            return HeartbeatAnswer(member_id, updated.epoch, interval, assignment)
        bump = change.put_member(updated)
        if bump or group.metadata_version != parts.topics.version:
            now_ms, may_see = parts.now_ms(), request.may_see
            changed = rebalance.refresh_topics(change, parts.topics, now_ms, may_see, parts.matcher)
            bump = changed or bump
        if bump:
            change.bump_epoch()
        rebalance.update_target(change, parts.settings.assignors[0])
        moved = rebalance.reconcile_member(change, change.after.members[member_id], request.owned)
        parts.write(group, change)
        interval = self._touch(group, member_id)
        if moved.state is MemberState.UNREVOKED_PARTITIONS:
            timer = group.timers.get((member_id, TimerKind.REBALANCE))
            if timer is None or timer.epoch != moved.epoch:
                parts.timers.set(
                    group, member_id, TimerKind.REBALANCE, moved.rebalance_timeout_ms, moved.epoch
                )
        else:
            parts.timers.clear(group, member_id, TimerKind.REBALANCE)
        is_new = before is None or before.assigned != moved.assigned
        assignment = moved.assigned if request.is_full or is_new else None
        return HeartbeatAnswer(member_id, moved.epoch, interval, assignment)

    def _touch(self, group: ConsumerGroup, member_id: str) -> int:
        """Extend a member's session; returns its group's heartbeat interval."""
        times = self._parts.times_of(group.group_id)
        self._parts.timers.set(group, member_id, TimerKind.SESSION, times.session_timeout_ms)
        # A member that came by the classic protocol has none of its timers any longer.
        self._parts.timers.clear(group, member_id, TimerKind.JOIN)
        self._parts.timers.clear(group, member_id, TimerKind.SYNC)
        return times.interval_for(self._parts.timers.members)

    def _is_settled(
        self, group: ConsumerGroup, change: Change, before: ConsumerMember | None, updated: ConsumerMember
    ) -> bool:
        """Whether nothing has to change: nearly all heartbeats."""
        after = change.after
        return (
            before == updated
            and not change.records
            and after.epoch <= after.assignment_epoch
            and updated.is_reconciled_to(after.assignment_epoch)
            and group.metadata_version == self._parts.topics.version
        )

    def _check_room(self, change: Change, before: ConsumerMember | None) -> None:
        maximum = self._parts.settings.max_size
        if before is None and len(change.after.members) >= maximum:
            raise max_size_reached("consumer", maximum)

    def _dynamic(
        self, group: ConsumerGroup, change: Change, request: Heartbeat, member_id: str
    ) -> ConsumerMember:
        member = change.after.members.get(member_id)
        if member is None:
            if request.epoch != JOIN_EPOCH:
                raise unknown_member(group.group_id, member_id)
            _log.info("member joins", group=group.group_id, member=member_id, protocol="consumer")
            return ConsumerMember(member_id)
        return self._checked(change, member, request)

    def _static(
        self, group: ConsumerGroup, change: Change, request: Heartbeat, member_id: str, instance_id: str
    ) -> ConsumerMember:
        existing = change.after.static_member(instance_id)
        if request.epoch != JOIN_EPOCH:
            if existing is None:
                raise unknown_instance(instance_id)
            existing.check_id(member_id)
            return self._checked(change, existing, request)
        if existing is None:
            same_id = change.after.members.get(member_id)
            _log.info(
                "member joins",
                group=group.group_id,
                member=member_id,
                instance=instance_id,
                protocol="consumer",
            )
            return ConsumerMember(member_id) if same_id is None else self._checked(change, same_id, request)
        if existing.member_id == member_id and not existing.has_left_for_a_while:
            return self._checked(change, existing, request)
        if existing.classic is None and not existing.has_left_for_a_while:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the"
                f" instance id is owned by {existing.member_id} member.",
            )
        _log.info(
            "static member returns",
            group=group.group_id,
            instance=instance_id,
            old=existing.member_id,
            new=member_id,
        )
        return change.replace_static(existing, member_id)

    @staticmethod
    def _checked(change: Change, member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
        """The member, if the request's epoch is its own, or the last one where the answer may have been lost.

        A member that joins again under its id has given up its partitions: it keeps its place and starts without them.
        """
        received, known = request.epoch, member.epoch
        if received == known and member.classic is None:
            return member
        if received == JOIN_EPOCH:
            if member.previous_epoch == JOIN_EPOCH and member.classic is None and not member.revoking:
                # Its answer was lost, or it was given nothing it could have used before it joins again.
                return member
            fresh = member.without_partitions()
            change.move_member(fresh)
            return fresh
        if received > known:
            relation = "greater"
        elif received != member.previous_epoch or not _is_within(request.owned, member.assigned):
            relation = "smaller"
        else:
            return member
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {relation} member epoch ({received}) than the one known by the group"
            f" coordinator ({known}). The member must abandon all its partitions and rejoin.",
        )

    @staticmethod
    def _updated(member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
        """The member with what the request states; fields that it leaves out stay."""
        changes: dict[str, object] = {}
        if request.instance_id is not None:
            changes["instance_id"] = request.instance_id
        if request.rack_id is not None:
            changes["rack_id"] = request.rack_id
        if request.rebalance_timeout_ms != -1:
            changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
        if request.assignor is not None:
            changes["assignor"] = request.assignor
        if request.topics is not None:
            changes["topics"] = tuple(sorted(set(request.topics)))
        if request.regex is not None:
            changes["regex"] = request.regex or None
        changes.update(client_id=request.client_id, client_host=request.client_host, classic=None)
        if all(getattr(member, name) == value for name, value in changes.items()):
            return member
        return replace(member, **changes)  # type: ignore[arg-type]

    # Leaving

    def leave(self, group: ConsumerGroup, request: Heartbeat) -> HeartbeatAnswer:
        """Remove a member; one that is static may keep its place until its session ends. Raises KafkaError."""
        members = group.membership.members
        if request.instance_id is None:
            member = members.get(request.member_id)
            if member is None:
                raise unknown_member(group.group_id, request.member_id)
        else:
            member = group.membership.static_member(request.instance_id)
            if member is None:
                raise unknown_instance(request.instance_id)
            member.check_id(request.member_id)
        _log.info(
            "member leaves",
            group=group.group_id,
            member=member.member_id,
            instance=member.instance_id,
            for_a_while=request.epoch == LEAVE_STATIC_EPOCH,
        )
        if request.epoch == LEAVE_STATIC_EPOCH:
            # Its partitions stay its own, so that nothing moves while it restarts.
            change = Change(group.group_id, group.membership)
            change.add(
                records.current(group.group_id, replace(member, epoch=LEAVE_STATIC_EPOCH, revoking={}))
            )
            self._parts.write(group, change)
            self._parts.timers.clear(group, member.member_id, TimerKind.REBALANCE)
        else:
            self._fencing.fence(group, [member.member_id])
        return HeartbeatAnswer(request.member_id, request.epoch)


def _is_within(owned: Partitions | None, assigned: Partitions) -> bool:
    return owned is not None and all(
        indexes <= assigned.get(topic_id, _NOTHING) for topic_id, indexes in owned.items()
    )


def _check_regexes(change: Change, member: ConsumerMember) -> None:
    """Check that a group has not too many regular expressions: each is matched against all topics."""
    used = change.after.used_regexes
    if member.regex is not None and member.regex not in used and len(used) >= MOST_REGEXES:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The members of the group have {MOST_REGEXES} regular expressions, the most that are allowed.",
        )
