"""Checks of a command's topics, made before anything else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click

from ottla_client.deadline import Deadline
from ottla_protocol.errors import ErrorCode
from ottla_protocol.printable import printable

from .completion import complete_topics
from .terminal import Console, unknown_topic

PARTITIONS: Final = "LIST"
"""The metavar of options that take partitions, such as 0,2,4-7."""
_NUMBERS: Final = re.compile(r"\d[\d,-]*")

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ottla_client.cluster import Cluster
    from ottla_client.settings import ConnectionSettings


class TopicName(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """A topic's name, with completion. One of a partition is refused, with the command's own way to name it."""

    name = "topic"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text:
            self.fail("'' is not a valid topic name", param, ctx)
        topic, colon, numbers = text.partition(":")
        if colon and _NUMBERS.fullmatch(numbers):
            way = "" if ctx is None else _for_partitions(ctx.command, topic, numbers)
            instead = f"for a partition: {way}" if way else f"this command takes whole topics: {topic}"
            self.fail(f"'{printable(text)}' is not a valid topic name; {instead}", param, ctx)
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return complete_topics(ctx, param, incomplete)


TOPIC: Final = TopicName()


def _for_partitions(command: click.Command, topic: str, numbers: str) -> str:
    """How to name partitions of a topic in this command; empty if it takes none."""
    for option in command.params:
        if "--partitions" in option.opts and option.metavar == PARTITIONS:
            return f"{topic} --partitions {numbers}"
        if "--partition" in option.opts and isinstance(option.type, click.IntRange):
            return f"{topic} --partition {numbers if numbers.isdecimal() else 'N'}"
    return ""


@asynccontextmanager
async def _cluster(console: Console, settings: type[ConnectionSettings]) -> AsyncIterator[Cluster]:
    """The cluster; ``settings`` belong to the client that the command makes with the same options."""
    from ottla_client.cluster import Cluster
    from ottla_client.settings import ConnectionSettings

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
            if topic.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise click.ClickException(f"'{printable(name)}' is not a valid topic name")
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
