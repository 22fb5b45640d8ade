"""All groups of the consumer protocol that a coordinator has: requests come in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla_broker.clock import Clock
from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.member_ids import random_uuid
from ottla_broker.coordinator.group.metadata_limit import MetadataLimit
from ottla_broker.coordinator.group.modern.change import Change
from ottla_broker.coordinator.group.modern.classic_members import ClassicMembers
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup, MemberTimer, TimerKind
from ottla_broker.coordinator.group.modern.fencing import Fencing
from ottla_broker.coordinator.group.modern.heartbeats import (
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatReply,
    Heartbeats,
    check,
)
from ottla_broker.coordinator.group.modern.membership import Membership
from ottla_broker.coordinator.group.modern.migration import Migration
from ottla_broker.coordinator.group.modern.parts import Parts
from ottla_broker.coordinator.group.modern.patterns import Matcher
from ottla_broker.coordinator.group.modern.settings import ConsumerGroupSettings, TimesOf
from ottla_broker.coordinator.group.modern.states import JOIN_EPOCH, MemberState
from ottla_broker.coordinator.group.modern.timers import MemberTimers
from ottla_broker.coordinator.group.modern.topics import TopicsView
from ottla_broker.coordinator.group.modern.writer import when_written
from ottla_broker.coordinator.group.rebalance import Rebalancer
from ottla_broker.coordinator.shard import Shard
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random

_log = get_logger()


class ConsumerGroups:
    """Owned by the loop thread. ``groups`` is the coordinator's index; ``adopt`` adds a group of either kind to it.

    ``metadata_limit``: what members may state.

    Attributes:
        classic: serves the requests of classic members in these groups.
        migration: turns groups into the other kind.
    """

    def __init__(
        self,
        settings: ConsumerGroupSettings,
        classic_max_size: int,
        times_of: TimesOf,
        topics: TopicsView,
        clock: Clock,
        random: Random,
        rebalancer: Rebalancer,
        groups: Mapping[str, object],
        adopt: Callable[[Group | ConsumerGroup], None],
        metadata_limit: MetadataLimit,
    ) -> None:
        self._groups = groups
        self._random = random
        self._timers = MemberTimers(clock, self._missed)
        matcher = Matcher(clock.monotonic)
        self._parts = Parts(
            settings, times_of, topics, self._timers, clock.now_ms, adopt, metadata_limit, matcher
        )
        self.migration = Migration(self._parts, rebalancer, classic_max_size, adopt)
        self._fencing = Fencing(self._parts, self.migration, self._find)
        self._heartbeats = Heartbeats(self._fencing)
        self.classic = ClassicMembers(self._fencing, self.migration)

    def _find(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _missed(self, timer: MemberTimer) -> None:
        self._fencing.missed(timer)

    @property
    def default_assignor(self) -> str:
        return self._parts.settings.assignors[0]

    @property
    def topics(self) -> TopicsView:
        return self._parts.topics

    # Life

    def resume(self, group: ConsumerGroup) -> None:
        """A group is loaded: each member gets a whole session to be heard of."""
        session_ms = self._parts.times_of(group.group_id).session_timeout_ms
        for member_id, member in group.membership.members.items():
            own = session_ms if member.classic is None else member.classic.session_timeout_ms
            self._timers.set(group, member_id, TimerKind.SESSION, own)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self._timers.set(
                    group, member_id, TimerKind.REBALANCE, member.rebalance_timeout_ms, member.epoch
                )

    def close(self) -> None:
        self._timers.close()

    # ConsumerGroupHeartbeat

    def check(self, group_id: str, request: Heartbeat) -> KafkaError | None:
        """Return what is wrong with a request, whatever its group."""
        try:
            check(request, group_id, self._parts.settings.assignors)
        except KafkaError as error:
            return error
        return None

    def heartbeat(
        self,
        group_id: str,
        found: Group | ConsumerGroup | None,
        shard: Shard,
        request: Heartbeat,
        reply: HeartbeatReply,
    ) -> None:
        """Serve a heartbeat, answered when the log has what it changed; ``found`` is the group, if there is one."""
        try:
            group, answer = self._serve(group_id, found, shard, request)
        except KafkaError as error:
            reply(HeartbeatAnswer(request.member_id, request.epoch, error=error))
            return

        def written(error: KafkaError | None) -> None:
            reply(answer if error is None else answer._replace(error=error, assignment=None))

        when_written(group, written)

    def _serve(
        self, group_id: str, found: Group | ConsumerGroup | None, shard: Shard, request: Heartbeat
    ) -> tuple[ConsumerGroup, HeartbeatAnswer]:
        member_id = request.member_id or random_uuid(self._random)
        if isinstance(found, ConsumerGroup):
            if request.leaves:
                return found, self._heartbeats.leave(found, request)
            change = Change(group_id, found.membership)
            return found, self._heartbeats.heartbeat(found, change, request, member_id)
        if request.epoch != JOIN_EPOCH:
            if found is None:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group_id} is not a consumer group: the classic protocol holds it.",
            )
        if found is None:
            group, change = ConsumerGroup(group_id, shard), Change(group_id, Membership())
        else:
            group, change = self.migration.begin_upgrade(found)
        answer = self._heartbeats.heartbeat(group, change, request, member_id)
        if found is not None:
            self.migration.finish_upgrade(found, group)
        return group, answer

    def retire(self, group: ConsumerGroup) -> None:
        self.migration.retire(group)
