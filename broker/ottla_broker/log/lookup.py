"""Offsets by time: which record is the first at or behind a time, and which is the newest (ListOffsets)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import BatchHeader, CorruptRecordError

if TYPE_CHECKING:
    from .reading import ReadableLog
    from .segment import LogSegment


def offset_for_timestamp(log: ReadableLog, timestamp_ms: int) -> tuple[int, int, int] | None:
    """``(offset, timestamp, leader epoch)`` of the first record with at least that timestamp; None without
    one.

    Whole segments are passed over by their largest timestamp, the time index leads close to the batch, and
    only the batch that has it is decoded. Raises KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
    """
    start = log.log_start_offset
    try:
        for segment in log.segments:
            if not segment.size or segment.largest_timestamp() < timestamp_ms:
                continue
            pair = segment.time_index.floor(timestamp_ms)
            offset = segment.base_offset if pair is None else segment.base_offset + pair[1]
            for _, header, batch in segment.batches(segment.position_below(max(offset, start))):
                if header.max_timestamp >= timestamp_ms and header.last_offset >= start:
                    found = _first_in_batch(header, batch, timestamp_ms, start)
                    if found is not None:
                        return found
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.name}: {error}") from error
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name}: {error}") from error
    return None


def max_timestamp_offset(log: ReadableLog) -> tuple[int, int, int] | None:
    """``(offset, timestamp, leader epoch)`` of the first record with the largest timestamp; None without one.

    Records below the log start offset do not count. Raises KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
    """
    start = log.log_start_offset
    try:
        newest, largest, last_offset = None, -1, -1
        for segment in log.segments:
            timestamp, offset = segment.max_timestamp
            if offset < start:
                timestamp, offset = _max_from(segment, start)
            if timestamp > largest:
                newest, largest, last_offset = segment, timestamp, offset
        if newest is None:
            return None
        for _, header, batch in newest.batches(newest.position_below(last_offset)):
            if header.max_timestamp == largest and header.last_offset >= start:
                return _newest_in_batch(header, batch, start)
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.name}: {error}") from error
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name}: {error}") from error
    return None


def _max_from(segment: LogSegment, start: int) -> tuple[int, int]:
    """Largest timestamp and its batch's last offset, of the batches that reach ``start``; -1 without one."""
    found = (-1, -1)
    for _, header, _ in segment.batches(segment.position_below(start)):
        if header.last_offset >= start and header.max_timestamp > found[0]:
            found = header.max_timestamp, header.last_offset
    return found


def _newest_in_batch(header: BatchHeader, batch: memoryview, start: int) -> tuple[int, int, int] | None:
    from ottla_protocol.records.record import decode_records

    records = [record for record in decode_records(batch, 0, header) if record.offset >= start]
    if not records:
        return None
    newest = max(records, key=lambda record: record.timestamp)
    return newest.offset, newest.timestamp, header.partition_leader_epoch


def _first_in_batch(
    header: BatchHeader, batch: memoryview, timestamp_ms: int, start: int
) -> tuple[int, int, int] | None:
    from ottla_protocol.records.record import decode_records

    for record in decode_records(batch, 0, header):
        if record.timestamp >= timestamp_ms and record.offset >= start:
            return record.offset, record.timestamp, header.partition_leader_epoch
    return None
