"""The part of an open log that isn't on the device yet, and the jobs that bring it there.

These always hold::

    recovery_point <= log_end_offset     on the device: everything below the recovery point, as it is now
    a record is written over a removed one only when the removal is on the device: see truncation_recorded

So after a power failure, records that were removed can't come back below the recovery point, where nothing is checked,
nor behind records that have taken the place of some of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from ottla_broker.log import names
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.flush import Flushable, FlushJob
from ottla_broker.log.segment import LogSegment
from ottla_broker.log.segment_list import SegmentList
from ottla_protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla_broker.log.leader_epoch import LeaderEpochs
    from ottla_broker.log.loader import Loaded
    from ottla_broker.log.producer_state import ProducerStates


class Written(Flushable, Protocol):
    """The log as far as this needs it."""

    path: str
    epochs: LeaderEpochs
    producers: ProducerStates

    def storage_error(self, what: str, error: OSError) -> KafkaError: ...


class Unflushed:
    """Owned by the log's thread.

    Attributes:
        recovery_point: everything below this offset is on the device.
        truncations: how often the log was truncated since it was opened.
        last_flush_ms: when the last flush ended; when the log was opened, if there was none.
    """

    __slots__ = (
        "_environment",
        "_has_new_id",
        "_has_new_names",
        "_is_recorded",
        "_log",
        "_lowered",
        "_segments",
        "_shortened",
        "last_flush_ms",
        "recovery_point",
        "truncations",
    )

    def __init__(
        self,
        log: Written,
        segments: SegmentList,
        environment: LogEnvironment,
        loaded: Loaded,
        *,
        checkpointed: int,
        has_new_id: bool,
    ) -> None:
        """``checkpointed``: the recovery point in the checkpoint. ``has_new_id``: partition.metadata was written."""
        self._log = log
        self._segments = segments
        self._environment = environment
        self.recovery_point = loaded.recovery_point
        self.truncations = 0
        self.last_flush_ms = environment.now_ms()
        # Whether the folder has names, or lacks some, that are not on the device yet; partition.metadata's content.
        self._has_new_names = loaded.new_files or has_new_id
        self._has_new_id = has_new_id
        # Segments that became shorter, until that is on the device.
        self._shortened: list[LogSegment] = loaded.truncated
        # Whether the recovery point or the log start in a checkpoint may be above this log's.
        self._lowered = loaded.recovery_point < checkpointed
        # Whether what was removed from the log's end stays removed, whatever happens.
        self._is_recorded = not loaded.was_cut and not self._lowered

    @property
    def _epochs_path(self) -> str:
        return f"{self._log.path}/{names.LEADER_EPOCHS}"

    def names_changed(self) -> None:
        """Files were made, removed or renamed."""
        self._has_new_names = True

    def topic_id_written(self) -> None:
        """``partition.metadata`` was written."""
        self._has_new_names = self._has_new_id = True

    def truncation_begins(self) -> None:
        """Records are about to be removed from the log's end."""
        self.truncations += 1
        self._is_recorded = False

    def truncated_to(self, offset: int, log_start_offset: int, shortened: LogSegment | None = None) -> None:
        """The log ends at ``offset`` now; before, it began at ``log_start_offset``.

        ``shortened``: the segment that lost its end, unless all segments are gone.
        """
        if shortened is not None:
            self._shortened.append(shortened)
        self._lowered |= offset < max(self.recovery_point, log_start_offset)
        self.recovery_point = min(self.recovery_point, offset)

    def truncation_recorded(self) -> asyncio.Future[None] | None:
        """A future that is done when the removal and the lower recovery point are on the device; None: they are.

        It raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        log, environment = self._log, self._environment
        on_removal = environment.on_removal
        if self._is_recorded or on_removal is None:
            return None
        lowered, self._lowered = self._lowered, False
        self._is_recorded = True
        job = FlushJob(environment.files, log.log_end_offset, self.truncations)
        job.truncated += [each.file.descriptor() for each in self._shortened if each in self._segments.all]
        job.folders.append(log.path)
        return on_removal(job.run, log, lowered)

    def prepare(self) -> FlushJob:
        """The job that brings all to the device; :meth:`flushed_to` records that it is done. Raises KafkaError."""
        log, segments = self._log, self._segments
        job = FlushJob(self._environment.files, log.log_end_offset, self.truncations)
        active = segments.active
        try:
            job.truncated += [each.file.descriptor() for each in self._shortened if each in segments.all]
            self._shortened = []
            for segment in segments.all[segments.index_of(self.recovery_point) :]:
                job.descriptors.append(segment.file.descriptor())
                if segment is not active:
                    job.paths += segment.sync_paths()
                    job.paths.append(log.producers.path(segment.base_offset))
        except OSError as error:
            raise log.storage_error("the log could not be flushed", error) from error
        if log.epochs.dirty:
            job.replacements.append((self._epochs_path, log.epochs.encode()))
            log.epochs.dirty = False
        if self._has_new_id:
            job.paths.append(f"{log.path}/{names.PARTITION_METADATA}")
            self._has_new_id = False
        if self._has_new_names:
            job.folders += (log.path, log.path.rpartition("/")[0])
            self._has_new_names = False
        return job

    def flushed_to(self, job: FlushJob) -> None:
        """Record that everything below the job's end is on the device."""
        if job.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, min(job.end_offset, self._log.log_end_offset))
        self.last_flush_ms = self._environment.now_ms()

    def flush(self) -> None:
        """Block until all is on the device. Raises KafkaError: KAFKA_STORAGE_ERROR; the log is out of use."""
        self._run(self.prepare())

    def _run(self, job: FlushJob) -> None:
        try:
            job.run()
        except OSError as error:
            raise self._log.fail(f"fsync failed: {error}") from error
        self.flushed_to(job)

    def write_out(self, *, beside: bool) -> None:
        """Write what is only in memory, without waiting for the device: see :meth:`.Log.write_out`."""
        log = self._log
        producers = log.producers
        try:
            producers.end_offset = log.log_end_offset
            if (producers.producers or producers.snapshots) and producers.write_snapshot():
                self._has_new_names = True
            self._segments.active.close()
            if beside and log.epochs.dirty:
                self._environment.files.write_all(self._epochs_path + ".tmp", log.epochs.encode())
        except OSError as error:
            raise log.storage_error("the log could not be closed", error) from error

    def flush_last(self, *, synced: bool) -> None:
        """Bring to the device what :meth:`write_out` wrote, and the rest: see :meth:`.Log.close`."""
        log = self._log
        if self.recovery_point >= log.log_end_offset and not self._has_new_names and not log.epochs.dirty:
            return
        is_beside = synced and log.epochs.dirty
        job = self.prepare()
        if synced:
            job.only_data()
            if is_beside:
                job.renames.append((self._epochs_path + ".tmp", self._epochs_path))
        else:
            job.paths += (*self._segments.active.sync_paths(), log.producers.path(log.log_end_offset))
        self._run(job)
