"""Names of the folders and files of a log, as Kafka's LogFileUtils and UnifiedLog form them.

A partition's folder is ``<topic>-<partition>``. It becomes ``<topic>-<partition>.<32 hex digits>-delete`` when the
partition is deleted, ``….-future`` while it moves, and ``….-stray`` when its topic is unknown. A segment's files are
named by its base offset in twenty digits, so that names sort as offsets do.
"""

from __future__ import annotations

import re
from typing import Final

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
INDEX_SUFFIXES: Final = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

DELETE_FOLDER: Final = "-delete"
FUTURE_FOLDER: Final = "-future"
STRAY_FOLDER: Final = "-stray"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"

CLUSTER_METADATA: Final = "__cluster_metadata-0"
"""The folder of Kafka's metadata log (KRaft), which isn't a partition's. No broker serves it, and Ottla leaves it."""

REPLACEMENT: Final = ".replacement"
"""In a partition's folder: it takes the place of the partition's folder in another data folder, which may still be
there if the machine stopped before that one's new name was on the device."""

MAX_TOPIC_NAME: Final = 249
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
MAX_FOLDER_NAME: Final = 255
_UNIQUE_LENGTH: Final = 32


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name, which becomes a folder's (Kafka's ``Topic.isValid``)."""
    return (
        0 < len(name) <= MAX_TOPIC_NAME
        and name not in (".", "..")
        and _TOPIC_NAME.fullmatch(name) is not None
    )


def segment_name(base_offset: int) -> str:
    """The twenty digits that a segment's files begin with."""
    return f"{base_offset:020d}"


def offset_of(name: str) -> int | None:
    """The base offset that a file's name begins with; None when it begins with none."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and digits.isascii() and digits.isdigit() else None


def partition_of(folder: str) -> tuple[str, int] | None:
    """Topic and partition of a live partition's folder; None for any other name."""
    topic, _, number = folder.rpartition("-")
    if not is_topic_name(topic) or not (number.isascii() and number.isdigit()):
        return None
    return topic, int(number)


def renamed_folder(topic: str, partition: int, unique: str, suffix: str) -> str:
    """The name of a folder that is deleted or set aside; a topic too long for it loses its end, as in Kafka."""
    end = f"-{partition}.{unique}{suffix}"
    return topic[: MAX_FOLDER_NAME - len(end)] + end


def future_folder(topic: str, partition: int, unique: str) -> str:
    """The name of a log's copy in another data folder until it takes the log's place; it may be too long to exist."""
    return f"{topic}-{partition}.{unique}{FUTURE_FOLDER}"


def future_of(folder: str) -> tuple[str, int] | None:
    """Topic and partition of a log that moves, by its copy's folder; None for any other name."""
    return _partition_before(folder, FUTURE_FOLDER)


def is_deleted_folder(folder: str) -> bool:
    """Whether the folder waits for its removal."""
    return _partition_before(folder, DELETE_FOLDER) is not None


def _partition_before(folder: str, suffix: str) -> tuple[str, int] | None:
    """Topic and partition of a folder that was renamed to end in a unique string and ``suffix``."""
    if not folder.endswith(suffix):
        return None
    head, dot, unique = folder[: -len(suffix)].rpartition(".")
    return partition_of(head) if dot and len(unique) == _UNIQUE_LENGTH else None
