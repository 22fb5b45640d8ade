"""The demo's running commentary, and the tables at its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,unused-ignore]

    from ottla_pipeline.audit import Audit

# As in the picture, a mean of fewer arrivals is left out.
_FEWEST = 20


class Story:
    """One line per event, with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, line: str) -> None:
        self.console.print(f"{self.seconds:5.1f} s  {line}", highlight=False, soft_wrap=True, markup=False)


def delays(found: pandas.DataFrame) -> Table:
    """Mean arrival delays in whole minutes: carriers as rows, hours as columns. Fits into 80 columns."""
    table = Table(
        title="Mean arrival delay in minutes, by carrier and hour",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
        show_edge=False,
    )
    arrived = found[found["arrived"] >= _FEWEST]
    hours = sorted(arrived["hour"].unique())
    table.add_column("", no_wrap=True)
    for hour in hours:
        table.add_column(f"{hour}", justify="right", no_wrap=True)
    means = {
        (carrier, hour): round(minutes / count)
        for carrier, hour, minutes, count in arrived[["carrier", "hour", "minutes", "arrived"]].itertuples(
            index=False
        )
    }
    for carrier in found.groupby("carrier")["flights"].sum().sort_values(ascending=False).index:
        cells = [means.get((carrier, hour)) for hour in hours]
        table.add_row(carrier, *("" if cell is None else _coloured(cell) for cell in cells))
    return table


def _coloured(minutes: int) -> str:
    return f"[red]{minutes}[/]" if minutes >= 20 else f"[green]{minutes}[/]" if minutes < 0 else f"{minutes}"


def audits(found: list[Audit]) -> Table:
    """One row per partition."""
    table = Table(
        title="Every offset of the topics, and the tables",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("partition")
    for title in ("records", "present", "missing", "doubled"):
        table.add_column(title, justify="right")
    table.add_column("checksum")
    for audit in found:
        for each in audit.partitions:
            table.add_row(
                f"{each.topic}-{each.partition}",
                f"{each.records:,}",
                f"{each.present:,}",
                f"{each.missing.count:,}",
                f"{each.surplus:,}",
                str(each.checksum),
                style=None if each.clean else "bold red",
            )
    return table
