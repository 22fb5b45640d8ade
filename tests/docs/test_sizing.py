"""The figures that docs/sizing.md quotes are on the page of benchmarks, and its limits are the code's."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT, text

from ottla_broker.config.broker import all_keys

PAGE = ROOT / "docs/sizing.md"
NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def rows(heading: str) -> list[list[str]]:
    """The rows of all tables below a heading, without the columns' names."""
    part = text(PAGE).split(f"## {heading}\n")[1].split("\n## ")[0]
    tables = re.findall(r"^\|[-|]+\|\n((?:\|.*\n)+)", part, re.MULTILINE)
    return [line.strip("| ").split(" | ") for table in tables for line in table.splitlines()]


@pytest.mark.parametrize("heading", ["What it costs", "How fast"])
def test_figures_are_measured(heading: str) -> None:
    known = set(NUMBER.findall(text(ROOT / "docs/benchmarks.md")))
    found = rows(heading)
    assert len(found) > 9
    for what, *figures in found:
        for figure in figures:
            assert set(NUMBER.findall(figure)) <= known, f"{what}: {figure}"


def test_limits_are_the_defaults() -> None:
    for what, default, _ in rows("Limits"):
        keys = re.findall(r"`([a-z.]+)`", what)
        for key in keys:
            value = all_keys()[key].default
            number = int(NUMBER.findall(default)[0].replace(",", "")) if default != "none" else None
            size = None if number is None else number << 20 if "MiB" in default else number
            assert value in {size, -1 if "MiB" in default else size, None if size else 2**31 - 1}, key
