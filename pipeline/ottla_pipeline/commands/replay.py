"""``ottla pipeline replay``: dead letters, parsed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from ottla_client.commands import Console

from ..progress import count
from .common import check_client, connecting, failing, require, require_topics, table_options, value_options
from .types import COMPRESSIONS, Choice, Size, dead_letters


@click.command(short_help="Dead letters, parsed again and landed.")
@table_options
@click.option(
    "--dead-letters",
    required=True,
    callback=dead_letters,
    metavar="topic:NAME|table:PLACE",
    help="Where they are, as the job has it.",
)
@value_options
@click.option(
    "--partition-by",
    "partition_by",
    multiple=True,
    metavar="COLUMN",
    help="What the table is partitioned by, as the job has it.",
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
    """Parse a table's dead letters again, with another schema say, and land those that fit. Exactly once, too.

    What still fails stays among the dead letters, with the reason it has now. Exits with 1 if there is such. Needs
    neither Spark nor Java.

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
            # Which topics they came from stands in the dead letters.
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
