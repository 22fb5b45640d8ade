"""A range straight from the segment files of a broker on this machine.

The range's end is within the high watermark, so all of it is in the files: a broker writes before it moves that on.
Meanwhile files may go (retention), be replaced (compaction) or cut off (a leader that was none).
An open file keeps its content through the first two, and bytes are read, not mapped, so that the third is no crash.
Where the files end before the range does, or a segment is followed by one that doesn't begin where it ended, the folder
is looked at again: offsets are left out only where it is certain that compaction took them.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from ottla_protocol.records.batch import HEADER_SIZE, CorruptRecordError, crc_is_valid, read_header

from .aborted import Aborted, Chunk
from .batches import as_octets, find_batches
from .errors import CorruptData
from .folder import Folder, Unsure

if TYPE_CHECKING:
    from .batches import Walk
    from .errors import LossKind
    from .ranges import OffsetRange, ReadSettings

    Lost: TypeAlias = Callable[[LossKind, int, int], None]

WINDOW: Final = 4 * 1024 * 1024
"""Bytes that are read at once: few enough to stay in the processor's cache until they are decoded."""
LEAST_WINDOW: Final = 128 * 1024
LIKELY_SIZE: Final = 512
"""Bytes of a record, to begin with: few records shouldn't have much read for them."""
TRIES: Final = 10
MAX_BATCH: Final = 128 * 1024 * 1024
"""A batch that claims to be larger is not believed."""


class Segment:
    """An open segment file, and where in it to read on."""

    def __init__(self, folder: Folder, base: int) -> None:
        """Raises FileNotFoundError where it has just gone, Unsure."""
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
        """Whether this is the file that now has its name."""
        try:
            other = folder.open(f"{self.base:020d}.log")
        except OSError:
            return False
        try:
            return os.path.sameopenfile(self._fd, other)
        finally:
            os.close(other)

    def seek(self, at: int, offset: int) -> None:
        """Go to ``at`` if a batch begins there that isn't behind ``offset``."""
        try:
            header = read_header(os.pread(self._fd, HEADER_SIZE, max(at, 0)))
            if not self.base <= header.base_offset <= offset or header.size > MAX_BATCH:
                return
            if crc_is_valid(os.pread(self._fd, header.size, max(at, 0)), 0, header):
                self.at = max(at, 0)
        except (CorruptRecordError, OSError):
            return  # reading from the beginning finds it, or says what is wrong

    def read(self, buffer: memoryview) -> memoryview:
        """The bytes from here on, as many as there are and fit. Raises Unsure."""
        try:
            return buffer[: os.preadv(self._fd, [buffer], self.at)]
        except OSError as error:
            raise Unsure(f"segment {self.base} can't be read: {error.strerror}") from None


def read_segments(
    range: OffsetRange, settings: ReadSettings, start: int, walk: Walk | None, lost: Lost
) -> Iterator[Chunk]:
    """As ``wire.read_wire``. A chunk is good until the next is asked for: its bytes are then overwritten.

    Raises NotHere before the first chunk, Unsure where the files don't say how it goes on, CorruptData.
    """
    with Folder(range) as folder:
        aborted: list[Aborted] = []
        bases = folder.segments()
        if settings.isolation == "read_committed":
            # Before any data is opened: compaction takes transactions from the index when it has taken their records.
            first = max(bisect_right(bases.bases, start) - 1, 0)
            least = bases.bases[first] if bases.bases else 0
            entries = folder.aborted(tuple(base for base in bases.with_aborted if base >= least))
            aborted = [each for each in entries if (each.last or 0) >= start and each.first < range.end]
        yield from _Reader(folder, range, settings, start, walk, lost, aborted).chunks()


class _Reader:
    """Goes from segment to segment; ``position`` is the next offset to read."""

    def __init__(
        self,
        folder: Folder,
        range: OffsetRange,
        settings: ReadSettings,
        start: int,
        walk: Walk | None,
        lost: Lost,
        aborted: list[Aborted],
    ) -> None:
        self._folder = folder
        self._range = range
        self._position = start
        self._walk = walk
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
        """What there is in a segment, up to its end or the range's."""
        buffer = self._buffer
        expected = -1
        while self._position < self._range.end:
            data = segment.read(buffer)
            found = find_batches(as_octets(data), expected, self._range.end, self._walk)
            if len(found.table):
                buffer = self._buffer
                segment.at += found.size
                expected = found.expected
                first, self._position = self._position, max(self._position, expected)
                # A problem comes up again, at the beginning of the next look.
                yield Chunk(found._replace(problem=None), self._aborted, first)
                continue
            if not any(data[:HEADER_SIZE]):
                return  # the file's end, or the rest of one that was made larger than needed
            if found.problem is not None:
                self._doubt(found.problem)
            size = read_header(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
            if size > MAX_BATCH or len(data) < len(buffer):
                self._doubt(f"a record batch of {size} bytes is cut off after {len(data)}")
            buffer = memoryview(bytearray(size))

    def _following(self, segment: Segment | None) -> Segment | None:
        """The segment to go on with after one that has been read to its end; None where it is to be looked again."""
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
                # Compaction took what was between: the folder was quiet, and the file before is still the one read.
                self._position = base
                if base >= self._range.end:
                    return None
            try:
                following = Segment(self._folder, base)
            except FileNotFoundError:
                continue  # replaced, or removed, since it was listed
            if self._position > base:
                following.seek(self._folder.position(base, self._position), self._position)
            return following
        raise Unsure(f"the segments in {self._folder.path} change all the time")

    # ---- where the files can't go on. Beside a broker that can be asked, it is.

    def _doubt(self, reason: str) -> NoReturn:
        range = self._range
        if self._alone:
            raise CorruptData(range.topic, range.partition, self._position, reason)
        raise Unsure(reason)

    def _missing(self, bases: tuple[int, ...]) -> None:
        """There is no segment for the position."""
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
        """The last segment ends before the range does."""
        if not self._alone:
            raise Unsure(f"{self._folder.path} ends before offset {self._position}")
        self._lost("truncation", self._position, self._range.end - 1)
        self._position = self._range.end
