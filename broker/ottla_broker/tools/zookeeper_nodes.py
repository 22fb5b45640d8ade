"""Kafka's nodes in ZooKeeper, read as a whole, and written into one that is empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla_broker.store.api import Create, Operation, StoreError, children_of
from ottla_broker.store.keys import (
    DEFAULT_ENTITY,
    BadNodeError,
    ClusterIdNode,
    ConfigNode,
    ControllerEpochNode,
    DeleteTopicNode,
    ProducerIdBlockNode,
    TopicNode,
    TopicPartitionStateNode,
)
from ottla_broker.store.zookeeper import ZooKeeperSettings, ZooKeeperStore
from ottla_broker.tools.data_folders import DataFolderError
from ottla_broker.tools.known_topics import SECRETS

_TIMEOUT_MS: Final = 15_000
_NODES_AT_ONCE: Final = 200
"""Nodes of one transaction: small enough for ZooKeeper's limit of 1 MiB, with Kafka's small nodes."""
_BYTES_AT_ONCE: Final = 500_000


async def _open(address: str) -> ZooKeeperStore:
    try:
        return await ZooKeeperStore.open(
            ZooKeeperSettings(address, session_timeout_ms=_TIMEOUT_MS, connection_timeout_ms=_TIMEOUT_MS)
        )
    except (StoreError, ValueError) as error:
        raise DataFolderError(f"ZooKeeper at {address}: {error}") from error


async def read_nodes(address: str, broker_id: int) -> dict[str, bytes]:
    """The nodes that say what a broker has. ``address`` is ``HOST:PORT,…/path``. Raises DataFolderError."""
    store = await _open(address)
    try:
        return await _read(store, broker_id)
    except (StoreError, BadNodeError) as error:
        raise DataFolderError(f"ZooKeeper at {address}: {error}") from error
    finally:
        await store.close()


async def _read(store: ZooKeeperStore, broker_id: int) -> dict[str, bytes]:
    nodes: dict[str, bytes] = {}

    async def read(paths: list[str]) -> None:
        for path, found in zip(paths, await store.get_many(paths), strict=True):
            if found is not None:
                nodes[path] = found[0]

    topics = await children_of(store, TopicNode.PARENT)
    await read(
        [
            ClusterIdNode.PATH,
            ControllerEpochNode.PATH,
            ProducerIdBlockNode.PATH,
            *(ConfigNode.path(ConfigNode.BROKERS, entity) for entity in (DEFAULT_ENTITY, str(broker_id))),
            *(TopicNode.path(name) for name in topics),
            *(ConfigNode.path(ConfigNode.TOPICS, name) for name in topics),
        ]
    )
    states = []
    for name in topics:
        path = TopicNode.path(name)
        if path in nodes:
            states += [
                TopicPartitionStateNode.path(name, index) for index in TopicNode.decode(name, nodes[path])[1]
            ]
    if states:
        await read(states)
    for parent in (DeleteTopicNode.PARENT, *SECRETS):
        nodes.update(dict.fromkeys([f"{parent}/{name}" for name in await children_of(store, parent)], b""))
    return nodes


async def write_nodes(address: str, cluster_id: str, nodes: Mapping[str, bytes], *, dry_run: bool) -> None:
    """Create nodes in a ZooKeeper that has no topics yet; ``dry_run`` only checks that it is so.

    Raises DataFolderError: it has topics, or belongs to another cluster.
    """
    store = await _open(address)
    try:
        if await children_of(store, TopicNode.PARENT):
            raise DataFolderError(
                f"ZooKeeper at {address} has topics already; name one without, or another path, as in "
                "HOST:PORT/path"
            )
        if await store.exists(ClusterIdNode.PATH):
            known = ClusterIdNode.decode((await store.get(ClusterIdNode.PATH))[0])
            if known != cluster_id:
                raise DataFolderError(
                    f"ZooKeeper at {address} belongs to cluster {known}, the folder to {cluster_id}; name one "
                    "that no cluster has used, or another path, as in HOST:PORT/path"
                )
        if not dry_run:
            await _write(store, nodes)
    except (StoreError, BadNodeError) as error:
        raise DataFolderError(f"ZooKeeper at {address}: {error}") from error
    finally:
        await store.close()


async def _write(store: ZooKeeperStore, nodes: Mapping[str, bytes]) -> None:
    """Topics come last, so that a write that was cut short can be done again."""
    batch: list[Operation] = []
    size = 0
    for path in sorted(nodes, key=lambda path: (path.startswith(TopicNode.PARENT + "/"), path)):
        if await store.exists(path):
            continue
        batch.append(Create(path, nodes[path]))
        size += len(path) + len(nodes[path])
        if len(batch) == _NODES_AT_ONCE or size > _BYTES_AT_ONCE:
            await store.transaction(batch)
            batch, size = [], 0
    if batch:
        await store.transaction(batch)
