"""A batch: records of one partition that are sent together, and their outcome.

A batch is open while records are appended. Then it is encoded once, and only its bytes are kept: for retries, which
change at most a few bytes of the header, and for splitting it. The outcome stays for the deliveries that point to it.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla_protocol.records.batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    write_crc,
)
from ottla_protocol.records.columns import encode_columns
from ottla_protocol.records.record import decode_records

from ..types import ProducerIdAndEpoch, RecordMetadata

if TYPE_CHECKING:
    from ottla_protocol.records.record import Headers

_log = logging.getLogger("ottla_client.producer")

RECORD_OVERHEAD = 14
"""Bytes of a usual record without key and value: its length, flags and deltas."""
KEY_OVERHEAD = 2
HEADER_OVERHEAD = 6
"""Bytes of a header without its name and value."""
BATCH_OVERHEAD = HEADER_SIZE
MAX_RECORD_OVERHEAD = 32
"""The most bytes of a record's own numbers, as in ``DefaultRecord.recordSizeUpperBound``."""

CLOSED = -1
"""``Batch.left`` of a closed batch."""

_PRODUCER_AT = 43
_MANY_WAITERS = 64
"""From so many on, cancelled waits are dropped each time that the number has doubled."""
_producer = Struct(">qhi")


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition, in order. Times are seconds on the monotonic clock, timestamps milliseconds."""

    topic: str
    partition: int
    created: float
    transactional: bool = False
    """Part of a transaction, whose outcome also reports the batch's failure."""
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    """Shorter than ``values`` if the last records have no key."""
    headers: list[Headers] = field(default_factory=list)
    """Like ``keys``."""
    stamps: list[tuple[int, int]] = field(default_factory=list)
    """The beginnings of new timestamps: (index of the record, timestamp)."""
    stamp: int = -1
    """The last record's timestamp."""
    left: int = 0
    """Free bytes of the reserved memory; CLOSED for a closed batch."""
    reserved: int = 0
    """Bytes of the buffer's memory that the batch holds."""
    ready: bool = False
    """It may be sent: it is full, has waited for linger_ms, or a flush asks for it."""
    count: int = 0
    """The number of records, set when it is closed."""
    size: int = 0
    """Bytes, set when it is closed: an estimate until it is encoded."""
    encoded: bytearray | None = None
    identity: ProducerIdAndEpoch | None = None
    """The producer id and epoch of its last attempt."""
    sequence: int | None = None
    """The first record's sequence number, not wrapped at 2**31."""
    attempts: int = 0
    """The number of times that it was sent."""
    in_flight: bool = False
    """Sent, without a response yet."""
    abandoned: bool = False
    """Its time was up while it was in flight: its deliveries failed, and its response only concerns sequences."""
    last_error: Exception | None = None
    """The error of the last attempt."""
    done: bool = False
    error: Exception | None = None
    record_errors: dict[int, Exception] = field(default_factory=dict)
    """The errors of single records in a refused batch (KIP-467)."""
    base_offset: int = -1
    log_append_time: int = -1
    parts: list[tuple[int, Batch]] = field(default_factory=list)
    """The batches it was split into, with the index of their first record."""
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    callbacks: list[Callable[[], object]] = field(default_factory=list)
    retrieved: set[int] = field(default_factory=set)
    """Records whose failure was retrieved."""

    def append(self, value: bytes | None, key: bytes | None, timestamp: int, headers: Headers) -> int:
        """Append a record, whose size is already taken off ``left``. Returns its index."""
        values = self.values
        index = len(values)
        values.append(value)
        if key is not None:
            if len(self.keys) < index:
                self.keys.extend(repeat(None, index - len(self.keys)))
            self.keys.append(key)
        if headers:
            if len(self.headers) < index:
                self.headers.extend(repeat((), index - len(self.headers)))
            self.headers.append(headers)
        if timestamp != self.stamp:
            self.stamp = timestamp
            self.stamps.append((index, timestamp))
        return index

    def extend(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamps: Sequence[int] | int,
        headers: Sequence[Headers] | None,
    ) -> int:
        """Append many records, whose size is already taken off ``left``. Returns the index of the first."""
        index = len(self.values)
        self.values += values
        if keys is not None:
            self.keys.extend(repeat(None, index - len(self.keys)))
            self.keys += keys
        if headers is not None:
            self.headers.extend(repeat((), index - len(self.headers)))
            self.headers += headers
        if isinstance(timestamps, int):
            if timestamps != self.stamp:
                self.stamp = timestamps
                self.stamps.append((index, timestamps))
        else:
            for at, timestamp in enumerate(timestamps, index):
                if timestamp != self.stamp:
                    self.stamp = timestamp
                    self.stamps.append((at, timestamp))
        return index

    @property
    def expected_size(self) -> int:
        """Bytes; an estimate until it is encoded."""
        return self.size or BATCH_OVERHEAD + self.reserved - self.left

    def close(self) -> None:
        """Accept no more records."""
        if self.left != CLOSED:
            self.size = BATCH_OVERHEAD + self.reserved - self.left
            self.count = len(self.values)
            self.left = CLOSED
        self.ready = True

    def encode(self, codec: int, level: int | None, identity: ProducerIdAndEpoch | None) -> bytearray:
        """The closed batch's bytes, with ``identity`` and the batch's sequence.

        The first call encodes the records and drops them. Later calls only update producer id, epoch and sequence in
        the header.
        """
        producer_id, epoch, sequence = fields = self._producer(identity)
        encoded = self.encoded
        if encoded is None:
            count = self.count
            if self.keys:
                self.keys.extend(repeat(None, count - len(self.keys)))
            if self.headers:
                self.headers.extend(repeat((), count - len(self.headers)))
            encoded = encode_columns(
                self.values,
                keys=self.keys or None,
                timestamps=self._timestamps(),
                headers=self.headers or None,
                codec=codec,
                level=level,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=self.transactional,
            )
            self.encoded = encoded
            self.size = len(encoded)
            self.values, self.keys, self.headers = [], [], []
        elif _producer.unpack_from(encoded, _PRODUCER_AT) != fields:
            _producer.pack_into(encoded, _PRODUCER_AT, *fields)
            write_crc(encoded, 0, len(encoded))
        self.identity = identity
        return encoded

    def _producer(self, identity: ProducerIdAndEpoch | None) -> tuple[int, int, int]:
        """Producer id, epoch and sequence for the header."""
        if identity is None or self.sequence is None:
            return NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
        return identity.producer_id, identity.epoch, self.sequence & 0x7FFFFFFF

    def _timestamps(self) -> list[int] | int:
        stamps = self.stamps
        if len(stamps) == 1:
            return stamps[0][1]
        ends = [at for at, _ in stamps[1:]] + [self.count]
        runs = (repeat(timestamp, end - at) for (at, timestamp), end in zip(stamps, ends, strict=True))
        return list(chain.from_iterable(runs))

    def split(self) -> list[Batch]:
        """Two batches with half of the records each, to replace this one, which must be encoded."""
        assert self.encoded is not None
        records = decode_records(self.encoded)
        middle = self.count // 2
        halves: list[Batch] = []
        for first, last in ((0, middle), (middle, self.count)):
            half = Batch(self.topic, self.partition, self.created, self.transactional)
            for _, timestamp, key, value, headers in records[first:last]:
                half.append(value, key, timestamp, headers)
            share = self.reserved * (last - first) // self.count
            half.reserved = share if first == 0 else self.reserved - halves[0].reserved
            half.left = 0
            half.close()
            half.abandoned = self.abandoned
            if self.sequence is not None:
                half.sequence = self.sequence + first
                half.identity = self.identity
            halves.append(half)
            self.parts.append((first, half))
            half.callbacks.append(self._part_done)
        self.reserved = 0
        self.encoded = None
        return halves

    def complete(self, base_offset: int, log_append_time: int = -1) -> None:
        """The broker has it. ``base_offset`` is -1 if the broker doesn't return it."""
        if not self.done:
            self.base_offset = base_offset
            self.log_append_time = log_append_time
            self._finish()

    def fail(self, error: Exception) -> None:
        """It will not be sent again. A batch that is done keeps its outcome."""
        if not self.done:
            self.error = error
            if self.left != CLOSED:
                self.close()
            self._finish()

    def _part_done(self) -> None:
        if not self.done and all(part.done for _, part in self.parts):
            self._finish()

    def _finish(self) -> None:
        self.done = True
        self.encoded = None
        self.values, self.keys, self.headers = [], [], []
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()

    def wait(self) -> asyncio.Future[None]:
        """A future that is done at the outcome. Cancelling it affects neither the batch nor other waits."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.done:
            waiter.set_result(None)
            return waiter
        count = len(self.waiters)
        if count >= _MANY_WAITERS and not count & (count - 1):
            self.waiters = [each for each in self.waiters if not each.done()]
        self.waiters.append(waiter)
        return waiter

    def _holder(self, index: int) -> tuple[Batch, int]:
        """The batch that has the record after splits, and its index there."""
        batch = self
        while batch.parts:
            at = bisect_right(batch.parts, index, key=lambda part: part[0]) - 1
            first, part = batch.parts[at]
            index -= first
            batch = part
        return batch, index

    def failure(self, index: int) -> Exception | None:
        """The error of record ``index``, None if it was delivered. The failure counts as retrieved."""
        batch, at = self._holder(index) if self.parts else (self, index)
        if batch.error is None:
            return None
        batch.retrieved.add(at)
        return batch.record_errors.get(at, batch.error)

    def metadata(self, index: int) -> RecordMetadata:
        """The place where the delivered record ``index`` was stored."""
        batch, at = self._holder(index) if self.parts else (self, index)
        offset = batch.base_offset
        timestamp = batch.log_append_time
        if timestamp < 0:
            stamps = batch.stamps
            run = 0 if len(stamps) == 1 else bisect_right(stamps, at, key=lambda run: run[0]) - 1
            timestamp = stamps[run][1]
        return RecordMetadata(batch.topic, batch.partition, offset if offset < 0 else offset + at, timestamp)

    def spans(self, first: int, count: int) -> list[tuple[Batch, int, int]]:
        """Records ``first`` to ``first + count`` as (batch that has them, first index there, count)."""
        if not self.parts:
            return [(self, first, count)]
        found = []
        ends = [at for at, _ in self.parts[1:]] + [self.count]
        for (at, part), end in zip(self.parts, ends, strict=True):
            start, stop = max(at, first), min(end, first + count)
            if start < stop:
                found += part.spans(start - at, stop - start)
        return found

    def __del__(self) -> None:
        """Log a failure that was never retrieved."""
        error: Any = getattr(self, "error", None)
        if error is not None and len(self.retrieved) < self.count and not self.transactional:
            _log.error(
                "%d records for %s-%d were not delivered, and their deliveries were never checked: %s",
                self.count - len(self.retrieved),
                self.topic,
                self.partition,
                error,
            )
