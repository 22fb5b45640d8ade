"""Control records: markers in the log that never reach an application.

A control batch has the control bit and a single record. One ends each transaction: a consumer that reads only
committed data learns from it which earlier records to drop. Source: Kafka's ``ControlRecordType`` and
``EndTransactionMarker`` (KIP-98).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla_protocol.primitives import Buffer
from ottla_protocol.records.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    write_crc,
    write_header,
)
from ottla_protocol.records.record import Record

# The key:    version int16 (0), type int16.
# The value of an end-of-transaction marker: version int16 (0), coordinator_epoch int32.
# Later versions only add fields, so the known part of a longer one is read.
_KEY = Struct(">hh")
_END_OF_TRANSACTION = Struct(">hi")
# The body of a marker, one record of fixed size. Lengths are zigzag: 32, 8 and 12 stand for 16, 4 and 6 bytes.
#
#   length 16, attributes 0, timestamp delta 0, offset delta 0, key's length 4, key, value's length 6, value, no headers
_MARKER = Struct(">BBBBBhhBhiB")
_KEY_SIZE, _VALUE_SIZE = 8, 12
_RECORD_SIZE = 32
_CONSTANTS = (_RECORD_SIZE, 0, 0, 0, _KEY_SIZE, 0, _VALUE_SIZE, 0, 0)

ABORT = 0
COMMIT = 1

MARKER_BYTES = 1024
"""The most decompressed bytes of a control batch that a reader accepts; a marker has a few."""


class ControlRecord(NamedTuple):
    """A decoded control record. Skip types other than ABORT and COMMIT.

    ``coordinator_epoch`` is the epoch of the transaction coordinator that ended the transaction; None for other types.
    """

    type: int
    coordinator_epoch: int | None


def control_type(key: bytes | None) -> int:
    """Return the type in a control record's key, which may be unknown.

    Raises CorruptRecordError for a key that is too short or has a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError(
            f"a control record's key needs {_KEY.size} bytes, {len(key or b'')} are there"
        )
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordError(f"a control record's key has the version {version}")
    number: int = kind
    return number


def decode_control(record: Record) -> ControlRecord:
    """Decode a control record. Raises CorruptRecordError for an invalid key or transaction marker."""
    kind = control_type(record.key)
    if kind not in (ABORT, COMMIT):
        return ControlRecord(kind, None)
    value = record.value
    if value is None or len(value) < _END_OF_TRANSACTION.size:
        raise CorruptRecordError(
            f"a transaction marker needs {_END_OF_TRANSACTION.size} bytes, {len(value or b'')} are there"
        )
    version, coordinator_epoch = _END_OF_TRANSACTION.unpack_from(value)
    if version < 0:
        raise CorruptRecordError(f"an end-of-transaction marker has the version {version}")
    return ControlRecord(kind, coordinator_epoch)


def decode_transaction_marker(header: BatchHeader, batch: Buffer) -> ControlRecord | None:
    """Decode a marker that is exactly as :func:`encode_transaction_marker` makes it; None for any other control batch.

    Almost all markers are, and the general way, through the decoder of records, takes several times as long.
    """
    if (
        len(batch) != HEADER_SIZE + _MARKER.size
        or header.record_count != 1
        or header.attributes != TRANSACTIONAL | CONTROL
    ):
        return None
    size, attributes, time, offset, key, key_version, kind, value, version, epoch, headers = (
        _MARKER.unpack_from(batch, HEADER_SIZE)
    )
    constants = (size, attributes, time, offset, key, key_version, value, version, headers)
    if constants != _CONSTANTS or kind not in (ABORT, COMMIT):
        return None
    return ControlRecord(kind, epoch)


def encode_transaction_marker(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Encode the control batch that commits or aborts a producer's transaction on one partition."""
    batch = bytearray(HEADER_SIZE + _MARKER.size)
    kind = COMMIT if commit else ABORT
    _MARKER.pack_into(
        batch, HEADER_SIZE, _RECORD_SIZE, 0, 0, 0, _KEY_SIZE, 0, kind, _VALUE_SIZE, 0, coordinator_epoch, 0
    )
    header = BatchHeader(
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        TRANSACTIONAL | CONTROL,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
    write_header(batch, 0, header)
    write_crc(batch, 0, len(batch))
    return batch
