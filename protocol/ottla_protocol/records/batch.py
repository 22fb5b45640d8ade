"""Reads, checks and changes the header of a version 2 record batch in place, without its records.

A broker does no more with a batch on its way to the log and back. So this is written for speed: one ``unpack_from``
per header, and no object but the tuple. ``record`` has the records. Source: Kafka's ``DefaultRecordBatch`` (KIP-98
for the format, KIP-534 for the delete horizon).
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple

from ottla_protocol.errors import ProtocolError
from ottla_protocol.records.crc import crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer

# A batch, all numbers big-endian. The CRC-32C covers everything behind it: from `attributes` to the end.
#
#   at  size  field
#    0     8  base_offset             int64   offset of the batch's first record; the leader assigns it
#    8     4  batch_length            int32   bytes after this field, so the whole batch is this + 12
#   12     4  partition_leader_epoch  int32   the leader assigns it
#   16     1  magic                   int8    2
#   17     4  crc                     uint32  CRC-32C of bytes 21 .. end
#   21     2  attributes              int16   bits 0-2 codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd),
#                                             3 log append time, 4 transactional, 5 control,
#                                             6 base_timestamp is a delete horizon
#   23     4  last_offset_delta       int32   last_offset - base_offset; survives compaction
#   27     8  base_timestamp          int64   ms; what the records' timestamp deltas count from
#   35     8  max_timestamp           int64   ms; the append time if bit 3 is set
#   43     8  producer_id             int64   -1: not idempotent
#   51     2  producer_epoch          int16
#   53     4  base_sequence           int32   sequence of the first record; the last is + last_offset_delta
#   57     4  record_count            int32   less than last_offset_delta + 1 once compacted; 0 is allowed
#   61     .  records                         compressed as one, from here to the end, if the codec is not 0
#
# base_offset and partition_leader_epoch stand before the CRC so that a leader can assign them without a new CRC.
MAGIC = 2
LOG_OVERHEAD = 12
HEADER_SIZE = 61

_HEADER = Struct(">qiibIhiqqqhii")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_UINT32 = Struct(">I")
_ATTRIBUTES = Struct(">h")

_EPOCH_AT = 12
MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
FLAGS_AT = 22
"""The position of the low byte of the attributes, which has the codec and the flags."""
_MAX_TIMESTAMP_AT = 35
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1


class CorruptRecordError(ProtocolError):
    """A record batch breaks the format, or its checksum is wrong."""


class UnsupportedMagicError(CorruptRecordError):
    """Records are in an older format; ``magic`` is 0 or 1."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record format (magic) {magic} is not supported, only {MAGIC}")
        self.magic = magic


class BatchHeader(NamedTuple):
    """The 61 bytes before the records. Timestamps are in milliseconds since the epoch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return self[1] + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record as written, even if compaction removed it."""
        return self[0] + self[6]

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record. After 2**31 - 1, sequences start again at 0."""
        base_sequence = self[11]
        if base_sequence < 0:
            return NO_SEQUENCE
        return (base_sequence + self[6]) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are not assigned."""
        return self[5] & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's timestamp is ``max_timestamp``, the time of the append."""
        return self[5] & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self[5] & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are markers, not data."""
        return self[5] & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` is the time from which the batch's tombstones may be removed (KIP-534)."""
        return self[5] & DELETE_HORIZON != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        return self[7] if self[5] & DELETE_HORIZON else None


_unpack_header = _HEADER.unpack_from
_new_tuple = tuple.__new__


def read_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at ``position``.

    This checks only the framing: ``crc_is_valid`` checks that the batch is complete and its checksum is right, and
    the log checks what a client may write.

    Raises UnsupportedMagicError for another format, CorruptRecordError for fewer than 61 bytes or an impossible
    length.
    """
    try:
        header = _new_tuple(BatchHeader, _unpack_header(buf, position))
    except StructError:
        raise _short_header(buf, position) from None
    if header[3] != MAGIC:
        raise UnsupportedMagicError(header[3])
    if header[1] < _MIN_LENGTH:
        raise CorruptRecordError(
            f"record batch at byte {position} has a length of {header[1]}, the least is {_MIN_LENGTH}"
        )
    return header


def _short_header(buf: Buffer, position: int) -> CorruptRecordError:
    """Explain why fewer than 61 bytes are here: a message in an older, shorter format, or a torn batch."""
    view = memoryview(buf)
    magic = _magic_at(view, position)
    if magic is not None and magic != MAGIC:
        return UnsupportedMagicError(magic)
    there = max(0, view.nbytes - position)
    return CorruptRecordError(
        f"record batch at byte {position} is cut off in its header ({there} of {HEADER_SIZE} bytes)"
    )


def _magic_at(view: memoryview, position: int) -> int | None:
    """Return the magic byte of the batch or message at ``position``, or None if the bytes end before it."""
    at = position + MAGIC_AT
    if not 0 <= at < view.nbytes:
        return None
    magic = view[at]
    return magic - 256 if magic > 127 else magic


def crc_is_valid(buf: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch is complete and matches its CRC-32C."""
    end = position + header[1] + LOG_OVERHEAD
    view = memoryview(buf)
    return view.nbytes >= end and crc32c(view[position + _ATTRIBUTES_AT : end]) == header[4]


def assign_offset(buf: Buffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the offset and leader epoch that the leader assigns; both lie outside the CRC."""
    _INT64.pack_into(buf, position, base_offset)
    _INT32.pack_into(buf, position + _EPOCH_AT, leader_epoch)


def set_log_append_time(buf: Buffer, position: int, header: BatchHeader, timestamp_ms: int) -> BatchHeader:
    """Give every record of the batch the timestamp ``timestamp_ms``, in place, with a new CRC.

    Returns the new header. The records' own timestamps stay in the batch, but readers ignore them.
    """
    return _set_timestamp(buf, position, header, header[5] | LOG_APPEND_TIME, timestamp_ms)


def set_max_timestamp(buf: Buffer, position: int, header: BatchHeader, timestamp_ms: int) -> BatchHeader:
    """Correct the greatest timestamp of a batch with create times, in place, with a new CRC.

    Returns the new header.
    """
    return _set_timestamp(buf, position, header, header[5] & ~LOG_APPEND_TIME, timestamp_ms)


def _set_timestamp(
    buf: Buffer, position: int, header: BatchHeader, attributes: int, timestamp_ms: int
) -> BatchHeader:
    if header[5] == attributes and header[8] == timestamp_ms:
        return header
    _ATTRIBUTES.pack_into(buf, position + _ATTRIBUTES_AT, attributes)
    _INT64.pack_into(buf, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    crc = write_crc(buf, position, header[1] + LOG_OVERHEAD)
    # The offset and epoch may have changed since the header was read; keep the ones in the buffer.
    return header._replace(attributes=attributes, max_timestamp=timestamp_ms, crc=crc)


def write_crc(buf: Buffer, position: int, size: int) -> int:
    """Compute the CRC of the batch of ``size`` bytes at ``position``, write it there and return it."""
    crc = crc32c(memoryview(buf)[position + _ATTRIBUTES_AT : position + size])
    _UINT32.pack_into(buf, position + _CRC_AT, crc)
    return crc


def write_header(buf: Buffer, position: int, header: BatchHeader) -> None:
    """Write all 61 bytes of ``header``. Raises struct.error for a number that its field cannot hold."""
    _HEADER.pack_into(buf, position, *header)
