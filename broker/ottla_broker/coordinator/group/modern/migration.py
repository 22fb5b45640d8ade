"""Turns a classic group into one of the consumer protocol and back, while its members go on (KIP-848).

Kafka: ``convertToConsumerGroup``, ``convertToClassicGroup``, ``group.consumer.migration.policy``. The old group's
tombstones and the new group's records are one batch in the log, so a failover finds one of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.errors import store_error
from ottla_broker.coordinator.group.group import Group, join_error, sync_error
from ottla_broker.coordinator.group.modern.change import Change
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup, TimerKind
from ottla_broker.coordinator.group.modern.conversion import (
    CannotConvert,
    downgraded,
    is_all_classic,
    upgraded,
)
from ottla_broker.coordinator.group.modern.membership import Membership
from ottla_broker.coordinator.group.modern.parts import Parts
from ottla_broker.coordinator.group.rebalance import Rebalancer
from ottla_broker.coordinator.group.records import group_key, group_value
from ottla_broker.coordinator.group.states import GroupState
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()


@dataclass(eq=False)
class Migration:
    """Owned by the loop thread. ``adopt_classic`` puts a classic group into the coordinator's index."""

    _parts: Parts
    _rebalancer: Rebalancer
    _classic_max_size: int
    _adopt_classic: Callable[[Group], None]

    # From classic to consumer

    def begin_upgrade(self, classic: Group) -> tuple[ConsumerGroup, Change]:
        """The group as one of the consumer protocol, and the records that make it one; nothing is written yet.

        Raises KafkaError(GROUP_ID_NOT_FOUND): the group stays classic; the message says why.
        """
        change = Change(classic.group_id, Membership())
        if classic.generation > 0:
            change.rows.append((group_key(classic.group_id), None))
        if classic.state is not GroupState.EMPTY:
            self._check_upgrade(classic)
            try:
                change.add(*upgraded(classic, self._parts.topics))
            except CannotConvert as error:
                raise _stays_classic(classic, str(error)) from error
        group = ConsumerGroup(classic.group_id, classic.shard, offsets=classic.offsets)
        return group, change

    def _check_upgrade(self, classic: Group) -> None:
        settings = self._parts.settings
        if not settings.upgrades:
            raise _stays_classic(classic, f"group.consumer.migration.policy is {settings.migration_policy}")
        if len(classic.members) > settings.max_size:
            raise _stays_classic(
                classic,
                f"it has {len(classic.members)} members, and group.consumer.max.size is {settings.max_size}",
            )

    def finish_upgrade(self, classic: Group, group: ConsumerGroup) -> None:
        """The records are appended: end the classic group, whose members join the new one.

        A member whose request waits gets REBALANCE_IN_PROGRESS, and joins again.
        """
        was_empty = classic.state is GroupState.EMPTY
        self._rebalancer.retire(classic)
        for old in list(classic.members.values()):
            classic.answer_join(old, join_error(old.member_id, codes.REBALANCE_IN_PROGRESS))
            classic.answer_sync(old, sync_error(codes.REBALANCE_IN_PROGRESS))
        for member_id, member in group.membership.members.items():
            if member.classic is not None:
                self._parts.timers.set(group, member_id, TimerKind.SESSION, member.classic.session_timeout_ms)
        if not was_empty:
            _log.info(
                "classic group upgraded",
                group=group.group_id,
                members=len(classic.members),
                epoch=classic.generation,
            )

    # From consumer to classic

    def is_downgrade(self, group: ConsumerGroup, after: Membership) -> bool:
        """Whether a change takes the last member of the consumer protocol, so that the group becomes classic."""
        if is_all_classic(group.membership) or not is_all_classic(after):
            return False
        if not self._parts.settings.downgrades:
            return False
        if len(after.members) > self._classic_max_size:
            _log.info("group not downgraded: group.max.size is exceeded", group=group.group_id)
            return False
        return True

    def downgrade(self, group: ConsumerGroup, after: Membership, rebalances: bool) -> tuple[Group, int]:
        """Write and adopt the group as a classic one, with the members ``after`` has.

        ``rebalances``: there are partitions that no member has. The record says so by a leader that is null, for a
        coordinator that loads the group before its next generation; a broker of Kafka takes any member as the leader.
        Returns the group, and the end of the log after its records. Raises KafkaError; then nothing has changed.
        """
        shard, topics = group.shard, self._parts.topics
        now_ms = self._parts.now_ms()
        classic = downgraded(group.group_id, shard, after, topics, group.offsets, now_ms, rebalances)
        assignments = {member.member_id: member.assignment for member in classic.members.values()}
        rows = [*group.tombstones(), (group_key(classic.group_id), group_value(classic, assignments))]
        try:
            end_offset = shard.write(rows)
        except KafkaError as error:
            raise KafkaError(ErrorCode(store_error(group.group_id, int(error.code)))) from error
        self.retire(group)
        self._adopt_classic(classic)
        _log.info(
            "group downgraded to classic",
            group=classic.group_id,
            members=len(classic.members),
            generation=classic.generation,
        )
        self._rebalancer.resume(classic)
        return classic, end_offset

    def begin_classic(self, group: ConsumerGroup) -> Group:
        """An empty classic group in the place of an empty group of the consumer protocol, with its offsets.

        Raises KafkaError; then nothing has changed.
        """
        rows = group.tombstones()
        if rows:
            try:
                group.shard.write(rows)
            except KafkaError as error:
                raise KafkaError(ErrorCode(store_error(group.group_id, int(error.code)))) from error
        self.retire(group)
        classic = Group(group.group_id, group.shard, self._parts.now_ms(), offsets=group.offsets)
        self._adopt_classic(classic)
        return classic

    def retire(self, group: ConsumerGroup) -> None:
        """Make a group dead and clear its deadlines."""
        group.is_dead = True
        self._parts.timers.clear_group(group)


def _stays_classic(classic: Group, why: str) -> KafkaError:
    message = (
        f"Group {classic.group_id} is not a consumer group: {len(classic.members)} members of the classic protocol"
        f" hold it, and it can't be upgraded while they do: {why}."
    )
    _log.info("group not upgraded", group=classic.group_id, reason=why)
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
