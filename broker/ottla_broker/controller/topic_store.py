"""Topics in the store: reading them, and the operations that create, extend and remove one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla_broker.config.topics import check_topic_config
from ottla_broker.events import get_logger
from ottla_broker.store.api import Create, Delete, NoNodeError, Operation, Set, Store
from ottla_broker.store.keys import (
    Assignment,
    ConfigNode,
    DeleteTopicNode,
    LastEpochNode,
    PartitionState,
    TopicNode,
    TopicPartitionNode,
    TopicPartitionsNode,
    TopicPartitionStateNode,
)
from ottla_broker.tasks import unhurried

_log = get_logger()

_PORTION = 250
"""Partitions whose nodes are looked at before others get their turn on the event loop."""


@dataclass(slots=True)
class StoredTopic:
    """A topic in the store. Partitions that never had a leader have no state."""

    name: str
    topic_id: bytes | None
    assignments: dict[int, Assignment]
    states: dict[int, PartitionState]
    configs: dict[str, str]

    @property
    def highest_epoch(self) -> int:
        return max((state.leader_epoch for state in self.states.values()), default=-1)


class StateCodec:
    """Encodes and decodes partitions' states, each distinct one once: thousands are equal."""

    def __init__(self) -> None:
        self._decoded: dict[bytes, PartitionState] = {}
        self._encoded: dict[tuple[int, int, tuple[int, ...], int], bytes] = {}

    def decode(self, path: str, data: bytes) -> PartitionState:
        state = self._decoded.get(data)
        if state is None:
            state = self._decoded[data] = TopicPartitionStateNode.decode(path, data)
        return state

    def encode(self, state: PartitionState) -> bytes:
        key = (state.leader, state.leader_epoch, tuple(state.isr), state.controller_epoch)
        data = self._encoded.get(key)
        if data is None:
            data = self._encoded[key] = TopicPartitionStateNode.encode(state)
        return data


async def read_configs(
    store: Store,
    kind: str,
    name: str,
    check: Callable[[str, str], None],
    decrypt: Callable[[Mapping[str, str]], Awaitable[Mapping[str, str]]] | None = None,
) -> dict[str, str]:
    """An entity's :func:`usable` settings; none if it has no node. ``decrypt`` makes passwords readable."""
    path = ConfigNode.path(kind, name)
    try:
        data, _ = await store.get(path)
    except NoNodeError:
        return {}
    settings: Mapping[str, str] = ConfigNode.decode(path, data)
    if decrypt is not None:
        settings = await decrypt(settings)
    return usable(path, settings, check)


def usable(path: str, settings: Mapping[str, str], check: Callable[[str, str], None]) -> dict[str, str]:
    """The settings of a node that can come into force: another version, or Kafka, may have written them.

    ``check`` raises ValueError for a name and value that can't.
    """
    found = {}
    for name, text in settings.items():
        try:
            check(name, text)
        except ValueError as error:
            _log.error("invalid setting ignored", node=path, reason=str(error))
        else:
            found[name] = text
    return found


async def read_topic(store: Store, name: str, codec: StateCodec) -> StoredTopic:
    """Raises BadNodeError for a node that can't be read, NoNodeError for a missing topic."""
    data, _ = await store.get(TopicNode.path(name))
    topic_id, assignments = TopicNode.decode(name, data)
    states = {}
    async for index in unhurried(assignments, _PORTION):
        path = TopicPartitionStateNode.path(name, index)
        try:
            data, _ = await store.get(path)
        except NoNodeError:
            continue
        states[index] = codec.decode(path, data)
    configs = await read_configs(store, ConfigNode.TOPICS, name, check_topic_config)
    return StoredTopic(name, topic_id, assignments, states, configs)


async def next_epoch(store: Store, name: str) -> int:
    """The leader epoch that a new topic starts with: higher than any of an earlier topic of that name."""
    try:
        data, _ = await store.get(LastEpochNode.path(name))
    except NoNodeError:
        return 0
    return LastEpochNode.decode(name, data) + 1


def creation(
    name: str, topic_id: bytes, assignments: Mapping[int, Sequence[int]], configs: Mapping[str, str]
) -> list[Operation]:
    """The nodes of a new topic, without its partitions."""
    return [
        Create(ConfigNode.path(ConfigNode.TOPICS, name), ConfigNode.encode(configs)),
        Create(TopicNode.path(name), _encode(topic_id, assignments)),
        Create(TopicPartitionsNode.path(name)),
    ]


def partition_creation(name: str, indexes: Iterable[int], state: bytes) -> list[Operation]:
    """The nodes of new partitions, all with the same state."""
    operations: list[Operation] = []
    for index in indexes:
        operations.append(Create(TopicPartitionNode.path(name, index)))
        operations.append(Create(TopicPartitionStateNode.path(name, index), state))
    return operations


def assignment_change(name: str, topic_id: bytes, assignments: Mapping[int, Sequence[int]]) -> Operation:
    return Set(TopicNode.path(name), _encode(topic_id, assignments))


def _encode(topic_id: bytes, assignments: Mapping[int, Sequence[int]]) -> bytes:
    return TopicNode.encode(
        topic_id, {index: Assignment(replicas) for index, replicas in assignments.items()}
    )


async def removal(store: Store, topic: StoredTopic) -> list[Operation]:
    """The operations that remove a topic and remember its leader epoch."""
    name = topic.name
    operations: list[Operation] = []
    async for index in unhurried(topic.assignments, _PORTION):
        paths = (TopicPartitionStateNode.path(name, index), TopicPartitionNode.path(name, index))
        operations += [Delete(path) for path in paths if await store.exists(path)]
    operations += [
        Delete(path)
        for path in (
            TopicPartitionsNode.path(name),
            TopicNode.path(name),
            ConfigNode.path(ConfigNode.TOPICS, name),
            DeleteTopicNode.path(name),
        )
        if await store.exists(path)
    ]
    path = LastEpochNode.path(name)
    last = LastEpochNode.encode(max(topic.highest_epoch, await next_epoch(store, name) - 1))
    operations.append(Set(path, last) if await store.exists(path) else Create(path, last))
    return operations


def config_change(exists: bool, kind: str, name: str, configs: Mapping[str, str]) -> Operation:
    path, data = ConfigNode.path(kind, name), ConfigNode.encode(configs)
    return Set(path, data) if exists else Create(path, data)
