"""The groups in ZooKeeper, for tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from ..types import TopicPartition
from . import paths
from .registry import Registry
from .zookeeper import ZooKeeper

_OF_GROUPS: Final = frozenset({"ids", "owners", "offsets"})
_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class GroupInZooKeeper:
    """A group as its nodes say it.

    Attributes:
        members: the ids of its consumers.
        owners: the streams that read partitions; a stream's name is a consumer's id and a number.
        offsets: what is committed in ZooKeeper.
        topics: those that consumers name, or own partitions of.
    """

    members: tuple[str, ...]
    owners: Mapping[TopicPartition, str]
    offsets: Mapping[TopicPartition, int]
    topics: frozenset[str]

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def of(self, member: str) -> frozenset[TopicPartition]:
        """The partitions that a consumer's streams own."""
        return frozenset(p for p, stream in self.owners.items() if paths.consumer_of(stream) == member)


@asynccontextmanager
async def connected(connect: str, timeout: float) -> AsyncIterator[Registry]:
    """A connection to ZooKeeper. Raises ConfigurationError, and ConnectError after ``timeout`` seconds."""
    milliseconds = max(1, round(timeout * 1000))
    zookeeper = ZooKeeper(connect, max(6_000, milliseconds), milliseconds)
    await zookeeper.open()
    try:
        yield zookeeper
    finally:
        await zookeeper.close()


async def read_group(registry: Registry, name: str) -> GroupInZooKeeper | None:
    """A group's nodes; None if it has none. Raises ZooKeeperError, and BadNodeError for a node that can't be read."""
    if not _OF_GROUPS.intersection(await registry.children(f"{paths.CONSUMERS}/{name}")):
        return None
    free = asyncio.Semaphore(_AT_ONCE)

    async def read(path: str) -> bytes | None:
        async with free:
            return await registry.read(path)

    async def below(kind: str) -> dict[TopicPartition, tuple[str, bytes]]:
        """The nodes of partitions; those that have gone meanwhile are left out."""
        named = {
            each: paths.of_partition(name, kind, each) for each in await _partitions(registry, name, kind)
        }
        data = await asyncio.gather(*map(read, named.values()))
        return {
            each: (path, found)
            for (each, path), found in zip(named.items(), data, strict=True)
            if found is not None
        }

    members = sorted(await members_of(registry, name))
    owners = {each: data.decode(errors="replace") for each, (_, data) in (await below("owners")).items()}
    offsets = {each: paths.read_offset(*node) for each, node in (await below("offsets")).items()}
    subscribed = await asyncio.gather(*(read(paths.member(name, each)) for each in members))
    topics = {each.topic for each in owners}
    for member, data in zip(members, subscribed, strict=True):
        if data is not None:
            topics |= _named_topics(paths.read_object(paths.member(name, member), data))
    return GroupInZooKeeper(tuple(members), owners, offsets, frozenset(topics))


def _named_topics(registration: Mapping[str, object]) -> set[str]:
    """The topics that a consumer names; patterns name none."""
    subscription = registration.get("subscription")
    if registration.get("pattern", "static") != "static" or not isinstance(subscription, dict):
        return set()
    return set(map(str, subscription))


async def read_groups(
    registry: Registry, wanted: Callable[[str], bool] = lambda _: True
) -> dict[str, GroupInZooKeeper]:
    """The groups that have nodes in ZooKeeper and are wanted. Raises ZooKeeperError, BadNodeError."""
    names = filter(wanted, await registry.children(paths.CONSUMERS))
    found = {name: await read_group(registry, name) for name in names}
    return {name: group for name, group in found.items() if group is not None}


async def members_of(registry: Registry, group_id: str) -> list[str]:
    return await registry.children(paths.members(group_id))


async def partitions_of(registry: Registry, group_id: str) -> list[TopicPartition]:
    """The partitions for which a group has offsets in ZooKeeper."""
    return await _partitions(registry, group_id, "offsets")


async def _partitions(registry: Registry, group_id: str, kind: str) -> list[TopicPartition]:
    top = f"{paths.CONSUMERS}/{group_id}/{kind}"
    return [
        TopicPartition(topic, int(number))
        for topic in await registry.children(top)
        for number in await registry.children(f"{top}/{topic}")
        if number.isascii() and number.isdecimal() and len(number) <= paths.LONGEST_PARTITION
    ]
