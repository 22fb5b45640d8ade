"""The index of aborted transactions of a segment.

``<base>.txnindex`` has an entry of 34 bytes, big endian, for each abort marker in the segment, in the markers' order
(Kafka's TransactionIndex)::

    version:            int16   0
    producer_id:        int64
    first_offset:       int64   of the transaction's first batch
    last_offset:        int64   of the marker
    last_stable_offset: int64   below it no transaction was open after the marker
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.log import names
from ottla_broker.log.files import CorruptFileError

if TYPE_CHECKING:
    from ottla_broker.log.files import Files
    from ottla_broker.log.producer_state import EndedTransaction, ProducerStates
    from ottla_broker.log.segment import LogSegment

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
ENTRY_SIZE: Final = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """An entry of the index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(aborted: Iterable[AbortedTransaction]) -> bytes:
    """The bytes of the file."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in aborted)


def decode(data: bytes) -> list[AbortedTransaction]:
    """The entries of a file. Raises CorruptFileError."""
    if len(data) % ENTRY_SIZE:
        raise CorruptFileError(f"{len(data)} bytes are not a whole number of entries of {ENTRY_SIZE}")
    entries: list[AbortedTransaction] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptFileError(f"entry {len(entries)} has version {version}, expected {_VERSION}")
        entries.append(AbortedTransaction(*fields))
    return entries


def read(files: Files, path: str) -> list[AbortedTransaction]:
    """The entries of the file at ``path``; none without a file. Raises CorruptFileError, OSError."""
    try:
        data = files.read_all(path)
    except FileNotFoundError:
        return []
    return decode(data)


def add_ended(segment: LogSegment, ended: EndedTransaction, producers: ProducerStates) -> None:
    """Add a transaction that a marker in the segment ended; a committed one needs no entry. Raises OSError."""
    if not ended.aborted:
        return
    unstable = producers.first_unstable_offset
    stable = ended.marker_offset + 1 if unstable is None else unstable
    entry = AbortedTransaction(ended.producer_id, ended.first_offset, ended.marker_offset, stable)
    index = segment.files.file(segment.path(names.TXN_INDEX))
    index.create()
    index.write(encode((entry,)), index.size())
    index.close()


def truncate_to(segment: LogSegment, offset: int) -> None:
    """Remove the entries of markers at or after ``offset``. Raises OSError, CorruptFileError."""
    path = segment.path(names.TXN_INDEX)
    entries = read(segment.files, path)
    kept = [entry for entry in entries if entry.last_offset < offset]
    if len(kept) < len(entries):
        index = segment.files.file(path)
        index.truncate(len(kept) * ENTRY_SIZE)
        index.close()
