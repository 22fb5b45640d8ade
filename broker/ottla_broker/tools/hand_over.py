"""``ottla log hand-over``: makes Apache Kafka know the topics of data folders that Ottla used.

The logs are Kafka's already. What Ottla's store knows goes to where Kafka looks for it:

* on ZooKeeper, into nodes: the store's are Kafka's own;
* on KRaft, into ``bootstrap.checkpoint``: the records that a new metadata log begins with. Kafka's ``kafka-storage
  format`` writes the level of ``metadata.version`` there; topics, settings and producer ids may follow.

``meta.properties`` gets the version that Kafka demands: 0 with ZooKeeper, 1 with KRaft. The store stays, for the way
back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from struct import Struct as Layout
from typing import Final

from ottla_broker.controller.new_topics import new_topic_id
from ottla_broker.controller.stored_passwords import without_passwords
from ottla_broker.log import names
from ottla_broker.log.checkpoints import encode_topic_id
from ottla_broker.log.files import Files
from ottla_broker.store.embedded import JOURNAL_NAME
from ottla_broker.store.keys import (
    DEFAULT_ENTITY,
    OWN_PATHS,
    PERSISTENT_PATHS,
    AdoptedNode,
    ControllerNode,
    FeatureNode,
    decode_uuid,
    encode_uuid,
)
from ottla_broker.tools.data_folders import DataFolder, DataFolderError, DataFolders, read_folders
from ottla_broker.tools.known_topics import Knowledge, knowledge_of, read_journal
from ottla_broker.tools.metadata_log import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla_protocol.messages import metadata_records as wire
from ottla_protocol.records.record import encode_batch
from ottla_protocol.schema import Message

BOOTSTRAP: Final = "bootstrap.checkpoint"
METADATA_VERSION: Final = 21
"""The level of ``metadata.version`` in Kafka 3.9."""
UNASSIGNED: Final = bytes(15) + b"\x01"
"""The directory of a replica that no data folder has yet (Kafka's ``DirectoryId``)."""
_CONTROL_KEY: Final = Layout(">hh")
_SNAPSHOT_HEADER: Final = 3
_SNAPSHOT_FOOTER: Final = 4
_HEADER_VALUE: Final = Layout(">hqB").pack(0, 0, 0)
"""Version, the last timestamp contained, no tagged fields."""
_FOOTER_VALUE: Final = Layout(">hB").pack(0, 0)
_RECORDS_AT_ONCE: Final = 1000


@dataclass(slots=True)
class HandOver:
    """The plan of a hand-over.

    Attributes:
        known: what the store says.
        nodes: the store's nodes that Kafka has as well; without finalized features, which Kafka 3.9 doesn't support.
        without_folder: partitions whose folder isn't there; Kafka creates them empty.
        notes: what else to know.
        old_metadata: an earlier metadata log, which is set aside.
    """

    folders: DataFolders
    known: Knowledge
    nodes: dict[str, bytes]
    without_folder: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    old_metadata: str | None = None


def plan(files: Files, paths: list[str]) -> HandOver:
    """Work out a hand-over of locked folders, reading only. Raises DataFolderError, OSError."""
    folders = read_folders(files, paths)
    found = [f"{folder.path}/{JOURNAL_NAME}" for folder in folders.folders if folder.has_journal]
    if len(found) != 1:
        what = "no" if not found else "more than one"
        raise DataFolderError(
            f"{' and '.join(paths)}: {what} {JOURNAL_NAME} there; name all folders of log.dirs of a broker "
            "that ran without ZooKeeper"
        )
    stored = read_journal(found[0])
    known = knowledge_of(stored, folders.broker_id, found[0])
    own = {*OWN_PATHS, "/ottla", AdoptedNode.PATH, ControllerNode.PATH, FeatureNode.PATH}
    nodes = {
        path: data
        for path, data in stored.items()
        if path not in own and not path.startswith(tuple(f"{each}/" for each in OWN_PATHS))
    }
    for path in PERSISTENT_PATHS:
        steps = path.split("/")
        for end in range(2, len(steps) + 1):
            nodes.setdefault("/".join(steps[:end]), b"")
    nodes.pop("/", None)
    hand_over = HandOver(folders, known, nodes)
    there = {partition.name for partition in folders.partitions()}
    for topic in known.topics.values():
        hand_over.without_folder += [
            f"{topic.name}-{index}" for index in topic.partitions if f"{topic.name}-{index}" not in there
        ]
    for folder in folders.folders:
        if folder.has_metadata_log:
            hand_over.old_metadata = f"{folder.path}/{names.CLUSTER_METADATA}"
    if not all(folder.was_clean for folder in folders.folders):
        hand_over.notes.append("the last stop was not clean: Kafka will recover the logs when it starts")
    return hand_over


def write_topic_ids(files: Files, hand_over: HandOver) -> None:
    """Give each partition's folder its topic's id, if it has none. Raises OSError."""
    for partition in hand_over.folders.partitions():
        topic = hand_over.known.topics.get(partition.topic)
        if partition.topic_id is None and topic is not None and topic.topic_id is not None:
            files.replace(f"{partition.path}/{names.PARTITION_METADATA}", encode_topic_id(topic.topic_id))


def write_properties(files: Files, folders: DataFolders, version: str, random: Random) -> None:
    """Write ``meta.properties`` in the version that Kafka demands; the same broker and cluster. Raises OSError."""
    for folder in folders.folders:
        if folder.version == version:
            continue
        if version == "1":
            folder.properties = {
                "node.id": str(folders.broker_id),
                "directory.id": encode_uuid(new_topic_id(random)),
            }
        else:
            folder.properties = {"broker.id": str(folders.broker_id)}
        folder.properties |= {"version": version, "cluster.id": folders.cluster_id}
        text = "#\n" + "".join(f"{key}={value}\n" for key, value in folder.properties.items())
        files.replace(f"{folder.path}/{names.META_PROPERTIES}", text.encode())


def write_bootstrap(files: Files, hand_over: HandOver, random: Random) -> str | None:
    """Write what Kafka's first start on KRaft begins its metadata log with.

    An earlier metadata log would be used instead, so it is set aside; returns its new path. Raises OSError.
    """
    data = encode_bootstrap(hand_over)
    for folder in hand_over.folders.folders:
        files.replace(f"{folder.path}/{BOOTSTRAP}", data)
    old = hand_over.old_metadata
    if old is None:
        return None
    topic, _, partition = names.CLUSTER_METADATA.rpartition("-")
    unique = f"{random.getrandbits(128):032x}"
    name = names.renamed_folder(topic, int(partition), unique, names.STRAY_FOLDER)
    aside = f"{old.rpartition('/')[0]}/{name}"
    files.rename(old, aside)
    return aside


def encode_bootstrap(hand_over: HandOver) -> bytes:
    """The bytes of ``bootstrap.checkpoint``: record batches between a snapshot's header and footer."""
    records = [wire.encode_metadata_record(record, version) for record, version in _records(hand_over)]
    parts = [_control(0, _SNAPSHOT_HEADER, _HEADER_VALUE)]
    offset = 1
    for start in range(0, len(records), _RECORDS_AT_ONCE):
        rows = [(0, None, value, ()) for value in records[start : start + _RECORDS_AT_ONCE]]
        parts.append(encode_batch(rows, base_offset=offset, leader_epoch=0))
        offset += len(rows)
    parts.append(_control(offset, _SNAPSHOT_FOOTER, _FOOTER_VALUE))
    return b"".join(parts)


def _control(offset: int, kind: int, value: bytes) -> bytearray:
    row = (0, _CONTROL_KEY.pack(0, kind), value, ())
    return encode_batch([row], base_offset=offset, leader_epoch=0, control=True)


def _records(hand_over: HandOver) -> Iterator[tuple[Message, int]]:
    """The records, each with its version. Partitions have no leader until the broker registers, as after a stop."""
    folders, known = hand_over.folders, hand_over.known
    broker_id = folders.broker_id
    yield wire.FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION), 0
    directories = {
        partition.name: _directory(folder) for folder in folders.folders for partition in folder.partitions
    }
    for topic in known.topics.values():
        if topic.topic_id is None:
            raise DataFolderError(f"topic {topic.name} has no id; start Ottla on the folder once")
        yield wire.TopicRecord(name=topic.name, topic_id=topic.topic_id), 0
        yield from _configs(TOPIC_RESOURCE, topic.name, topic.configs or {})
        for index, partition in topic.partitions.items():
            record = wire.PartitionRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                replicas=[broker_id],
                isr=[broker_id],
                leader=-1,
                leader_epoch=partition.leader_epoch,
                partition_epoch=0,
                directories=[directories.get(f"{topic.name}-{index}", UNASSIGNED)],
            )
            yield record, 1
    for entity, settings in known.broker_configs.items():
        # A quorum has passwords in plain text; these are encrypted.
        readable = without_passwords(settings)
        yield from _configs(BROKER_RESOURCE, "" if entity == DEFAULT_ENTITY else entity, readable)
    if known.next_producer_id:
        yield wire.ProducerIdsRecord(broker_id=broker_id, next_producer_id=known.next_producer_id), 0


def _directory(folder: DataFolder) -> bytes:
    text = folder.properties.get("directory.id")
    try:
        return UNASSIGNED if text is None else decode_uuid(text)
    except ValueError:
        # As without an id: Kafka assigns its directories when it starts.
        return UNASSIGNED


def _configs(kind: int, name: str, settings: Mapping[str, str]) -> Iterator[tuple[Message, int]]:
    for key, value in settings.items():
        yield wire.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value), 0
