"""Writes messages of the formats 0 and 1 as record batches, so that the decoders have one format to read.

Brokers return segments from before Kafka 0.11 as they are. Offsets, with compaction's gaps, and timestamps stay; format
0 has no timestamps, which become -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_protocol.records.batch import (
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecordError,
)
from ottla_protocol.records.message_set import decode_message_records, message_crc_is_valid, read_message
from ottla_protocol.records.record import Record, rebuild_batch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of batches after which no more messages are read."""
MOST_RECORDS: Final = 4096
_MOST_OFFSETS: Final = 1 << 30
"""Most records in a batch made of single messages, and most offsets that it spans."""


class Rewritten(NamedTuple):
    """Messages as batches, the bytes that the messages took, and why the next one can't be read, if it can't."""

    batches: bytes
    size: int
    problem: str | None


def is_message(data: NDArray[np.uint8], at: int) -> bool:
    """Whether there seems to be a message of an old format at ``at``; it may be cut off or damaged."""
    if at + MAGIC_AT >= len(data) or data[at + MAGIC_AT] >= MAGIC:
        return False
    try:
        read_message(data.data, at)
    except CorruptRecordError:
        return False
    return True


def rewrite(data: NDArray[np.uint8], end: int) -> Rewritten:
    """The messages at the start of ``data``, up to the one that reaches offset ``end``."""
    view = data.data
    batches: list[bytes] = []
    single: list[Record] = []
    kind: tuple[int, int] | None = None
    written = at = 0
    problem = None
    following = -1
    while following < end and written < MOST_BYTES and is_message(data, at):
        header = read_message(view, at)
        if at + header.size > len(data):
            break
        if not message_crc_is_valid(view, at, header):
            problem = "its checksum is wrong"
            break
        try:
            records = decode_message_records(view, at, header)
        except CorruptRecordError as error:
            problem = str(error)
            break
        if records[0].offset < following:
            problem = f"a message has the offset {records[0].offset} where none below {following} can be"
            break
        stamp = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        alike = kind == (header.attributes, stamp) and not header.codec
        if single and not (alike and _fits(single, records[0])):
            batches.append(_batch(single, kind))
            single = []
        kind = (header.attributes, stamp)
        single += records
        following = header.last_offset + 1
        written += header.size
        at += header.size
    if single:
        batches.append(_batch(single, kind))
    return Rewritten(b"".join(batches), at, problem)


def _fits(records: list[Record], record: Record) -> bool:
    return len(records) < MOST_RECORDS and 0 < record.offset - records[0].offset < _MOST_OFFSETS


def _batch(records: list[Record], kind: tuple[int, int] | None) -> bytes:
    """``kind``: the messages' attributes, and the time of their append or -1."""
    assert kind is not None
    first, last = records[0].offset, records[-1].offset
    header = BatchHeader(
        base_offset=first,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=kind[0] & LOG_APPEND_TIME,
        last_offset_delta=last - first,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=kind[1],
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=len(records),
    )
    return bytes(rebuild_batch(header, records))
