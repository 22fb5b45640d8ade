"""The records of ``__cluster_metadata-0``, the log in which Kafka keeps a cluster's metadata without ZooKeeper (KRaft).

A record has no key. Its value is (Kafka's ``AbstractApiMessageSerde``)::

    frame:   unsigned varint   1
    type:    unsigned varint   the record's type, as in RECORD_TYPES
    version: unsigned varint
    body:    the record in that version; all are flexible

Only the records that a data folder's owner needs are declared: topics, configs, producer ids, and what must be named
when it can't be taken over. Other records, such as the registrations of brokers, decode to None.
"""

from __future__ import annotations

from typing import Final

from ..errors import LocalProtocolError, ProtocolError
from ..primitives import Buffer, read_uvarint, uvarint
from ..schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

FRAME_VERSION: Final = 1
UNCHANGED_LEADER: Final = -2


class TopicRecord(Message, versions="0", flexible="0+"):
    name: String = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)


class PartitionRecord(Message, versions="0-2", flexible="0+"):
    """A partition in full. ``directories`` are the data folders of the replicas, in their order (KIP-858)."""

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid = field(default=ZERO_UUID)
    replicas: list[Int32] = field(default_factory=list)
    isr: list[Int32] = field(default_factory=list)
    removing_replicas: list[Int32] = field(default_factory=list)
    adding_replicas: list[Int32] = field(default_factory=list)
    leader: Int32 = field(default=-1)
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[Uuid] = field("1+", default_factory=list, ignorable=True)
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=1, ignorable=True)
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=2, ignorable=True)


class PartitionChangeRecord(Message, versions="0-2", flexible="0+"):
    """The changes of a partition; None, and -2 for the leader, is what didn't change."""

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid = field(default=ZERO_UUID)
    isr: list[Int32] | None = field(default=None, tag=0)
    leader: Int32 = field(default=UNCHANGED_LEADER, tag=1)
    replicas: list[Int32] | None = field(default=None, tag=2)
    removing_replicas: list[Int32] | None = field(default=None, tag=3)
    adding_replicas: list[Int32] | None = field(default=None, tag=4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=6, ignorable=True)
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=7, ignorable=True)
    directories: list[Uuid] | None = field("1+", default=None, tag=8, ignorable=True)


class ConfigRecord(Message, versions="0", flexible="0+"):
    """One setting of a resource: 2 is a topic, 4 a broker, whose name "" means all brokers. None removes it."""

    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    name: String = field(default="")
    value: String | None = field(default="")


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    topic_id: Uuid = field(default=ZERO_UUID)


class DelegationTokenRecord(Message, versions="0", flexible="0+"):
    owner: String = field(default="")
    requester: String = field(default="")
    renewers: list[String] = field(default_factory=list)
    issue_timestamp: Int64 = field(default=0)
    max_timestamp: Int64 = field(default=0)
    expiration_timestamp: Int64 = field(default=0)
    token_id: String = field(default="")


class UserScramCredentialRecord(Message, versions="0", flexible="0+"):
    """A user's salted password."""

    name: String = field(default="")
    mechanism: Int8 = field(default=0)
    salt: Bytes = field(default=b"")
    stored_key: Bytes = field(default=b"")
    server_key: Bytes = field(default=b"")
    iterations: Int32 = field(default=0)


class FeatureLevelRecord(Message, versions="0", flexible="0+"):
    """A feature that the cluster uses; the level of ``metadata.version`` says which records there may be."""

    name: String = field(default="")
    feature_level: Int16 = field(default=0)


class EntityData(Struct):
    """A part of who a quota is for: a user, client id or address; None is the default."""

    entity_type: String = field(default="")
    entity_name: String | None = field(default="")


class ClientQuotaRecord(Message, versions="0", flexible="0+"):
    entity: list[EntityData] = field(default_factory=list)
    key: String = field(default="")
    value: Float64 = field(default=0.0)
    remove: Bool = field(default=False)


class ProducerIdsRecord(Message, versions="0", flexible="0+"):
    """A broker got a block of producer ids; ``next_producer_id`` is the first id behind it."""

    broker_id: Int32 = field(default=0)
    broker_epoch: Int64 = field(default=-1)
    next_producer_id: Int64 = field(default=0)


class AccessControlEntryRecord(Message, versions="0", flexible="0+"):
    id: Uuid = field(default=ZERO_UUID)
    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    pattern_type: Int8 = field(default=0)
    principal: String = field(default="")
    host: String = field(default="")
    operation: Int8 = field(default=0)
    permission_type: Int8 = field(default=0)


class RemoveAccessControlEntryRecord(Message, versions="0", flexible="0+"):
    id: Uuid = field(default=ZERO_UUID)


class RemoveUserScramCredentialRecord(Message, versions="0", flexible="0+"):
    name: String = field(default="")
    mechanism: Int8 = field(default=0)


class BeginTransactionRecord(Message, versions="0", flexible="0+"):
    """The records up to the end of the transaction take force together (KIP-868)."""

    name: String | None = field(default=None, tag=0)


class EndTransactionRecord(Message, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, versions="0", flexible="0+"):
    reason: String | None = field(default=None, tag=0)


class RemoveDelegationTokenRecord(Message, versions="0", flexible="0+"):
    token_id: String = field(default="")


RECORD_TYPES: Final[dict[int, type[Message]]] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
}
_NUMBERS: Final = {cls: number for number, cls in RECORD_TYPES.items()}


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The value of a record. Raises like ``Message.encode``, and LocalProtocolError for another message."""
    number = _NUMBERS.get(type(record))
    if number is None:
        raise LocalProtocolError(f"{type(record).__name__} is no record of the metadata log")
    return uvarint(FRAME_VERSION) + uvarint(number) + uvarint(version) + record.encode(version)


def decode_metadata_record(value: Buffer) -> Message | None:
    """The record in ``value``; None for a type that isn't declared here.

    Raises ProtocolError for another frame, an unknown version, or bytes that are not such a record.
    """
    try:
        frame, position = read_uvarint(value, 0)
        number, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError:
        raise ProtocolError(f"a metadata record of {len(value)} bytes ends in its head") from None
    if frame != FRAME_VERSION:
        raise ProtocolError(f"a metadata record of frame version {frame}, known is {FRAME_VERSION}")
    cls = RECORD_TYPES.get(number)
    return None if cls is None else cls.decode(value, version, position)
