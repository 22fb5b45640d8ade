"""Reads Kafka's metadata log of a cluster without ZooKeeper (KRaft): topics, configs, producer ids.

``__cluster_metadata-0`` lies in one data folder of every broker and controller. It is a log like a partition's, with
snapshots beside its segments::

    <offset, 20 digits>-<epoch, 10 digits>.checkpoint     everything below the offset, as record batches
    <offset, 20 digits>.log                               what happened since

Reading takes the newest snapshot and the batches behind it. A log of one voter is committed to its end; with several
voters, the last records may be ones that no majority has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.log import names
from ottla_broker.log.dump import is_zero_from, open_segment
from ottla_broker.log.files import Files
from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages import metadata_records as wire
from ottla_protocol.records.batch import BatchHeader, CorruptRecordError, crc_is_valid
from ottla_protocol.records.record import decode_records
from ottla_protocol.schema import Message

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class MetadataLogError(Exception):
    """The metadata log can't be read; the message is one line that says where and why."""


@dataclass(slots=True)
class ImagePartition:
    """Replicas are the ids of brokers."""

    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int


@dataclass(slots=True)
class ImageTopic:
    name: str
    topic_id: bytes
    partitions: dict[int, ImagePartition] = field(default_factory=dict)


@dataclass(slots=True)
class MetadataImage:
    """The state of a cluster at ``end_offset`` of its metadata log.

    Attributes:
        topics: by id.
        configs: by type and name of the resource; a broker's name is its id, or "" for all brokers.
        next_producer_id: no id from here on was given to a broker.
        features: the levels of features, such as ``metadata.version``.
        acls, users, quotas, tokens: what names each of them; Ottla has none of these.
        last_crc: of the last batch; with ``end_offset`` it shows whether Kafka has written since.
        damage: why the end of the log could not be read, if so.
    """

    topics: dict[bytes, ImageTopic] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    features: dict[str, int] = field(default_factory=dict)
    acls: set[bytes] = field(default_factory=set)
    users: set[tuple[str, int]] = field(default_factory=set)
    quotas: set[tuple[object, ...]] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    end_offset: int = 0
    last_crc: int = 0
    damage: str | None = None

    def apply(self, record: Message) -> None:
        """Apply a record. Raises MetadataLogError where it contradicts the ones before."""
        match record:
            case wire.TopicRecord():
                self.topics[record.topic_id] = ImageTopic(record.name, record.topic_id)
            case wire.PartitionRecord():
                self._topic(record.topic_id).partitions[record.partition_id] = ImagePartition(
                    record.replicas, record.isr, record.leader, record.leader_epoch
                )
            case wire.PartitionChangeRecord():
                self._change(record)
            case wire.RemoveTopicRecord():
                removed = self._topic(record.topic_id)
                del self.topics[record.topic_id]
                self.configs.pop((TOPIC_RESOURCE, removed.name), None)
            case wire.ConfigRecord():
                settings = self.configs.setdefault((record.resource_type, record.resource_name), {})
                if record.value is None:
                    settings.pop(record.name, None)
                else:
                    settings[record.name] = record.value
            case wire.ProducerIdsRecord():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case wire.FeatureLevelRecord():
                self.features[record.name] = record.feature_level
            case _:
                self._apply_access(record)

    def _apply_access(self, record: Message) -> None:
        match record:
            case wire.AccessControlEntryRecord():
                self.acls.add(record.id)
            case wire.RemoveAccessControlEntryRecord():
                self.acls.discard(record.id)
            case wire.UserScramCredentialRecord():
                self.users.add((record.name, record.mechanism))
            case wire.RemoveUserScramCredentialRecord():
                self.users.discard((record.name, record.mechanism))
            case wire.ClientQuotaRecord():
                parts = sorted((part.entity_type, part.entity_name or "") for part in record.entity)
                change = self.quotas.discard if record.remove else self.quotas.add
                change((*parts, record.key))
            case wire.DelegationTokenRecord():
                self.tokens.add(record.token_id)
            case wire.RemoveDelegationTokenRecord():
                self.tokens.discard(record.token_id)

    def _topic(self, topic_id: bytes) -> ImageTopic:
        found = self.topics.get(topic_id)
        if found is None:
            raise MetadataLogError(f"a record is about a topic of id {topic_id.hex()}, which doesn't exist")
        return found

    def _change(self, record: wire.PartitionChangeRecord) -> None:
        """As Kafka's ``PartitionRegistration.merge``: a new leader, or none, begins an epoch."""
        topic = self._topic(record.topic_id)
        partition = topic.partitions.get(record.partition_id)
        if partition is None:
            raise MetadataLogError(
                f"a record is about {topic.name}-{record.partition_id}, which doesn't exist"
            )
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.isr is not None:
            partition.isr = record.isr
        if record.leader != wire.UNCHANGED_LEADER:
            partition.leader = record.leader
            partition.leader_epoch += 1


