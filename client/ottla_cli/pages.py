"""``python -m ottla_cli.pages FOLDER`` writes one page of Markdown per command, in ``docs/cli``.

The pages come from the commands' declarations; a test keeps them up to date.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from .ottla import main

_NOTE = "<!-- Made from the command's declaration by `python -m ottla_cli.pages docs/cli`. -->"
_COMMON = ("bootstrap_server", "as_json", "timeout", "client_settings")


def pages() -> dict[str, str]:
    """The text of each page by file name."""
    root = click.Context(main, info_name="ottla", max_content_width=100, terminal_width=100)
    made = {}
    for name in main.list_commands(root):
        command = main.get_command(root, name)
        assert command is not None
        made[f"{name}.md"] = "\n".join([_NOTE, "", *_sections(command, name, root, "#")]).rstrip() + "\n"
    return made


def _sections(command: click.Command, name: str, parent: click.Context, heading: str) -> Iterator[str]:
    with click.Context(command, parent, name, max_content_width=100, terminal_width=100) as context:
        yield from (f"{heading} {context.command_path}", "")
        yield from _text(command.help or "")
        usage = " ".join(command.collect_usage_pieces(context))
        yield from ("```text", f"{context.command_path} {usage}".rstrip(), "```", "")
        yield from _options(command, context)
        if command.epilog:
            yield from _text(command.epilog)
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                found = command.get_command(context, each)
                assert found is not None
                yield from _sections(found, each, context, "##")


def _text(text: str) -> Iterator[str]:
    """Paragraphs of a help text; those after ``\\b`` are kept as they are."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.splitlines()[1:], "```", "")
        elif paragraph.strip():
            yield from (" ".join(paragraph.split()), "")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = []
    common = False
    for parameter in command.get_params(context):
        if not isinstance(parameter, click.Option) or parameter.hidden or "--help" in parameter.opts:
            continue
        if parameter.name in _COMMON:
            common = common or parameter.name == "client_settings"
            continue
        record = parameter.get_help_record(context)
        if record is not None:
            rows.append("| " + " | ".join(_cell(part) for part in (f"`{record[0]}`", record[1])) + " |")
    if rows:
        yield from ("| option | meaning |", "|---|---|", *rows, "")
    if common:
        yield from ("The [common options](../command-line.md#common-to-all-commands) apply as well.", "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file, page in pages().items():
        (folder / file).write_text(page)
