"""From one generation of a group to the next, and what happens to members that are not heard of.

Kafka: ``prepareRebalance``, ``onCompleteJoin``, the delayed operations and the heartbeat expirations of
``GroupCoordinator.scala``, ``DelayedJoin.scala`` and ``DelayedSync.scala``.

A group has at most one of two timers running: ``join_timer`` while it prepares (with it, the wait for members
ends), ``sync_timer`` from then until every member of the new generation has asked for its assignment.
Everything that could leave the wait without reason to go on (a member that joins, leaves or is lost) ends
with :meth:`Rebalancer.check_join`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.group import records
from ottla_broker.coordinator.group.errors import store_error
from ottla_broker.coordinator.group.group import Group, join_error, sync_error
from ottla_broker.coordinator.group.member import Member, PendingMember, SyncReply
from ottla_broker.coordinator.group.states import CAN_REBALANCE, Event, GroupState
from ottla_broker.events import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla_broker.clock import Clock
    from ottla_broker.coordinator.group.settings import GroupSettings

log = get_logger()

NEW_MEMBER_JOIN_TIMEOUT_S = 300.0
"""How long a new member's first join may wait: its client may be gone, and without an id it sends no
heartbeats."""


class Rebalancer:
    """Moves groups from generation to generation. Owned by the loop thread; it keeps no state of a group
    itself."""

    def __init__(self, settings: GroupSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.now_ms = clock.now_ms
        self.deadlines = Deadlines(clock, self._missed)

    # Sessions

    def touch(self, member: Member) -> None:
        """A member has been heard of: its session goes on."""
        self.deadlines.set(member, member.session_timeout_ms / 1000)

    def _missed(self, item: Deadline) -> None:
        if isinstance(item, PendingMember):
            group = item.group
            if group.pending.get(item.member_id) is item:
                log.info("pending member timed out", group=group.group_id, member=item.member_id)
                group.remove(item.member_id)
                self.check_join(group)
        elif isinstance(item, Member):
            group = item.group
            if group.state is GroupState.DEAD or group.members.get(item.member_id) is not item:
                return
            if item.is_waiting and not item.is_new:
                return  # its deadline is set again when it is answered
            log.info("member timed out", group=group.group_id, member=item.member_id)
            self.expel(item, "session timed out")

    # Membership

    def expel(self, member: Member, reason: str) -> None:
        """Take a member out, and begin or go on with the rebalance that follows."""
        self._drop(member)
        self._carry_on(member.group, f"member {member.member_id}: {reason}")

    def _drop(self, member: Member) -> None:
        """Take a member out. What it waits for is answered, so that a client that is alive joins anew."""
        group = member.group
        group.remove(member.member_id)
        self.deadlines.clear(member)
        join, member.join_reply = member.join_reply, None
        sync, member.sync_reply = member.sync_reply, None
        if join is not None:
            join(join_error("", codes.UNKNOWN_MEMBER_ID))
        if sync is not None:
            sync(sync_error(codes.UNKNOWN_MEMBER_ID))

    def _carry_on(self, group: Group, reason: str) -> None:
        """Members have gone: the others rebalance."""
        if group.state is GroupState.PREPARING:
            self.check_join(group)
        elif group.state is GroupState.COMPLETING or group.state is GroupState.STABLE:
            self.prepare(group, reason)

    # Preparing: waiting for the members to join

    def maybe_prepare(self, group: Group, reason: str) -> None:
        """Begin a rebalance unless one is being prepared."""
        if group.state in CAN_REBALANCE:
            self.prepare(group, reason)

    def prepare(self, group: Group, reason: str, sync_answer: int = codes.REBALANCE_IN_PROGRESS) -> None:
        """Begin a rebalance; whoever waits for an assignment is told ``sync_answer``.

        The first rebalance of a group waits for ``group.initial.rebalance.delay.ms``, and as long again while
        members keep coming, up to the rebalance timeout; later ones wait for the known members only.
        """
        waiting: list[SyncReply] = []
        if group.state is GroupState.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
                if member.sync_reply is not None:
                    waiting.append(member.sync_reply)
                    member.sync_reply = None
                    self.touch(member)
        self._end_sync_wait(group)
        was_empty = group.state is GroupState.EMPTY
        group.fire(Event.PREPARE, self.now_ms())
        log.info("preparing rebalance", group=group.group_id, generation=group.generation, reason=reason)
        if was_empty:
            delay = self._settings.initial_rebalance_delay_ms
            self._delay_first(group, delay, max(group.rebalance_timeout_ms - delay, 0))
        else:
            self._wait_for_join(group)
        # An answer can bring the next request of its client at once, so the group is in order before the
        # first.
        for reply in waiting:
            reply(sync_error(sync_answer))
        self.check_join(group)

    def check_join(self, group: Group) -> None:
        """Complete the join if nobody has to be waited for any more."""
        if group.state is GroupState.PREPARING and not group.initial_delay and group.all_joined:
            self._complete_join(group)

    def _delay_first(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        group.initial_delay = True
        group.join_timer = self._clock.call_later(
            delay_ms / 1000, self._first_delay_over, group, delay_ms, remaining_ms
        )

    def _first_delay_over(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        group.join_timer = None
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            again = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            self._delay_first(group, again, max(remaining_ms - delay_ms, 0))
        else:
            self._complete_join(group)

    def _wait_for_join(self, group: Group) -> None:
        self._cancel_join_timer(group)
        group.join_timer = self._clock.call_later(
            group.rebalance_timeout_ms / 1000, self._complete_join, group
        )

    def _cancel_join_timer(self, group: Group) -> None:
        group.initial_delay = False
        if group.join_timer is not None:
            group.join_timer.cancel()
            group.join_timer = None

    def _complete_join(self, group: Group) -> None:
        """The wait is over: whoever has joined is the next generation."""
        self._cancel_join_timer(group)
        if group.awaiting_join != len(group.members):
            # Static members may come back within their session (KIP-345); the others have had their time.
            late = [m for m in group.members.values() if m.join_reply is None and m.instance_id is None]
            for member in late:
                self._drop(member)
            if late:
                log.info("members that did not rejoin removed", group=group.group_id, count=len(late))
        if not group.elect_joined_leader() and group.members:
            log.warning("rebalance put off: no member has rejoined", group=group.group_id)
            self._wait_for_join(group)
            return
        group.next_generation(self.now_ms())
        if group.state is GroupState.EMPTY:
            log.info("group is empty", group=group.group_id, generation=group.generation)
            self._store(group, {}, lambda error: self._empty_stored(group, error))
            return
        log.info(
            "generation begins",
            group=group.group_id,
            generation=group.generation,
            members=len(group.members),
            protocol=group.protocol_name,
            leader=group.leader_id,
        )
        group.pending_sync.update(group.members)
        group.sync_timer = self._clock.call_later(
            group.rebalance_timeout_ms / 1000, self._sync_overdue, group, group.generation
        )
        for member in list(group.members.values()):
            member.is_new = False
            self.touch(member)
            if member.join_reply is not None:
                group.answer_join(member, group.join_response(member.member_id))

    @staticmethod
    def _empty_stored(group: Group, error: int) -> None:
        if error != codes.NONE:
            # A coordinator that takes over finds the last generation and times its members out once more.
            log.warning("empty group not written", group=group.group_id, error=error)

    # Completing: waiting for the assignment

    def assign(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """Take the leader's assignment: it counts, and is handed out, once it is in the log."""
        shares = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        missing = sum(member_id not in assignments for member_id in shares)
        if missing:
            log.warning("leader left members without assignment", group=group.group_id, members=missing)
        generation = group.generation
        self._store(group, shares, lambda error: self._assigned(group, generation, shares, error))

    def _assigned(self, group: Group, generation: int, shares: Mapping[str, bytes], error: int) -> None:
        if group.state is not GroupState.COMPLETING or group.generation != generation:
            return  # another rebalance has begun since, and has answered whoever waited
        if error != codes.NONE:
            self.prepare(group, f"the assignment could not be written: error {error}", error)
            return
        group.fire(Event.ASSIGNED, self.now_ms())
        log.info("group is stable", group=group.group_id, generation=generation, members=len(shares))
        members = list(group.members.values())
        for member in members:
            member.assignment = shares.get(member.member_id, b"")
        for member in members:
            if member.sync_reply is not None:
                self.touch(member)
                group.answer_sync(member, group.sync_response(member))

    def synced(self, group: Group, member_id: str) -> None:
        """A member's SyncGroup has come."""
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
        if group.generation != generation or group.state not in (GroupState.COMPLETING, GroupState.STABLE):
            return
        late = [group.members[member_id] for member_id in group.pending_sync if member_id in group.members]
        if late:
            for member in late:
                self._drop(member)
            self._carry_on(group, f"{len(late)} members did not ask for their assignment")

    # Loading and unloading

    def resume(self, group: Group) -> None:
        """Let the sessions of a loaded group begin anew."""
        for member in group.members.values():
            self.touch(member)
        if len(group.members) > self._settings.max_size:
            self.prepare(group, "loaded with more members than group.max.size")

    def stop(self, group: Group) -> None:
        """Cancel everything that would still happen to a dead group."""
        self._cancel_join_timer(group)
        self._end_sync_wait(group)
        for member in group.members.values():
            self.deadlines.clear(member)
        for pending in group.pending.values():
            self.deadlines.clear(pending)

    # The log

    def store(self, group: Group, stored: Callable[[int], None]) -> None:
        """Write the group as it is, with the assignments that its members have."""
        self._store(group, {m.member_id: m.assignment for m in group.members.values()}, stored)

    @staticmethod
    def _store(group: Group, assignments: Mapping[str, bytes], stored: Callable[[int], None]) -> None:
        record = (records.group_key(group.group_id), records.group_value(group, assignments))
        group.home.shard.append([record], lambda error, _: stored(store_error(group.group_id, error)))
