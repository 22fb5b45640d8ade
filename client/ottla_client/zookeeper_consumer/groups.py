"""What ZooKeeper says about groups, for tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..types import TopicPartition
from . import paths
from .registry import Registry
from .zookeeper import ZooKeeper

_OF_GROUPS = frozenset({"ids", "owners", "offsets"})


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


async def groups_in(registry: Registry) -> dict[str, list[str]]:
    """The groups that have nodes in ZooKeeper, with the ids of their members."""
    groups = {}
    for name in await registry.children(paths.CONSUMERS):
        if _OF_GROUPS.intersection(await registry.children(f"{paths.CONSUMERS}/{name}")):
            groups[name] = await members_of(registry, name)
    return groups


async def members_of(registry: Registry, group_id: str) -> list[str]:
    """The ids of a group's members."""
    return await registry.children(paths.members(group_id))


async def partitions_of(registry: Registry, group_id: str) -> list[TopicPartition]:
    """The partitions for which a group has offsets in ZooKeeper."""
    top = f"{paths.CONSUMERS}/{group_id}/offsets"
    return [
        TopicPartition(topic, int(number))
        for topic in await registry.children(top)
        for number in await registry.children(f"{top}/{topic}")
        if number.isdecimal()
    ]
