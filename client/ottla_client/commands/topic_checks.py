"""Checks that a command's topics exist, made before anything else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from ottla_protocol.errors import ErrorCode
from ottla_protocol.printable import printable

from ..deadline import Deadline
from .console import Console, unknown_topic

if TYPE_CHECKING:
    from ..cluster import Cluster
    from ..settings import ConnectionSettings


@asynccontextmanager
async def _cluster(console: Console, settings: type[ConnectionSettings]) -> AsyncIterator[Cluster]:
    """The cluster; ``settings`` belong to the client that the command makes with the same options."""
    from ..cluster import Cluster
    from ..settings import ConnectionSettings

    options = console.settings.of(ConnectionSettings, [settings])
    cluster = Cluster(options.pop("bootstrap_servers"), ConnectionSettings(**options))
    try:
        await cluster.start(Deadline(console.settings.connect_timeout))
        yield cluster
    finally:
        await cluster.close()


async def require_topics(
    console: Console,
    settings: type[ConnectionSettings],
    names: Collection[str],
    partition: int | None = None,
    *,
    hint: str = "",
) -> None:
    """Raises click.ClickException for an unknown topic, with a suggestion, or an unknown partition; BootstrapError.

    ``hint`` ends what is said of an unknown topic that is like no other.
    """
    async with _cluster(console, settings) as cluster:
        deadline = Deadline(console.timeout)
        topics = await cluster.fetch_topics(names, deadline)
        for name in names:
            topic = topics.get(name)
            if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                known = await cluster.fetch_topics(None, deadline)
                said = unknown_topic(name, known).message
                raise click.ClickException(said if said.endswith("?") else said + hint)
            if topic.error == ErrorCode.INVALID_TOPIC_EXCEPTION and re.fullmatch(r"[^:]+:\d+", name):
                topic_name, number = name.split(":")
                raise click.ClickException(
                    f"{printable(name)!r} is not a valid topic name; for a partition: {topic_name} --partition {number}"
                )
            if topic.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise click.ClickException(f"{printable(name)!r} is not a valid topic name")
            if topic.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise click.ClickException(f"topic {name}: this user is not allowed to do that")
            if partition is not None and topic.partitions and partition not in topic.partitions:
                raise click.ClickException(
                    f"topic {name} has no partition {partition}: it has {len(topic.partitions)}, counted from 0"
                )


async def matching_topics(console: Console, settings: type[ConnectionSettings], pattern: str) -> list[str]:
    """The topics whose whole name matches, without internal ones. Raises click.ClickException if none does."""
    matches = re.compile(pattern).fullmatch
    async with _cluster(console, settings) as cluster:
        topics = await cluster.fetch_topics(None, Deadline(console.timeout))
    names = sorted(name for name, topic in topics.items() if matches(name) and not topic.is_internal)
    if not names:
        raise click.ClickException(f"no topic matches {pattern}")
    return names
