"""Deletion of topics: Kafka's ``TopicDeletionManager``.

``/admin/delete_topics/T`` requests the deletion of T. All brokers learn that its partitions have no leader (-2), its
replicas are deleted, and after the last of them its nodes. The states of a replica::

    state      event                          next
    -          deletion begins                STARTED if its broker is reachable, otherwise HELD_UP
    STARTED    its broker has deleted it      DONE
    STARTED    its broker could not           HELD_UP
    STARTED    its broker is gone             HELD_UP
    HELD_UP    its broker is reachable again  STARTED
    HELD_UP    a late response: deleted       DONE
    DONE       any                            DONE

The topic is deleted when all its replicas are DONE. Until then no topic of that name can be created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from ottla_broker.config import BrokerConfig
from ottla_broker.controller.api import Partition
from ottla_broker.controller.cluster.batch import NewBatch
from ottla_broker.controller.cluster.context import PORTION, Context
from ottla_broker.controller.cluster.event_queue import EventQueue
from ottla_broker.controller.cluster.persistence import Persistence
from ottla_broker.controller.cluster.reassignment import Reassignments
from ottla_broker.controller.cluster.topics import Topics
from ottla_broker.events import get_logger
from ottla_broker.store.keys import DeleteTopicNode
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode

_log = get_logger()

Replica = tuple[Partition, int]


class Stage(Enum):
    """A stage of the deletion of a replica."""

    STARTED = "started"
    HELD_UP = "held up"
    DONE = "done"


class Happened(Enum):
    """An event that moves a replica to another stage."""

    BEGUN = "begun"
    ANSWERED = "answered"
    REFUSED = "refused"
    GONE = "gone"


NEXT: dict[tuple[Stage | None, Happened], Stage] = {
    (None, Happened.BEGUN): Stage.STARTED,
    (None, Happened.GONE): Stage.HELD_UP,
    (Stage.STARTED, Happened.BEGUN): Stage.STARTED,
    (Stage.STARTED, Happened.ANSWERED): Stage.DONE,
    (Stage.STARTED, Happened.REFUSED): Stage.HELD_UP,
    (Stage.STARTED, Happened.GONE): Stage.HELD_UP,
    (Stage.HELD_UP, Happened.BEGUN): Stage.STARTED,
    (Stage.HELD_UP, Happened.ANSWERED): Stage.DONE,
    (Stage.HELD_UP, Happened.REFUSED): Stage.HELD_UP,
    (Stage.HELD_UP, Happened.GONE): Stage.HELD_UP,
    **{(Stage.DONE, happened): Stage.DONE for happened in Happened},
}
"""The module's docstring explains it."""


