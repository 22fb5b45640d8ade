"""``ottla pipeline compact``: joins a table's small files, and deletes orphans."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from ottla_cli import Console, amount_of_bytes

from ..progress import count
from .common import compression_option, failing, local, size_option, table_options
from .types import Duration


@click.command(short_help="Join a table's small files.")
@table_options
@size_option(help="Aim at this size; files smaller than three quarters of it are joined.")
@compression_option
@click.option(
    "--older-than",
    type=Duration(),
    default="1d",
    show_default=True,
    metavar="TIME",
    help="Delete files of this age that the table doesn't need, left by killed tasks or earlier compactions. It has to "
    "be longer than any batch, and than any reader needs an older version.",
)
@local
def compact(console: Console, place: dict[str, Any], **settings: Any) -> None:
    """Join a table's small files into large ones, and delete files that it doesn't need.

    Rows and landed offsets stay the same. A job may land in the table meanwhile. Needs neither brokers nor Spark.

    \b
    ottla pipeline compact --table lake/flights
    ottla pipeline compact --table lake/flights --target-file-size 512m --older-than 7d
    ottla pipeline compact --table lake/default.orders --format iceberg --json
    """
    with failing(console):
        from .. import landing

        done = landing.compact(**place, **settings)
        console.report(asdict(done), _said(place["table"], done))


def _said(table: str, done: Any) -> str:
    if done.rewritten:
        joined = f"{count(done.rows, 'row')} rewritten, {done.before:,} files are {done.after:,} now"
    else:
        joined = f"nothing to join in {count(done.after, 'file')}"
    if done.orphans:
        joined += f"; {count(done.orphans, 'file')} deleted that it didn't need ({amount_of_bytes(done.orphan_bytes)})"
    return f"{table}: {joined}"
