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

from collections.abc import Sequence

from ottla_broker import events
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import BatchHeader, CorruptRecordError, assign_offset, set_log_append_time

from . import names, txn_index
from .append import AppendInfo, check_batch, check_client_batch, recompress
from .reading import LogRead, ReadableLog
from .segment import LogSegment

__all__ = ["AppendInfo", "Log", "LogRead"]

_log = events.get_logger()


class Log(ReadableLog):
    """The log of one partition."""

    __slots__ = ()

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
            header = check_batch(view, end, config, self.name, any_size=True)
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
        self._write_as_follower(view[:end], headers)
        return AppendInfo(
            headers[0].base_offset,
            next_offset - 1,
            -1,
            self.log_start_offset,
            end,
            False,
            next_offset - self.recovery_point >= config.flush_messages,
        )

    def _write_as_follower(self, view: memoryview, headers: list[BatchHeader]) -> None:
        """Write at once what fits into a segment; a batch that is larger, as the leader may have had others, alone."""
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
            self._write_batches(part, headers[at:until], now_ms, any_size=True)
            self._replay(part, headers[at:until])
            position += size
            at = until

    def _replay(self, view: memoryview, headers: list[BatchHeader]) -> None:
        """Take note of what batches that were written say of their producers."""
        position = 0
        for header in headers:
            ended = self.producers.replay(header, view[position : position + header.size])
            if ended is not None:
                txn_index.note_ended(self.active, ended, self.producers)
            position += header.size

    def _write_batches(
        self, view: memoryview, headers: list[BatchHeader], now_ms: int, any_size: bool = False
    ) -> None:
        newest = max(headers, key=lambda header: header.max_timestamp)
        first, last = headers[0].base_offset, headers[-1].last_offset
        self._write(view, first, last, newest.max_timestamp, newest.last_offset, now_ms, any_size)
        for header in headers:
            if header.partition_leader_epoch != self.epochs.latest:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _write(
        self,
        view: memoryview,
        first: int,
        last: int,
        timestamp: int,
        timestamp_offset: int,
        now_ms: int,
        any_size: bool = False,
    ) -> None:
        """Put whole batches into the active segment or, where it is full, into a new one."""
        config = self.config
        size = len(view)
        if size > config.segment_bytes and not any_size:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self.name}: {size} bytes are more than a segment takes ({config.segment_bytes})",
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
        """Take back what a failed write left behind the end; if this fails, the next append tries again."""
        active = self.active
        try:
            active.cut(active.size)
            self._torn = False
        except OSError as error:
            _log.error(
                "cannot cut a failed write", topic=self.topic, partition=self.partition, why=str(error)
            )

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Note that a leader of ``leader_epoch`` begins at ``start_offset`` (appends note it as well)."""
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
        jitter = min(config.segment_jitter_ms, config.max_segment_ms)
        segment = LogSegment.create(
            environment.files,
            self.path,
            base_offset,
            config,
            now_ms=now_ms,
            jitter_ms=environment.random.randrange(jitter) if jitter > 0 else 0,
        )
        self._new_files = True
        # A reader who had come to the end was to go on behind the old segment's last batch.
        self._known.pop(self.log_end_offset, None)
        if old.base_offset == base_offset:
            self._set_segments((*self.segments[:-1], segment))
        else:
            self._set_segments((*self.segments, segment))
        if environment.flusher is not None and base_offset > self.recovery_point:
            environment.flusher.start(self)
        _log.debug("segment rolled", topic=self.topic, partition=self.partition, base_offset=base_offset)
        return segment

    # --- truncation, retention ----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Cut the log so that it ends at ``offset``; True when anything went.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        if offset >= self.log_end_offset:
            # Nothing to cut but the epoch of a leader that this broker once was and that wrote nothing.
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset <= self._bases[0]:
            self.truncate_fully_and_start_at(offset)
            return True
        now_ms = self.environment.now_ms()
        self.lowest_cut = min(self.lowest_cut, offset)
        try:
            keep = [segment for segment in self.segments if segment.base_offset <= offset]
            gone = self.segments[len(keep) :]
            self._known.clear()
            self._truncations += 1
            keep[-1].truncate_to(offset, now_ms)
            txn_index.truncate_to(keep[-1], offset)
            self._set_segments(keep)
            self._remove_files(gone)
            self.log_end_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self.epochs.truncate_from_end(offset)
            self._reload_producers(now_ms)
        except (OSError, CorruptRecordError, txn_index.CorruptTxnIndexError) as error:
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
        self.lowest_cut = min(self.lowest_cut, offset)
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
        """Remove the first ``count`` segments; readers keep what they have. The active one rolls first."""
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
        """Rename to ``.deleted`` now, unlink after file.delete.delay.ms: who reads them can go on."""
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
