"""Elections that nobody's death asks for: preferred leaders, by timer or request, and unclean ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.controller.cluster.batch import Replies
from ottla_broker.controller.cluster.context import Partition
from ottla_broker.controller.cluster.leader_election import Elected, preferred, when_offline
from ottla_broker.events import get_logger
from ottla_broker.store.keys import PartitionState
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.config import BrokerConfig
    from ottla_broker.controller.cluster.controller import ActiveController
    from ottla_broker.controller.cluster.partition_state_machine import Choose

log = get_logger()

_FIRST_SECONDS: Final = 5.0
"""After the election; brokers that come up together have their replicas in sync by then, or soon."""


class LeaderBalancer:
    """Owned by the controller's task."""

    def __init__(self, controller: ActiveController, config: BrokerConfig, clock: Clock) -> None:
        self._controller = controller
        self._context = controller.context
        self._config = config
        self._clock = clock
        self._timer: TimerHandle | None = None
        self._closed = False

    # ---- by timer

    def start(self) -> None:
        """Look soon, and then every ``leader.imbalance.check.interval.seconds``."""
        self._look_in(min(_FIRST_SECONDS, self._config.leader_imbalance_check_interval_seconds))

    def _look_in(self, seconds: float) -> None:
        self._cancel()
        if self._config.auto_leader_rebalance_enable and not self._closed:
            self._timer = self._clock.call_later(seconds, lambda: self._controller.post(self._check))

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
            self._look_in(self._config.leader_imbalance_check_interval_seconds)

    async def rebalance(self) -> None:
        """Give leadership back to brokers that lead too few of the partitions they should
        (``leader.imbalance.per.broker.percentage``).
        """
        context = self._context
        meant: dict[int, list[Partition]] = {}
        for partition in context.partitions():
            if context.view(partition) is not None and not context.is_deleting(partition):
                meant.setdefault(context.replicas(partition)[0], []).append(partition)
        if self._controller.reassignments.any():
            return
        for broker, partitions in meant.items():
            others = [each for each in partitions if self._leader(each) != broker]
            if len(others) * 100 > self._config.leader_imbalance_per_broker_percentage * len(partitions):
                able = [each for each in others if context.is_online(broker, each)]
                await self._elect_preferred(able)

    def _leader(self, partition: Partition) -> int:
        view = self._context.view(partition)
        return -1 if view is None else view.state.leader

    async def _elect_preferred(
        self, partitions: Iterable[Partition], replies: Replies | None = None
    ) -> set[Partition]:
        def choose(partition: Partition, state: PartitionState) -> Elected | None:
            context = self._context
            elected = preferred(context.replicas(partition), state.isr, context.online(partition))
            return elected if elected is not None and elected.leader != state.leader else None

        changed = await self._elect(partitions, choose, replies)
        if changed:
            log.info("preferred replicas lead", partitions=len(changed))
        return changed

    async def _elect(
        self, partitions: Iterable[Partition], choose: Choose, replies: Replies | None
    ) -> set[Partition]:
        """Returns what was changed; ``replies`` are to wait for the new leaders' answers."""
        batch = self._controller.batch()
        changed = await self._controller.partition_states.elect(partitions, choose, batch)
        if replies is None:
            self._controller.send(batch)
            return changed
        for partition in changed:
            if self._leader(partition) in self._context.live_or_leaving():
                replies.expect(self._leader(partition))
        self._controller.send(batch, on_led=replies.heard)
        return changed

    # ---- by request

    async def elect(
        self, partitions: Iterable[Partition], *, unclean: bool, replies: Replies | None = None
    ) -> dict[Partition, KafkaError | None]:
        """Have preferred replicas lead, or anybody who is there. Returns what became of each; None: it is led so.

        ``replies`` are to wait for the new leaders' answers.
        """
        context = self._context
        results: dict[Partition, KafkaError | None] = {}
        electable = []
        for partition in partitions:
            if not context.has(partition):
                results[partition] = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
                )
            elif context.is_deleting(partition):
                results[partition] = KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted"
                )
            elif (
                context.is_led(partition)
                if unclean
                else self._leader(partition) == context.replicas(partition)[0]
            ):
                results[partition] = KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
            else:
                electable.append(partition)
        if unclean:
            changed = await self._elect(electable, self._anybody, replies)
        else:
            changed = await self._elect_preferred(electable, replies)
        for partition in electable:
            results[partition] = None if partition in changed else self._failed(partition, unclean)
        return results

    def _failed(self, partition: Partition, unclean: bool) -> KafkaError:
        view = self._context.view(partition)
        code = (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        )
        return KafkaError(
            code,
            f"Failed to elect leader for partition {partition[0]}-{partition[1]} under strategy"
            f" {'unclean' if unclean else 'preferred'}: leader {self._leader(partition)}, in sync"
            f" {[] if view is None else list(view.state.isr)}",
        )

    def _anybody(self, partition: Partition, state: PartitionState) -> Elected | None:
        """One who is in sync if there is one, else anybody."""
        context = self._context
        return when_offline(context.replicas(partition), state.isr, context.online(partition), True)

    def on_configs(self, topic: str | None) -> None:
        """What is set for a topic, or (None) for all brokers, has changed: unclean elections may be allowed now."""

        async def event() -> None:
            batch = self._controller.batch()
            partitions = [each for each in self._context.partitions() if topic in (None, each[0])]
            await self._controller.partition_states.elect(
                partitions, self._controller.partition_states.offline, batch
            )
            self._controller.send(batch)

        self._controller.post(event)
