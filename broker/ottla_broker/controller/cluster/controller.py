"""The controller of a cluster, while this broker is it: Kafka's ``KafkaController``.

One task works off events one after another; nothing else changes what the controller knows. Each event ends with one
batch of requests to the brokers. What the events are, and who deals with them::

    brokers changed        ``members``: gone, or registered again: their partitions get other leaders and lose them as
                           in-sync replicas. New: they are told everything, and partitions that waited are led
    broker unreachable     as if it were gone, though its node stands: its process is dead, or out of reach
    broker answers again   as if it had come
    broker leaves          controlled shutdown: others lead what it led
    disk failed            as if the broker were gone, for the replicas on that disk
    topics changed         ``topics``: new ones are led
    topic grown            new partitions are led
    topics to delete       ``deletion``
    reassignments          ``reassignment``
    elections              ``leader_balancer``: by timer, by request, where a topic now allows unclean ones
    replicas in sync       AlterPartition, see ``serve``
    old ways               ``zk_notifications``: nodes that older brokers and tools leave; read, dealt with, removed

An event that fails for want of the store is tried again before any other, so that nothing overtakes it; what it had
done already it finds done.

A judgement that a broker is unreachable may be wrong: then it goes on as leader in an old epoch for a while. It can't
commit anything more with acks=all, since whoever followed it follows another by then and the controller takes no
in-sync replicas from it in an old epoch; and it is told of the new epoch as soon as it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla_broker.clock import Clock
from ottla_broker.controller.cluster.batch import Answered, Batch
from ottla_broker.controller.cluster.channel import Channels, Connect, Listener
from ottla_broker.controller.cluster.context import Context
from ottla_broker.controller.cluster.deletion import Deletion
from ottla_broker.controller.cluster.leader_balancer import LeaderBalancer
from ottla_broker.controller.cluster.members import Members
from ottla_broker.controller.cluster.partition_state_machine import PartitionStateMachine
from ottla_broker.controller.cluster.persistence import ClusterStore, ControllerMovedError, Persistence
from ottla_broker.controller.cluster.reassignment import Reassignments
from ottla_broker.controller.cluster.topics import Topics
from ottla_broker.controller.cluster.zk_notifications import ZkNotifications
from ottla_broker.events import get_logger
from ottla_broker.store.api import (
    SessionLostError,
    SessionState,
    StoreError,
    StoreEvent,
    StoreFailedError,
    UnknownOutcomeError,
    Watch,
)
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.config import BrokerConfig

log = get_logger()

T = TypeVar("T")
Event = Callable[[], Awaitable[None]]

EVENT_SECONDS: Final = 60.0
"""How long a request of a client may wait for its turn, if it doesn't say."""

_RETRY_SECONDS: Final = (0.05, 1.0)
_ATTEMPTS: Final = 8
"""How often an event is tried that the store refuses for what it finds there."""
_PATIENCE: Final = 100
"""How often one is tried that the store can't do, though it is connected: it is slow, or a node isn't this broker's."""


