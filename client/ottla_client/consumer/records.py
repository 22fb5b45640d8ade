"""From fetched bytes to records, batch by batch and only on demand.

A ``Chunk`` is one partition's part of a fetch. ``RecordReader.read`` decodes its next run into columns, from which
records are made when they are handed out. Source: Java's ``CompletedFetch``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla_protocol.lag import records_from
from ottla_protocol.records.aborted import AbortedRecords
from ottla_protocol.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    read_header,
)
from ottla_protocol.records.columns import RecordColumns, decode_pieces
from ottla_protocol.records.formats import decode_any, is_intact, read_any_header
from ottla_protocol.records.record import record_data

from ..errors import CorruptBatchError, DeserializationError
from ..requests.large_batch import MAX_HEADERS, MOST_AT_ONCE, PIECE_BYTES, LargeBatch, check_last_offset
from ..types import TimestampType
from .acquired import Acquired
from .rows import NO_ROWS, Rows
from .settings import Decoding, Deserializer

if TYPE_CHECKING:
    from ottla_protocol.messages.fetch import AbortedTransaction

    from ..arrow import Part
    from .positions import PartitionState

RUN_BYTES = PIECE_BYTES
"""The most decompressed bytes of the batches that are decoded together. A batch that has more is decoded in pieces."""
OLD_BATCH_BYTES = 64 * 1024 * 1024
"""The most decompressed bytes of a message of an old format, whose inner messages all become objects at once."""
SEARCH_BYTES = 16 * 1024 * 1024
"""The decompressed bytes of the batches that ``part`` searches at once; the last one may have more."""
_MOST_BATCHES = 2048
"""So many batches are looked at together: the headers of those that aren't decoded then are read again."""

_offset_and_length = Struct(">qi").unpack_from
_LAST_OFFSET_DELTA_AT = 23
_APART = CONTROL | LOG_APPEND_TIME | TRANSACTIONAL


class Chunk:
    """Whole batches of one partition, and how far they are handed out.

    ``rows`` is the decoded run; its first ``index`` rows are handed out. ``offset`` is where the next run begins. Of a
    share group's chunk, only the ``acquired`` records are decoded into rows.
    """

    __slots__ = (
        "aborted",
        "acquired",
        "at",
        "end_offset",
        "epoch",
        "index",
        "large",
        "offset",
        "rows",
        "run_at",
        "run_end",
        "size",
        "state",
        "version",
        "view",
    )

    def __init__(
        self,
        state: PartitionState,
        view: memoryview,
        offset: int,
        aborted: Sequence[AbortedTransaction] | None = None,
        acquired: Acquired | None = None,
    ) -> None:
        self.state = state
        self.version = state.version
        self.view = view
        self.at = 0
        self.offset = offset
        self.size, self.end_offset, self.epoch = _whole_batches(view, offset)
        self.aborted = AbortedRecords((each.first_offset, each.producer_id) for each in aborted or ())
        self.acquired = acquired
        self.large: LargeBatch | None = None
        """The batch at ``at`` or before it, if it is decoded in pieces."""
        self.rows = NO_ROWS
        self.index = 0
        self.run_at = 0
        """The byte position of the run's first batch."""
        self.run_end = offset

    @property
    def position(self) -> int:
        """The offset of the next record to hand out."""
        return self.offset_at(self.index)

    @property
    def exhausted(self) -> bool:
        return self.at >= self.size and self.index == self.rows.count

    def offset_at(self, index: int) -> int:
        """The offset of row ``index``; after the last row, the end of the run."""
        return self.rows.offsets[index] if index < self.rows.count else self.run_end

    def run(self, rows: Rows, end: int) -> None:
        """Hand out these rows next; the run after them begins at ``end``."""
        self.rows = rows
        self.index = 0
        self.run_end = self.offset = end

    def take(self, count: int) -> Rows:
        """The next rows of the run, ``count`` at most."""
        start = self.index
        self.index = min(start + count, self.rows.count)
        taken = self.rows.cut(start, self.index)
        if self.index == self.rows.count:
            self.run(NO_ROWS, self.run_end)
        return taken

    def rewind(self) -> None:
        """Drop decoded rows that are not handed out; their batches are read again."""
        if self.index < self.rows.count:
            position = self.position
            self.state.buffered += self.at - self.run_at
            self.at = self.run_at
            self.run(NO_ROWS, position)

    def skip_to(self, offset: int) -> None:
        """Hand out nothing before ``offset``."""
        self.index = bisect_left(self.rows.offsets, offset, lo=self.index)
        self.offset = max(self.offset, offset)
        self.run_end = max(self.run_end, offset)
        if self.large is not None and offset > self.large.header.last_offset:
            self.large = None  # whether the rest of it can be read doesn't matter