@dataclass(eq=False)
class Deletion:
    """Owned by the controller's task."""

    _context: Context
    _persistence: Persistence
    _events: EventQueue
    _new_batch: NewBatch
    _topics: Topics
    _reassignments: Reassignments
    _config: BrokerConfig
    _stages: dict[str, dict[Replica, Stage]] = field(default_factory=dict, init=False)
    _waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict, init=False)

    def watch(self) -> None:
        self._events.watch(DeleteTopicNode.PARENT, self.changed)

    async def load(self) -> None:
        """Read the deletions that an earlier controller left; :meth:`resume` continues them."""
        if self._config.delete_topic_enable:
            self._context.deleting = await self._requested() & self._context.topics.keys()
        self._events.post(self.changed)

    async def _requested(self) -> set[str]:
        return set(await self._persistence.children(DeleteTopicNode.PARENT))

    def close(self) -> None:
        """Cancel the futures of :meth:`request`."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    async def changed(self) -> None:
        """Begin the deletions that brokers and tools have requested in the store."""
        requested = await self._requested()
        for name in sorted(requested):
            if not self._config.delete_topic_enable:
                _log.warning("deletion refused: delete.topic.enable=false", topic=name)
                await self._persistence.remove_node(DeleteTopicNode.path(name))
            elif name not in self._context.topics:
                _log.warning("no topic to delete", topic=name)
                await self._persistence.remove_node(DeleteTopicNode.path(name))
        if self._config.delete_topic_enable:
            await self.begin(requested & self._context.topics.keys())

    async def request(self, name: str) -> asyncio.Future[None]:
        """Begin the deletion of a topic, which clients can't reach from now on.

        The returned future is done when the topic is deleted, or when a missing broker holds the deletion up.
        """
        await self._persistence.request_deletion(name)
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = asyncio.get_running_loop().create_future()
        await self.begin([name])
        return waiting

    async def begin(self, names: Iterable[str]) -> None:
        """Tell all brokers that these topics are being deleted, and delete their replicas."""
        new = [name for name in names if name not in self._stages]
        if not new:
            return
        context, batch = self._context, self._new_batch()
        for name in new:
            _log.info("topic is being deleted", topic=name)
            context.deleting.add(name)
            self._reassignments.forget(name)
            self._stages[name] = {}
        partitions = ((name, index) for name in new for index in context.topics[name].assignments)
        batch.update_metadata(context.live_or_shutting_down(), partitions)
        await batch.send()
        await self.resume(new)

    async def resume(self, names: Sequence[str] | None = None) -> None:
        """Delete the replicas whose broker is reachable now, of these topics or of all that are being deleted."""
        context, batch = self._context, self._new_batch()
        online = context.live_or_shutting_down()
        wanted = list(context.deleting) if names is None else names
        async for name in unhurried(wanted):
            stages = self._stages.setdefault(name, {})
            assignments = context.topics[name].assignments.items()
            async for index, assignment in unhurried(assignments, PORTION):
                for broker in assignment.replicas:
                    replica = ((name, index), broker)
                    if stages.get(replica) in (Stage.STARTED, Stage.DONE):
                        continue
                    self._step(replica, Happened.BEGUN if broker in online else Happened.GONE)
                    if broker in online:
                        batch.stop_replica([broker], (name, index), delete=True)
        epochs = {broker: found.epoch for broker, found in context.brokers.items()}
        await batch.send(on_stop_replica=partial(self._on_response, epochs))
        for name in wanted:
            await self._finish(name)

    def _step(self, replica: Replica, happened: Happened) -> None:
        stages = self._stages.get(replica[0][0])
        if stages is not None:
            stages[replica] = NEXT[stages.get(replica), happened]

    def _on_response(self, epochs: Mapping[int, int], broker: int, response: Any) -> None:
        self._events.post(partial(self._handle_response, epochs.get(broker), broker, response))

    async def _handle_response(self, epoch: int | None, broker: int, response: Any) -> None:
        """Note which replicas are deleted. ``epoch``: of the broker's registration when the request was sent."""
        if response is None or response.error_code:
            _log.warning("replicas are not deleted yet", broker=broker)
            touched = set()
            for name, stages in self._stages.items():
                for replica, stage in stages.items():
                    if replica[1] == broker and stage is Stage.STARTED:
                        self._step(replica, Happened.GONE if response is None else Happened.REFUSED)
                        touched.add(name)
        else:
            touched = {error.topic_name for error in response.partition_errors}
            async for error in unhurried(response.partition_errors, PORTION):
                done = error.error_code == ErrorCode.NONE
                if not done:
                    _log.warning(
                        "a replica is not deleted",
                        broker=broker,
                        partition=f"{error.topic_name}-{error.partition_index}",
                        error=ErrorCode(error.error_code).name,
                    )
                self._step(
                    ((error.topic_name, error.partition_index), broker),
                    Happened.ANSWERED if done else Happened.REFUSED,
                )
        for name in touched:
            await self._finish(name)
        now = self._context.brokers.get(broker)
        if touched and now is not None and now.epoch != epoch:
            # The broker has come back meanwhile; its replicas looked STARTED then, so nothing was sent.
            await self.resume()

    async def _finish(self, name: str) -> None:
        """Remove the nodes of a topic whose replicas are all deleted."""
        stages, topic = self._stages.get(name), self._context.topics.get(name)
        if stages is None or topic is None or name not in self._context.deleting:
            return
        if Stage.STARTED in stages.values():
            return
        if Stage.HELD_UP in stages.values():
            self._end_wait(name)
            return
        await self._persistence.remove_topic(topic)
        self._stages.pop(name, None)
        self._topics.forget(name)
        self._end_wait(name)
        _log.info("topic deleted", topic=name)

    def _end_wait(self, name: str) -> None:
        """Complete the future that :meth:`request` has returned."""
        waiting = self._waiting.pop(name, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
