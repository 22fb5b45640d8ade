"""The controller of a cluster, while this broker is it: Kafka's ``KafkaController``.

One task works off events one after another; nothing else changes what the controller knows. Each event ends with one
batch of requests to the brokers. What the events are, and what each does::

    brokers changed        read anew. Gone, or registered again: their partitions get other leaders and lose them as
                           in-sync replicas. New: they are told everything, and partitions that waited are led
    broker unreachable     as if it were gone, though its node stands: its process is dead, or out of reach
    broker answers again   as if it had come
    broker leaves          controlled shutdown: others lead what it led
    topics changed         new ones are led
    topic grown            new partitions are led
    topics to delete       see ``deletion``
    reassignments          see ``reassignment``
    replicas in sync       AlterPartition, see ``serve``
    an old notification    ``/isr_change_notification``, ``/log_dir_event_notification``: read anew, told, removed

A judgement that a broker is unreachable may be wrong: then it goes on as leader in an old epoch for a while. It can't
commit anything more with acks=all, since whoever followed it follows another by then and the controller takes no
in-sync replicas from it in an old epoch; and it is told of the new epoch as soon as it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from ottla_broker.clock import Clock
from ottla_broker.controller.cluster.batch import Answered, Batch
from ottla_broker.controller.cluster.channel import Channels, Link
from ottla_broker.controller.cluster.context import Context, Partition, Topic
from ottla_broker.controller.cluster.leadership import Leadership
from ottla_broker.controller.cluster.persistence import ClusterStore, Deposed, Persistence
from ottla_broker.events import get_logger
from ottla_broker.store.api import SessionLostError, StoreError, StoreEvent, Watch
from ottla_broker.store.keys import BrokerIdNode, TopicNode
from ottla_protocol.errors import ErrorCode, KafkaError

log = get_logger()

T = TypeVar("T")

EVENT_SECONDS: Final = 60.0
"""How long a request of a client may wait for its turn, if it doesn't say."""

_RETRY_SECONDS: Final = 0.2


