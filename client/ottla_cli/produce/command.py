"""``ottla produce``: send records from lines, JSON lines, CSV or whole files."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import click

from ..shared.producer_options import ACKS, COMPRESSION, LINGER, producer_options
from ..shared.terminal import Console, options
from ..shared.topic_checks import TOPIC
from .input_files import STDIN
from .parsers import Fields, FileParser, LineParser, Parser
from .records import ProduceRun
from .structured_parsers import CsvParser, JsonParser
from .transactions import TransactionalRun

_PARSERS: dict[str, type[Parser]] = {
    "lines": LineParser,
    "json": JsonParser,
    "csv": CsvParser,
    "raw": FileParser,
}
_WITH_FIELDS = ("json", "csv")


def _pairs(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Repeated ``NAME=VALUE``. A header's name may be empty."""
    pairs = []
    for value in values:
        name, equals, rest = value.partition("=")
        if not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        pairs.append((name, rest))
    return tuple(pairs)


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument(
    "files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="[FILE]..."
)
@click.option(
    "-F",
    "--format",
    "form",
    type=click.Choice(list(_PARSERS)),
    default="lines",
    show_default=True,
    help="Read lines as values; json lines, which are checked; csv with column names in its first row, where each "
    "row becomes a JSON object; or, with raw, each file as one record.",
)
@click.option(
    "-k",
    "--key",
    metavar="FIELD",
    help="Take the key from a CSV column or a field of the JSON object (user.id).",
)
@click.option(
    "-K",
    "--key-separator",
    metavar="TEXT",
    help=r"With lines, take the key from the part before the first TEXT. \t is a tab.",
)
@click.option(
    "--value",
    metavar="FIELD",
    help="Send one CSV column or JSON field as the value instead of the whole row or object.",
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    callback=_pairs,
    metavar="NAME=TEXT",
    help="Add a header to all records.",
)
@click.option(
    "--header-field",
    "header_fields",
    multiple=True,
    callback=_pairs,
    metavar="NAME=FIELD",
    help="Add a header with the value of a CSV column or JSON field.",
)
@click.option(
    "--timestamp",
    metavar="FIELD",
    help="Take the timestamp from a column or field, in ISO 8601 or milliseconds.",
)
@click.option(
    "--null-value",
    metavar="TEXT",
    help="Send values equal to TEXT as null, a tombstone. In CSV rows that become objects, write null for them.",
)
@click.option(
    "--delimiter",
    default=",",
    show_default=True,
    metavar="CHAR",
    help=r"Set the character between CSV columns; \t is a tab.",
)
@click.option(
    "-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Send all records to this partition."
)
@COMPRESSION
@ACKS
@LINGER
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Send all records in one transaction, which readers with read_committed see as a whole. An invalid line, a "
    "failure or Ctrl-C aborts it. -X transaction_timeout_ms=… sets how long it may take.",
)
@click.option(
    "--transaction-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Commit after each N records and begin another transaction.",
)
@click.option("--create-topic", is_flag=True, help="Let the broker create the topic if it doesn't exist.")
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip", "file"]),
    default="stop",
    show_default=True,
    help="Choose what to do with an invalid line: stop, skip and report it, or write it to --errors with the reason.",
)
@click.option(
    "--errors",
    "errors_file",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Set the file for --on-error file.",
)
@options
async def produce(
    console: Console,
    topic: str,
    files: tuple[str, ...],
    form: str,
    key: str | None,
    key_separator: str | None,
    value: str | None,
    headers: tuple[tuple[str, str], ...],
    header_fields: tuple[tuple[str, str], ...],
    timestamp: str | None,
    null_value: str | None,
    delimiter: str,
    partition: int | None,
    compression: str,
    acks: str,
    linger: int,
    transactional_id: str | None,
    transaction_size: int | None,
    create_topic: bool,
    on_error: str,
    errors_file: str | None,
) -> None:
    """Send records to TOPIC, from FILEs or standard input (-).

    Lines end with LF or CRLF; a byte order mark is dropped. After Ctrl-C, records that were read are still sent. Exits
    with 1 if a line was invalid (with --on-error stop) or a record could not be delivered.

    \b
    echo hello | ottla produce greetings
    ottla produce flights flights.csv -F csv --key tailnum
    ottla produce events events.jsonl -F json -k user.id --timestamp at
    ottla produce users users.tsv -K '\\t' --null-value ''
    ottla produce flights *.csv -F csv --on-error file --errors rejects.jsonl
    ottla produce images logo.png -F raw -H type=image/png
    ottla produce users users.csv -F csv --transactional-id nightly-users
    """
    fields = Fields(
        key=key,
        value=value,
        timestamp=timestamp,
        header_fields=header_fields,
        headers=tuple((name, text.encode(errors="surrogateescape")) for name, text in headers),
        key_separator=None if key_separator is None else _unescape(key_separator),
        null_value=None if null_value is None else null_value.encode(errors="surrogateescape"),
        delimiter=_unescape(delimiter).decode(errors="replace"),
    )
    _check_fields(form, fields)
    if (errors_file is None) is (on_error == "file"):
        raise click.UsageError("--on-error file and --errors FILE go together")
    if errors_file is not None:
        _check_is_no_input(errors_file, files)
    if transaction_size is not None and transactional_id is None:
        raise click.UsageError("--transaction-size needs a --transactional-id")
    if transactional_id is not None and acks != "all":
        raise click.UsageError("--transactional-id needs --acks all")
    client_options = _client_options(console, compression, acks, linger, create_topic)
    if transactional_id is not None:
        client_options = {
            "transaction_timeout_ms": 60_000,
            **client_options,
            "transactional_id": transactional_id,
        }
    with open(errors_file, "w", encoding="utf-8") if errors_file else contextlib.nullcontext() as rejects:
        if transactional_id is None:
            sending = ProduceRun(console, topic, partition, on_error, rejects)
        else:
            sending = TransactionalRun(console, topic, partition, on_error, rejects, transaction_size)
        await sending.run(client_options, _PARSERS[form](fields), files or (STDIN,))


