"""Terminal output drawn by rich. Import it only for terminals; raises ImportError where rich isn't installed.

Only colours that are readable on light and dark backgrounds are used: the terminal's own, bold, dim, green, red.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from .tables import Column


def draw_table(columns: Sequence[Column], rows: Sequence[Sequence[Any]], title: str) -> str:
    """A table as text with escapes, in the width of standard output."""
    terminal = RichConsole(file=sys.stdout)
    table = table_of(columns, rows, title)
    captured = RichConsole(
        file=io.StringIO(),
        force_terminal=True,
        width=terminal.width,
        color_system=terminal.color_system,  # type: ignore[arg-type]
        no_color=terminal.no_color,
        legacy_windows=False,
    )
    with captured.capture() as capture:
        captured.print(table)
    return capture.get()


def table_of(columns: Sequence[Column], rows: Sequence[Sequence[Any]], title: str) -> Table:
    table = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
        border_style="dim",
    )
    for index, column in enumerate(columns):
        right = column.is_right(row[index] for row in rows)
        table.add_column(Text(column.title), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(
            *(
                Text(column.text(value), style="dim" if value is None else column.style_of(value))
                for column, value in zip(columns, row, strict=True)
            )
        )
    return table


class LiveView:
    """A view that fills the terminal and is replaced at each update."""

    def __init__(self) -> None:
        self._live = Live(console=RichConsole(file=sys.stdout), auto_refresh=False, screen=True)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, parts: Sequence[RenderableType]) -> None:
        """Show texts and tables one below the other; whatever exceeds the screen is cut off."""
        self._live.update(Group(*parts), refresh=True)


def make_progress(*, total: bool) -> Progress:
    """A bar on standard error; its tasks have the fields amount, rate and note."""
    terminal = RichConsole(stderr=True)
    what = TextColumn("{task.description}")
    facts = (
        TextColumn("{task.fields[amount]}", justify="right"),
        TextColumn("{task.fields[rate]}", style="green"),
        TextColumn("{task.fields[note]}", style="dim"),
    )
    if not total:
        return Progress(SpinnerColumn(style="green"), what, *facts, console=terminal, transient=True)
    bar = BarColumn(
        bar_width=min(40, terminal.width // 3), complete_style="green", finished_style="green", style="dim"
    )
    left = TextColumn("{task.percentage:>3.0f}%")
    return Progress(what, bar, left, *facts, console=terminal, transient=True)
