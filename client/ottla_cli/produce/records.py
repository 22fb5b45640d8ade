"""The run of ``ottla produce``: send parsed records, count them, and print a summary."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from time import monotonic
from typing import IO, TYPE_CHECKING, Any

import click

from ottla_client.errors import (
    ClosedError,
    ConnectionLostError,
    RecordTooLargeError,
    RequestTimeoutError,
)

from ..shared.admin import plural
from ..shared.ending import TIDY_SECONDS
from ..shared.progress import amount_of_bytes, rate_of
from ..shared.terminal import Console, one_line, text_or_base64, to_json
from ..shared.topic_checks import require_topics
from .input_files import STDIN, InThread, pieces, total_size
from .parsers import ParseFailure, Parser, Records

if TYPE_CHECKING:
    from ottla_client.producer import BatchDelivery, Producer

# Batches whose delivery isn't checked yet. The producer's buffer bounds their bytes.
_DELIVERIES = 256
# Seconds in which a producer disconnects after Ctrl-C.
_CLOSE_SECONDS = 0.3
# Failed deliveries that are printed one by one; the others are only counted.
_TOLD = 10


class StopError(Exception):
    """Stop reading: a line is invalid, or records can't be delivered."""


@dataclass(slots=True)
class _Extent:
    """The records sent to one partition; offsets are -1 where the broker doesn't report them (``--acks 0``)."""

    records: int = 0
    first: int = -1
    last: int = -1

    def add(self, offset: int, count: int) -> None:
        self.records += count
        if offset >= 0:
            self.first = offset if self.first < 0 else min(self.first, offset)
            self.last = max(self.last, offset + count - 1)


