"""``ottla groups lag``: how far groups are behind, in records and time, with the trend; once, or continuously."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ottla_client.errors import ClientError
from ottla_protocol.printable import shown_name

from ..shared.admin import admin_of, count_of, live_view, matches, show_seconds, unknown_group
from ..shared.completion import complete_groups
from ..shared.findings import some_of
from ..shared.tables import Column
from ..shared.terminal import Console, one_line, options, to_json
from .places import (
    groups_in_zookeeper,
    in_zookeeper,
    kept,
    lag_in_zookeeper,
    lag_of,
    registry_of,
    zookeeper_option,
)
from .sparklines import sparkline

if TYPE_CHECKING:
    from ottla_client.admin import Admin, PartitionLag
    from ottla_client.types import TopicPartition
    from ottla_client.zookeeper_consumer.registry import Registry

    from ..shared.rich_output import LiveView

_AT_ONCE: Final = 8
_MOST_HOURS: Final = 168
HISTORY_SECONDS: Final = 300.0
"""The time over which --watch computes the trend."""


class Look(NamedTuple):
    """A group's lag at one time (seconds on the event loop's clock)."""

    at: float
    records: int
    seconds: float | None


def total_lag(lags: Iterable[PartitionLag]) -> tuple[int | None, float | None]:
    """A group's lag: the sum of its partitions' records, and the longest time; None where none is known."""
    every = list(lags)
    records = [each.records for each in every if each.records is not None]
    seconds = [each.seconds for each in every if each.seconds is not None]
    return sum(records) if records else None, max(seconds, default=None)


def look_of(at: float, lags: Iterable[PartitionLag]) -> Look:
    records, seconds = total_lag(lags)
    return Look(at, records or 0, seconds)


@dataclass(slots=True)
class History:
    """The lag of a group as --watch has seen it, and its trend."""

    looks: deque[Look] = field(default_factory=lambda: deque(maxlen=1000))

    def add(self, look: Look) -> None:
        self.looks.append(look)
        while look.at - self.looks[0].at > HISTORY_SECONDS:
            self.looks.popleft()

    @property
    def trend(self) -> float | None:
        """Records a second by which the lag grows; None after a single look."""
        first, last = self.looks[0], self.looks[-1]
        return None if last.at <= first.at else (last.records - first.records) / (last.at - first.at)

    @property
    def catch_up(self) -> float | None:
        """Seconds until the lag is gone, if it goes on like this; None if it doesn't shrink."""
        if not self.looks[-1].records:
            return 0.0
        trend = self.trend
        return None if trend is None or trend >= 0 else self.looks[-1].records / -trend


@click.command("lag", short_help="Show lag in records and time, with its trend.")
@click.argument("patterns", nargs=-1, metavar="[GROUP…]", shell_complete=complete_groups)
@click.option("--watch", is_flag=True, help="Keep showing the lag until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2,
    show_default=True,
    metavar="SECONDS",
    help="Set the time between two looks.",
)
@click.option("--once", is_flag=True, help="Look once: faster, but without the trend.")
@click.option("--history", is_flag=True, help="Show what the brokers have kept of one group's lag.")
@click.option(
    "--hours",
    type=click.FloatRange(min=0, max=_MOST_HOURS, min_open=True),
    default=24,
    show_default=True,
    help="Set how far back --history goes.",
)
@zookeeper_option
@options
async def lag(
    console: Console,
    patterns: tuple[str, ...],
    watch: bool,
    interval: float,
    once: bool,
    history: bool,
    hours: float,
    zookeeper: str | None,
) -> None:
    """Show how far groups are behind, or those that match GROUP (* and ? as in a shell).

    The lag in time is the age of the next record that the group reads, in its slowest partition. The trend is the
    records a second by which the lag grows; it takes two looks. Catch-up is when the lag is gone if it goes on
    shrinking like this. It works with Apache Kafka too.

    Groups of every generation are shown. Kafka's brokers can't list groups that coordinate in ZooKeeper: name such a
    group, or give --zookeeper to see them all.

    With --watch, the view is refreshed at a terminal, with a sparkline. Elsewhere one line is printed for each group
    each time, with --json one document per line.

    With --history, the samples that Ottla brokers keep for a week are shown, of one group of any kind: with bars, and a
    row for each part of the time. With --json all samples are printed.

    \b
    ottla groups lag
    ottla groups lag billing 'audit-*' --watch
    ottla groups lag --once --json
    ottla groups lag billing --history --hours 168
    """
    if watch + once + history > 1:
        raise click.UsageError("--watch, --once and --history exclude each other")
    if history:
        if len(patterns) != 1:
            raise click.UsageError("--history shows one group: name it")
        from .lag_history import show_history

        await show_history(console, patterns[0], hours)
        return
    histories: dict[str, History] = {}
    async with admin_of(console) as admin, registry_of(console, zookeeper) as registry:

        async def look() -> dict[str, Mapping[TopicPartition, PartitionLag]]:
            return await _look(admin, registry, patterns, histories)

        if watch:
            await _watch(console, look, interval, histories, patterns)
            return
        lags = await look()
        if not once and lags:
            await asyncio.sleep(interval)
            lags = await look()
    if console.as_json:
        console.emit(_document(lags, histories))
    else:
        missed = _missed(patterns, lags)
        console.table(_columns(console), _rows(lags, histories), empty="; ".join(missed))
        for each in missed if lags else ():
            console.note(each)
        for name, its in lags.items():
            beyond = {str(p): each.beyond_end for p, each in its.items() if each.beyond_end}
            if beyond:
                places = some_of([f"{p} by {by:,}" for p, by in beyond.items()])
                console.note(f"group {shown_name(name)} has committed offsets beyond the end: {places}")


