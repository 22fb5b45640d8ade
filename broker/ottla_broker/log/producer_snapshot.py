"""The snapshot files that keep what a partition knows of its producers.

``<offset>.snapshot`` holds the state before the batch at ``offset``, big endian (Kafka's
ProducerStateManager)::

    version:  int16   1
    crc:      uint32  CRC-32C of everything after it
    count:    int32
    count times, 46 bytes each:
      producer_id:              int64
      producer_epoch:           int16
      last_sequence:            int32   -1 when no batch is remembered
      last_offset:              int64   of the last batch; -1 likewise
      offset_delta:             int32   last minus first offset of the last batch
      timestamp:                int64   largest of the last batch, or of the last marker
      coordinator_epoch:        int32   of the last transaction marker; -1 when there was none
      current_txn_first_offset: int64   -1 outside a transaction
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ottla_broker.log.files import CorruptFileError
from ottla_protocol.records.crc import crc32c

_HEADER: Final = Struct(">hIi")
_ENTRY: Final = Struct(">qhiqiqiq")
_VERSION: Final = 1
_CRC_END: Final = 6
SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Sequence numbers begin again after this one."""
NO_EPOCH: Final = -1


class SentBatch(NamedTuple):
    """A batch as its producer numbered it and as it was stored."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int
    aborted: bool | None = False
    """Whether it belongs to the last transaction, which was aborted; None if only the index of those knows."""


@dataclass(slots=True, eq=False)
class ProducerEntry:
    """One producer: its epoch, its last batches (oldest first), and its open transaction, if any."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    txn_first_offset: int = -1
    batches: list[SentBatch] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 when no batch is remembered."""
        return self.batches[-1].last_sequence if self.batches else -1

    def pack(self) -> bytes:
        last = self.batches[-1] if self.batches else None
        return _ENTRY.pack(
            self.producer_id,
            self.epoch,
            last.last_sequence if last else -1,
            last.last_offset if last else -1,
            last.last_offset - last.first_offset if last else 0,
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


def encode_snapshot(entries: list[ProducerEntry]) -> bytes:
    body = len(entries).to_bytes(4, "big") + b"".join(entry.pack() for entry in entries)
    return _HEADER.pack(_VERSION, crc32c(body), len(entries))[:_CRC_END] + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The producers of a snapshot file. Raises CorruptFileError."""
    try:
        version, crc, count = _HEADER.unpack_from(data)
        if version != _VERSION:
            raise CorruptFileError(f"version {version}, expected {_VERSION}")
        if crc != crc32c(data[_CRC_END:]):
            raise CorruptFileError("the checksum does not match")
        if count < 0 or _HEADER.size + count * _ENTRY.size > len(data):
            raise CorruptFileError(f"{count} entries in {len(data)} bytes")
    except StructError:
        raise CorruptFileError(f"only {len(data)} bytes") from None
    entries = []
    for slot in range(count):
        fields = _ENTRY.unpack_from(data, _HEADER.size + slot * _ENTRY.size)
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        entry = ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset)
        if offset >= 0:
            first = (sequence - delta) & SEQUENCE_MASK
            entry.batches.append(SentBatch(first, sequence, offset - delta, offset, timestamp, None))
        entries.append(entry)
    return entries