class ProduceRun:
    """One run of ``ottla produce``."""

    def __init__(
        self, console: Console, topic: str, partition: int | None, on_error: str, rejects: IO[str] | None
    ) -> None:
        """``on_error`` is stop, skip or file; ``rejects`` is that file."""
        self._console = console
        self._topic = topic
        self._partition = partition
        self._on_error = on_error
        self._rejects = rejects
        self._open: deque[tuple[BatchDelivery, Records]] = deque()
        self._partitions: dict[int, _Extent] = {}
        self._bytes = 0
        self._invalid = 0
        self._failed = 0
        self._may_have_arrived = False
        """Whether some of the failed records may be in the log all the same."""
        self._sent_to = ""

    async def run(self, client_options: dict[str, Any], parser: Parser, files: Sequence[str]) -> None:
        """Send everything. Exits with 1 if an invalid line stopped it or a delivery failed."""
        from ottla_client.producer import Producer
        from ottla_client.producer.settings import ProducerSettings

        producer = Producer(**client_options)  # first, because it checks the options
        self._limits = client_options["max_request_size"], client_options["buffer_memory"]
        if not client_options["allow_auto_create_topics"]:
            await require_topics(
                self._console,
                ProducerSettings,
                [self._topic],
                self._partition,
                hint="; --create-topic makes one",
            )
        if STDIN in files and self._console.talks and sys.stdin is not None and sys.stdin.isatty():
            self._console.note("Each line is a record; Ctrl-D ends.")
        started = monotonic()
        stopped: BaseException | None = None
        try:
            await producer.start()
            try:
                await self._send_all(producer, parser, files)
            except (asyncio.CancelledError, StopError, click.ClickException, OSError) as error:
                stopped = _taken(error)
            try:
                await self._finish(producer, stopped)
            except asyncio.CancelledError as error:  # amid the end of the input
                stopped = _taken(error)
                await self._finish(producer, stopped)
        finally:
            await self._close(producer, interrupted=isinstance(stopped, asyncio.CancelledError))
        self._report(monotonic() - started, interrupted=isinstance(stopped, asyncio.CancelledError))
        if stopped is not None and not isinstance(stopped, StopError):
            raise stopped
        if stopped is not None or self._failed:
            sys.exit(1)

    async def _finish(self, producer: Producer, stopped: BaseException | None) -> None:
        """Whatever ended the reading, records that were read are sent."""
        if isinstance(stopped, asyncio.CancelledError):
            if not await self._flush_while_it_goes_on(producer):
                await self._close(producer, interrupted=True)
        else:
            with suppress(RequestTimeoutError):  # the deliveries report it
                await producer.flush(self._console.timeout)
        await self._wait_for_deliveries(0)

    async def _flush_while_it_goes_on(self, producer: Producer) -> bool:
        """Send what is left after Ctrl-C, as long as brokers acknowledge some of it; returns whether all was sent."""
        before = -1.0
        while (free := producer.metrics()["producer-metrics"]["buffer-available-bytes"]) > before:
            before = free
            self._console.ending.went_on()
            try:
                await producer.flush(TIDY_SECONDS)
            except RequestTimeoutError:
                continue
            return True
        return False

    async def _close(self, producer: Producer, *, interrupted: bool) -> None:
        if not interrupted:
            await producer.close(self._console.timeout)
            return
        with suppress(RequestTimeoutError):  # the deliveries report it
            await producer.close(_CLOSE_SECONDS)

    async def _send_all(self, producer: Producer, parser: Parser, files: Sequence[str]) -> None:
        size = total_size(files)
        unit = "records" if size is None else "bytes"
        sent = 0
        with self._console.progress(f"to {self._topic}", total=size, unit=unit) as bar:
            reading = InThread(_batches(parser, files))
            try:
                async for records in reading:
                    if records.values:
                        await self._send(producer, records)
                        sent += len(records)
                    for failure in records.failures:
                        self._reject(failure)
                    if size is None:
                        bar.update(sent)
                    else:
                        bar.update(records.read, note=plural(sent, "record"))
            finally:
                reading.stop()

    async def _send(self, producer: Producer, records: Records) -> None:
        self._cut(records)
        try:
            try:
                delivery = await self._send_batch(producer, records)
            except RecordTooLargeError:
                self._take_out_large(records)
                delivery = await self._send_batch(producer, records)
        except asyncio.CancelledError:
            self._fail(records, range(len(records)), ClosedError("Ctrl-C ended the wait to send it"))
            raise
        self._open.append((delivery, records))
        self._sent_to = f"{records.file}:{records.lines[-1]}"
        await self._wait_for_deliveries(_DELIVERIES)
        if self._failed and self._on_error == "stop":
            raise StopError

    def _cut(self, records: Records) -> None:
        """With "stop", drop what comes after an invalid line, so that you can fix it and continue from there."""
        if self._on_error == "stop" and records.failures:
            _keep_records(records, [line < records.failures[0].line for line in records.lines])

    async def _send_batch(self, producer: Producer, records: Records) -> BatchDelivery:
        return await producer.send_batch(
            self._topic,
            records.values,
            keys=records.keys,
            partition=self._partition,
            timestamps_ms=records.timestamps,
            headers=records.headers,
        )

    def _take_out_large(self, records: Records) -> None:
        """Turn records that are too large into failures; with "stop", drop everything after the first."""
        from ottla_client.producer.batch import BATCH_OVERHEAD, MAX_RECORD_OVERHEAD, RECORD_OVERHEAD
        from ottla_client.producer.records import record_size

        keep = []
        for index, value in enumerate(records.values):
            key = records.keys[index] if records.keys else None
            size = record_size(value, key, records.headers[index] if records.headers else ())
            size += BATCH_OVERHEAD + MAX_RECORD_OVERHEAD - RECORD_OVERHEAD  # as the producer counts it
            if size > min(self._limits):
                keep.append(False)
                reason = f"a record of {size} bytes; -X max_request_size is {self._limits[0]}"
                records.failures.append(
                    ParseFailure(records.file, records.lines[index], reason, value or b"")
                )
            else:
                keep.append(not (records.failures and self._on_error == "stop"))
        records.failures.sort(key=lambda failure: failure.line)
        _keep_records(records, keep)

    async def _wait_for_deliveries(self, at_most: int) -> None:
        """Wait for deliveries until at most ``at_most`` are open."""
        from ottla_client.producer import BatchDeliveryError

        waiting = self._open
        while waiting and (len(waiting) > at_most or waiting[0][0].done()):
            delivery, records = waiting[0]
            failed: list[tuple[Sequence[int], Exception]] = []
            try:
                delivered = await delivery
            except BatchDeliveryError as error:
                delivered, failed = error.delivered, error.failed
            waiting.popleft()  # not before: Ctrl-C may end the wait
            for part in delivered:
                self._partitions.setdefault(part.partition, _Extent()).add(part.base_offset, part.count)
            self._bytes += sum(map(len, filter(None, records.values)))
            for indices, reason in failed:
                self._bytes -= sum(len(records.values[index] or b"") for index in indices)
                self._fail(records, indices, reason)
            if any(not isinstance(reason, RecordTooLargeError) for _, reason in failed):
                # These records aren't the cause, so the next ones would fail as well.
                self._on_error = "stop"

    def _fail(self, records: Records, indices: Sequence[int], reason: Exception) -> None:
        """Report records that were not delivered, or whose delivery nobody knows of."""
        outcome = "not delivered"
        if isinstance(reason, (ClosedError, RequestTimeoutError, ConnectionLostError)):
            self._may_have_arrived = True
            outcome = "not acknowledged"
        for index in indices:
            value = records.values[index] or b""
            self._failed += 1
            failed = ParseFailure(records.file, records.lines[index], f"{outcome}: {one_line(reason)}", value)
            self._keep(failed)
            if self._failed <= _TOLD:
                self._console.note(str(failed))

    def _reject(self, failure: ParseFailure) -> None:
        """Handle an invalid line as ``--on-error`` says."""
        self._invalid += 1
        self._keep(failure)
        if self._rejects is None:
            self._console.note(str(failure))
        if self._on_error == "stop":
            raise StopError

    def _keep(self, failure: ParseFailure) -> None:
        if self._rejects is not None:
            line = {"file": failure.file, "line": failure.line, "reason": failure.reason}
            self._rejects.write(to_json({**line, **text_or_base64("text", failure.text)}) + "\n")

    def _report(self, seconds: float, *, interrupted: bool) -> None:
        extents = sorted(self._partitions.items())
        records = sum(extent.records for _, extent in extents)
        rate = records / max(seconds, 1e-9)
        if self._console.as_json:
            self._console.emit(
                {
                    "topic": self._topic,
                    "records": records,
                    "bytes": self._bytes,
                    "seconds": round(seconds, 3),
                    "records_per_second": round(rate),
                    "broken": self._invalid,
                    "failed": self._failed,
                    "interrupted": interrupted,
                    **self._more(),
                    "partitions": [
                        {
                            "partition": partition,
                            "records": extent.records,
                            "first_offset": extent.first if extent.first >= 0 else None,
                            "last_offset": extent.last if extent.last >= 0 else None,
                        }
                        for partition, extent in extents
                    ],
                }
            )
            return
        if len(extents) > 1:
            self._console.table(
                ["Partition", "Records", "First offset", "Last offset"],
                [
                    (partition, extent.records, *(x if x >= 0 else None for x in (extent.first, extent.last)))
                    for partition, extent in extents
                ],
            )
        line = f"{plural(records, 'record')} ({amount_of_bytes(self._bytes)}) to {self._topic}"
        if len(extents) == 1:
            partition, extent = extents[0]
            line += f", partition {partition}"
            if extent.first >= 0:
                line += (
                    f", offset{f's {extent.first} to' if extent.last > extent.first else ''} {extent.last}"
                )
        self._console.print(f"{line}, {rate_of(records, seconds)}")
        if self._invalid:
            where = "" if self._rejects is None else f", written to {self._rejects.name}"
            self._console.note(plural(self._invalid, "invalid line") + where)
        if self._failed:
            outcome = "not acknowledged, but may have arrived" if self._may_have_arrived else "not delivered"
            self._console.note(f"{plural(self._failed, 'record')} {outcome}")
        self._note_end(interrupted=interrupted)

    def _more(self) -> dict[str, Any]:
        """Further fields of the summary in JSON."""
        return {}

    def _note_end(self, *, interrupted: bool) -> None:
        """The last lines of the summary, on standard error."""
        if interrupted and not self._failed:
            sent = f" after {self._sent_to}; nothing behind it" if self._sent_to else "; nothing"
            self._console.note(f"Interrupted{sent} was sent.")


def _taken(error: BaseException) -> BaseException:
    """The error that ends the reading. After Ctrl-C, what was begun may still be ended."""
    if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) is not None:
        task.uncancel()
    return error


def _batches(parser: Parser, files: Sequence[str]) -> Iterator[Records]:
    for piece in pieces(files):
        yield parser.feed(piece)


def _keep_records(records: Records, keep: Sequence[bool]) -> None:
    records.lines = list(compress(records.lines, keep))
    for name in ("values", "keys", "headers", "timestamps"):
        column = getattr(records, name)
        if column is not None:
            setattr(records, name, list(compress(column, keep)))
