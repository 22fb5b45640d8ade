"""Copies of logs that move to another data folder, until they take their logs' places (KIP-113, ``futureLogs``).

A copy's folder is ``<topic>-<partition>.<32 hex digits>-future``. :meth:`FutureLogs.replace_current` renames the log's
folder to ``-delete`` and then the copy's to the plain name, so no crash leaves two logs of a partition. What a start
finds, and what becomes of it:

=========================  ===================================================================================
a log and its copy         the copy is kept, and filled further once the partition is served
the copy alone             the crash came between the two renames: the copy is the log
both in one data folder    the copy is removed
two copies                 one is removed
two logs                   the machine lost its power before the first rename was on the device: the one with a
                           ``.replacement`` file is the log, the other becomes ``-stray``; without it no start
=========================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.checkpoints import encode_topic_id
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.folder import DataFolder, LogDirError
from ottla_broker.log.log import Log
from ottla_protocol.errors import ErrorCode, KafkaError

Key = tuple[str, int]

_UNIQUE_BITS: Final = 128

_log = get_logger()


@dataclass(eq=False)
class FutureLogs:
    """Owned by the loop's thread.

    Attributes:
        on_replaced: called with a log and the one in another data folder that has taken its place.

    ``current`` and ``folders`` are the log manager's; this class puts copies into ``current``.
    """

    _current: dict[Key, Log]
    _folders: Sequence[DataFolder]
    _environment: LogEnvironment
    _logs: dict[Key, Log] = field(default_factory=dict, init=False)
    on_replaced: list[Callable[[Log, Log], None]] = field(default_factory=list, init=False)

    def get(self, topic: str, partition: int) -> Log | None:
        """The copy of a partition's log; None while it doesn't move."""
        return self._logs.get((topic, partition))

    def logs(self) -> Iterable[Log]:
        """All copies."""
        return tuple(self._logs.values())

    def found(self, log: Log) -> bool:
        """Add a copy that a start has found; False when it is removed instead. Raises OSError."""
        key = (log.topic, log.partition)
        if key in self._logs:
            _log.warning("second copy of a log removed", folder=log.path, kept=self._logs[key].path)
            self._discard(log)
            return False
        self._logs[key] = log
        self.folder_of(log).log_count += 1
        return True

    def promote_or_discard(self) -> list[Log]:
        """After a start, promote copies whose log is gone, and discard those in the log's own folder.

        Returns the promoted ones. Raises OSError.
        """
        promoted = []
        for key, log in tuple(self._logs.items()):
            current = self._current.get(key)
            if current is None:
                path = _plain_path(log)
                _log.info("a log's copy takes its place after a restart", folder=log.path, path=path)
                self._environment.files.rename(log.path, path)
                log.path = path
                del self._logs[key]
                promoted.append(log)
            elif self.folder_of(current) is self.folder_of(log):
                _log.info("copy of a log removed: the log is in the same data folder", folder=log.path)
                self._forget(key)
                self._discard(log)
        return promoted

    def choose_duplicate(self, one: Log, other: Log) -> Log:
        """Return the one of a partition's two logs that a move has put in the other's place; the other is set aside.

        Raises LogDirError, OSError.
        """
        files = self._environment.files
        is_new = [files.exists(f"{log.path}/{names.REPLACEMENT}") for log in (one, other)]
        if is_new[0] == is_new[1]:
            raise LogDirError(f"{other.path} also exists as {one.path}: remove the older one")
        kept, replaced = (one, other) if is_new[0] else (other, one)
        name = names.renamed_folder(replaced.topic, replaced.partition, self._unique(), names.STRAY_FOLDER)
        path = f"{self.folder_of(replaced).path}/{name}"
        files.rename(replaced.path, path)
        _log.warning("log set aside that was moved to another data folder", folder=path, now=kept.path)
        return kept

    def create(self, current: Log, folder: DataFolder) -> Log:
        """Begin an empty, open copy of a log in another data folder. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        topic, partition = current.topic, current.partition
        name = names.future_folder(topic, partition, self._unique())
        path = f"{folder.path}/{name}"
        files = self._environment.files
        try:
            files.make_folder(path)
            files.replace(f"{path}/{names.PARTITION_METADATA}", encode_topic_id(current.topic_id), sync=False)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{current.name}: the folder {path} can't be created: {error}"
            ) from error
        log = Log(
            path, topic, partition, current.config, self._environment, topic_id=current.topic_id, clean=True
        )
        log.open()
        self._logs[topic, partition] = log
        folder.log_count += 1
        return log

    def remove(self, topic: str, partition: int) -> None:
        """Remove a partition's copy, if it has one: its folder is renamed now and removed later."""
        log = self._forget((topic, partition))
        if log is not None:
            log.failure = f"{log.name}: the copy in {log.path} was removed"
            try:
                self._discard(log)
            except OSError as error:
                _log.error("copy of a log can't be removed", folder=log.path, why=str(error))

    def abandon(self, topic: str, partition: int) -> None:
        """Forget a copy whose data folder has failed; its files stay."""
        log = self._forget((topic, partition))
        if log is not None:
            log.failure = f"{log.name}: the data folder of the copy in {log.path} has failed"

    def replace_current(self, topic: str, partition: int) -> Log:
        """Put the copy in the place of the log, which it must equal; the log's folder is removed later.

        The old log stays readable until then. Raises KafkaError: KAFKA_STORAGE_ERROR, with everything as it was.
        """
        key = (topic, partition)
        old, new = self._current[key], self._logs[key]
        old_path = old.path
        deleted_path = self._deleted_path(old)
        try:
            old.rename_folder(deleted_path)
        except OSError as error:
            raise old.storage_error("the folder can't be renamed", error) from error
        try:
            new.rename_folder(_plain_path(new))
        except OSError as error:
            try:
                old.rename_folder(old_path)
            except OSError as second:
                raise old.fail(f"the folder can't be renamed to {old_path}: {second}") from second
            raise new.storage_error("the copy's folder can't be renamed", error) from error
        new.replace(old)
        self._current[key] = new
        del self._logs[key]
        self.folder_of(old).log_count -= 1
        if self._environment.flusher is not None:
            self._environment.flusher.hand_over(old, new)
        self._remove_later(deleted_path, old.config.file_delete_delay_ms)
        for callback in self.on_replaced:
            callback(old, new)
        return new

    def folder_of(self, log: Log) -> DataFolder:
        parent = log.path.rpartition("/")[0]
        return next(folder for folder in self._folders if folder.path == parent)

    def _forget(self, key: Key) -> Log | None:
        log = self._logs.pop(key, None)
        if log is not None:
            self.folder_of(log).log_count -= 1
        return log

    def _unique(self) -> str:
        return f"{self._environment.random.getrandbits(_UNIQUE_BITS):032x}"

    def _deleted_path(self, log: Log) -> str:
        name = names.renamed_folder(log.topic, log.partition, self._unique(), names.DELETE_FOLDER)
        return f"{self.folder_of(log).path}/{name}"

    def _discard(self, log: Log) -> None:
        """Rename a log's folder and have it removed later. Raises OSError."""
        path = self._deleted_path(log)
        self._environment.files.rename(log.path, path)
        self._remove_later(path, log.config.file_delete_delay_ms)

    def _remove_later(self, path: str, delay_ms: int) -> None:
        files = self._environment.files

        def remove() -> None:
            try:
                files.remove_folder(path)
            except OSError as error:
                _log.warning("a moved log's old folder can't be removed", folder=path, why=str(error))

        self._environment.later(delay_ms, remove)


def _plain_path(log: Log) -> str:
    """A copy's folder once it is the log."""
    return f"{log.path.rpartition('/')[0]}/{log.name}"
