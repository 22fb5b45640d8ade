"""``ottla consume``: print records as text, JSON, CSV, raw bytes or by a template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import click

from ottla_client.errors import ClientError, UnknownTopicError
from ottla_client.types import ISOLATION_LEVELS, TopicPartition

from ..shared.admin import plural
from ..shared.completion import complete_groups
from ..shared.ending import TIDY_SECONDS
from ..shared.terminal import Console, options
from ..shared.topic_checks import TOPIC, require_topics
from .formatters import FIELDS, Style, make_formatter
from .log_positions import BEGINNING, END, OFFSET, TIME, LogPosition, LogPositionType
from .print_run import AT_ONCE, POLL_MS, ConsumeOptions, PrintRun
from .records import ConsumeRun

if TYPE_CHECKING:
    from ottla_client.consumer.rows import Rows
    from ottla_client.share_consumer import ShareConsumer

_POSITION: Final = re.compile(r"beginning|earliest|end|latest|stored|-?\d+|@\d+")
_GONE_AFTER: Final = 2.0
"""Seconds after which a topic that brokers don't know has been deleted; brokers learn of a new one one by one."""
_METADATA_AGE_MS: Final = 10_000
"""How soon partitions and topics that are added are read."""
_SAME: Final = {"earliest": "beginning", "latest": "end"}


