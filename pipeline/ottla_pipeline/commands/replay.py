"""``ottla pipeline replay``: parses dead letters again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from ottla_cli import Console

from ..progress import count
from .common import (
    check_client,
    compression_option,
    connecting,
    dead_letters_option,
    failing,
    partition_option,
    require_topics,
    size_option,
    table_options,
    value_options,
)


@click.command(short_help="Parse dead letters again and land them.")
@table_options
@dead_letters_option(required=True, help="Read dead letters from here, as in the job.")
@value_options
@partition_option(help="Name a column that partitions the table, as in the job. May be repeated.")
@size_option(help="Of the files, about.")
@compression_option
@connecting
def replay(
    console: Console,
    client: Mapping[str, str],
    place: dict[str, Any],
    dead_letters: str,
    **settings: Any,
) -> None:
    """Parse a table's dead letters again, for example with another schema, and land those that fit, exactly once.

    Those that still fail stay dead letters, with the new reason, and the exit code is 1. Needs neither Spark nor Java.

    \b
    ottla pipeline replay --table lake/flights --values json --dead-letters topic:flights-dead
    ottla pipeline replay --table lake/orders --values json --dead-letters table:lake/orders-dead \\
          --schema orders-2.schema.json
    """
    with failing(console):
        from .. import landing

        check_client(client)
        kind, _, topic = dead_letters.partition(":")
        job = landing.Landing(
            console.settings.bootstrap_servers,
            # The dead letters name their topics.
            pattern=".*",
            dead_letters=dead_letters,
            client=client,
            **place,
            **settings,
        )
        if kind == "topic":
            require_topics(console, client, [topic])
        done = landing.replay(job)
        if console.as_json:
            console.emit(asdict(done))
        elif not done.landed and not done.failed:
            console.print(f"no dead letters for {job.table}")
        else:
            text = f"{count(done.landed, 'dead letter')} landed in {job.table}"
            console.print(f"{text}, {done.failed:,} still fail" if done.failed else text)
    if done.failed:
        click.get_current_context().exit(1)