async def _look(
    admin: Admin, registry: Registry | None, patterns: Collection[str], histories: dict[str, History]
) -> dict[str, Mapping[TopicPartition, PartitionLag]]:
    """The lags of groups with committed offsets. A name that no group has ends the command."""
    listed = await admin.list_groups()

    def is_wanted(name: str) -> bool:
        return not patterns or any(matches(name, each) for each in patterns)

    names = [name for name in listed if is_wanted(name)]
    there = {} if registry is None else await groups_in_zookeeper(registry, listed, is_wanted)
    names = [name for name in names if name not in there]
    unlisted: dict[str, Mapping[TopicPartition, int]] = {}
    for pattern in patterns:
        if not any(letter in pattern for letter in "*?[") and pattern not in {*listed, *there}:
            unlisted[pattern] = await in_zookeeper(admin, pattern)
            if not unlisted[pattern]:
                raise await unknown_group(admin, pattern)
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> Mapping[TopicPartition, PartitionLag]:
        async with free:
            if name in there:
                return await lag_in_zookeeper(admin, name, there[name])
            if name in unlisted:
                return await admin.group_lag(name, offsets=unlisted[name])
            return await lag_of(admin, name, kept(listed[name]))

    names += [*there, *unlisted]
    found = dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
    now = asyncio.get_running_loop().time()
    lags = {name: its for name, its in sorted(found.items()) if its}
    for name, its in lags.items():
        histories.setdefault(name, History()).add(look_of(now, its.values()))
    for name in histories.keys() - lags.keys():
        del histories[name]
    return lags


def _missed(patterns: Collection[str], found: Collection[str]) -> list[str]:
    """What to say of the patterns without a group, or of there being none."""
    missed = [each for each in patterns if not any(matches(name, each) for name in found)]
    said = [f"no group that matches {each} has committed offsets" for each in missed]
    return said or ([] if found else ["no group has committed offsets"])


def _columns(console: Console) -> list[Column]:
    return [
        Column("Group"),
        Column("Partitions", right=True),
        Column("Lag", "lag_records", right=True, show=count_of(console), style=_style),
        Column("Behind", "lag_seconds", right=True, show=show_seconds, style=_style),
        Column("Trend", "trend_records_per_second", right=True, show=lambda trend: f"{trend:+,.1f}/s"),
        Column("Catch-up", "catch_up_seconds", right=True, show=show_seconds),
    ]


def _style(value: float) -> str:
    return "bold" if value else "dim"


def _rows(
    lags: Mapping[str, Mapping[TopicPartition, PartitionLag]], histories: Mapping[str, History]
) -> list[tuple[Any, ...]]:
    """The groups that are furthest behind first."""
    rows = []
    for name, its in lags.items():
        history = histories[name]
        last = history.looks[-1]
        rows.append((name, len(its), last.records, rounded(last.seconds), history.trend, history.catch_up))
    return sorted(rows, key=lambda row: (-(row[3] or 0), -row[2], row[0]))


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _document(
    lags: Mapping[str, Mapping[TopicPartition, PartitionLag]], histories: Mapping[str, History]
) -> list[dict[str, Any]]:
    return [
        {
            "group": name,
            "lag_records": records,
            "lag_seconds": seconds,
            "trend_records_per_second": rounded(trend),
            "catch_up_seconds": rounded(left),
            "partitions": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "committed": None if each.committed is None else each.committed.offset,
                    "end": each.end,
                    "lag_records": each.records,
                    "lag_seconds": rounded(each.seconds),
                    "beyond_end": each.beyond_end,
                }
                for partition, each in lags[name].items()
            ],
        }
        for name, _, records, seconds, trend, left in _rows(lags, histories)
    ]


async def _watch(
    console: Console,
    look: Callable[[], Awaitable[Mapping[str, Mapping[TopicPartition, PartitionLag]]]],
    interval: float,
    histories: dict[str, History],
    patterns: Collection[str],
) -> None:
    """Show the lag until Ctrl-C. Failures to reach the cluster are shown, and retried."""
    live = live_view(console)
    with live or nullcontext():
        while True:
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            try:
                _show(console, live, now, await look(), histories, patterns)
            except ClientError as error:
                _show_failure(console, live, now, one_line(error))
            await asyncio.sleep(interval)


def _show(
    console: Console,
    live: LiveView | None,
    now: str,
    lags: Mapping[str, Mapping[TopicPartition, PartitionLag]],
    histories: Mapping[str, History],
    patterns: Collection[str],
) -> None:
    missed = _missed(patterns, lags)
    if console.as_json:
        console.print(to_json({"time": now, "groups": _document(lags, histories)}))
        return
    rows = [
        (*row, sparkline([look.records for look in histories[row[0]].looks]))
        for row in _rows(lags, histories)
    ]
    columns = [*_columns(console), Column("Last minutes")]
    if live is None:
        for row in rows:
            pairs = zip(columns[1:-1], row[1:-1], strict=True)
            shown = [f"{column.title.lower()} {column.text(value)}" for column, value in pairs]
            console.print(f"{now}  {columns[0].text(row[0])}  {', '.join(shown)}")
        for each in missed:
            console.print(f"{now}  {each}")
        return
    from rich.text import Text

    from ..shared.rich_output import table_of

    live.show(
        [
            table_of(columns, rows, ""),
            *map(Text, missed),
            Text(),
            Text(f"{now}, Ctrl-C ends it", style="dim"),
        ]
    )


def _show_failure(console: Console, live: LiveView | None, now: str, reason: str) -> None:
    if console.as_json:
        console.print(to_json({"time": now, "error": reason}))
    elif live is None:
        console.print(f"{now}  no answer: {reason}")
    else:
        from rich.text import Text

        live.show([Text("no answer", style="red"), Text(reason), Text(), Text(now, style="dim")])
