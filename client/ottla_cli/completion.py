"""``ottla completion``: scripts by which shells complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

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
    """Print a shell script that completes commands, options, topics and groups.

    Topics and groups come from the brokers of --bootstrap-server or OTTLA_BOOTSTRAP_SERVER, with the options of -X.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # the three are click's own
    script = kind(context.find_root().command, {}, "ottla", "_OTTLA_COMPLETE")
    # Not source(), which runs bash to learn its version first.
    click.echo(script.source_template % script.source_vars())
