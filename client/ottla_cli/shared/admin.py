"""Shared by the administrative commands: their Admin, parsing of arguments, and formatting of values."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from ottla_client.errors import ConfigurationError, UnknownTopicError
from ottla_client.types import TopicPartition
from ottla_protocol.printable import shown_name

from .completion import complete_topics
from .terminal import Console, unknown, unknown_topic
from .timefmt import parse_duration, parse_time

if TYPE_CHECKING:
    from ottla_client.admin import Admin
    from ottla_client.types import TopicMetadata

    from .rich_output import LiveView


@asynccontextmanager
async def admin_of(console: Console) -> AsyncIterator[Admin]:
    """An Admin for the command's cluster; each of its calls has the command's timeout."""
    from ottla_client.admin import Admin
    from ottla_client.admin.base import AdminSettings

    own: dict[str, Any] = {"default_api_timeout_ms": max(1, round(console.timeout * 1000))}
    try:
        admin = Admin(**console.settings.of(AdminSettings, **own))
    except ConfigurationError as error:
        raise click.UsageError(console.settings.as_given(str(error))) from None
    try:
        await admin.start(console.settings.connect_timeout)
        yield admin
    finally:
        await admin.close()


async def topics_of(admin: Admin, names: Collection[str]) -> dict[str, TopicMetadata]:
    """Topics by name. An unknown one ends the command, with a suggestion."""
    from ottla_client.admin import PartialError

    try:
        return await admin.describe_topics(names)
    except UnknownTopicError:
        missing = next(iter(names))
    except PartialError as error:
        unknown_ones = [name for name, why in error.errors.items() if isinstance(why, UnknownTopicError)]
        if not unknown_ones:
            raise
        missing = unknown_ones[0]
    raise unknown_topic(missing, await admin.list_topics(include_internal=True))


async def unknown_group(admin: Admin, group_id: str) -> click.ClickException:
    """The error for an unknown group, with a suggestion, or for one of a kind that can't be shown."""
    groups = await admin.list_groups()
    if group_id in groups:
        kind = groups[group_id].type or "unknown"
        return click.ClickException(
            f"{shown_name(group_id)} is a group of type {kind}, which ottla lists and deletes but can't show or change"
            " yet"
        )
    return unknown("group", group_id, groups)


partitions_option = partial(
    click.option,
    "--topic",
    "--topics",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,2,4-7]",
    shell_complete=complete_topics,
)
"""Topics, or partitions of them, for :func:`wanted_partitions`. Each command gives its own help."""


def partitions_in(text: str, option: str) -> tuple[str, list[int] | None]:
    """``orders`` (all partitions: None), ``orders:0``, ``orders:0,2,4-7``"""
    topic, colon, numbers = text.partition(":")
    if not topic:
        raise click.BadParameter(f"{text!r} names no topic", param_hint=option)
    return topic, numbers_in(numbers, option) if colon else None


def numbers_in(text: str, option: str, things: str = "partitions") -> list[int]:
    """``0,2,4-7``"""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise click.BadParameter(f"{text!r} is not a list of {things} such as 0,2,4-7", param_hint=option)
        start, end = int(first), int(last if dash else first)
        if not start <= end <= _LAST_PARTITION:
            raise click.BadParameter(f"{part.strip()!r}: no such {things}", param_hint=option)
        found.update(range(start, end + 1))
    return sorted(found)


# More than any topic has, so that a typo doesn't exhaust the memory.
_LAST_PARTITION: Final = 1_000_000

_ISO_DURATION: Final = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def duration_in(text: str, option: str) -> int:
    """Milliseconds of ``PT1H30M``, as in ISO 8601 and Kafka's tools, or ``1h30m``. Raises click.BadParameter."""
    found = _ISO_DURATION.fullmatch(text.strip())
    try:
        if found is not None and any(found.groups()):
            units = (604_800_000, 86_400_000, 3_600_000, 60_000, 1_000)
            return round(sum(float(n) * unit for n, unit in zip(found.groups("0"), units, strict=True)))
        return parse_duration(text.strip())
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a duration such as PT1H30M, P2D, 1h30m or 2d", param_hint=option
        ) from None


def moment_in(text: str, option: str) -> int:
    """Milliseconds since 1970 of ``2026-03-01T12:00:00``, in local time by default. Raises click.BadParameter."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def live_view(console: Console) -> LiveView | None:
    """A live view; None without rich, and where the output isn't a terminal."""
    if console.as_json or not console.is_terminal:
        return None
    try:
        from .rich_output import LiveView
    except ImportError:
        return None
    return LiveView()


_STEPS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))


def show_seconds(seconds: float) -> str:
    """``0s``, ``0.4s``, ``42s``, ``12m05s``, ``3h12m``, ``5d03h``"""
    for size, unit, smaller_size, smaller in _STEPS:
        if seconds >= size:
            whole, rest = divmod(int(seconds), size)
            return f"{whole}{unit}{rest // smaller_size:02}{smaller}"
    return f"{seconds:.1f}s" if 0 < seconds < 10 else f"{int(seconds)}s"


def without_repeats(console: Console, rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """At a terminal, the rows with a first cell that is empty where it repeats; otherwise the rows unchanged."""
    before: object = None
    shown = []
    for row in rows:
        repeats = row[0] == before and console.is_terminal and not console.as_json
        shown.append(("", *row[1:]) if repeats else row)
        before = row[0]
    return shown


def count_of(console: Console) -> Callable[[int], str]:
    """Formats numbers with commas at a terminal, and without in a pipe."""
    return (lambda number: f"{number:,}") if console.is_terminal else str


def plural(number: int, thing: str) -> str:
    """``1 partition``, ``3 partitions``"""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def matches(name: str, pattern: str) -> bool:
    """Whether it is the name, which may have the characters of a pattern in it, or a shell's pattern for it."""
    return name == pattern or fnmatchcase(name, pattern)


def none_of(thing: str, pattern: str | None, *conditions: str) -> str:
    """``no groups``, ``no group matches a*``, ``no group in state Dead``; empty conditions don't count."""
    said = [f"matches {pattern}"] if pattern is not None else []
    said += filter(None, conditions)
    return " ".join([f"no {thing}", *said]) if said else f"no {thing}s"


def ranges_of(numbers: Iterable[int]) -> str:
    """``0-3,7``"""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def show_partitions(partitions: Iterable[TopicPartition]) -> str:
    """``orders:0-3,7 payments:1``"""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{ranges_of(numbers)}" for topic, numbers in sorted(topics.items()))


def wanted_partitions(topics: Collection[str]) -> dict[str, Collection[int] | None]:
    """The partitions of all ``--topic`` options, which may name a topic several times."""
    wanted: dict[str, Collection[int] | None] = {}
    for text in topics:
        topic, numbers = partitions_in(text, "--topic")
        before = wanted.get(topic, ())
        wanted[topic] = None if numbers is None or before is None else [*before, *numbers]
    return wanted


def known_partitions(
    wanted: Mapping[str, Collection[int] | None], topics: Mapping[str, TopicMetadata]
) -> list[TopicPartition]:
    """The wanted partitions (None for all of a topic). An unknown one ends the command."""
    found: list[TopicPartition] = []
    for name, numbers in wanted.items():
        existing = topics[name].partitions
        for number in sorted(existing if numbers is None else numbers):
            if number not in existing:
                raise click.ClickException(
                    f"topic {name} has {plural(len(existing), 'partition')}, no {number}"
                )
            found.append(TopicPartition(name, number))
    return found
