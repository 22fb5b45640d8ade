"""Reads and writes the 2012 coordinator's nodes in the store: topics, and groups' owners and offsets.

::

    /brokers/topics/TOPIC --> {"partitions": ...}
    /consumers/GROUP/owners/TOPIC/PARTITION --> CONSUMER-STREAM   (persistent)
    /consumers/GROUP/offsets/TOPIC/PARTITION --> offset            (persistent)
    /consumers/GROUP/ids/CONSUMER --> ...                          (of ZooKeeper consumers, which hold the group)
    /ottla/coordinated/GROUP --> broker                            (ephemeral: this coordinator holds the group)
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, TypeVar

from ottla_broker.coordinator.push.assignment import TopicPartition
from ottla_broker.events import get_logger
from ottla_broker.store.api import (
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    Store,
    children_of,
)
from ottla_broker.store.keys import (
    BadNodeError,
    ConsumerIdsNode,
    ConsumerOffsetNode,
    ConsumerOwnerNode,
    CoordinatedGroupNode,
    TopicNode,
    decimal,
)

_log = get_logger()
_T = TypeVar("_T")

_PIECE: Final = 200
"""How many nodes one transaction writes, or are read at once."""


def consumer_of(owner: str | None) -> str:
    """The id of the consumer that has a stream, which an owner's node names; "" without a name."""
    return (owner or "").rpartition("-")[0]