def _whole_batches(view: memoryview, offset: int) -> tuple[int, int, int | None]:
    """Bytes of the whole batches in ``view``, the offset after them and the last batch's leader epoch.

    The last batch may be cut off. Nothing is checked here: if the framing is invalid, the rest counts as one batch,
    and reading it raises.
    """
    end = view.nbytes
    at = 0
    last = -1
    while end - at > LOG_OVERHEAD:
        _, length = _offset_and_length(view, at)
        following = at + length + LOG_OVERHEAD
        if length <= 0:
            return end, offset, None
        if following > end:
            break
        last = at
        at = following
    if last < 0:
        return 0, offset, None
    base, length = _offset_and_length(view, last)
    if length < _LAST_OFFSET_DELTA_AT or view[last + MAGIC_AT] < 2:
        return at, base + 1, None
    try:
        header = read_header(view, last)
    except CorruptRecordError:
        return at, offset, None
    return at, header.last_offset + 1, header.partition_leader_epoch


class RecordReader:
    """Decodes chunks with a consumer's settings."""

    def __init__(self, settings: Decoding) -> None:
        self._key = settings.key_deserializer
        self._value = settings.value_deserializer
        self._check_crcs = settings.check_crcs
        self._read_committed = settings.read_committed
        self._most_bytes: int | None = None
        """The most decompressed bytes of a batch; None is the format's limit of 256 MiB."""
        self._run_bytes = RUN_BYTES
        self.left_out = 0
        """Records that ``part`` has passed over."""
        self.searched = 0
        """Decompressed bytes in which ``part`` has looked for others."""

    def read(self, chunk: Chunk, want: int) -> bool:
        """Decode the next run of about ``want`` records; False if no records are left.

        Raises CorruptBatchError, DeserializationError after all records before the bad one were handed out.
        """
        while (batches := self.batches(chunk, want)) is not None:
            at = batches[0][0]
            rows = self._rows(chunk, batches)
            if rows.count:
                chunk.run_at = at
                chunk.run(rows, chunk.offset)
                return True
        chunk.run(NO_ROWS, chunk.offset)
        return False

    def part(self, chunk: Chunk, count: int, having: bytes | None = None) -> Part | None:
        """The next records, ``count`` at most, as decoded batches; None if none are left.

        Batches in which the bytes ``having`` don't occur are left out without decoding their records. None of those
        that were searched at once may have them: then it is None although the chunk has more.

        Raises CorruptBatchError.
        """
        from ..arrow import Part

        topic, partition = chunk.state.partition
        while (batches := self.batches(chunk, count)) is not None:
            # A batch whose next piece it is has been searched before.
            searched = having is None or chunk.large is not None
            kept = batches if having is None or searched else self._having(chunk, batches, having)
            if not kept:
                break
            columns = self.columns(chunk, kept)
            if not searched:
                self._count_left_out(chunk, batches, kept)
            offsets: Any = columns.offsets if columns.spans is None else columns.spans.offsets
            start = bisect_left(offsets, chunk.offset)
            stop = min(columns.count, start + count)
            if stop < columns.count:
                following = int(offsets[stop])
                chunk.at = next(at for at, header in kept if header.last_offset >= following)
                chunk.offset = following
            else:
                self._go_on(chunk, kept)
            chunk.run(NO_ROWS, chunk.offset)
            if start < stop:
                return Part(topic, partition, columns, start, stop)
        chunk.run(NO_ROWS, chunk.offset)
        return None

    def _having(
        self, chunk: Chunk, batches: list[tuple[int, BatchHeader]], having: bytes
    ) -> list[tuple[int, BatchHeader]]:
        """Those of the batches that have these bytes. Without any, the chunk is moved past all.

        ``batches`` keeps those that were searched.
        """
        kept: list[tuple[int, BatchHeader]] = []
        size = kept_size = 0
        for index, (at, header) in enumerate(batches):
            found, searched = _has(chunk.view, at, header, having, self._most_bytes)
            size += searched
            if found:
                kept.append((at, header))
                kept_size += searched
            if size >= SEARCH_BYTES or kept_size > self._run_bytes:
                del batches[index + 1 :]
                break
        self.searched += size
        if not kept:
            at, header = batches[-1]
            self._count_left_out(chunk, batches, kept)
            chunk.at = at + header.size
            chunk.offset = max(chunk.offset, header.last_offset + 1)
        return kept

    def _count_left_out(
        self,
        chunk: Chunk,
        batches: list[tuple[int, BatchHeader]],
        kept: list[tuple[int, BatchHeader]],
    ) -> None:
        """Count the records of batches that were left out before the last one that is kept, or of all without any."""
        # Those behind it are looked at again in the next turn.
        at, _ = (kept or batches)[-1]
        self.left_out += sum(self.records_of(chunk, each) for place, each in batches if place <= at)
        self.left_out -= sum(self.records_of(chunk, each) for _, each in kept)

    def records_of(self, chunk: Chunk, header: BatchHeader) -> int:
        """The records of a batch that are wanted: those from the chunk's offset on."""
        return records_from(header, chunk.offset)

    def batches(self, chunk: Chunk, want: int) -> list[tuple[int, BatchHeader]] | None:
        """Batches to decode at once, with ``want`` records if there are as many; None if none are left.

        Skips batches without records for the application. A transactional batch comes alone, because only its turn
        shows whether it is dropped; so does a compressed message of an old format, which doesn't say how many are in
        it. Raises CorruptBatchError.
        """
        while chunk.at < chunk.size:
            large = chunk.large
            if large is not None:
                if large.at == chunk.at and large.go_to(chunk.offset):
                    return [(large.at, large.header)]
                chunk.large = None
            first = self.header(chunk)
            if first is None:
                continue
            batches = [(chunk.at, first)]
            count = first.record_count
            at = chunk.at + first.size
            alike = first.attributes & _APART
            read = read_header if first.magic == MAGIC else read_any_header
            most = 1 if alike & (TRANSACTIONAL | CONTROL) else _MOST_BATCHES
            while 0 < count < want and at < chunk.size and len(batches) < most:
                try:
                    header = read(chunk.view, at)
                except CorruptRecordError:
                    break  # raised when its turn comes
                if header.attributes & _APART != alike or header.record_count <= 0:
                    break
                if header.magic != first.magic:
                    break
                if self._check_crcs and not is_intact(chunk.view, at, header):
                    break
                batches.append((at, header))
                count += header.record_count
                at += header.size
            return batches
        return None

    def columns(self, chunk: Chunk, batches: list[tuple[int, BatchHeader]]) -> RecordColumns:
        """The batches as columns; ``batches`` keeps those that are in them.

        That is only the first if another one can't be decoded, or those that have ``_run_bytes``. Of a large batch the
        columns have a piece. Raises CorruptBatchError if the first one can't be decoded.
        """
        try:
            if len(batches) > 1:
                return _columns(chunk, batches, self._run_bytes)
        except CorruptRecordError:
            del batches[1:]
        try:
            return _columns(chunk, batches, self._run_bytes)
        except CorruptRecordError as error:
            raise _corrupt(chunk, batches[0][1], str(error)) from error

    @staticmethod
    def _go_on(chunk: Chunk, batches: list[tuple[int, BatchHeader]]) -> None:
        """Move the chunk past the columns of these batches."""
        large = chunk.large
        if large is not None and not large.done:
            chunk.at = large.at
            chunk.offset = max(chunk.offset, large.offset)
            return
        at, header = batches[-1]
        chunk.at = at + header.size
        chunk.offset = max(chunk.offset, header.last_offset + 1)

    def header(self, chunk: Chunk) -> BatchHeader | None:
        """The header of the next batch; None if it has no records for the application and was skipped.

        Raises CorruptBatchError.
        """
        view, at = chunk.view, chunk.at
        try:
            header = read_any_header(view, at)
        except CorruptRecordError as error:
            raise _corrupt(chunk, None, str(error)) from error
        end = header.last_offset + 1
        wanted = end > chunk.offset
        if wanted and self._check_crcs and not is_intact(view, at, header):
            raise _corrupt(chunk, header, "its checksum is wrong")
        if self._read_committed and header.producer_id >= 0 and self._is_aborted(chunk, header):
            wanted = False
        if wanted and header.record_count and not header.attributes & CONTROL:
            return header
        chunk.at = at + header.size
        chunk.offset = max(chunk.offset, end)
        return None

    @staticmethod
    def _is_aborted(chunk: Chunk, header: BatchHeader) -> bool:
        try:
            return chunk.aborted.has(chunk.view, chunk.at, header)
        except CorruptRecordError as error:
            raise _corrupt(chunk, header, str(error)) from error

    def _rows(self, chunk: Chunk, batches: list[tuple[int, BatchHeader]]) -> Rows:
        """The records of batches from the chunk's offset on; moves the chunk past them, or to a bad record."""
        columns = self.columns(chunk, batches)
        offsets: Sequence[int] = columns.offsets
        timestamps: Sequence[int] = columns.timestamps
        raw_keys: Sequence[bytes | None] = columns.keys
        raw_values: Sequence[bytes | None] = columns.values
        headers: Sequence[Any] = columns.headers
        if offsets and offsets[0] < chunk.offset:
            first = bisect_left(offsets, chunk.offset)
            offsets, timestamps, headers = offsets[first:], timestamps[first:], headers[first:]
            raw_keys, raw_values = raw_keys[first:], raw_values[first:]
        deliveries: list[int] | None = None
        if chunk.acquired is not None:
            places, deliveries = chunk.acquired.among(offsets)
            if len(places) < len(offsets):
                offsets, timestamps, headers = (
                    [column[place] for place in places] for column in (offsets, timestamps, headers)
                )
                raw_keys, raw_values = (
                    [column[place] for place in places] for column in (raw_keys, raw_values)
                )
        keys: Sequence[Any] = raw_keys
        values: Sequence[Any] = raw_values
        failed = False
        try:
            if self._key is not None:
                keys = deserialized(self._key, raw_keys)
            if self._value is not None:
                values = deserialized(self._value, raw_values)
        except Exception:
            # Raised again for the record that it is about, once that is the first.
            keys, values = self._good_ones(chunk, offsets, raw_keys, raw_values)
            failed = len(keys) < len(offsets)
        topic, partition = chunk.state.partition
        kind = TimestampType.of(batches[-1][1])
        rows = Rows(topic, partition, offsets, timestamps, keys, values, headers, kind, deliveries)
        if failed:
            rows = rows.cut(0, len(keys))
            bad = offsets[len(keys)]
            chunk.at = next(at for at, header in batches if header.last_offset >= bad)
            chunk.offset = bad
        else:
            self._go_on(chunk, batches)
        return rows

    def _good_ones(
        self,
        chunk: Chunk,
        offsets: Sequence[int],
        raw_keys: Sequence[bytes | None],
        raw_values: Sequence[bytes | None],
    ) -> tuple[list[Any], list[Any]]:
        """Keys and values of the records before the one that a deserializer fails on.

        Raises DeserializationError if that is the first.
        """
        keys: list[Any] = []
        values: list[Any] = []
        for offset, raw_key, raw_value in zip(offsets, raw_keys, raw_values, strict=True):
            part = "key"
            try:
                key = raw_key if raw_key is None or self._key is None else self._key(raw_key)
                part = "value"
                value = raw_value if raw_value is None or self._value is None else self._value(raw_value)
            except Exception as error:
                if keys:
                    break
                partition = chunk.state.partition
                raise DeserializationError(
                    f"the {part}_deserializer raised {type(error).__name__} for the record at offset {offset} of "
                    f"{partition}: {error}; seek to {offset + 1} to skip it",
                    partition,
                    offset,
                    raw_key,
                    raw_value,
                ) from error
            keys.append(key)
            values.append(value)
        return keys, values


