"""``ottla log compact``: compacts the logs of data folders at rest, as far as a broker's cleaner would in time.

A broker leaves the segment that it writes to, and waits until a log is dirty enough. Here every compacted log is
cleaned whole: its last segment is rolled first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from random import SystemRandom
from typing import NamedTuple

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.config import BrokerConfig
from ottla_broker.config.topics import TOPIC_KEYS, log_config
from ottla_broker.log import names
from ottla_broker.log.cleaner.service import CleanerSettings, LogCleaner
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.log.folder import LogDirError
from ottla_broker.log.log import Log
from ottla_broker.log.manager import LogManager
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_broker.store.embedded import JOURNAL_NAME
from ottla_broker.tools.data_folders import DataFolderError, DataFolders, DiskPartition, locked, read_folders
from ottla_broker.tools.known_topics import Knowledge, from_metadata_log, knowledge_of, read_journal
from ottla_broker.tools.metadata_log import MetadataLogError, read_metadata_log
from ottla_protocol.errors import KafkaError


class Compacted(NamedTuple):
    """The outcome for a log. ``problem`` says why it could not be compacted, if so."""

    topic: str
    partition: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    problem: str = ""


def compacted_topics(
    paths: Sequence[str], wanted: Sequence[str] = (), *, dry_run: bool = False
) -> tuple[dict[str, LogConfig], list[DiskPartition]]:
    """The topics to compact, with their configs: those whose policy says so, of which only the ``wanted`` ones.

    A wanted topic is compacted if nothing is known of its policy. Returns the topics' partitions, too.

    Raises DataFolderError: a folder is in use, or a wanted topic isn't there or isn't to be compacted.
    """
    with locked(paths, dry_run=dry_run) as files:
        folders = read_folders(files, paths)
        known = _knowledge(files, folders)
    defaults = BrokerConfig.from_properties({})
    there = {partition.topic for partition in folders.partitions()}
    if missing := [topic for topic in wanted if topic not in there]:
        raise DataFolderError(f"no partition of {', '.join(missing)} is in {', '.join(paths)}")
    found = {}
    for topic in sorted(there):
        settings = known.topics[topic].configs if known is not None and topic in known.topics else None
        if settings is None:
            cleaned = any(topic in folder.compacted for folder in folders.folders)
            settings = {"cleanup.policy": "compact"} if cleaned or topic in INTERNAL_TOPICS else {}
            is_known = bool(settings)
        else:
            is_known = True
        config = log_config(defaults, {key: value for key, value in settings.items() if key in TOPIC_KEYS})
        if topic in wanted and is_known and not config.compact:
            raise DataFolderError(f"topic {topic} isn't compacted: set cleanup.policy=compact first")
        if topic in wanted or (not wanted and config.compact):
            found[topic] = replace(config, compact=True)
    return found, [partition for partition in folders.partitions() if partition.topic in found]


def _knowledge(files: Files, folders: DataFolders) -> Knowledge | None:
    """Return what Ottla's store, or otherwise Kafka's metadata log, says."""
    for folder in folders.folders:
        if folder.has_journal:
            path = f"{folder.path}/{JOURNAL_NAME}"
            return knowledge_of(read_journal(path), folders.broker_id, path)
    for folder in folders.folders:
        if folder.has_metadata_log:
            try:
                image = read_metadata_log(files, f"{folder.path}/{names.CLUSTER_METADATA}")
            except MetadataLogError as error:
                raise DataFolderError(f"Kafka's metadata can't be read: {error}") from error
            return from_metadata_log(image, folders.broker_id)
    return None


async def compact(paths: Sequence[str], topics: dict[str, LogConfig]) -> AsyncIterator[Compacted]:
    """Compact the logs of these topics, and yield what became of each that changed or could not be compacted.

    A folder that was left by a crash is recovered first. Raises DataFolderError: a folder is in use.
    """
    clock = SystemClock(asyncio.get_running_loop())
    background = Background(2)
    logs = LogManager(paths, LogConfig(), clock, background, SystemRandom())
    # No one reads these files, so what is replaced can go at once.
    logs.environment.later = _at_once
    try:
        try:
            logs.lock()
            await logs.load(topics.get)
        except LogDirError as error:
            raise DataFolderError(str(error)) from error
        try:
            cleaner = LogCleaner(logs, clock, CleanerSettings(), partial(_stable_offset, logs))
            try:
                chosen = [log for log in logs.logs() if log.topic in topics]
                for log in sorted(chosen, key=lambda log: (log.topic, log.partition)):
                    if (done := await _compact(log, cleaner)) is not None:
                        yield done
            finally:
                await cleaner.close()
        finally:
            await logs.close()
    finally:
        background.close()


def _at_once(delay_ms: int, function: Callable[[], None]) -> None:
    function()


def _stable_offset(logs: LogManager, log: Log) -> int:
    """The offset below which a log may be compacted: there is no undecided transaction, and nothing to truncate.

    A replica in a cluster knows from its checkpoint what is committed; a broker alone has committed everything.
    """
    end = log.log_end_offset
    if not any(logs.files.exists(f"{folder.path}/{JOURNAL_NAME}") for folder in logs.folders):
        high_watermark = logs.high_watermark(log.topic, log.partition)
        end = end if high_watermark is None else min(end, high_watermark)
    unstable = log.producers.unstable
    unstable.replicated_to(end)
    return min(end, unstable.first_offset)


async def _compact(log: Log, cleaner: LogCleaner) -> Compacted | None:
    try:
        log.open()
        size = log.size
        if log.active.size:
            log.roll()
    except KafkaError as error:
        return Compacted(log.topic, log.partition, 0, 0, 0, 0, error.message or str(error))
    before = after = 0
    while (stats := await cleaner.clean(log)) is not None:
        before, after = before or stats.records_read, stats.records_kept
    if (log.topic, log.partition) in cleaner.uncleanable:
        return Compacted(log.topic, log.partition, 0, 0, 0, 0, "a batch in it can't be read")
    if log.size >= size:
        return None
    return Compacted(log.topic, log.partition, before, after, size, log.size)
