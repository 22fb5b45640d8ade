"""Moves of logs between this broker's data folders (KIP-113): Kafka's ReplicaAlterLogDirsManager and its threads.

A move fills a copy of the log in the other folder (:mod:`ottla_broker.log.future_logs`), as a follower fills its log,
and puts it in the log's place when it has all of it. Files are read on a thread. Batches are appended on the event
loop, in chunks that take it a few milliseconds, with pauses between them that are as long.

A log and its copy change places in one turn of the loop. Everything that fsyncs have been acknowledged for is on the
copy's device by then: those of the last moments are acknowledged when the copy's is made. What happens during a move:

=================================  ===================================================================================
retention, DeleteRecords           the copy follows the log's start; retention applies to both
compaction                         waits for the end of the move
the leader truncates a follower    the copy is truncated to what both have, by their leader epochs (KIP-101)
another leader, another epoch      nothing: whatever comes into the log is copied
another configuration              applies to both
the topic is deleted               the copy is removed, then the log
another move of the partition      to the log's own folder: the copy is removed; to a third one: it is begun there
the copy's disk fails, or is full  the move ends, and the copy is removed where that is possible
the log's disk fails               the move ends with the partition; a restart goes on with it
the broker stops or dies           the next start goes on with it
=================================  ===================================================================================
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.files import Files, FileSlice
from ottla_broker.log.folder import DataFolder
from ottla_broker.log.log import Log
from ottla_broker.log.manager import LogManager
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.partition import Partition, Role
from ottla_broker.replica.replication_quota import ALL, ReplicationQuota
from ottla_broker.tasks import Tasks
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.schema import ZERO_UUID

Key = tuple[str, int]

_LEAST_CHUNK: Final = 64 << 10
_LARGEST_CHUNK: Final = 1 << 20
_HOLD_SECONDS: Final = 0.5
"""How long fsyncs of a log may be held back before the copy takes its place."""
_SHORT_SECONDS: Final = 0.003
_LONG_SECONDS: Final = 0.01
"""Chunks grow while the loop takes less than the one to append them, and shrink when it takes more than the other."""
_QUOTA_PAUSE_SECONDS: Final = 0.1
_OFFSET_BYTES: Final = 8

_log = get_logger()


class LogDirMoves:
    """All moves of a broker. Owned by the loop thread.

    Attributes:
        quota: ``replica.alter.log.dirs.io.max.bytes.per.second``.
    """

    def __init__(self, environment: ReplicaEnvironment) -> None:
        self.quota = ReplicationQuota(environment.clock, environment.broker_id, lambda topic: ALL)
        self._environment = environment
        self._logs = environment.logs
        self._moves: dict[Key, asyncio.Task[None]] = {}
        # Moves and what is left to do after them.
        self._tasks = Tasks()
        self._turn = asyncio.Lock()

    async def alter(self, partition: Partition, folder: DataFolder) -> None:
        """Move a partition's log to a data folder; its own folder ends a move under way.

        Raises KafkaError: KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER when this broker no longer has the partition.
        """
        key = (partition.topic, partition.partition)
        future_logs = self._logs.future
        async with self._turn:
            await self._logs.prepare_future(*key)
            if partition.role is Role.OFFLINE:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
            current = partition.log
            if self._logs.get(*key) is not current:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            future = future_logs.get(*key)
            if future is not None and future_logs.folder_of(future) is not folder:
                _log.info("move given up", topic=key[0], partition=key[1], folder=future.path)
                self.stop(*key)
                future_logs.remove(*key)
                future = None
            if future_logs.folder_of(current) is folder:
                return
            if future is None:
                failed = [each.path for each in self._logs.folders if each.failed]
                if failed:
                    # One of them may have a copy already.
                    raise KafkaError(
                        ErrorCode.KAFKA_STORAGE_ERROR, f"failed data folders: {', '.join(failed)}"
                    )
                future_logs.create(current, folder)
                _log.info("move begun", topic=key[0], partition=key[1], to=folder.path)
            self.resume(partition)

    def resume(self, partition: Partition) -> None:
        """Go on with a partition's move, if its log has a copy."""
        key = (partition.topic, partition.partition)
        future = self._logs.future.get(*key)
        if future is None or key in self._moves:
            return
        try:
            is_of_other_topic = future.topic_id not in (partition.topic_id, ZERO_UUID)
        except KafkaError as error:
            _log.error("move can't go on", topic=key[0], partition=key[1], why=error.message)
            return
        if is_of_other_topic:
            _log.warning("copy of an earlier topic's log removed", topic=key[0], partition=key[1])
            self._logs.future.remove(*key)
            return
        self._moves[key] = self._tasks.start(self._run(partition, future))

    def stop(self, topic: str, partition: int) -> None:
        """Stop a partition's move, if it has one; the copy stays."""
        task = self._moves.pop((topic, partition), None)
        if task is not None:
            task.cancel()

    def folder_failed(self, path: str) -> None:
        """Give up the moves to a data folder that has failed."""
        for future in self._logs.future.logs():
            if self._logs.future.folder_of(future).path == path:
                self.stop(future.topic, future.partition)
                self._logs.future.abandon(future.topic, future.partition)

    async def close(self) -> None:
        """Stop all moves; the next start goes on with them."""
        self._moves.clear()
        await self._tasks.close()

    async def _run(self, partition: Partition, future: Log) -> None:
        key = (partition.topic, partition.partition)
        task = asyncio.current_task()
        about = {"topic": partition.topic, "partition": partition.partition, "folder": future.path}
        try:
            move = _Move(self._environment, self.quota, partition, future)
            await move.fill()
            if self._moves.get(key) is task:
                del self._moves[key]
            await move.finish()
            _log.info("log moved", **about)
        except _CopyRefusedError as error:
            _log.error("move given up: the copy can't be written", why=str(error), **about)
            if self._logs.future.get(*key) is future:
                self._logs.future.remove(*key)
        except (KafkaError, OSError) as error:
            _log.error("move interrupted until the next start or request", why=str(error), **about)
        except Exception:
            _log.exception("move failed", **about)
        finally:
            if self._moves.get(key) is task:
                del self._moves[key]


