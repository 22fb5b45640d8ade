"""One data folder (an entry of log.dirs): its lock, its owner, its offset checkpoints, and how it was last closed.

``meta.properties`` (Java properties; Kafka writes version 0 with ZooKeeper, 1 with KRaft)::

    version=0
    broker.id=1
    cluster.id=Zk5tq3ZUR7i0kQJv1mHs3A

``.kafka_cleanshutdown`` exists after a clean stop and is removed first thing at the start, so that a crash during
loading counts as one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.checkpoints import decode_offsets, encode_offsets
from ottla_broker.log.files import CorruptFileError, FileLock, Files, LockedError
from ottla_protocol.properties import parse_properties

CLEAN_MARKER: Final = b'{"version":0,"brokerEpoch":-1}'
_VERSIONS: Final = ("0", "1")

_log = get_logger()

Offsets = Mapping[tuple[str, int], int]


class LogDirError(Exception):
    """A data folder can't be used; the message is one line that says which and what to do."""


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file can't be used, without number and path."""
    return getattr(error, "strerror", None) or str(error)


class DataFolder:
    """A data folder that this process has locked."""

    __slots__ = (
        "_generations",
        "_last_written",
        "_lock",
        "_writing",
        "broker_id",
        "failed",
        "files",
        "log_count",
        "path",
        "properties",
        "was_clean",
    )

    def __init__(self, files: Files, path: str) -> None:
        """Create the folder if need be and take its lock. Raises LogDirError."""
        self.files = files
        self.path = path
        # The broker the folder belongs to; None for a new one.
        self.broker_id: int | None
        # Number of logs in it: a new log goes to the folder with the fewest.
        self.log_count = 0
        # Whether its disk has failed: nothing is written to it then.
        self.failed = False
        self._last_written: dict[str, bytes] = {}
        # Writers of checkpoints are on different threads; the one that began to collect last wins.
        self._writing = threading.Lock()
        self._generations: dict[str, int] = {}
        try:
            files.make_folder(path, sync=True)
            self._lock: FileLock = files.lock(f"{path}/{names.LOCK}")
        except LockedError:
            raise LogDirError(
                f"data folder {path} is in use: another process holds {path}/{names.LOCK}; "
                "stop that process or set another folder with --data-dir or log.dirs"
            ) from None
        except OSError as error:
            reason = "it is a file" if isinstance(error, FileExistsError) else reason_of(error)
            raise LogDirError(
                f"data folder {path} cannot be used: {reason}; check --data-dir or log.dirs, and permissions"
            ) from None
        try:
            self.properties = self._read_properties()
            self.broker_id = self._parse_broker_id()
            self.was_clean = files.exists(self._path(names.CLEAN_SHUTDOWN))
        except BaseException:
            self._lock.close()
            raise

    def _path(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _read_properties(self) -> dict[str, str]:
        path = self._path(names.META_PROPERTIES)
        try:
            text = self.files.read_all(path).decode()
            properties = parse_properties(text, path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise LogDirError(
                f"{path} cannot be read: {reason_of(error)};"
                " restore it or set another folder with --data-dir or log.dirs"
            ) from None
        if properties.get("version", "") not in _VERSIONS:
            raise LogDirError(
                f"{path} has version {properties.get('version')!r}, known are 0 and 1; "
                "restore it or set another folder with --data-dir or log.dirs"
            )
        return properties

    @property
    def cluster_id(self) -> str | None:
        """The cluster the folder belongs to; None for a new one."""
        return self.properties.get("cluster.id") or None

    def _parse_broker_id(self) -> int | None:
        text = self.properties.get("broker.id") or self.properties.get("node.id")
        if text is None:
            return None
        if not text.isdigit():
            raise LogDirError(
                f"{self._path(names.META_PROPERTIES)}: broker.id is not a number: {text!r}; restore the file"
            )
        return int(text)

    def claim(self, cluster_id: str, broker_id: int) -> None:
        """Make the folder this broker's. Raises LogDirError when it is another broker's."""
        path = self._path(names.META_PROPERTIES)
        if self.cluster_id not in (None, cluster_id):
            raise LogDirError(
                f"{path}: the folder belongs to cluster.id {self.cluster_id}, this is {cluster_id}; "
                "set a folder of this cluster with --data-dir or log.dirs"
            )
        if self.broker_id not in (None, broker_id):
            raise LogDirError(
                f"{path}: the folder belongs to broker.id {self.broker_id}, this is {broker_id}; "
                "set broker.id to that or log.dirs to another folder"
            )
        if self.cluster_id is None or self.broker_id is None:
            self.properties = {
                "version": "0",
                **self.properties,
                "broker.id": str(broker_id),
                "cluster.id": cluster_id,
            }
            self.broker_id = broker_id
            text = "#\n" + "".join(f"{key}={value}\n" for key, value in self.properties.items())
            try:
                self.files.replace(path, text.encode())
            except OSError as error:
                raise LogDirError(
                    f"{path} cannot be written: {reason_of(error)}; check the folder's permissions and its disk"
                ) from None

    def forget_clean_stop(self) -> None:
        """Remove the marker of a clean stop, so that a crash from now on counts as one. Raises OSError.

        It must not come back after a power failure, so this waits for the device.
        """
        if self.was_clean:
            self.files.unlink(self._path(names.CLEAN_SHUTDOWN))
            self.files.sync_folder(self.path)

    def mark_clean_stop(self) -> None:
        """Record that everything is on the device, so the next start needn't recover. Raises OSError."""
        self.files.replace(self._path(names.CLEAN_SHUTDOWN), CLEAN_MARKER)

    def unlock(self) -> None:
        self._lock.close()

    def read_offsets(self, name: str) -> dict[tuple[str, int], int]:
        """The offsets of a checkpoint; none when it is missing or damaged, and logs are then scanned whole."""
        path = self._path(name)
        try:
            return decode_offsets(self.files.read_all(path), path)
        except FileNotFoundError:
            return {}
        except (CorruptFileError, OSError) as error:
            _log.warning("checkpoint can't be read, going on without it", file=path, why=str(error))
            return {}

    def next_generation(self, name: str) -> int:
        """Begin to collect a checkpoint's offsets; pass the result to :meth:`write_offsets`."""
        generation = self._generations[name] = self._generations.get(name, 0) + 1
        return generation

    def write_offsets(self, name: str, offsets: Offsets, generation: int) -> None:
        """Write a checkpoint unless the file has the same offsets, on any thread. Raises OSError.

        Nothing is written for an old ``generation``: newer offsets are on their way.
        """
        data = encode_offsets(offsets)
        with self._writing:
            if generation == self._generations[name] and self._last_written.get(name) != data:
                self.files.replace(self._path(name), data)
                self._last_written[name] = data
