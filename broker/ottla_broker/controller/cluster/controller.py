"""The controller of a cluster, while this broker is it: Kafka's ``KafkaController``.

All changes are events of one queue; nothing else changes what the controller knows. Each event ends with one batch of
requests to the brokers. The events, and the parts that handle them::

    brokers changed        ``broker_changes``: partitions of brokers that left or registered again get other leaders and
                           smaller in-sync sets. New brokers get everything, and waiting partitions get leaders
    broker unreachable     as if it had left, although its node exists: its process is dead, or out of reach
    broker answers again   as if it had registered again
    broker shuts down      controlled shutdown: other brokers lead its partitions
    log folder failed      as if the broker had left, for the replicas in that folder
    topics changed         ``topics``: new topics get leaders
    topic grown            new partitions get leaders
    topics to delete       ``deletion``
    reassignments          ``reassignment``
    elections              ``leader_balancer``: by timer, by request, where a topic now allows unclean ones
    in-sync replicas       ``alter_partition``: leaders ask for changes
    nodes of old tools     ``zk_notifications``: requests that older brokers and tools leave in ZooKeeper

Judging a broker unreachable may be wrong. It then goes on as leader in an old epoch for a while, but can't commit
anything with acks=all: its followers follow another leader by then, and the controller accepts no in-sync replicas from
it in an old epoch. It learns the new epoch as soon as it answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla_broker.clock import Clock
from ottla_broker.config import BrokerConfig
from ottla_broker.controller.cluster.alter_partition import AlterPartition
from ottla_broker.controller.cluster.batch import Batch
from ottla_broker.controller.cluster.broker_changes import BrokerChanges
from ottla_broker.controller.cluster.channel import Channels, Connect, Listener
from ottla_broker.controller.cluster.context import Context
from ottla_broker.controller.cluster.deletion import Deletion
from ottla_broker.controller.cluster.event_queue import EventQueue
from ottla_broker.controller.cluster.leader_balancer import LeaderBalancer
from ottla_broker.controller.cluster.partition_state_machine import PartitionStateMachine
from ottla_broker.controller.cluster.persistence import ClusterStore, Persistence
from ottla_broker.controller.cluster.reassignment import Reassignments
from ottla_broker.controller.cluster.topics import Topics
from ottla_broker.controller.cluster.zk_notifications import ZkNotifications
from ottla_broker.controller.producer_ids import allocate_block
from ottla_broker.events import get_logger
from ottla_broker.store.keys import ProducerIdBlock
from ottla_protocol.errors import ErrorCode

_log = get_logger()


class ActiveController:
    """Made when this broker is elected, closed when it is no longer the controller. Owned by the loop thread.

    It puts the parts together; each part takes only what it works with.

    Attributes:
        context: what the controller knows.
        events: its queue.
        broker_changes, topics, deletion, reassignments, leader_balancer, alter_partition: its parts for requests.
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
        on_moved: Callable[[], None],
        on_brokers: Callable[[Context], None],
    ) -> None:
        """``listener`` is the name of the inter-broker listener; ``connect`` opens a connection to a broker.

        ``unclean_allowed`` says whether a topic may get a leader that lacks committed records. ``on_moved`` is called
        when another controller turns out to have a higher epoch, ``on_brokers`` before requests go to new brokers.
        """
        self._broker_id = broker_id
        self._listener = listener
        self._clock = clock
        self._store = store
        self.context = context = Context(epoch, epoch_version)
        self._persistence = persistence = Persistence(store, context)
        self.events = events = EventQueue(store, clock, lambda: self.topics.refresh(), on_moved)
        self._channels = Channels(
            connect,
            clock,
            Listener(
                lambda broker: events.post(partial(self.broker_changes.unreachable, broker)),
                lambda broker: events.post(partial(self.broker_changes.reachable, broker)),
                self._on_newer_controller,
            ),
        )
        batch = self.new_batch
        states = PartitionStateMachine(context, persistence, unclean_allowed, clock.monotonic)
        self.broker_changes = BrokerChanges(
            context, persistence, events, batch, states, self._channels, on_brokers, self._resume
        )
        self.reassignments = Reassignments(
            context, persistence, events, batch, states, lambda name: self.topics.read_again(name)
        )
        self.topics = Topics(context, persistence, events, batch, states, self.reassignments, config)
        self.deletion = Deletion(context, persistence, events, batch, self.topics, self.reassignments, config)
        self.leader_balancer = LeaderBalancer(
            context, events, batch, states, self.reassignments, config, clock
        )
        self.alter_partition = AlterPartition(
            context, persistence, events, batch, self.reassignments, self.topics.refresh
        )
        self._zk_notifications = ZkNotifications(
            context, persistence, events, batch, self.broker_changes, self.reassignments, self.leader_balancer
        )

    def start(self) -> None:
        """Start to control. The first event reads the store."""
        self.events.start(self._begin)
        self.events.post(self._resume)

    async def close(self) -> None:
        """Stop controlling. Requests that wait for an event get NOT_CONTROLLER."""
        self.leader_balancer.close()
        await self.events.close()
        await self._channels.close()
        self.deletion.close()

    async def _begin(self) -> None:
        context = self.context
        started = self._clock.monotonic()
        # Watch before reading, so that no change is missed.
        self.broker_changes.watch()
        self.topics.watch()
        self.deletion.watch()
        self._zk_notifications.watch()
        await self.broker_changes.load()
        await self.topics.load()
        await self.deletion.load()
        self.reassignments.load()
        await self.broker_changes.begin()
        self._zk_notifications.begin()
        self.leader_balancer.start()
        _log.info(
            "controlling the cluster",
            epoch=context.epoch,
            brokers=sorted(context.brokers),
            topics=len(context.topics),
            partitions=sum(1 for _ in context.partitions()),
            seconds=round(self._clock.monotonic() - started, 3),
        )

    async def _resume(self) -> None:
        """Go on with what waited for brokers that have come."""
        await self.deletion.resume()
        await self.reassignments.resume()

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdBlock:
        """A block of producer ids for a broker. Raises KafkaError, ControllerMovedError, StoreError."""
        self.context.check_broker_epoch(broker, broker_epoch, ErrorCode.BROKER_ID_NOT_REGISTERED)
        return await allocate_block(self._store, broker, self._persistence.write)

    def new_batch(self) -> Batch:
        return Batch(
            self.context,
            self._channels,
            self._broker_id,
            self._listener,
            self.broker_changes.note_offline_replicas,
        )

    def _on_newer_controller(self, broker: int) -> None:
        _log.warning("a broker obeys a newer controller", broker=broker)
        self.events.post(self._persistence.check_epoch)
