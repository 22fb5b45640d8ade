"""``ottla log adopt``: takes over data folders that Apache Kafka left.

Kafka's files are Ottla's, so only the store is made: topics with their ids, settings, leader epochs, producer ids. The
sources, best first:

1. ZooKeeper, where its address is given: everything.
2. ``__cluster_metadata-0`` (KRaft), unless the store was made from this very state of it: everything.
3. The folders: topics and ids, from ``partition.metadata``. Settings aren't in there; a store that Ottla left earlier
   has them. Otherwise topics keep their records: nothing is deleted by age or size until you set retention.

The new store is a complete journal that replaces the old one in one step; the old one is kept beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from ottla_broker.config import BrokerConfig
from ottla_broker.config.broker import key_of
from ottla_broker.config.topics import check_topic_configs
from ottla_broker.controller import topic_store
from ottla_broker.controller.new_topics import new_topic_id, new_topic_on_first_use
from ottla_broker.log import names
from ottla_broker.log.files import Files
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_broker.store import journal
from ottla_broker.store.api import Create
from ottla_broker.store.embedded import JOURNAL_NAME
from ottla_broker.store.keys import (
    OWN_PATHS,
    PERSISTENT_PATHS,
    AdoptedNode,
    ClusterIdNode,
    ConfigNode,
    ControllerEpochNode,
    FeatureNode,
    LastEpochNode,
    PartitionState,
    ProducerIdBlock,
    ProducerIdBlockNode,
    TopicPartitionStateNode,
)
from ottla_broker.tools.data_folders import DataFolderError, DataFolders, DiskPartition, read_folders
from ottla_broker.tools.known_topics import (
    Knowledge,
    KnownPartition,
    KnownTopic,
    from_metadata_log,
    knowledge_of,
    read_journal,
)
from ottla_broker.tools.metadata_log import MetadataLogError, read_metadata_log
from ottla_protocol.errors import KafkaError

KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Settings for a topic of which nothing is known."""
UNKNOWN_IDS: Final = 1_000_000
"""How many producer ids to skip above the largest one found, where it isn't known which ones Kafka gave out."""
_STATE_DEPTH: Final = TopicPartitionStateNode.path("", 0).count("/")
"""Slashes in the path of a partition's state; no other node lies as deep."""
_MIN_ISR: Final = "min.insync.replicas"


@dataclass(slots=True)
class PlannedTopic:
    """A topic as it will be in the store.

    Attributes:
        partitions: their leader epochs.
        configs: its own settings; ``guessed`` if they aren't known.
        missing: partitions that these folders don't have.
        behind: partitions of which this broker wasn't in sync, so that the last records may be missing.
    """

    name: str
    topic_id: bytes
    partitions: dict[int, int]
    configs: dict[str, str]
    guessed: bool = False
    bytes: int = 0
    missing: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Adoption:
    """The plan of a takeover.

    Attributes:
        source: where topics and settings come from.
        problems: why it can't be done; one line each.
        gaps: records that are or may be missing; it is done only if the user accepts that.
        left_out: what isn't taken over.
        notes: what else to know.
        strays: folders of partitions that no topic has; they stay as they are.
        nodes: the store to be.
        journal: its file. ``current`` are the nodes in it now; None without one.
    """

    folders: DataFolders
    source: str
    topics: list[PlannedTopic] = field(default_factory=list)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    problems: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    nodes: dict[str, bytes] = field(default_factory=dict)
    journal: str = ""
    current: dict[str, bytes] | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether the store is as it would be."""
        return self.current is not None and _durable(self.current) == _durable(self.nodes)


def _durable(nodes: Mapping[str, bytes]) -> dict[str, bytes]:
    """The nodes that a takeover decides about."""
    ignored = (ControllerEpochNode.PATH, AdoptedNode.PATH, FeatureNode.PATH)
    kept = {path: data for path, data in nodes.items() if path not in ignored and data}
    for path in [path for path in kept if path.count("/") == _STATE_DEPTH]:
        state = TopicPartitionStateNode.decode(path, kept[path])
        kept[path] = TopicPartitionStateNode.encode(state._replace(controller_epoch=0))
    return kept


def plan(
    files: Files,
    paths: list[str],
    random: Random,
    *,
    zookeeper: Mapping[str, bytes] | None = None,
    metadata_folder: str | None = None,
) -> Adoption:
    """Work out a takeover of locked folders, reading only.

    ``zookeeper`` are the nodes of Kafka's ZooKeeper; ``metadata_folder`` is ``metadata.log.dir``, if that isn't one of
    the folders.

    Raises DataFolderError, OSError.
    """
    folders = read_folders(files, paths)
    own, journal_path = _own_store(folders)
    current = None if own is None else own[1]
    known = _choose_source(files, folders, own and own[0], zookeeper, metadata_folder)
    adoption = Adoption(
        folders,
        "the folders alone" if known is None else known.source,
        journal=journal_path,
        current=current,
    )
    planner = _Planner(adoption, known, own and own[0], random)
    planner.plan()
    adoption.nodes = _nodes_of(adoption, known, own and own[0], current)
    return adoption


def _own_store(folders: DataFolders) -> tuple[tuple[Knowledge, dict[str, bytes]] | None, str]:
    """Return what an earlier run of Ottla has left, if anything, and the journal's path."""
    found = [f"{folder.path}/{JOURNAL_NAME}" for folder in folders.folders if folder.has_journal]
    if len(found) > 1:
        raise DataFolderError(f"{found[0]} and {found[1]}: only one store may exist; move the other one away")
    if not found:
        return None, f"{folders.paths[0]}/{JOURNAL_NAME}"
    nodes = read_journal(found[0])
    known = knowledge_of(nodes, folders.broker_id, found[0])
    if known.cluster_id not in (None, folders.cluster_id):
        raise DataFolderError(
            f"{found[0]} belongs to cluster {known.cluster_id} and the folder to cluster {folders.cluster_id}; "
            "move the file away if the folder is Kafka's"
        )
    return (known, nodes), found[0]


