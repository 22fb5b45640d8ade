"""The controller's reads and writes of the store.

Every write checks the version of the controller epoch's node in the same transaction, so that a controller that has
been replaced can't write (Kafka: ``KafkaZkClient``, ``ControllerZkUtils``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol

from ottla_broker.controller.api import Partition
from ottla_broker.controller.cluster.context import PORTION, Context, PartitionView, RegisteredBroker, Topic
from ottla_broker.events import get_logger
from ottla_broker.store.api import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    Store,
    UnknownOutcomeError,
    children_of,
)
from ottla_broker.store.keys import (
    Assignment,
    BadNodeError,
    BrokerIdNode,
    ConfigNode,
    ControllerEpochNode,
    DeleteTopicNode,
    PartitionState,
    TopicNode,
    TopicPartitionNode,
    TopicPartitionsNode,
    TopicPartitionStateNode,
    decimal,
)
from ottla_broker.tasks import unhurried

_log = get_logger()

# Partitions in one transaction, and concurrent transactions.
_BATCH: Final = 100
_AT_ONCE: Final = 8
_ATTEMPTS: Final = 5
"""How often to try a transaction during which the connection broke, and which was not made."""

_Changes = Sequence[tuple[Partition, tuple[PartitionState, int]]]


class ClusterStore(Store, Protocol):
    """A store shared with other brokers."""

    async def created_at(self, path: str) -> int | None: ...


class ControllerMovedError(Exception):
    """Another broker has been elected controller (Kafka: ``ControllerMovedException``)."""


class Persistence:
    """Reads and writes of one controller, in its epoch."""

    def __init__(self, store: ClusterStore, context: Context) -> None:
        self._store = store
        self._context = context

    async def children(self, path: str) -> list[str]:
        """A node's children; none if it doesn't exist. Raises StoreError."""
        return await children_of(self._store, path)

    async def read_brokers(self) -> dict[int, RegisteredBroker]:
        """All registered brokers. A node that can't be read is logged and left out."""
        names = await self.children(BrokerIdNode.PARENT)
        ids = [number for name in names if (number := decimal(name)) is not None]
        found: dict[int, RegisteredBroker] = {}

        async def one(broker: int) -> None:
            path = BrokerIdNode.path(broker)
            try:
                epoch = await self._store.created_at(path)
                data, _ = await self._store.get(path)
                if epoch is not None:
                    found[broker] = RegisteredBroker(broker, epoch, BrokerIdNode.decode(broker, data))
            except NoNodeError:
                return  # gone meanwhile; the watch reports that
            except BadNodeError as error:
                _log.error("a broker's registration can't be read", broker=broker, reason=str(error))

        await asyncio.gather(*map(one, ids))
        return found

    async def read_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Topics with their partitions' states. Nodes that can't be read are logged and left out."""
        wanted = list(names)
        topics: dict[str, Topic] = {}
        nodes = await self._store.get_many([TopicNode.path(name) for name in wanted])
        for name, node in zip(wanted, nodes, strict=True):
            if node is None:
                continue
            try:
                topic_id, assignments = TopicNode.decode(name, node[0])
            except BadNodeError as error:
                _log.error("a topic can't be read", topic=name, reason=str(error))
                continue
            topics[name] = Topic(name, topic_id, assignments, node[1])
        keys = [(name, index) for name, topic in topics.items() for index in topic.assignments]
        for (name, index), view in (await self.read_states(keys)).items():
            topics[name].partitions[index] = view
        return topics

    async def read_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionView]:
        """The states that exist."""
        paths = [TopicPartitionStateNode.path(*partition) for partition in partitions]
        found: dict[Partition, PartitionView] = {}
        nodes = await self._store.get_many(paths)
        async for partition, path, node in unhurried(zip(partitions, paths, nodes, strict=True), PORTION):
            if node is None:
                continue
            try:
                found[partition] = PartitionView(TopicPartitionStateNode.decode(path, node[0]), node[1])
            except BadNodeError as error:
                _log.error("a partition's state can't be read", path=path, reason=str(error))
        return found

    async def write(self, operations: Sequence[Operation]) -> None:
        """One transaction. Raises ControllerMovedError, StoreError."""
        try:
            await self._store.transaction(
                [Check(ControllerEpochNode.PATH, self._context.epoch_version), *operations]
            )
        except BadVersionError:
            await self.check_epoch()
            raise

    async def check_epoch(self) -> None:
        """Raises ControllerMovedError if another controller has been elected."""
        _, version = await self._store.get(ControllerEpochNode.PATH)
        if version != self._context.epoch_version:
            raise ControllerMovedError("the controller epoch has changed")

    async def write_states(
        self, states: Mapping[Partition, tuple[PartitionState, int]]
    ) -> dict[Partition, PartitionView]:
        """Write partitions' states, each only over the given version.

        Returns the written ones; the others have been changed by another process, or are gone. Raises
        ControllerMovedError, StoreError.
        """
        items = list(states.items())
        gate = asyncio.Semaphore(_AT_ONCE)
        written: dict[Partition, PartitionView] = {}

        async def some(part: _Changes, attempts: int) -> None:
            async with gate:
                try:
                    await self.write(
                        [
                            Set(
                                TopicPartitionStateNode.path(*key),
                                TopicPartitionStateNode.encode(state),
                                version,
                            )
                            for key, (state, version) in part
                        ]
                    )
                except (BadVersionError, NoNodeError):
                    if len(part) == 1:
                        return
                    # One of them makes the whole transaction fail: write each by itself.
                    rest = [[item] for item in part]
                except UnknownOutcomeError:
                    now = await self.read_states([key for key, _ in part])
                    ours = {key: PartitionView(state, version + 1) for key, (state, version) in part}
                    written.update({key: view for key, view in now.items() if view == ours[key]})
                    # Retry what was not written: the caller would wait for another process's change that never comes.
                    undone = [item for item in part if item[0] in now and now[item[0]].version == item[1][1]]
                    if undone and attempts <= 1:
                        raise
                    rest = [undone] if undone else []
                    attempts -= 1
                else:
                    written.update({key: PartitionView(state, version + 1) for key, (state, version) in part})
                    return
            await asyncio.gather(*(some(each, attempts) for each in rest))

        await asyncio.gather(
            *(some(items[at : at + _BATCH], _ATTEMPTS) for at in range(0, len(items), _BATCH))
        )
        return written

    async def create_topic(
        self, topic: Topic, configs: Mapping[str, str], states: Mapping[Partition, PartitionState]
    ) -> set[Partition]:
        """Create a topic with as many partition states as fit in one transaction. Returns those partitions.

        Raises NodeExistsError, ControllerMovedError, StoreError.
        """
        settings, data = ConfigNode.path(ConfigNode.TOPICS, topic.name), ConfigNode.encode(configs)
        operations: list[Operation] = [
            Set(settings, data) if await self._store.exists(settings) else Create(settings, data),
            Create(TopicNode.path(topic.name), TopicNode.encode(topic.id, topic.assignments)),
            Create(TopicPartitionsNode.path(topic.name)),
        ]
        first = list(states.items())[:_BATCH]
        for key, state in first:
            operations += _creation(key, state)
        try:
            await self.write(operations)
        except UnknownOutcomeError:
            made = (await self.read_topics([topic.name])).get(topic.name)
            if made is None or made.id != topic.id:
                raise
        return {key for key, _ in first}

    async def create_states(
        self, states: Mapping[Partition, PartitionState]
    ) -> dict[Partition, PartitionView]:
        """Create the nodes of partitions that never had a leader. Returns the states that exist then."""
        await self._create_missing({TopicPartitionsNode.path(name) for name, _ in states})
        items = list(states.items())
        made: dict[Partition, PartitionView] = {}
        for at in range(0, len(items), _BATCH):
            part = items[at : at + _BATCH]
            try:
                await self.write([operation for item in part for operation in _creation(*item)])
            except (NodeExistsError, NoNodeError, UnknownOutcomeError):
                # An earlier controller has created some of them, or a topic is gone.
                await self._create_missing({TopicPartitionNode.path(*key) for key, _ in part})
                await self._create_states_one_by_one(part)
                made.update(await self.read_states([key for key, _ in part]))
            else:
                made.update({key: PartitionView(state, 0) for key, state in part})
        return made

    async def _create_states_one_by_one(self, part: Iterable[tuple[Partition, PartitionState]]) -> None:
        for key, state in part:
            path = TopicPartitionStateNode.path(*key)
            try:
                await self.write([Create(path, TopicPartitionStateNode.encode(state))])
            except (NodeExistsError, NoNodeError):
                continue

    async def _create_missing(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            if not await self._store.exists(path):
                try:
                    await self.write([Create(path)])
                except (NodeExistsError, NoNodeError):
                    continue

    async def set_assignments(self, topic: Topic, changed: Mapping[int, Assignment]) -> None:
        """Write assignments of some of a topic's partitions, which may be new.

        Raises BadVersionError if another process has changed the topic, ControllerMovedError, StoreError.
        """
        assignments = {**topic.assignments, **changed}
        path, data = TopicNode.path(topic.name), TopicNode.encode(topic.id, assignments)
        try:
            await self.write([Set(path, data, topic.version)])
        except UnknownOutcomeError:
            if await self._store.get(path) != (data, topic.version + 1):
                raise
        topic.version += 1
        topic.assignments = assignments

    async def give_id(self, topic: Topic) -> None:
        """Write an id for a topic without one.

        The id is derived from the topic's name and the transaction that created it, so that retries write the same.

        Raises BadVersionError, NoNodeError, ControllerMovedError, StoreError.
        """
        path = TopicNode.path(topic.name)
        made = await self._store.created_at(path)
        raw = bytearray(sha256(f"{made} {topic.name}".encode()).digest()[:16])
        # A UUID of version 8 (custom) whose base64 doesn't begin with a dash.
        raw[0] &= 0x7F
        raw[6] = raw[6] & 0x0F | 0x80
        raw[8] = raw[8] & 0x3F | 0x80
        chosen = bytes(raw)
        await self.write([Set(path, TopicNode.encode(chosen, topic.assignments), topic.version)])
        topic.version += 1
        topic.id = chosen

    async def request_deletion(self, name: str) -> None:
        """Request a topic's deletion, of this controller and of later ones."""
        try:
            await self.write([Create(DeleteTopicNode.path(name))])
        except NodeExistsError:
            return

    async def remove_topic(self, topic: Topic) -> None:
        """Remove a topic's nodes; its config and the request to delete it come last."""
        name = topic.name
        paths = [
            path
            for index in topic.assignments
            for path in (TopicPartitionStateNode.path(name, index), TopicPartitionNode.path(name, index))
        ]
        paths += [
            TopicPartitionsNode.path(name),
            TopicNode.path(name),
            ConfigNode.path(ConfigNode.TOPICS, name),
            DeleteTopicNode.path(name),
        ]
        for at in range(0, len(paths), _BATCH):
            part = paths[at : at + _BATCH]
            try:
                await self.write([Delete(path) for path in part])
            except (NoNodeError, NotEmptyError):
                for path in part:
                    await self.remove_node(path)

    async def remove_node(self, path: str) -> None:
        """Remove a node, and all below it, which only other processes can have left there."""
        try:
            await self.write([Delete(path)])
        except NoNodeError:
            return
        except NotEmptyError:
            for name in await self.children(path):
                await self.remove_node(f"{path}/{name}")
            await self.write([Delete(path)])

    async def read_node(self, path: str) -> bytes | None:
        """A node's data, or None if it doesn't exist."""
        try:
            return (await self._store.get(path))[0]
        except NoNodeError:
            return None


def _creation(partition: Partition, state: PartitionState) -> list[Operation]:
    return [
        Create(TopicPartitionNode.path(*partition)),
        Create(TopicPartitionStateNode.path(*partition), TopicPartitionStateNode.encode(state)),
    ]
