"""Requests that brokers and tools leave in ZooKeeper for the controller, which handles and removes them.

``/isr_change_notification``: a leader has written in-sync replicas itself (Kafka before AlterPartition, 2.7).
``/log_dir_event_notification``: a log folder of a broker has failed.
``/admin/preferred_replica_election``, ``/admin/reassign_partitions``: elections and moves that old tools ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla_broker.controller.api import Partition
from ottla_broker.controller.cluster.batch import NewBatch
from ottla_broker.controller.cluster.broker_changes import BrokerChanges
from ottla_broker.controller.cluster.context import Context
from ottla_broker.controller.cluster.event_queue import EventQueue
from ottla_broker.controller.cluster.leader_balancer import LeaderBalancer
from ottla_broker.controller.cluster.persistence import Persistence
from ottla_broker.controller.cluster.reassignment import Reassignments
from ottla_broker.events import get_logger
from ottla_broker.store.keys import BadNodeError, decode_object, read_object
from ottla_protocol.errors import KafkaError

_log = get_logger()

T = TypeVar("T")

ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
PREFERRED: Final = "/admin/preferred_replica_election"
REASSIGN: Final = "/admin/reassign_partitions"


@dataclass(eq=False)
class ZkNotifications:
    """Owned by the controller's task."""

    _context: Context
    _persistence: Persistence
    _events: EventQueue
    _new_batch: NewBatch
    _broker_changes: BrokerChanges
    _reassignments: Reassignments
    _leader_balancer: LeaderBalancer

    def __post_init__(self) -> None:
        self._handlers = {
            ISR_CHANGES: self._isr_changes,
            LOG_DIR_EVENTS: self._log_dir_events,
            PREFERRED: self._preferred,
            REASSIGN: self._reassign,
        }

    def watch(self) -> None:
        for path, handler in self._handlers.items():
            self._events.watch(path, handler)

    def begin(self) -> None:
        for handler in self._handlers.values():
            self._events.post(handler)

    async def _read(self, parent: str, decode: Callable[[str, bytes], T]) -> tuple[list[str], list[T]]:
        """Returns the paths of a node's children, and the contents of those that can be read."""
        paths = [f"{parent}/{name}" for name in await self._persistence.children(parent)]
        found = []
        for path in paths:
            data = await self._persistence.read_node(path)
            try:
                if data is not None:
                    found.append(decode(path, data))
            except BadNodeError as error:
                _log.error("a notification can't be read and is removed", reason=str(error))
        return paths, found

    async def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            await self._persistence.remove_node(path)

    async def _isr_changes(self) -> None:
        paths, notifications = await self._read(ISR_CHANGES, _partitions)
        known = [each for each in set().union(*notifications) if self._context.has(each)]
        if known:
            states = await self._persistence.read_states(known)
            for partition, view in states.items():
                self._context.set_view(partition, view)
            batch = self._new_batch()
            batch.update_metadata(self._context.live_or_shutting_down(), known)
            await batch.send()
            await self._reassignments.resume(known)
        await self._remove(paths)

    async def _log_dir_events(self) -> None:
        paths, notifications = await self._read(LOG_DIR_EVENTS, decode_object)
        for notification in notifications:
            broker = notification.get("broker")
            if isinstance(broker, int) and broker in self._context.brokers:
                _log.warning("a log folder of a broker has failed", broker=broker)
                await self._broker_changes.check_log_dirs(broker)
        await self._remove(paths)

    async def _preferred(self) -> None:
        data = await self._persistence.read_node(PREFERRED)
        if data is None:
            return
        try:
            partitions = _partitions(PREFERRED, data)
        except BadNodeError as error:
            _log.error("the requested elections can't be read", reason=str(error))
        else:
            _log.info("preferred leaders requested in ZooKeeper", partitions=len(partitions))
            await self._leader_balancer.elect(partitions, unclean=False)
        await self._persistence.remove_node(PREFERRED)

    async def _reassign(self) -> None:
        data = await self._persistence.read_node(REASSIGN)
        if data is None:
            return
        try:
            wanted = _targets(REASSIGN, data)
        except BadNodeError as error:
            _log.error("the requested reassignments can't be read", reason=str(error))
            wanted = {}
        for partition, target in wanted.items():
            try:
                await self._reassignments.begin(partition, target)
            except KafkaError as error:
                _log.warning(
                    "reassignment refused", partition=f"{partition[0]}-{partition[1]}", reason=str(error)
                )
        # From here on the moves are in the topics' nodes.
        await self._persistence.remove_node(REASSIGN)


def _partitions(path: str, data: bytes) -> list[Partition]:
    return read_object(
        path,
        data,
        "has no list of partitions",
        lambda found: [(str(each["topic"]), int(each["partition"])) for each in found["partitions"]],
    )


def _targets(path: str, data: bytes) -> dict[Partition, Sequence[int]]:
    return read_object(
        path,
        data,
        "has no list of partitions with replicas",
        lambda found: {
            (str(each["topic"]), int(each["partition"])): [int(broker) for broker in each["replicas"]]
            for each in found["partitions"]
        },
    )
