"""Reads a range straight from the segment files of a broker on this machine.

The range's end is within the high watermark, so the files have all of it: a broker writes before it advances that.
Meanwhile files may be deleted (retention), replaced (compaction) or truncated (after a change of leaders). An open file
keeps its content through the first two; bytes are read, not mapped, so truncation can't crash the reader. If the files
end before the range does, or a segment doesn't begin where the last one ended, the folder is listed again: offsets are
skipped only if compaction has certainly removed them.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from ottla_protocol.records.batch import HEADER_SIZE, CorruptRecordError
from ottla_protocol.records.formats import is_intact, read_any_header

from .aborted import Aborted, Chunk
from .batches import as_octets, find_batches
from .errors import CorruptData
from .folder import Folder, Unsure

if TYPE_CHECKING:
    from .errors import LossKind
    from .ranges import OffsetRange, ReadSettings

    Lost: TypeAlias = Callable[[LossKind, int, int], None]

WINDOW: Final = 4 * 1024 * 1024
"""Bytes per read: few enough to stay in the processor's cache until they are decoded."""
LEAST_WINDOW: Final = 128 * 1024
LIKELY_SIZE: Final = 512
"""Assumed bytes of a record at first, so that a read of few records stays small."""
TRIES: Final = 10
MAX_BATCH: Final = 128 * 1024 * 1024
"""A batch that claims to be larger is taken as corrupt."""


class Segment:
    """An open segment file, and where in it to read on."""

    def __init__(self, folder: Folder, base: int) -> None:
        """Raises FileNotFoundError if the file is gone by now, and Unsure."""
        self.base = base
        self.at = 0
        try:
            self._fd = folder.open(f"{base:020d}.log")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unsure(f"{folder.path}/{base:020d}.log can't be opened: {error.strerror}") from None
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def close(self) -> None:
        os.close(self._fd)

    def is_file(self, folder: Folder) -> bool:
        """Whether its name still leads to this file."""
        try:
            other = folder.open(f"{self.base:020d}.log")
        except OSError:
            return False
        try:
            return os.path.sameopenfile(self._fd, other)
        finally:
            os.close(other)

    def seek(self, at: int, offset: int) -> None:
        """Go to ``at`` if a batch begins there that isn't after ``offset``."""
        try:
            header = read_any_header(os.pread(self._fd, HEADER_SIZE, max(at, 0)))
            if not self.base <= header.base_offset <= offset or header.size > MAX_BATCH:
                return
            if is_intact(os.pread(self._fd, header.size, max(at, 0)), 0, header):
                self.at = max(at, 0)
        except (CorruptRecordError, OSError):
            return  # Reading from the file's start finds it, or the error.

    def read(self, buffer: memoryview) -> memoryview:
        """The bytes from here on, as many as exist and fit. Raises Unsure."""
        try:
            return buffer[: os.preadv(self._fd, [buffer], self.at)]
        except OSError as error:
            raise Unsure(f"segment {self.base} can't be read: {error.strerror}") from None


def read_segments(range: OffsetRange, settings: ReadSettings, start: int, lost: Lost) -> Iterator[Chunk]:
    """As ``wire.read_wire``. A chunk is valid until the next one is requested, which overwrites its bytes.

    Raises NotHere before the first chunk, Unsure if the files don't show how the log goes on, and CorruptData.
    """
    with Folder(range) as folder:
        aborted: list[Aborted] = []
        bases = folder.segments()
        if settings.isolation == "read_committed":
            # Before opening data: compaction removes a transaction from the index after removing its records.
            first = max(bisect_right(bases.bases, start) - 1, 0)
            least = bases.bases[first] if bases.bases else 0
            entries = folder.aborted(tuple(base for base in bases.with_aborted if base >= least))
            aborted = [each for each in entries if (each.last or 0) >= start and each.first < range.end]
        yield from _Reader(folder, range, settings, start, lost, aborted).chunks()


class _Reader:
    """Moves from segment to segment; ``position`` is the next offset to read."""

    def __init__(
        self,
        folder: Folder,
        range: OffsetRange,
        settings: ReadSettings,
        start: int,
        lost: Lost,
        aborted: list[Aborted],
    ) -> None:
        self._folder = folder
        self._range = range
        self._position = start
        self._lost = lost
        self._aborted = aborted
        self._alone = settings.segments == "always"
        likely = max(LEAST_WINDOW, LIKELY_SIZE * (range.end - start))
        self._buffer = memoryview(bytearray(max(min(settings.fetch_bytes, WINDOW, likely), HEADER_SIZE)))

    def chunks(self) -> Iterator[Chunk]:
        segment: Segment | None = None
        try:
            while self._position < self._range.end:
                following = self._following(segment)
                if segment is not None:
                    segment.close()
                segment = following
                if segment is not None:
                    yield from self._of(segment)
        finally:
            if segment is not None:
                segment.close()

    def _of(self, segment: Segment) -> Iterator[Chunk]:
        """The batches of a segment, up to its end or the range's."""
        buffer = self._buffer
        expected = -1
        while self._position < self._range.end:
            data = segment.read(buffer)
            found = find_batches(as_octets(data), expected, self._range.end)
            if len(found.table):
                buffer = self._buffer
                segment.at += found.size
                expected = found.expected
                first, self._position = self._position, max(self._position, expected)
                # A problem shows again at the start of the next read.
                yield Chunk(found._replace(problem=None), self._aborted, first)
                continue
            if not any(data[:HEADER_SIZE]):
                return  # The file's end, or the zeros of a preallocated file.
            if found.problem is not None:
                self._doubt(found.problem)
            size = read_any_header(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
            if size > MAX_BATCH or len(data) < len(buffer):
                self._doubt(f"a record batch of {size} bytes is cut off after {len(data)}")
            buffer = memoryview(bytearray(size))

    def _following(self, segment: Segment | None) -> Segment | None:
        """The segment after one that was read to its end; None to list the folder again."""
        for _ in range(TRIES):
            bases = self._folder.segments().bases
            row = bisect_right(bases, self._position) - 1
            if row < 0:
                self._missing(bases)
                return None
            base = bases[row]
            if segment is not None and base == segment.base and segment.is_file(self._folder):
                if row + 1 == len(bases):
                    self._too_short()
                    return None
                base = bases[row + 1]
                # Compaction removed the offsets between: the folder was quiet, and the last file is still in place.
                self._position = base
                if base >= self._range.end:
                    return None
            try:
                following = Segment(self._folder, base)
            except FileNotFoundError:
                continue  # It was replaced or removed since it was listed.
            if self._position > base:
                following.seek(self._folder.position(base, self._position), self._position)
            return following
        raise Unsure(f"the segments in {self._folder.path} change all the time")

    def _doubt(self, reason: str) -> NoReturn:
        range = self._range
        if self._alone:
            raise CorruptData(range.topic, range.partition, self._position, reason)
        raise Unsure(reason)

    def _missing(self, bases: tuple[int, ...]) -> None:
        """Handle a position without a segment."""
        end = self._range.end
        if not self._alone:
            raise Unsure(f"{self._folder.path} has no segment for offset {self._position}")
        if bases:
            behind = min(bases[0], end)
            self._lost("retention", self._position, behind - 1)
            self._position = behind
        else:
            self._lost("recreated" if self._folder.is_taken else "deletion", self._position, end - 1)
            self._position = end

    def _too_short(self) -> None:
        """Handle a last segment that ends before the range."""
        if not self._alone:
            raise Unsure(f"{self._folder.path} ends before offset {self._position}")
        self._lost("truncation", self._position, self._range.end - 1)
        self._position = self._range.end
