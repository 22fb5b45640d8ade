"""What the 2012 coordinator reads and writes in the store: topics, and groups' owners and offsets.

::

    /brokers/topics/TOPIC --> {"partitions": ...}
    /consumers/GROUP/owners/TOPIC/PARTITION --> CONSUMER-STREAM   (persistent)
    /consumers/GROUP/offsets/TOPIC/PARTITION --> offset            (persistent)
    /consumers/GROUP/ids/CONSUMER --> ...                          (of ZooKeeper consumers, which hold the group)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla_broker.coordinator.push.assignment import TopicPartition
from ottla_broker.events import get_logger
from ottla_broker.store.api import Create, Delete, NodeExistsError, NoNodeError, NotEmptyError, Operation, Set
from ottla_broker.store.keys import BadNodeError, ConsumerOffsetNode, ConsumerOwnerNode, TopicNode

if TYPE_CHECKING:
    from ottla_broker.store.api import Store

_log = get_logger()

_PIECE: Final = 200
"""How many nodes one transaction writes, or are read before other callbacks get their turn."""


class GroupNodes:
    """Reads and writes the nodes. Owned by the loop thread. Every method raises StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def topics(self) -> list[str]:
        """The names of all topics."""
        return await self._children(TopicNode.PARENT)

    async def partitions(self, topic: str) -> list[int]:
        """A topic's partitions; none for one that doesn't exist yet, or whose node is malformed."""
        try:
            data, _ = await self._store.get(TopicNode.path(topic))
            return sorted(TopicNode.decode(topic, data)[1])
        except NoNodeError:
            return []
        except BadNodeError as error:
            _log.error("a topic is left out of consumer groups: its node is malformed", reason=str(error))
            return []

    async def zookeeper_members(self, group_id: str) -> list[str]:
        """The group's consumers that coordinate in ZooKeeper by themselves."""
        return await self._children(f"/consumers/{group_id}/ids")

    async def owners(self, group_id: str) -> dict[TopicPartition, str | None]:
        """The registered ownership; None for a node that names no owner."""
        found: dict[TopicPartition, str | None] = {}
        top = f"/consumers/{group_id}/owners"
        for topic in await self._children(top):
            for name in await self._children(f"{top}/{topic}"):
                path = f"{top}/{topic}/{name}"
                if not name.isdecimal():
                    _log.warning("a node among a group's owners is ignored: it names no partition", path=path)
                    continue
                with suppress(NoNodeError):
                    found[topic, int(name)] = await self._owner(path)
                if len(found) % _PIECE == 0:
                    await asyncio.sleep(0)
        return found

    async def _owner(self, path: str) -> str | None:
        data, _ = await self._store.get(path)
        try:
            return ConsumerOwnerNode.decode(path, data)
        except BadNodeError as error:
            _log.warning("an owner is not known: its node is malformed", reason=str(error))
            return None

    async def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], list[TopicPartition]]:
        """The stored offsets, without partitions that have none; and the partitions whose nodes are malformed."""
        found: dict[TopicPartition, int] = {}
        malformed = []
        for count, (topic, partition) in enumerate(partitions):
            path = ConsumerOffsetNode.path(group_id, topic, partition)
            try:
                data, _ = await self._store.get(path)
                found[topic, partition] = ConsumerOffsetNode.decode(path, data)
            except NoNodeError:
                pass
            except BadNodeError as error:
                _log.error(
                    "a partition is not read: its offset is malformed; set the node to a number, or delete it",
                    group=group_id,
                    reason=str(error),
                )
                malformed.append((topic, partition))
            if count % _PIECE == _PIECE - 1:
                await asyncio.sleep(0)
        return found, malformed

    async def store_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        await self._write(
            {
                ConsumerOffsetNode.path(group_id, topic, partition): ConsumerOffsetNode.encode(offset)
                for (topic, partition), offset in offsets.items()
            }
        )

    async def store_owners(
        self,
        group_id: str,
        owners: Mapping[TopicPartition, str],
        before: Mapping[TopicPartition, str | None],
    ) -> None:
        """Make the registered ownership, which was ``before``, the new one."""
        gone = [ConsumerOwnerNode.path(group_id, *each) for each in before.keys() - owners.keys()]
        for start in range(0, len(gone), _PIECE):
            await self._delete(gone[start : start + _PIECE])
        changed = {
            ConsumerOwnerNode.path(group_id, *each): owner.encode()
            for each, owner in owners.items()
            if before.get(each) != owner
        }
        await self._write(changed)

    async def remove_owners(self, group_id: str) -> None:
        """Delete the group's ownership, when its last consumer has gone."""
        before = await self.owners(group_id)
        if not before:
            return
        await self.store_owners(group_id, {}, before)
        top = f"/consumers/{group_id}/owners"
        with suppress(NoNodeError, NotEmptyError):
            for topic in {topic for topic, _ in before}:
                await self._store.delete(f"{top}/{topic}")
            await self._store.delete(top)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNodeError:
            return []

    async def _write(self, nodes: Mapping[str, bytes]) -> None:
        """Set or create nodes, many in one transaction; others may create and delete them meanwhile."""
        for parent in {path.rpartition("/")[0] for path in nodes}:
            if not await self._store.exists(parent):
                with suppress(NodeExistsError):
                    await self._store.create(parent, parents=True)
        paths = sorted(nodes)
        for start in range(0, len(paths), _PIECE):
            piece = paths[start : start + _PIECE]
            existing = {path for path in piece if await self._store.exists(path)}
            operations: list[Operation] = [
                Set(path, nodes[path]) if path in existing else Create(path, nodes[path]) for path in piece
            ]
            try:
                await self._store.transaction(operations)
            except (NoNodeError, NodeExistsError):
                for path in piece:
                    await self._write_one(path, nodes[path])

    async def _write_one(self, path: str, data: bytes) -> None:
        while True:
            try:
                await self._store.set(path, data)
                return
            except NoNodeError:
                pass
            with suppress(NodeExistsError):
                await self._store.create(path, data, parents=True)
                return

    async def _delete(self, paths: list[str]) -> None:
        try:
            await self._store.transaction([Delete(path) for path in paths])
        except NoNodeError:
            for path in paths:
                with suppress(NoNodeError):
                    await self._store.delete(path)
