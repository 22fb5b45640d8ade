"""Which records of a batch stay when its log is compacted.

The first rule that matches a record decides (Kafka's ``Cleaner.shouldRetainRecord``):

=====================================================================  ==================================
the record                                                             is
=====================================================================  ==================================
belongs to an aborted transaction                                      dropped
lies above the offsets that the offset map covers                      kept
has no key                                                             dropped
has a key that the map knows at a higher offset                        dropped
is a tombstone, and its batch's delete horizon has passed              dropped
any other                                                              kept
=====================================================================  ==================================

A batch that keeps all its records is copied byte by byte. One that loses some keeps its offsets, sequences, producer,
epoch and codec, and the remaining records keep their bytes. One that loses all is removed, except for two kinds, which
stay as a header without records: the last batch of a producer that is still remembered (it carries the last sequence),
and the last batch of the cleaned stretch (it carries the last offset).

A batch with a tombstone gets a delete horizon when it is first cleaned: now + ``delete.retention.ms``, stored as the
base timestamp and marked by bit 6 of the attributes (KIP-534). The records' timestamp deltas then count from it. After
that time the tombstone may be removed. Control batches wait in the same way once their transaction's records are gone.

A batch whose checksum is wrong is never touched: rewriting it would make the damage look sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla_broker.log.cleaner.offset_map import OffsetMap
from ottla_broker.log.cleaner.pace import RECORDS_A_TURN, Pace
from ottla_broker.log.cleaner.records import RecordSpan, walk
from ottla_broker.log.cleaner.transactions import CleanedTransactions
from ottla_protocol.records.batch import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecordError,
    crc_is_valid,
    write_crc,
    write_header,
)
from ottla_protocol.records.record import encode_varint

_CODEC_BITS: Final = 0x07


class LastRecord(NamedTuple):
    """The last record of a producer that is still remembered."""

    # Last offset of its last batch of data; None when a transaction marker came last.
    last_data_offset: int | None
    epoch: int


class KeptBatch(NamedTuple):
    """A batch of the cleaned log. ``changed`` is False when ``data`` is the batch as it was."""

    data: memoryview | bytearray
    max_timestamp: int
    changed: bool


@dataclass(slots=True)
class CleaningStats:
    """Counts of one cleaning. Written by the thread that cleans, read after it has finished."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    # Records without a key, which a compacted log should not have.
    keyless: int = 0
    # Segments that were replaced.
    segments: int = 0


def record_bytes(header: BatchHeader, batch: memoryview) -> bytes:
    """The batch's records, uncompressed, after its checksum was verified. Raises CorruptRecordError."""
    if not crc_is_valid(batch, 0, header):
        raise CorruptRecordError(
            f"the checksum of the batch at offset {header.base_offset} does not match its bytes"
        )
    if not header.codec or not header.record_count:
        return bytes(batch[HEADER_SIZE:])
    from ottla_protocol.records.compression import decompress

    return bytes(decompress(header.codec, batch[HEADER_SIZE:]))