def read_metadata_log(files: Files, folder: str) -> MetadataImage:
    """Read the log in the folder ``__cluster_metadata-0``. Raises MetadataLogError, OSError."""
    found = files.names(folder)
    image = MetadataImage()
    pending: list[Message] | None = None
    snapshots = sorted(name for name in found if _SNAPSHOT.fullmatch(name))
    logs = sorted(name for name in found if name.endswith(names.LOG) and names.offset_of(name) is not None)
    paths = [f"{folder}/{name}" for name in logs]
    if snapshots:
        paths.insert(0, f"{folder}/{snapshots[-1]}")
        start = int(snapshots[-1][:20])
    elif logs and names.offset_of(logs[0]):
        raise MetadataLogError(
            f"{folder} begins at offset {names.offset_of(logs[0])} and has no snapshot of what is before"
        )
    for path in paths:
        is_snapshot = not path.endswith(names.LOG)
        for header, batch in _batches(files, path, image):
            if not is_snapshot:
                if header.last_offset < image.end_offset:
                    continue
                if header.base_offset > image.end_offset:
                    raise MetadataLogError(
                        f"{path}: offset {header.base_offset} where {image.end_offset} is next"
                    )
                image.end_offset = header.last_offset + 1
            image.last_crc = header.crc
            try:
                for record in () if header.is_control else _records(header, batch):
                    if isinstance(record, wire.BeginTransactionRecord):
                        pending = []
                    elif isinstance(record, wire.AbortTransactionRecord):
                        pending = None
                    elif isinstance(record, wire.EndTransactionRecord):
                        for each in pending or ():
                            image.apply(each)
                        pending = None
                    elif pending is not None:
                        pending.append(record)
                    else:
                        image.apply(record)
            except (CorruptRecordError, ProtocolError, MetadataLogError) as error:
                raise MetadataLogError(f"{path}: the batch at {header.base_offset}: {error}") from error
        if is_snapshot:
            if image.damage is not None:
                raise MetadataLogError(image.damage)
            image.end_offset = start
        if image.damage is not None:
            break
    return image


def _batches(files: Files, path: str, image: MetadataImage) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a segment or snapshot up to its first damage, of which the image then has a note."""
    segment = open_segment(files, path)
    good = 0
    why = ""
    try:
        for position, header, batch in segment.batches():
            if not crc_is_valid(batch, 0, header):
                why = "the checksum of a batch does not match"
                break
            yield header, batch
            good = position + header.size
    except CorruptRecordError as error:
        why = "" if is_zero_from(segment, good) else str(error)
    if why:
        image.damage = f"{path} can't be read from byte {good} on: {why}"


def _records(header: BatchHeader, batch: memoryview) -> Iterator[Message]:
    for record in decode_records(batch, 0, header):
        if record.value is None:
            raise MetadataLogError(f"the record at {record.offset} has no value")
        decoded = wire.decode_metadata_record(record.value)
        if decoded is not None:
            yield decoded
