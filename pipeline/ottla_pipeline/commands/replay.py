"""``ottla pipeline replay``: parses dead letters again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from ottla_client.commands import Console

from ..progress import count
from .common import check_client, connecting, failing, require, require_topics, table_options, value_options
from .types import COMPRESSIONS, Choice, Size, dead_letters


@click.command(short_help="Parse dead letters again and land them.")
@table_options
@click.option(
    "--dead-letters",
    required=True,
    callback=dead_letters,
    metavar="topic:NAME|table:PLACE",
    help="Read dead letters from here, as in the job.",
)
@value_options
@click.option(
    "--partition-by",
    "partition_by",
    multiple=True,
    metavar="COLUMN",
    help="Name a column that partitions the table, as in the job. May be repeated.",
)
@click.option(
    "--target-file-size",
    type=Size(),
    default="128m",
    show_default=True,
    metavar="SIZE",
    help="Of the files, about.",
)
@click.option(
    "--compression", type=Choice(COMPRESSIONS), default="zstd", show_default=True, help="Of the files."
)
@connecting
def replay(
    console: Console,
    client: Mapping[str, str],
    table: str,
    form: str,
    catalog: Mapping[str, str],
    storage: Mapping[str, str],
    names: Mapping[str, str],
    dead_letters: str,
    values: str,
    schema: str | None,
    delimiter: str,
    confluent: bool,
    partition_by: Sequence[str],
    target_file_size: int,
    compression: str,
) -> None:
    """Parse a table's dead letters again, for example with another schema, and land those that fit, exactly once.

    Those that still fail stay dead letters, with the new reason, and the exit code is 1. Needs neither Spark nor Java.

    \b
    ottla pipeline replay --table lake/flights --values json --dead-letters topic:flights-dead
    ottla pipeline replay --table lake/orders --values json --dead-letters table:lake/orders-dead \\
          --schema orders-2.schema.json
    """
    require("replay", form)
    with failing():
        from .. import landing
        from ..landing.tables import Names

        check_client(client)
        kind, _, place = dead_letters.partition(":")
        job = landing.Landing(
            console.settings.bootstrap_servers,
            table,
            # The dead letters name their topics.
            pattern=".*",
            format=form,
            values=values,
            schema=schema,
            delimiter=delimiter,
            confluent=confluent,
            partition_by=tuple(partition_by),
            target_file_size=target_file_size,
            compression=compression,
            dead_letters=dead_letters,
            client=client,
            names=Names(**names),
            catalog=dict(catalog) or None,
            storage=dict(storage) or None,
        )
        if kind == "topic":
            require_topics(console, client, [place])
        done = landing.replay(job)
        if console.as_json:
            console.emit(asdict(done))
        elif not done.landed and not done.failed:
            console.print(f"no dead letters for {table}")
        else:
            text = f"{count(done.landed, 'dead letter')} landed in {table}"
            console.print(f"{text}, {done.failed:,} still fail" if done.failed else text)
    if done.failed:
        click.get_current_context().exit(1)
