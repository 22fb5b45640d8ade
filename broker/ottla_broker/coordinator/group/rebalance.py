"""Moves groups from one generation to the next, and removes members that are not heard of.

Kafka: ``prepareRebalance``, ``onCompleteJoin``, the delayed operations and the heartbeat expirations of
``GroupCoordinator.scala``, ``DelayedJoin.scala`` and ``DelayedSync.scala``.

A group has at most one of two timers running: ``join_timer`` while it prepares and waits for its members, then
``sync_timer`` until every member of the new generation has asked for its assignment. Each change after which there may
be no one left to wait for (a member joins, leaves or is lost) ends with :meth:`Rebalancer.check_join`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from ottla_broker.clock import Clock
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.group import records
from ottla_broker.coordinator.group.errors import store_error
from ottla_broker.coordinator.group.group import Group, join_error, sync_error
from ottla_broker.coordinator.group.initial_delay import InitialDelay
from ottla_broker.coordinator.group.member import JoinReply, Member, PendingMember, SyncReply
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.coordinator.group.states import CAN_REBALANCE, IN_GENERATION, Event, GroupState
from ottla_broker.events import get_logger

_log = get_logger()
_T = TypeVar("_T")

PORTION: Final = 200
"""Members that are answered in one turn of the event loop."""
NEW_MEMBER_JOIN_TIMEOUT_S = 300.0
"""How long a new member's first join may wait: its client may be gone, and without an id it sends no heartbeats."""


