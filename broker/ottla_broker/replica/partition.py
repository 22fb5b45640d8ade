"""One partition that this broker leads: its log, its high watermark, and those who wait for it to move."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla_broker.clock import Clock
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.log.log import AppendInfo, Log
    from ottla_broker.log.manager import LogManager
    from ottla_broker.replica.delayed_fetch import DelayedFetch

_serial = count()


class Partition:
    """A partition with this broker as its leader.

    ``log_start_offset ≤ last_stable_offset ≤ high_watermark ≤ log_end_offset`` always holds. With one replica all that
    is in the log is committed, except what an fsync is owed for (``flush.messages``): the high watermark waits for it.

    Owned by the loop thread. The log is opened when it is first needed, so that ten thousand idle partitions cost
    next to nothing.
    """

    __slots__ = (
        "_clock",
        "_flushes",
        "_hidden_bytes",
        "_high_watermark",
        "_log",
        "_logs",
        "_waiters",
        "fetches",
        "isr",
        "leader_epoch",
        "partition",
        "replicas",
        "stopped",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        leader_epoch: int,
        replicas: list[int],
        logs: LogManager,
        clock: Clock,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = list(replicas)
        self.stopped = False
        self.fetches: set[DelayedFetch] = set()
        self._logs = logs
        self._clock = clock
        self._log: Log | None = None
        self._high_watermark = -1
        # Appends whose fsync is under way: the high watermark stays behind them.
        self._flushes = 0
        # Bytes appended behind the high watermark.
        self._hidden_bytes = 0
        # Who waits for the high watermark, the nearest first: (offset, serial, future).
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    # ---- offsets

    @property
    def log(self) -> Log:
        """The log, opened if this is the first use.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when its files can't be read, INCONSISTENT_TOPIC_ID when they are of
                another topic of this name.
        """
        log = self._log
        if log is None:
            log = self._logs.get(self.topic, self.partition)
            if log is None:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the log of {self.topic}-{self.partition} is not on this broker",
                )
            log.assign_topic_id(self.topic_id)
            self._high_watermark = self._committed_at_first(log)
            log.watermark = self._get_high_watermark
            self._log = log
        return log

    def _committed_at_first(self, log: Log) -> int:
        """The high watermark of a log that has just been opened."""
        return log.log_end_offset

    @property
    def is_open(self) -> bool:
        """Whether the log has been needed yet."""
        return self._log is not None

    def _get_high_watermark(self) -> int:
        return self._high_watermark

    @property
    def high_watermark(self) -> int:
        """The first offset that is not committed."""
        if self._log is None:
            return self._committed_at_first(self.log)
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset that a read_committed consumer must not see: here, without transactions, not committed."""
        return self.high_watermark

    def check_leader(self) -> None:
        """Raise KafkaError unless this broker leads the partition: alone, it does."""

    def check_readable(self, current_leader_epoch: int, any_replica: bool) -> None:
        """Raise KafkaError unless a consumer that believes in an epoch may read here.

        ``any_replica``: it may be asked of a follower too (KIP-392). Errors as :meth:`check_epoch`.
        """
        self.check_epoch(current_leader_epoch)

    @property
    def is_led_here(self) -> bool:
        """Whether this broker leads the partition: alone, it does."""
        return True

    def lacks_replicas(self) -> bool:
        """Whether fewer are in sync than acks=all asks for. Raises KafkaError where this broker doesn't lead."""
        return len(self.isr) < self.min_insync_replicas

    @property
    def min_insync_replicas(self) -> int:
        """How many have to be in sync for acks=all; not more than there are replicas at all."""
        return min(self.log.config.min_insync_replicas, max(1, len(self.replicas)))

    @property
    def epoch_start(self) -> int:
        """Up to where the high watermark has to come before the end of what is committed is known: KIP-207."""
        return 0

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare the leader epoch that a client believes in with the real one; -1 is not compared (KIP-320).

        Raises:
            KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # ---- writing

    def append(self, records: memoryview, now_ms: int) -> AppendInfo:
        """Append what a producer sent.

        Raises:
            KafkaError: as :meth:`ottla_broker.log.log.Log.append`.
        """
        info = self.log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms, from_client=True)
        if not info.duplicate:
            self._appended(info)
        return info

    def append_internal(self, records: bytearray, now_ms: int) -> int:
        """Append a coordinator's own records; returns the offset after them.

        Raises:
            KafkaError: as :meth:`ottla_broker.log.log.Log.append`, or NOT_LEADER_OR_FOLLOWER.
        """
        if self.stopped:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        info = self.log.append(
            memoryview(records), leader_epoch=self.leader_epoch, now_ms=now_ms, from_client=False
        )
        self._appended(info)
        return info.last_offset + 1

    def _appended(self, info: AppendInfo) -> None:
        self._hidden_bytes += info.size
        if info.flush_due:
            self._flushes += 1
            end = info.last_offset + 1
            self.log.flushed(end).add_done_callback(lambda future: self._on_flushed(end, future))
        elif not self._flushes:
            self._advance(info.last_offset + 1)

    def _on_flushed(self, end: int, future: asyncio.Future[None]) -> None:
        self._flushes -= 1
        if future.cancelled() or future.exception() is not None:
            # The log is out of service from now on; who waits for this write must hear of it.
            self.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
            self.answer_fetches()
            return
        if self.stopped:
            return
        self._advance(end if self._flushes else self.log.log_end_offset)

    def _advance(self, offset: int) -> None:
        """Move the high watermark and wake who waited for it."""
        if offset <= self._high_watermark:
            return
        before, self._high_watermark = self._high_watermark, offset
        grown = self._hidden_bytes
        log = self._log
        if log is not None and offset < (end := log.log_end_offset):
            # About the share of what was hidden; more than nothing, for those who wait for a single byte.
            grown = max(1, grown * (offset - before) // (end - before))
        self._hidden_bytes = max(0, self._hidden_bytes - grown)
        waiters = self._waiters
        while waiters and waiters[0][0] <= offset:
            future = heapq.heappop(waiters)[2]
            if not future.done():
                future.set_result(None)
        if self.fetches:
            for fetch in list(self.fetches):
                fetch.grow(grown)

    def committed(self, end_offset: int, timeout_ms: int) -> asyncio.Future[None] | None:
        """Tell when all in-sync replicas have everything below ``end_offset``.

        ``None``: they have it. The future raises KafkaError: REQUEST_TIMED_OUT after ``timeout_ms``,
        NOT_LEADER_OR_FOLLOWER when the partition is taken away, KAFKA_STORAGE_ERROR when its disk fails.
        """
        if end_offset <= self.high_watermark:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters
        while waiters and waiters[0][2].done():
            # Timed out: who waits for the nearest offset has mostly waited longest.
            heapq.heappop(waiters)
        heapq.heappush(waiters, (end_offset, next(_serial), future))
        timer = self._clock.call_later(timeout_ms / 1000, time_out, future)
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def fail_waiters(self, code: ErrorCode) -> None:
        """Answer all who wait with an error."""
        waiters, self._waiters = self._waiters, []
        for _, _, future in waiters:
            if not future.done():
                future.set_exception(KafkaError(code))

    # ---- reading

    def scan(self, start_offset: int) -> Iterator[memoryview]:
        """Whole batches from ``start_offset`` to the log's end, in chunks: for a coordinator that loads.

        Not to the high watermark: a new leader's may be behind what the old one has acknowledged, and whatever this
        one has when it begins to lead stays.
        """
        log = self.log
        return log.scan_batches(max(start_offset, log.log_start_offset))

    def delete_records(self, offset: int) -> int:
        """Make ``offset`` the first one (-1: the high watermark); returns the new log start offset.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION for a topic without the delete policy.
        """
        log = self.log
        if not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic} is compacted only: its records can't be deleted by offset",
            )
        high_watermark = self.high_watermark
        target = high_watermark if offset == -1 else offset
        if not 0 <= target <= high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target > log.log_start_offset:
            log.advance_log_start_offset(target)
        return log.log_start_offset

    def deleted(self, offset: int, timeout_ms: int) -> asyncio.Future[int] | None:
        """Tell when all replicas have followed a log start of ``offset``; ``None``: they have."""
        return None

    # ---- the end

    def stop(self) -> None:
        """The partition is led here no longer: everybody who waits is told."""
        self.stopped = True
        self.fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.answer_fetches()

    def answer_fetches(self) -> None:
        """Have fetches that wait answered with what there is."""
        for fetch in list(self.fetches):
            fetch.finish()


def time_out(future: asyncio.Future[Any]) -> None:
    """Nobody waits any longer."""
    if not future.done():
        future.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
