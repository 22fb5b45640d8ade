"""Finds topics that were deleted, and replicas that moved away, while this broker was unreachable.

The controller sends a broker that comes back everything that exists, but announces a deletion only once, to the brokers
that are reachable then. A restarted process has no memory of the topic. A process that was frozen or cut off would keep
naming the topic to clients and following the replica, and could not host a new topic of that name. Kafka's brokers do
so until they are restarted; an Ottla broker compares its state with the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla_broker.controller.cluster.persistence import ClusterStore
from ottla_broker.events import get_logger
from ottla_broker.replica.partition import Partition
from ottla_broker.store.keys import BadNodeError, TopicNode
from ottla_protocol.schema import ZERO_UUID

_log = get_logger()


class Assigned(NamedTuple):
    """A topic in the store; the id is ZERO_UUID if the topic was created before Kafka 2.8."""

    topic_id: bytes
    replicas: Mapping[int, Sequence[int]]


async def deleted(store: ClusterStore, topics: Iterable[str]) -> list[str]:
    """The topics that no longer exist. Raises StoreError."""
    known = list(topics)
    existing = set(await store.children(TopicNode.PARENT)) if known else ()
    return [name for name in known if name not in existing]


async def strays(store: ClusterStore, broker_id: int, partitions: Iterable[Partition]) -> list[Partition]:
    """The partitions whose replica on this broker is no longer assigned. Raises StoreError."""
    here = list(partitions)
    topics = await _read(store, {partition.topic for partition in here})
    return [
        partition
        for partition in here
        if partition.topic in topics and not _has(topics[partition.topic], broker_id, partition)
    ]


def _has(topic: Assigned | None, broker_id: int, partition: Partition) -> bool:
    if topic is None:
        return False
    ids = (topic.topic_id, partition.topic_id)
    return (ids[0] == ids[1] or ZERO_UUID in ids) and broker_id in topic.replicas.get(partition.partition, ())


async def _read(store: ClusterStore, names: Iterable[str]) -> dict[str, Assigned | None]:
    """Topics by name, None for a missing one. A topic that can't be read is left out."""
    wanted = list(names)
    found: dict[str, Assigned | None] = {}
    for name, node in zip(wanted, await store.get_many([*map(TopicNode.path, wanted)]), strict=True):
        if node is None:
            found[name] = None
            continue
        try:
            topic_id, assignments = TopicNode.decode(name, node[0])
        except BadNodeError as error:
            _log.error("a topic can't be read", topic=name, reason=str(error))
            continue
        found[name] = Assigned(
            topic_id or ZERO_UUID, {index: each.replicas for index, each in assignments.items()}
        )
    return found
