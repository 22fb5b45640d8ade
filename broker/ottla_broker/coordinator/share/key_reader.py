"""Reads the keys of a share partition's records, ahead of the fetches that hand them out in order.

One turn of the event loop decodes a slice: some hundred records. Of a compressed or large batch, a thread decodes the
records that are wanted and some more (:mod:`.key_window`), of one batch at a time. What is known goes to a
:class:`.KeyOrder`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ottla_broker.clock import Clock
from ottla_broker.coordinator.share.key_order import KeyOrder, Ranges, read_keys
from ottla_broker.coordinator.share.key_window import read_window
from ottla_broker.events import get_logger
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import CODEC_MASK, LOG_OVERHEAD, BatchHeader, CorruptRecordError
from ottla_protocol.records.formats import iter_headers

_log = get_logger()

_SLICE_BYTES: Final = 128 * 1024
_SLICE_RECORDS: Final = 1_000
"""The records of one turn, at about a microsecond each; a batch costs as much as ten."""
_BATCH_COST: Final = 10
_AHEAD: Final = 20_000
"""How many offsets past the wanted ones may be known. What lies beyond is decoded again when it is needed."""


class Run(Protocol):
    """Runs a function on a thread (:meth:`ottla_broker.background.Background.run`)."""

    def __call__(
        self, function: Callable[..., tuple[list[int], list[int]]], *args: object
    ) -> asyncio.Future[tuple[list[int], list[int]]]: ...


class Owner(Protocol):
    """The share partition."""

    def acquired(self, first: int, last: int) -> Ranges:
        """Return what members have of these offsets."""

    def archive_aborted(
        self, headers: Sequence[BatchHeader], aborted: Sequence[AbortedTransaction], offset: int
    ) -> None:
        """Archive the batches of aborted transactions from ``offset`` on."""

    def wake(self) -> None:
        """More is known."""


class KeyReader:
    """Owned by the loop thread.

    Attributes:
        order: what is known.
        committed: whether records of aborted transactions are archived when they are found.
    """

    __slots__ = ("_clock", "_closed", "_owner", "_partition", "_run", "_under_way", "committed", "order")

    def __init__(
        self, start: int, committed: bool, partition: Partition, owner: Owner, clock: Clock, run: Run
    ) -> None:
        self.order = KeyOrder(start)
        self.committed = committed
        self._partition = partition
        self._owner = owner
        self._clock = clock
        self._run = run
        self._under_way = False
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def read(self, until: int, limit: int) -> None:
        """Have the keys of the offsets before ``until`` read: a slice now, the others in later turns.

        ``limit``: where the records end that the group may have. Raises KafkaError: the log's.
        """
        if not self._under_way and self.order.known_to < until:
            self._slice(until, limit)

    def _slice(self, until: int, limit: int) -> None:
        """Read some keys, and plan to go on. Raises KafkaError."""
        offset = self.order.known_to
        reader = self._partition.log.reader
        found = reader.read(offset, _SLICE_BYTES, max_offset=limit, min_one=True)
        if found is None:
            return
        aborted = reader.aborted(offset, found, limit) if self.committed else ()
        headers: list[BatchHeader] = []
        offsets: list[int] = []
        keys: list[int] = []
        work = 0
        slow: tuple[bytes, BatchHeader] | None = None
        try:
            data = found.read()
            for position, header in iter_headers(data):
                if header.last_offset < offset:
                    continue
                if header.attributes & CODEC_MASK or header.record_count > _SLICE_RECORDS:
                    if not headers:
                        size = header.batch_length + LOG_OVERHEAD
                        slow = data[position : position + size], header
                        headers.append(header)
                    break
                headers.append(header)
                some_offsets, some_keys = self._keys_of(data, position, header)
                offsets += some_offsets
                keys += some_keys
                work += header.record_count + _BATCH_COST
                if work >= _SLICE_RECORDS:
                    break
        except (CorruptRecordError, OSError) as error:
            if not headers:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if not headers:
            return
        if aborted:
            self._owner.archive_aborted(headers, aborted, offset)
        if slow is not None:
            self._under_way = True
            batch, header = slow
            # A batch may have millions of records: those far ahead are decoded when they are needed.
            self._run(read_window, batch, 0, header, offset, until + _AHEAD).add_done_callback(
                lambda done: self._decoded(done, header, offset, until, limit)
            )
            return
        self._learn(offsets, keys, headers[-1].last_offset + 1, until)
        if self.order.known_to < until:
            self._under_way = True
            self._clock.call_later(0, self._go_on, until, limit)

    def _keys_of(self, data: bytes, position: int, header: BatchHeader) -> tuple[list[int], list[int]]:
        try:
            return read_keys(data, position, header)
        except CorruptRecordError as error:
            self._unreadable(header, error)
            return [], []

    def _unreadable(self, header: BatchHeader, error: BaseException) -> None:
        """Consumers can't read the batch either: it has no order."""
        _log.warning(
            "keys of a batch not read",
            topic=self._partition.topic,
            partition=self._partition.partition,
            offset=header.base_offset,
            reason=repr(error),
        )

    def _learn(self, offsets: list[int], keys: list[int], end: int, until: int) -> None:
        known = self.order.known_to
        end = min(end, until + _AHEAD)
        self.order.learn(offsets, keys, end, self._owner.acquired(known, end - 1))

    def _decoded(
        self,
        done: asyncio.Future[tuple[list[int], list[int]]],
        header: BatchHeader,
        since: int,
        until: int,
        limit: int,
    ) -> None:
        self._under_way = False
        if done.cancelled() or self._closed:
            if not done.cancelled():
                done.exception()
            return
        offsets: list[int] = []
        keys: list[int] = []
        error = done.exception()
        if error is None:
            offsets, keys = done.result()
        else:
            self._unreadable(header, error)
        if self.order.known_to >= since:  # Otherwise the log was cut meanwhile.
            self._learn(offsets, keys, header.last_offset + 1, until)
        self._go_on(until, limit)

    def _go_on(self, until: int, limit: int) -> None:
        """Wake the fetches that wait, and read the next slice."""
        self._under_way = False
        if self._closed:
            return
        try:
            self.read(until, limit)
        except KafkaError as error:
            # The next fetch reads here again, and answers it.
            _log.debug("keys not read", topic=self._partition.topic, reason=str(error))
        self._owner.wake()
