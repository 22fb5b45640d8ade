"""Every command and option on the page about the command line, and in examples of help texts, exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ottla_cli.ottla import main

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
WITHOUT_EXAMPLES = ("completion",)


def command_lines(text: str, mark: str) -> list[list[str]]:
    """The words of each ``ottla …`` after ``mark`` or in a pipe, up to the pipe's next part."""
    text = re.sub(r"\s*\\\n\s*", " ", text)  # a line that goes on in the next one
    lines = (line.removeprefix(mark).strip() for line in text.splitlines() if line.startswith(mark))
    parts = (part for line in lines for part in line.split("| "))
    return [shlex.split(re.split(r" {3,}| > ", part)[0])[1:] for part in parts if part.startswith("ottla ")]


def commands(
    context: click.Context, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands, with the words that call them."""
    for name in main.list_commands(context) if not path else ():
        command = main.get_command(context, name)
        assert command is not None
        yield (name,), command
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                assert found is not None
                yield (name, below), found


def check(words: list[str]) -> None:
    """Parse a command line as click would, without running it."""
    command: click.Command = main
    while isinstance(command, click.Group) and (words or not command.invoke_without_command):
        if words[0].startswith("-"):
            if command.invoke_without_command:
                break
            assert words[0] in ("--help", "--version"), words
            return
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found
    parser = command.make_parser(click.Context(command))
    parser.parse_args(list(words))


def test_every_command_on_the_page_can_be_typed() -> None:
    lines = command_lines(PAGE.read_text(), "$ ")
    assert len(lines) > 20
    for words in lines:
        check(words)


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_every_example_in_help_can_be_typed(name: str) -> None:
    lines = [
        words
        for path, command in commands(click.Context(main))
        if path[0] == name
        for block in re.findall(r"\x08\n(.*?)(?:\n\n|\Z)", command.help or "", re.DOTALL)
        for words in command_lines(block, "")
    ]
    assert lines or name in WITHOUT_EXAMPLES
    for words in lines:
        check(words)
