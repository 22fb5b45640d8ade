"""Group commit: all that wait for a log to be on the device share an fsync; each log has one under way at a time.

The loop's thread owns all of this; only :meth:`FlushJob.run` runs on a background thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ottla_broker.background import Background
from ottla_broker.counters import Timings
from ottla_broker.log.files import Descriptor, Files
from ottla_protocol.errors import ErrorCode, KafkaError


@dataclass(slots=True, eq=False)
class FlushJob:
    """The data that has to reach the device before the recovery point may move to ``end_offset``.

    :meth:`run` may run on any thread: it touches only descriptors and names.
    """

    files: Files
    end_offset: int
    # How often the log had been truncated: a flush from before a truncation says nothing about records after it.
    truncations: int
    # Of segments that were made shorter.
    truncated: list[Descriptor] = field(default_factory=list)
    descriptors: list[Descriptor] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    replacements: list[tuple[str, bytes]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    renames: list[tuple[str, str]] = field(default_factory=list)

    def only_data(self) -> None:
        """Leave out names and small files: they are on the device already."""
        self.paths.clear()
        self.replacements.clear()
        self.folders.clear()

    def run(self) -> None:
        """Block until the device has everything. Raises OSError.

        Removals first, with the names of files: a segment may not become shorter before those behind it are gone, nor
        may new records be there before those that they replace are gone.
        """
        for folder in self.folders:
            self.files.sync_folder(folder)
        for descriptor in (*self.truncated, *self.descriptors):
            self.files.sync_descriptor(descriptor)
        for path in self.paths:
            self.files.sync_path(path)
        for path, data in self.replacements:
            self.files.replace(path, data)
        for old, new in self.renames:
            self.files.rename(old, new)


class Flushes(Protocol):
    """The part of a log that isn't on the device, and the jobs that bring it there."""

    recovery_point: int

    def prepare(self) -> FlushJob: ...

    def flushed_to(self, job: FlushJob) -> None: ...


class Flushable(Protocol):
    """A log as far as a flusher needs it."""

    name: str
    failure: str | None
    log_end_offset: int

    @property
    def unflushed(self) -> Flushes: ...

    def fail(self, why: str) -> KafkaError: ...


_Waiters = list[tuple[int, asyncio.Future[None]]]
"""The end offsets that a log's callers wait for."""


class Flusher:
    """Runs the fsyncs of all logs on the background threads.

    Attributes:
        timings: how long they took, on the clock ``monotonic``.
    """

    def __init__(self, background: Background, monotonic: Callable[[], float] = lambda: 0.0) -> None:
        self._background = background
        self._monotonic = monotonic
        self.timings = Timings()
        # The logs whose fsync is under way.
        self._waiting: dict[Flushable, _Waiters] = {}
        # Waiters of logs whose fsyncs are held back: done, but not acknowledged.
        self._held: dict[Flushable, _Waiters] = {}

    def request(self, log: Flushable, end_offset: int) -> asyncio.Future[None]:
        """A future that is done when everything below ``end_offset`` is on the device.

        It raises KafkaError: KAFKA_STORAGE_ERROR when the device refuses.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(log, end_offset, future)
        return future

    def _add(self, log: Flushable, end_offset: int, future: asyncio.Future[None]) -> None:
        if log.failure is not None:
            future.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.failure))
        elif end_offset <= log.unflushed.recovery_point:
            self._acknowledge(log, end_offset, future)
        else:
            waiters = self._waiting.get(log)
            if waiters is not None:
                waiters.append((end_offset, future))
            else:
                waiters = [(end_offset, future)]
                self._start(log, waiters)
                self._waiting[log] = waiters

    def _acknowledge(self, log: Flushable, end_offset: int, future: asyncio.Future[None]) -> None:
        held = self._held.get(log)
        if held is None:
            future.set_result(None)
        else:
            held.append((end_offset, future))

    def hold(self, log: Flushable) -> None:
        """Acknowledge no fsync of the log until :meth:`release` or :meth:`hand_over`."""
        self._held.setdefault(log, [])

    def release(self, log: Flushable) -> None:
        """End :meth:`hold`."""
        for _, future in self._held.pop(log, ()):
            if not future.done():
                future.set_result(None)

    def hand_over(self, old: Flushable, new: Flushable) -> None:
        """Have those that wait for an fsync of ``old`` wait for one of ``new``, an identical log in its place.

        The outcome of an fsync of ``old`` that is under way no longer matters, that of one of ``new`` does.
        """
        waiters = self._held.pop(old, [])
        waiters += self._waiting.pop(old, [])
        for end_offset, future in waiters:
            if not future.done():
                try:
                    self._add(new, end_offset, future)
                except KafkaError as refused:
                    future.set_exception(refused)

    def start(self, log: Flushable) -> None:
        """Begin to bring all of the log to the device."""
        self.request(log, log.log_end_offset).add_done_callback(retrieve)

    def is_busy(self, log: Flushable) -> bool:
        """Whether an fsync of the log is under way."""
        return log in self._waiting

    async def idle(self, log: Flushable | None = None) -> None:
        """Wait until no fsync of the log is under way; without one, of any log."""
        while futures := [
            future
            for each, waiters in self._waiting.items()
            if log is None or each is log
            for _, future in waiters
        ]:
            await asyncio.wait(futures)
            await asyncio.sleep(0)

    def _start(self, log: Flushable, waiters: _Waiters) -> None:
        job = log.unflushed.prepare()
        since = self._monotonic()
        task = self._background.run(job.run)

        def finished(done: asyncio.Future[None]) -> None:
            self.timings.add(self._monotonic() - since)
            self._finished(log, waiters, job, done)

        task.add_done_callback(finished)

    def _finished(self, log: Flushable, waiters: _Waiters, job: FlushJob, done: asyncio.Future[None]) -> None:
        if self._waiting.get(log) is not waiters:
            # Handed over to another log.
            retrieve(done)
            return
        error: KafkaError | None = None
        if done.cancelled():
            error = KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name}: the broker stopped before the flush"
            )
        elif (cause := done.exception()) is not None:
            error = log.fail(f"fsync failed: {cause}")
        else:
            log.unflushed.flushed_to(job)
        left = []
        for end_offset, future in waiters:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            elif end_offset <= job.end_offset:
                self._acknowledge(log, end_offset, future)
            elif end_offset > log.log_end_offset:
                # The records that were to be flushed are no longer in the log.
                why = f"{log.name}: the log was truncated below {end_offset} before the flush"
                future.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why))
            else:
                left.append((end_offset, future))
        waiters[:] = left
        if left:
            try:
                self._start(log, waiters)
            except KafkaError as refused:
                # The partition was deleted meanwhile, or its files can't be opened: no waiter may wait for ever.
                for _, future in left:
                    future.set_exception(refused)
                left.clear()
        if not left:
            del self._waiting[log]


def retrieve(future: asyncio.Future[None]) -> None:
    """Retrieve an error that may have no waiter, so that asyncio doesn't log it: the log has."""
    if not future.cancelled():
        future.exception()
