"""The generated pages of the commands are up to date."""

from __future__ import annotations

from pathlib import Path

from ottla_cli.pages import pages

FOLDER = Path(__file__).parents[2] / "docs" / "cli"


def test_pages_are_those_of_the_commands() -> None:
    found = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    assert found == pages(), "run: python -m ottla_cli.pages docs/cli"
