"""All logs of a broker: finds them at the start, creates and removes them, and runs their maintenance.

Owned by the loop's thread; only recovery, fsyncs and removals run on others. After a clean stop no log is read until it
is used. After any other stop every log is opened on a thread, and records that were not on the device are checked.
"""

from __future__ import annotations

import asyncio
import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from random import Random
from typing import TYPE_CHECKING, Final

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.checkpoints import encode_topic_id
from ottla_broker.log.config import LogConfig
from ottla_broker.log.deferred_removals import DeferredRemovals
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files, descriptor_budget
from ottla_broker.log.flush import Flusher
from ottla_broker.log.folder import DataFolder, LogDirError, reason_of
from ottla_broker.log.future_logs import FutureLogs
from ottla_broker.log.log import Log
from ottla_broker.log.maintenance import Intervals, LogMaintenance
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.background import Background
    from ottla_broker.clock import Clock
    from ottla_broker.log.producer_state import ProducerStates
    from ottla_broker.log.user_retention import UserRetention

_UNIQUE_BITS: Final = 128
_NAME_SHOWN: Final = 50
_SYNC_ALL_ABOVE: Final = 64
"""With more logs than this to flush at a stop, one sync of the whole machine first makes each fsync cheap."""
_CLOSING_THREADS: Final = 4

_log = get_logger()


