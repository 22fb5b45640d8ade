"""A slice of a segment in an older format, converted piece by piece: Kafka's ``LazyDownConversionRecords``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla_broker.log.files import FileSlice
from ottla_protocol.records.batch import LOG_OVERHEAD, BatchHeader, CorruptRecordError
from ottla_protocol.records.down_conversion import UnconvertibleError, down_convert
from ottla_protocol.records.formats import iter_headers

CHUNK_BYTES: Final = 128 * 1024
"""About so many bytes of batches are read and converted in one go; a larger batch is read whole."""
_FIRST_BYTES: Final = 64 * 1024

NO_RECORDS: Final = LOG_OVERHEAD
"""The size announced for batches that have no counterpart in the older format, such as transaction markers."""


class DownConversion:
    """The batches of a slice in an older format. Used by one thread at a time; the slice stays as it is.

    Records below ``first_offset`` are left out where they are messages of their own. ``max_bytes`` limits the size of a
    compressed batch's records, which are in memory several times meanwhile.
    """

    __slots__ = ("_first_offset", "_magic", "_max_bytes", "_position", "_slice")

    def __init__(self, records: FileSlice, magic: int, first_offset: int, max_bytes: int) -> None:
        self._slice = records
        self._magic = magic
        self._first_offset = first_offset
        self._max_bytes = max_bytes
        # Where the next batch begins.
        self._position = 0

    def first(self, pause: Callable[[], object]) -> tuple[int, bytes]:
        """Return the bytes to announce for the whole slice, and its first batch with a counterpart, converted.

        A consumer makes progress only with a whole batch, so at least that is announced. Converted, the slice may turn
        out to be smaller or larger than announced: then the rest is padding, or isn't sent.

        Raises UnconvertibleError, CorruptRecordError, OSError.
        """
        found = False
        while True:
            data, batches = self._read(_FIRST_BYTES, only_one=True)
            if not batches:
                return (NO_RECORDS if found else 0), b""
            found = True
            converted = b"".join(self._convert(data, batches, pause))
            if converted:
                return max(len(self._slice), len(converted)), converted

    def following(self, pause: Callable[[], object]) -> bytes:
        """The next batches, converted; empty at the end, and before a batch that can't be converted. Raises OSError."""
        pieces: list[bytes] = []
        try:
            while not pieces:
                data, batches = self._read(CHUNK_BYTES)
                if not batches:
                    break
                for piece in self._convert(data, batches, pause):
                    pieces.append(piece)  # noqa: PERF402  (what precedes an error is sent)
        except (UnconvertibleError, CorruptRecordError):
            # The consumer's next fetch begins with this batch, and gets the error.
            self._position = len(self._slice)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def rewind(self) -> None:
        """Begin again with the first batch."""
        self._position = 0

    def _convert(
        self, data: memoryview, batches: list[tuple[int, BatchHeader]], pause: Callable[[], object]
    ) -> Iterable[bytes]:
        return down_convert(
            data, batches, self._magic, self._first_offset, max_bytes=self._max_bytes, pause=pause
        )

    def _read(self, size: int, *, only_one: bool = False) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
        """The next whole batches in about ``size`` bytes, with their positions; at least one, unless the slice ends.

        Raises CorruptRecordError, OSError.
        """
        left = len(self._slice) - self._position
        data = self._slice.read_at(self._position, min(size, left))
        if len(data) >= LOG_OVERHEAD:
            first = int.from_bytes(data[8:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
            if len(data) < first <= left:
                data = self._slice.read_at(self._position, first)
        view = memoryview(data)
        batches: list[tuple[int, BatchHeader]] = []
        end = 0
        try:
            for position, header in iter_headers(view):
                batches.append((position, header))
                end = position + header.size
                if only_one:
                    break
        except CorruptRecordError:
            if not batches:
                raise
        self._position += end
        return view, batches
