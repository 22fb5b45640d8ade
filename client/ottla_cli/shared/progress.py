"""A command's progress on standard error: rich's bar, or one line that is overwritten."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

# Seconds between two updates.
_EVERY = 0.1
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Progress:
    """A bar if the total is known, otherwise a counter. When invisible it costs next to nothing.

    ::

        with console.progress("reading", total=size, unit="bytes") as bar:
            bar.update(done, note="12 records")
    """

    def __init__(self, what: str, total: float | None, unit: str, *, visible: bool) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._visible = visible
        self._started = self._shown = monotonic()
        self._bar: RichProgress | None = None
        self._task: Any = None
        self._width = 0

    def __enter__(self) -> Self:
        self._started = monotonic()
        if self._visible:
            try:
                from .rich_output import make_progress
            except ImportError:
                return self
            self._bar = make_progress(total=self._total is not None)
            self._task = self._bar.add_task(self._what, total=self._total, amount="", rate="", note="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()

    def update(self, done: float, *, note: str = "") -> None:
        """Show ``done``, in the unit. Cheap enough to call for every batch."""
        now = monotonic()
        if not self._visible or now - self._shown < _EVERY:
            return
        self._shown = now
        per_second = done / max(now - self._started, 1e-9)
        amount, rate = self._amount(done), f"{self._amount(per_second)}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, amount=amount, rate=rate, note=note)
            return
        share = f"{done / self._total:4.0%} " if self._total else ""
        line = f"{self._what} {share}{amount} {rate} {note}".rstrip()
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def _amount(self, number: float) -> str:
        return amount_of_bytes(number) if self._unit == "bytes" else f"{_count(number)} {self._unit}"


def rate_of(records: int, seconds: float) -> str:
    """``in 0.02 s: 164 records/s``, without the rate if there were no records."""
    rate = f": {_count(records / max(seconds, 1e-9))} records/s" if records else ""
    return f"in {seconds:.2f} s{rate}"


def _count(number: float) -> str:
    """Whole from 10 on, below with two digits."""
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.2g}"


def amount_of_bytes(number: float) -> str:
    """``1.5 MiB``"""
    power = 0
    while abs(number) >= 1024 and power < len(_UNITS) - 1:
        number /= 1024
        power += 1
    return f"{number:.{1 if power else 0}f} {_UNITS[power]}"
