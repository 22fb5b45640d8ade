"""The command ``ottla``: a group whose subcommands come from entry points.

A package adds subcommands with the entry-point group ``ottla.commands``. Each is imported only when it is called, so
``ottla broker`` neither loads nor needs the other packages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ottla_client.suggestions import did_you_mean
from ottla_protocol.printable import printable

from .start import loaded

GROUP = "ottla.commands"


# The sections of `ottla --help`; commands of other packages come last.
SECTIONS = {
    "Records": ("produce", "consume"),
    "Cluster": (
        "topics",
        "groups",
        "transactions",
        "configs",
        "acls",
        "tokens",
        "quotas",
        "security",
        "cluster",
        "features",
        "console",
    ),
    "Broker": ("broker", "log"),
    "Pipeline": ("pipeline",),
    "Tools": ("bench", "completion"),
}
_OTHERS = "Others"
_UNKNOWN_COMMAND = re.compile(r"No such command '(.*)'")  # click's words; before 8.4 there is no class for it
_OTHER_WORDS = {"--unset": "--delete"}
"""Options of other tools, whose letters are like those of another option here."""
_SHORT = 200  # characters of a short help; longer sentences are cut


class Commands(click.Group):
    """Finds commands by entry point and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from importlib.metadata import entry_points

        return sorted({*super().list_commands(ctx), *entry_points(group=GROUP).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = super().get_command(ctx, cmd_name)
        if known is not None:
            return known
        target = dict(_installed_commands()).get(cmd_name) or _registered_command(cmd_name)
        try:
            return None if target is None else _load(cmd_name, target)
        finally:
            loaded()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in click, but says where an option belongs that is given before the command."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            raise click.UsageError(
                f"No such option {error.option_name!r} here; give options after the command", ctx
            ) from None

    def invoke(self, ctx: click.Context) -> Any:
        """As in click, but an unknown command of any group gets our suggestion, and Ctrl-C ends with 130.

        An error's text does nothing to a terminal: it may have names that strangers chose.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # before the command runs, whose own end is in `ending`
            sys.exit(130)
        except click.UsageError as error:
            raise _with_suggestion(error) from None
        except click.ClickException as error:
            error.message = _harmless(error.message)  # type: ignore[misc]
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands in sections. A command whose packages aren't installed says so."""
        left = self.list_commands(ctx)
        for title, wanted in {**SECTIONS, _OTHERS: tuple(left)}.items():
            names = [name for name in wanted if name in left]
            left = [name for name in left if name not in names]
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, self._help_of(ctx, name)) for name in names])

    def _help_of(self, ctx: click.Context, name: str) -> str:
        try:
            command = self.get_command(ctx, name)
        except click.ClickException as error:
            return error.message
        return "" if command is None else command.get_short_help_str(_SHORT)


def _with_suggestion(error: click.UsageError) -> click.UsageError:
    context, unknown = error.ctx, _UNKNOWN_COMMAND.match(error.message)
    if isinstance(error, click.NoSuchOption) and error.option_name in _OTHER_WORDS and context is not None:
        meant = _OTHER_WORDS[error.option_name]
        if any(meant in parameter.opts for parameter in context.command.params):
            return click.UsageError(f"No such option '{error.option_name}'. Did you mean '{meant}'?", context)
    if context is not None and unknown is not None and isinstance(context.command, click.Group):
        known = context.command.list_commands(context)
        return click.UsageError(printable(unknown[0]) + did_you_mean(unknown[1], known), context)
    error.message = _harmless(error.message)  # type: ignore[misc]
    return error


def _harmless(message: str) -> str:
    return "\n".join(map(printable, message.split("\n")))


def _installed_commands() -> Iterator[tuple[str, str]]:
    """Name and target (``module:attribute``) of the commands in the folders of ``sys.path``.

    Reads ``*.dist-info/entry_points.txt`` directly, because importlib.metadata costs a fifth of the broker's start.
    """
    for folder in sys.path:
        for file in sorted(Path(folder).glob("*.dist-info/entry_points.txt")) if folder else ():
            text = file.read_text(encoding="utf-8")
            _, found, rest = text.partition(f"[{GROUP}]")
            if found:
                for line in rest.partition("\n[")[0].splitlines():
                    name, equals, target = line.partition("=")
                    if equals:
                        yield name.strip(), target.strip()


def _registered_command(name: str) -> str | None:
    """The target of a command by importlib.metadata, which also finds packages that aren't in a plain folder."""
    from importlib.metadata import entry_points

    for found in entry_points(group=GROUP, name=name):
        return found.value
    return None


def _load(name: str, target: str) -> click.Command:
    module, _, attribute = target.partition(":")
    try:
        command = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"`ottla {name}` needs a package that isn't installed ({error.name}): pip install 'ottla[broker]'"
        ) from error
    except ImportError as error:
        raise click.ClickException(f"`ottla {name}`: {error}") from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"`ottla {name}`: {target} is not a command")
    return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="ottla", prog_name="ottla")
def main() -> None:
    """A Kafka broker in Python, with a client, command line and Spark pipeline.

    All commands except "broker" and "log" work with any Kafka cluster. Choose it with -b HOST:PORT after the
    command, or with OTTLA_BOOTSTRAP_SERVER; the default is 127.0.0.1:9092. "ottla COMMAND --help" shows examples.

    \b
    ottla broker                                   run a broker here
    ottla topics create flights --partitions 4
    ottla produce flights flights.csv -F csv --key tailnum
    ottla consume flights --from -5 --exit         the last five of each partition
    ottla groups describe billing                  a group's lag
    """
