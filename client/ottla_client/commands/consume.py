"""``ottla consume``: records of topics, written as text, JSON, CSV, raw bytes or by a template."""

from __future__ import annotations

import re
from typing import Any

import click

from .completion import complete_groups, complete_topics
from .console import Console, options, run
from .consume_records import AT_ONCE, ConsumeOptions, ConsumeRun
from .formatters import FIELDS, Style, make_formatter
from .log_positions import BEGINNING, END, OFFSET, TIME, LogPosition, LogPositionType


def _fields(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Names with commas between, or ``all``."""
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(","))
    if names == ("all",):
        return FIELDS
    for name in names:
        if name not in FIELDS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(FIELDS)}")
    return names


def _regex(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            re.compile(value)
        except re.error as error:
            raise click.BadParameter(f"{value!r} is no regular expression: {error}") from None
    return value


@click.command()
@click.argument("topics", nargs=-1, shell_complete=complete_topics, metavar="[TOPIC]...")
@click.option(
    "--pattern",
    callback=_regex,
    metavar="REGEX",
    help="All topics whose whole name matches, in place of names.",
)
@click.option(
    "--from",
    "begin",
    type=LogPositionType(),
    metavar="PLACE",
    help="Where to begin: beginning (the default), end, an offset, -N (the last N of each partition), a time "
    "(2026-05-17T14:30, milliseconds), or -15m (that long ago). With --group: where it has not committed.",
)
@click.option(
    "--until",
    type=LogPositionType(),
    metavar="PLACE",
    help="Where to stop: end (of now), an offset (not included), a time.",
)
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option(
    "-f/-e",
    "--follow/--exit",
    "follow",
    default=None,
    help="At the end, wait for more (the default), or stop: the same as --until end.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only these.",
)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Join a consumer group: go on where it has committed, and commit what was written.",
)
@click.option(
    "-F",
    "--format",
    "form",
    type=click.Choice(["text", "json", "csv", "raw"]),
    default=None,
    help=r"text (the default): a value a line, bytes that aren't UTF-8 as \xff. json: an object a line, such bytes as "
    "base64. csv: with a header row. raw: the bytes of the values.",
)
@click.option("--show", callback=_fields, metavar="FIELDS", help=f"text, csv: {', '.join(FIELDS)}; or all.")
@click.option(
    "-t", "--template", metavar="TEXT", help=r"A line a record: '{partition}:{offset}\t{time} {key} {value}'."
)
@click.option("--null-value", default="null", show_default=True, metavar="TEXT", help="text: shown for null.")
@click.option(
    "--delimiter",
    default="\\n",
    show_default=True,
    metavar="TEXT",
    help="raw, template: what ends each record.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to a file.")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed leaves out transactions that are open or were aborted.",
)
@options
def consume(
    console: Console,
    topics: tuple[str, ...],
    pattern: str | None,
    begin: LogPosition | None,
    until: LogPosition | None,
    count: int | None,
    follow: bool | None,
    partitions: tuple[int, ...],
    group: str | None,
    form: str | None,
    show: tuple[str, ...],
    template: str | None,
    null_value: str,
    delimiter: str,
    output: str | None,
    isolation: str,
) -> None:
    """Read the records of TOPICs: all there are, then those that come.

    Ctrl-C ends it; a group's offsets are committed then, exactly up to the last record that was written.

    \b
    ottla consume flights                          all there is, and what comes
    ottla consume flights --exit | wc -l           all there is
    ottla consume flights --from end               what comes
    ottla consume flights --from -5 -e             the last five of each partition
    ottla consume flights --from -1h --until end --json
    ottla consume flights -g billing --show key,value
    ottla consume flights -n 10 -t '{time} {partition}:{offset} {key}'
    ottla consume events -e -F csv --show timestamp,key,value -o events.csv
    """
    if bool(topics) is (pattern is not None):
        raise click.UsageError("Name one or more topics, or give a --pattern.")
    if form is None:
        form = "json" if console.as_json else "text"
    elif console.as_json and form != "json":
        raise click.UsageError(f"--json and --format {form} exclude each other.")
    if template is not None and (show or form != "text"):
        raise click.UsageError("--template stands alone: without --format, --json and --show.")
    if show and form not in ("text", "csv"):
        raise click.UsageError(
            f"--show chooses what text and csv have; with --format {form} it would do nothing."
        )
    if group is not None:
        if partitions:
            raise click.UsageError(
                "--partition and --group exclude each other: a group shares out its partitions."
            )
        if begin is not None and begin.kind not in (BEGINNING, END):
            raise click.UsageError(
                "With --group, --from is beginning or end; `ottla groups reset-offsets` moves a group elsewhere."
            )
    if follow is False:
        if until is not None and until.kind != END:
            raise click.UsageError("--exit is --until end: leave out one of them.")
        until = LogPosition(END)
    elif follow and until is not None:
        raise click.UsageError("--follow doesn't stop, --until does: leave out one of them.")
    if until is not None and until.kind not in (END, OFFSET, TIME):
        raise click.BadParameter("end, an offset or a time", param_hint="--until")
    style = Style(
        show=show,
        null=null_value,
        ending=_unescape(delimiter),
        at_terminal=output is None and console.is_terminal,
    )
    wanted = ConsumeOptions(
        topics=topics,
        pattern=pattern,
        partitions=frozenset(partitions),
        group=group,
        begin=begin or LogPosition(BEGINNING),
        until=until,
        count=count,
    )
    formatter = make_formatter(form, style, template)
    run(ConsumeRun(console, wanted, formatter, output).run(_client_options(console, wanted, isolation)))


def _unescape(text: str) -> bytes:
    for escape, meant in (("\\n", "\n"), ("\\t", "\t"), ("\\0", "\0")):
        text = text.replace(escape, meant)
    return text.encode(errors="surrogateescape")


def _client_options(console: Console, wanted: ConsumeOptions, isolation: str) -> dict[str, Any]:
    from ..consumer.settings import ConsumerSettings

    ms = int(console.timeout * 1000)
    return console.settings.of(
        ConsumerSettings,
        client_id="ottla-consume",
        group_id=wanted.group,
        auto_offset_reset="latest" if wanted.begin.kind == END else "earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
        default_api_timeout_ms=ms,
        max_poll_records=AT_ONCE,
    )