def _choose_source(
    files: Files,
    folders: DataFolders,
    own: Knowledge | None,
    zookeeper: Mapping[str, bytes] | None,
    metadata_folder: str | None,
) -> Knowledge | None:
    if zookeeper is not None:
        known = knowledge_of(zookeeper, folders.broker_id, "ZooKeeper")
        if known.cluster_id != folders.cluster_id:
            raise DataFolderError(
                f"ZooKeeper has cluster {known.cluster_id or 'none'}, the folder belongs to {folders.cluster_id}; "
                "check the address and its path"
            )
        return known
    found = [folder.path for folder in folders.folders if folder.has_metadata_log]
    if metadata_folder is not None and metadata_folder not in found:
        if not os.path.isdir(f"{metadata_folder}/{names.CLUSTER_METADATA}"):
            raise DataFolderError(
                f"{metadata_folder} has no folder {names.CLUSTER_METADATA}; check metadata.log.dir"
            )
        found.append(metadata_folder)
    if len(found) > 1:
        raise DataFolderError(
            f"{' and '.join(found)} both have {names.CLUSTER_METADATA}; move away the one that isn't in use"
        )
    if not found:
        return None
    try:
        image = read_metadata_log(files, f"{found[0]}/{names.CLUSTER_METADATA}")
    except MetadataLogError as error:
        raise DataFolderError(
            f"Kafka's metadata can't be read: {error}; without it, move {found[0]}/{names.CLUSTER_METADATA} away "
            "to take over topics without their settings"
        ) from error
    known = from_metadata_log(image, folders.broker_id)
    if own is not None and own.adopted == known.adopted:
        own.source = f"{JOURNAL_NAME}, as Kafka has not run since it was made"
        return own
    return known


