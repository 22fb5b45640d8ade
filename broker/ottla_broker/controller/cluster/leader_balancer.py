"""Elections of partitions whose leader is alive: preferred leaders, by timer or request, and unclean ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.config import BrokerConfig
from ottla_broker.controller.api import Outcome, Partition
from ottla_broker.controller.cluster.batch import NewBatch, Replies
from ottla_broker.controller.cluster.context import PORTION, Context
from ottla_broker.controller.cluster.event_queue import EventQueue
from ottla_broker.controller.cluster.leader_election import Elected, preferred, when_offline
from ottla_broker.controller.cluster.partition_state_machine import Choose, PartitionStateMachine
from ottla_broker.controller.cluster.reassignment import Reassignments
from ottla_broker.events import get_logger
from ottla_broker.store.keys import PartitionState
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode

_log = get_logger()

_FIRST_SECONDS: Final = 5.0
"""When to check first after the controller's election: the replicas of brokers that start together are in sync by
then, or soon.
"""


@dataclass(eq=False)
class LeaderBalancer:
    """Owned by the controller's task."""

    _context: Context
    _events: EventQueue
    _new_batch: NewBatch
    _states: PartitionStateMachine
    _reassignments: Reassignments
    _config: BrokerConfig
    _clock: Clock
    _timer: TimerHandle | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    def start(self) -> None:
        """Check soon, and then every ``leader.imbalance.check.interval.seconds``."""
        self._check_in(min(_FIRST_SECONDS, self._config.leader_imbalance_check_interval_seconds))

    def _check_in(self, seconds: float) -> None:
        self._cancel()
        if self._config.auto_leader_rebalance_enable and not self._closed:
            self._timer = self._clock.call_later(seconds, lambda: self._events.post(self._check))

    def close(self) -> None:
        self._closed = True
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _check(self) -> None:
        try:
            await self.rebalance()
        finally:
            self._check_in(self._config.leader_imbalance_check_interval_seconds)

    async def rebalance(self) -> None:
        """Give leadership back to brokers that lead too few of their preferred partitions.

        See ``leader.imbalance.per.broker.percentage``.
        """
        context = self._context
        if self._reassignments.any():
            return
        preferred_by: dict[int, list[Partition]] = {}
        async for partition in unhurried(list(context.partitions()), PORTION):
            if context.view(partition) is not None and not context.is_deleting(partition):
                preferred_by.setdefault(context.replicas(partition)[0], []).append(partition)
        for broker, partitions in preferred_by.items():
            elsewhere = [each for each in partitions if context.leader(each) != broker]
            if len(elsewhere) * 100 > self._config.leader_imbalance_per_broker_percentage * len(partitions):
                await self._elect_preferred([each for each in elsewhere if context.is_online(broker, each)])

    async def _elect_preferred(
        self, partitions: Iterable[Partition], replies: Replies | None = None
    ) -> set[Partition]:
        def choose(partition: Partition, state: PartitionState) -> Elected | None:
            context = self._context
            elected = preferred(context.replicas(partition), state.isr, context.online(partition))
            return elected if elected is not None and elected.leader != state.leader else None

        changed = await self._elect(partitions, choose, replies)
        if changed:
            _log.info("preferred replicas lead", partitions=len(changed))
        return changed

    async def _elect(
        self, partitions: Iterable[Partition], choose: Choose, replies: Replies | None
    ) -> set[Partition]:
        """Returns the changed partitions. ``replies`` will wait for the new leaders' responses."""
        batch = self._new_batch()
        changed = await self._states.elect(partitions, choose, batch)
        if replies is not None:
            replies.expect_leaders(self._context, changed)
        await batch.send(on_leader_and_isr=None if replies is None else replies.received)
        return changed

    async def elect(
        self, partitions: Iterable[Partition], *, unclean: bool, replies: Replies | None = None
    ) -> dict[Partition, Outcome]:
        """Elect the preferred replicas, or any replica that is online (``unclean``).

        ``replies`` will wait for the new leaders' responses.
        """
        context = self._context
        results: dict[Partition, Outcome] = {}
        electable = []
        async for partition in unhurried(partitions, PORTION):
            if not context.has(partition):
                results[partition] = Outcome(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
                )
            elif context.is_deleting(partition):
                results[partition] = Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
            elif (
                context.is_led(partition)
                if unclean
                else context.leader(partition) == context.replicas(partition)[0]
            ):
                results[partition] = Outcome(ErrorCode.ELECTION_NOT_NEEDED)
            else:
                electable.append(partition)
        if unclean:
            changed = await self._elect(electable, self._any_online, replies)
        else:
            changed = await self._elect_preferred(electable, replies)
        async for partition in unhurried(electable, PORTION):
            results[partition] = Outcome() if partition in changed else self._failed(partition, unclean)
        return results

    def _failed(self, partition: Partition, unclean: bool) -> Outcome:
        view = self._context.view(partition)
        code = (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        )
        return Outcome(
            code,
            f"Failed to elect leader for partition {partition[0]}-{partition[1]} under strategy"
            f" {'unclean' if unclean else 'preferred'}: leader {self._context.leader(partition)}, in sync"
            f" {[] if view is None else list(view.state.isr)}",
        )

    def _any_online(self, partition: Partition, state: PartitionState) -> Elected | None:
        """Choose an in-sync replica if one is online, otherwise any other."""
        context = self._context
        return when_offline(context.replicas(partition), state.isr, context.online(partition), True)

    def on_configs(self, topic: str | None) -> None:
        """Elect leaders where a topic's settings, or (None) all brokers' settings, may now allow an unclean one."""

        async def event() -> None:
            batch = self._new_batch()
            partitions = [each for each in self._context.partitions() if topic in (None, each[0])]
            await self._states.elect(partitions, self._states.offline, batch)
            await batch.send()

        self._events.post(event)
