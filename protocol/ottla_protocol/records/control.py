"""Control records: markers in the log that never reach an application.

A control batch has the control bit and a single record. One ends each transaction: a consumer that reads only
committed data learns from it which earlier records to drop. Source: Kafka's ``ControlRecordType`` and
``EndTransactionMarker`` (KIP-98).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla_protocol.records.batch import NO_LEADER_EPOCH, CorruptRecordError
from ottla_protocol.records.record import Record, encode_batch

# The key:    version int16 (0), type int16.
# The value of an end-of-transaction marker: version int16 (0), coordinator_epoch int32.
# Later versions only add fields, so the known part of a longer one is read.
_KEY = Struct(">hh")
_END_OF_TRANSACTION = Struct(">hi")

ABORT = 0
COMMIT = 1


class ControlRecord(NamedTuple):
    """A decoded control record. Skip types other than ABORT and COMMIT.

    ``coordinator_epoch`` is the epoch of the transaction coordinator that ended the transaction; None for other types.
    """

    type: int
    coordinator_epoch: int | None

    @property
    def ends_transaction(self) -> bool:
        return self[0] in (ABORT, COMMIT)


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
    return encode_batch(
        [
            (
                timestamp_ms,
                _KEY.pack(0, COMMIT if commit else ABORT),
                _END_OF_TRANSACTION.pack(0, coordinator_epoch),
                (),
            )
        ],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
