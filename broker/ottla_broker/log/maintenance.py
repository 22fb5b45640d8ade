"""Periodic work on logs: retention, flush by time, checkpoints, expiry of producers.

Each task is a loop of its own that goes through all logs in slices of a few milliseconds, so that ten thousand logs
never hold up a request. Owned by the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.config import NO_LIMIT
from ottla_broker.log.files import CorruptFileError
from ottla_broker.log.flush import Flushable, Flusher, retrieve
from ottla_broker.tasks import TimeSlice
from ottla_protocol.errors import KafkaError
from ottla_protocol.records.batch import CorruptRecordError

if TYPE_CHECKING:
    from ottla_broker.background import Background
    from ottla_broker.clock import Clock
    from ottla_broker.log.environment import LogEnvironment
    from ottla_broker.log.files import Files
    from ottla_broker.log.folder import DataFolder
    from ottla_broker.log.log import Log
    from ottla_broker.log.user_retention import UserRetention

_PAUSE_SECONDS: Final = 0.02
"""The pause after each slice."""
_LOGS_PER_CLOCK_CHECK: Final = 16
_LEAST_FLUSH_MS: Final = 50
_LONGEST_SLEEP_SECONDS: Final = 24 * 60 * 60.0

_log = get_logger()


class Intervals(NamedTuple):
    """The interval of each task, in ms, with Kafka's keys and defaults."""

    # log.retention.check.interval.ms
    retention_ms: int = 300_000
    # log.flush.scheduler.interval.ms; topics with flush.ms are checked at least that often
    flush_ms: int = NO_LIMIT
    # log.flush.offset.checkpoint.interval.ms
    recovery_point_ms: int = 60_000
    # log.flush.start.offset.checkpoint.interval.ms
    log_start_ms: int = 60_000
    # producer.id.expiration.check.interval.ms
    producers_ms: int = 600_000
    # log.initial.task.delay.ms
    initial_delay_ms: int = 30_000


class Logs(Protocol):
    """The log manager as far as maintenance needs it."""

    clock: Clock
    background: Background
    environment: LogEnvironment
    files: Files
    flusher: Flusher
    folders: list[DataFolder]
    shortest_flush_ms: int
    user_retention: UserRetention | None

    def stored_logs(self) -> Iterable[Log]: ...

    def has_stored(self, log: Log) -> bool: ...


