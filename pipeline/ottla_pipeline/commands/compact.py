"""``ottla pipeline compact``: a table's small files joined, and files that nobody needs deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from ottla_client.commands import Console, amount_of_bytes

from ..progress import count
from .common import failing, local, require, table_options
from .types import COMPRESSIONS, Choice, Duration, Size


@click.command(short_help="Few large files out of many small ones.")
@table_options
@click.option(
    "--target-file-size",
    type=Size(),
    default="128m",
    show_default=True,
    metavar="SIZE",
    help="Of the files, about; those that are smaller than three quarters of it are joined.",
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
    help="Delete files that are this old and that the table doesn't need: of tasks that were killed, or joined before. "
    "Longer than any batch takes, and as long as anybody reads older versions.",
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
    """Make few large files out of a table's many small ones, and delete those that it doesn't need.

    Rows stay as they are, and so does what the table knows of its topics. A job may land in it meanwhile. Needs
    neither brokers nor Spark.

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
