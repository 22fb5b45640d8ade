"""All logs of a broker: finding them at the start, making and removing them, and the chores that keep them in
shape.

Owned by the loop's thread; only recovery, fsyncs and removals run on others. After a clean stop nothing of a
log is read until it is used; after any other stop every log is opened, and what was not on the device is
checked, on threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from random import Random
from typing import TYPE_CHECKING, Final

from ottla_broker import events
from ottla_protocol.errors import ErrorCode, KafkaError

from . import names
from .checkpoints import encode_topic_id
from .config import LogConfig
from .environment import LogEnvironment
from .files import Files, descriptor_budget
from .flush import Flusher
from .folder import DataFolder, LogDirError
from .log import Log
from .maintenance import Intervals, LogMaintenance

if TYPE_CHECKING:
    from ottla_broker.background import Background
    from ottla_broker.clock import Clock, TimerHandle

_UNIQUE_BITS: Final = 128
# So many logs to flush at a stop: then one sync of the whole machine first makes each fsync cheap.
_MANY: Final = 64
_CLOSING_THREADS: Final = 4

_log = events.get_logger()


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
        self._timers: set[TimerHandle] = set()
        # The shortest flush.ms of any topic: how often somebody has to look.
        self.shortest_flush_ms = default_config.flush_ms
        self.files = files or Files(descriptor_budget())
        self.flusher = Flusher(background)
        self.environment = LogEnvironment(
            self.files,
            clock.now_ms,
            random,
            producer_id_expiration_ms=producer_id_expiration_ms,
            flusher=self.flusher,
            later=self._later,
        )
        self.folders: list[DataFolder] = []
        self.maintenance = LogMaintenance(self, intervals or Intervals())
        self._high_watermarks: dict[tuple[str, int], int] = {}
        # Up to where a log is committed that no replica has been made of yet; None: to its end.
        self.committed_of: Callable[[str, int], int] | None = None

    # --- start --------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the data folders; after this :meth:`identity` is known. Raises LogDirError."""
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
        """Cluster id and broker id that the folders were used with; None for new ones. Raises LogDirError."""
        clusters = {folder.cluster_id for folder in self.folders} - {None}
        brokers = {folder.broker_id for folder in self.folders} - {None}
        if len(clusters) > 1 or len(brokers) > 1:
            raise LogDirError(
                f"the folders of log.dirs are of different brokers: clusters {sorted(map(str, clusters))}, "
                f"brokers {sorted(map(str, brokers))}; remove the one that is not this broker's"
            )
        return next(iter(clusters), None), next(iter(brokers), None)

    def claim(self, cluster_id: str, broker_id: int) -> None:
        """Write down whose the folders are. Raises LogDirError when they are somebody else's."""
        for folder in self.folders:
            folder.claim(cluster_id, broker_id)

    async def load(self, configs: Callable[[str], LogConfig | None] | None = None) -> None:
        """Find the logs; recover them where the last stop was not clean. Raises LogDirError, KafkaError.

        ``configs`` gives a topic's config, None for the default.
        """
        if not self.folders:
            self.lock()
        started = self.clock.monotonic()
        to_recover: list[Log] = []
        for folder in self.folders:
            logs = self._find_logs(folder, configs)
            if not folder.was_clean:
                to_recover += logs
        if to_recover:
            await self._recover(to_recover)
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
            self._high_watermarks.update(folder.read_offsets(names.HIGH_WATERMARKS))
            folder.forget_clean_stop()
            for name in self.files.folders(folder.path):
                if names.is_deleted_folder(name):
                    self._later(0, self._removal(f"{folder.path}/{name}"))
                    continue
                key = names.partition_of(name)
                if key is None:
                    if name.endswith((names.FUTURE_FOLDER, names.STRAY_FOLDER)):
                        _log.warning("folder left alone", folder=f"{folder.path}/{name}")
                    continue
                if key in self._logs:
                    raise LogDirError(
                        f"{folder.path}/{name} is there as {self._logs[key].path} too: remove the older one"
                    )
                config = (configs and configs(key[0])) or self._default_config
                log = Log(
                    f"{folder.path}/{name}",
                    *key,
                    config,
                    self.environment,
                    log_start_offset=starts.get(key, 0),
                    recovery_point=recovery_points.get(key, 0),
                    clean=folder.was_clean,
                )
                self._add(key, log)
                logs.append(log)
        except OSError as error:
            raise LogDirError(
                f"data folder {folder.path} cannot be read: {error}; check its permissions"
            ) from None
        folder.log_count = len(logs)
        self._forgotten.update(key for key in (*recovery_points, *starts) if key not in self._logs)
        return logs

    def _add(self, key: tuple[str, int], log: Log) -> None:
        self._logs[key] = log
        if self.committed_of is not None:
            log.high_watermark = partial(self.committed_of, *key)
        self._partitions.setdefault(key[0], set()).add(key[1])
        self.shortest_flush_ms = min(self.shortest_flush_ms, log.config.flush_ms)

    async def _recover(self, logs: list[Log]) -> None:
        """Open the logs on threads; a log that cannot be opened is out of use, the others go on."""
        from concurrent.futures import ThreadPoolExecutor

        def recover(log: Log) -> None:
            try:
                log.open()
            except KafkaError as error:
                log.failure = error.message
                _log.error(
                    "log cannot be opened", topic=log.topic, partition=log.partition, why=error.message
                )

        loop = asyncio.get_running_loop()
        workers = self._recovery_threads * len(self.folders)
        with ThreadPoolExecutor(workers, thread_name_prefix="ottla-recovery") as pool:
            # A future a log would cost more than opening most of them.
            shares = [logs[number::workers] for number in range(workers)]
            await asyncio.gather(*(loop.run_in_executor(pool, _for_each, recover, share) for share in shares))

    # --- logs ---------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> Log | None:
        """The log of a partition; None when this broker has none. It opens when it is used."""
        return self._logs.get((topic, partition))

    def has(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self._logs

    def logs(self) -> Iterator[Log]:
        """All logs, opened or not."""
        return iter(tuple(self._logs.values()))

    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """Make a partition's folder, in the data folder that has the fewest. Raises
        KafkaError(KAFKA_STORAGE_ERROR).

        For one that exists already its log is returned.
        """
        key = (topic, partition)
        log = self._logs.get(key)
        if log is not None:
            return log
        folder = min(
            (one for one in self.folders if not one.failed), key=lambda one: one.log_count, default=None
        )
        if folder is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no data folder is left that can be used")
        path = f"{folder.path}/{topic}-{partition}"
        try:
            if key in self._forgotten:
                # Or after a crash the new log would be taken to be recovered, or cut, where the old one was.
                self._write_checkpoints()
            self.files.make_folder(path)
            metadata = f"{path}/{names.PARTITION_METADATA}"
            self.files.replace(metadata, encode_topic_id(topic_id), sync=False)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic}-{partition}: the folder {path} cannot be made: {error}",
            ) from error
        log = Log(path, topic, partition, config, self.environment, topic_id=topic_id, clean=True)
        self._add(key, log)
        folder.log_count += 1
        return log

    def give_up_folder(self, path: str) -> bool:
        """Use a data folder no longer, until the broker starts again; False for one that was given up before."""
        for folder in self.folders:
            if folder.path == path and not folder.failed:
                folder.failed = True
                return True
        return False

    def delete(self, topic: str, partition: int) -> None:
        """Remove a partition: its folder is renamed now and removed after file.delete.delay.ms.

        Who still reads it keeps what it has open. Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        key = (topic, partition)
        log = self._logs.pop(key, None)
        if log is None:
            return
        folder = self._folder_of(log)
        unique = f"{self._random.getrandbits(_UNIQUE_BITS):032x}"
        deleted_path = f"{folder.path}/{names.deleted_folder(topic, partition, unique)}"
        log.failure = f"{log.name}: the partition was deleted"
        folder.log_count -= 1
        self._high_watermarks.pop(key, None)
        self._partitions[topic].discard(partition)
        self._forgotten.add(key)
        try:
            self.files.rename(log.path, deleted_path)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name}: cannot be removed: {error}"
            ) from error
        self._later(log.config.file_delete_delay_ms, self._removal(deleted_path))

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Rename the folder of a partition that belongs to no topic, so that one of its name can be made.

        The folder is kept: what is in it is the operator's to judge (Kafka calls it stray). Returns its new path,
        None where there was none. Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        key = (topic, partition)
        log = self._logs.get(key)
        if log is None:
            return None
        folder = self._folder_of(log)
        unique = f"{self._random.getrandbits(_UNIQUE_BITS):032x}"
        path = f"{folder.path}/{names.stray_folder(topic, partition, unique)}"
        try:
            if log.is_open:
                log.close()
            self.files.rename(log.path, path)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{log.name}: the folder of an unknown topic is in the way: {error}",
            ) from error
        log.failure = f"{log.name}: the folder was set aside"
        del self._logs[key]
        folder.log_count -= 1
        self._high_watermarks.pop(key, None)
        self._partitions[topic].discard(partition)
        self._forgotten.add(key)
        return path

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Give all logs of a topic another config."""
        for partition in self._partitions.get(topic, ()):
            self._logs[topic, partition].config = config
        self.shortest_flush_ms = min(self.shortest_flush_ms, config.flush_ms)

    def _folder_of(self, log: Log) -> DataFolder:
        parent = log.path.rpartition("/")[0]
        return next(folder for folder in self.folders if folder.path == parent)

    def _removal(self, path: str) -> Callable[[], None]:
        def remove() -> None:
            try:
                self.files.remove_folder(path)
            except OSError as error:
                _log.warning("a deleted partition's folder stays", folder=path, why=str(error))

        return remove

    def _later(self, delay_ms: int, function: Callable[[], None]) -> None:
        """Run ``function`` on a thread after the delay; a stop before that leaves it to the next start."""

        def due() -> None:
            self._timers.discard(timer)
            self.background.run(function)

        timer = self.clock.call_later(delay_ms / 1000, due)
        self._timers.add(timer)

    # --- checkpoints --------------------------------------------------------------------------------------

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The high watermark in the checkpoint that was found at the start; None when there is none."""
        return self._high_watermarks.get((topic, partition))

    def _write_checkpoints(self) -> None:
        """Write recovery points and log starts of all data folders, here and now. Raises OSError."""
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
            key: offset
            for key, log in self._logs.items()
            if log.path.startswith(prefix) and (offset := of(log)) is not None
        }
        folder.write_offsets(name, offsets, generation)

    async def write_high_watermarks(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Write replication-offset-checkpoint; partitions that are not given keep what they had.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
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

    # --- running and stopping ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Retention, flush by time, checkpoints, and forgetting producers, until cancelled."""
        await self.maintenance.run()

    async def close(self) -> None:
        """Flush and close every log that was used, write the checkpoints, mark the stop as clean, unlock.

        A folder with a log that failed is not marked: its next start recovers.
        """
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        await self.flusher.idle()
        used = [log for log in self._logs.values() if log.is_open]
        many = sum(log.recovery_point < log.log_end_offset for log in used) > _MANY
        if many:
            await self._in_shares(Log.write_out, used)
            await self.background.run(self.files.sync_all)
        await self._in_shares(lambda log: log.close(synced=many), used)
        failed = {log.path.rpartition("/")[0] for log in self._logs.values() if log.failure is not None}
        await self.background.run(self._close_folders, failed)
        self.files.close()
        self._unlock()

    async def _in_shares(self, function: Callable[[Log], None], logs: list[Log]) -> None:
        """Apply ``function`` to all logs, on a few threads; a log it fails for is out of use."""

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


def _for_each(function: Callable[[Log], None], logs: list[Log]) -> None:
    for log in logs:
        function(log)
