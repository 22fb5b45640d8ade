"""The ground a log stands on: opening its folder, what it consists of, how it fails, flushing and closing.

What is done with it lies above: :mod:`.reading` and :mod:`.log`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla_broker import events
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import CorruptRecordError

from . import names
from .checkpoints import CorruptCheckpointError, encode_topic_id, read_topic_id
from .config import LogConfig
from .environment import LogEnvironment
from .flush import FlushJob
from .leader_epoch import LeaderEpochs
from .producer_state import ProducerStates
from .segment import LogSegment

NOT_CUT: Final = 2**63 - 1
_NO_TOPIC_ID: Final = bytes(16)
_ON_OPEN: Final = frozenset(
    (
        "_bases",
        "_known",
        "active",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery_point",
        "segments",
    )
)

_log = events.get_logger()


class LogBase:
    """The log of one partition."""

    __slots__ = (
        "_bases",
        "_initial_recovery_point",
        "_initial_start",
        "_known",
        "_new_files",
        "_torn",
        "_truncations",
        "_was_clean",
        "active",
        "config",
        "environment",
        "epochs",
        "failure",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "lowest_cut",
        "name",
        "partition",
        "path",
        "producers",
        "recovery_point",
        "segments",
        "topic",
        "topic_id_known",
        "watermark",
    )

    # Set when the log opens.
    segments: Sequence[LogSegment]
    active: LogSegment
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates
    # Positions of batches by their first offset, for readers that come back where they left off.
    _known: dict[int, tuple[LogSegment, int]]

    def __init__(
        self,
        path: str,
        topic: str,
        partition: int,
        config: LogConfig,
        environment: LogEnvironment,
        *,
        topic_id: bytes | None = None,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool = False,
    ) -> None:
        """A log in the folder ``path``, which exists; nothing is read yet.

        ``log_start_offset`` and ``recovery_point`` are what the checkpoints say, ``clean`` whether the last
        stop was.
        """
        self.path = path
        self.topic = topic
        self.partition = partition
        # As in folder names and messages.
        self.name = f"{topic}-{partition}"
        self.config = config
        self.environment = environment
        self.topic_id_known = topic_id
        # Why the log may not be used any more; None as long as it may.
        self.failure: str | None = None
        self.last_flush_ms = 0
        # Where retention has to stop: the replica layer puts its high watermark here.
        self.watermark: Callable[[], int] | None = None
        self._initial_start = log_start_offset
        self._initial_recovery_point = recovery_point
        self._was_clean = clean
        # Whether the folder has names that are not on the device yet.
        self._new_files = False
        # Whether a failed write left bytes behind the active segment's end.
        self._torn = False
        self._truncations = 0
        # The lowest offset that the log was cut to since the cleaner looked: it knows the part above no more.
        self.lowest_cut = NOT_CUT

    # --- opening ------------------------------------------------------------------------------------------

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Reached only while an attribute in _ON_OPEN is unset: the first use of a log opens it.
            if name not in _ON_OPEN:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.open()
            return getattr(self, name)

    @property
    def is_open(self) -> bool:
        """Whether the log has been used since the broker started."""
        try:
            object.__getattribute__(self, "segments")
        except AttributeError:
            return False
        return True

    def open(self) -> None:
        """Load the segments, recovering what an unclean stop left behind.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        from .loader import load

        if self.is_open:
            return
        try:
            loaded = load(
                self.environment,
                self.path,
                self.name,
                self.config,
                log_start_offset=self._initial_start,
                recovery_point=self._initial_recovery_point,
                clean=self._was_clean,
            )
        except (OSError, CorruptRecordError) as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: cannot be opened: {error}"
            ) from error
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self._new_files = loaded.new_files
        self.last_flush_ms = self.environment.now_ms()
        self._known = {}
        self._set_segments(loaded.segments)

    def _set_segments(self, segments: Sequence[LogSegment]) -> None:
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.segments = tuple(segments)

    @property
    def dir(self) -> Path:
        """The partition's folder."""
        return Path(self.path)

    @property
    def _epochs_path(self) -> str:
        return f"{self.path}/{names.LEADER_EPOCHS}"

    @property
    def topic_id(self) -> bytes:
        """The topic's id from ``partition.metadata``; zeros when it has none."""
        topic_id = self.topic_id_known
        if topic_id is None:
            path = f"{self.path}/{names.PARTITION_METADATA}"
            try:
                topic_id = read_topic_id(self.environment.files, path)
            except (CorruptCheckpointError, OSError) as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error}") from error
            self.topic_id_known = topic_id
        return topic_id

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Give a log that has none its topic's id.

        Raises KafkaError: INCONSISTENT_TOPIC_ID when it has another, KAFKA_STORAGE_ERROR.
        """
        if topic_id == self.topic_id:
            return
        if self.topic_id != _NO_TOPIC_ID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.name}: the folder belongs to another topic id"
            )
        path = f"{self.path}/{names.PARTITION_METADATA}"
        try:
            self.environment.files.replace(path, encode_topic_id(topic_id), sync=False)
        except OSError as error:
            raise self._storage_error("cannot store the topic id", error) from error
        self.topic_id_known = topic_id
        self._new_files = True

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def checkpoint_recovery_point(self) -> int:
        """The recovery point, without opening the log."""
        return self.recovery_point if self.is_open else self._initial_recovery_point

    @property
    def checkpoint_start_offset(self) -> int:
        """The log start offset to be kept in the checkpoint: 0 when the first segment says it as well."""
        if not self.is_open:
            return self._initial_start
        return self.log_start_offset if self.log_start_offset > self._bases[0] else 0

    def committed_offset(self) -> int:
        """The high watermark if a replica layer keeps one, else the end."""
        return self.log_end_offset if self.watermark is None else min(self.watermark(), self.log_end_offset)

    # --- failing ------------------------------------------------------------------------------------------

    def _storage_error(self, what: str, error: OSError) -> KafkaError:
        message = f"{self.name}: {what}: {error.strerror or error}"
        _log.error("storage error", topic=self.topic, partition=self.partition, what=what, why=str(error))
        self._tell_failure()
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def _tell_failure(self) -> None:
        if self.environment.on_failure is not None:
            self.environment.on_failure(self.path.rpartition("/")[0])

    def fail(self, why: str) -> KafkaError:
        """Take the log out of use until the broker is started again; the error to answer with."""
        if self.failure is None:
            self.failure = f"{self.name}: {why}; the log is out of use until the broker restarts"
            _log.error("log failed", topic=self.topic, partition=self.partition, why=why)
            self._tell_failure()
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)

    # --- flush --------------------------------------------------------------------------------------------

    def prepare_flush(self) -> FlushJob:
        """What an fsync of everything appended so far has to do; :meth:`flushed_to` takes note when it is
        done.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        job = FlushJob(self.environment.files, self.log_end_offset, self._truncations)
        active = self.active
        at = max(0, bisect_right(self._bases, self.recovery_point) - 1)
        try:
            for segment in self.segments[at:]:
                job.descriptors.append(segment.file.descriptor())
                if segment is not active:
                    job.paths += segment.sync_paths()
                    job.paths.append(self.producers.path(segment.base_offset))
        except OSError as error:
            raise self._storage_error("the log could not be flushed", error) from error
        if self.epochs.dirty:
            job.replacements.append((self._epochs_path, self.epochs.encode()))
            self.epochs.dirty = False
        if self._new_files:
            job.folders += (self.path, self.path.rpartition("/")[0])
            self._new_files = False
        return job

    def flushed_to(self, job: FlushJob) -> None:
        """Everything below the job's end is on the device."""
        if job.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, min(job.end_offset, self.log_end_offset))
        self.last_flush_ms = self.environment.now_ms()

    def flush(self) -> None:
        """Wait, here and now, until everything appended is on the device. Raises
        KafkaError(KAFKA_STORAGE_ERROR).

        For closing and for tools: on the event loop :meth:`flushed` is the way.
        """
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        self._run(self.prepare_flush())

    def _run(self, job: FlushJob) -> None:
        try:
            job.run()
        except OSError as error:
            raise self.fail(f"fsync failed: {error}") from error
        self.flushed_to(job)

    def flushed(self, end_offset: int) -> asyncio.Future[None]:
        """A future that is done when everything below ``end_offset`` is on the device; waiters share an
        fsync.

        It fails with KafkaError(KAFKA_STORAGE_ERROR), and so does the log from then on, when the device
        refuses.
        """
        flusher = self.environment.flusher
        if flusher is None:
            raise RuntimeError("this log has no flusher: call flush()")
        return flusher.request(self, end_offset)

    # --- closing ------------------------------------------------------------------------------------------

    def write_out(self) -> None:
        """Write what is only in memory, without waiting for the device: indexes, producers, epochs.

        Raises KafkaError(KAFKA_STORAGE_ERROR). Another thread may do it once nobody uses the log any more.
        """
        if not self.is_open or self.failure is not None:
            return
        try:
            self.producers.end_offset = self.log_end_offset
            if self.producers.producers or self.producers.snapshots:
                self.producers.take_snapshot()
            self.active.close()
            if self.epochs.dirty:
                self.environment.files.replace(self._epochs_path, self.epochs.encode(), sync=False)
                self.epochs.dirty = False
                self._new_files = True
        except OSError as error:
            raise self._storage_error("the log could not be closed", error) from error

    def close(self, *, synced: bool = False) -> None:
        """Bring everything to the device and let go of the files; an unopened log has nothing to close.

        ``synced``: the whole machine was, after :meth:`write_out`; only the data is looked at once more.
        Raises KafkaError(KAFKA_STORAGE_ERROR). Another thread may do it once nobody uses the log any more.
        """
        if not self.is_open or self.failure is not None:
            return
        self.write_out()
        if self.recovery_point < self.log_end_offset or self._new_files:
            job = self.prepare_flush()
            if synced:
                job.only_data()
            else:
                job.paths += (
                    *self.active.sync_paths(),
                    self._epochs_path,
                    self.producers.path(self.log_end_offset),
                )
            self._run(job)
        for segment in self.segments:
            segment.file.close()
