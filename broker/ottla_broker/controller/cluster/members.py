"""Brokers that come, go, fall silent and answer again: what becomes of their partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.controller.cluster.batch import Batch, Replies
from ottla_broker.controller.cluster.context import NO_LEADER, Context, Partition, RegisteredBroker
from ottla_broker.controller.cluster.leader_election import Elected, when_shutting_down
from ottla_broker.events import get_logger
from ottla_broker.store.keys import BrokerIdNode, PartitionState
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.controller.cluster.controller import ActiveController

log = get_logger()

NO_EPOCH: Final = -1


class Members:
    """Owned by the controller's task."""

    def __init__(self, controller: ActiveController, on_brokers: Callable[[Context], None]) -> None:
        self._controller = controller
        self._context = controller.context
        self._partition_states = controller.partition_states
        self._on_brokers = on_brokers
        # Brokers whose coming and going is being dealt with: an event that is tried again finds them here.
        self._lost: set[int] = set()
        self._new: set[int] = set()

    # ---- the beginning

    def watch(self) -> None:
        self._controller.watch(BrokerIdNode.PARENT, self.changed)

    async def load(self) -> None:
        self._take(await self._controller.persistence.read_brokers())

    async def begin(self) -> None:
        """Tell all brokers who is there and who leads, and lead what can be led."""
        context, batch = self._context, self._controller.batch()
        for broker in context.brokers:
            self._controller.channels.add(broker)
        # Who leads and follows has to know the others' addresses first.
        batch.tell(context.live_or_leaving())
        self._controller.send(batch)
        batch = self._controller.batch()
        await self._settle(set(context.brokers), batch)
        batch.tell(context.live_or_leaving(), context.partitions())
        self._controller.send(batch)

    def _take(self, brokers: dict[int, RegisteredBroker]) -> None:
        for broker in brokers.keys() - self._context.brokers.keys():
            # Its addresses may change without its going away.
            self._controller.watch(BrokerIdNode.path(broker), self.changed)
        for broker in self._context.brokers.keys() - brokers.keys():
            self._controller.unwatch(BrokerIdNode.path(broker))
        self._context.brokers = brokers
        self._on_brokers(self._context)

    # ---- registrations

    async def changed(self) -> None:
        """Somebody may have registered, or gone."""
        context = self._context
        before = context.brokers
        now = await self._controller.persistence.read_brokers()
        gone = before.keys() - now.keys()
        came = now.keys() - before.keys()
        bounced = {each for each in before.keys() & now.keys() if before[each].epoch != now[each].epoch}
        moved = {
            each
            for each in (before.keys() & now.keys()) - bounced
            if before[each].registration != now[each].registration
        }
        if not (gone or came or bounced or moved or self._lost or self._new):
            return
        log.info(
            "brokers changed",
            came=sorted(came),
            gone=sorted(gone),
            bounced=sorted(bounced),
            moved=sorted(moved),
            brokers=sorted(now),
        )
        for broker in gone | bounced:
            await self._controller.channels.remove(broker)
            context.leaving.discard(broker)
            context.unreachable.discard(broker)
            context.bad_disks = {(b, p) for b, p in context.bad_disks if b != broker}
        # While they are dealt with as gone, brokers that have registered again must not be elected.
        self._take({broker: found for broker, found in now.items() if broker not in came | bounced})
        self._lost |= gone | bounced
        await self._lose()
        self._take(now)
        for broker in came | bounced:
            self._controller.channels.add(broker)
        self._new |= came | bounced
        await self._greet(moved)

    def on_unreachable(self, broker: int) -> None:
        """Nobody listens at a broker's address."""

        async def event() -> None:
            if broker in self._context.brokers:
                self._context.unreachable.add(broker)
                self._lost.add(broker)
                await self._lose()

        self._controller.post(event)

    def on_back(self, broker: int) -> None:
        """A broker that was unreachable answers."""

        async def event() -> None:
            if broker in self._context.unreachable:
                self._context.unreachable.discard(broker)
                self._lost.discard(broker)
                self._new.add(broker)
            await self._greet()

        self._controller.post(event)

    async def _lose(self) -> None:
        """Brokers serve nothing any more."""
        lost = self._lost - self._context.live_or_leaving()
        if lost:
            await self._take_from(lost, list(self._context.partitions_on(lost)))
        self._lost.clear()

    async def _take_from(self, brokers: Collection[int], partitions: Collection[Partition]) -> None:
        batch = self._controller.batch()
        await self._partition_states.elect(partitions, self._partition_states.without(brokers), batch)
        # Also where nothing changed hands: clients are told which replicas are offline.
        batch.tell(self._context.live_or_leaving(), partitions)
        self._controller.send(batch)

    async def _greet(self, moved: Collection[int] = ()) -> None:
        """Brokers are new here, or here again; ``moved`` have other addresses."""
        context = self._context
        new = self._new & context.live_or_leaving()
        if not new and not moved:
            return
        batch = self._controller.batch()
        batch.tell(new, context.partitions())
        self._controller.send(batch)
        batch = self._controller.batch()
        # The others hear who is alive.
        batch.tell(context.live_or_leaving() - new)
        self._controller.send(batch)
        if new:
            batch = self._controller.batch()
            await self._settle(new, batch)
            self._controller.send(batch)
        self._new.clear()
        if new:
            await self._controller.follow_up()

    async def _settle(self, brokers: Collection[int], batch: Batch) -> None:
        """Tell brokers what they lead and follow, and lead what can be led now."""
        context, states = self._context, self._partition_states
        new = [
            partition
            for partition in context.partitions()
            if context.view(partition) is None and not context.is_deleting(partition)
        ]
        await states.create(new, batch)
        # Leaders and in-sync replicas whose broker is gone since before this controller began.
        registered = context.live_or_leaving()
        dead = {each for p in context.partitions() for each in context.replicas(p)} - registered
        if dead:
            await states.elect(list(context.partitions_on(dead)), states.without(dead), batch)
        await states.elect(list(context.partitions()), states.offline, batch)
        for partition in context.partitions_on(brokers):
            if context.view(partition) is not None and not context.is_deleting(partition):
                batch.lead([each for each in context.replicas(partition) if each in brokers], partition)

    # ---- disks

    def note_disks(self, broker: int, answer: Any) -> None:
        """What a broker's answer to LeaderAndIsr says of its disks."""
        if answer.error_code:
            return
        bad = self._context.bad_disks
        failed: set[Partition] = set()
        for name, errors in self._told(answer):
            for error in errors:
                replica = (broker, (name, error.partition_index))
                if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR and replica not in bad:
                    failed.add(replica[1])
                elif error.error_code == ErrorCode.NONE and bad:
                    bad.discard(replica)
        if failed:
            self._controller.post(lambda: self._disk_failed(broker, failed))

    def _told(self, answer: Any) -> Iterator[tuple[str, Iterable[Any]]]:
        """The errors of an answer to LeaderAndIsr, with their topics' names."""
        for error in answer.partition_errors:
            yield error.topic_name, [error]
        for topic in answer.topics:
            found = self._context.topic_by_id(topic.topic_id)
            if found is not None:
                yield found.name, topic.partition_errors

    async def _disk_failed(self, broker: int, partitions: Iterable[Partition]) -> None:
        here = [each for each in partitions if self._context.has(each)]
        if broker not in self._context.brokers:
            return
        log.warning("replicas are offline: a disk has failed", broker=broker, partitions=len(here))
        self._context.bad_disks |= {(broker, partition) for partition in here}
        await self._take_from({broker}, here)

    async def check_disks(self, broker: int) -> None:
        """A disk of a broker has failed: its answer to LeaderAndIsr tells which replicas were on it."""
        batch = self._controller.batch()
        for partition in self._context.partitions_on([broker]):
            if self._context.view(partition) is not None and not self._context.is_deleting(partition):
                batch.lead([broker], partition)
        self._controller.send(batch)

    # ---- controlled shutdown

    def check_epoch(self, broker: int, epoch: int, unknown: ErrorCode) -> None:
        """Whether a broker that asks is the one that is registered.

        Raises KafkaError: ``unknown`` where none is, STALE_BROKER_EPOCH.
        """
        found = self._context.brokers.get(broker)
        if found is None:
            raise KafkaError(unknown, f"Broker {broker} is not registered.")
        if epoch not in (NO_EPOCH, found.epoch):
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)

    async def leave(self, broker: int, epoch: int) -> tuple[list[Partition], Replies]:
        """A broker is about to stop: others lead what it led, and it is in sync no longer.

        Returns what could not be taken from it, and the new leaders' answers. Raises KafkaError.
        """
        self.check_epoch(broker, epoch, ErrorCode.BROKER_NOT_AVAILABLE)
        context = self._context
        context.leaving.add(broker)
        batch, replies = self._controller.batch(), Replies()
        here = [
            partition
            for partition in context.partitions_on([broker])
            if len(context.replicas(partition)) > 1 and not context.is_deleting(partition)
        ]
        followed = [
            partition
            for partition in here
            if (view := context.view(partition)) is not None and view.state.leader != broker
        ]
        log.info("broker leaves", broker=broker, partitions=len(here))
        moved = await self._partition_states.elect(here, self._without_leaving, batch)
        for partition in followed:
            batch.stop([broker], partition, delete=False)
        for partition in moved:
            view = context.view(partition)
            if view is not None and view.state.leader in context.live():
                replies.expect(view.state.leader)
        self._controller.send(batch, on_led=replies.heard)
        left = [p for p in here if (view := context.view(p)) is not None and view.state.leader == broker]
        return left, replies

    def _without_leaving(self, partition: Partition, state: PartitionState) -> Elected | None:
        leaving = self._context.leaving
        if state.leader == NO_LEADER:
            return None
        if state.leader not in leaving:
            stay = tuple(each for each in state.isr if each not in leaving)
            return Elected(state.leader, stay) if stay and len(stay) < len(state.isr) else None
        return when_shutting_down(
            self._context.replicas(partition),
            state.isr,
            self._context.online(partition, leaving=True),
            leaving,
        )
