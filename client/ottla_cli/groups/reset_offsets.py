"""``ottla groups reset-offsets``: set where a group continues, as Kafka's tool does."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, TextIO

import click

from ottla_client.errors import ClientError
from ottla_client.types import TopicPartition
from ottla_protocol.printable import shown_name

from ..shared.admin import (
    admin_of,
    count_of,
    duration_in,
    known_partitions,
    moment_in,
    partitions_option,
    plural,
    topics_of,
    wanted_partitions,
    without_repeats,
)
from ..shared.completion import complete_groups
from ..shared.tables import Column
from ..shared.terminal import Console, options, unknown
from ..shared.timefmt import now_ms
from . import reset_plans
from .places import Kept, check_stopped, kept, places_of, set_places

if TYPE_CHECKING:
    from ottla_client.admin import Admin, GroupDescription


@click.command("reset-offsets", short_help="Set where a group continues reading.")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@partitions_option(
    help="Reset these partitions. Repeat it for several topics.",
)
@click.option(
    "--all-topics", is_flag=True, help="Reset all partitions for which the group has committed offsets."
)
@click.option("--to-earliest", is_flag=True, help="Go to the first record.")
@click.option("--to-latest", is_flag=True, help="Go to the end, to read only new records.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Go to this offset.")
@click.option(
    "--to-datetime",
    metavar="ISO",
    help="Go to the first record from this time on, local time unless it names a zone.",
)
@click.option("--by-duration", metavar="PT1H|1h", help="Go to the first record of the last DURATION.")
@click.option("--shift-by", type=int, metavar="N", help="Go forward by N records, or back if N is negative.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Stay at the committed offset, or go to the end where nothing is committed.",
)
@click.option(
    "--from-file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Read lines of topic,partition,offset from a file; - is standard input.",
)
@click.option("--execute", is_flag=True, help="Set the offsets. Without it, they are only shown.")
@click.option("--export", is_flag=True, help="Print the plan as lines for --from-file.")
@options
async def reset_offsets(
    console: Console,
    name: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
    to_current: bool,
    from_file: TextIO | None,
    execute: bool,
    export: bool,
) -> None:
    """Set where a group continues reading. The new offsets are only shown unless --execute is given.

    The group must not have members: stop its consumers first. An offset outside the log becomes the nearest end of
    the log. A time after the last record becomes the end. A share group begins there, whatever was done with later
    records.

    \b
    ottla groups reset-offsets etl --topic orders --to-earliest
    ottla groups reset-offsets etl --all-topics --by-duration 2h --execute
    ottla groups reset-offsets etl --topic orders:0,3 --shift-by -100 --execute
    ottla groups reset-offsets etl --all-topics --to-current --export > before.csv
    ottla groups reset-offsets etl --from-file before.csv --execute
    """
    plans: list[reset_plans.Plan] = []
    if to_earliest:
        plans.append(reset_plans.to_earliest)
    if to_latest:
        plans.append(reset_plans.to_latest)
    if to_current:
        plans.append(reset_plans.to_current)
    if to_offset is not None:
        plans.append(reset_plans.to_offset(to_offset))
    if shift_by is not None:
        plans.append(reset_plans.shift(shift_by))
    if to_datetime is not None:
        plans.append(reset_plans.to_time(moment_in(to_datetime, "--to-datetime")))
    if by_duration is not None:
        plans.append(reset_plans.to_time(now_ms() - duration_in(by_duration, "--by-duration")))
    listed = None if from_file is None else _read(from_file)
    if listed is not None:
        plans.append(reset_plans.as_listed(listed))
    if len(plans) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration, --shift-by, "
            "--to-current and --from-file"
        )
    if execute and export:
        raise click.UsageError("--export only prints; leave out --execute")
    if sum((bool(topics), all_topics, listed is not None)) != 1:
        raise click.UsageError("give --topic or --all-topics (neither with --from-file)")
    wanted = wanted_partitions(topics)
    for partition in listed or ():
        wanted[partition.topic] = [*(wanted.get(partition.topic) or ()), partition.partition]
    await _reset(console, name, wanted, plans[0], execute=execute, export=export)


async def _reset(
    console: Console,
    name: str,
    wanted: Mapping[str, Collection[int] | None],
    plan: reset_plans.Plan,
    *,
    execute: bool,
    export: bool,
) -> None:
    async with admin_of(console) as admin:
        group = await _described(console, admin, name, may_be_new=bool(wanted))
        if execute and group is not None:
            check_stopped(group, "reset its offsets")
        where = Kept.OFFSETS if group is None else kept(group)
        committed = await places_of(admin, name, where)
        if wanted:
            partitions = known_partitions(wanted, await topics_of(admin, wanted))
        else:
            there = await admin.list_topics(include_internal=True)
            partitions = reset_plans.still_there(committed, there)
            if not partitions:
                raise click.ClickException(
                    f"group {shown_name(name)} has not committed any offsets; name topics by --topic"
                )
        now = await reset_plans.gather_now(admin, committed, partitions)
        asked_for = await plan(now)
        new = reset_plans.within(now, asked_for)
        for p, offset in new.items():
            if offset != asked_for[p]:
                console.note(f"{p}: offset {asked_for[p]} is outside the log; using {offset}")
        if execute:
            await set_places(admin, name, where, new)
        if export:
            console.write(_as_csv(new))
            return
        _show(console, now, new, await reset_plans.lag_after(now, new))
    if execute:
        console.note(f"offsets of group {shown_name(name)} are set")
    elif group is not None and group.members:
        console.note(
            f"nothing was changed; group {shown_name(name)} has {plural(len(group.members), 'member')},"
            " which must be stopped first"
        )
    else:
        console.note("nothing was changed; add --execute to set them")


def _show(
    console: Console,
    now: reset_plans.Now,
    new: Mapping[TopicPartition, int],
    lags: Mapping[TopicPartition, int],
) -> None:
    number = count_of(console)
    rows = [
        (
            p.topic,
            p.partition,
            now.committed[p].offset if p in now.committed else None,
            offset,
            lags[p],
        )
        for p, offset in sorted(new.items())
    ]
    console.table(
        [
            "Topic",
            "Partition",
            Column("Old", "old_offset", right=True, show=number),
            Column("New", "new_offset", right=True, show=number),
            Column("Lag after", "lag_records", right=True, show=number),
        ],
        without_repeats(console, rows),
    )
    if console.is_terminal and not console.as_json:
        console.print()


async def _described(
    console: Console, admin: Admin, name: str, *, may_be_new: bool
) -> GroupDescription | None:
    """The group. An unknown one ends the command unless ``may_be_new``; then it is None."""
    from ottla_client.admin import is_unknown_group

    try:
        return (await admin.describe_groups([name]))[name]
    except ClientError as error:
        if not is_unknown_group(error):
            raise
    missing = unknown("group", name, await admin.list_groups())
    if not may_be_new:
        raise missing
    console.note(f"{missing.message}; these offsets create it")
    return None


def _read(file: TextIO) -> dict[TopicPartition, int]:
    """Lines of ``topic,partition,offset``, as Kafka's tool writes and reads them."""
    listed: dict[TopicPartition, int] = {}
    reader = csv.reader(file)
    try:
        for row in reader:
            if not row:
                continue
            fields = [text.strip() for text in row]
            if len(fields) != 3 or not fields[0] or not (fields[1].isdecimal() and fields[2].isdecimal()):
                raise click.ClickException(
                    f"{file.name}, line {reader.line_num}: {','.join(row)!r} is not topic,partition,offset"
                )
            listed[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
    except (UnicodeDecodeError, csv.Error) as error:
        raise click.ClickException(f"{file.name}, line {reader.line_num + 1}: {error}") from None
    if not listed:
        raise click.ClickException(f"{file.name} has no lines of topic,partition,offset")
    return listed


def _as_csv(offsets: Mapping[TopicPartition, int]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((p.topic, p.partition, offset) for p, offset in sorted(offsets.items()))
    return text.getvalue()