def _check_fields(form: str, fields: Fields) -> None:
    """Raises click.UsageError for fields that the format doesn't have."""
    if form not in _WITH_FIELDS and any(fields.names()):
        raise click.UsageError(
            f"--format {form} has no fields: --key, --value, --timestamp and --header-field need "
            "json or csv" + ("; see --key-separator" if fields.key and form == "lines" else "")
        )
    if fields.key_separator is not None and (form != "lines" or not fields.key_separator):
        raise click.UsageError(
            "--key-separator is text between key and value, for --format lines; for json and csv use --key"
        )
    if len(fields.delimiter) != 1 or fields.delimiter in '"\r\n':
        raise click.BadParameter("give one character, but no quote", param_hint="--delimiter")


def _check_is_no_input(errors_file: str, files: tuple[str, ...]) -> None:
    if not os.path.exists(errors_file):
        return
    if any(file != STDIN and os.path.samefile(file, errors_file) for file in files):
        raise click.UsageError(f"--errors {errors_file} is also an input file, and would be overwritten")


def _unescape(text: str) -> bytes:
    return text.replace("\\t", "\t").replace("\\0", "\0").encode(errors="surrogateescape")


def _client_options(
    console: Console, compression: str, acks: str, linger: int, create: bool
) -> dict[str, Any]:
    from ottla_client.producer.settings import ProducerSettings

    ms = int(console.timeout * 1000)
    return console.settings.of(
        ProducerSettings,
        client_id="ottla-produce",
        **producer_options(acks, compression, linger),
        max_block_ms=ms,
        request_timeout_ms=max(1, min(30_000, ms - linger)),
        delivery_timeout_ms=max(ms, linger + 1),
        max_request_size=1 << 20,
        buffer_memory=32 << 20,
        allow_auto_create_topics=create,
    )
