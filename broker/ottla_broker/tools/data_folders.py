"""Data folders at rest: whose they are and which partitions they hold, read without opening a log.

:class:`DataFolders` keeps the lock of every folder, so that no broker, Ottla's or Kafka's, runs on them meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.log import names
from ottla_broker.log.checkpoints import decode_lines, decode_offsets, read_topic_id
from ottla_broker.log.dump import CLEANER_CHECKPOINT, dump_properties
from ottla_broker.log.files import CorruptFileError, Files, LockedError
from ottla_broker.log.producer_snapshot import decode_snapshot
from ottla_broker.store.embedded import JOURNAL_NAME

_VERSIONS: Final = ("0", "1")
_NO_ID: Final = bytes(16)


class DataFolderError(Exception):
    """A folder can't be used; the message is one line that says which, why, and what to do."""


@dataclass(slots=True)
class DiskPartition:
    """A partition's folder.

    Attributes:
        topic_id: None without a readable ``partition.metadata``.
        leader_epoch: the latest in its checkpoint; -1 for none.
        largest_producer_id: in its newest snapshot; -1 for none.
        damage: what can't be read.
    """

    folder: str
    path: str
    topic: str
    index: int
    topic_id: bytes | None = None
    leader_epoch: int = -1
    largest_producer_id: int = -1
    bytes: int = 0
    damage: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(slots=True)
class DataFolder:
    """One entry of ``log.dirs``.

    Attributes:
        version: of ``meta.properties``: 0 with ZooKeeper, 1 with KRaft.
        was_clean: whether the last broker stopped cleanly.
        compacted: topics that the cleaner has compacted.
        ignored: folders that are no partitions in use: deleted ones, copies, strays.
    """

    path: str
    properties: dict[str, str] = field(default_factory=dict)
    broker_id: int | None = None
    was_clean: bool = False
    has_metadata_log: bool = False
    has_journal: bool = False
    partitions: list[DiskPartition] = field(default_factory=list)
    compacted: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)

    @property
    def cluster_id(self) -> str | None:
        return self.properties.get("cluster.id") or None

    @property
    def version(self) -> str:
        return self.properties.get("version", "")


@dataclass(slots=True)
class DataFolders:
    """All folders of one broker, in the order of ``log.dirs``."""

    folders: list[DataFolder]
    cluster_id: str
    broker_id: int

    @property
    def paths(self) -> list[str]:
        return [folder.path for folder in self.folders]

    def partitions(self) -> Iterator[DiskPartition]:
        for folder in self.folders:
            yield from folder.partitions


def folder_paths(given: Sequence[str]) -> list[str]:
    """The folders that options or ``log.dirs`` name, separated by commas; each once."""
    paths = [part.strip() for text in given for part in text.split(",")]
    return list(dict.fromkeys(path.rstrip("/") or "/" for path in paths if path))


def check_hold_data(paths: Sequence[str]) -> None:
    """Raises DataFolderError if none of the folders has anything of a broker, as one whose name was mistyped."""
    for path in paths:
        for name in os.listdir(path):
            if name in ("meta.properties", JOURNAL_NAME) or names.partition_of(name) is not None:
                return
    raise DataFolderError(f"{', '.join(paths)}: no data of a broker; name the folders in log.dirs")


@contextmanager
def locked(paths: Sequence[str], *, dry_run: bool = False) -> Iterator[Files]:
    """Hold the locks of the folders. Raises DataFolderError: one isn't there, or a broker is using it.

    A dry run makes no lock file: a running broker has one.
    """
    files = Files(64)
    with ExitStack() as stack:
        stack.callback(files.close)
        for path in paths:
            if not os.path.isdir(path):
                raise DataFolderError(f"{path} is not a folder; name the folders in log.dirs")
            name = f"{path}/{names.LOCK}"
            if dry_run and not files.exists(name):
                continue
            try:
                lock = files.lock(name)
            except LockedError:
                raise DataFolderError(
                    f"{path} is in use: another process holds {name}; stop that broker first"
                ) from None
            except OSError as error:
                raise DataFolderError(f"{path} can't be locked: {error}; check its permissions") from None
            stack.callback(lock.close)
        yield files


