"""Brokers that register, disappear, stop answering, answer again or shut down, and new leaders for their partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla_broker.controller.api import Partition
from ottla_broker.controller.cluster.batch import Batch, NewBatch, Replies
from ottla_broker.controller.cluster.channel import Channels
from ottla_broker.controller.cluster.context import NO_LEADER, PORTION, Context, RegisteredBroker
from ottla_broker.controller.cluster.event_queue import EventQueue
from ottla_broker.controller.cluster.leader_election import Elected, when_shutting_down
from ottla_broker.controller.cluster.partition_state_machine import PartitionStateMachine
from ottla_broker.controller.cluster.persistence import Persistence
from ottla_broker.events import get_logger
from ottla_broker.store.keys import BrokerIdNode, PartitionState
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode

_log = get_logger()


@dataclass(eq=False)
class BrokerChanges:
    """Owned by the controller's task.

    ``on_brokers`` is called before requests go to new brokers, ``on_new`` once they know what they lead.
    """

    _context: Context
    _persistence: Persistence
    _events: EventQueue
    _new_batch: NewBatch
    _states: PartitionStateMachine
    _channels: Channels
    _on_brokers: Callable[[Context], None]
    _on_new: Callable[[], Awaitable[None]]
    # Brokers that still have to be handled; an event that is retried finds them here.
    _lost: set[int] = field(default_factory=set, init=False)
    _new: set[int] = field(default_factory=set, init=False)

    def watch(self) -> None:
        self._events.watch(BrokerIdNode.PARENT, self.changed)

    async def load(self) -> None:
        self._replace(await self._persistence.read_brokers())

    async def begin(self) -> None:
        """Send all brokers the metadata, and elect leaders where none is alive."""
        context, batch = self._context, self._new_batch()
        for broker in context.brokers:
            self._channels.add(broker)
        # Leaders and followers need the others' addresses first.
        batch.update_metadata(context.live_or_shutting_down())
        await batch.send()
        batch = self._new_batch()
        await self._elect_and_add_states(set(context.brokers), batch)
        batch.update_metadata(context.live_or_shutting_down(), context.partitions())
        await batch.send()

    def _replace(self, brokers: dict[int, RegisteredBroker]) -> None:
        for broker in brokers.keys() - self._context.brokers.keys():
            # A broker's addresses can change while it stays registered.
            self._events.watch(BrokerIdNode.path(broker), self.changed)
        for broker in self._context.brokers.keys() - brokers.keys():
            self._events.unwatch(BrokerIdNode.path(broker))
        self._context.brokers = brokers
        self._on_brokers(self._context)

    async def changed(self) -> None:
        """Compare the registered brokers with those known."""
        context = self._context
        before = context.brokers
        now = await self._persistence.read_brokers()
        gone = before.keys() - now.keys()
        came = now.keys() - before.keys()
        bounced = {each for each in before.keys() & now.keys() if before[each].epoch != now[each].epoch}
        updated = {
            each
            for each in (before.keys() & now.keys()) - bounced
            if before[each].registration != now[each].registration
        }
        if not (gone or came or bounced or updated or self._lost or self._new):
            return
        _log.info(
            "brokers changed",
            came=sorted(came),
            gone=sorted(gone),
            bounced=sorted(bounced),
            moved=sorted(updated),
            brokers=sorted(now),
        )
        for broker in gone | bounced:
            await self._channels.remove(broker)
            context.shutting_down.discard(broker)
            context.unreachable.discard(broker)
            context.replicas_on_offline_dirs = {
                (b, p) for b, p in context.replicas_on_offline_dirs if b != broker
            }
        # Brokers that have registered again must not be elected while they count as gone.
        self._replace({broker: found for broker, found in now.items() if broker not in came | bounced})
        self._lost |= gone | bounced
        await self._handle_lost()
        self._replace(now)
        for broker in came | bounced:
            self._channels.add(broker)
        self._new |= came | bounced
        await self._handle_new(updated)

    async def unreachable(self, broker: int) -> None:
        """Treat a broker as gone: its address refuses connections, or it doesn't answer."""
        if broker in self._context.brokers:
            self._context.unreachable.add(broker)
            self._lost.add(broker)
            await self._handle_lost()

    async def reachable(self, broker: int) -> None:
        """Bring back an unreachable broker that answers again."""
        if broker in self._context.unreachable:
            self._context.unreachable.discard(broker)
            self._lost.discard(broker)
            self._new.add(broker)
        await self._handle_new()

    async def _handle_lost(self) -> None:
        lost = self._lost - self._context.live_or_shutting_down()
        if lost:
            await self._elect_without(lost, list(self._context.partitions_on(lost)))
        self._lost.clear()

    async def _elect_without(self, brokers: Collection[int], partitions: Collection[Partition]) -> None:
        batch = self._new_batch()
        await self._states.elect(partitions, self._states.without(brokers), batch)
        # Also where nothing changed hands: clients need to know which replicas are offline.
        batch.update_metadata(self._context.live_or_shutting_down(), partitions)
        await batch.send()

    async def _handle_new(self, updated: Collection[int] = ()) -> None:
        """Bring in new brokers, and those that are back; ``updated`` brokers have changed their registration."""
        context = self._context
        new = self._new & context.live_or_shutting_down()
        if not new and not updated:
            return
        batch = self._new_batch()
        batch.update_metadata(new, context.partitions())
        await batch.send()
        batch = self._new_batch()
        batch.update_metadata(context.live_or_shutting_down() - new)
        await batch.send()
        if new:
            batch = self._new_batch()
            await self._elect_and_add_states(new, batch)
            await batch.send()
        self._new.clear()
        if new:
            await self._on_new()

    async def _elect_and_add_states(self, brokers: Collection[int], batch: Batch) -> None:
        """Elect the leaders that these brokers make possible, and add the states of their partitions to the batch."""
        context, states = self._context, self._states
        without_state = [
            partition
            async for partition in unhurried(list(context.partitions()), PORTION)
            if context.view(partition) is None and not context.is_deleting(partition)
        ]
        await states.create(without_state, batch)
        # Brokers that disappeared before this controller began may still be leaders and in-sync replicas.
        registered = context.live_or_shutting_down()
        dead = {each for p in context.partitions() for each in context.replicas(p)} - registered
        if dead:
            await states.elect(list(context.partitions_on(dead)), states.without(dead), batch)
        await states.elect(list(context.partitions()), states.offline, batch)
        await self._add_states(brokers, batch)

    async def _add_states(self, brokers: Collection[int], batch: Batch) -> None:
        """Add the states of these brokers' partitions to the batch: whether each broker leads or follows."""
        context = self._context
        async for partition in unhurried(list(context.partitions_on(brokers)), PORTION):
            if context.view(partition) is not None and not context.is_deleting(partition):
                here = [each for each in context.replicas(partition) if each in brokers]
                batch.leader_and_isr(here, partition)

    def note_offline_replicas(self, broker: int, response: Any) -> None:
        """Note which replicas a broker's response to LeaderAndIsr reports as offline, or online again."""
        if response.error_code:
            return
        offline = self._context.replicas_on_offline_dirs
        failed: set[Partition] = set()
        for name, errors in self._errors_of(response):
            for error in errors:
                replica = (broker, (name, error.partition_index))
                if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR and replica not in offline:
                    failed.add(replica[1])
                elif error.error_code == ErrorCode.NONE and offline:
                    offline.discard(replica)
        if failed:
            self._events.post(partial(self._replicas_failed, broker, failed))

    def _errors_of(self, response: Any) -> Iterator[tuple[str, Iterable[Any]]]:
        """The errors in a LeaderAndIsr response, with their topics' names."""
        for error in response.partition_errors:
            yield error.topic_name, [error]
        for topic in response.topics:
            found = self._context.topic_by_id(topic.topic_id)
            if found is not None:
                yield found.name, topic.partition_errors

    async def _replicas_failed(self, broker: int, partitions: Iterable[Partition]) -> None:
        here = [each for each in partitions if self._context.has(each)]
        if broker not in self._context.brokers:
            return
        _log.warning("replicas are offline: a log folder has failed", broker=broker, partitions=len(here))
        self._context.replicas_on_offline_dirs |= {(broker, partition) for partition in here}
        await self._elect_without({broker}, here)

    async def check_log_dirs(self, broker: int) -> None:
        """Send a broker all its states again, because its response says which replicas are in the failed folder."""
        batch = self._new_batch()
        await self._add_states([broker], batch)
        await batch.send()

    async def controlled_shutdown(self, broker: int, epoch: int) -> tuple[list[Partition], Replies]:
        """Move leadership away from a broker that is about to stop, and remove it from the in-sync replicas.

        Returns the partitions that no other broker can lead, none if all stop; and the new leaders' responses to
        wait for.

        Raises KafkaError: BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """
        context = self._context
        context.check_broker_epoch(broker, epoch, ErrorCode.BROKER_NOT_AVAILABLE)
        context.shutting_down.add(broker)
        batch, replies = self._new_batch(), Replies()
        replicated = [
            partition
            async for partition in unhurried(list(context.partitions_on([broker])), PORTION)
            if len(context.replicas(partition)) > 1 and not context.is_deleting(partition)
        ]
        followed = [
            partition
            async for partition in unhurried(replicated, PORTION)
            if context.view(partition) is not None and context.leader(partition) != broker
        ]
        _log.info("broker leaves", broker=broker, partitions=len(replicated))
        elected = await self._states.elect(replicated, self._without_shutting_down, batch)
        async for partition in unhurried(followed, PORTION):
            batch.stop_replica([broker], partition, delete=False)
        replies.expect_leaders(context, elected)
        await batch.send(on_leader_and_isr=replies.received)
        if context.live_or_shutting_down() <= context.shutting_down:
            # No broker needs to wait for another one.
            _log.info("all brokers stop, so none takes over leadership", broker=broker)
            return [], replies
        return [each for each in replicated if context.leader(each) == broker], replies

    def _without_shutting_down(self, partition: Partition, state: PartitionState) -> Elected | None:
        shutting_down = self._context.shutting_down
        if state.leader == NO_LEADER:
            return None
        if state.leader not in shutting_down:
            stay = tuple(each for each in state.isr if each not in shutting_down)
            return Elected(state.leader, stay) if stay and len(stay) < len(state.isr) else None
        return when_shutting_down(
            self._context.replicas(partition),
            state.isr,
            self._context.online(partition, shutting_down=True),
            shutting_down,
        )
