"""Removes members: those that leave, and those that are late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla_broker.coordinator.group.modern import rebalance
from ottla_broker.coordinator.group.modern.change import Change
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup, MemberTimer, TimerKind
from ottla_broker.coordinator.group.modern.migration import Migration
from ottla_broker.coordinator.group.modern.parts import Parts
from ottla_broker.events import get_logger
from ottla_protocol.errors import KafkaError

_log = get_logger()


@dataclass(eq=False)
class Fencing:
    """Owned by the loop thread. ``find(group_id)`` is the coordinator's group, if it is of the consumer protocol."""

    parts: Parts
    _migration: Migration
    _find: Callable[[str], ConsumerGroup | None]

    def fence(self, group: ConsumerGroup, member_ids: Sequence[str]) -> None:
        """Remove members; their partitions are free at once. Raises KafkaError; then nothing has changed.

        The others get their part of the next target with their heartbeats. If they all use the classic protocol, the
        group becomes a classic one.
        """
        change = Change(group.group_id, group.membership)
        change.remove_members(member_ids)
        if self._migration.is_downgrade(group, change.after):
            self._migration.downgrade(group, change.after, rebalances=True)
            return
        rebalance.refresh_topics(change, self.parts.topics, self.parts.now_ms())
        change.bump_epoch()
        self.parts.write(group, change)
        for member_id in member_ids:
            self.parts.timers.clear_member(group, member_id)

    def missed(self, timer: MemberTimer) -> None:
        """A member is late: remove it, unless it has moved on."""
        group = self._find(timer.group_id)
        if group is None or group.timers.get((timer.member_id, timer.kind)) is not timer:
            return
        member = group.membership.members.get(timer.member_id)
        if member is None or (timer.kind is TimerKind.REBALANCE and member.epoch != timer.epoch):
            self.parts.timers.clear(group, timer.member_id, timer.kind)
            return
        _log.info(
            "member removed",
            group=group.group_id,
            member=timer.member_id,
            instance=member.instance_id,
            reason=timer.kind.value,
        )
        try:
            self.fence(group, [timer.member_id])
        except KafkaError as error:
            # The log refuses writes: the leadership is about to move, or the disk is full. Try again later.
            _log.warning(
                "member not removed", group=group.group_id, member=timer.member_id, error=error.code.name
            )
            times = self.parts.times_of(group.group_id)
            self.parts.timers.set(
                group, timer.member_id, timer.kind, times.heartbeat_interval_ms, timer.epoch
            )
