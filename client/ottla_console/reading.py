"""A consumer's decoding for the console: batches that would take too much are refused before they are decoded.

A few kilobytes of a compressed batch may be a quarter of a gigabyte, and each two bytes of that a header of a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla_client.consumer import Consumer
from ottla_client.consumer.records import Chunk, RecordReader
from ottla_client.consumer.settings import Decoding
from ottla_client.errors import CorruptBatchError
from ottla_client.types import TopicPartition
from ottla_protocol.lag import records_from
from ottla_protocol.records.batch import MAGIC, BatchHeader, CorruptRecordError
from ottla_protocol.records.columns import RecordColumns
from ottla_protocol.records.compression import DecompressedTooLargeError
from ottla_protocol.records.record import record_data

LIST_BYTES: Final = 16 << 20
RECORD_BYTES: Final = 32 << 20
"""The most decompressed bytes of a batch, for lists and for one record. It keeps others waiting for some 40 ms."""
MOST_HEADERS_OF_BATCH: Final = 200_000
_COUNTED_RECORDS: Final = 2_000
"""Of batches with more, headers aren't counted: that would take longer than it saves."""
_NO_END: Final = 1 << 63
_AT_ONCE_BYTES: Final = 2 * MOST_HEADERS_OF_BATCH
"""The decompressed bytes that are decoded at once. A header has two, so those that aren't counted are bounded, too."""


def bound(consumer: Consumer, most: int) -> BoundedReader:
    """Have a consumer that isn't started refuse batches with more decompressed bytes, by CorruptBatchError."""
    buffer = consumer._engine.buffer
    buffer._reader = reader = BoundedReader(consumer._engine.settings, most)
    return reader


class BoundedReader(RecordReader):
    """``until`` has the offsets at which partitions end for the reader.

    Of the batch that holds such an offset, all records are decoded; none of those behind it.
    """

    def __init__(self, settings: Decoding, most: int) -> None:
        super().__init__(settings)
        self.until: Mapping[TopicPartition, int] = {}
        self._most = most
        self._most_bytes = most
        self._run_bytes = _AT_ONCE_BYTES

    def batches(self, chunk: Chunk, want: int) -> list[tuple[int, BatchHeader]] | None:
        """As of the class above, up to the end. Raises CorruptBatchError."""
        until = self.until.get(chunk.state.partition)
        found = super().batches(chunk, want) if until is None or chunk.offset < until else None
        if found is None or until is None:
            kept = found
        else:
            # An old format's message has the offset of the last one in it.
            kept = [each for each in found if each[1].magic != MAGIC or each[1].base_offset < until]
        if not kept and until is not None:
            chunk.at, chunk.large = chunk.size, None
            chunk.offset = max(chunk.offset, min(until, chunk.end_offset))
        return kept or None

    def records_of(self, chunk: Chunk, header: BatchHeader) -> int:
        """The records of a batch before the end."""
        behind = records_from(header, max(chunk.offset, self.until.get(chunk.state.partition, _NO_END)))
        return super().records_of(chunk, header) - behind

    def columns(self, chunk: Chunk, batches: list[tuple[int, BatchHeader]]) -> RecordColumns:
        """The batches as columns; ``batches`` keeps those that are in them. Raises CorruptBatchError."""
        if chunk.large is not None:
            return super().columns(chunk, batches)  # another piece of a batch
        size = 0
        for index, (at, header) in enumerate(batches):
            try:
                size += self._size(chunk.view, at, header)
            except CorruptRecordError as error:
                if not index:
                    why = str(error)
                    if isinstance(error, DecompressedTooLargeError):
                        why = f"it has more than {self._most >> 20} MiB, which the console doesn't show"
                    following = header.last_offset + 1
                    raise CorruptBatchError(
                        f"{chunk.state.partition}: the record batch for offset {chunk.offset} can't be read: {why}",
                        chunk.state.partition,
                        chunk.offset,
                        following,
                    ) from None
                del batches[index:]
                break
            if size >= _AT_ONCE_BYTES:
                del batches[index + 1 :]
                break
        return super().columns(chunk, batches)

    def _size(self, view: memoryview, at: int, header: BatchHeader) -> int:
        """A batch's decompressed bytes. Raises CorruptRecordError if it has too many of them, or of headers."""
        if header.magic != MAGIC:
            return header.size
        data = record_data(view, at, header, self._most)
        if len(data) > 2 * MOST_HEADERS_OF_BATCH and header.record_count <= _COUNTED_RECORDS:
            headers = _count_headers(data, header.record_count)
            if headers > MOST_HEADERS_OF_BATCH:
                raise CorruptRecordError(f"its records have {headers:,} headers")
        return len(data)


def _count_headers(data: bytes | memoryview, records: int) -> int:
    """How many headers the records of a batch claim. What is malformed is left to the decoder."""
    total, following = 0, 0
    try:
        for _ in range(records):
            length, at = _number(data, following)
            following = at + length
            _, at = _number(data, at + 1)  # behind a byte of attributes, the timestamp
            _, at = _number(data, at)
            for _ in ("key", "value"):
                size, at = _number(data, at)
                at += max(0, size)
            total += max(0, _number(data, at)[0])
    except IndexError:
        pass
    return total


def _number(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A varint of at most ten bytes, and where it ends. Raises IndexError."""
    number = 0
    for shift in range(0, 70, 7):
        octet = data[at]
        at += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            break
    return (number >> 1) ^ -(number & 1), at