class ActiveController:
    """Made when this broker is elected, closed when it is the controller no longer. Owned by the loop thread.

    ``deposed`` is called when it turns out that another controller has a higher epoch.
    """

    def __init__(
        self,
        store: ClusterStore,
        broker_id: int,
        epoch: int,
        epoch_version: int,
        *,
        connect: Callable[[int, float], Awaitable[Link]],
        clock: Clock,
        listener: str,
        unclean_allowed: Callable[[str], bool],
        deposed: Callable[[], None],
        on_brokers: Callable[[Context], None],
    ) -> None:
        """``connect`` opens a control connection; ``on_brokers`` is told before any broker is spoken to."""
        self.broker_id = broker_id
        self.context = Context(epoch, epoch_version)
        self.persistence = Persistence(store, self.context)
        self.leadership = Leadership(self.context, self.persistence, unclean_allowed)
        self._store = store
        self._clock = clock
        self._listener = listener
        self._deposed = deposed
        self._on_brokers = on_brokers
        self._channels = Channels(connect, clock, self._on_unreachable, self._on_back)
        self._events: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._watches: list[Watch] = []
        self._topic_watches: dict[str, Watch] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        # What is to be done after a change of brokers or partitions: deletion, reassignment.
        self.follow_ups: list[Callable[[], Awaitable[None]]] = []

    # ---- life

    def start(self) -> None:
        """Begin to control. What the store says is read by the first event."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.post(self._begin)

    async def close(self) -> None:
        """Control no longer. Who waits for an event hears NOT_CONTROLLER."""
        self._closed = True
        for watch in (*self._watches, *self._topic_watches.values()):
            watch.cancel()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])
        await self._channels.close()

    def post(self, event: Callable[[], Awaitable[None]]) -> None:
        """Have an event worked off after those before it."""
        self._events.put_nowait(event)

    async def do(self, work: Callable[[], Awaitable[T]], timeout: float = EVENT_SECONDS) -> T:
        """Have something done as an event, and wait for what comes of it.

        Raises:
            KafkaError: what the work raises; NOT_CONTROLLER when this broker is the controller no longer,
                REQUEST_TIMED_OUT when its turn has not come, or it is not done, in time.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def event() -> None:
            if done.done():
                return
            try:
                result = await work()
            except (KafkaError, StoreError, Deposed) as error:
                if not done.done():
                    done.set_exception(_told(error))
                if isinstance(error, Deposed | SessionLostError):
                    raise
                if isinstance(error, StoreError):
                    log.error("the store refused a change", reason=str(error))
            except BaseException:
                if not done.done():
                    done.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
                raise
            else:
                if not done.done():
                    done.set_result(result)

        if self._closed:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        self.post(event)
        ended = self._task
        assert ended is not None
        either: list[asyncio.Future[Any]] = [done, ended]
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            done.cancel()
            raise KafkaError(ErrorCode.NOT_CONTROLLER if ended.done() else ErrorCode.REQUEST_TIMED_OUT)
        return done.result()

    async def _run(self) -> None:
        while True:
            event = await self._events.get()
            try:
                await event()
            except SessionLostError:
                return  # the election hears of it too, and closes this
            except Deposed as error:
                log.warning("deposed as the controller", reason=str(error))
                self._deposed()
                return
            except StoreError as error:
                log.error("a change of the cluster is put off", reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                self.post(event)
            except Exception as error:
                # A defect: the controller goes on with the next event.
                log.error("an event of the controller failed", exc_info=error)

    # ---- the beginning

    async def _begin(self) -> None:
        context = self.context
        self._watches.append(self._store.watch(BrokerIdNode.PARENT, self._on_brokers_node))
        self._watches.append(self._store.watch(TopicNode.PARENT, self._on_topics_node))
        started = self._clock.monotonic()
        context.brokers = await self.persistence.read_brokers()
        context.topics = await self.persistence.read_topics(await self._store.children(TopicNode.PARENT))
        context.deleting = await self.persistence.read_deletions()
        for name in context.topics:
            self._watch_topic(name)
        self._on_brokers(context)
        for broker in context.brokers:
            self._channels.add(broker)
        batch = self.batch()
        # Brokers answer clients from what they are told: the leaders first, as they stand.
        batch.tell(context.live_or_leaving(), context.partitions())
        batch.send()
        await self._settle(context.brokers)
        log.info(
            "controlling the cluster",
            epoch=context.epoch,
            brokers=sorted(context.brokers),
            topics=len(context.topics),
            partitions=sum(1 for _ in context.partitions()),
            seconds=round(self._clock.monotonic() - started, 3),
        )

    async def _settle(self, brokers: Collection[int]) -> None:
        """Tell brokers what they lead and follow, and lead what can be led now."""
        context, batch = self.context, self.batch()
        new = [
            partition
            for partition in context.partitions()
            if context.view(partition) is None and not context.is_deleting(partition)
        ]
        await self.leadership.create(new, batch)
        # Leaders whose broker is gone since before this controller began.
        gone = {
            view.state.leader
            for topic in context.topics.values()
            for view in topic.partitions.values()
            if view.state.leader >= 0
        } - context.live_or_leaving()
        orphans = [
            partition
            for partition in context.partitions()
            if (view := context.view(partition)) is not None
            and (view.state.leader in gone or not context.live_or_leaving().issuperset(view.state.isr))
        ]
        dead = {
            broker
            for partition in orphans
            for broker in context.replicas(partition)
            if broker not in context.live_or_leaving()
        }
        await self.leadership.elect(orphans, self.leadership.without(dead), batch)
        await self.leadership.elect(list(context.partitions()), self.leadership.offline, batch)
        for partition in context.partitions_on(brokers):
            if context.view(partition) is not None and not context.is_deleting(partition):
                here = [broker for broker in context.replicas(partition) if broker in brokers]
                batch.lead(here, partition)
        batch.send()
        for follow_up in self.follow_ups:
            await follow_up()

    # ---- brokers

    def _on_brokers_node(self, event: StoreEvent) -> None:
        self.post(self._brokers_changed)

    async def _brokers_changed(self) -> None:
        context = self.context
        before = context.brokers
        now = await self.persistence.read_brokers()
        gone = before.keys() - now.keys()
        came = now.keys() - before.keys()
        bounced = {
            broker for broker in before.keys() & now.keys() if before[broker].epoch != now[broker].epoch
        }
        moved = {
            broker
            for broker in (before.keys() & now.keys()) - bounced
            if before[broker].registration != now[broker].registration
        }
        if not (gone or came or bounced or moved):
            return
        log.info(
            "brokers changed",
            came=sorted(came),
            gone=sorted(gone),
            bounced=sorted(bounced),
            brokers=sorted(now),
        )
        for broker in gone | bounced:
            await self._channels.remove(broker)
            context.leaving.discard(broker)
            context.unreachable.discard(broker)
            context.bad_disks = {(b, p) for b, p in context.bad_disks if b != broker}
        # While they are dealt with as gone, bounced brokers must not be elected.
        context.brokers = {broker: found for broker, found in now.items() if broker not in came | bounced}
        if gone | bounced:
            await self._lost(gone | bounced)
        context.brokers = now
        self._on_brokers(context)
        for broker in came | bounced:
            self._channels.add(broker)
        await self._arrived(came | bounced, moved)

    async def _lost(self, brokers: Collection[int]) -> None:
        """Brokers serve nothing any more."""
        batch = self.batch()
        affected = list(self.context.partitions_on(brokers))
        await self.leadership.elect(affected, self.leadership.without(set(brokers)), batch)
        # Also where nothing changed hands: clients are told which replicas are offline.
        batch.tell(self.context.live_or_leaving(), affected)
        batch.send()

    async def _arrived(self, brokers: Collection[int], moved: Collection[int] = ()) -> None:
        """Brokers are new here, or here again; ``moved`` have other addresses."""
        if not brokers and not moved:
            return
        context, batch = self.context, self.batch()
        batch.tell(brokers, context.partitions())
        batch.send()
        batch = self.batch()
        # The others hear who is alive.
        batch.tell(context.live_or_leaving() - set(brokers))
        batch.send()
        if brokers:
            await self._settle(brokers)

    def _on_unreachable(self, broker: int) -> None:
        async def event() -> None:
            if broker in self.context.brokers and broker not in self.context.unreachable:
                self.context.unreachable.add(broker)
                self._channels.drop(broker)
                await self._lost({broker})

        self.post(event)

    def _on_back(self, broker: int) -> None:
        async def event() -> None:
            if broker in self.context.unreachable:
                self.context.unreachable.discard(broker)
                await self._arrived({broker})

        self.post(event)

    # ---- topics

    def _on_topics_node(self, event: StoreEvent) -> None:
        self.post(self._topics_changed)

    async def _topics_changed(self) -> None:
        """Topics have been made, by this controller or by whoever writes to the store."""
        names = set(await self._store.children(TopicNode.PARENT))
        added = names - self.context.topics.keys()
        if added:
            await self.add_topics(await self.persistence.read_topics(added))

    async def add_topics(self, topics: dict[str, Topic], on_led: Answered | None = None) -> None:
        """Have new topics led. ``on_led`` hears the brokers' answers."""
        batch = self.batch()
        self.context.topics.update(topics)
        new = [(name, index) for name, topic in topics.items() for index in topic.assignments]
        for name in topics:
            self._watch_topic(name)
        await self.leadership.create([each for each in new if self.context.view(each) is None], batch)
        for partition in new:
            if self.context.view(partition) is not None:
                batch.lead(self.context.replicas(partition), partition, is_new=True)
        batch.send(on_led=on_led)

    def _watch_topic(self, name: str) -> None:
        """Hear of partitions that somebody else adds."""
        if name not in self._topic_watches:

            def changed(event: StoreEvent) -> None:
                self.post(lambda: self._topic_changed(name))

            self._topic_watches[name] = self._store.watch(TopicNode.path(name), changed)

    def forget_topic(self, name: str) -> None:
        """A topic is deleted."""
        self.context.topics.pop(name, None)
        self.context.deleting.discard(name)
        watch = self._topic_watches.pop(name, None)
        if watch is not None:
            watch.cancel()

    async def _topic_changed(self, name: str) -> None:
        topic = self.context.topics.get(name)
        if topic is None or name in self.context.deleting:
            return
        now = (await self.persistence.read_topics([name])).get(name)
        if now is None or now.version == topic.version:
            return
        added = now.assignments.keys() - topic.assignments.keys()
        topic.version = now.version
        for index in added:
            topic.assignments[index] = now.assignments[index]
        await self.lead_new([(name, index) for index in sorted(added)])

    async def lead_new(self, partitions: Iterable[Partition], on_led: Answered | None = None) -> None:
        """Have new partitions of known topics led."""
        batch = self.batch()
        await self.leadership.create(partitions, batch)
        batch.send(on_led=on_led)

    # ---- parts

    def batch(self) -> Batch:
        """Requests to be sent together."""
        return Batch(self.context, self._channels, self.broker_id, self._listener)


def _told(error: Exception) -> KafkaError:
    """What a client is told of an event that failed."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, Deposed | SessionLostError):
        return KafkaError(ErrorCode.NOT_CONTROLLER)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
