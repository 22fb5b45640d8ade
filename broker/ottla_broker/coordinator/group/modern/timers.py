"""The deadlines of members: sessions, rebalances, and the classic protocol's joins and syncs."""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.clock import Clock
from ottla_broker.coordinator.deadlines import NEVER, Deadline, Deadlines
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup, MemberTimer, TimerKind


class MemberTimers:
    """Owned by the loop thread. ``missed(timer)`` is called for a member that is late.

    Attributes:
        members: the number of members that have a session.
    """

    def __init__(self, clock: Clock, missed: Callable[[MemberTimer], None]) -> None:
        self._missed = missed
        self._deadlines = Deadlines(clock, self._due)
        self.members = 0

    def set(
        self, group: ConsumerGroup, member_id: str, kind: TimerKind, timeout_ms: int, epoch: int = 0
    ) -> None:
        """Set a member's deadline, whatever it was."""
        key = (member_id, kind)
        timer = group.timers.get(key)
        if timer is None:
            timer = group.timers[key] = MemberTimer(group.group_id, member_id, kind)
            self.members += kind is TimerKind.SESSION
        timer.epoch = epoch
        self._deadlines.set(timer, timeout_ms / 1000)

    def set_if_absent(self, group: ConsumerGroup, member_id: str, kind: TimerKind, timeout_ms: int) -> None:
        if (member_id, kind) not in group.timers:
            self.set(group, member_id, kind, timeout_ms)

    def clear(self, group: ConsumerGroup, member_id: str, kind: TimerKind) -> None:
        timer = group.timers.pop((member_id, kind), None)
        if timer is not None:
            self.members -= kind is TimerKind.SESSION
            self._deadlines.clear(timer)

    def clear_member(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in TimerKind:
            self.clear(group, member_id, kind)

    def clear_group(self, group: ConsumerGroup) -> None:
        for timer in group.timers.values():
            self.members -= timer.kind is TimerKind.SESSION
            self._deadlines.clear(timer)
        group.timers.clear()

    def close(self) -> None:
        self._deadlines.close()

    def _due(self, item: Deadline) -> None:
        if isinstance(item, MemberTimer) and item.deadline == NEVER:
            self._missed(item)
