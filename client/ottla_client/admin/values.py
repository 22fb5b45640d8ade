"""The values that Admin takes and returns, in addition to those in ``types``."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ottla_protocol.lag import beyond_end

from ..errors import ConfigurationError
from ..types import Node, OffsetAndMetadata, TopicPartition
from ..types import TimedOffset as TimedOffset


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    ``partitions`` and ``replication_factor`` -1 take the broker's defaults (KIP-464). ``assignment`` instead names
    each partition's replicas, the preferred leader first. Configs are Kafka's topic configs by name, such as
    ``retention.ms``; numbers and bools are sent as text, and None stands for the default. ``num_partitions`` is another
    name of ``partitions``, as other clients call it.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | float | bool | None] | None = None
    assignment: Mapping[int, Sequence[int]] | None = None
    num_partitions: InitVar[int | None] = None

    def __post_init__(self, num_partitions: int | None) -> None:
        if num_partitions is None:
            return
        if self.partitions != -1:
            raise ConfigurationError("partitions and num_partitions are the same option; give one of them")
        object.__setattr__(self, "partitions", num_partitions)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as the broker created it; sizes are -1 and ``id`` None with a broker too old to report them."""

    name: str
    id: bytes | None
    partitions: int
    replication_factor: int
    config_names: frozenset[str] = frozenset()
    """The names of all its configs; empty with a broker that doesn't report them."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic's total number of partitions, and optionally the replicas of the new ones."""

    total: int
    assignment: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The quotas of an entity: names by type ("user", "client-id", "ip"; None is the default), and values by key."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


class ResourceType(IntEnum):
    """Types of resources with configs; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, broker, … by name. A broker's name is its id; the empty name means the defaults of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", " ")
        return f"{kind} {self.name}" if self.name else f"{kind} defaults"

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None) -> ConfigResource:
        """A broker; None means the settings of all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @property
    def node(self) -> int | None:
        """The broker to ask; None for any."""
        return (
            int(self.name)
            if self.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and self.name
            else None
        )


class ConfigSource(IntEnum):
    """Where a config's value was set (KIP-226); the numbers are the protocol's."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """A value of a config at one level, which a stronger level may override."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config. ``value`` is None where it is sensitive or unset.

    ``synonyms``, the strongest first, and ``documentation`` are present if they were requested.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source is ConfigSource.DEFAULT


class AlterOperation(IntEnum):
    """How to change a config (KIP-339); the numbers are the protocol's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterConfig(NamedTuple):
    """One change. APPEND and SUBTRACT are for configs that are lists; DELETE restores the default."""

    name: str
    value: str | float | bool | None = None
    operation: AlterOperation = AlterOperation.SET


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group by name. ``state`` and ``type`` are "" if the broker is too old to report them."""

    group_id: str
    protocol_type: str
    state: str = ""
    type: str = ""
    coordinator: int = -1


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. ``assignment`` is empty except in consumer groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition] = frozenset()
    subscription: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members.

    ``protocol`` is the assignor's name. ``type`` is "classic"; "consumer" for KIP-848's, which the broker assigns; or
    "share" for KIP-932's.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...] = ()
    type: str = "classic"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's lag in a partition.

    ``records`` are left from the committed offset or the log's start to the end, never fewer than 0. Gaps left by
    compaction and transactions don't count where they are near (:mod:`ottla_protocol.lag`). ``seconds`` is the age of
    the first unread record, 0.0 if there is none, and None if the record can't be read or has no timestamp. Both are
    None where nothing is committed. ``end`` is None while the partition has no leader.
    """

    committed: OffsetAndMetadata | None
    start: int | None
    end: int | None
    records: int | None
    seconds: float | None

    @property
    def beyond_end(self) -> int:
        """How far the committed offset lies beyond the end: the topic was made again, or has lost records."""
        return (
            0 if self.committed is None or self.end is None else beyond_end(self.committed.offset, self.end)
        )


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, brokers and controller. On KRaft any broker may appear as controller: it forwards requests."""

    cluster_id: str | None
    controller_id: int | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A replica on disk: its size in bytes, its lag in records, and whether it is being moved there (KIP-113)."""

    size: int
    lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory. Volume sizes in bytes are None if unknown (KIP-827); ``error`` is a code, 0 if none."""

    path: str
    replicas: Mapping[TopicPartition, ReplicaLog]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    error: int = 0


@dataclass(frozen=True, slots=True)
class ProducerState:
    """An active producer of a partition (KIP-664). None means no open transaction, or no sequence yet."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id (KIP-664). ``state`` is Kafka's name; ``coordinator`` is the id of the broker."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


_ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id with its last or open transaction (KIP-664).

    ``started_ms`` is when the open transaction began, in milliseconds since 1970; None without one. ``partitions`` are
    those of an open transaction, and of one that is being ended.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: frozenset[TopicPartition]
    coordinator: int

    @property
    def is_open(self) -> bool:
        """Whether the transaction that began at ``started_ms`` hasn't ended yet."""
        return self.started_ms is not None and self.state not in _ENDED


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction in a partition that no coordinator will end; ``transactional_id`` is None if none is known."""

    partition: TopicPartition
    producer: ProducerState
    transactional_id: str | None = None


class VersionRange(NamedTuple):
    """The lowest and highest version of an API that a broker serves, or level of a feature that it supports."""

    first: int
    last: int

    def covers(self, number: int) -> bool:
        return self.first <= number <= self.last


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """The features of a cluster, as one broker knows them (KIP-584), by name.

    ``finalized`` has the levels at which the brokers work together; ``epoch`` grows with each change of them, and is -1
    with a broker that doesn't know. ``supported`` has the levels that this broker can work at.
    """

    epoch: int
    finalized: Mapping[str, int]
    supported: Mapping[str, VersionRange]


class UpgradeType(IntEnum):
    """Which changes of a feature's level are allowed; the numbers are the protocol's.

    A safe downgrade is refused if the cluster would lose what it keeps in the feature's format.
    """

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level at which a feature is to be finalized; below 1, no longer at all."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class ElectionType(IntEnum):
    """Types of leader elections (KIP-460); the numbers are the protocol's."""

    PREFERRED = 0
    UNCLEAN = 1


class PartitionReassignment(NamedTuple):
    """A moving partition: all its replicas, those being added, and those removed once the new ones are in sync."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the move."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token: its id and its HMAC in base64 are user and password of a login by SCRAM.

    Principals are such as ``User:alice``; times are in milliseconds since the epoch. Without its HMAC in ``repr``.

    Attributes:
        requester: who made it, if that isn't the owner.
        renewers: who may renew it as well as the owner.
        expires_ms: its end unless it is renewed, which it can be until ``max_ms``.
    """

    id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """The HMAC in base64, for ``sasl_plain_password``."""
        return b64encode(self.hmac).decode()
