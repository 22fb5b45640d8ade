"""Whether the topics that a command is called with are there, asked before anything else is done."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import click

from ottla_protocol.errors import ErrorCode

from ..deadline import Deadline
from ..types import TopicMetadata
from .console import Console, unknown_topic


async def require_topics(
    console: Console, client: Callable[..., Any], names: Collection[str], partition: int | None = None
) -> dict[str, TopicMetadata]:
    """The topics' metadata. ``client`` is the class that the command is going to make with the same options.

    Raises click.ClickException for a topic that isn't there, with the nearest names, and for a partition that it
    doesn't have; BootstrapError.
    """
    from ..cluster import Cluster

    deadline = Deadline(console.timeout)
    cluster = Cluster(**console.settings.options_of(Cluster, beside=client))
    try:
        await cluster.start(Deadline(console.settings.connect_timeout))
        topics = await cluster.fetch_topics(names, deadline)
        for name in names:
            topic = topics.get(name)
            if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise unknown_topic(name, await cluster.fetch_topics(None, deadline))
            if topic.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise click.ClickException(f"{name!r} can't be the name of a topic")
            if topic.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise click.ClickException(f"topic {name}: not authorized")
            if partition is not None and topic.partitions and partition not in topic.partitions:
                raise click.ClickException(
                    f"topic {name} has no partition {partition}: it has {len(topic.partitions)}, counted from 0"
                )
    finally:
        await cluster.close()
    return topics
