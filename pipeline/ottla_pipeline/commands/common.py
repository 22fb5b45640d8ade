"""Shared by the commands of ``ottla pipeline``: options of brokers and tables, and errors."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla_cli import (
    ClientOptions,
    Console,
    one_line,
    one_line_errors,
    option_group,
    options,
    unknown,
)
from ottla_client.lowlevel import DEFAULT_BOOTSTRAP

from .types import COMPRESSIONS, Choice, Size, columns, dead_letters, pairs

if TYPE_CHECKING:
    from ottla_pipeline.landing.settings import Landing
    from ottla_pipeline.landing.tables import Table

Command = TypeVar("Command", bound=Callable[..., Any])

EXTRA = "ottla[lakehouse]"
FORMATS = ("delta", "iceberg", "parquet")

# Options of several commands; each command gives its own help.
dead_letters_option = functools.partial(
    click.option, "--dead-letters", callback=dead_letters, metavar="topic:NAME|table:PLACE"
)
partition_option = functools.partial(
    click.option, "--partition-by", "partition_by", multiple=True, metavar="COLUMN"
)
isolation_option = functools.partial(
    click.option,
    "--isolation-level",
    "isolation",
    type=Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
)
size_option = functools.partial(
    click.option, "--target-file-size", type=Size(), default="128m", show_default=True, metavar="SIZE"
)
compression_option = click.option(
    "--compression", type=Choice(COMPRESSIONS), default="zstd", show_default=True, help="Of the files."
)


class NotDone(click.ClickException):
    """The command failed; for commands whose exit code 1 means something else."""

    exit_code = 2


def connecting(command: Command) -> Command:
    """Give a command the options of brokers: a `Console`, and the client's options by Kafka's names, come first."""

    # The preview's name of -X.
    @click.option("--kafka", "kafka", multiple=True, hidden=True, help="Same as -X.")
    @functools.wraps(command)
    def with_client(console: Console, *args: Any, kafka: tuple[str, ...], **rest: Any) -> Any:
        console.settings.add(kafka)
        client = {
            "request.timeout.ms": str(max(1, int(console.timeout * 1000))),
            **console.settings.in_kafka_names(),
        }
        return command(console, client, *args, **rest)

    return options(with_client)  # type: ignore[return-value]


_PLACE = option_group(
    click.option(
        "--table",
        "table",
        required=True,
        metavar="PLACE",
        help="Name the table: a folder or URI; for Iceberg folder/namespace.name, or namespace.name "
        "with --catalog.",
    ),
    click.option(
        "--format",
        "form",
        type=Choice(FORMATS),
        default="delta",
        show_default=True,
        help="Select the table's format.",
    ),
    click.option(
        "--catalog",
        multiple=True,
        callback=pairs,
        metavar="KEY=VALUE",
        help="Set a property of the Iceberg catalogue (type=rest, uri=…). May be repeated. The default is an "
        "SQLite file beside the table.",
    ),
    click.option(
        "--storage",
        multiple=True,
        callback=pairs,
        metavar="KEY=VALUE",
        help="Set an option of a Delta table's object store (AWS_REGION=…). May be repeated.",
    ),
    click.option(
        "--column",
        "names",
        multiple=True,
        callback=columns,
        metavar="KIND=NAME",
        help="Rename the column with a record's topic, partition, offset or timestamp (by default _topic, "
        "_topic_partition, _offset, _timestamp); key=NAME keeps the key as well. May be repeated.",
    ),
)


def table_options(command: Command) -> Command:
    """Give a command ``--table``, ``--format``, ``--catalog``, ``--storage`` and ``--column``.

    It gets them as ``place``, with the names that ``Landing`` and ``compact`` have for them. Raises
    click.ClickException if the format's package isn't installed.
    """

    @functools.wraps(command)
    def with_place(
        *args: Any,
        table: str,
        form: str,
        catalog: Mapping[str, str],
        storage: Mapping[str, str],
        names: Mapping[str, str],
        **rest: Any,
    ) -> Any:
        require(str(click.get_current_context().command.name), form)
        from ..landing.tables import Names

        place = {
            "table": table,
            "format": form,
            "catalog": catalog or None,
            "storage": storage or None,
            "names": Names(**names),
        }
        return command(*args, place=place, **rest)

    return _PLACE(with_place)  # type: ignore[return-value]


value_options = option_group(
    click.option(
        "--values",
        type=Choice(["raw", "json", "csv", "avro"]),
        default="raw",
        show_default=True,
        help="Select the format of the records' values. raw keeps the bytes; the others become columns.",
    ),
    click.option(
        "--schema",
        metavar="TEXT|FILE",
        help="Parse values by columns as in SQL ('flight INT, origin STRING'), a JSON Schema, an Avro schema, or a "
        "file with one of them. The default is the table's schema, or one inferred from a sample of the topic.",
    ),
    click.option(
        "--delimiter",
        default=",",
        show_default=True,
        metavar="CHAR",
        help="Separate the fields of CSV by this character.",
    ),
    click.option(
        "--confluent",
        is_flag=True,
        help="Expect Confluent's magic byte and schema id before Avro values.",
    ),
    click.option(
        "--schema-id",
        "schema_ids",
        type=click.IntRange(0, 2**32 - 1),
        multiple=True,
        metavar="ID",
        help="With --confluent: the id of the given schema. Records with another one become dead letters. May be "
        "repeated.",
    ),
)
"""Gives a command ``--values``, ``--schema``, ``--delimiter``, ``--confluent`` and ``--schema-id``."""


def local(command: Command) -> Command:
    """Give a command that connects to no broker ``--json``, and its `Console` as the first argument."""

    @click.option("--json", "as_json", is_flag=True, help="Output for machines.")
    @functools.wraps(command)
    def with_console(*args: Any, as_json: bool, **rest: Any) -> Any:
        return command(Console(ClientOptions(DEFAULT_BOOTSTRAP, 1.0), as_json=as_json), *args, **rest)

    return with_console  # type: ignore[return-value]


def require(command: str, form: str = "parquet") -> None:
    """Raise click.ClickException naming the extra if a package isn't installed."""
    from importlib.util import find_spec

    needed = {"delta": "deltalake", "iceberg": "pyiceberg"}
    for module in ("pyspark", "pyarrow", "numpy", needed.get(form, "pyarrow")):
        if find_spec(module) is None:
            raise click.ClickException(
                f"`ottla pipeline {command}` needs {module}, which isn't installed: pip install '{EXTRA}'"
            )