def read_folders(files: Files, paths: Sequence[str]) -> DataFolders:
    """Read the folders of one broker. Raises DataFolderError, OSError."""
    folders = [_read_folder(files, path) for path in paths]
    known = [folder for folder in folders if folder.properties]
    if not known:
        raise DataFolderError(
            f"{' and '.join(paths)}: no {names.META_PROPERTIES} there, so no broker has used the folder; "
            "name the folders in log.dirs"
        )
    for what in ("cluster_id", "broker_id"):
        values = {getattr(folder, what): folder.path for folder in known}
        if len(values) > 1:
            shown = ", ".join(f"{path} of {value}" for value, path in values.items())
            raise DataFolderError(
                f"the folders belong to different brokers ({what.replace('_', ' ')}): {shown}; "
                "name those of one broker"
            )
    found = DataFolders(folders, known[0].cluster_id or "", known[0].broker_id or 0)
    seen: dict[str, DiskPartition] = {}
    for partition in found.partitions():
        other = seen.setdefault(partition.name, partition)
        if other is not partition:
            raise DataFolderError(
                f"{other.path} and {partition.path} are the same partition; move away the older one"
            )
    return found


def _read_folder(files: Files, path: str) -> DataFolder:
    folder = DataFolder(path)
    meta = f"{path}/{names.META_PROPERTIES}"
    if files.exists(meta):
        folder.properties = {entry["key"]: entry["value"] for entry in dump_properties(files, meta)}
        number = folder.properties.get("broker.id") or folder.properties.get("node.id") or ""
        if folder.version not in _VERSIONS or not number.isdigit() or folder.cluster_id is None:
            raise DataFolderError(
                f"{meta} must have version 0 or 1, cluster.id, and the number of the broker as broker.id or "
                "node.id; restore it"
            )
        folder.broker_id = int(number)
    folder.was_clean = files.exists(f"{path}/{names.CLEAN_SHUTDOWN}")
    folder.has_journal = files.exists(f"{path}/{JOURNAL_NAME}")
    cleaner = f"{path}/{CLEANER_CHECKPOINT}"
    # It only helps to guess what a topic was like.
    with suppress(FileNotFoundError, CorruptFileError):
        folder.compacted = {topic for topic, _ in decode_offsets(files.read_all(cleaner), cleaner)}
    for name in sorted(files.folders(path)):
        key = names.partition_of(name)
        if name == names.CLUSTER_METADATA:
            folder.has_metadata_log = True
        elif key is not None:
            folder.partitions.append(_read_partition(files, path, name, key))
        else:
            folder.ignored.append(name)
    return folder


def _read_partition(files: Files, folder: str, name: str, key: tuple[str, int]) -> DiskPartition:
    path = f"{folder}/{name}"
    partition = DiskPartition(folder, path, *key)
    found = files.names(path)
    partition.bytes = sum(files.size(f"{path}/{each}") for each in found if each.endswith(names.LOG))
    try:
        topic_id = read_topic_id(files, f"{path}/{names.PARTITION_METADATA}")
        partition.topic_id = None if topic_id == _NO_ID else topic_id
    except CorruptFileError as error:
        partition.damage.append(str(error))
    if names.LEADER_EPOCHS in found:
        epochs = f"{path}/{names.LEADER_EPOCHS}"
        try:
            lines = decode_lines(files.read_all(epochs), epochs, fields=2)
            partition.leader_epoch = max((int(epoch) for epoch, _ in lines), default=-1)
        except (CorruptFileError, ValueError) as error:
            partition.damage.append(str(error))
    snapshots = [each for each in found if each.endswith(names.SNAPSHOT)]
    if snapshots:
        try:
            entries = decode_snapshot(files.read_all(f"{path}/{max(snapshots)}"))
            partition.largest_producer_id = max((entry.producer_id for entry in entries), default=-1)
        except CorruptFileError:
            pass  # the broker removes it, and replays the log
    return partition
