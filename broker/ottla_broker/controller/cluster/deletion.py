"""Topics that are to go: Kafka's ``TopicDeletionManager``.

``/admin/delete_topics/T`` is the order. Clients are told that the topic has no leaders any more (-2), its replicas are
deleted, and when the last broker has done so the nodes are removed. What a replica goes through::

    state      event                     next
    -          topic is to go            STARTED if its broker can be told, else HELD_UP
    STARTED    its broker has done it    DONE
    STARTED    its broker could not      HELD_UP
    STARTED    its broker has gone       HELD_UP
    HELD_UP    its broker comes          STARTED
    DONE       anything                  DONE

The topic is gone when all its replicas are DONE. A topic of the same name can't be made before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla_broker.controller.cluster.context import Partition
from ottla_broker.events import get_logger
from ottla_broker.store.keys import DeleteTopicNode
from ottla_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla_broker.config import BrokerConfig
    from ottla_broker.controller.cluster.controller import ActiveController

log = get_logger()

Replica = tuple[Partition, int]


class Stage(Enum):
    """How far the deletion of a replica has come."""

    STARTED = "started"
    HELD_UP = "held up"
    DONE = "done"


class Happened(Enum):
    """What changes that."""

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
"""See above. A broker may answer late, after it was taken for gone."""


class Deletion:
    """Owned by the controller's task."""

    def __init__(self, controller: ActiveController, config: BrokerConfig) -> None:
        self._controller = controller
        self._context = controller.context
        self._persistence = controller.persistence
        self._config = config
        self._stages: dict[str, dict[Replica, Stage]] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}

    def watch(self) -> None:
        self._controller.watch(DeleteTopicNode.PARENT, self.changed)

    async def load(self) -> None:
        """What was to go when this controller began; :meth:`resume` goes on with it."""
        if self._config.delete_topic_enable:
            self._context.deleting = await self._persistence.read_deletions() & self._context.topics.keys()
        self._controller.post(self.changed)

    def close(self) -> None:
        """Nobody is to wait any more."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    async def changed(self) -> None:
        """Somebody may have ordered a deletion: this broker, another, or a tool."""
        ordered = await self._persistence.read_deletions()
        for name in sorted(ordered):
            if not self._config.delete_topic_enable:
                log.warning("deletion refused: delete.topic.enable=false", topic=name)
                await self._persistence.forget_deletion(name)
            elif name not in self._context.topics:
                log.warning("no topic to delete", topic=name)
                await self._persistence.forget_deletion(name)
        if self._config.delete_topic_enable:
            await self.begin(ordered & self._context.topics.keys())

    async def order(self, name: str) -> asyncio.Future[None]:
        """Have a topic deleted. What is returned is done when it is gone, or when a broker that isn't there holds it
        up; from now on nobody can reach it in either case.
        """
        await self._persistence.order_deletion(name)
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = asyncio.get_running_loop().create_future()
        await self.begin([name])
        return waiting

    async def begin(self, names: Iterable[str]) -> None:
        """Tell everybody that topics are going, and have their replicas deleted."""
        new = [name for name in names if name not in self._stages]
        if not new:
            return
        context, batch = self._context, self._controller.batch()
        for name in new:
            log.info("topic is being deleted", topic=name)
            context.deleting.add(name)
            self._controller.reassignments.forget(name)
            self._stages[name] = {}
        batch.tell(context.live_or_leaving(), ((n, i) for n in new for i in context.topics[n].assignments))
        self._controller.send(batch)
        await self.resume()

    async def resume(self) -> None:
        """Have those replicas deleted whose broker can be told now."""
        context, batch = self._context, self._controller.batch()
        online = context.live_or_leaving()
        for name in context.deleting:
            stages = self._stages.setdefault(name, {})
            for index, assignment in context.topics[name].assignments.items():
                for broker in assignment.replicas:
                    replica = ((name, index), broker)
                    if stages.get(replica) in (Stage.STARTED, Stage.DONE):
                        continue
                    self._step(replica, Happened.BEGUN if broker in online else Happened.GONE)
                    if broker in online:
                        batch.stop([broker], (name, index), delete=True)
        epochs = {broker: found.epoch for broker, found in context.brokers.items()}
        self._controller.send(batch, on_stopped=partial(self._answered, epochs))
        for name in list(context.deleting):
            await self._finish(name)

    def _step(self, replica: Replica, happened: Happened) -> None:
        stages = self._stages.get(replica[0][0])
        if stages is not None:
            stages[replica] = NEXT[stages.get(replica), happened]

    def _answered(self, epochs: Mapping[int, int], broker: int, answer: Any) -> None:
        self._controller.post(partial(self._take_answer, epochs.get(broker), broker, answer))

    async def _take_answer(self, epoch: int | None, broker: int, answer: Any) -> None:
        """``epoch`` is that of the registration under which the broker was told."""
        if answer is None or answer.error_code:
            log.warning("replicas are not deleted yet", broker=broker)
            touched = set()
            for name, stages in self._stages.items():
                for replica, stage in stages.items():
                    if replica[1] == broker and stage is Stage.STARTED:
                        self._step(replica, Happened.GONE if answer is None else Happened.REFUSED)
                        touched.add(name)
        else:
            touched = {error.topic_name for error in answer.partition_errors}
            for error in answer.partition_errors:
                done = error.error_code == ErrorCode.NONE
                if not done:
                    log.warning(
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
            # It has come back meanwhile, when it still seemed to be at it.
            await self.resume()

    async def _finish(self, name: str) -> None:
        """Remove a topic whose replicas are all gone."""
        stages, topic = self._stages.get(name), self._context.topics.get(name)
        if stages is None or topic is None or name not in self._context.deleting:
            return
        if Stage.STARTED in stages.values():
            return
        if Stage.HELD_UP in stages.values():
            self._settle(name)
            return
        await self._persistence.remove_topic(topic)
        self._stages.pop(name, None)
        self._controller.topics.forget(name)
        self._settle(name)
        log.info("topic deleted", topic=name)

    def _settle(self, name: str) -> None:
        waiting = self._waiting.pop(name, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
