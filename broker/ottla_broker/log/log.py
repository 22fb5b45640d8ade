"""One partition's log: append, roll, truncate, flush, delete old segments; Kafka's UnifiedLog and LocalLog.

A log is a row of segments in a folder. These always hold::

    log_start_offset <= log_end_offset     readable: from the log start offset to the log end offset
    recovery_point   <= log_end_offset     on the device: everything below the recovery point (see unflushed.py)

Concurrency: a log belongs to the event loop's thread. ``segments`` is replaced, never changed, so a reader that holds
it keeps a consistent view while segments come and go. Only :meth:`LogSegment.batches`, :meth:`FlushJob.run` and the
functions given to ``environment.later`` run on other threads.

A log is made closed: a name and the offsets of the checkpoints. :meth:`Log.open` reads its folder, and nothing but the
methods that say so may be called before. That lets a broker with 10,000 partitions start at once.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.checkpoints import encode_topic_id, read_topic_id
from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import CorruptFileError
from ottla_broker.log.index import MAX_RELATIVE
from ottla_broker.log.leader_epoch import LeaderEpochs
from ottla_broker.log.producer_state import ProducerStates, read_marker
from ottla_broker.log.reader import LogReader
from ottla_broker.log.record_validation import Validated, recompress, validate
from ottla_broker.log.segment import LogSegment
from ottla_broker.log.segment_list import SegmentList
from ottla_broker.log.unflushed import Unflushed
from ottla_broker.log.validator import AppendInfo, check_batch, check_stored_batch
from ottla_broker.log.verification import VerificationGuard
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import (
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    assign_offset,
    set_log_append_time,
)

if TYPE_CHECKING:
    from ottla_broker.log.retention import LogView, Policies
    from ottla_protocol.records.control import ControlRecord

NOT_TRUNCATED: Final = 2**63 - 1
_NO_TOPIC_ID: Final = bytes(16)

_log = get_logger()


class Log:
    """The log of one partition.

    Attributes:
        name: topic and partition as in folder names and messages.
        failure: why the log is out of use until the broker restarts; None while it works.
        high_watermark: asked for the offset below which everything is committed; without it, that is the log's end.
        lowest_truncation: the lowest offset the log was truncated to since the cleaner last reset this.
        reader: reads the log, once it is open; so are the attributes after it.
    """

    __slots__ = (
        "_has_new_id",
        "_initial_recovery_point",
        "_initial_start",
        "_may_have_gaps",
        "_segments",
        "_topic_id",
        "_was_clean",
        "config",
        "environment",
        "epochs",
        "failure",
        "high_watermark",
        "is_open",
        "log_end_offset",
        "log_start_offset",
        "lowest_truncation",
        "name",
        "partition",
        "path",
        "producers",
        "reader",
        "topic",
        "unflushed",
    )

    reader: LogReader
    unflushed: Unflushed
    _segments: SegmentList
    log_start_offset: int
    log_end_offset: int
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
        may_have_gaps: bool = False,
    ) -> None:
        """A closed log in the folder ``path``, which exists.

        ``log_start_offset`` and ``recovery_point`` come from the checkpoints; ``clean``: the last stop was.
        ``may_have_gaps``: it was compacted at some time.
        """
        self.path = path
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.config = config
        self.environment = environment
        self.is_open = False
        self.failure: str | None = None
        self.high_watermark: Callable[[], int] | None = None
        self.lowest_truncation = NOT_TRUNCATED
        self._topic_id = topic_id
        self._initial_start = log_start_offset
        self._initial_recovery_point = recovery_point
        self._was_clean = clean
        self._may_have_gaps = may_have_gaps
        # Whether partition.metadata was written, until the log is open.
        self._has_new_id = topic_id is not None

    def open(self) -> Log:
        """Read the folder, recovering from an unclean stop; an open log stays as it is. Returns the log.

        Raises KafkaError: KAFKA_STORAGE_ERROR, also when the log is out of use.
        """
        if self.is_open:
            return self
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        from ottla_broker.log.loader import load

        try:
            loaded = load(
                self.environment,
                self.path,
                self.name,
                self.config,
                log_start_offset=self._initial_start,
                recovery_point=self._initial_recovery_point,
                clean=self._was_clean,
                may_have_gaps=self._may_have_gaps,
            )
        except (OSError, CorruptRecordError) as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: cannot be opened: {error}"
            ) from error
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.producers.monotonic = self.environment.monotonic
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self._segments = SegmentList(self.environment, self.path, loaded.segments)
        self.reader = LogReader(self, self._segments)
        self.producers.was_aborted = self.reader.was_aborted
        self.unflushed = Unflushed(
            self,
            self._segments,
            self.environment,
            loaded,
            checkpointed=self._initial_recovery_point,
            has_new_id=self._has_new_id,
        )
        self.is_open = True
        return self

    @property
    def topic_id(self) -> bytes:
        """The topic's id from ``partition.metadata``; zeros when it has none."""
        topic_id = self._topic_id
        if topic_id is None:
            path = f"{self.path}/{names.PARTITION_METADATA}"
            try:
                topic_id = read_topic_id(self.environment.files, path)
            except (CorruptFileError, OSError) as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error}") from error
            self._topic_id = topic_id
        return topic_id

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Give a log that has none its topic's id. Raises KafkaError: INCONSISTENT_TOPIC_ID when it has another."""
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
            raise self.storage_error("cannot store the topic id", error) from error
        self._topic_id = topic_id
        if self.is_open:
            self.unflushed.topic_id_written()
        else:
            self._has_new_id = True

    def rename_folder(self, path: str) -> None:
        """Give the folder of an open log another name; what was read of it before stays readable. Raises OSError.

        No fsync may be under way whose outcome matters: it would look for the old name.
        """
        self.environment.files.rename(self.path, path)
        self.path = path
        self._segments.folder_renamed(path)
        self.producers.folder_renamed(path)
        self.unflushed.names_changed()

    def replace(self, old: Log) -> None:
        """Take over what an identical log knows beyond its records: epochs without records, the last truncation."""
        self.epochs = old.epochs.copy()
        self.epochs.truncate_from_start(self.log_start_offset)
        self.lowest_truncation = old.lowest_truncation
        self.producers.hear_as(old.producers)

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is on the device."""
        return self.unflushed.recovery_point

    @property
    def truncations(self) -> int:
        """The number of times that the log was truncated since it was opened."""
        return self.unflushed.truncations

    @property
    def segments(self) -> Sequence[LogSegment]:
        """The segments, ascending."""
        return self._segments.all

    @property
    def active(self) -> LogSegment:
        return self._segments.active

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._segments.size

    @property
    def checkpoint_recovery_point(self) -> int:
        """The recovery point for the checkpoint; also of a closed log."""
        return self.recovery_point if self.is_open else self._initial_recovery_point

    @property
    def checkpoint_start_offset(self) -> int:
        """The log start offset for the checkpoint, 0 where the first segment says it; also of a closed log."""
        if not self.is_open:
            return self._initial_start
        return self.log_start_offset if self.log_start_offset > self._segments.base_offsets[0] else 0

    def committed_offset(self) -> int:
        """The offset below which everything is committed."""
        high_watermark = self.high_watermark
        return self.log_end_offset if high_watermark is None else min(high_watermark(), self.log_end_offset)

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``leader_epoch``, and where it ends; ``(-1, -1)`` when unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def storage_error(self, what: str, error: OSError) -> KafkaError:
        """Log that the disk refused something and report its data folder; the error to raise."""
        message = f"{self.name}: {what}: {error.strerror or error}"
        _log.error("storage error", topic=self.topic, partition=self.partition, what=what, why=str(error))
        self._report_failure()
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def fail(self, why: str) -> KafkaError:
        """Take the log out of use until the broker restarts; the error to raise."""
        if self.failure is None:
            self.failure = f"{self.name}: {why}; the log is out of use until the broker restarts"
            _log.error("log failed", topic=self.topic, partition=self.partition, why=why)
            self._report_failure()
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)

    def _report_failure(self) -> None:
        if self.environment.on_failure is not None:
            self.environment.on_failure(self.path.rpartition("/")[0])

    def append(
        self,
        records: memoryview | bytearray | Validated,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append as the leader: check the batch, assign its offsets in ``records`` itself, and store it.

        ``from_client``: the records are a produce request's, so they must be one batch without anything that only
        leaders write; they may have been validated before. Otherwise they may be several batches, and markers that end
        transactions. A client's transactional batch needs a ``guard``; see :mod:`.verification`. Raises KafkaError:
        with the code for the produce response; the log is as it was.
        """
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        config = self.config
        view, header = records if isinstance(records, Validated) else (memoryview(records), None)
        if from_client:
            if guard is None and len(view) > HEADER_SIZE and view[FLAGS_AT] & TRANSACTIONAL:
                raise KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    f"{self.name}: a transactional batch needs a transactional id in its request",
                )
            if header is None:
                view, header = validate(view, config, self.name, now_ms)
        else:
            header = check_batch(view, 0, config, self.name)
            if header.is_control or header.batch_length + 12 != len(view):
                return self._append_several(view, header, leader_epoch, now_ms)
        first = self.log_end_offset
        last = first + header.last_offset_delta
        last_sequence = -1
        if header.producer_id >= 0:
            last_sequence = header.last_sequence
            if guard is not None and not self.environment.verifies_transactions:
                guard = None
            sent = self.producers.check(header, last_sequence, from_client=from_client, guard=guard)
            if sent is not None:
                return AppendInfo(
                    sent.first_offset, sent.last_offset, sent.timestamp, self.log_start_offset, 0, True
                )
        if config.compression_type != "producer" and not from_client:
            view, header = recompress(view, header, config, self.name)
        append_time = -1
        if config.message_timestamp_type != "CreateTime":
            header = set_log_append_time(view, 0, header, now_ms)
            append_time = now_ms
        if len(view) > config.segment_bytes:
            raise self._too_large(len(view))
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
            last + 1 - self.unflushed.recovery_point >= config.flush_messages,
        )

    def _append_several(
        self, view: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """Append a coordinator's batches: checked one by one, the first has been, and written in one piece."""
        config = self.config
        next_offset = self.log_end_offset
        batches: list[BatchHeader] = []
        markers: list[ControlRecord | None] = []
        position = 0
        if len(view) > config.segment_bytes:
            raise self._too_large(len(view))
        while position < len(view):
            if position:
                header = check_batch(view, position, config, self.name)
            markers.append(self._check_producer(header, view[position : position + header.size]))
            if config.log_append_time:
                header = set_log_append_time(view, position, header, now_ms)
            assign_offset(view, position, next_offset, leader_epoch)
            batches.append(header._replace(base_offset=next_offset, partition_leader_epoch=leader_epoch))
            next_offset += header.last_offset_delta + 1
            position += header.size
        self._write_batches(view, batches, now_ms)
        self._replay(view, batches, markers)
        return self._stored(batches, now_ms if config.log_append_time else -1)

    def _check_producer(self, header: BatchHeader, batch: memoryview) -> ControlRecord | None:
        """Check a coordinator's batch, and return its marker if it is one. Raises KafkaError."""
        if not header.is_control:
            self.producers.check(header, header.last_sequence, from_client=False)
            return None
        marker = self._read_marker(header, batch)
        if marker is not None:
            self.producers.check_marker(header, marker)
        return marker

    def _read_marker(self, header: BatchHeader, batch: memoryview) -> ControlRecord | None:
        try:
            return read_marker(header, batch)
        except CorruptRecordError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {error}") from error

    def _stored(self, headers: list[BatchHeader], append_time: int) -> AppendInfo:
        """Return how the batches were stored that the log ends with now."""
        due = self.log_end_offset - self.unflushed.recovery_point >= self.config.flush_messages
        first, size = headers[0].base_offset, sum(header.size for header in headers)
        return AppendInfo(
            first, headers[-1].last_offset, append_time, self.log_start_offset, size, flush_due=due
        )

    def _too_large(self, size: int) -> KafkaError:
        return KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{self.name}: {size} bytes are more than a segment takes ({self.config.segment_bytes})",
        )

    def append_as_follower(self, records: memoryview | bytearray) -> AppendInfo:
        """Append the leader's batches with the offsets and epochs they have, without a partial last batch.

        Raises KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE for offsets that are not new, KAFKA_STORAGE_ERROR.
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
            header = check_stored_batch(view, end, config, self.name)
            if header.base_offset < next_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.name}: the leader sent offset {header.base_offset}, {next_offset} is next",
                )
            if header.is_control:
                self._read_marker(header, view[end : end + header.size])
            headers.append(header)
            next_offset = header.last_offset + 1
            end += header.size
        if not headers:
            return AppendInfo(self.log_end_offset, self.log_end_offset - 1, -1, self.log_start_offset, 0)
        self._write_as_follower(view[:end], headers)
        for header in headers:
            if header.is_control:
                self.producers.marked_elsewhere(header.producer_id)
        return self._stored(headers, -1)

    def _write_as_follower(self, view: memoryview, headers: list[BatchHeader]) -> None:
        """Write in pieces that fit into a segment; a batch larger than a segment, which the leader allowed, alone."""
        limit = self.config.segment_bytes
        now_ms = self.environment.now_ms()
        position = at = 0
        while at < len(headers):
            size = headers[at].size
            until = at + 1
            while until < len(headers) and size + headers[until].size <= limit:
                size += headers[until].size
                until += 1
            part = view[position : position + size]
            self._write_batches(part, headers[at:until], now_ms)
            self._replay(part, headers[at:until])
            position += size
            at = until

    def _replay(
        self, view: memoryview, headers: list[BatchHeader], markers: Sequence[ControlRecord | None] = ()
    ) -> None:
        """Update the producers' state from batches that were written; ``markers``: those that have been read."""
        position = 0
        try:
            for index, header in enumerate(headers):
                marker = markers[index] if markers else None
                ended = self.producers.replay(header, view[position : position + header.size], marker)
                if ended is not None and ended.aborted:
                    self.reader.add_aborted(self.active, self.producers.aborted_entry(ended))
                position += header.size
        except OSError as error:
            # The batches are in the log. Only a recovery can bring its index and its producers' state up to date.
            raise self.fail(f"a transaction's end could not be recorded: {error}") from error

    def _write_batches(self, view: memoryview, headers: list[BatchHeader], now_ms: int) -> None:
        newest = max(headers, key=lambda header: header.max_timestamp)
        first, last = self.log_end_offset, headers[-1].last_offset
        if headers[0].magic == MAGIC and last - first > MAX_RELATIVE:
            # Otherwise a segment begins where the last one ends, even if compaction has left a gap here: after a power
            # failure, a gap between segments shows that records are missing.
            first = headers[0].base_offset
        self._write(view, first, last, newest.max_timestamp, newest.last_offset, now_ms)
        for header in headers:
            if header.partition_leader_epoch != self.epochs.latest:
                if header.magic == MAGIC:
                    self.epochs.assign(header.partition_leader_epoch, header.base_offset)
                else:
                    # Old formats have no epochs: after them those before prove nothing.
                    self.epochs.clear()

    def _write(
        self, view: memoryview, first: int, last: int, timestamp: int, timestamp_offset: int, now_ms: int
    ) -> None:
        """Put whole batches into the active segment or, where it is full, into a new one."""
        config, segments = self.config, self._segments
        try:
            if segments.is_torn:
                segments.remove_torn()
            segment = segments.active
            if segment.must_roll(config, len(view), timestamp, last, now_ms):
                segment = self._roll(first, now_ms)
            segment.append(view, last, timestamp, timestamp_offset, config.index_interval_bytes)
        except OSError as error:
            segments.write_failed()
            raise self.storage_error("the batch could not be written", error) from error
        except (CorruptRecordError, CorruptFileError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error}") from error
        self.log_end_offset = last + 1

    def roll(self, now_ms: int | None = None) -> LogSegment:
        """Begin a new segment at the end of the log, unless the active one is empty. Raises KafkaError."""
        if not self.active.size and self.active.base_offset == self.log_end_offset:
            return self.active
        try:
            return self._roll(self.log_end_offset, self.environment.now_ms() if now_ms is None else now_ms)
        except OSError as error:
            raise self.storage_error("no new segment could be made", error) from error

    def _roll(self, base_offset: int, now_ms: int) -> LogSegment:
        """Seal the active segment and begin another one. Raises OSError."""
        flusher = self.environment.flusher
        self.active.seal()
        self.producers.end_offset = base_offset
        self.producers.write_snapshot()
        segment = self._segments.roll(base_offset, self.config, now_ms)
        self.unflushed.names_changed()
        # A reader at the end was to continue after the old segment's last batch.
        self.reader.forget_position(self.log_end_offset)
        if flusher is not None and base_offset > self.unflushed.recovery_point:
            flusher.start(self)
        _log.debug("segment rolled", topic=self.topic, partition=self.partition, base_offset=base_offset)
        return segment

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log to end at ``offset``; True when that removed anything.

        Before more is appended, wait for :meth:`.Unflushed.truncation_recorded`. Raises KafkaError.
        """
        if offset >= self.log_end_offset:
            # No records to remove, but maybe an epoch in which this broker led and wrote nothing.
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset <= self._segments.base_offsets[0]:
            self.truncate_fully_and_start_at(offset)
            return True
        from ottla_broker.log.loader import rebuild_producers

        now_ms = self.environment.now_ms()
        self.lowest_truncation = min(self.lowest_truncation, offset)
        try:
            self.reader.forget_positions()
            self.unflushed.truncation_begins()
            removed = self._segments.truncate_to(offset, now_ms, self.config.file_delete_delay_ms)
            self._remove_snapshots(removed)
            self.log_end_offset = offset
            self.unflushed.truncated_to(offset, self.log_start_offset, self.active)
            self.log_start_offset = min(self.log_start_offset, offset)
            self.epochs.truncate_from_end(offset)
            self.producers.load(self.log_start_offset, offset, now_ms)
            rebuild_producers(self.producers, self.segments, offset)
        except (OSError, CorruptRecordError, CorruptFileError) as error:
            raise self.fail(f"truncation to {offset} failed: {error}") from error
        _log.info("log truncated", topic=self.topic, partition=self.partition, end_offset=offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and begin at ``offset``. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        self.lowest_truncation = min(self.lowest_truncation, offset)
        try:
            self.reader.forget_positions()
            self.unflushed.truncation_begins()
            self._remove_files(self.segments)
            self._segments.restart_at(offset, self.config, self.environment.now_ms())
            self.unflushed.names_changed()
            # The recovery point isn't raised: the old segments may come back with a power failure, to be checked then.
            self.unflushed.truncated_to(offset, self.log_start_offset)
            self.log_start_offset = self.log_end_offset = offset
            self.epochs.clear()
            self.producers.clear(offset)
        except OSError as error:
            raise self.fail(f"truncation failed: {error}") from error
        _log.info("log truncated fully", topic=self.topic, partition=self.partition, start_offset=offset)

    def advance_log_start_offset(self, offset: int) -> bool:
        """Hide everything below ``offset`` (DeleteRecords); True when that moved the start.

        The next retention pass removes the segments. Raises KafkaError: OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self.committed_offset():
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: {offset} is above the high watermark {self.committed_offset()}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        _log.info("log start advanced", topic=self.topic, partition=self.partition, start_offset=offset)
        return True

    def view(self, now_ms: int) -> LogView:
        """Return what retention policies decide by."""
        from ottla_broker.log.retention import LogView

        return LogView(
            topic=self.topic,
            partition=self.partition,
            segments=self.segments,
            config=self.config,
            log_start_offset=self.log_start_offset,
            end_offset=self.log_end_offset,
            high_watermark=self.committed_offset(),
            now_ms=now_ms,
        )

    def delete_old_segments(self, now_ms: int, policies: Policies | None = None) -> int:
        """Remove the segments that retention no longer keeps; return their number. Raises KafkaError, OSError.

        ``policies`` are Kafka's by default.
        """
        from ottla_broker.log.retention import BUILT_IN, expired_segments

        count, reason = expired_segments(self.view(now_ms), policies or BUILT_IN)
        return self._delete_first(count, now_ms, reason)

    def delete_segments_below(self, offset: int, reason: str) -> int:
        """Remove the segments that end at or below ``offset``, if they are committed; how many. Raises KafkaError."""
        from ottla_broker.log.retention import removable

        view = self.view(self.environment.now_ms())
        ends = [*self._segments.base_offsets[1:], self.log_end_offset]
        count = min(removable(view), bisect_right(ends, offset))
        return self._delete_first(count, view.now_ms, reason)

    def _delete_first(self, count: int, now_ms: int, reason: str) -> int:
        if not count:
            return 0
        if count == len(self.segments):
            self.roll(now_ms)
        try:
            removed = self._segments.drop_first(count)
            self.reader.forget_positions()
            self._remove_files(removed)
        except OSError as error:
            raise self.storage_error("segments could not be removed", error) from error
        first = self._segments.base_offsets[0]
        start = max(self.log_start_offset, first)
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.epochs.truncate_from_start(start)
        _log.info(
            "segments deleted",
            topic=self.topic,
            partition=self.partition,
            segments=count,
            bytes=sum(segment.size for segment in removed),
            start_offset=start,
            reason=reason,
        )
        return count

    def _remove_files(self, segments: Sequence[LogSegment]) -> None:
        """Remove segments' files and snapshots. Raises OSError."""
        self._segments.remove_files(segments, self.config.file_delete_delay_ms)
        self._remove_snapshots(segments)

    def _remove_snapshots(self, segments: Sequence[LogSegment]) -> None:
        """Remove the snapshots of segments that were removed. Raises OSError."""
        for segment in segments:
            self.producers.remove_snapshot(segment.base_offset)
        if segments:
            self.unflushed.names_changed()

    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """Replace segments by compacted ones: see :meth:`.SegmentList.replace`. Raises KafkaError."""
        try:
            self.reader.forget_positions()
            self._segments.replace(new, old, self.config.file_delete_delay_ms)
            # A snapshot holds the state before its offset, so a new segment keeps the old one's.
            for base_offset in {each.base_offset for each in old} - {each.base_offset for each in new}:
                self.producers.remove_snapshot(base_offset)
            self.unflushed.names_changed()
        except OSError as error:
            raise self.fail(f"the swap of compacted segments failed: {error}") from error

    def flush(self) -> None:
        """Block until all is on the device; on the event loop use :meth:`flushed`. Raises KafkaError."""
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        self.unflushed.flush()

    def flushed(self, end_offset: int) -> asyncio.Future[None]:
        """A future that is done when everything below ``end_offset`` is on the device; waiters share an fsync.

        When the device refuses, it raises KafkaError: KAFKA_STORAGE_ERROR, and the log is out of use.
        """
        flusher = self.environment.flusher
        if flusher is None:
            raise RuntimeError("this log has no flusher: call flush()")
        return flusher.request(self, end_offset)

    def write_out(self, *, beside: bool = False) -> None:
        """Write what is only in memory, without waiting for the device: indexes and producers.

        ``beside`` also writes the epochs, next to their file, whose place they take when ``close(synced=True)`` knows
        that they are on the device. May run on another thread once the log isn't used any longer; a closed log has
        nothing to write. Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        if not self.is_open or self.failure is not None:
            return
        self.unflushed.write_out(beside=beside)

    def close(self, *, synced: bool = False) -> None:
        """Bring everything to the device and close the files; a closed log has nothing to bring.

        ``synced``: all of the machine's disks were synced after :meth:`write_out`, so only the data is checked; they
        have to be synced once more, for names. May run on another thread once the log isn't used any longer. Raises
        KafkaError: KAFKA_STORAGE_ERROR.
        """
        if not self.is_open or self.failure is not None:
            return
        self.write_out()
        self.unflushed.flush_last(synced=synced)
        for segment in self.segments:
            segment.file.close()