class GroupNodes:
    """Reads and writes the nodes. Owned by the loop thread. Every method raises StoreError."""

    def __init__(self, store: Store, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._claimed: set[str] = set()

    # Which groups this coordinator holds

    async def claim(self, group_id: str) -> None:
        """Show other brokers and ZooKeeper consumers that this coordinator has the group's consumers."""
        path = CoordinatedGroupNode.path(group_id)
        while group_id not in self._claimed:
            try:
                await self._store.create(
                    path, CoordinatedGroupNode.encode(self._broker_id), ephemeral=True, parents=True
                )
                self._claimed.add(group_id)
            except NodeExistsError:
                # Of a coordinator before this one, or of this broker's last session.
                with suppress(NoNodeError):
                    await self._store.delete(path)

    async def release(self, group_id: str) -> None:
        """The group has no consumers at this coordinator."""
        if group_id not in self._claimed:
            return
        path = CoordinatedGroupNode.path(group_id)
        with suppress(NoNodeError):
            data, _ = await self._store.get(path)
            # Otherwise the next coordinator holds it already.
            if data == CoordinatedGroupNode.encode(self._broker_id):
                await self._store.delete(path)
        self._claimed.discard(group_id)

    async def release_all(self) -> None:
        """This broker is no longer the coordinator."""
        for piece in _pieces(tuple(self._claimed)):
            await asyncio.gather(*map(self.release, piece))

    def forget_claims(self) -> None:
        """Forget the claims that are left: they go with the session."""
        self._claimed.clear()

    # Topics and groups

    async def topics(self) -> list[str]:
        return await children_of(self._store, TopicNode.PARENT)

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

    async def groups(self) -> list[str]:
        """All groups with nodes, whose consumers may coordinate in another way."""
        return await children_of(self._store, ConsumerIdsNode.PARENT)

    async def zookeeper_members(self, group_id: str) -> list[str]:
        """The group's consumers that coordinate in ZooKeeper by themselves."""
        return await children_of(self._store, ConsumerIdsNode.path(group_id))

    async def owners(self, group_id: str) -> dict[TopicPartition, str | None]:
        """The registered ownership; None for a node that names no owner."""
        paths: dict[TopicPartition, str] = {}
        top = f"/consumers/{group_id}/owners"
        for topic in await children_of(self._store, top):
            for name in await children_of(self._store, f"{top}/{topic}"):
                path = f"{top}/{topic}/{name}"
                number = decimal(name)
                if number is not None:
                    paths[topic, number] = path
                else:
                    _log.warning("a node among a group's owners is ignored: it names no partition", path=path)
        found: dict[TopicPartition, str | None] = {}
        for piece in _pieces(paths.items()):
            nodes = await self._read([path for _, path in piece])
            for (partition, path), data in zip(piece, nodes, strict=True):
                if data is not None:
                    found[partition] = _owner(path, data)
        return found

    async def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], list[TopicPartition]]:
        """The stored offsets, without partitions that have none; and the partitions whose nodes are malformed."""
        found: dict[TopicPartition, int] = {}
        malformed = []
        for piece in _pieces(partitions):
            paths = [ConsumerOffsetNode.path(group_id, *each) for each in piece]
            for partition, path, data in zip(piece, paths, await self._read(paths), strict=True):
                try:
                    if data is not None:
                        found[partition] = ConsumerOffsetNode.decode(path, data)
                except BadNodeError as error:
                    _log.error(
                        "a partition is not read: its offset is malformed; set the node to a number, or delete it",
                        group=group_id,
                        reason=str(error),
                    )
                    malformed.append(partition)
        return found, malformed

    async def _read(self, paths: Sequence[str]) -> list[bytes | None]:
        """The data of nodes, None for those that don't exist. The requests are sent together."""

        async def read(path: str) -> bytes | None:
            try:
                return (await self._store.get(path))[0]
            except NoNodeError:
                return None

        return await asyncio.gather(*map(read, paths))

    async def store_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        paths = {
            ConsumerOffsetNode.path(group_id, topic, partition): ConsumerOffsetNode.encode(offset)
            for (topic, partition), offset in offsets.items()
        }
        for piece in _pieces(paths.items()):
            there = await asyncio.gather(*(self._store.exists(path) for path, _ in piece))
            existing = {path for (path, _), exists in zip(piece, there, strict=True) if exists}
            await self._write(dict(piece), existing)

    async def store_owners(
        self,
        group_id: str,
        owners: Mapping[TopicPartition, str],
        before: Mapping[TopicPartition, str | None],
    ) -> None:
        """Make the registered ownership, which was ``before``, the new one."""
        gone = [ConsumerOwnerNode.path(group_id, *each) for each in before.keys() - owners.keys()]
        for paths in _pieces(gone):
            await self._delete(paths)
        existing = {ConsumerOwnerNode.path(group_id, *each) for each in before}
        changed = {
            ConsumerOwnerNode.path(group_id, *each): owner.encode()
            for each, owner in owners.items()
            if before.get(each) != owner
        }
        for piece in _pieces(changed.items()):
            await self._write(dict(piece), existing)

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

    async def remove_owners_that_left(self, group_id: str) -> int:
        """Delete owners that are no ZooKeeper consumers of the group; returns how many there were."""
        before = await self.owners(group_id)
        if not before:
            return 0
        # Read afterwards: a consumer registers before it owns anything.
        here = set(await self.zookeeper_members(group_id))
        removed = 0
        for partition, owner in before.items():
            if consumer_of(owner) not in here:
                path = ConsumerOwnerNode.path(group_id, *partition)
                with suppress(NoNodeError):
                    data, version = await self._store.get(path)
                    if owner is None or data == owner.encode():
                        await self._store.delete(path, version)
                        removed += 1
        return removed

    async def _write(self, nodes: Mapping[str, bytes], existing: Collection[str]) -> None:
        """Set or create nodes in one transaction; others may create and delete them meanwhile."""
        for parent in {path.rpartition("/")[0] for path in nodes if path not in existing}:
            if not await self._store.exists(parent):
                with suppress(NodeExistsError):
                    await self._store.create(parent, parents=True)
        operations: list[Operation] = [
            Set(path, data) if path in existing else Create(path, data)
            for path, data in sorted(nodes.items())
        ]
        try:
            await self._store.transaction(operations)
        except (NoNodeError, NodeExistsError):
            for path, data in nodes.items():
                await self._write_one(path, data)

    async def _write_one(self, path: str, data: bytes) -> None:
        while True:
            try:
                await self._store.set(path, data)
                return
            except NoNodeError:
                pass  # created below, unless another broker is quicker
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


def _owner(path: str, data: bytes) -> str | None:
    try:
        return ConsumerOwnerNode.decode(path, data)
    except BadNodeError as error:
        _log.warning("an owner is not known: its node is malformed", reason=str(error))
        return None


def _pieces(items: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(items)
    while piece := list(islice(rest, _PIECE)):
        yield piece
