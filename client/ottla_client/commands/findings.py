"""How commands show findings: a table at a terminal, otherwise two lines each, and a line with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .admin_common import plural
from .console import Console
from .doctor_checks import SEVERITIES, Finding
from .tables import Column

_STYLES: Final = {"critical": "red bold", "warning": "bold", "note": "dim"}


def show_findings(console: Console, found: Sequence[Finding], unchecked: Sequence[str]) -> None:
    """Print findings, and note what couldn't be checked."""
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


def counts_of(found: Sequence[Finding]) -> str:
    """``1 critical, 2 warnings, 1 note``; empty without findings."""
    counts = {severity: sum(each.severity == severity for each in found) for severity in SEVERITIES}
    said = ", ".join(
        plural(count, severity) for severity, count in counts.items() if count and severity != "critical"
    )
    if counts["critical"]:
        said = f"{counts['critical']:,} critical" + (f", {said}" if said else "")
    return said
