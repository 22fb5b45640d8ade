"""``ottla pipeline rename-column``: renames a column of a table, without touching its files."""

from __future__ import annotations

from typing import Any

import click

from ottla_cli import Console

from .common import failing, local, open_table, table_options


@click.command("rename-column", short_help="Rename the column of partitions that Iceberg reserves.")
@table_options
@click.option(
    "--from", "old", default="_partition", show_default=True, metavar="COLUMN", help="Rename this column."
)
@click.option(
    "--to", "new", default="_topic_partition", show_default=True, metavar="COLUMN", help="Give it this name."
)
@local
def rename_column(console: Console, place: dict[str, Any], old: str, new: str) -> None:
    """Rename a column of an Iceberg table: by default _partition, as earlier versions of Ottla called a column.

    Iceberg reserves that name, so Spark can't SELECT * from the table. Jobs go on with the new name by themselves. Only
    the table's metadata changes. Delta and Parquet tables don't need it, and would have to be rewritten.

    \b
    ottla pipeline rename-column --table lake/default.orders --format iceberg
    """
    with failing(console):
        found = open_table(place)
        if not found.exists():
            raise click.ClickException(f"the {found.format} table {found.name} doesn't exist")
        found.refresh()
        names = found.schema().names
        if old not in names or new in names:
            there = f"has a column {new} already" if new in names else f"has no column {old}"
            raise click.ClickException(f"{found.name} {there}")
        found.rename(old, new)
        console.report({"table": found.name, "from": old, "to": new}, f"{found.name}: {old} is {new} now")