@dataclass(slots=True, eq=False, kw_only=True)
class BatchFilter:
    """The rules above for one cleaning of one log. Used by one thread.

    ``round_end`` is the first offset this cleaning must not touch; ``last_records`` is by producer id.
    """

    offsets: OffsetMap
    now_ms: int
    delete_retention_ms: int
    round_end: int
    last_records: Mapping[int, LastRecord]
    transactions: CleanedTransactions
    pace: Pace
    stats: CleaningStats

    def filter(self, header: BatchHeader, batch: memoryview) -> KeptBatch | None:
        """The part of a batch that stays; None when all of it is removed. Raises CorruptRecordError."""
        stats = self.stats
        stats.bytes_read += header.size
        stats.records_read += header.record_count
        data = record_bytes(header, batch)
        if header.is_control:
            kept, wants_horizon = self._keep_control(header, data)
        elif self.transactions.on_data(header):
            kept, wants_horizon = [], False
        else:
            kept, wants_horizon = self._keep_data(header, data)
        stats.records_kept += len(kept)
        result: KeptBatch | None = None
        if kept:
            wants_horizon = wants_horizon and not header.has_delete_horizon
            if len(kept) == header.record_count and not wants_horizon:
                result = KeptBatch(batch, header.max_timestamp, changed=False)
            else:
                horizon = self.now_ms + self.delete_retention_ms if wants_horizon else None
                result = rebuild(header, data, kept, horizon)
        elif self._must_stay_when_empty(header):
            result = empty_batch(header)
            if header.size == HEADER_SIZE:
                result = KeptBatch(batch, header.max_timestamp, changed=False)
        if result is not None:
            stats.bytes_written += len(result.data)
        return result

    def _keep_data(self, header: BatchHeader, data: bytes) -> tuple[list[RecordSpan], bool]:
        """The records that stay, and whether a tombstone among them has to wait for a horizon."""
        offsets, pace, base = self.offsets, self.pace, header.base_offset
        horizon = header.delete_horizon_ms
        tombstones_go = horizon is not None and horizon <= self.now_ms
        kept = []
        has_tombstone = False
        for number, record in enumerate(walk(data, header.record_count), start=1):
            if not number % RECORDS_A_TURN:
                pace.worked(RECORDS_A_TURN)
            offset = base + record.offset_delta
            if offset <= offsets.latest_offset:
                if record.key is None:
                    self.stats.keyless += 1
                    continue
                if offset < offsets.get(record.key):
                    continue
                if not record.has_value:
                    if tombstones_go:
                        continue
                    has_tombstone = True
            kept.append(record)
        return kept, has_tombstone

    def _keep_control(self, header: BatchHeader, data: bytes) -> tuple[list[RecordSpan], bool]:
        """The marker, if it stays, and whether it has to wait for a horizon."""
        records = list(walk(data, header.record_count))
        may_go = self.transactions.on_control(header, records[0].key if records else None)
        horizon = header.delete_horizon_ms
        if may_go and horizon is not None and horizon <= self.now_ms:
            return [], False
        return records, may_go

    def _must_stay_when_empty(self, header: BatchHeader) -> bool:
        if header.last_offset + 1 == self.round_end:
            return True
        last = self.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_data_offset


def rebuild(header: BatchHeader, data: bytes, kept: list[RecordSpan], horizon: int | None) -> KeptBatch:
    """The batch with only the records ``kept`` of its uncompressed ``data``, and a new delete ``horizon`` if given.

    Without a new horizon the base timestamp stays, so the records' bytes stay too.
    """
    base = header.base_timestamp
    if header.is_log_append_time:
        max_timestamp = header.max_timestamp
    else:
        max_timestamp = max(base + record.timestamp_delta for record in kept)
    attributes = header.attributes
    if horizon is None:
        payload = b"".join([data[record.start : record.end] for record in kept])
    else:
        attributes |= DELETE_HORIZON
        payload = b"".join([_moved_in_time(data, record, base - horizon) for record in kept])
        base = horizon
    if header.codec:
        from ottla_protocol.records.compression import compress

        payload = compress(header.codec, payload)
    changed = header._replace(
        attributes=attributes, base_timestamp=base, max_timestamp=max_timestamp, record_count=len(kept)
    )
    return KeptBatch(_encode(changed, payload), max_timestamp, changed=True)


def empty_batch(header: BatchHeader) -> KeptBatch:
    """The batch without its records: only offsets, sequences, producer and epochs remain."""
    attributes = header.attributes & ~(_CODEC_BITS | DELETE_HORIZON)
    changed = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return KeptBatch(_encode(changed, b""), header.max_timestamp, changed=True)


def _moved_in_time(data: bytes, record: RecordSpan, by: int) -> bytes:
    """The record with ``by`` ms added to its timestamp delta."""
    delta = encode_varint(record.timestamp_delta + by)
    length = 1 + len(delta) + record.end - record.offset_at
    attributes = data[record.timestamp_at - 1 : record.timestamp_at]
    return b"".join((encode_varint(length), attributes, delta, data[record.offset_at : record.end]))


def _encode(header: BatchHeader, payload: bytes) -> bytearray:
    size = HEADER_SIZE + len(payload)
    batch = bytearray(size)
    write_header(batch, 0, header._replace(batch_length=size - LOG_OVERHEAD))
    batch[HEADER_SIZE:] = payload
    write_crc(batch, 0, size)
    return batch
