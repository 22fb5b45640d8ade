"""The project's pages in Markdown, and what can be found in one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "protocol/*.md", "broker/*.md", "client/*.md", "bench/*.md")
    for path in ROOT.glob(pattern)
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKED = re.compile(r"^<!-- (\w+): (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its language and text."""

    language: str
    text: str


@cache
def text(page: Path) -> str:
    return page.read_text()


def name(page: Path) -> str:
    """For a test's id."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> Iterator[str]:
    for found, body in _FENCE.findall(text(page)):
        if found == language:
            yield body


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _FENCE.sub("", text(page))


def inline_code(page: Path) -> Iterator[str]:
    yield from re.findall(r"`([^`\n]+)`", prose(page))


def marked(page: Path, kind: str) -> dict[str, str]:
    """Blocks with a comment before them such as ``<!-- file: produce.py -->``, by that name."""
    return {named: body for found, named, body in _MARKED.findall(text(page)) if found == kind}