class _CopyRefusedError(Exception):
    """The copy can't be written."""


class _Move:
    def __init__(
        self, environment: ReplicaEnvironment, quota: ReplicationQuota, partition: Partition, future: Log
    ) -> None:
        self._clock = environment.clock
        self._logs: LogManager = environment.logs
        self._quota = quota
        self._partition = partition
        self._current = partition.log
        self._future = future
        self._chunk = _LEAST_CHUNK
        # How often the log had been truncated when the copy was last compared with it.
        self._truncations = -1

    async def fill(self) -> None:
        """Copy the log and put the copy in its place. Raises _CopyRefusedError, KafkaError, OSError."""
        future, current, run = self._future, self._current, self._logs.background.run
        files, flusher = self._logs.files, self._logs.flusher
        await run(_forget_replacement, files, current.path)
        future.open()
        future.high_watermark = lambda: self._partition.high_watermark
        while await self._copy():
            pass
        await self._flush()
        await run(files.replace, f"{future.path}/{names.REPLACEMENT}", current.path.encode())
        while True:
            while await self._copy():
                pass
            flusher.hold(current)
            try:
                if await self._catch_up():
                    return
            finally:
                flusher.release(current)
            await self._clock.sleep(_HOLD_SECONDS)

    async def _catch_up(self) -> bool:
        """Copy the log's end and put the copy in its place, while no one learns of fsyncs of the log.

        False when that takes too long. Raises _CopyRefusedError, KafkaError.
        """
        flushed = self._current.recovery_point
        deadline = self._clock.monotonic() + _HOLD_SECONDS
        while self._clock.monotonic() < deadline:
            if self._replace(flushed):
                return True
            if self._future.recovery_point < flushed or self._logs.flusher.is_busy(self._future):
                await self._flush()
            await self._copy()
        return False

    async def finish(self) -> None:
        """Bring the new names and the folders' checkpoints to the device; maintenance would do so later."""
        folders = [each.rpartition("/")[0] for each in (self._current.path, self._future.path)]
        try:
            await self._logs.background.run(_sync_names, self._logs.files, folders, self._future.path)
            await self._logs.write_high_watermarks({})
            await self._logs.maintenance.checkpoint_recovery_points()
            await self._logs.maintenance.checkpoint_log_starts()
        except (KafkaError, OSError) as error:
            _log.warning("checkpoints not written after a move", partition=self._future.name, why=str(error))

    async def _copy(self) -> bool:
        """Copy a chunk; False when less than that is left."""
        while self._quota.exceeded:
            await self._clock.sleep(_QUOTA_PAUSE_SECONDS)
        found = self._next(self._chunk)
        if recorded := self._future.unflushed.truncation_recorded():
            await recorded
        if found is None:
            return False
        is_full = 2 * found.size > self._chunk
        data = await self._logs.background.run(found.read)
        if self._truncations == self._current.truncations:
            began = self._clock.monotonic()
            self._append(data)
            seconds = self._clock.monotonic() - began
            if seconds < _SHORT_SECONDS:
                self._chunk = min(_LARGEST_CHUNK, 2 * self._chunk)
            elif seconds > _LONG_SECONDS:
                self._chunk = max(_LEAST_CHUNK, self._chunk // 2)
            await self._clock.sleep(seconds)
        return is_full

    def _next(self, max_bytes: int) -> FileSlice | None:
        """Return what the copy lacks, up to ``max_bytes``; None when it has everything. Raises KafkaError."""
        current, future = self._current, self._future
        try:
            if self._truncations != current.truncations:
                self._truncations = current.truncations
                future.truncate_to(_common_end(current, future))
            if not current.log_start_offset <= future.log_end_offset <= current.log_end_offset:
                future.truncate_fully_and_start_at(current.log_start_offset)
        except KafkaError as error:
            raise _CopyRefusedError(error.message) from error
        end = current.log_end_offset
        found = current.reader.read(future.log_end_offset, max_bytes, max_offset=end, min_one=True)
        if found is None:
            # The log may end in a gap that compaction left, after a truncation.
            future.log_end_offset = end
        return found

    def _append(self, data: bytes) -> None:
        """Append a chunk to the copy. Raises _CopyRefusedError."""
        future = self._future
        before = future.log_end_offset
        try:
            first = int.from_bytes(data[:_OFFSET_BYTES], "big")
            if first < before:
                # The log starts, or was truncated, in the middle of a batch, which is copied as a whole.
                future.truncate_to(first)
            self._quota.record(future.append_as_follower(memoryview(data)).size)
            self._follow_start()
        except KafkaError as error:
            raise _CopyRefusedError(error.message) from error
        if future.log_end_offset <= before:
            raise _CopyRefusedError(f"no whole batch at offset {before}")

    def _follow_start(self) -> None:
        start = min(self._current.log_start_offset, self._future.log_end_offset)
        if start > self._future.log_start_offset:
            self._future.advance_log_start_offset(start)

    def _replace(self, flushed: int) -> bool:
        """Put the copy in the log's place, unless it lacks too much, or has too little of ``flushed`` on the device.

        Nor while an fsync of it is under way: should that fail, the next one may succeed without its data. Raises
        _CopyRefusedError, KafkaError.
        """
        tail = self._next(self._chunk)
        if tail is not None:
            self._append(tail.read())
        future = self._future
        if (
            future.log_end_offset != self._current.log_end_offset
            or future.recovery_point < flushed
            or self._logs.flusher.is_busy(future)
        ):
            return False
        if future.failure is not None:
            raise _CopyRefusedError(future.failure)
        self._follow_start()
        self._partition.replace_log(
            self._logs.future.replace_current(self._partition.topic, self._partition.partition)
        )
        return True

    async def _flush(self) -> None:
        """Bring the copy to the device, and wait for every fsync of it. Raises _CopyRefusedError."""
        flusher = self._logs.flusher
        try:
            await flusher.request(self._future, self._future.log_end_offset)
        except KafkaError as error:
            raise _CopyRefusedError(error.message) from error
        await flusher.idle(self._future)


def _common_end(current: Log, future: Log) -> int:
    """Up to where a log and its copy have the same batches: as far as their leader epochs agree (KIP-101)."""
    if current.log_start_offset < future.log_start_offset:
        return min(current.log_start_offset, future.log_end_offset)
    end = min(current.log_end_offset, future.log_end_offset)
    while end > future.log_start_offset:
        epoch = future.epochs.epoch_at(end - 1)
        if epoch < 0:
            break
        found, epoch_end = current.epoch_end_offset(epoch)
        if found == epoch:
            return min(end, epoch_end)
        end = max(start for start in future.epochs.starts if start < end)
    return future.log_start_offset


def _forget_replacement(files: Files, path: str) -> None:
    """Remove the mark that a log took another one's place, before another one takes its. Raises OSError."""
    mark = f"{path}/{names.REPLACEMENT}"
    if files.exists(mark):
        files.unlink(mark)
        files.sync_folder(path)


def _sync_names(files: Files, folders: list[str], path: str) -> None:
    """Bring the names of a log's old and new folder to the device. Raises OSError."""
    for folder in folders:
        files.sync_folder(folder)
    files.unlink(f"{path}/{names.REPLACEMENT}")
