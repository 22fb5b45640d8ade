"""Decides which records of a batch stay when its log is compacted.

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
that time the tombstone may be removed. Tombstones above the map's offsets get none yet: while older records of their
keys are still there, a slow reader must find the tombstone too. (Kafka starts their time as well.) Control batches wait
in the same way once their transaction's records are gone.

Messages of the formats 0 and 1 follow the same rules, but have no horizons: a tombstone goes once its segment is older
than ``delete.retention.ms`` before the last clean one. A wrapper that loses messages is written again with the others.

A batch whose checksum is wrong is never touched: rewriting it would make the damage look sound.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla_broker.log.cleaner.offset_map import KeyMap
from ottla_broker.log.cleaner.records import NOTHING, Choice, choose, damage, moved_body, walk
from ottla_broker.log.cleaner.transactions import CleanedTransactions
from ottla_protocol.records.batch import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecordError,
    write_crc,
    write_header,
)
from ottla_protocol.records.formats import decode_any, is_intact
from ottla_protocol.records.record import Record

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


def check_crc(header: BatchHeader, batch: memoryview) -> None:
    """Raise CorruptRecordError unless the batch matches its checksum."""
    if not is_intact(batch, 0, header):
        raise CorruptRecordError(
            f"the checksum of the batch at offset {header.base_offset} does not match its bytes"
        )


def record_bytes(header: BatchHeader, batch: memoryview) -> bytes:
    """The batch's records, uncompressed, after its checksum was verified. Raises CorruptRecordError."""
    check_crc(header, batch)
    if not header.codec or not header.record_count:
        return bytes(batch[HEADER_SIZE:])
    from ottla_protocol.records.compression import decompress

    return bytes(decompress(header.codec, batch[HEADER_SIZE:]))


def old_records(header: BatchHeader, batch: memoryview) -> list[Record]:
    """The message of an old format, or those in it, after its checksum was verified. Raises CorruptRecordError."""
    check_crc(header, batch)
    return decode_any(batch, 0, header)


@dataclass(slots=True, eq=False, kw_only=True)
class BatchFilter:
    """The rules above for one cleaning of one log, for one batch after the other. Used by one thread.

    ``round_end`` is the first offset this cleaning must not touch; ``last_records`` is by producer id.
    """

    offsets: KeyMap
    now_ms: int
    delete_retention_ms: int
    round_end: int
    last_records: Mapping[int, LastRecord]
    transactions: CleanedTransactions
    stats: CleaningStats
    # Whether tombstones of old formats go that are in the segment which is being filtered.
    old_tombstones_go: bool = False

    def last_offsets(self) -> array[int]:
        """Last offsets of the last batches of data of the producers that are remembered, ascending."""
        found = (each.last_data_offset for each in self.last_records.values())
        return array("q", sorted(offset for offset in found if offset is not None))

    def filter(self, header: BatchHeader, batch: memoryview) -> KeptBatch | None:
        """The part of a batch that stays; None when all of it is removed. Raises CorruptRecordError."""
        if header.magic != MAGIC:
            return self._filter_old(header, batch)
        stats = self.stats
        stats.records_read += header.record_count
        data = record_bytes(header, batch)
        horizon = self.now_ms + self.delete_retention_ms
        if header.is_control:
            choice = self._choose_control(header, data, horizon)
        elif self.transactions.on_data(header):
            choice = NOTHING
        else:
            choice = self._choose_data(header, data, horizon)
        stats.records_kept += choice.kept
        stats.keyless += choice.keyless
        if choice.kept:
            if choice.kept == header.record_count and not choice.moved:
                return KeptBatch(batch, header.max_timestamp, changed=False)
            return rebuild(header, choice, horizon)
        if not self._must_stay_when_empty(header):
            return None
        if header.size == HEADER_SIZE:
            return KeptBatch(batch, header.max_timestamp, changed=False)
        return empty_batch(header)

    def _filter_old(self, header: BatchHeader, batch: memoryview) -> KeptBatch | None:
        offsets, stats = self.offsets, self.stats
        records = old_records(header, batch)
        kept = []
        for record in records:
            if record.offset <= offsets.latest_offset:
                if record.key is None:
                    stats.keyless += 1
                    continue
                if record.offset < offsets.get(record.key):
                    continue
                if record.value is None and self.old_tombstones_go:
                    continue
            kept.append(record)
        stats.records_read += len(records)
        stats.records_kept += len(kept)
        if len(kept) == len(records):
            return KeptBatch(batch, header.max_timestamp, changed=False)
        if not kept:
            return None
        from ottla_protocol.records.message_set import encode_messages, read_message

        append_time = header.max_timestamp if header.is_log_append_time else None
        data = bytearray(encode_messages(kept, header.magic, codec=header.codec, append_time_ms=append_time))
        return KeptBatch(data, read_message(data).max_timestamp, changed=True)

    def _choose_data(self, header: BatchHeader, data: bytes, horizon: int) -> Choice:
        old = header.delete_horizon_ms
        chosen = self.offsets.filter_body(
            data,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            old is not None and old <= self.now_ms,
            horizon if old is None else -1,
        )
        if chosen is None:
            raise damage(data, header.record_count)
        return Choice(*chosen)

    def _choose_control(self, header: BatchHeader, data: bytes, horizon: int) -> Choice:
        """The marker, if it stays; if it may go, it waits for a horizon first."""
        records = list(walk(data, header.record_count))
        may_go = self.transactions.on_control(header, records[0].key if records else None)
        old = header.delete_horizon_ms
        if may_go and old is not None and old <= self.now_ms:
            return NOTHING
        chosen = choose(records, lambda record: False, data, header.base_timestamp, -1, -1)
        if may_go and old is None and records:
            body = moved_body(data, records, header.base_timestamp - horizon)
            chosen = chosen._replace(moved=True, body=body)
        return chosen

    def _must_stay_when_empty(self, header: BatchHeader) -> bool:
        if header.last_offset + 1 == self.round_end:
            return True
        last = self.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_data_offset


def rebuild(header: BatchHeader, choice: Choice, horizon: int) -> KeptBatch:
    """The batch with only the records of ``choice``, which may count from a new delete ``horizon``.

    Without a new horizon the base timestamp stays, so the records' bytes stay too.
    """
    max_timestamp = header.max_timestamp if header.is_log_append_time else choice.max_timestamp
    changed = header._replace(max_timestamp=max_timestamp, record_count=choice.kept)
    if choice.moved:
        changed = changed._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon)
    payload = choice.body
    if header.codec:
        from ottla_protocol.records.compression import compress

        payload = compress(header.codec, payload)
    return KeptBatch(_encode(changed, payload), max_timestamp, changed=True)


def empty_batch(header: BatchHeader) -> KeptBatch:
    """The batch without its records: only offsets, sequences, producer and epochs remain."""
    attributes = header.attributes & ~(_CODEC_BITS | DELETE_HORIZON)
    changed = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return KeptBatch(_encode(changed, b""), header.max_timestamp, changed=True)


def _encode(header: BatchHeader, payload: bytes) -> bytearray:
    size = HEADER_SIZE + len(payload)
    batch = bytearray(size)
    write_header(batch, 0, header._replace(batch_length=size - LOG_OVERHEAD))
    batch[HEADER_SIZE:] = payload
    write_crc(batch, 0, size)
    return batch
