"""The segment that a cleaning writes: a ``.cleaned`` file, made only once something has changed.

A segment that keeps everything need not be rewritten. As long as the output equals the input, nothing is written, and
only its stretches are remembered, for the indexes; the first change then copies what came before.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from ottla_broker.log import names
from ottla_broker.log.cleaner.filter import KeptBatch
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.log.segment import CHUNK_BYTES, LogSegment, Run
from ottla_protocol.records.batch import BatchHeader

_RUN: Final = Struct("=4q")


class CleanedOutput:
    """Collects what stays, a chunk of the input at a time. Used by one thread.

    Attributes:
        segment: the cleaned segment; None as long as nothing has changed.
    """

    def __init__(
        self, files: Files, directory: str, base_offset: int, config: LogConfig, source: LogSegment | None
    ) -> None:
        """``source``: the only input, which need not be rewritten; None when there are several, to be merged."""
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._config = config
        self._source = source
        self._parts: list[bytes | bytearray | memoryview] = []
        self._runs: list[Run] = []
        self._changed = source is None
        # How many bytes of the input are unchanged and not written, and their runs.
        self._prefix = 0
        self._prefix_runs: list[Run] = []
        self.segment: LogSegment | None = None
        if self._changed:
            self.segment = self._create()

    def add_runs(self, data: memoryview, runs: bytes, output: bytes | None) -> None:
        """Add batches of the input, ``data``, of which ``output`` stays (None: all of them)."""
        self._changed |= output is not None
        self._parts.append(data if output is None else output)
        self._runs += map(Run._make, _RUN.iter_unpack(runs))

    def add_batch(self, header: BatchHeader, kept: KeptBatch | None) -> None:
        if kept is None:
            self._changed = True
            return
        self._changed |= kept.changed
        self._parts.append(kept.data)
        self._runs.append(Run(len(kept.data), header.last_offset, kept.max_timestamp, header.last_offset))

    def flush(self) -> int:
        """End a chunk of the input, and write what was added; how many bytes stay of it. Raises OSError."""
        size = sum(map(len, self._parts))
        if not self._changed:
            self._prefix += size
            self._prefix_runs += self._runs
        else:
            if self.segment is None:
                self.segment = self._create()
                self._copy_prefix(self.segment)
            self._write(self.segment, b"".join(self._parts), self._runs)
        self._parts.clear()
        self._runs.clear()
        return size

    def _create(self) -> LogSegment:
        """An empty ``.cleaned`` segment, after removing what an earlier attempt left."""
        LogSegment(self._files, self._directory, self._base_offset, suffix=names.CLEANED).unlink()
        return LogSegment.create(
            self._files, self._directory, self._base_offset, self._config, suffix=names.CLEANED
        )

    def _copy_prefix(self, segment: LogSegment) -> None:
        assert self._source is not None
        for position in range(0, self._prefix, CHUNK_BYTES):
            data = self._source.file.read(position, min(CHUNK_BYTES, self._prefix - position))
            segment.file.write(data, position)
        segment.wrote(self._prefix_runs, self._config.index_interval_bytes)
        self._prefix_runs.clear()

    def _write(self, segment: LogSegment, data: bytes, runs: Iterable[Run]) -> None:
        if data:
            segment.file.write(data, segment.size)
            segment.wrote(runs, self._config.index_interval_bytes)