class LogManager:
    """The logs in one or more data folders."""

    def __init__(
        self,
        dirs: Sequence[str | PathLike[str]],
        default_config: LogConfig,
        clock: Clock,
        background: Background,
        random: Random,
        *,
        files: Files | None = None,
        recovery_threads: int = 1,
        producer_id_expiration_ms: int = 24 * 60 * 60 * 1000,
        intervals: Intervals | None = None,
    ) -> None:
        self._paths = [fspath(path).rstrip("/") or "/" for path in dirs]
        self._default_config = default_config
        self.clock = clock
        self.background = background
        self._random = random
        self._recovery_threads = max(1, recovery_threads)
        self._logs: dict[tuple[str, int], Log] = {}
        self._partitions: dict[str, set[int]] = {}
        # Partitions that were deleted, and may still be in a checkpoint on disk.
        self._forgotten: set[tuple[str, int]] = set()
        self.deferred = DeferredRemovals(clock, background)
        # The shortest flush.ms of any topic: how often maintenance has to check.
        self.shortest_flush_ms = default_config.flush_ms
        self.files = files or Files(descriptor_budget())
        self.flusher = Flusher(background, clock.monotonic)
        self.environment = LogEnvironment(
            self.files,
            clock.now_ms,
            random,
            producer_id_expiration_ms=producer_id_expiration_ms,
            flusher=self.flusher,
            monotonic=clock.monotonic,
            later=self.deferred.run_later,
            on_removal=lambda *removal: self.maintenance.removal_recorded(*removal),
        )
        self.folders: list[DataFolder] = []
        self.future = FutureLogs(self._logs, self.folders, self.environment)
        self.future.on_replaced.append(self._on_replaced)
        # The data folder that a partition is to be created in, where an administrator has named one.
        self.preferred_folders: dict[tuple[str, int], DataFolder] = {}
        # Retention policies of the user's own; None: there are none.
        self.user_retention: UserRetention | None = None
        self.maintenance = LogMaintenance(self, intervals or Intervals())
        self._high_watermarks: dict[tuple[str, int], int] = {}
        # The committed offset of a log without a replica yet; None: everything in it is committed.
        self.committed_of: Callable[[str, int], int] | None = None

    def lock(self) -> None:
        """Lock the data folders and read whose they are. Raises LogDirError."""
        try:
            for path in self._paths:
                self.folders.append(DataFolder(self.files, path))
        except LogDirError:
            self._unlock()
            raise

    def _unlock(self) -> None:
        for folder in self.folders:
            folder.unlock()
        self.folders.clear()

    def identity(self) -> tuple[str | None, int | None]:
        """Cluster id and broker id that the folders belong to; None for new ones. Raises LogDirError."""
        clusters = {folder.cluster_id for folder in self.folders} - {None}
        brokers = {folder.broker_id for folder in self.folders} - {None}
        if len(clusters) > 1 or len(brokers) > 1:
            raise LogDirError(
                f"the folders of log.dirs belong to different brokers: clusters {sorted(map(str, clusters))}, "
                f"brokers {sorted(map(str, brokers))}; remove the one that isn't this broker's"
            )
        return next(iter(clusters), None), next(iter(brokers), None)

    def claim(self, cluster_id: str, broker_id: int) -> None:
        """Make the folders this broker's. Raises LogDirError when they are another broker's."""
        for folder in self.folders:
            folder.claim(cluster_id, broker_id)

    async def load(self, configs: Callable[[str], LogConfig | None] | None = None) -> None:
        """Find the logs, and recover them where the last stop was not clean. Raises LogDirError, KafkaError.

        ``configs`` returns a topic's config, None for the default.
        """
        if not self.folders:
            self.lock()
        started = self.clock.monotonic()
        to_recover: list[Log] = []
        for folder in self.folders:
            logs = self._find_logs(folder, configs)
            if not folder.was_clean:
                to_recover += logs
        self._settle_moves()
        to_recover = [log for log in to_recover if self.has_stored(log)]
        if to_recover:
            await self._recover(to_recover)
            await self._record_removals([log for log in to_recover if log.is_open])
        if self._logs:
            _log.info(
                "logs loaded",
                logs=len(self._logs),
                recovered=len(to_recover),
                seconds=round(self.clock.monotonic() - started, 3),
            )

    def _find_logs(self, folder: DataFolder, configs: Callable[[str], LogConfig | None] | None) -> list[Log]:
        logs = []
        try:
            recovery_points = folder.read_offsets(names.RECOVERY_POINTS)
            starts = folder.read_offsets(names.LOG_STARTS)
            high_watermarks = folder.read_offsets(names.HIGH_WATERMARKS)
            compacted = {} if folder.was_clean else folder.read_offsets(names.CLEANER_OFFSETS)
            folder.forget_clean_stop()
            for name in self.files.folders(folder.path):
                if name == names.CLUSTER_METADATA:
                    continue
                if names.is_deleted_folder(name):
                    self.deferred.run_later(0, partial(self._remove, f"{folder.path}/{name}"))
                    continue
                key = names.partition_of(name) or names.future_of(name)
                if key is None:
                    if name.endswith((names.FUTURE_FOLDER, names.STRAY_FOLDER)):
                        _log.warning("folder ignored", folder=f"{folder.path}/{name}")
                    continue
                known = configs and configs(key[0])
                config = known or self._default_config
                log = Log(
                    f"{folder.path}/{name}",
                    *key,
                    config,
                    self.environment,
                    log_start_offset=starts.get(key, 0),
                    recovery_point=recovery_points.get(key, 0),
                    clean=folder.was_clean,
                    may_have_gaps=key in compacted or known is None,
                )
                is_future = name.endswith(names.FUTURE_FOLDER)
                if self._found(log, is_future):
                    logs.append(log)
                    if key in high_watermarks and not (is_future and key in self._high_watermarks):
                        self._high_watermarks[key] = high_watermarks[key]
        except OSError as error:
            raise LogDirError(
                f"data folder {folder.path} cannot be read: {reason_of(error)}; check its permissions"
            ) from None
        present = {(log.topic, log.partition) for log in logs}
        self._forgotten.update(key for key in (*recovery_points, *starts) if key not in present)
        return logs

    def _found(self, log: Log, is_future: bool) -> bool:
        """Add a log that the start has found; False when it isn't used. Raises LogDirError, OSError."""
        if is_future:
            return self.future.found(log)
        key = (log.topic, log.partition)
        other = self._logs.get(key)
        if other is not None:
            if self.future.choose_duplicate(other, log) is other:
                return False
            self._folder_of(other).log_count -= 1
        self._add(key, log)
        self._folder_of(log).log_count += 1
        return True

    def _settle_moves(self) -> None:
        """Decide about copies of logs that a start has found. Raises LogDirError."""
        try:
            for log in self.future.promote_or_discard():
                self._add((log.topic, log.partition), log)
        except OSError as error:
            what = error.filename or "a file"
            raise LogDirError(
                f"a log's move can't be settled: {what}: {reason_of(error)}; check the data folders"
            ) from None
        for log in self.future.logs():
            self._share(log)

    def _add(self, key: tuple[str, int], log: Log) -> None:
        self._logs[key] = log
        self._share(log)
        self._partitions.setdefault(key[0], set()).add(key[1])
        self.shortest_flush_ms = min(self.shortest_flush_ms, log.config.flush_ms)

    def _share(self, log: Log) -> None:
        if self.committed_of is not None:
            log.high_watermark = partial(self.committed_of, log.topic, log.partition)

    def _on_replaced(self, old: Log, new: Log) -> None:
        self._forgotten.add((new.topic, new.partition))

    async def _recover(self, logs: list[Log]) -> None:
        """Open the logs on threads; one that can't be opened is out of use, the others go on."""
        from concurrent.futures import ThreadPoolExecutor

        def recover(share: Iterable[Log]) -> None:
            for log in share:
                try:
                    log.open()
                except KafkaError as error:
                    log.failure = why = error.message
                    _log.error("log cannot be opened", topic=log.topic, partition=log.partition, why=why)

        loop = asyncio.get_running_loop()
        workers = self._recovery_threads * len(self.folders)
        with ThreadPoolExecutor(workers, thread_name_prefix="ottla-recovery") as pool:
            # One future per log would cost more than opening most of them.
            shares = [logs[number::workers] for number in range(workers)]
            await asyncio.gather(*(loop.run_in_executor(pool, recover, share) for share in shares))

    async def _record_removals(self, logs: list[Log]) -> None:
        """Bring to the device what recovery removed from logs, before records take its place."""
        used = (log.unflushed for log in logs if log.is_open)
        recorded = [future for each in used if (future := each.truncation_recorded()) is not None]
        if recorded:
            # A log for which it fails is out of use.
            await asyncio.wait(recorded)

    def get(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, open or not; None when this broker has none."""
        return self._logs.get((topic, partition))

    def has(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self._logs

    def logs(self) -> Iterator[Log]:
        """All logs, open or not."""
        return iter(tuple(self._logs.values()))

    def stored_logs(self) -> Iterator[Log]:
        """All logs, and the copies of those that move."""
        yield from self.logs()
        yield from self.future.logs()

    def producer_states(self) -> Iterator[ProducerStates]:
        """The producers of all open logs."""
        return (log.producers for log in self.stored_logs() if log.is_open)

    def has_stored(self, log: Log) -> bool:
        """Whether the log, or the copy of one that moves, is still in use."""
        key = (log.topic, log.partition)
        return self._logs.get(key) is log or self.future.get(*key) is log

    def folder(self, path: str) -> DataFolder | None:
        """The data folder with this absolute path."""
        return next((each for each in self.folders if os.path.abspath(each.path) == path), None)

    async def prepare_future(self, topic: str, partition: int) -> None:
        """To be called before a copy of a log is begun. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        if (topic, partition) in self._forgotten:
            # The folder's checkpoints may still have the offsets of a log that has moved away from it.
            try:
                await self.maintenance.checkpoint_recovery_points()
                await self.maintenance.checkpoint_log_starts()
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{topic}-{partition}: checkpoints can't be written: {error}",
                ) from error

    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """Create a partition's folder in the data folder that is preferred or has the fewest; its log is closed.

        A partition that exists is returned as it is. Raises KafkaError: INVALID_TOPIC_EXCEPTION or INVALID_PARTITIONS
        where no folder may have such a name, KAFKA_STORAGE_ERROR.
        """
        if not names.is_topic_name(topic):
            # Or ``../x`` would leave the data folder, and a blank would break the checkpoints.
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"no topic may be named {topic[:_NAME_SHOWN]!r}"
            )
        if partition < 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{topic}: partition {partition} is negative")
        key = (topic, partition)
        log = self._logs.get(key)
        if log is not None:
            return log
        folder = self.preferred_folders.get(key) or min(
            (one for one in self.folders if not one.failed), key=lambda one: one.log_count, default=None
        )
        if folder is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all data folders have failed")
        if folder.failed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data folder {folder.path} has failed")
        path = f"{folder.path}/{topic}-{partition}"
        try:
            if key in self._forgotten:
                # Or after a crash the new log would be recovered, or truncated, from the old one's offsets.
                self._write_checkpoints()
            self.files.make_folder(path)
            metadata = f"{path}/{names.PARTITION_METADATA}"
            self.files.replace(metadata, encode_topic_id(topic_id), sync=False)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic}-{partition}: the folder {path} can't be created: {error}",
            ) from error
        log = Log(path, topic, partition, config, self.environment, topic_id=topic_id, clean=True)
        self._add(key, log)
        folder.log_count += 1
        self.preferred_folders.pop(key, None)
        return log

    def give_up_folder(self, path: str) -> bool:
        """Stop using a data folder until the broker restarts; False when it was given up before."""
        for folder in self.folders:
            if folder.path == path and not folder.failed:
                folder.failed = True
                return True
        return False

    def delete(self, topic: str, partition: int) -> None:
        """Rename a partition's folder now and remove it after file.delete.delay.ms, for readers. Raises KafkaError."""
        # First: a copy that is alone at the next start would be taken for the log.
        self.future.remove(topic, partition)
        log = self._logs.get((topic, partition))
        if log is None:
            return
        path = self._renamed_path(log, names.DELETE_FOLDER)
        self._drop(log, "the partition was deleted")
        try:
            self.files.rename(log.path, path)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name}: can't be removed: {error}"
            ) from error
        self.deferred.run_later(log.config.file_delete_delay_ms, partial(self._remove, path))

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Rename the folder of a partition that belongs to no topic, so that its name can be used again.

        The folder is kept for the operator to judge; Kafka calls it stray. Returns its new path, None where there was
        no such partition. Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        log = self._logs.get((topic, partition))
        if log is None:
            return None
        self.future.remove(topic, partition)
        path = self._renamed_path(log, names.STRAY_FOLDER)
        try:
            if log.is_open:
                log.close()
            self.files.rename(log.path, path)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{log.name}: the folder of an unknown topic is in the way: {error}",
            ) from error
        self._drop(log, "the folder was set aside")
        return path

    def _renamed_path(self, log: Log, suffix: str) -> str:
        unique = f"{self._random.getrandbits(_UNIQUE_BITS):032x}"
        name = names.renamed_folder(log.topic, log.partition, unique, suffix)
        return f"{self._folder_of(log).path}/{name}"

    def _drop(self, log: Log, why: str) -> None:
        key = (log.topic, log.partition)
        log.failure = f"{log.name}: {why}"
        del self._logs[key]
        self._folder_of(log).log_count -= 1
        self._high_watermarks.pop(key, None)
        self._partitions[log.topic].discard(log.partition)
        self._forgotten.add(key)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Apply another config to all logs of a topic."""
        for partition in self._partitions.get(topic, ()):
            self._logs[topic, partition].config = config
            future = self.future.get(topic, partition)
            if future is not None:
                future.config = config
        self.shortest_flush_ms = min(self.shortest_flush_ms, config.flush_ms)

    def _folder_of(self, log: Log) -> DataFolder:
        return self.future.folder_of(log)

    def _remove(self, path: str) -> None:
        """Runs on a thread."""
        try:
            self.files.remove_folder(path)
        except OSError as error:
            _log.warning("a deleted partition's folder can't be removed", folder=path, why=str(error))

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The high watermark in the checkpoint, None when it has none."""
        return self._high_watermarks.get((topic, partition))

    def _write_checkpoints(self) -> None:
        """Write recovery points and log starts of all data folders, blocking. Raises OSError."""
        for folder in self.folders:
            if folder.failed:
                continue
            self._write_offsets(folder, names.RECOVERY_POINTS, lambda log: log.checkpoint_recovery_point)
            self._write_offsets(folder, names.LOG_STARTS, lambda log: log.checkpoint_start_offset or None)
        self._forgotten.clear()

    def _write_offsets(self, folder: DataFolder, name: str, of: Callable[[Log], int | None]) -> None:
        prefix = folder.path + "/"
        generation = folder.next_generation(name)
        offsets = {
            (log.topic, log.partition): offset
            for log in self.stored_logs()
            if log.path.startswith(prefix) and (offset := of(log)) is not None
        }
        folder.write_offsets(name, offsets, generation)

    async def write_high_watermarks(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Write replication-offset-checkpoint; partitions not given keep their offset. Raises KafkaError."""
        known = self._high_watermarks
        known.update(offsets)
        try:
            await self.maintenance.checkpoint(
                names.HIGH_WATERMARKS, lambda log: known.get((log.topic, log.partition))
            )
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"high watermarks not written: {error}"
            ) from error

    async def run(self) -> None:
        """Run the maintenance until cancelled: retention, flush by time, checkpoints, expiry of producers."""
        await self.maintenance.run()

    async def close(self) -> None:
        """Flush and close every open log, write the checkpoints, mark the stop as clean, unlock.

        A folder with a failed log isn't marked, so its next start recovers.
        """
        self.deferred.close()
        await self.flusher.idle()
        await self.maintenance.idle()
        used = [log for log in self.stored_logs() if log.is_open]
        many = sum(log.recovery_point < log.log_end_offset for log in used) > _SYNC_ALL_ABOVE
        if many:
            await self._in_shares(lambda log: log.write_out(beside=True), used)
            await self.background.run(self.files.sync_all)
        await self._in_shares(lambda log: log.close(synced=many), used)
        if many:
            await self.background.run(self.files.sync_all)
        failed = {log.path.rpartition("/")[0] for log in self.stored_logs() if log.failure is not None}
        await self.background.run(self._close_folders, failed)
        self.files.close()
        self._unlock()

    async def _in_shares(self, function: Callable[[Log], None], logs: list[Log]) -> None:
        """Apply ``function`` to all logs on a few threads; a log it fails for is out of use."""

        def each(share: Iterable[Log]) -> None:
            for log in share:
                try:
                    function(log)
                except KafkaError as error:
                    log.failure = error.message

        shares = [logs[number::_CLOSING_THREADS] for number in range(_CLOSING_THREADS)]
        await asyncio.gather(*(self.background.run(each, share) for share in shares if share))

    def _close_folders(self, failed: set[str]) -> None:
        try:
            self._write_checkpoints()
            for folder in self.folders:
                if folder.path not in failed and not folder.failed:
                    folder.mark_clean_stop()
        except OSError as error:
            _log.error("the stop was not clean, the next start recovers", why=str(error))
