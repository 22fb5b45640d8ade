"""``ottla pipeline audit``: checks that a table has every record of its topics once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ottla_cli import TOPIC, Column, Console

from ..progress import count
from .common import (
    NotDone,
    check_client,
    connecting,
    dead_letters_option,
    failing,
    isolation_option,
    open_table,
    require_topics,
    table_options,
)

if TYPE_CHECKING:
    from ottla_cli import Progress

    from ..audit import Audit, PartitionAudit

# Ranges listed per finding; the JSON has all.
_LISTED = 5


@click.command(
    short_help="Check that every record is in the table, once.",
    epilog="Exit code: 0 if nothing is wrong, 1 if something is, 2 if the comparison failed.",
)
@click.argument("topics", nargs=-1, type=TOPIC, metavar="[TOPIC]...")
@table_options
@dead_letters_option(help="Take records among these dead letters as accounted for.")
@isolation_option(
    help="Use the isolation level of the job: it decides whether records of aborted transactions count.",
)
@click.option(
    "--whole",
    is_flag=True,
    help="Require every record of the log, including those from before the job began and those not landed yet.",
)
@connecting
def audit(
    console: Console,
    client: Mapping[str, str],
    topics: Sequence[str],
    place: dict[str, Any],
    dead_letters: str | None,
    isolation: Any,
    whole: bool,
) -> None:
    """Compare a table with the topics it was landed from: TOPICs, or all topics in its commits.

    For each partition of the landed part of the log, it counts the records, those in the table, the missing and the
    doubled ones, and compares keys and values by checksums. Needs neither Spark nor Java.

    \b
    ottla pipeline audit --table lake/flights
    ottla pipeline audit flights --table lake/flights --whole
    ottla pipeline audit --table lake/default.flights --format iceberg --json | jq .clean
    """
    with failing(console, NotDone):
        from .. import audit as auditing

        check_client(client)
        wanted = open_table(place)
        if topics:
            require_topics(console, client, topics)
        dead = auditing.Dead()
        if dead_letters is not None:
            kind, _, target = dead_letters.partition(":")
            if kind == "topic":
                require_topics(console, client, [target])
                dead = auditing.in_topic(target, wanted, console.settings.bootstrap_servers, client)
            else:
                dead = auditing.in_table(open_table(place, target), wanted)
        with ExitStack() as shown:
            bar: Progress | None = None

            def advance(done: int, total: int) -> None:
                nonlocal bar
                if bar is None:
                    bar = shown.enter_context(console.progress("comparing", total=total, unit="offsets"))
                bar.update(done)

            found = auditing.audit(
                console.settings.bootstrap_servers,
                wanted,
                topics,
                client=client,
                names=place["names"],
                isolation=isolation,
                whole=whole,
                dead=dead,
                advance=advance,
            )
        _show(console, found, dead_known=dead_letters is not None)
    if not found.clean:
        click.get_current_context().exit(1)


def _show(console: Console, found: Audit, *, dead_known: bool) -> None:
    """Print the result; ``dead_known``: the user has named the dead letters."""
    if console.as_json:
        console.emit(found.to_json())
        return
    partitions = found.partitions
    red = "bold red"
    columns: list[tuple[str, str | None, list[int] | list[str]]] = [
        ("Partition", None, [f"{each.topic}-{each.partition}" for each in partitions]),
        ("Log", None, [f"{each.log_start:,} to {each.log_end:,}" for each in partitions]),
        ("Records", None, [each.records for each in partitions]),
        ("Present", None, [each.present for each in partitions]),
        ("Dead letters", None, [each.dead for each in partitions]),
        ("Removed", None, [each.removed.count for each in partitions]),
        ("Missing", red, [each.missing.count for each in partitions]),
        ("Doubled", red, [each.surplus for each in partitions]),
        ("Strange", red, [each.strange.count for each in partitions]),
        ("Unreadable", red, [each.unreadable.count for each in partitions]),
        ("Gone", None, [each.gone for each in partitions]),
        ("Never landed", None, [each.skipped for each in partitions]),
        ("Behind", None, [each.behind for each in partitions]),
        ("Checksum", None, [str(each.checksum) for each in partitions]),
    ]
    # Hide columns without findings.
    rare = ("Dead letters", "Removed", "Strange", "Unreadable", "Gone", "Never landed", "Behind")
    shown = [column for column in columns if column[0] not in rare or any(each for each in column[2])]
    heads = [
        Column(
            title,
            show=lambda value: f"{value:,}" if isinstance(value, int) else str(value),
            style=_checksum_style if title == "Checksum" else _style_of(style),
        )
        for title, style, _ in shown
    ]
    console.table(heads, zip(*(values for _, _, values in shown), strict=True))
    for each in partitions:
        for line in _findings(each):
            console.print(line)
    if found.removed_by:
        console.print(f"other programs have removed rows: {_listed(found.removed_by)}")
    if found.unknown:
        console.print(f"other programs may have removed more rows, by {_listed(found.unknown)}")
    console.print(_verdict(found))
    dead_committed = min(
        sum(each.missing.count for each in partitions), sum(each.dead_committed for each in partitions)
    )
    if dead_committed and not dead_known:
        console.note(f"{dead_committed:,} of them may be dead letters: --dead-letters says where those are")


def _style_of(style: str | None) -> Any:
    return None if style is None else lambda value: style if value else ""


def _checksum_style(value: str) -> str:
    return {"same": "green", "differs": "bold red"}.get(value, "dim")


def _findings(found: PartitionAudit) -> list[str]:
    """A line for each kind of error in a partition."""
    name = f"{found.topic}-{found.partition}"
    lines = []
    for what, ranges in (
        ("missing", list(found.missing)),
        ("more than once", list(found.doubled)),
        ("in the table, without a record in the log", list(found.strange)),
        ("batches that can't be decoded", list(found.unreadable)),
        ("keys or values differ somewhere in", list(found.differing)),
        ("more or fewer rows than were written, in", list(found.short)),
    ):
        if ranges:
            lines.append(f"{name}: {what}: {_ranges(ranges)}")
    return lines


def _ranges(ranges: Sequence[tuple[int, int]]) -> str:
    texts = [
        f"offset {start:,}" if end - start == 1 else f"offsets {start:,} to {end - 1:,}"
        for start, end in ranges[:_LISTED]
    ]
    return _listed(texts, len(ranges))


def _listed(texts: Sequence[str], total: int | None = None) -> str:
    more = (len(texts) if total is None else total) - _LISTED
    return ", ".join([*texts[:_LISTED], *([f"and {more:,} more"] if more > 0 else [])])


def _verdict(found: Audit) -> str:
    partitions = found.partitions
    if found.clean:
        present = sum(each.present for each in partitions)
        dead = sum(each.dead for each in partitions)
        behind = sum(each.behind for each in partitions)
        text = f"{found.table}: clean, {count(present, 'record')} once each"
        if dead:
            text += f", {dead:,} more among the dead letters"
        removed = sum(each.removed.count for each in partitions)
        if removed:
            text += f", {removed:,} more removed by other programs"
        if found.foreign:
            text += f", and {count(found.foreign, 'row')} of other programs"
        if skipped := sum(each.skipped for each in partitions):
            text += f"; {count(skipped, 'offset')} from before the job began never landed"
        return f"{text}; {count(behind, 'offset')} of the log not landed yet" if behind else text
    wrong = sum(not each.clean for each in partitions)
    return f"{found.table}: NOT clean, {wrong} of {len(partitions)} partitions differ from the log"
