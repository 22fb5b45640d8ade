"""``ottla log repair``: whole data folders at rest. A partition's folder is :mod:`ottla_broker.log.repair`'s.

It repairs more than those: offset checkpoints, of which the readable lines are kept; ``partition.metadata``, from
the topic's other partitions or the store; the store's torn end; folders of deleted partitions.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Final

from ottla_broker.log import names
from ottla_broker.log.checkpoints import decode_offsets, encode_offsets, encode_topic_id, read_topic_id
from ottla_broker.log.config import LogConfig
from ottla_broker.log.dump import OFFSET_CHECKPOINTS
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import CorruptFileError, Files
from ottla_broker.log.folder import CLEAN_MARKER
from ottla_broker.log.repair import LEFT, PartitionPlan, Repair, carry_out, plan_partition, remaining
from ottla_broker.log.verify import Tally, verify_properties
from ottla_broker.store import journal
from ottla_broker.store.api import StoreError
from ottla_broker.store.embedded import JOURNAL_NAME
from ottla_broker.tools.data_folders import DataFolderError, locked
from ottla_broker.tools.known_topics import knowledge_of, read_journal
from ottla_protocol.errors import KafkaError

_LINE: Final = re.compile(r"^([a-zA-Z0-9._-]{1,249}) ([0-9]{1,9}) ([0-9]{1,19})$", re.MULTILINE)
_NEVER_MS: Final = 2**62
"""Producers don't expire here: the broker knows its own setting."""
_NO_ID: Final = bytes(16)

Offsets = dict[tuple[str, int], int]


@dataclass(slots=True)
class Summary:
    """The findings and the work done, in numbers."""

    partitions: int = 0
    recovered: int = 0
    done: int = 0
    left: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Folder:
    path: str
    was_clean: bool
    checkpoints: dict[str, Offsets] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    failed: bool = False


def repair(
    paths: Sequence[str], summary: Summary, *, dry_run: bool = False, drop_damaged: bool = False
) -> Iterator[Repair]:
    """Repair data folders, and yield what is found as it is found; ``dry_run`` changes nothing.

    Raises DataFolderError: a folder is in use or isn't one.
    """
    with locked(paths, dry_run=dry_run) as files:
        repairer = _Repairer(files, list(paths), summary, dry_run, drop_damaged)
        for found in repairer.run():
            if found.done:
                summary.done += 1
            else:
                summary.left += 1
            yield found


