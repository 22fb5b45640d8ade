"""A run of ``ottla consume``: records come, are written, and are committed or acknowledged when they were written."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ottla_client.errors import ClientError

from ..shared.admin import plural
from ..shared.ending import TIDY_SECONDS
from ..shared.progress import amount_of_bytes, rate_of
from ..shared.terminal import Console, OutputClosedError, one_line
from .formatters import Formatter
from .log_positions import LogPosition
from .output import Output

if TYPE_CHECKING:
    from ottla_client.consumer.rows import Rows

# Milliseconds that a poll waits: how long reaching the end of a partition may go unnoticed.
POLL_MS = 100
# Records that are read and written at once.
AT_ONCE = 20_000
# Seconds without a first record, after which a line at the terminal says that the command waits.
_QUIET_SECONDS = 1.0
_CLOSE_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """The records to consume: ``topics``, or those that match ``pattern``; without ``partitions``, all of them."""

    topics: tuple[str, ...]
    pattern: str | None
    partitions: frozenset[int]
    group: str | None
    begin: LogPosition
    until: LogPosition | None
    count: int | None


class _Consumer(Protocol):
    async def start(self) -> None: ...
    async def close(self, timeout: float | None = ...) -> None: ...


C = TypeVar("C", bound=_Consumer)


class PrintRun(ABC, Generic[C]):
    """One run, with one kind of consumer."""

    def __init__(
        self, console: Console, wanted: ConsumeOptions, formatter: Formatter, output: str | None
    ) -> None:
        """``output`` is a file's name, None for standard output."""
        self._console = console
        self._wanted = wanted
        self._formatter = formatter
        self._path = output
        self._left = wanted.count
        self._records = 0
        self._nothing = f"no records to read from {wanted.pattern or ', '.join(wanted.topics)}"
        """What to say if a run ends without any."""

    @abstractmethod
    def _make(self, client_options: dict[str, Any]) -> C:
        """The consumer. Raises ConfigurationError."""

    @abstractmethod
    async def _topics(self) -> list[str]:
        """The topics' names. Raises click.ClickException for unknown ones, and if none matches."""

    @abstractmethod
    async def _begin(self, consumer: C, topics: Sequence[str]) -> None:
        """Begin to read."""

    @abstractmethod
    async def _poll(self, consumer: C, at_most: int) -> list[Rows]: ...

    async def _is_done(self, consumer: C) -> bool:
        """Whether nothing is left to read."""
        return self._left == 0

    def _cut(self, rows: Rows) -> Rows:
        """The records that are to be written."""
        return rows

    @abstractmethod
    def _wrote(self, consumer: C, rows: Rows) -> None:
        """These were written, to the last byte."""

    @property
    def _close_seconds(self) -> float:
        """How long the consumer may take to end after Ctrl-C."""
        return _CLOSE_SECONDS

    async def _turn(self, consumer: C) -> None:
        """Called between two polls."""

    async def commit(self, consumer: C) -> None:
        """Commit what was written. Called at the end, also after Ctrl-C."""

    async def _commit_soon(self, consumer: C) -> None:
        """Commit after Ctrl-C, for which a broker that is gone gets little time."""
        try:
            async with asyncio.timeout(TIDY_SECONDS):
                await self.commit(consumer)
        except (ClientError, TimeoutError) as error:
            why = one_line(error) if isinstance(error, ClientError) else "no broker has answered"
            self._console.note(f"the last offsets are not committed, so their records come again: {why}")

    async def run(self, client_options: dict[str, Any]) -> None:
        consumer = self._make(client_options)  # first, because it checks the options
        topics = await self._topics()
        output = Output(self._path)
        task = asyncio.current_task()
        gone = ended = False

        def reader_has_gone() -> None:
            nonlocal gone
            if not gone and task is not None:
                gone = True
                task.cancel()

        output.watch(reader_has_gone)
        started = monotonic()
        try:
            await consumer.start()
            await output.write(self._formatter.head)
            await self._begin(consumer, topics)
            await self._receive(consumer, output)
            await self.commit(consumer)
            if not self._records:
                self._console.note(self._nothing)
        except asyncio.CancelledError:
            ended = True
            if task is not None:
                task.uncancel()
            await self._commit_soon(consumer)
            if gone:
                raise OutputClosedError from None
            raise
        except OutputClosedError:
            ended = True
            await self._commit_soon(consumer)
            raise
        finally:
            await consumer.close(self._close_seconds if ended else self._console.timeout)
            output.close()
            self._print_summary(output, monotonic() - started)

    async def _receive(self, consumer: C, output: Output) -> None:
        """Read and write records until the limits are reached."""
        talks = self._console.talks and (self._path is not None or not self._console.is_terminal)
        began, said = monotonic(), False
        with self._console.progress(
            "from " + (self._wanted.pattern or ", ".join(self._wanted.topics)), hidden=not talks
        ) as bar:
            while not await self._is_done(consumer):
                at_most = AT_ONCE if self._left is None else min(self._left, AT_ONCE)
                for rows in await self._poll(consumer, at_most):
                    await self._write(consumer, rows, output)
                bar.update(self._records)
                if not said and not self._records and monotonic() - began > _QUIET_SECONDS:
                    said = True
                    if self._console.talks and self._wanted.until is None:
                        self._console.note("waiting for records; Ctrl-C ends")
                await self._turn(consumer)

    async def _write(self, consumer: C, rows: Rows, output: Output) -> None:
        rows = self._cut(rows)
        if not rows.count:
            return
        data = self._formatter.render(rows)
        before = output.bytes
        try:
            await output.write(data)
        finally:
            if output.bytes - before == len(data):
                self._records += rows.count
                self._wrote(consumer, rows)
                if self._left is not None:
                    self._left -= rows.count

    def _print_summary(self, output: Output, seconds: float) -> None:
        if self._path is not None and self._console.talks:
            what = f"{plural(self._records, 'record')} ({amount_of_bytes(output.bytes)}) to {self._path}"
            self._console.note(f"{what} {rate_of(self._records, seconds)}")