@dataclass(slots=True)
class _Planner:
    adoption: Adoption
    known: Knowledge | None
    own: Knowledge | None
    random: Random
    defaults: BrokerConfig = field(default_factory=lambda: BrokerConfig.from_properties({}))

    def plan(self) -> None:
        adoption, known = self.adoption, self.known
        disk: dict[str, dict[int, DiskPartition]] = {}
        for partition in adoption.folders.partitions():
            disk.setdefault(partition.topic, {})[partition.index] = partition
            adoption.problems += [f"{what}; ottla log repair can restore it" for what in partition.damage]
        if known is not None:
            for topic in known.topics.values():
                self._known_topic(topic, disk.pop(topic.name, {}))
            adoption.strays += [each.path for found in disk.values() for each in found.values()]
        else:
            for name in sorted(disk):
                self._found_topic(name, disk[name])
        adoption.topics.sort(key=lambda topic: topic.name)
        settings = known or self.own
        if settings is not None:
            adoption.broker_configs = settings.broker_configs
        if known is not None:
            adoption.left_out += known.left_out
        self._check_configs()
        self._producer_ids(known)
        self._notes()

    def _known_topic(self, topic: KnownTopic, found: dict[int, DiskPartition]) -> None:
        topic_id = (
            topic.topic_id
            or next((each.topic_id for each in found.values() if each.topic_id), None)
            or new_topic_id(self.random)
        )
        planned = PlannedTopic(topic.name, topic_id, {}, dict(topic.configs or {}), topic.configs is None)
        broker_id = self.adoption.folders.broker_id
        for index, partition in topic.partitions.items():
            on_disk = found.pop(index, None)
            if on_disk is not None and on_disk.topic_id not in (None, topic_id):
                self.adoption.strays.append(on_disk.path)
                on_disk = None
            if on_disk is None:
                planned.missing.append(index)
            elif broker_id not in partition.replicas or not partition.in_sync:
                planned.behind.append(index)
            self._add(planned, index, partition, on_disk)
        self.adoption.strays += [each.path for each in found.values()]
        self._finish(planned)

    def _found_topic(self, name: str, found: dict[int, DiskPartition]) -> None:
        """A topic of which only the folders are known."""
        ids = sorted({each.topic_id for each in found.values() if each.topic_id is not None})
        if len(ids) > 1:
            self.adoption.problems.append(
                f"the partitions of {name} have different topic ids: move away the folders of the topic that was "
                "deleted"
            )
        before = self.own.topics.get(name) if self.own is not None else None
        topic_id = ids[0] if ids else (before and before.topic_id) or new_topic_id(self.random)
        planned = PlannedTopic(name, topic_id, {}, {})
        count = max(found) + 1
        if before is not None and before.topic_id == topic_id and before.configs is not None:
            planned.configs = dict(before.configs)
            count = max(count, *(index + 1 for index in before.partitions))
        else:
            planned.configs, planned.guessed = self._guess(name), name not in INTERNAL_TOPICS
        for index in range(count):
            on_disk = found.get(index)
            if on_disk is None:
                planned.missing.append(index)
            self._add(planned, index, None, on_disk)
        self._finish(planned)

    def _guess(self, name: str) -> dict[str, str]:
        """Settings that lose no record."""
        if name in INTERNAL_TOPICS:
            configs = new_topic_on_first_use(self.defaults, name).configs
            return {
                key: "1" if key == _MIN_ISR else value for key, value in configs.items() if value is not None
            }
        if any(name in folder.compacted for folder in self.adoption.folders.folders):
            return {"cleanup.policy": "compact"}
        return dict(KEEP_ALL)

    def _add(
        self, planned: PlannedTopic, index: int, known: KnownPartition | None, on_disk: DiskPartition | None
    ) -> None:
        """Add a partition with the highest leader epoch that anything knows: an epoch must never go back."""
        epochs = [0]
        if known is not None:
            epochs.append(known.leader_epoch)
        if on_disk is not None:
            epochs.append(on_disk.leader_epoch)
            planned.bytes += on_disk.bytes
        before = self.own.topics.get(planned.name) if self.own is not None else None
        if before is not None and before.topic_id == planned.topic_id and index in before.partitions:
            epochs.append(before.partitions[index].leader_epoch)
        planned.partitions[index] = max(epochs)

    def _finish(self, planned: PlannedTopic) -> None:
        adoption = self.adoption
        adoption.topics.append(planned)
        if planned.missing:
            adoption.gaps.append(
                f"{planned.name}: {_numbers(planned.missing)} not in these folders; they would be created empty"
            )
        if planned.behind:
            adoption.gaps.append(
                f"{planned.name}: {_numbers(planned.behind)} not in sync on this broker, so another broker may have "
                "later records"
            )
        minimum = planned.configs.get(_MIN_ISR, "")
        if minimum.isdigit() and int(minimum) > 1:
            planned.configs[_MIN_ISR] = "1"
            adoption.notes.append(f"{planned.name}: {_MIN_ISR}={minimum} becomes 1, as there is one replica")

    def _check_configs(self) -> None:
        """Name the settings that Ottla won't use. They stay in the store, for the way back."""
        adoption = self.adoption
        for topic in adoption.topics:
            for name, text in topic.configs.items():
                try:
                    check_topic_configs(self.defaults, {name: text})
                except (KafkaError, ValueError) as error:
                    adoption.left_out.append(f"topic {topic.name}: {name}={text}: {error}")
        for entity, settings in adoption.broker_configs.items():
            for name, text in settings.items():
                if (key := key_of(name)) is not None and key.sensitive:
                    adoption.left_out.append(
                        f"broker {entity}: {name}: Ottla can read it only if this broker's password.encoder.secret"
                        " has encrypted it; else set it again"
                    )
                    continue
                try:
                    self.defaults.check_dynamic({name: text})
                except ValueError as error:
                    adoption.left_out.append(f"broker {entity}: {name}={text}: {error}")

    def _producer_ids(self, known: Knowledge | None) -> None:
        adoption = self.adoption
        largest = max((each.largest_producer_id for each in adoption.folders.partitions()), default=-1)
        candidates = [
            each.next_producer_id
            for each in (known, self.own)
            if each is not None and each.next_producer_id is not None
        ]
        adoption.next_producer_id = max(candidates, default=0)
        if not candidates or adoption.next_producer_id <= largest:
            adoption.next_producer_id = largest + 1 + UNKNOWN_IDS

    def _notes(self) -> None:
        adoption = self.adoption
        folders = adoption.folders
        guessed = [topic.name for topic in adoption.topics if topic.guessed]
        if guessed:
            adoption.notes.append(
                f"the settings of {len(guessed)} topics are not in the folders; the ones shown keep all records. "
                "Set them with ottla configs alter once the broker runs"
            )
        if not all(folder.was_clean for folder in folders.folders):
            adoption.notes.append(
                "the last stop was not clean: the broker will recover the logs when it starts"
            )
        if any(folder.has_metadata_log for folder in folders.folders):
            adoption.notes.append(f"{names.CLUSTER_METADATA} stays as it is, and Ottla doesn't use it")
        adoption.notes.append(
            "settings in Kafka's server.properties are not in the folders: start Ottla with the same ones, "
            "such as log.retention.hours"
        )
        if adoption.strays:
            adoption.notes.append(
                f"{len(adoption.strays)} folders belong to no topic and stay as they are: "
                + ", ".join(adoption.strays[:5])
                + (", …" if len(adoption.strays) > 5 else "")
            )