class LogMaintenance:
    """The loops; :meth:`run` ends when it is cancelled."""

    def __init__(self, logs: Logs, intervals: Intervals) -> None:
        self._logs = logs
        self._intervals = intervals
        self._clock = logs.clock
        # One writer at a time for each checkpoint, so that offsets are on the device when a write returns.
        self._writing: dict[str, asyncio.Lock] = {}
        # Removals from logs' ends that wait for the next write of the recovery points, and the task that writes them.
        self._removals: list[tuple[Callable[[], None], Flushable, bool, asyncio.Future[None]]] = []
        self._recorder: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Maintain the logs until cancelled."""
        intervals, first_ms = self._intervals, self._intervals.initial_delay_ms
        await asyncio.gather(
            self._every(lambda: intervals.retention_ms, self.retain, first_ms),
            self._every(lambda: intervals.retention_ms, self.retain_by_user, first_ms),
            self._every(self._flush_interval, self.flush, 0),
            self._every(lambda: intervals.recovery_point_ms, self.checkpoint_recovery_points, first_ms),
            self._every(lambda: intervals.log_start_ms, self.checkpoint_log_starts, first_ms),
            self._every(lambda: intervals.producers_ms, self.expire_producers, first_ms),
        )

    async def _every(
        self, interval_ms: Callable[[], int], task: Callable[[], Awaitable[None]], first_ms: int
    ) -> None:
        """Run a task after ``first_ms`` and then at every interval, as Kafka's scheduler does."""
        await self._clock.sleep(first_ms / 1000)
        while True:
            try:
                await task()
            except (KafkaError, OSError) as error:
                _log.error("maintenance of logs failed", why=str(error))
            except Exception:
                # A defect of one task doesn't end the others.
                _log.exception("maintenance of logs failed")
            await self._clock.sleep(min(interval_ms() / 1000, _LONGEST_SLEEP_SECONDS))

    async def _for_each(self, task: Callable[[Log], object]) -> None:
        """Run a task for each log that still exists; a log that fails doesn't stop the others."""
        time_slice = TimeSlice(self._clock, _PAUSE_SECONDS)
        for number, log in enumerate(tuple(self._logs.stored_logs())):
            if number % _LOGS_PER_CLOCK_CHECK == 0 and time_slice.is_over:
                await time_slice.next()
            if log.failure is None and self._logs.has_stored(log):
                try:
                    task(log)
                except (KafkaError, OSError, CorruptFileError, CorruptRecordError) as error:
                    _complain(log, error)

    async def retain(self) -> None:
        """Remove the segments that retention doesn't keep, in every log."""
        from ottla_broker.log.retention import ALWAYS, BUILT_IN

        now_ms = self._clock.now_ms()
        user = self._logs.user_retention

        def retain(log: Log) -> None:
            if log.is_open or self._has_data(log):
                has_own = user is not None and user.of(log.topic)
                log.open().delete_old_segments(now_ms, ALWAYS if has_own else BUILT_IN)

        await self._for_each(retain)

    async def retain_by_user(self) -> None:
        """Ask the user's own policies about the logs that they are for, one after the other."""
        user = self._logs.user_retention
        if user is None:
            return
        found: list[Log] = []

        def find(log: Log) -> None:
            if user.of(log.topic) and (log.is_open or self._has_data(log)):
                found.append(log)

        await self._for_each(find)
        for log in found:
            if log.failure is None and self._logs.has_stored(log):
                try:
                    await user.retain(log.open())
                except (KafkaError, OSError, CorruptFileError, CorruptRecordError) as error:
                    _complain(log, error)

    def _has_data(self, log: Log) -> bool:
        """Whether a closed log has records: an empty one stays closed."""
        files = self._logs.files
        segments = [name for name in files.names(log.path) if name.endswith(names.LOG)]
        return len(segments) > 1 or any(files.size(f"{log.path}/{name}") for name in segments)

    def _flush_interval(self) -> int:
        return max(_LEAST_FLUSH_MS, min(self._intervals.flush_ms, self._logs.shortest_flush_ms))

    async def flush(self) -> None:
        """Start the fsync of logs whose flush.ms has passed."""
        now_ms = self._clock.now_ms()
        flusher = self._logs.flusher

        def flush(log: Log) -> None:
            limit = log.config.flush_ms
            if limit == NO_LIMIT or not log.is_open or log.recovery_point >= log.log_end_offset:
                return
            if now_ms - log.unflushed.last_flush_ms >= limit and not flusher.is_busy(log):
                flusher.start(log)

        await self._for_each(flush)

    async def checkpoint_recovery_points(self) -> None:
        """Write recovery-point-offset-checkpoint of every data folder."""
        await self.checkpoint(names.RECOVERY_POINTS, lambda log: log.checkpoint_recovery_point)

    def removal_recorded(
        self, removal: Callable[[], None], log: Flushable, lowered: bool
    ) -> asyncio.Future[None]:
        """Call ``removal`` on a thread, and write recovery points and log starts where the log's are ``lowered``.

        The future is done afterwards; callers share a write. When the device refuses, the log is out of use, and the
        future raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(retrieve)
        self._removals.append((removal, log, lowered, future))
        if self._recorder is None:
            self._recorder = asyncio.ensure_future(self._record())
        return future

    async def _record(self) -> None:
        run = self._logs.background.run
        try:
            while self._removals:
                removals, self._removals = self._removals, []
                done = await asyncio.gather(*(run(each[0]) for each in removals), return_exceptions=True)
                failure: BaseException | None = None
                try:
                    if any(lowered for _, _, lowered, _ in removals):
                        await self.checkpoint_recovery_points()
                        await self.checkpoint_log_starts()
                except OSError as error:
                    failure = error
                for (_, log, lowered, future), refused in zip(removals, done, strict=True):
                    cause = refused or (failure if lowered else None)
                    if cause is not None:
                        failed = log.fail(f"a truncation can't be brought to the device: {cause}")
                        if not future.done():
                            future.set_exception(failed)
                    elif not future.done():
                        future.set_result(None)
        finally:
            self._recorder = None

    async def idle(self) -> None:
        """Wait until all removals are recorded."""
        if self._recorder is not None:
            await asyncio.wait([self._recorder])

    async def checkpoint_log_starts(self) -> None:
        """Write log-start-offset-checkpoint of every data folder."""
        await self.checkpoint(names.LOG_STARTS, lambda log: log.checkpoint_start_offset or None)

    async def checkpoint(self, name: str, offset_of: Callable[[Log], int | None]) -> None:
        """Write the checkpoint ``name`` of every data folder, on a thread; None leaves a log out. Raises OSError."""
        async with self._writing.setdefault(name, asyncio.Lock()):
            await self._checkpoint(name, offset_of)

    async def _checkpoint(self, name: str, offset_of: Callable[[Log], int | None]) -> None:
        for folder in self._logs.folders:
            if folder.failed:
                continue
            generation = folder.next_generation(name)
            prefix = folder.path + "/"
            offsets: dict[tuple[str, int], int] = {}

            def collect(
                log: Log, prefix: str = prefix, offsets: dict[tuple[str, int], int] = offsets
            ) -> None:
                offset = offset_of(log) if log.path.startswith(prefix) else None
                if offset is not None:
                    offsets[log.topic, log.partition] = offset

            await self._for_each(collect)
            await self._logs.background.run(folder.write_offsets, name, offsets, generation)

    async def expire_producers(self) -> None:
        """Forget producers that have not written for producer.id.expiration.ms."""
        now_ms, time_slice = self._clock.now_ms(), TimeSlice(self._clock, _PAUSE_SECONDS)
        for log in tuple(self._logs.stored_logs()):
            if log.is_open and log.failure is None:
                for _ in chain(log.producers.expire(now_ms), (None,)):
                    if time_slice.is_over:
                        await time_slice.next()
        limit = self._logs.environment.producer_limit
        if limit is not None:
            # Also those that followers have copied, and that were found at the start.
            limit.enforce()


def _complain(log: Log, error: Exception) -> None:
    _log.error("maintenance of a log failed", topic=log.topic, partition=log.partition, why=str(error))
