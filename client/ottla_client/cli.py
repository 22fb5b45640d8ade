"""The command ``ottla``: a group whose subcommands come from entry points.

A package that has something to offer at the command line names it in the entry-point group ``ottla.commands``; it is
imported only when its command is called, so that ``ottla broker`` starts without the others, and without them installed.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

GROUP = "ottla.commands"


class Commands(click.Group):
    """Finds commands by entry point, and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(found.name for found in entry_points(group=GROUP))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = super().get_command(ctx, cmd_name)
        if known is not None:
            return known
        for found in entry_points(group=GROUP, name=cmd_name):
            return _load(found)
        return None


def _load(found: EntryPoint) -> click.Command:
    try:
        command = found.load()
    except ImportError as error:
        raise click.ClickException(
            f"`ottla {found.name}` needs a package that isn't installed ({error.name}): pip install 'ottla[broker]'"
        ) from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"`ottla {found.name}`: {found.value} is not a command")
    return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ottla", prog_name="ottla")
def main() -> None:
    """A Kafka broker in Python, and what goes with it."""
