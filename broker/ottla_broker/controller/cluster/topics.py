"""Topics that are created and grow, by this controller or by another writer to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla_broker.controller.api import CreatedTopic, MorePartitions, NewTopic, Outcome, Partition
from ottla_broker.controller.cluster.batch import NewBatch, Replies
from ottla_broker.controller.cluster.context import PORTION, Context, PartitionView, Topic
from ottla_broker.controller.cluster.event_queue import EventQueue
from ottla_broker.controller.cluster.partition_state_machine import PartitionStateMachine
from ottla_broker.controller.cluster.persistence import ControllerMovedError, Persistence
from ottla_broker.controller.cluster.reassignment import Reassignments
from ottla_broker.controller.new_topics import PlannedTopic, plan_topics
from ottla_broker.controller.placement import place
from ottla_broker.controller.validation import (
    assignments_of,
    assignments_of_more,
    check_batch_size,
)
from ottla_broker.events import get_logger
from ottla_broker.store.api import BadVersionError, NodeExistsError, NoNodeError, SessionLostError, StoreError
from ottla_broker.store.keys import Assignment, PartitionState, TopicNode
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.config import BrokerConfig

_log = get_logger()

_AT_ONCE: Final = 16
_ATTEMPTS: Final = 5


@dataclass(eq=False)
class Topics:
    """Owned by the controller's task."""

    _context: Context
    _persistence: Persistence
    _events: EventQueue
    _new_batch: NewBatch
    _states: PartitionStateMachine
    _reassignments: Reassignments
    _config: BrokerConfig

    def watch(self) -> None:
        self._events.watch(TopicNode.PARENT, self.changed)

    async def load(self) -> None:
        names = await self._persistence.children(TopicNode.PARENT)
        for topic in (await self._persistence.read_topics(names)).values():
            self._context.add_topic(topic)
        for name in names:
            self._watch_one(name)
        await self._give_ids(list(self._context.topics.values()))

    async def _give_ids(self, topics: Iterable[Topic]) -> None:
        """Give an id to topics created without one, as Kafka does since 2.8: leaders use it in requests."""
        for topic in topics:
            if topic.id is None:
                try:
                    await self._persistence.give_id(topic)
                except (BadVersionError, NoNodeError):
                    continue  # another process has changed it; the watch reports that
                self._context.add_topic(topic)

    async def changed(self) -> None:
        """Compare the topics in the store with those known."""
        names = set(await self._persistence.children(TopicNode.PARENT))
        for name in self._context.topics.keys() - names:
            _log.warning("a topic's node has been removed from the store", topic=name)
            self.forget(name)
        added = names - self._context.topics.keys()
        if not added:
            return
        for name in added:
            self._watch_one(name)
        await self._add((await self._persistence.read_topics(added)).values())

    def _watch_one(self, name: str) -> None:
        """Notice partitions that another process adds, and a topic that becomes readable."""
        self._events.watch(TopicNode.path(name), lambda: self.read_again(name))

    def forget(self, name: str) -> None:
        self._context.remove_topic(name)
        self._reassignments.forget(name)
        self._events.unwatch(TopicNode.path(name))

    async def _add(self, topics: Iterable[Topic]) -> None:
        found = list(topics)
        for topic in found:
            self._context.add_topic(topic)
            self._reassignments.note(topic)
        await self._give_ids(found)
        await self._elect([(topic.name, index) for topic in found for index in topic.assignments])

    async def _elect(self, partitions: Sequence[Partition], replies: Replies | None = None) -> None:
        """Elect leaders of new partitions; an earlier controller may have written the states of some.

        ``replies`` will wait for the leaders' responses.
        """
        context, batch = self._context, self._new_batch()
        new = [each async for each in unhurried(partitions, PORTION) if context.view(each) is None]
        await self._states.create(new, batch)
        async for partition in unhurried(partitions, PORTION):
            if context.view(partition) is not None:
                batch.leader_and_isr(context.replicas(partition), partition, is_new=True)
        if replies is not None:
            replies.expect_leaders(context, partitions)
        await batch.send(on_leader_and_isr=None if replies is None else replies.received)

    async def read_again(self, name: str) -> None:
        """Read a topic's node, which another process may have changed."""
        known = self._context.topics.get(name)
        if known is None:
            await self.changed()
            return
        if name in self._context.deleting:
            return
        now = (await self._persistence.read_topics([name])).get(name)
        if now is None:
            return
        if known.id is not None and now.id != known.id:
            # Another process has removed it and created another topic of that name.
            self.forget(name)
            self._watch_one(name)
            await self._add([now])
            return
        known.version = now.version
        if known.id is None:
            known.id = now.id
            self._context.add_topic(known)
            await self._give_ids([known])
        added = now.assignments.keys() - known.assignments.keys()
        if added:
            for index in sorted(added):
                known.assignments[index] = now.assignments[index]
            _log.info("partitions added", topic=name, partitions=len(known.assignments))
            await self._elect([(name, index) for index in sorted(added)])

    async def refresh(self) -> None:
        """Read everything from the store, after a write that may or may not have been made."""
        await self.changed()
        for name in list(self._context.topics):
            await self.read_again(name)
        batch = self._new_batch()
        alive = [each for each in self._context.partitions() if not self._context.is_deleting(each)]
        await self._states.refresh(alive, batch)
        await batch.send()
        await self._reassignments.resume()

    async def create(
        self, topics: Sequence[NewTopic], validate_only: bool, random: Random
    ) -> tuple[list[CreatedTopic], Replies]:
        """Create topics. Returns each one's outcome, and the leaders' responses to wait for."""
        context = self._context
        outcomes, planned = await plan_topics(
            topics,
            self._config,
            random,
            partial(self._assign, random=random),
            known=context.topics.keys(),
            doomed=context.deleting,
            validate_only=validate_only,
        )
        replies = Replies()
        if not validate_only:
            gate = asyncio.Semaphore(_AT_ONCE)

            async def one(plan: PlannedTopic) -> Topic | KafkaError:
                async with gate:
                    return await self._make(plan)

            plans, results = list(planned.values()), list[Topic | KafkaError]()
            for start in range(0, len(plans), PORTION):
                results += await asyncio.gather(*map(one, plans[start : start + PORTION]))
            made: list[Topic] = []
            for at, result in zip(planned, results, strict=True):
                if isinstance(result, Topic):
                    made.append(result)
                else:
                    outcomes[at] = CreatedTopic(result.code, result.message, name=planned[at].name)
            async for topic in unhurried(made):
                _log.info("topic created", topic=topic.name, partitions=len(topic.assignments))
                self._watch_one(topic.name)
                context.add_topic(topic)
            await self._elect([(topic.name, index) for topic in made for index in topic.assignments], replies)
        return outcomes, replies

    def _assign(self, topic: NewTopic, random: Random) -> Mapping[int, Sequence[int]]:
        """The replicas of a new topic's partitions. Raises KafkaError."""
        if topic.assignments:
            return assignments_of(topic, sorted(self._context.brokers), -1, -1)
        config, factor = self._config, topic.replication_factor
        partitions = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        check_batch_size(partitions)
        racks = self._racks()
        return place(
            racks,
            partitions,
            config.default_replication_factor if factor == -1 else factor,
            start=random.randrange(max(1, len(racks))),
            shift=random.randrange(max(1, len(racks))),
        )

    def _racks(self) -> dict[int, str | None]:
        brokers = self._context.brokers
        return {broker: brokers[broker].rack for broker in sorted(self._context.live_or_shutting_down())}

    async def _make(self, plan: PlannedTopic) -> Topic | KafkaError:
        """Write a topic and the first of its partitions' states. Returns the error if that fails."""
        topic = Topic(plan.name, plan.id, {i: Assignment(r) for i, r in plan.assignments.items()}, 0)
        states: dict[Partition, PartitionState] = {}
        live = self._context.live()
        for index, assignment in topic.assignments.items():
            able = [each for each in assignment.replicas if each in live]
            if able:
                states[topic.name, index] = PartitionState(able[0], 0, able, self._context.epoch)
        try:
            written = await self._persistence.create_topic(topic, plan.configs, states)
        except NodeExistsError:
            return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        except (ControllerMovedError, SessionLostError):
            raise
        except StoreError as error:
            # If it was created all the same, the watch finds it.
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        for _, index in written:
            topic.partitions[index] = PartitionView(states[topic.name, index], 0)
        return topic

    async def extend(
        self, topics: Sequence[MorePartitions], validate_only: bool
    ) -> tuple[list[Outcome], Replies]:
        """Add partitions to topics. Returns each one's outcome, and the leaders' responses to wait for."""
        outcomes = []
        replies = Replies()
        for topic in topics:
            try:
                await self._extend(topic, validate_only, replies)
            except KafkaError as error:
                outcomes.append(Outcome(error.code, error.message))
            else:
                outcomes.append(Outcome())
        return outcomes, replies

    async def _extend(self, wanted: MorePartitions, validate_only: bool, replies: Replies) -> None:
        """Raises KafkaError."""
        context = self._context
        for _ in range(_ATTEMPTS):
            topic = context.topics.get(wanted.name)
            if topic is None or wanted.name in context.deleting:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist."
                )
            given = self._more(topic, wanted)
            if validate_only:
                return
            try:
                await self._persistence.set_assignments(topic, {i: Assignment(r) for i, r in given.items()})
            except BadVersionError:
                # Another process has changed it first.
                await self.read_again(wanted.name)
                continue
            _log.info("partitions created", topic=topic.name, partitions=len(topic.assignments))
            await self._elect([(topic.name, index) for index in given], replies)
            return
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{wanted.name}: another process keeps changing it")

    def _more(self, topic: Topic, wanted: MorePartitions) -> dict[int, Sequence[int]]:
        """The replicas of a topic's new partitions (``AdminZkClient.createNewPartitionsAssignment``).

        Raises KafkaError.
        """
        if any(assignment.adding or assignment.removing for assignment in topic.assignments.values()):
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{topic.name}'.",
            )
        existing = len(topic.assignments)
        first = topic.assignments[min(topic.assignments)].replicas
        given = assignments_of_more(
            wanted,
            existing,
            len(first),
            sorted(self._context.brokers),
        )
        if wanted.assignments is not None:
            return given
        racks = self._racks()
        # Continue the round where the topic's first partition began.
        start = next((at for at, broker in enumerate(racks) if broker >= first[0]), 0)
        return dict(place(racks, len(given), len(first), first=existing, start=start, shift=start))