class Rebalancer:
    """Moves groups from generation to generation. Owned by the loop thread.

    ``groups`` is the coordinator's index, by group id; it has groups of other kinds as well.
    """

    def __init__(self, settings: GroupSettings, clock: Clock, groups: Mapping[str, object]) -> None:
        self._settings = settings
        self._clock = clock
        self._groups = groups
        self.now_ms = clock.now_ms
        self.deadlines = Deadlines(clock, self._missed)
        # Member ids, oldest first; most of them are in use, or no longer known.
        self._given_out: deque[PendingMember] = deque()

    # Sessions

    def touch(self, member: Member) -> None:
        """Extend the session of a member that has been heard of."""
        self.deadlines.set(member, member.session_timeout_ms / 1000)

    def _missed(self, item: Deadline) -> None:
        if isinstance(item, PendingMember):
            if (its := self._drop_pending(item)) is not None:
                _log.info("pending member timed out", group=its.group_id, member=item.member_id)
                self.check_join(its)
        elif isinstance(item, Member):
            group = self._groups.get(item.group_id)
            if not isinstance(group, Group) or group.members.get(item.member_id) is not item:
                return
            if item.is_waiting and not item.is_new:
                return  # its deadline is set again when it is answered
            _log.info("member timed out", group=group.group_id, member=item.member_id)
            self.expel(group, item, "session timed out")

    # Membership

    def add(self, group: Group, member: Member, protocol_type: str, reply: JoinReply, reason: str) -> None:
        """Add a new member, which waits for the next generation."""
        if group.initial_delay is not None and group.generation == 0:
            group.initial_delay.member_came(self._clock.monotonic())
        group.add(member, protocol_type, reply)
        self.deadlines.set(member, NEW_MEMBER_JOIN_TIMEOUT_S)
        self.maybe_prepare(group, reason)

    def add_pending(self, group: Group, member_id: str, session_timeout_ms: int) -> None:
        """Remember a member id that is given out, for a session timeout; the oldest of too many is dropped."""
        while len(self._given_out) >= self._settings.max_pending_members:
            oldest = self._given_out.popleft()
            if (of_oldest := self._drop_pending(oldest)) is not None:
                self.deadlines.clear(oldest)
                self.check_join(of_oldest)
        pending = group.add_pending(member_id)
        self._given_out.append(pending)
        self.deadlines.set(pending, session_timeout_ms / 1000)

    def _drop_pending(self, pending: PendingMember) -> Group | None:
        """Forget a member id that was given out; returns its group, None if the id is in use or forgotten."""
        group = self._groups.get(pending.group_id)
        if not isinstance(group, Group) or group.pending.get(pending.member_id) is not pending:
            return None
        group.remove(pending.member_id)
        return group

    def expel(self, group: Group, member: Member, reason: str) -> None:
        """Remove a member, and begin or continue the rebalance that follows."""
        self._drop(group, member)
        self._continue(group, f"member {member.member_id}: {reason}")

    def _drop(self, group: Group, member: Member) -> None:
        """Remove a member. Its waiting requests are answered, so that a client that is alive joins again."""
        join, sync = group.remove(member.member_id)
        self.deadlines.clear(member)
        if join is not None:
            join(join_error("", codes.UNKNOWN_MEMBER_ID))
        if sync is not None:
            sync(sync_error(codes.UNKNOWN_MEMBER_ID))

    def _continue(self, group: Group, reason: str) -> None:
        if group.state is GroupState.PREPARING:
            self.check_join(group)
        elif group.state in IN_GENERATION:
            self.prepare(group, reason)

    # Preparing: waiting for the members to join

    def maybe_prepare(self, group: Group, reason: str) -> None:
        """Begin a rebalance unless one is being prepared."""
        if group.state in CAN_REBALANCE:
            self.prepare(group, reason)

    def prepare(self, group: Group, reason: str, sync_answer: int = codes.REBALANCE_IN_PROGRESS) -> None:
        """Begin a rebalance; members that wait for an assignment get the error ``sync_answer``.

        A group's first rebalance waits for more members, up to the rebalance timeout (``InitialDelay``); later ones
        wait for the known members only.
        """
        waiting = group.withdraw_assignments() if group.state is GroupState.COMPLETING else []
        for member, _ in waiting:
            self.touch(member)
        self._end_sync_wait(group)
        was_empty = group.state is GroupState.EMPTY
        group.fire(Event.PREPARE, self.now_ms())
        _log.info("preparing rebalance", group=group.group_id, generation=group.generation, reason=reason)
        if was_empty:
            delay = self._settings.initial_rebalance_delay_ms / 1000
            now = self._clock.monotonic()
            wait = InitialDelay(delay, now, now + max(delay, group.rebalance_timeout_ms / 1000))
            group.initial_delay = wait
            group.join_timer = self._clock.call_later(wait.shortest, self._check_initial_delay, group, wait)
        else:
            self._wait_for_join(group)
        for _, reply in waiting:
            reply(sync_error(sync_answer))
        self.check_join(group)

    def check_join(self, group: Group) -> None:
        """Complete the join if all members have joined."""
        if group.state is GroupState.PREPARING and group.initial_delay is None and group.all_joined:
            self._complete_join(group)

    def _check_initial_delay(self, group: Group, wait: InitialDelay) -> None:
        group.join_timer = None
        left = wait.over_at - self._clock.monotonic()
        if left > 0:
            # A second member may shorten the wait of the first, but not below ``shortest``.
            group.join_timer = self._clock.call_later(left, self._check_initial_delay, group, wait)
        else:
            self._complete_join(group)

    def _wait_for_join(self, group: Group) -> None:
        self._cancel_join_timer(group)
        group.join_timer = self._clock.call_later(
            group.rebalance_timeout_ms / 1000, self._complete_join, group
        )

    def _cancel_join_timer(self, group: Group) -> None:
        group.initial_delay = None
        if group.join_timer is not None:
            group.join_timer.cancel()
            group.join_timer = None

    def _complete_join(self, group: Group) -> None:
        """End the wait: the members that have joined are the next generation."""
        self._cancel_join_timer(group)
        if group.awaiting_join != len(group.members):
            # Static members may come back within their session (KIP-345); the others are too late.
            late = [m for m in group.members.values() if m.join_reply is None and m.instance_id is None]
            for member in late:
                self._drop(group, member)
            if late:
                _log.info("members that did not rejoin removed", group=group.group_id, count=len(late))
        if not group.elect_joined_leader() and group.members:
            _log.warning("rebalance delayed: no member has rejoined", group=group.group_id)
            self._wait_for_join(group)
            return
        group.next_generation(self.now_ms())
        if group.state is GroupState.EMPTY:
            _log.info("group is empty", group=group.group_id, generation=group.generation)
            self._store(group, {}, lambda error: self._empty_stored(group, error))
            return
        _log.info(
            "generation begins",
            group=group.group_id,
            generation=group.generation,
            members=len(group.members),
            protocol=group.protocol_name,
            leader=group.leader_id,
        )
        group.sync_timer = self._clock.call_later(
            group.rebalance_timeout_ms / 1000, self._sync_overdue, group, group.generation
        )
        for member in group.members.values():
            self.touch(member)
        self._answer_joined(group, group.generation)

    def _answer_joined(self, group: Group, generation: int) -> None:
        """Answer the waiting JoinGroups, the leader's first: its client computes the assignment meanwhile."""

        def answer(one: tuple[Member, JoinReply | None]) -> None:
            member, reply = one
            if group.generation != generation or group.state not in IN_GENERATION:
                return  # another rebalance has begun since, which this join waits for now
            if reply is not None and member.join_reply is reply:
                self.touch(member)
                group.answer_join(member, group.join_response(member.member_id))

        waiting = [(member, member.join_reply) for member in group.members.values()]
        waiting.sort(key=lambda one: one[0].member_id != group.leader_id)
        self._in_portions(waiting, answer)

    def _in_portions(self, waiting: Sequence[_T], answer: Callable[[_T], None], start: int = 0) -> None:
        """Answer those who wait, some in each turn of the event loop."""
        end = start + PORTION
        for one in waiting[start:end]:
            answer(one)
        if end < len(waiting):
            self._clock.call_later(0, self._in_portions, waiting, answer, end)

    @staticmethod
    def _empty_stored(group: Group, error: int) -> None:
        if error != codes.NONE:
            # A new coordinator loads the last generation and times its members out again.
            _log.warning("empty group not written", group=group.group_id, error=error)

    # Completing: waiting for the assignment

    def assign(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """Write the leader's assignment; members get it once it is in the log."""
        shares = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        missing = sum(member_id not in assignments for member_id in shares)
        if missing:
            _log.warning("leader left members without assignment", group=group.group_id, members=missing)
        generation = group.generation
        self._store(group, shares, lambda error: self._assigned(group, generation, shares, error))

    def _assigned(self, group: Group, generation: int, shares: dict[str, bytes], error: int) -> None:
        if group.state is not GroupState.COMPLETING or group.generation != generation:
            return  # another rebalance has begun since, and has answered the waiting members
        if error != codes.NONE:
            self.prepare(group, f"the assignment could not be written: error {error}", error)
            return
        members = group.assign(shares, self.now_ms())
        _log.info("group is stable", group=group.group_id, generation=generation, members=len(members))

        def answer(one: tuple[Member, SyncReply]) -> None:
            # Also if a rebalance has begun since: the member hears of it with its next heartbeat.
            member, reply = one
            if member.sync_reply is reply:
                self.touch(member)
                group.answer_sync(member, group.sync_response(member))

        self._in_portions([(each, each.sync_reply) for each in members if each.sync_reply], answer)

    def synced(self, group: Group, member_id: str) -> None:
        """Note that a member has asked for its assignment."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._end_sync_wait(group)

    def _end_sync_wait(self, group: Group) -> None:
        group.pending_sync.clear()
        if group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    def _sync_overdue(self, group: Group, generation: int) -> None:
        group.sync_timer = None
        if group.generation != generation or group.state not in IN_GENERATION:
            return
        late = [group.members[member_id] for member_id in group.pending_sync if member_id in group.members]
        if late:
            for member in late:
                self._drop(group, member)
            self._continue(group, f"{len(late)} members did not ask for their assignment")

    # Loading and unloading

    def resume(self, group: Group) -> None:
        """Begin the members' sessions, and a rebalance if one is due."""
        for member in group.members.values():
            self.touch(member)
        if group.members and group.leader_id is None:
            self.prepare(group, "its last generation has no leader")
        elif len(group.members) > self._settings.max_size:
            self.prepare(group, "loaded with more members than group.max.size")

    def retire(self, group: Group) -> None:
        """Make a group dead and cancel its timers and deadlines."""
        group.fire(Event.RETIRED, self.now_ms())
        self._cancel_join_timer(group)
        self._end_sync_wait(group)
        for member in group.members.values():
            self.deadlines.clear(member)
        for pending in group.pending.values():
            self.deadlines.clear(pending)

    # The log

    def store(self, group: Group, stored: Callable[[int], None]) -> None:
        """Write the group with its members' present assignments."""
        self._store(group, {m.member_id: m.assignment for m in group.members.values()}, stored)

    @staticmethod
    def _store(group: Group, assignments: Mapping[str, bytes], stored: Callable[[int], None]) -> None:
        record = (records.group_key(group.group_id), records.group_value(group, assignments))
        size = len(record[1])
        group.shard.append([record], lambda error, _: stored(store_error(group.group_id, error, size)))
