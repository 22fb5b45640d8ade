"""``ottla completion``: the shell's completion, and what completes topics and groups."""

from __future__ import annotations

import asyncio
import logging
import os

import click
from click.shell_completion import CompletionItem, get_completion_class

from ..settings import DEFAULT_BOOTSTRAP
from .console import ENVIRONMENT

# Seconds that the cluster gets while somebody waits behind the tabulator key.
_PATIENCE = 1.0

_HOW = {
    "bash": 'eval "$(ottla completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(ottla completion zsh)"     # in ~/.zshrc, after compinit',
    "fish": "ottla completion fish > ~/.config/fish/completions/ottla.fish",
}


@click.command(
    epilog="\b\n" + "\n".join(_HOW.values()),
)
@click.argument("shell", type=click.Choice(list(_HOW)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete commands, options, and names of topics and groups.

    Names are asked of the brokers of --bootstrap-server or OTTLA_BOOTSTRAP_SERVER.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # the three are click's own
    script = kind(context.find_root().command, {}, "ottla", "_OTTLA_COMPLETE")
    # Not source(), which runs bash to learn its version first.
    click.echo(script.source_template % script.source_vars())


def complete_topics(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of topics; none when no broker answers at once."""
    return _complete(context, incomplete, "topics")


def complete_groups(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of groups; none when no broker answers at once."""
    return _complete(context, incomplete, "groups")


def _complete(context: click.Context, incomplete: str, what: str) -> list[CompletionItem]:
    servers = context.params.get("bootstrap_server") or os.environ.get(ENVIRONMENT) or DEFAULT_BOOTSTRAP
    logging.disable(logging.CRITICAL)
    try:
        names = asyncio.run(_names(servers, what))
    except Exception:
        return []  # whatever it is, a shell's prompt is no place to tell of it
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


async def _names(servers: str, what: str) -> list[str]:
    from ..admin import Admin

    async with asyncio.timeout(_PATIENCE):
        admin = Admin(servers)
        await admin.start(_PATIENCE)
        try:
            return list(await (admin.list_topics() if what == "topics" else admin.list_groups()))
        finally:
            await admin.close()