def check_client(client: Mapping[str, str]) -> None:
    """Raise OptionError for an unknown or invalid setting."""
    from ottla_pipeline.source import kafka, names

    names.check(f"kafka.{name}" for name in client)
    kafka.client_options(client)


def open_table(place: Mapping[str, Any], table: str | None = None) -> Table:
    """Open the table, or another one of its format. Raises BadSetting for options that the format doesn't take."""
    from ottla_pipeline.landing import tables

    return tables.open_table(
        place["format"], table or place["table"], catalog=place["catalog"], storage=place["storage"]
    )


@contextmanager
def failing(console: Console, failed: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    """End the command with one line and an exit code if it fails.

    An error in the command line becomes a UsageError; other errors become ``failed``.
    """
    from ottla_pipeline.landing.errors import BadSetting, LandingError
    from ottla_pipeline.landing.tables.outside import one_line as outside
    from ottla_pipeline.reading.errors import ReadError
    from ottla_pipeline.source.errors import OptionError, SourceError

    from ..audit import AuditError

    # The error is printed here in one line, so the client need not log it before.
    client = logging.getLogger("ottla_client")
    level = client.level
    client.setLevel(logging.ERROR)
    context = click.get_current_context(silent=True)
    try:
        with (
            one_line_errors(console.settings.as_given),
            outside(context.params.get("table") if context is not None else None),
        ):
            yield
    except click.UsageError:
        raise
    except click.ClickException as error:
        raise failed(error.message) from None
    except (OptionError, BadSetting) as error:
        raise click.UsageError(one_line(error)) from None
    except (SourceError, LandingError, ReadError, AuditError) as error:
        raise failed(one_line(error)) from None
    finally:
        client.setLevel(level)


def check_reading(job: Landing) -> None:
    """Check where reading starts, and the schema that was given. Raises OptionError, click.UsageError."""
    from ottla_pipeline.landing.errors import SchemaRefused
    from ottla_pipeline.landing.parsing import formats
    from ottla_pipeline.source.positions import starting

    starting({"startingoffsets": job.starting_offsets}, "earliest")
    if job.schema is not None:
        try:
            formats.check(job.values, job.schema, delimiter=job.delimiter, confluent=job.confluent)
        except SchemaRefused as error:
            raise click.UsageError(one_line(error)) from None


def require_topics(console: Console, client: Mapping[str, str], topics: Sequence[str]) -> None:
    """Check that the topics exist before anything starts: a mistyped address or name shows within seconds.

    Raises click.ClickException with the nearest names, and ClientError.
    """
    from ottla_pipeline.source.cluster_queries import ClusterQueries
    from ottla_pipeline.source.options import Topics

    quick = {**client, "request.timeout.ms": str(int(console.settings.connect_timeout * 1000))}
    with ClusterQueries(console.settings.bootstrap_servers, quick) as cluster:
        there = cluster.topics(Topics(tuple(topics)))
        for topic in topics:
            if topic not in there:
                raise unknown("topic", topic, cluster.topics(Topics(pattern=".*")))
