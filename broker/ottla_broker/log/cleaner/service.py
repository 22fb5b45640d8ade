"""The log cleaner: picks the dirtiest log, cleans it on a thread, swaps the result in.

A cleaning alternates between two threads. The event loop chooses the log, groups its segments, and swaps them; a
background thread reads keys and writes ``.cleaned`` files, a segment or a group at a time. So nothing needs a lock: the
state of this module and of the logs belongs to the loop, and the thread owns its input while it works. If the log is
deleted or truncated meanwhile, the swap doesn't happen and the cleaned files are dropped.

The states of a log, by topic and partition::

    idle ──chosen──▶ in progress ──done, aborted──▶ idle
                        │ the disk refused: idle again, not tried for a while
                        └ damaged batch: uncleanable, until the broker starts again
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.background import Background
from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.cleaner.checkpoint import CleanerCheckpoints
from ottla_broker.log.cleaner.pace import CleaningAbortedError, Pace, Throttle
from ottla_broker.log.cleaner.schedule import Cleanable, cleanable, dirtiest, segments_between
from ottla_protocol.errors import KafkaError, ProtocolError

if TYPE_CHECKING:
    from ottla_broker.clock import Clock
    from ottla_broker.log.cleaner.filter import CleaningStats, LastRecord
    from ottla_broker.log.log import Log
    from ottla_broker.log.manager import LogManager
    from ottla_broker.log.segment import LogSegment
    from ottla_broker.log.txn_index import AbortedTransaction

_RETRY_SECONDS: Final = 300.0
"""How long a log isn't tried after the disk refused something."""
_NICE: Final = 10
"""Cleaning can wait, requests can't: where processors are scarce, the event loop comes first."""
_CLOSED_LOGS_A_ROUND: Final = 64
"""How many closed logs a round checks for segments to clean."""

_log = get_logger()


class CleanerSettings(NamedTuple):
    """``log.cleaner.*`` with Kafka's defaults; sizes are bytes and shared by all threads."""

    enable: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 128 << 20
    io_buffer_load_factor: float = 0.9
    io_buffer_size: int = 512 << 10
    io_max_bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000