def _fields(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Names separated by commas, or ``all``."""
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(","))
    if names == ("all",):
        return FIELDS
    for name in names:
        if name not in FIELDS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(FIELDS)}")
    return names


def _no_position(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A file's name; in other tools -o is the offset to start at."""
    if value is not None and _POSITION.fullmatch(value):
        instead = "-g GROUP" if value == "stored" else f"--from {_SAME.get(value, value)}"
        raise click.BadParameter(
            f"-o names a file to write to; use {instead} to choose where to start, or -o ./{value} for a file of that"
            " name"
        )
    return value


def _regex(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            re.compile(value)
        except re.error as error:
            raise click.BadParameter(f"{value!r} is not a regular expression: {error}") from None
    return value


@click.command()
@click.argument("topics", nargs=-1, type=TOPIC, metavar="[TOPIC]...")
@click.option(
    "--pattern",
    callback=_regex,
    metavar="REGEX",
    help="Read all topics whose whole name matches, instead of naming topics.",
)
@click.option(
    "--from",
    "begin",
    type=LogPositionType(),
    metavar="POSITION",
    help="Start at beginning (the default), end, an offset, -N (the last N records of each partition), a time "
    "(2026-05-17T14:30, milliseconds), or -15m (ago). With --group, for partitions without a committed offset.",
)
@click.option(
    "--until",
    type=LogPositionType(),
    metavar="POSITION",
    help="Stop at end (the end at the start), an offset (exclusive) or a time.",
)
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option(
    "-f/-e",
    "--follow/--exit",
    "follow",
    default=None,
    help="Wait for more records at the end (the default), or stop there, which is --until end.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Read only this partition. Repeat it for several.",
)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Join a consumer group: start at its committed offsets, and commit what was read and written.",
)
@click.option(
    "--share",
    is_flag=True,
    help="Join --group as a share group (KIP-932): print the records that the broker gives this member, and accept "
    "them once they are written.",
)
@click.option(
    "-F",
    "--format",
    "form",
    type=click.Choice(["text", "json", "csv", "raw"]),
    default=None,
    help=r"Print text (the default): one value per line, with \xff for bytes that aren't UTF-8; json: one object per "
    "line, with base64 for such bytes; csv: with a header row; or raw: the bytes of values. A terminal gets "
    "control characters as escapes in every format, but for tabs and line ends.",
)
@click.option(
    "--show",
    callback=_fields,
    metavar="FIELDS",
    help=f"Print these fields of text and csv: {', '.join(FIELDS)}; or all.",
)
@click.option(
    "-t",
    "--template",
    metavar="TEXT",
    help=r"Print one line per record by this template: '{partition}:{offset}\t{time} {key} {value}'.",
)
@click.option(
    "--null-value", default="null", show_default=True, metavar="TEXT", help="Print TEXT for null in text."
)
@click.option(
    "--delimiter",
    default="\\n",
    show_default=True,
    metavar="TEXT",
    help="End each record of raw and template with TEXT.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    callback=_no_position,
    metavar="FILE",
    help="Write to a file instead of standard output.",
)
@click.option(
    "--isolation",
    type=click.Choice(ISOLATION_LEVELS),
    default="read_uncommitted",
    show_default=True,
    help="Choose read_committed to leave out transactions that are open or aborted.",
)
@options
async def consume(
    console: Console,
    topics: tuple[str, ...],
    pattern: str | None,
    begin: LogPosition | None,
    until: LogPosition | None,
    count: int | None,
    follow: bool | None,
    partitions: tuple[int, ...],
    group: str | None,
    share: bool,
    form: str | None,
    show: tuple[str, ...],
    template: str | None,
    null_value: str,
    delimiter: str,
    output: str | None,
    isolation: str,
) -> None:
    """Print the records of TOPICs from the beginning, then new ones as they arrive.

    Ctrl-C ends the command. With --group, it commits up to where it has read and written; records that it was
    amid writing to a reader that is stuck come again. With --share, it accepts exactly the records that were
    written, and releases the others that it has.

    \b
    ottla consume flights                          all records, then new ones
    ottla consume flights --exit | wc -l           all records
    ottla consume flights --from end               new records
    ottla consume flights --from -5 -e             the last five of each partition
    ottla consume flights --from -1h --until end --json
    ottla consume flights -g billing --show key,value
    ottla consume flights -g packers --share       a part of the records, in a share group
    ottla consume flights -n 10 -t '{time} {partition}:{offset} {key}'
    ottla consume events -e -F csv --show timestamp,key,value -o events.csv
    """
    if bool(topics) is (pattern is not None):
        raise click.UsageError("Name one or more topics, or give a --pattern.")
    form = _form(form, console.as_json)
    _check_form(form, show, template)
    if share:
        _check_share(
            group,
            {
                "--pattern": pattern is not None,
                "--from": begin is not None,
                "--until": until is not None,
                "--exit": follow is False,
                "--partition": bool(partitions),
                "--isolation": isolation != "read_uncommitted",
            },
        )
    if group is not None:
        _check_group(partitions, begin)
    at_terminal = output is None and console.is_terminal
    style = Style(show=show, null=null_value, ending=_unescape(delimiter), at_terminal=at_terminal)
    wanted = ConsumeOptions(
        topics=topics,
        pattern=pattern,
        partitions=frozenset(partitions),
        group=group,
        begin=begin or LogPosition(BEGINNING),
        until=_end(until, follow),
        count=count,
    )
    formatter = make_formatter(form, style, template)
    kind: type[PrintRun[Any]] = ShareRun if share else ConsumeRun
    await kind(console, wanted, formatter, output).run(
        _share_options(console, wanted) if share else _client_options(console, wanted, isolation)
    )


def _check_form(form: str, show: tuple[str, ...], template: str | None) -> None:
    if template is not None and (show or form != "text"):
        raise click.UsageError("--template excludes --format, --json and --show.")
    if show and form not in ("text", "csv"):
        raise click.UsageError(f"--show is for text and csv; it has no effect with --format {form}.")


def _form(given: str | None, as_json: bool) -> str:
    if given is None:
        return "json" if as_json else "text"
    if as_json and given != "json":
        raise click.UsageError(f"--json and --format {given} exclude each other.")
    return given


def _check_group(partitions: tuple[int, ...], begin: LogPosition | None) -> None:
    """Raises click.UsageError for options that contradict a group's own assignment and offsets."""
    if partitions:
        raise click.UsageError(
            "--partition and --group exclude each other: a group shares out its partitions."
        )
    if begin is not None and begin.kind not in (BEGINNING, END):
        raise click.UsageError(
            "With --group, --from is beginning or end. Use `ottla groups reset-offsets` to move a group."
        )


def _end(until: LogPosition | None, follow: bool | None) -> LogPosition | None:
    """The position to stop at; None for never."""
    if until is not None and until.kind not in (END, OFFSET, TIME):
        raise click.BadParameter("end, an offset or a time", param_hint="--until")
    if follow and until is not None:
        raise click.UsageError("--follow doesn't stop, --until does: give one of them.")
    if follow is not False:
        return until
    if until is not None and until.kind != END:
        raise click.UsageError("--exit means --until end: give one of them.")
    return LogPosition(END)


def _unescape(text: str) -> bytes:
    for escape, meant in (("\\n", "\n"), ("\\t", "\t"), ("\\0", "\0")):
        text = text.replace(escape, meant)
    return text.encode(errors="surrogateescape")


_DECIDED = {
    "group.id": "give -g",
    "enable.auto.commit": "with -g it commits what it has written",
}


def _client_options(console: Console, wanted: ConsumeOptions, isolation: str) -> dict[str, Any]:
    from ottla_client.consumer.settings import ConsumerSettings

    ms = int(console.timeout * 1000)
    return console.settings.of(
        ConsumerSettings,
        decided=_DECIDED,
        client_id="ottla-consume",
        group_id=wanted.group,
        auto_offset_reset="latest" if wanted.begin.kind == END else "earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
        metadata_max_age_ms=_METADATA_AGE_MS,
        default_api_timeout_ms=ms,
        max_poll_records=AT_ONCE,
    )


def _check_share(group: str | None, given: dict[str, bool]) -> None:
    """Raises click.UsageError for options that a share group has no use for."""
    if group is None:
        raise click.UsageError("--share needs --group.")
    wrong = next((option for option, is_given in given.items() if is_given), None)
    if wrong is not None:
        raise click.UsageError(
            f"{wrong} and --share exclude each other: the broker decides which records of a share group come, by the"
            " group's configs."
        )


def _share_options(console: Console, wanted: ConsumeOptions) -> dict[str, Any]:
    from ottla_client.share_consumer.settings import ShareConsumerSettings

    own: dict[str, Any] = {} if wanted.count is None else {"max_poll_records": min(wanted.count, AT_ONCE)}
    return console.settings.of(
        ShareConsumerSettings,
        decided=_DECIDED,
        client_id="ottla-consume",
        group_id=wanted.group,
        default_api_timeout_ms=int(console.timeout * 1000),
        share_acknowledgement_mode="explicit",
        **own,
    )


class ShareRun(PrintRun["ShareConsumer"]):
    """One run of ``ottla consume --share``. The consumer acknowledges explicitly; its close releases the rest."""

    _unknown_since: float | None = None
    """Since when brokers don't know one of the topics."""

    def _make(self, client_options: dict[str, Any]) -> ShareConsumer:
        from ottla_client.share_consumer import ShareConsumer

        consumer = ShareConsumer(**client_options)
        consumer.set_acknowledgement_commit_callback(self._settled)
        return consumer

    async def _topics(self) -> list[str]:
        from ottla_client.share_consumer.settings import ShareConsumerSettings

        await require_topics(self._console, ShareConsumerSettings, self._wanted.topics, None)
        return list(dict.fromkeys(self._wanted.topics))

    async def _begin(self, consumer: ShareConsumer, topics: Sequence[str]) -> None:
        consumer.subscribe(topics)

    async def _poll(self, consumer: ShareConsumer, at_most: int) -> list[Rows]:
        from ottla_client.share_consumer.consumer import poll_rows

        return await poll_rows(consumer, timeout_ms=POLL_MS, max_records=at_most)

    def _wrote(self, consumer: ShareConsumer, rows: Rows) -> None:
        from ottla_client.share_consumer.consumer import accept_rows

        accept_rows(consumer, rows)

    async def _turn(self, consumer: ShareConsumer) -> None:
        """End if a topic was deleted: the group's coordinator says nothing of it, and the command would wait."""
        from ottla_client.share_consumer.consumer import unknown_topics

        gone = unknown_topics(consumer)
        if not gone:
            self._unknown_since = None
        elif self._unknown_since is None:
            self._unknown_since = monotonic()
        elif monotonic() - self._unknown_since > _GONE_AFTER:
            raise UnknownTopicError(f"topic {gone[0]!r} has been deleted")

    @property
    def _close_seconds(self) -> float:
        # The broker takes what is settled only once it has answered the request for records, which waits for some.
        return TIDY_SECONDS

    def _settled(self, offsets: Mapping[TopicPartition, frozenset[int]], error: ClientError | None) -> None:
        if error is not None:
            count = plural(sum(map(len, offsets.values())), "record")
            self._console.note(f"{count} may be delivered again: {error}")