def _numbers(indexes: Iterable[int]) -> str:
    found = list(indexes)
    shown = ", ".join(map(str, found[:10])) + (", …" if len(found) > 10 else "")
    return f"partition {shown} is" if len(found) == 1 else f"partitions {shown} are"


def _nodes_of(
    adoption: Adoption, known: Knowledge | None, own: Knowledge | None, current: Mapping[str, bytes] | None
) -> dict[str, bytes]:
    """All nodes of the store, parents included."""
    broker_id = adoption.folders.broker_id
    nodes: dict[str, bytes] = {}

    def put(path: str, data: bytes) -> None:
        steps = path.split("/")
        for end in range(2, len(steps)):
            nodes.setdefault("/".join(steps[:end]), b"")
        nodes[path] = data

    for path in (*PERSISTENT_PATHS, *OWN_PATHS):
        put(path, b"")
    put(ClusterIdNode.PATH, ClusterIdNode.encode(adoption.folders.cluster_id))
    for path in (ControllerEpochNode.PATH, FeatureNode.PATH):
        if current is not None and path in current:
            put(path, current[path])
    for topic in adoption.topics:
        replicas = {index: [broker_id] for index in topic.partitions}
        for operation in topic_store.creation(topic.name, topic.topic_id, replicas, topic.configs):
            if isinstance(operation, Create):
                put(operation.path, operation.data)
        for index, epoch in topic.partitions.items():
            state = PartitionState(broker_id, epoch, [broker_id], 0)
            put(
                TopicPartitionStateNode.path(topic.name, index),
                TopicPartitionStateNode.encode(state),
            )
    for entity, settings in adoption.broker_configs.items():
        put(ConfigNode.path(ConfigNode.BROKERS, entity), ConfigNode.encode(settings))
    if adoption.next_producer_id:
        block = ProducerIdBlock(
            broker_id, max(0, adoption.next_producer_id - 1000), adoption.next_producer_id - 1
        )
        put(ProducerIdBlockNode.PATH, ProducerIdBlockNode.encode(block))
    for name, epoch in _last_epochs(adoption, own).items():
        put(LastEpochNode.path(name), LastEpochNode.encode(epoch))
    source = known or own
    if source is not None and source.adopted is not None:
        put(AdoptedNode.PATH, source.adopted)
    return nodes


def _last_epochs(adoption: Adoption, own: Knowledge | None) -> dict[str, int]:
    """The epochs of topics that Ottla had and that are gone; a new topic of that name starts above."""
    if own is None:
        return {}
    found = dict(own.last_epochs)
    there = {(topic.name, topic.topic_id) for topic in adoption.topics}
    for name, topic in own.topics.items():
        if (name, topic.topic_id) not in there:
            highest = max((each.leader_epoch for each in topic.partitions.values()), default=0)
            found[name] = max(highest, found.get(name, 0))
    return found


def carry_out(adoption: Adoption) -> str | None:
    """Write the store, durably and in one step. Returns the path that the old journal is kept at, if there was one.

    The folders' locks must be held. Raises OSError.
    """
    path = Path(adoption.journal)
    changes = (journal.Change(node, adoption.nodes[node], 0, 0) for node in sorted(adoption.nodes))
    beside, descriptor, _, _ = journal.write_compacted(path, changes)
    os.close(descriptor)
    if not path.exists():
        journal.replace(beside, path)
        return None
    number = 1
    while (kept := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    os.link(path, kept)
    journal.replace(beside, path)
    return str(kept)