class LogCleaner:
    """Compacts the logs whose cleanup policy says so. Owned by the loop thread."""

    def __init__(
        self,
        logs: LogManager,
        clock: Clock,
        settings: CleanerSettings,
        stable_offset_of: Callable[[Log], int],
    ) -> None:
        """``stable_offset_of`` returns the offset below which a log may be cleaned: its last stable offset."""
        self._logs = logs
        self._clock = clock
        self._settings = settings
        self._stable_offset_of = stable_offset_of
        self._background = Background(max(1, settings.threads), nice=_NICE)
        self._throttle = Throttle(settings.io_max_bytes_per_second, clock.monotonic)
        self._checkpoints = CleanerCheckpoints(logs.files)
        self._stopping = Event()
        self._workers: list[asyncio.Task[None]] = []
        self._pauses: set[asyncio.Future[None]] = set()
        self._writes: set[asyncio.Future[None]] = set()
        self._in_progress: set[tuple[str, int]] = set()
        # What was done so far, for metrics.
        self.cleanings = 0
        self.bytes_read = 0
        self.bytes_written = 0
        # Logs that are no longer compacted because of a damaged batch.
        self.uncleanable: set[tuple[str, int]] = set()
        # When a log that the disk refused to clean may be tried again, in monotonic seconds.
        self._retry_at: dict[tuple[str, int], float] = {}
        # Closed logs that have a single segment, so nothing to clean.
        self._short: set[tuple[str, int]] = set()

    @property
    def in_progress(self) -> int:
        """The number of logs being cleaned."""
        return len(self._in_progress)

    def start(self) -> None:
        """Begin to clean, after one ``log.cleaner.backoff.ms``; a no-op with ``log.cleaner.enable=false``."""
        if self._settings.enable:
            self._workers = [asyncio.ensure_future(self._work()) for _ in range(self._settings.threads)]

    def set_backoff(self, backoff_ms: int) -> None:
        """Change ``log.cleaner.backoff.ms``; idle workers look for work now."""
        if backoff_ms != self._settings.backoff_ms:
            self._settings = self._settings._replace(backoff_ms=backoff_ms)
            self._wake_all()

    def _wake_all(self) -> None:
        for pause in self._pauses:
            if not pause.done():
                pause.set_result(None)

    async def close(self) -> None:
        """Stop. A cleaning under way is dropped; the old segments are still in place."""
        self._stopping.set()
        self._wake_all()
        await asyncio.gather(*self._workers, *self._writes)
        self._background.close()

    def log_moved(self, old: Log, new: Log) -> None:
        """Go on in another data folder where the cleaning of a log has come to in the old one."""
        self._checkpoints.move(old, new)
        for log in (old, new):
            task = asyncio.ensure_future(self._checkpoints.write(log, self._background))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _work(self) -> None:
        await self._pause()
        while not self._stopping.is_set():
            if not await self._clean_dirtiest():
                await self._pause()

    async def _pause(self) -> None:
        pause: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pauses.add(pause)
        timer = self._clock.call_later(self._settings.backoff_ms / 1000, _wake, pause)
        try:
            await pause
        finally:
            timer.cancel()
            self._pauses.discard(pause)

    async def _clean_dirtiest(self) -> bool:
        """Clean a log, or find that it can't be cleaned; False when none is due."""
        chosen = dirtiest(self._candidates())
        if chosen is None:
            return False
        await self._clean(chosen)
        return True

    async def clean(self, log: Log) -> CleaningStats | None:
        """Clean a log now, as far as memory goes, whether it is due or not; for tools.

        None if there is nothing to clean, or it can't be cleaned.
        """
        try:
            chosen = self._measure(log)
        except (OSError, KafkaError, ProtocolError) as error:
            self._give_up(log, error)
            return None
        return await self._clean(chosen) if chosen.cleanable_bytes else None

    def _candidates(self) -> list[Cleanable]:
        present = {(log.topic, log.partition): log for log in self._logs.logs()}
        self._forget_all_but(set(present))
        unchecked = _CLOSED_LOGS_A_ROUND
        now = self._clock.monotonic()
        candidates = []
        for key, log in present.items():
            if not log.config.compact or key in self._in_progress or key in self.uncleanable:
                continue
            if self._moves(log):
                continue
            if self._retry_at.get(key, now) > now or log.failure is not None:
                continue
            if not log.is_open:
                if key in self._short or not unchecked:
                    continue
                unchecked -= 1
                if self._is_short(log):
                    self._short.add(key)
                    continue
            try:
                candidates.append(self._measure(log))
            except (OSError, KafkaError, ProtocolError) as error:
                self._give_up(log, error)
        return candidates

    def _is_short(self, log: Log) -> bool:
        """Whether a closed log has a single segment."""
        try:
            return sum(name.endswith(names.LOG) for name in self._logs.files.names(log.path)) < 2
        except FileNotFoundError:
            return True

    def _measure(self, log: Log) -> Cleanable:
        log.open()
        return cleanable(log, self._checkpoints.get(log), self._stable_offset_of(log), self._clock.now_ms())

    def _forget_all_but(self, keys: set[tuple[str, int]]) -> None:
        self._checkpoints.keep_only(keys)
        self.uncleanable &= keys
        self._short &= keys
        for key in self._retry_at.keys() - keys:
            del self._retry_at[key]

    async def _clean(self, chosen: Cleanable) -> CleaningStats | None:
        log = chosen.log
        key = (log.topic, log.partition)
        self._in_progress.add(key)
        try:
            end, stats = await self._run(chosen)
            # The checkpoint may not be on the device before the swaps: tombstones would go, and old values stay.
            await self._background.run(self._logs.files.sync_folder, log.path)
            self._checkpoints.advance(log, end)
            await self._checkpoints.write(log, self._background)
        except CleaningAbortedError as why:
            _log.debug("cleaning given up", topic=log.topic, partition=log.partition, why=str(why))
        except Exception as error:
            # A log that can't be cleaned must not keep the others from it, whatever the reason.
            if self._is_current(log):
                self._give_up(log, error)
        else:
            self.cleanings += 1
            self.bytes_read += stats.bytes_read
            self.bytes_written += stats.bytes_written
            _log.info(
                "log compacted",
                topic=log.topic,
                partition=log.partition,
                first_dirty=chosen.first_dirty,
                clean_to=end,
                segments=stats.segments,
                records_before=stats.records_read,
                records_after=stats.records_kept,
                bytes_before=stats.bytes_read,
                bytes_after=stats.bytes_written,
            )
            if stats.keyless:
                _log.warning(
                    "records without a key removed from a compacted log",
                    topic=log.topic,
                    partition=log.partition,
                    records=stats.keyless,
                )
            return stats
        finally:
            self._in_progress.discard(key)
        return None

    def _give_up(self, log: Log, error: Exception) -> None:
        """Log once why a log isn't cleaned; it isn't tried again, or only after a while if the disk refused."""
        key = (log.topic, log.partition)
        about = {"topic": log.topic, "partition": log.partition, "folder": log.path, "why": str(error)}
        if isinstance(error, OSError):
            self._retry_at[key] = self._clock.monotonic() + _RETRY_SECONDS
            _log.warning("log could not be compacted, next try in five minutes", **about)
            return
        self.uncleanable.add(key)
        text = "log is no longer compacted: a batch in it can't be read; `ottla log verify` says where"
        if isinstance(error, (ProtocolError, KafkaError)):
            _log.error(text, **about)
        else:
            _log.exception("log is no longer compacted: the cleaner failed", **about)

    async def _run(self, chosen: Cleanable) -> tuple[int, CleaningStats]:
        """Clean the chosen stretch; returns the first offset that is still dirty, and the counts."""
        from ottla_broker.log.cleaner.filter import BatchFilter
        from ottla_broker.log.cleaner.grouping import group_segments
        from ottla_broker.log.cleaner.offset_map import make_map
        from ottla_broker.log.cleaner.transactions import CleanedTransactions
        from ottla_broker.log.cleaner.work import CleaningWork, pin

        log, config, settings = chosen.log, chosen.log.config, self._settings
        now_ms = self._clock.now_ms()
        run = self._background.run
        threads = max(1, settings.threads)
        pace = Pace(self._throttle, self._stopping, lambda: self._is_current(log))
        work = CleaningWork(
            self._logs.files,
            log.path,
            config,
            make_map(
                settings.dedupe_buffer_size // threads,
                settings.io_buffer_load_factor,
                log.environment.random.randbytes(16),
                pace.worked,
            ),
            pace,
            first_dirty=chosen.first_dirty,
            chunk_bytes=max(4096, settings.io_buffer_size // threads // 2),
            old_horizon_ms=self._old_horizon(log, chosen.first_dirty),
        )
        sealed = [each for each in log.segments if each.base_offset < chosen.first_uncleanable]
        ends = [*(each.base_offset for each in sealed[1:]), chosen.first_uncleanable]
        end_of = {id(each): end for each, end in zip(sealed, ends, strict=True)}
        # Also of segments that aren't cleaned: a transaction's marker may be in a later one than its records. The
        # active one's file is still written to, by this thread.
        paths = [each.path(names.TXN_INDEX) for each in log.segments]
        aborted = [*await run(self._aborted, paths[:-1]), *self._aborted(paths[-1:])]

        transactions = CleanedTransactions(each for each in aborted if each.last_offset >= chosen.first_dirty)
        for segment in segments_between(sealed, chosen.first_dirty, chosen.first_uncleanable):
            self._check_current(log, [segment])
            position = segment.position_below(chosen.first_dirty)
            source = pin(segment, end_of[id(segment)])
            if await run(work.read_keys, source, position, transactions):
                break
        end = max(chosen.first_dirty, work.offsets.latest_offset + 1)

        transactions = CleanedTransactions(aborted)
        dirty = [each for each in sealed if each.base_offset < end]
        for group in group_segments(dirty, config, chosen.first_uncleanable):
            self._check_current(log, group)
            rules = BatchFilter(
                offsets=work.offsets,
                now_ms=now_ms,
                delete_retention_ms=config.delete_retention_ms,
                round_end=chosen.first_uncleanable,
                last_records=_last_records(log),
                transactions=transactions,
                stats=work.stats,
            )
            sources = [pin(each, end_of[id(each)]) for each in group]
            cleaned = await run(work.clean, sources, rules, transactions)
            if cleaned is not None:
                self._swap(log, cleaned, group)
        return end, work.stats

    def _old_horizon(self, log: Log, first_dirty: int) -> int:
        """Return when the last clean segment was written, less delete.retention.ms; 0 without a clean segment."""
        clean = [each for each in log.segments if each.base_offset < first_dirty]
        if not clean:
            return 0
        modified_ms = self._logs.files.modified_ms(clean[-1].path(names.LOG))
        return modified_ms - log.config.delete_retention_ms

    def _aborted(self, paths: list[str]) -> list[AbortedTransaction]:
        """The aborted transactions of some segments; on any thread. Raises CorruptFileError, OSError."""
        from ottla_broker.log import txn_index

        return [each for path in paths for each in txn_index.read(self._logs.files, path)]

    def _swap(self, log: Log, cleaned: LogSegment, old: list[LogSegment]) -> None:
        """Replace ``old`` by ``cleaned``, unless the log has changed meanwhile."""
        try:
            self._check_current(log, old)
        except CleaningAbortedError:
            cleaned.unlink()
            raise
        cleaned.created_ms = old[0].created_ms
        log.replace_segments([cleaned], old)

    def _check_current(self, log: Log, segments: list[LogSegment]) -> None:
        """Raise CleaningAbortedError unless the log still exists with these segments."""
        present = {id(each) for each in log.segments}
        if not self._is_current(log) or any(id(each) not in present for each in segments):
            raise CleaningAbortedError("the log has changed under the cleaner")

    def _is_current(self, log: Log) -> bool:
        """Whether the log exists, works and stays. It only reads, so the cleaning thread may call it too."""
        is_present = self._logs.get(log.topic, log.partition) is log
        return is_present and log.failure is None and not self._moves(log)

    def _moves(self, log: Log) -> bool:
        """Whether a copy of the log is being filled, which would keep records that the log has removed by now."""
        return self._logs.future.get(log.topic, log.partition) is not None


def _wake(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)


def _last_records(log: Log) -> dict[int, LastRecord]:
    """The last record of each producer that the log remembers, by producer id."""
    from ottla_broker.log.cleaner.filter import LastRecord

    return {
        entry.producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
        for entry in log.producers.producers.values()
    }