def _has(view: memoryview, at: int, header: BatchHeader, wanted: bytes, most: int | None) -> tuple[bool, int]:
    """Whether these bytes occur anywhere in a batch's records, and how many bytes were searched.

    True as well if that can't be seen from outside, or would take more than ``most`` bytes.
    """
    if header.magic != MAGIC:
        return True, header.size
    try:
        data = bytes(record_data(view, at, header, most))
    except CorruptRecordError:
        return True, SEARCH_BYTES
    return wanted in data, len(data)


def _columns(chunk: Chunk, batches: list[tuple[int, BatchHeader]], most: int) -> RecordColumns:
    """Batches as columns; ``batches`` keeps those that have ``most`` bytes. Raises CorruptRecordError."""
    if chunk.large is not None:
        return chunk.large.next(chunk.offset)
    view = chunk.view
    _, first = batches[0]
    if first.magic != MAGIC:
        columns = _old_columns(view, batches)
        check_last_offset(columns, batches[-1][1])
        return columns
    pieces: list[tuple[bytes | memoryview, BatchHeader]] = []
    size = 0
    for at, header in batches:
        data = record_data(view, at, header, None)
        size += len(data)
        if size > most or header.record_count > MOST_AT_ONCE:
            if pieces:
                break
            del batches[1:]
            chunk.large = LargeBatch(at, header, data, most)
            return chunk.large.next(chunk.offset)
        pieces.append((data, header))
    del batches[len(pieces) :]
    columns = decode_pieces(pieces, first, max_headers=MAX_HEADERS)
    check_last_offset(columns, batches[-1][1])
    return columns


def _old_columns(view: memoryview, batches: list[tuple[int, BatchHeader]]) -> RecordColumns:
    """Messages of format 0 or 1 as columns. Raises CorruptRecordError."""
    records = [
        record for at, header in batches for record in decode_any(view, at, header, max_bytes=OLD_BATCH_BYTES)
    ]
    return RecordColumns(batches[0][1], records)


def deserialized(deserializer: Deserializer, column: Sequence[bytes | None]) -> list[Any]:
    """The column's objects; None stays None."""
    # Most columns have no empty values and no nulls, and need no check per record.
    if all(column):
        return list(map(deserializer, column))  # type: ignore[arg-type]
    return [None if raw is None else deserializer(raw) for raw in column]


def _corrupt(chunk: Chunk, header: BatchHeader | None, why: str) -> CorruptBatchError:
    following = None if header is None else header.last_offset + 1
    hint = "" if following is None else f"; seek to {following} to skip it"
    return CorruptBatchError(
        f"{chunk.state.partition}: the record batch for offset {chunk.offset} can't be read: {why}{hint}",
        chunk.state.partition,
        chunk.offset,
        following,
    )
