"""The segments of an open log, in order: rolled, truncated, removed and replaced; the file part of Kafka's LocalLog.

It knows nothing of producers, epochs or the log start offset. All methods raise OSError.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.segment import LogSegment

_log = get_logger()


class SegmentList:
    """Owned by the log's thread.

    Attributes:
        all: the segments, ascending. The tuple is replaced, never changed.
        base_offsets: their base offsets.
        active: the last one, which is written to.
        is_torn: whether a failed write left bytes after the active segment's end.
    """

    __slots__ = ("_environment", "_path", "_removed", "active", "all", "base_offsets", "is_torn")

    all: Sequence[LogSegment]
    base_offsets: Sequence[int]
    active: LogSegment

    def __init__(self, environment: LogEnvironment, path: str, segments: Sequence[LogSegment]) -> None:
        self._environment = environment
        self._path = path
        self.is_torn = False
        # Segments whose files will be unlinked.
        self._removed: set[LogSegment] = set()
        self._set(segments)

    def _set(self, segments: Sequence[LogSegment]) -> None:
        self.base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.all = tuple(segments)

    def index_of(self, offset: int) -> int:
        """The index of the segment that holds ``offset``; 0 for one below all."""
        return max(0, bisect_right(self.base_offsets, offset) - 1)

    def folder_renamed(self, path: str) -> None:
        """The log's folder has another name."""
        self._path = path
        for segment in (*self.all, *tuple(self._removed)):
            segment.folder_renamed(path)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.all)

    def remove_torn(self) -> None:
        """Truncate the bytes that a failed write left."""
        self.active.cut(self.active.size)
        self.is_torn = False

    def write_failed(self) -> None:
        """Truncate what a failed write left; if this fails, the next write must call :meth:`remove_torn`."""
        self.is_torn = True
        try:
            self.remove_torn()
        except OSError as error:
            _log.error("a failed write can't be removed", folder=self._path, why=str(error))

    def roll(self, base_offset: int, config: LogConfig, now_ms: int) -> LogSegment:
        """Begin another segment; one that is empty and begins there too is replaced. The old one is sealed."""
        jitter = min(config.segment_jitter_ms, config.max_segment_ms)
        segment = LogSegment.create(
            self._environment.files,
            self._path,
            base_offset,
            config,
            now_ms=now_ms,
            jitter_ms=self._environment.random.randrange(jitter) if jitter > 0 else 0,
        )
        kept = self.all[:-1] if self.active.base_offset == base_offset else self.all
        self._set((*kept, segment))
        return segment

    def truncate_to(self, offset: int, now_ms: int, delay_ms: int) -> Sequence[LogSegment]:
        """Remove all batches from ``offset`` on, which isn't below all; returns the segments that were removed.

        The last segment goes first and the others stay whole until then, so that no power failure leaves a gap.
        Raises CorruptRecordError, CorruptFileError too.
        """
        count = bisect_right(self.base_offsets, offset)
        kept, removed = self.all[:count], self.all[count:]
        self.remove_files(removed[::-1], delay_ms)
        kept[-1].truncate_to(offset, now_ms)
        kept[-1].txn_index.truncate_to(offset)
        self._set(kept)
        return removed

    def restart_at(self, offset: int, config: LogConfig, now_ms: int) -> None:
        """Have one empty segment that begins at ``offset``; the others' files must have been removed."""
        files = self._environment.files
        self._set([LogSegment.create(files, self._path, offset, config, now_ms=now_ms)])
        self.is_torn = False

    def drop_first(self, count: int) -> Sequence[LogSegment]:
        """Drop the first ``count`` segments, which aren't all; returns them."""
        removed = self.all[:count]
        self._set(self.all[count:])
        return removed

    def replace(self, new: Sequence[LogSegment], old: Sequence[LogSegment], delay_ms: int) -> None:
        """Replace segments by compacted ones, which are synced ``.cleaned`` files (LocalLog.replaceSegments).

        First the new ones become ``.swap``, last first: from then on a restart finishes the swap. Then the old ones
        are removed, and the new ones get their names.
        """
        for segment in reversed(new):
            segment.rename(names.SWAP)
        replaced = {id(segment) for segment in old}
        kept = [segment for segment in self.all if id(segment) not in replaced]
        self._set(sorted((*kept, *new), key=lambda segment: segment.base_offset))
        self.remove_files(old, delay_ms)
        for segment in new:
            segment.rename("")

    def remove_files(self, segments: Sequence[LogSegment], delay_ms: int) -> None:
        """Rename files to ``.deleted`` now and unlink them after ``delay_ms``, so that readers can finish."""
        for segment in segments:
            segment.rename(names.DELETED)
        self._removed.update(segments)

        def unlink() -> None:
            for segment in segments:
                try:
                    segment.unlink()
                except OSError as error:
                    _log.warning(
                        "a deleted segment's file can't be removed", folder=self._path, why=str(error)
                    )
            self._removed.difference_update(segments)

        if segments:
            self._environment.later(delay_ms, unlink)
