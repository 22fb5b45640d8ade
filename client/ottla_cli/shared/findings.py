"""Findings of checks, and how commands show them: a table at a terminal, otherwise two lines each, and their count."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import click

from .admin import plural
from .tables import Column

if TYPE_CHECKING:
    from .terminal import Console

T = TypeVar("T")

CRITICAL: Final = "critical"
WARNING: Final = "warning"
NOTE: Final = "note"
SEVERITIES: Final = (CRITICAL, WARNING, NOTE)

_STYLES: Final = {CRITICAL: "red bold", WARNING: "bold", NOTE: "dim"}
_NAMED: Final = 5


class Finding(NamedTuple):
    """Something that is wrong, or soon will be.

    ``check`` is a short name that doesn't change; ``action`` says what to do.
    """

    severity: str
    check: str
    subject: str
    what: str
    action: str


def worst_first(checks: Iterable[Callable[[T], Iterable[Finding]]], seen: T) -> list[Finding]:
    found = [finding for check in checks for finding in check(seen)]
    return sorted(found, key=lambda each: SEVERITIES.index(each.severity))


def some_of(names: Sequence[str]) -> str:
    """``a, b, c, d, e and 3 more``"""
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED:,} more"


def brokers_named(count: int, names: str) -> str:
    """``broker 1001``, ``brokers 1-3``"""
    return f"broker {names}" if count == 1 else f"brokers {names}"


def report(
    console: Console,
    found: Sequence[Finding],
    unchecked: Sequence[str],
    *,
    verdict: str,
    looked: Mapping[str, int],
    nothing: str,
    blind: str | None = None,
) -> None:
    """Print findings, what couldn't be checked, and how much was; exit with 1 if one is more than a note.

    ``verdict`` is the name in JSON of being without these, null if something that couldn't be checked may be one;
    ``nothing`` says in text that there are no findings at all. ``blind`` says what was missing to see anything; the
    exit code is 1 then too, so that a job that runs it doesn't take it for a good result.
    """
    bad = any(each.severity != NOTE for each in found)
    if console.as_json:
        findings = [each._asdict() for each in found]
        good = None if (unchecked or blind) and not bad else not bad
        console.emit({verdict: good, "findings": findings, "unchecked": unchecked, **looked})
    else:
        _show(console, found, unchecked)
        counts = ", ".join(plural(count, name.removesuffix("s")) for name, count in looked.items())
        if found or blind is None:
            console.print(f"{_counts_of(found) or nothing} ({counts})")
    if blind is not None:
        click.echo(f"Error: {blind}", err=True)
    if bad or blind is not None:
        sys.exit(1)


def _show(console: Console, found: Sequence[Finding], unchecked: Sequence[str]) -> None:
    columns = [
        Column("Severity", style=lambda severity: _STYLES[severity]),
        Column("Subject"),
        Column("Finding"),
        Column("What to do"),
    ]
    if found and not console.is_terminal:
        # A table of sentences is hard to read without a terminal's columns.
        for each in found:
            console.print(f"{each.severity}: {each.subject}: {each.what}")
            console.print(f"    {each.action}")
        console.print()
    elif found:
        console.table(columns, [(each.severity, each.subject, each.what, each.action) for each in found])
        console.print()
    for why in unchecked:
        console.note(why)


def _counts_of(found: Sequence[Finding]) -> str:
    """``1 critical, 2 warnings, 1 note``; empty without findings."""
    counts = {severity: sum(each.severity == severity for each in found) for severity in SEVERITIES}
    said = ", ".join(
        plural(count, severity) for severity, count in counts.items() if count and severity != "critical"
    )
    if counts["critical"]:
        said = f"{counts['critical']:,} critical" + (f", {said}" if said else "")
    return said
