"""What has to be done for logs from time to time: retention, flush by time, checkpoints, old producers.

Each chore is a loop of its own that goes through all logs in slices of a few milliseconds, so that ten
thousand logs never hold up a request. Owned by the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla_broker import events
from ottla_protocol.errors import KafkaError

from . import names
from .config import NO_LIMIT

if TYPE_CHECKING:
    from .log import Log
    from .manager import LogManager

# A slice's length, and the pause behind it, in seconds; how many logs go by between two looks at the clock.
_SLICE: Final = 0.003
_PAUSE: Final = 0.02
_LOOK_EVERY: Final = 16
_LEAST_FLUSH_MS: Final = 50
_LONGEST_SLEEP: Final = 24 * 60 * 60.0

_log = events.get_logger()


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often each chore runs, in ms, with Kafka's keys and defaults."""

    # log.retention.check.interval.ms
    retention_ms: int = 300_000
    # log.flush.scheduler.interval.ms; topics with flush.ms are looked at that often in any case
    flush_ms: int = NO_LIMIT
    # log.flush.offset.checkpoint.interval.ms
    recovery_point_ms: int = 60_000
    # log.flush.start.offset.checkpoint.interval.ms
    log_start_ms: int = 60_000
    # producer.id.expiration.check.interval.ms
    producers_ms: int = 600_000
    # log.initial.task.delay.ms
    initial_delay_ms: int = 30_000


class Chores:
    """The loops; :meth:`run` ends when it is cancelled."""

    def __init__(self, manager: LogManager, intervals: Intervals) -> None:
        self._manager = manager
        self._intervals = intervals
        self._clock = manager.clock

    async def run(self) -> None:
        """Do the chores until cancelled."""
        intervals = self._intervals
        await asyncio.gather(
            self._every(lambda: intervals.retention_ms, self.retain, intervals.initial_delay_ms),
            self._every(self._flush_interval, self.flush, 0),
            self._every(
                lambda: intervals.recovery_point_ms,
                self.checkpoint_recovery_points,
                intervals.initial_delay_ms,
            ),
            self._every(
                lambda: intervals.log_start_ms, self.checkpoint_log_starts, intervals.initial_delay_ms
            ),
            self._every(lambda: intervals.producers_ms, self.expire_producers, intervals.initial_delay_ms),
        )

    async def _every(
        self, interval_ms: Callable[[], int], chore: Callable[[], Awaitable[None]], first_ms: int
    ) -> None:
        """Do a chore after ``first_ms`` and then at every interval, as Kafka's scheduler does."""
        await self._sleep(first_ms / 1000)
        while True:
            try:
                await chore()
            except (KafkaError, OSError) as error:
                _log.error("a chore of the logs failed", why=str(error))
            await self._sleep(min(interval_ms() / 1000, _LONGEST_SLEEP))

    async def _sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, _wake, future)
        try:
            await future
        finally:
            timer.cancel()

    async def _for_each(self, logs: Iterable[Log], chore: Callable[[Log], object]) -> None:
        """Apply ``chore`` to each log that is still there; a log that fails does not stop the others."""
        manager = self._manager
        began = self._clock.monotonic()
        for number, log in enumerate(logs):
            if number % _LOOK_EVERY == 0 and self._clock.monotonic() - began > _SLICE:
                await self._sleep(_PAUSE)
                began = self._clock.monotonic()
            if log.failure is None and manager.get(log.topic, log.partition) is log:
                try:
                    chore(log)
                except (KafkaError, OSError) as error:
                    _log.error("chore failed", topic=log.topic, partition=log.partition, why=str(error))

    async def retain(self) -> None:
        """Remove what retention does not keep, in every log."""
        now_ms = self._clock.now_ms()
        await self._for_each(self._manager.logs(), lambda log: self._retain(log, now_ms))

    def _retain(self, log: Log, now_ms: int) -> None:
        if log.is_open or self._has_data(log):
            log.delete_old_segments(now_ms)

    def _has_data(self, log: Log) -> bool:
        """Whether a log that nobody has used has anything that could go: an empty one stays closed."""
        files = self._manager.files
        segments = [name for name in files.names(log.path) if name.endswith(names.LOG)]
        return len(segments) > 1 or any(files.size(f"{log.path}/{name}") for name in segments)

    def _flush_interval(self) -> int:
        return max(_LEAST_FLUSH_MS, min(self._intervals.flush_ms, self._manager.shortest_flush_ms))

    async def flush(self) -> None:
        """Start the fsync of logs whose flush.ms has gone by."""
        now_ms = self._clock.now_ms()
        flusher = self._manager.flusher

        def flush(log: Log) -> None:
            limit = log.config.flush_ms
            if limit == NO_LIMIT or not log.is_open or log.recovery_point >= log.log_end_offset:
                return
            if now_ms - log.last_flush_ms >= limit and not flusher.is_busy(log):
                flusher.start(log)

        await self._for_each(self._manager.logs(), flush)

    async def checkpoint_recovery_points(self) -> None:
        """Write recovery-point-offset-checkpoint of every data folder."""
        await self.checkpoint(names.RECOVERY_POINTS, lambda log: log.checkpoint_recovery_point)

    async def checkpoint_log_starts(self) -> None:
        """Write log-start-offset-checkpoint of every data folder."""
        await self.checkpoint(names.LOG_STARTS, lambda log: log.checkpoint_start_offset or None)

    async def checkpoint(self, name: str, offset_of: Callable[[Log], int | None]) -> None:
        """Write the checkpoint ``name`` of every data folder, on a thread; None leaves a log out. Raises OSError."""
        manager = self._manager
        for folder in manager.folders:
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

            await self._for_each(manager.logs(), collect)
            await manager.background.run(folder.write_offsets, name, offsets, generation)

    async def expire_producers(self) -> None:
        """Forget producers that have not written for producer.id.expiration.ms."""
        now_ms = self._clock.now_ms()

        def expire(log: Log) -> None:
            if log.is_open and log.producers.producers:
                log.producers.remove_expired(now_ms)

        await self._for_each(self._manager.logs(), expire)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