@dataclass(slots=True)
class _Repairer:
    files: Files
    paths: list[str]
    summary: Summary
    dry_run: bool
    drop_damaged: bool
    folders: list[_Folder] = field(default_factory=list)
    topic_ids: dict[str, set[bytes]] = field(default_factory=dict)

    def run(self) -> Iterator[Repair]:
        for path in self.paths:
            folder = _Folder(path, self.files.exists(f"{path}/{names.CLEAN_SHUTDOWN}"))
            self.folders.append(folder)
            yield from self._folder_files(folder)
        self._find_topic_ids()
        for folder in self.folders:
            yield from self._partitions(folder)
            if not self.dry_run:
                self._write_checkpoints(folder)

    def _folder_files(self, folder: _Folder) -> Iterator[Repair]:
        found = sorted(self.files.names(folder.path))
        for name in found:
            path = f"{folder.path}/{name}"
            if name in OFFSET_CHECKPOINTS:
                yield from self._checkpoint(folder, name)
            elif name == names.META_PROPERTIES:
                for _, problem in verify_properties(self.files, path):
                    yield Repair(path, None, problem, f"{LEFT}: restore it", done=False)
            elif name == JOURNAL_NAME:
                yield from self._journal(path)
            elif name.endswith((".tmp", f"{JOURNAL_NAME}.new")):
                yield Repair(path, None, "a file that was never finished", "removed")
                if not self.dry_run:
                    self.files.unlink(path)
            elif names.is_deleted_folder(name):
                yield Repair(path, None, "a deleted partition's folder", "removed")
                if not self.dry_run:
                    self.files.remove_folder(path)

    def _checkpoint(self, folder: _Folder, name: str) -> Iterator[Repair]:
        path = f"{folder.path}/{name}"
        data = self.files.read_all(path)
        try:
            folder.checkpoints[name] = decode_offsets(data, path)
        except CorruptFileError as error:
            lines = _LINE.findall(data.decode("utf-8", "replace"))
            kept = folder.checkpoints[name] = {
                (topic, int(number)): int(offset) for topic, number, offset in lines if int(offset) < 2**63
            }
            folder.damaged.add(name)
            yield Repair(
                path, None, str(error), f"written again with the {len(kept)} offsets in it that can be read"
            )

    def _journal(self, path: str) -> Iterator[Repair]:
        try:
            loaded = journal.load(Path(path))
        except StoreError as error:
            action = f"{LEFT}: restore it, or move it away and run ottla log adopt"
            yield Repair(path, None, str(error), action, done=False)
            return
        if loaded.cut:
            yield Repair(path, loaded.end, f"{loaded.cut} bytes of an incomplete frame", "cut off")
            if not self.dry_run:
                os.close(journal.open_for_append(Path(path), loaded))

    def _find_topic_ids(self) -> None:
        """The ids of topics, from all partitions' folders and from the store."""
        for folder in self.folders:
            for name in self.files.folders(folder.path):
                if (key := names.partition_of(name)) is None:
                    continue
                try:
                    path = f"{folder.path}/{name}/{names.PARTITION_METADATA}"
                    topic_id = read_topic_id(self.files, path)
                except CorruptFileError:
                    continue  # it is repaired, or reported, with its partition
                if topic_id != _NO_ID:
                    self.topic_ids.setdefault(key[0], set()).add(topic_id)
            path = f"{folder.path}/{JOURNAL_NAME}"
            if not self.files.exists(path):
                continue
            try:
                known = knowledge_of(read_journal(path), -1, path)
            except DataFolderError:
                continue  # the journal is reported on its own
            for topic in known.topics.values():
                if topic.topic_id is not None:
                    # What the store says counts, if anything does.
                    self.topic_ids.setdefault(topic.name, set()).add(topic.topic_id)

    def _partitions(self, folder: _Folder) -> Iterator[Repair]:
        for name in sorted(self.files.folders(folder.path)):
            key = names.partition_of(name)
            if key is None or name == names.CLUSTER_METADATA:
                continue
            path = f"{folder.path}/{name}"
            self.summary.partitions += 1
            try:
                yield from self._topic_id(path, key[0])
                yield from self._partition(folder, path, key)
            except (OSError, KafkaError) as error:
                folder.failed = True
                why = error.message if isinstance(error, KafkaError) else str(error)
                yield Repair(path, None, f"can't be repaired: {why}", LEFT, done=False)

    def _topic_id(self, folder: str, topic: str) -> Iterator[Repair]:
        path = f"{folder}/{names.PARTITION_METADATA}"
        try:
            read_topic_id(self.files, path)
        except CorruptFileError as error:
            known = self.topic_ids.get(topic, set())
            if len(known) != 1:
                yield Repair(path, None, str(error), f"{LEFT}: the topic's id isn't known", done=False)
                return
            yield Repair(path, None, str(error), "written again with the topic's id")
            if not self.dry_run:
                self.files.replace(path, encode_topic_id(next(iter(known))))

    def _partition(self, folder: _Folder, path: str, key: tuple[str, int]) -> Iterator[Repair]:
        tally = Tally()
        plan = plan_partition(
            self.files,
            path,
            *key,
            recovery_point=folder.checkpoints.get(names.RECOVERY_POINTS, {}).get(key, 0),
            log_start_offset=folder.checkpoints.get(names.LOG_STARTS, {}).get(key, 0),
            was_clean=folder.was_clean,
            drop_damaged=self.drop_damaged,
            tally=tally,
        )
        self.summary.bytes += tally.bytes
        yield from plan.repairs
        if plan.must_open and not self.dry_run:
            yield from self._carry_out(folder, plan, key)

    def _carry_out(self, folder: _Folder, plan: PartitionPlan, key: tuple[str, int]) -> Iterator[Repair]:
        environment = LogEnvironment(
            self.files,
            lambda: time.time_ns() // 1_000_000,
            SystemRandom(),
            producer_id_expiration_ms=_NEVER_MS,
        )
        log = carry_out(environment, plan, LogConfig())
        self.summary.recovered += 1
        folder.checkpoints.setdefault(names.RECOVERY_POINTS, {})[key] = log.recovery_point
        starts = folder.checkpoints.setdefault(names.LOG_STARTS, {})
        if log.log_start_offset > log.segments[0].base_offset:
            starts[key] = log.log_start_offset
        else:
            starts.pop(key, None)
        known = {(repair.file, repair.problem) for repair in plan.repairs if not repair.done}
        for finding in remaining(self.files, plan.folder):
            # The topic's id has been reported.
            if (
                not finding.file.endswith(names.PARTITION_METADATA)
                and (finding.file, finding.problem) not in known
            ):
                yield Repair(finding.file, finding.position, finding.problem, LEFT, done=False)

    def _write_checkpoints(self, folder: _Folder) -> None:
        """Write what has changed, and that the folder needs no recovery. Raises OSError."""
        for name, offsets in folder.checkpoints.items():
            path = f"{folder.path}/{name}"
            data = encode_offsets(offsets)
            if name in folder.damaged or offsets or self.files.exists(path):
                self.files.replace(path, data)
        if not folder.was_clean and not folder.failed and folder.checkpoints.get(names.RECOVERY_POINTS):
            self.files.replace(f"{folder.path}/{names.CLEAN_SHUTDOWN}", CLEAN_MARKER)
