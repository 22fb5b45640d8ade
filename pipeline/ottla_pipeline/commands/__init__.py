"""``ottla pipeline``: lands topics in tables exactly once, and maintains the tables.

Importing this imports neither Spark nor Arrow: a command imports them when it is called, and names a missing package.
"""

from __future__ import annotations

from importlib import import_module

import click

_COMMANDS = ("land", "replay", "audit", "compact", "rename-column")


class _Pipeline(click.Group):
    """Imports only the command that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"{__name__}.{cmd_name.partition('-')[0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Pipeline)
def pipeline() -> None:
    """Land topics in Delta Lake, Iceberg or Parquet, exactly once.

    \b
    ottla pipeline land flights --table lake/flights --values json --dead-letters topic:dead
    ottla pipeline replay --table lake/flights --values json --dead-letters topic:dead
    ottla pipeline audit --table lake/flights        check that every record is there, once
    ottla pipeline compact --table lake/flights      join small files
    ottla pipeline rename-column --table …           of a table of an earlier version
    """