class ActiveController:
    """Made when this broker is elected, closed when it is the controller no longer. Owned by the loop thread.

    ``deposed`` is called when it turns out that another controller has a higher epoch.

    Attributes:
        context, persistence, partition_states, store: what the parts work with.
        members, topics, deletion, reassignments, leader_balancer: the parts.
    """

    def __init__(
        self,
        store: ClusterStore,
        broker_id: int,
        epoch: int,
        epoch_version: int,
        *,
        config: BrokerConfig,
        connect: Connect,
        clock: Clock,
        listener: str,
        unclean_allowed: Callable[[str], bool],
        deposed: Callable[[], None],
        on_brokers: Callable[[Context], None],
    ) -> None:
        """``connect`` opens a control connection; ``on_brokers`` is told before any broker is spoken to.

        ``listener`` is the name of the one that brokers use among themselves; ``unclean_allowed`` whether a topic
        takes a leader that may lack committed records.
        """
        self.broker_id = broker_id
        self.store = store
        self.context = Context(epoch, epoch_version)
        self.persistence = Persistence(store, self.context)
        self.partition_states = PartitionStateMachine(self.context, self.persistence, unclean_allowed)
        self.members = Members(self, on_brokers)
        self.topics = Topics(self, config)
        self.deletion = Deletion(self, config)
        self.reassignments = Reassignments(self)
        self.leader_balancer = LeaderBalancer(self, config, clock)
        self._zk_notifications = ZkNotifications(self)
        self._clock = clock
        self._listener = listener
        self._deposed = deposed
        self.channels = Channels(
            connect, Listener(self.members.on_unreachable, self.members.on_back, self._on_stale)
        )
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._watches: dict[str, Watch] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._begun = False

    # ---- life

    def start(self) -> None:
        """Begin to control. What the store says is read by the first event."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.post(self._begin)

    async def close(self) -> None:
        """Control no longer. Who waits for an event hears NOT_CONTROLLER."""
        self._closed = True
        self.leader_balancer.close()
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])
        await self.channels.close()
        self.deletion.close()

    async def _begin(self) -> None:
        context = self.context
        started = self._clock.monotonic()
        # Watched before they are read, so that nothing falls between.
        self.members.watch()
        self.topics.watch()
        self.deletion.watch()
        self._zk_notifications.watch()
        await self.members.load()
        await self.topics.load()
        await self.deletion.load()
        self.reassignments.load()
        await self.members.begin()
        self._begun = True
        log.info(
            "controlling the cluster",
            epoch=context.epoch,
            brokers=sorted(context.brokers),
            topics=len(context.topics),
            partitions=sum(1 for _ in context.partitions()),
            seconds=round(self._clock.monotonic() - started, 3),
        )
        await self.follow_up()
        self._zk_notifications.begin()
        self.leader_balancer.start()

    async def follow_up(self) -> None:
        """After brokers have come: what waited for them goes on."""
        await self.deletion.resume()
        await self.reassignments.resume()

    # ---- events

    def post(self, event: Event) -> None:
        """Have an event worked off after those before it."""
        self._events.put_nowait(event)

    def watch(self, path: str, event: Event) -> None:
        """Have an event posted whenever something happens at a path, until :meth:`unwatch` or the end."""

        def happened(_: StoreEvent) -> None:
            self.post(event)

        if path not in self._watches and not self._closed:
            self._watches[path] = self.store.watch(path, happened)

    def unwatch(self, path: str) -> None:
        watch = self._watches.pop(path, None)
        if watch is not None:
            watch.cancel()

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
            failure = ErrorCode.UNKNOWN_SERVER_ERROR
            try:
                result = await work()
            except (KafkaError, StoreError, ControllerMovedError) as error:
                if not done.done():
                    done.set_exception(_told(error))
                if isinstance(error, ControllerMovedError | SessionLostError):
                    raise
                if isinstance(error, StoreError):
                    log.error("the store refused a change", reason=str(error))
                    # Part of it may have been made.
                    self.post(self.topics.refresh)
            except asyncio.CancelledError:
                failure = ErrorCode.NOT_CONTROLLER
                raise
            else:
                if not done.done():
                    done.set_result(result)
            finally:
                if not done.done():
                    done.set_exception(KafkaError(failure))

        ended = self._task
        if self._closed or ended is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        self.post(event)
        either: list[asyncio.Future[Any]] = [done, ended]
        try:
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise KafkaError(ErrorCode.NOT_CONTROLLER if ended.done() else ErrorCode.REQUEST_TIMED_OUT)
            return done.result()
        finally:
            # One whose turn has not come is not begun any more.
            done.cancel()

    async def _run(self) -> None:
        while await self._work_off(await self._events.get()):
            # Others get their turn even while events come without end.
            await asyncio.sleep(0)

    async def _work_off(self, event: Event) -> bool:
        """One event, until it is done. False: this is the controller no longer."""
        rest, most = _RETRY_SECONDS
        failures = 0
        while True:
            try:
                await event()
                return True
            except SessionLostError:
                return False  # the election hears of it too, and closes this
            except ControllerMovedError as error:
                log.warning("deposed as the controller", reason=str(error))
                self._deposed()
                return False
            except StoreError as error:
                connected = self.store.state is SessionState.CONNECTED
                failures += connected and not isinstance(error, UnknownOutcomeError)
                most_failures = _PATIENCE if isinstance(error, StoreFailedError) else _ATTEMPTS
                if failures >= most_failures and self._begun:
                    log.error("a change of the cluster is given up", reason=str(error))
                    return True
                log.error("a change of the cluster is put off", reason=str(error))
            except Exception as error:
                # A defect: the controller goes on with the next event.
                log.error("an event of the controller failed", exc_info=error)
                if self._begun:
                    return True
            await asyncio.sleep(rest)
            rest = min(most, rest * 2)

    def _on_stale(self, broker: int) -> None:
        """A broker obeys a controller with a higher epoch: is there one?"""
        log.warning("a broker obeys a newer controller", broker=broker)
        self.post(self.persistence.check_epoch)

    # ---- requests

    def batch(self) -> Batch:
        """Requests to be sent together, by :meth:`send`."""
        return Batch(self.context, self.channels, self.broker_id, self._listener)

    def send(
        self, batch: Batch, *, on_led: Answered | None = None, on_stopped: Answered | None = None
    ) -> None:
        """Send what was noted; those who want to hear the answers are told each broker's."""

        def led(broker: int, answer: Any) -> None:
            if answer is not None:
                self.members.note_disks(broker, answer)
            if on_led is not None:
                on_led(broker, answer)

        batch.send(on_led=led, on_stopped=on_stopped)


def _told(error: Exception) -> KafkaError:
    """What a client is told of an event that failed."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, ControllerMovedError | SessionLostError):
        return KafkaError(ErrorCode.NOT_CONTROLLER)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
