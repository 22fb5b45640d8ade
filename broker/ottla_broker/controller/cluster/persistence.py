"""The controller's reading and writing of the store.

Every write goes with a check of the controller epoch's version, so that one that has been replaced can't write
(Kafka: ``KafkaZkClient.setOrCreatePartition…``, ``ControllerZkUtils``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from ottla_broker.controller.cluster.context import (
    Context,
    Partition,
    PartitionView,
    RegisteredBroker,
    Topic,
)
from ottla_broker.events import get_logger
from ottla_broker.store.api import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    Store,
    StoreError,
    UnknownOutcomeError,
)
from ottla_broker.store.keys import (
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
)

log = get_logger()

# Partitions whose states are written in one transaction, and transactions under way at once.
_BATCH: Final = 100
_AT_ONCE: Final = 8


class ClusterStore(Store, Protocol):
    """A store that is shared with other brokers."""

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]: ...

    async def created_at(self, path: str) -> int | None: ...


class Deposed(Exception):
    """Another broker is the controller now: the epoch in the store has moved on."""


class Persistence:
    """Reads and writes for one controller, in its epoch."""

    def __init__(self, store: ClusterStore, context: Context) -> None:
        self._store = store
        self._context = context

    # ---- reading

    async def read_brokers(self) -> dict[int, RegisteredBroker]:
        """All registered brokers. One whose node can't be read is left out, with a line in the log."""
        ids = [int(name) for name in await self._store.children(BrokerIdNode.PARENT) if name.isdigit()]
        found: dict[int, RegisteredBroker] = {}

        async def one(broker: int) -> None:
            path = BrokerIdNode.path(broker)
            try:
                epoch = await self._store.created_at(path)
                data, _ = await self._store.get(path)
                if epoch is not None:
                    found[broker] = RegisteredBroker(broker, epoch, BrokerIdNode.decode(broker, data))
            except NoNodeError:
                return  # gone meanwhile; the watch tells
            except BadNodeError as error:
                log.error("a broker's registration can't be read", broker=broker, reason=str(error))

        await asyncio.gather(*map(one, ids))
        return found

    async def read_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Topics with the states of their partitions. What can't be read is left out, with a line in the log."""
        wanted = list(names)
        topics: dict[str, Topic] = {}
        nodes = await self._store.get_many([TopicNode.path(name) for name in wanted])
        for name, node in zip(wanted, nodes, strict=True):
            if node is None:
                continue
            try:
                topic_id, assignments = TopicNode.decode(name, node[0])
            except BadNodeError as error:
                log.error("a topic can't be read", topic=name, reason=str(error))
                continue
            topics[name] = Topic(name, topic_id, assignments, node[1])
        keys = [(name, index) for name, topic in topics.items() for index in topic.assignments]
        for (name, index), view in (await self.read_states(keys)).items():
            topics[name].partitions[index] = view
        return topics

    async def read_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionView]:
        """The states that there are."""
        paths = [TopicPartitionStateNode.path(*partition) for partition in partitions]
        found: dict[Partition, PartitionView] = {}
        for partition, path, node in zip(partitions, paths, await self._store.get_many(paths), strict=True):
            if node is None:
                continue
            try:
                found[partition] = PartitionView(TopicPartitionStateNode.decode(path, node[0]), node[1])
            except BadNodeError as error:
                log.error("a partition's state can't be read", path=path, reason=str(error))
        return found

    async def read_deletions(self) -> set[str]:
        return set(await self._store.children(DeleteTopicNode.PARENT))

    # ---- writing

    def _checked(self, operations: Iterable[Operation]) -> list[Operation]:
        return [Check(ControllerEpochNode.PATH, self._context.epoch_version), *operations]

    async def write(self, operations: Sequence[Operation]) -> None:
        """One transaction. Raises Deposed, StoreError."""
        try:
            await self._store.transaction(self._checked(operations))
        except BadVersionError as error:
            await self._check_epoch(error)
            raise

    async def _check_epoch(self, error: StoreError) -> None:
        """Raise Deposed if that is why a write failed."""
        _, version = await self._store.get(ControllerEpochNode.PATH)
        if version != self._context.epoch_version:
            raise Deposed("the controller epoch has moved on") from error

    async def write_states(
        self, states: Mapping[Partition, tuple[PartitionState, int]]
    ) -> dict[Partition, PartitionView]:
        """Change partitions' states, each if its node has the version that goes with it.

        Returns what the store has now of those that were changed; the others had been changed by somebody else, or
        are gone. Raises Deposed, StoreError.
        """
        items = list(states.items())
        gate = asyncio.Semaphore(_AT_ONCE)
        written: dict[Partition, PartitionView] = {}

        async def some(part: list[tuple[Partition, tuple[PartitionState, int]]]) -> None:
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
                except UnknownOutcomeError:
                    now = await self.read_states([key for key, _ in part])
                    ours = {key: PartitionView(state, version + 1) for key, (state, version) in part}
                    written.update({key: view for key, view in now.items() if view == ours[key]})
                    return
                else:
                    written.update({key: PartitionView(state, version + 1) for key, (state, version) in part})
                    return
            # One of them was in the way of all: each by itself.
            await asyncio.gather(*(some([item]) for item in part))

        await asyncio.gather(*(some(items[at : at + _BATCH]) for at in range(0, len(items), _BATCH)))
        return written

    async def create_states(
        self, states: Mapping[Partition, PartitionState]
    ) -> dict[Partition, PartitionView]:
        """Make the nodes of partitions that were never led. Returns those that were made."""
        await self._create_missing({TopicPartitionsNode.path(name) for name, _ in states})
        items = list(states.items())
        made: dict[Partition, PartitionView] = {}
        for at in range(0, len(items), _BATCH):
            part = items[at : at + _BATCH]
            operations: list[Operation] = []
            for key, state in part:
                operations.append(Create(TopicPartitionNode.path(*key)))
                operations.append(
                    Create(TopicPartitionStateNode.path(*key), TopicPartitionStateNode.encode(state))
                )
            try:
                await self.write(operations)
            except (NodeExistsError, UnknownOutcomeError):
                # A controller before this one got that far.
                await self._create_missing({TopicPartitionNode.path(*key) for key, _ in part})
                for key, state in part:
                    path = TopicPartitionStateNode.path(*key)
                    try:
                        await self.write([Create(path, TopicPartitionStateNode.encode(state))])
                    except NodeExistsError:
                        continue
            made.update(await self.read_states([key for key, _ in part]))
        return made

    async def _create_missing(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            if not await self._store.exists(path):
                try:
                    await self.write([Create(path)])
                except NodeExistsError:
                    continue

    async def set_assignments(self, topic: Topic) -> None:
        """Write a topic's assignments as they are in memory. Raises BadVersionError, Deposed, StoreError."""
        data = TopicNode.encode(topic.id, topic.assignments)
        await self.write([Set(TopicNode.path(topic.name), data, topic.version)])
        topic.version += 1

    async def remove_topic(self, topic: Topic) -> None:
        """Take a topic out of the store, its configuration and the order to delete it last."""
        for index in topic.assignments:
            for path in (
                TopicPartitionStateNode.path(topic.name, index),
                TopicPartitionNode.path(topic.name, index),
            ):
                await self._delete(path)
        for path in (
            TopicPartitionsNode.path(topic.name),
            TopicNode.path(topic.name),
            ConfigNode.path(ConfigNode.TOPICS, topic.name),
            DeleteTopicNode.path(topic.name),
        ):
            await self._delete(path)

    async def forget_deletion(self, name: str) -> None:
        """The order to delete a topic that isn't there."""
        await self._delete(DeleteTopicNode.path(name))

    async def _delete(self, path: str) -> None:
        try:
            await self.write([Delete(path)])
        except NoNodeError:
            return
