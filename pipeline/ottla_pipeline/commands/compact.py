"""``ottla pipeline compact``: joins a table's small files, and deletes orphans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from ottla_client.commands import Console, amount_of_bytes

from ..progress import count
from .common import failing, local, require, table_options
from .types import COMPRESSIONS, Choice, Duration, Size


@click.command(short_help="Join a table's small files.")
@table_options
@click.option(
    "--target-file-size",
    type=Size(),
    default="128m",
    show_default=True,
    metavar="SIZE",
    help="Aim at this size; files smaller than three quarters of it are joined.",
)
@click.option(
    "--compression", type=Choice(COMPRESSIONS), default="zstd", show_default=True, help="Of the files."
)
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
def compact(
    console: Console,
    table: str,
    form: str,
    catalog: Mapping[str, str],
    storage: Mapping[str, str],
    names: Mapping[str, str],
    target_file_size: int,
    compression: str,
    older_than: float,
) -> None:
    """Join a table's small files into large ones, and delete files that it doesn't need.

    Rows and landed offsets stay the same. A job may land in the table meanwhile. Needs neither brokers nor Spark.

    \b
    ottla pipeline compact --table lake/flights
    ottla pipeline compact --table lake/flights --target-file-size 512m --older-than 7d
    ottla pipeline compact --table lake/default.orders --format iceberg --json
    """
    require("compact", form)
    with failing():
        from .. import landing
        from ..landing.tables import Names

        done = landing.compact(
            table,
            form,
            target_file_size=target_file_size,
            compression=compression,
            older_than=older_than,
            catalog=dict(catalog) or None,
            storage=dict(storage) or None,
            names=Names(**names),
        )
        if console.as_json:
            console.emit(asdict(done))
        else:
            console.print(_said(table, done))


def _said(table: str, done: Any) -> str:
    if done.rewritten:
        joined = f"{count(done.rows, 'row')} rewritten, {done.before:,} files are {done.after:,} now"
    else:
        joined = f"nothing to join in {count(done.after, 'file')}"
    if done.orphans:
        joined += f"; {count(done.orphans, 'file')} deleted that it didn't need ({amount_of_bytes(done.orphan_bytes)})"
    return f"{table}: {joined}"
