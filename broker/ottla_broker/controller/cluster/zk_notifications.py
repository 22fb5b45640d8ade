"""Nodes that brokers and tools leave for the controller: read, dealt with, removed.

``/isr_change_notification``: a leader has written in-sync replicas itself (Kafka before 2.7's AlterPartition).
``/log_dir_event_notification``: a disk of a broker has failed.
``/admin/preferred_replica_election``, ``/admin/reassign_partitions``: what old tools ask for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.controller.cluster.context import Partition
from ottla_broker.events import get_logger
from ottla_broker.store.keys import BadNodeError
from ottla_protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla_broker.controller.cluster.controller import ActiveController

log = get_logger()

ISR_CHANGES: Final = "/isr_change_notification"
DISK_EVENTS: Final = "/log_dir_event_notification"
PREFERRED: Final = "/admin/preferred_replica_election"
REASSIGN: Final = "/admin/reassign_partitions"


class ZkNotifications:
    """Owned by the controller's task."""

    def __init__(self, controller: ActiveController) -> None:
        self._controller = controller
        self._events = {
            ISR_CHANGES: self._isr_changes,
            DISK_EVENTS: self._disk_events,
            PREFERRED: self._preferred,
            REASSIGN: self._reassign,
        }

    def watch(self) -> None:
        for path, event in self._events.items():
            self._controller.watch(path, event)

    def begin(self) -> None:
        """Look for what was there before."""
        for event in self._events.values():
            self._controller.post(event)

    async def _read(self, parent: str) -> tuple[list[str], list[dict[str, Any]]]:
        """A node's children, and what they say. What can't be read is left out, with a line in the log."""
        persistence = self._controller.persistence
        paths = [f"{parent}/{name}" for name in await persistence.children(parent)]
        found = []
        for path in paths:
            data = await persistence.read_node(path)
            try:
                if data is not None:
                    found.append(_object(path, data))
            except BadNodeError as error:
                log.error("a notice can't be read, and is removed", reason=str(error))
        return paths, found

    async def _remove(self, paths: Iterable[str]) -> None:
        """Notices that have been dealt with."""
        for path in paths:
            await self._controller.persistence.take_away(path)

    async def _isr_changes(self) -> None:
        paths, notices = await self._read(ISR_CHANGES)
        told: set[Partition] = set()
        for notice in notices:
            try:
                told |= set(_partitions(ISR_CHANGES, notice))
            except BadNodeError as error:
                log.error("a notice can't be read, and is removed", reason=str(error))
        controller = self._controller
        known = [each for each in told if controller.context.has(each)]
        if known:
            states = await controller.persistence.read_states(known)
            for partition, view in states.items():
                controller.context.set_view(partition, view)
            batch = controller.batch()
            batch.tell(controller.context.live_or_leaving(), known)
            controller.send(batch)
            await controller.reassignments.resume(known)
        await self._remove(paths)

    async def _disk_events(self) -> None:
        paths, notices = await self._read(DISK_EVENTS)
        for notice in notices:
            broker = notice.get("broker")
            if isinstance(broker, int) and broker in self._controller.context.brokers:
                log.warning("a disk of a broker has failed", broker=broker)
                await self._controller.members.check_disks(broker)
        await self._remove(paths)

    async def _preferred(self) -> None:
        data = await self._controller.persistence.read_node(PREFERRED)
        if data is None:
            return
        try:
            partitions = _partitions(PREFERRED, _object(PREFERRED, data))
        except BadNodeError as error:
            log.error("elections that are asked for can't be read", reason=str(error))
        else:
            log.info("preferred leaders asked for by a node", partitions=len(partitions))
            await self._controller.leader_balancer.elect(partitions, unclean=False)
        await self._controller.persistence.take_away(PREFERRED)

    async def _reassign(self) -> None:
        data = await self._controller.persistence.read_node(REASSIGN)
        if data is None:
            return
        try:
            wanted = _targets(REASSIGN, _object(REASSIGN, data))
        except BadNodeError as error:
            log.error("reassignments that are asked for can't be read", reason=str(error))
            wanted = {}
        for partition, target in wanted.items():
            try:
                await self._controller.reassignments.begin(partition, target)
            except KafkaError as error:
                log.warning(
                    "reassignment refused", partition=f"{partition[0]}-{partition[1]}", reason=str(error)
                )
        # What was begun stands in the topics' nodes from here on.
        await self._controller.persistence.take_away(REASSIGN)


def _object(path: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise BadNodeError(f"{path}: is not JSON") from error
    if not isinstance(found, dict):
        raise BadNodeError(f"{path}: is not a JSON object")
    return found


def _partitions(path: str, found: dict[str, Any]) -> list[Partition]:
    try:
        return [(str(each["topic"]), int(each["partition"])) for each in found["partitions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(f"{path}: has no list of partitions") from error


def _targets(path: str, found: dict[str, Any]) -> dict[Partition, Sequence[int]]:
    try:
        return {
            (str(each["topic"]), int(each["partition"])): [int(broker) for broker in each["replicas"]]
            for each in found["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(f"{path}: has no list of partitions with replicas") from error
