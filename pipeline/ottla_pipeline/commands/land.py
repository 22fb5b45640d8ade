"""``ottla pipeline land``: lands topics in a table, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import click

from ottla_cli import TOPIC, Console, complete_groups

from .common import (
    check_client,
    check_reading,
    compression_option,
    connecting,
    dead_letters_option,
    failing,
    isolation_option,
    partition_option,
    require_topics,
    size_option,
    table_options,
    value_options,
)
from .running import run_job
from .spark import session, spark_options
from .types import AVAILABLE_NOW, Choice, Size, Trigger


@click.command(short_help="Land topics in a table, exactly once.")
@click.argument("topics", nargs=-1, type=TOPIC, metavar="[TOPIC]...")
@click.option(
    "--subscribe-pattern",
    "pattern",
    metavar="REGEX",
    help="Land all topics whose whole name matches, instead of named ones.",
)
@table_options
@value_options
@partition_option(
    help="Partition the table by a column, or by the day of one: date(_timestamp). May be repeated.",
)
@size_option(help="Of the files, about.")
@compression_option
@dead_letters_option(
    help="Send records that can't be parsed here, with their place and the reason. By default the first one ends "
    "the job.",
)
@click.option(
    "--on-corrupt",
    type=Choice(["fail", "deadletter"]),
    default="fail",
    show_default=True,
    help="End the job at a record batch that can't be decoded, or set it aside with the dead letters.",
)
@click.option(
    "--trigger",
    type=Trigger(),
    default=AVAILABLE_NOW,
    show_default=True,
    metavar="now|TIME",
    help="Land what exists now and end (available-now), or land new records at this interval (30s, 5m) until Ctrl-C.",
)
@click.option(
    "--starting-offsets",
    default="earliest",
    show_default=True,
    metavar="PLACE",
    help="Start the first run at earliest, latest, group (its committed offsets), or at offsets as JSON: "
    '{"flights":{"0":23}}.',
)
@click.option(
    "--new-partitions",
    type=Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Start partitions and topics that appear after the first run at their beginning, or at their end.",
)
@click.option(
    "--max-offsets-per-trigger",
    "max_records",
    type=click.IntRange(min=1),
    metavar="N",
    help="Limit a batch to this many offsets.",
)
@click.option(
    "--max-bytes-per-trigger",
    "max_bytes",
    type=Size(),
    metavar="SIZE",
    help="Limit a batch to about this many bytes of the log.",
)
@click.option(
    "--max-bytes-per-partition",
    "task_bytes",
    type=Size(),
    default="64m",
    show_default=True,
    metavar="SIZE",
    help="Limit a task to about this many bytes of the log.",
)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Commit landed offsets to a consumer group, so that `ottla groups describe` shows the lag.",
)
@click.option(
    "--metrics-listener",
    metavar="[HOST:]PORT",
    help="Serve metrics of the job for Prometheus at http://HOST:PORT/metrics while it runs. The default host is "
    "127.0.0.1.",
)
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="No effect: the table itself says where to go on.",
)
@isolation_option(
    help="Read all records, or skip those of open and aborted transactions (read_committed).",
)
@click.option(
    "--segments",
    type=Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Read the broker's segment files if tasks can see them, which is faster: auto, always (or fail), never.",
)
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="End the job if records are gone from the log before they were landed, or go on without them.",
)
@spark_options
@connecting
def land(
    console: Console,
    client: Mapping[str, str],
    topics: Sequence[str],
    pattern: str | None,
    place: dict[str, Any],
    master: str,
    conf: Mapping[str, str],
    **settings: Any,
) -> None:
    """Land TOPICs in a table, exactly once.

    The table's own commits say where to go on: whatever is killed, the same command continues from there, and nothing
    is lost or doubled. Each row has the topic, partition, offset and timestamp of its record. Ctrl-C ends the job
    after the current batch; a second one ends it at once.

    \b
    ottla pipeline land flights --table lake/flights
    ottla pipeline land flights --table lake/flights --values json --dead-letters topic:flights-dead
    ottla pipeline land orders --table lake/orders --values json --schema orders.schema.json \\
          --partition-by 'date(_timestamp)' --trigger 30s -g lake
    ottla pipeline land orders --table lake/default.orders --format iceberg --values avro --schema order.avsc
    ottla pipeline land --subscribe-pattern 'events\\..*' --table lake/events --format parquet
    ottla pipeline land flights --table s3://lake/flights --master spark://host:7077 \\
          --conf spark.executor.memory=4g
    """
    if bool(topics) is (pattern is not None):
        raise click.UsageError("Name one or more topics, or give a --subscribe-pattern.")
    with failing(console):
        from .. import landing

        check_client(client)
        job = landing.Landing(
            console.settings.bootstrap_servers,
            topics=tuple(topics),
            pattern=pattern,
            client=client,
            **place,
            **settings,
        )
        check_reading(job)
        require_topics(console, client, topics)
        began = monotonic()
        with session(console, master, conf, f"land {', '.join(topics) or pattern}") as spark:
            run_job(
                console,
                spark,
                job.table,
                lambda on_batch, stop: landing.land(job, spark, on_batch, stop=stop),
                monotonic() - began,
            )
