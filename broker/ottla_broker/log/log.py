"""One partition's log: append, read, roll, truncate, flush, retain; Kafka's UnifiedLog and LocalLog.

A log is a row of segments in a folder. Its offsets are ordered like this, and every method keeps it so::

    log_start_offset <= recovery_point <= log_end_offset          (recovery_point may lie below
    log_start_offset) readable: log_start_offset .. log_end_offset                  on the device: everything
    below recovery_point

Concurrency: a log belongs to the event loop's thread. ``segments`` is replaced, never changed, so whoever
took it keeps a consistent view while segments come and go. Only :meth:`LogSegment.batches`,
:meth:`FlushJob.run` and the functions given to ``environment.later`` run on other threads.

A log opens on first use: as long as nobody touches it, it is a name and the offsets of the checkpoints. That
is what makes a broker with 10,000 partitions start at once.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla_broker import events
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import (
    BatchHeader,
    CorruptRecordError,
    assign_offset,
    set_log_append_time,
)

from . import names
from .append import AppendInfo, check_batch, check_client_batch, recompress
from .checkpoints import CorruptCheckpointError, encode_topic_id, read_topic_id
from .config import LogConfig
from .environment import LogEnvironment
from .files import FileSlice
from .flush import FlushJob
from .leader_epoch import LeaderEpochs
from .producer_state import ProducerEntry, ProducerStates
from .segment import LogSegment
from .txn_index import note_ended

_KNOWN_POSITIONS: Final = 128
_NO_TOPIC_ID: Final = bytes(16)
_ON_OPEN: Final = frozenset(
    (
        "_bases",
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


class LogRead:
    """The answer to a read: ``slice`` of the segment file, or None when nothing is to be had."""

    __slots__ = ("slice",)

    def __init__(self, slice: FileSlice | None) -> None:
        self.slice = slice


_NOTHING: Final = LogRead(None)


class Log:
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
        # Positions of batches by their first offset, for readers that come back where they left off.
        self._known: dict[int, tuple[LogSegment, int]] = {}
        # Whether the folder has names that are not on the device yet.
        self._new_files = False
        # Whether a failed write left bytes behind the active segment's end.
        self._torn = False
        self._truncations = 0

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
        self._set_segments(loaded.segments)

    def _set_segments(self, segments: Sequence[LogSegment]) -> None:
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.segments = tuple(segments)

    @property
    def name(self) -> str:
        """``topic-partition``, as in folder names and messages."""
        return f"{self.topic}-{self.partition}"

    @property
    def dir(self) -> Path:
        """The partition's folder."""
        return Path(self.path)

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

    # --- append -------------------------------------------------------------------------------------------

    def append(
        self, records: memoryview | bytearray, *, leader_epoch: int, now_ms: int, from_client: bool
    ) -> AppendInfo:
        """Append as the leader: check, assign offsets (in ``records``, which is written to), store.

        ``from_client``: a produce request, so one batch, and nothing in it that only leaders write. Otherwise
        several batches are taken. Raises KafkaError with the code of the produce response; the log is then as
        it was.
        """
        view = records if isinstance(records, memoryview) else memoryview(records)
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        config = self.config
        header = check_batch(view, 0, config, self.name)
        if from_client:
            check_client_batch(view, header, config, self.name, now_ms)
        elif header.batch_length + 12 != len(view):
            return self._append_several(view, leader_epoch, now_ms)
        first = self.log_end_offset
        last = first + header.last_offset_delta
        last_sequence = -1
        if header.producer_id >= 0:
            last_sequence = header.last_sequence
            sent = self.producers.check(header, last_sequence, from_client=from_client)
            if sent is not None:
                append_time = sent.timestamp if config.log_append_time else -1
                return AppendInfo(
                    sent.first_offset, sent.last_offset, append_time, self.log_start_offset, 0, True
                )
        if config.compression_type != "producer":
            replacement = recompress(view, header, config, self.name)
            if replacement is not None:
                view = replacement
                header = check_batch(view, 0, config, self.name)
        append_time = -1
        if config.message_timestamp_type != "CreateTime":
            header = set_log_append_time(view, 0, header, now_ms)
            append_time = now_ms
        assign_offset(view, 0, first, leader_epoch)
        timestamp = header.max_timestamp
        self._write(view, first, last, timestamp, last, now_ms)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, first)
        if header.producer_id >= 0:
            self.producers.update(header, last_sequence, first, last, timestamp)
        self.producers.end_offset = last + 1
        return AppendInfo(
            first,
            last,
            append_time,
            self.log_start_offset,
            len(view),
            False,
            last + 1 - self.recovery_point >= config.flush_messages,
        )

    def _append_several(self, view: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Batches of a coordinator: checked one by one, written as one."""
        config = self.config
        first = next_offset = self.log_end_offset
        batches: list[tuple[int, BatchHeader]] = []
        position = 0
        while position < len(view):
            header = check_batch(view, position, config, self.name)
            self.producers.check(header, header.last_sequence, from_client=False)
            if config.log_append_time:
                header = set_log_append_time(view, position, header, now_ms)
            assign_offset(view, position, next_offset, leader_epoch)
            batches.append(
                (position, header._replace(base_offset=next_offset, partition_leader_epoch=leader_epoch))
            )
            next_offset += header.last_offset_delta + 1
            position += header.size
        self._write_batches(view, [header for _, header in batches], now_ms)
        self._replay(view, [header for _, header in batches])
        return AppendInfo(
            first,
            next_offset - 1,
            now_ms if config.log_append_time else -1,
            self.log_start_offset,
            len(view),
            False,
            next_offset - self.recovery_point >= config.flush_messages,
        )

    def append_as_follower(self, records: memoryview | bytearray) -> AppendInfo:
        """Append what the leader sent, with the offsets and epochs it has; a partial last batch is left out.

        Raises KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE for offsets that are not new,
        KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        view = records if isinstance(records, memoryview) else memoryview(records)
        config = self.config
        headers: list[BatchHeader] = []
        next_offset, end = self.log_end_offset, 0
        while len(view) - end >= 12 and len(view) - end >= 12 + int.from_bytes(
            view[end + 8 : end + 12], "big"
        ):
            header = check_batch(view, end, config, self.name)
            if header.base_offset < next_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.name}: the leader sent offset {header.base_offset}, {next_offset} is next",
                )
            headers.append(header)
            next_offset = header.last_offset + 1
            end += header.size
        if not headers:
            return AppendInfo(self.log_end_offset, self.log_end_offset - 1, -1, self.log_start_offset, 0)
        self._write_batches(view[:end], headers, self.environment.now_ms())
        self._replay(view, headers)
        return AppendInfo(
            headers[0].base_offset,
            next_offset - 1,
            -1,
            self.log_start_offset,
            end,
            False,
            next_offset - self.recovery_point >= config.flush_messages,
        )

    def _replay(self, view: memoryview, headers: list[BatchHeader]) -> None:
        """Take note of what batches that were written say of their producers."""
        position = 0
        for header in headers:
            ended = self.producers.replay(header, view[position : position + header.size])
            if ended is not None:
                note_ended(self.active, ended, self.producers)
            position += header.size

    def _write_batches(self, view: memoryview, headers: list[BatchHeader], now_ms: int) -> None:
        newest = max(headers, key=lambda header: header.max_timestamp)
        first, last = headers[0].base_offset, headers[-1].last_offset
        self._write(view, first, last, newest.max_timestamp, newest.last_offset, now_ms)
        for header in headers:
            if header.partition_leader_epoch != self.epochs.latest:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _write(
        self, view: memoryview, first: int, last: int, timestamp: int, timestamp_offset: int, now_ms: int
    ) -> None:
        """Put whole batches into the active segment or, where it is full, into a new one."""
        config = self.config
        size = len(view)
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self.name}: {size} bytes do not fit into a segment, segment.bytes is {config.segment_bytes}",
            )
        segment = self.active
        try:
            if self._torn:
                segment.cut(segment.size)
                self._torn = False
            if segment.must_roll(config, size, timestamp, last, now_ms):
                segment = self._roll(first, now_ms)
            segment.append(view, last, timestamp, timestamp_offset, config.index_interval_bytes)
        except OSError as error:
            self._torn = True
            self._cut_torn()
            raise self._storage_error("the batch could not be written", error) from error
        self.log_end_offset = last + 1

    def _cut_torn(self) -> None:
        """Take back what a failed write left behind the end; the next append tries again when this fails too."""
        active = self.active
        try:
            active.cut(active.size)
            self._torn = False
        except OSError as error:
            _log.error(
                "cannot cut a failed write", topic=self.topic, partition=self.partition, why=str(error)
            )

    def _storage_error(self, what: str, error: OSError) -> KafkaError:
        message = f"{self.name}: {what}: {error.strerror or error}"
        _log.error("storage error", topic=self.topic, partition=self.partition, what=what, why=str(error))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def fail(self, why: str) -> KafkaError:
        """Take the log out of use until the broker is started again; the error to answer with."""
        if self.failure is None:
            self.failure = f"{self.name}: {why}; the log is out of use until the broker restarts"
            _log.error("log failed", topic=self.topic, partition=self.partition, why=why)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Note that a leader of ``leader_epoch`` begins to write at ``start_offset`` (appends note it as well)."""
        self.epochs.assign(leader_epoch, start_offset)

    # --- roll ---------------------------------------------------------------------------------------------

    def roll(self, now_ms: int | None = None) -> LogSegment:
        """Begin a new segment at the end of the log; an empty active segment is kept. Raises KafkaError."""
        if not self.active.size and self.active.base_offset == self.log_end_offset:
            return self.active
        try:
            return self._roll(self.log_end_offset, self.environment.now_ms() if now_ms is None else now_ms)
        except OSError as error:
            raise self._storage_error("no new segment could be made", error) from error

    def _roll(self, base_offset: int, now_ms: int) -> LogSegment:
        environment = self.environment
        config = self.config
        old = self.active
        old.seal()
        self.producers.end_offset = base_offset
        self.producers.take_snapshot()
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        segment = LogSegment.create(
            environment.files,
            self.path,
            base_offset,
            config,
            now_ms=now_ms,
            jitter_ms=environment.random.randrange(jitter) if jitter > 0 else 0,
        )
        self._new_files = True
        if old.base_offset == base_offset:
            self._set_segments((*self.segments[:-1], segment))
        else:
            self._set_segments((*self.segments, segment))
        if environment.flusher is not None and base_offset > self.recovery_point:
            environment.flusher.request(self, base_offset).add_done_callback(_retrieve)
        _log.debug("segment rolled", topic=self.topic, partition=self.partition, base_offset=base_offset)
        return segment

    # --- read ---------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, max_offset: int, min_one: bool) -> LogRead:
        """A slice of batches, the first of which holds ``offset`` (it may begin before it).

        At most ``max_bytes``, but with ``min_one`` always the whole first batch; nothing of a batch that
        reaches ``max_offset``. The end is a batch's end where that is cheap to know; otherwise the last batch
        may be cut short, as Kafka does. Raises KafkaError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} is outside of {self.log_start_offset} to {end}",
            )
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        if offset >= max_offset or offset == end:
            return _NOTHING
        known = self._known
        try:
            place = known.get(offset)
            if place is None:
                place = self._locate(offset)
                if place is None:
                    return _NOTHING
            segment, position = place
            limit = segment.size
            if max_offset >= end:
                next_offset = end if segment is self.active else -1
            else:
                bound = known.get(max_offset)
                if bound is None:
                    bound = self._locate(max_offset)
                next_offset = -1
                if bound is not None and bound[0] is segment:
                    limit = bound[1]
                    next_offset = max_offset
                elif bound is not None and bound[0].base_offset < segment.base_offset:
                    return _NOTHING
            size = limit - position
            if size > max_bytes:
                size, next_offset = self._cut(segment, position, max_bytes, min_one, limit)
            if size <= 0:
                return _NOTHING
            if next_offset >= 0 and next_offset not in known:
                if len(known) >= _KNOWN_POSITIONS:
                    del known[next(iter(known))]
                known[next_offset] = (segment, position + size)
            return LogRead(FileSlice(segment.file, position, size))
        except CorruptRecordError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {error}") from error
        except OSError as error:
            raise self._storage_error("the log could not be read", error) from error

    def _locate(self, offset: int) -> tuple[LogSegment, int] | None:
        """Segment and position of the first batch that ends at or behind ``offset``;

        None at the end of the log.
        """
        at = max(0, bisect_right(self._bases, offset) - 1)
        segments = self.segments
        while at < len(segments):
            found = segments[at].find(offset)
            if found is not None:
                return segments[at], found[0]
            at += 1  # Compaction has emptied the end of that segment.
        return None

    def _cut(
        self, segment: LogSegment, position: int, max_bytes: int, min_one: bool, limit: int
    ) -> tuple[int, int]:
        """How much of the bytes from ``position`` fits, and the offset that follows if it is known (else -1).

        The index knows some batches' starts: the last of them that fits is a clean end.
        """
        cut = segment.offset_index.floor_position(position + max_bytes)
        if cut <= position:
            first = segment.find(0, position)
            size = first[1] if first is not None else 0
            if size > max_bytes:
                return (size if min_one else 0), -1
            return min(max_bytes, limit - position), -1
        return cut - position, int.from_bytes(segment.file.read(cut, 8), "big")

    def scan_batches(
        self, start: int, end: int | None = None, chunk_bytes: int = 1 << 20
    ) -> Iterator[memoryview]:
        """All batches that hold offsets in ``[start, end)``, as runs of whole batches of about
        ``chunk_bytes``.

        Raises KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        offset = max(start, self.log_start_offset)
        end = self.log_end_offset if end is None else min(end, self.log_end_offset)
        while offset < end:
            found = self.read(offset, chunk_bytes, max_offset=end, min_one=True).slice
            if found is None:
                return
            data = memoryview(found.read())
            used, offset = _whole_batches(data, offset)
            if not used:
                return
            yield data[:used]

    # --- offsets by time and epoch ------------------------------------------------------------------------

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """``(offset, timestamp, leader epoch)`` of the first record at or behind a time;

        None when there is none.
        """
        from .lookup import offset_for_timestamp

        return offset_for_timestamp(self, timestamp_ms)

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """``(offset, timestamp, leader epoch)`` of the record with the largest timestamp;

        None in an empty log.
        """
        from .lookup import max_timestamp_offset

        return max_timestamp_offset(self)

    @property
    def latest_epoch(self) -> int:
        """Epoch of the last leader that wrote; -1 when none did."""
        return self.epochs.latest

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``leader_epoch`` in the log, and where it ends; ``(-1, -1)`` when unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def active_producers(self) -> list[ProducerEntry]:
        """What is known of each producer (DescribeProducers)."""
        return list(self.producers.producers.values())

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
            job.replacements.append((f"{self.path}/{names.LEADER_EPOCHS}", self.epochs.encode()))
            self.epochs.dirty = False
        if self._new_files:
            job.folder = self.path
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
        job = self.prepare_flush()
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

    # --- truncation, retention ----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Cut the log so that it ends at ``offset``; True when anything went.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        if offset >= self.log_end_offset:
            return False
        if offset <= self._bases[0]:
            self.truncate_fully_and_start_at(offset)
            return True
        now_ms = self.environment.now_ms()
        try:
            keep = [segment for segment in self.segments if segment.base_offset <= offset]
            gone = self.segments[len(keep) :]
            self._known.clear()
            self._truncations += 1
            keep[-1].truncate_to(offset, now_ms)
            self._set_segments(keep)
            self._remove_files(gone)
            self.log_end_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self.epochs.truncate_from_end(offset)
            self._reload_producers(now_ms)
        except OSError as error:
            raise self.fail(f"truncation to {offset} failed: {error}") from error
        except CorruptRecordError as error:
            raise self.fail(f"truncation to {offset} failed: {error}") from error
        _log.info("log truncated", topic=self.topic, partition=self.partition, end_offset=offset)
        return True

    def _reload_producers(self, now_ms: int) -> None:
        from .loader import rebuild_producers

        self.producers.load(self.log_start_offset, self.log_end_offset, now_ms)
        rebuild_producers(self.producers, self.segments, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Throw everything away; the log is empty and begins at ``offset``.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        try:
            self._known.clear()
            self._truncations += 1
            old = self.segments
            self._remove_files(old)
            self._set_segments(
                [
                    LogSegment.create(
                        self.environment.files,
                        self.path,
                        offset,
                        self.config,
                        now_ms=self.environment.now_ms(),
                    )
                ]
            )
            self._new_files = True
            self._torn = False
            self.log_start_offset = self.log_end_offset = self.recovery_point = offset
            self.epochs.clear()
            self.producers.clear(offset)
        except OSError as error:
            raise self.fail(f"truncation failed: {error}") from error
        _log.info("log truncated fully", topic=self.topic, partition=self.partition, start_offset=offset)

    def advance_log_start_offset(self, offset: int) -> bool:
        """Hide everything below ``offset`` (DeleteRecords); True when that moved the start.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) behind the high watermark. Segments go with the next retention
        pass.
        """
        if offset > self.committed_offset():
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: {offset} lies behind the high watermark {self.committed_offset()}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        _log.info("log start advanced", topic=self.topic, partition=self.partition, start_offset=offset)
        return True

    def delete_old_segments(self, now_ms: int) -> int:
        """Let go of the segments that the topic's retention does not keep; how many. Raises KafkaError."""
        from .retention import expired_segments

        expired, reason = expired_segments(self, now_ms)
        if expired:
            self._delete_segments(expired, reason, now_ms)
        return expired

    def _delete_segments(self, count: int, reason: str, now_ms: int) -> None:
        """Remove the first ``count`` segments, readers keep what they have; the active one is rolled before it goes."""
        if count == len(self.segments):
            self.roll(now_ms)
        gone, left = self.segments[:count], self.segments[count:]
        try:
            self._set_segments(left)
            self._known.clear()
            self._remove_files(gone)
        except OSError as error:
            raise self._storage_error("segments could not be removed", error) from error
        start = max(self.log_start_offset, left[0].base_offset)
        self.recovery_point = max(self.recovery_point, left[0].base_offset)
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.epochs.truncate_from_start(start)
        _log.info(
            "segments deleted",
            topic=self.topic,
            partition=self.partition,
            segments=count,
            bytes=sum(segment.size for segment in gone),
            start_offset=start,
            reason=reason,
        )

    def _remove_files(self, segments: Sequence[LogSegment]) -> None:
        """Rename to ``.deleted`` now, unlink after file.delete.delay.ms: who reads them meanwhile can go on."""
        for segment in segments:
            segment.rename(names.DELETED)
            self.producers.remove_snapshot(segment.base_offset)
        if segments:
            unlink = [segment.unlink for segment in segments]

            def remove() -> None:
                for one in unlink:
                    try:
                        one()
                    except OSError as error:
                        _log.warning("a deleted segment's file stays", folder=self.path, why=str(error))

            self.environment.later(self.config.file_delete_delay_ms, remove)
            self._new_files = True

    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """Put compacted segments (``.cleaned`` files, synced) in the place of those they were made from.

        First the new ones become ``.swap`` (last first): from then on a restart finishes the swap; then the
        old ones go; then the new ones get their names (LocalLog.replaceSegments). Raises
        KafkaError(KAFKA_STORAGE_ERROR).
        """
        bases = {segment.base_offset for segment in new}
        gone = {id(segment) for segment in old}
        try:
            for segment in reversed(new):
                segment.rename(names.SWAP)
            self._known.clear()
            kept = [segment for segment in self.segments if id(segment) not in gone]
            self._set_segments(sorted((*kept, *new), key=lambda segment: segment.base_offset))
            for segment in old:
                if segment.base_offset in bases:
                    # Its snapshot describes the state before the same offset: the new segment's as well.
                    self._remove_but_snapshot(segment)
                else:
                    self._remove_files([segment])
            for segment in new:
                segment.rename("")
            self._new_files = True
        except OSError as error:
            raise self.fail(f"the swap of compacted segments failed: {error}") from error

    def _remove_but_snapshot(self, segment: LogSegment) -> None:
        segment.rename(names.DELETED)
        self.environment.later(self.config.file_delete_delay_ms, segment.unlink)

    # --- closing ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and let go of the files, leaving a producer snapshot at the end. Raises
        KafkaError(KAFKA_STORAGE_ERROR).

        An unopened log has nothing to close.
        """
        if not self.is_open or self.failure is not None:
            return
        try:
            self.producers.end_offset = self.log_end_offset
            self.producers.take_snapshot()
            for segment in self.segments[:-1]:
                segment.file.close()
            self.active.close()
        except OSError as error:
            raise self._storage_error("the log could not be closed", error) from error
        if self.recovery_point < self.log_end_offset or self.epochs.dirty or self._new_files:
            self.flush()
        self.active.file.close()


def _whole_batches(data: memoryview, offset: int) -> tuple[int, int]:
    """How many bytes of ``data`` are whole batches, and the offset behind them."""
    used = 0
    while len(data) - used >= 61:
        size = int.from_bytes(data[used + 8 : used + 12], "big") + 12
        if used + size > len(data):
            break
        offset = (
            int.from_bytes(data[used : used + 8], "big")
            + int.from_bytes(data[used + 23 : used + 27], "big")
            + 1
        )
        used += size
    return used, offset


def _retrieve(future: asyncio.Future[None]) -> None:
    """For a flush nobody waits for: its error has been logged by the log itself."""
    if not future.cancelled():
        future.exception()
