"""The interface of a controller, which decides which topics exist, with which partitions, leaders and settings.

:mod:`ottla_broker.controller.standalone` decides alone; in a cluster,
:mod:`ottla_broker.controller.cluster.cluster_controller` lets the cluster's controller decide, and also serves the
cluster's other brokers (:class:`BrokerRequests`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

from ottla_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla_broker.metadata.cache import TopicInfo
    from ottla_broker.store.keys import Assignment, ProducerIdBlock
    from ottla_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

ZERO_ID: Final = bytes(16)


class ResourceType(IntEnum):
    """The kinds of entities with configs, by Kafka's numbers (``ConfigResource.Type``)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs (``AlterConfigOp.OpType``)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(slots=True)
class Outcome:
    """The result of one item of a request."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(slots=True)
class NewTopic:
    """A topic to create. -1 means the broker's default.

    ``assignments`` optionally lists each partition's replicas; both numbers are -1 then. ``assigned_twice`` is a
    partition that the client listed more than once.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assigned_twice: int | None = None


@dataclass(slots=True)
class CreatedTopic(Outcome):
    """``configs`` are the topic's own settings, without the broker's defaults."""

    name: str = ""
    topic_id: bytes = ZERO_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class TopicToDelete:
    """A topic by name, or by id if ``name`` is ``None``."""

    name: str | None
    topic_id: bytes = ZERO_ID


@dataclass(slots=True)
class DeletedTopic(Outcome):
    """``name`` is ``None`` for an unknown id."""

    name: str | None = None
    topic_id: bytes = ZERO_ID


@dataclass(slots=True)
class MorePartitions:
    """A topic's new number of partitions; ``assignments`` optionally lists the new ones' replicas."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(slots=True)
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str | None


Partition = tuple[str, int]
"""A topic's name and a partition's number."""


class Controller(Protocol):
    """Owned by the loop thread. Outcomes come in the order of the request. Timeouts are in seconds."""

    async def create_topics(self, topics: Sequence[NewTopic], validate_only: bool) -> list[CreatedTopic]:
        """Create topics, or only check the request. When this returns, the topics have leaders that clients see."""

    async def ensure_topic(self, name: str) -> TopicInfo:
        """The topic, created on first use if it doesn't exist (auto-creation, internal topics).

        Raises KafkaError: the topic can't be created.
        """

    async def delete_topics(self, topics: Sequence[TopicToDelete]) -> list[DeletedTopic]:
        """Delete topics. When this returns clients can't reach them; their files are removed later."""

    async def create_partitions(self, topics: Sequence[MorePartitions], validate_only: bool) -> list[Outcome]:
        """Give topics more partitions."""

    async def replace_configs(
        self, kind: ResourceType, name: str, configs: Mapping[str, str | None], validate_only: bool
    ) -> Outcome:
        """AlterConfigs: settings that aren't named go back to their defaults."""

    async def alter_configs(
        self, kind: ResourceType, name: str, changes: Sequence[ConfigChange], validate_only: bool
    ) -> Outcome:
        """IncrementalAlterConfigs: settings that aren't named stay."""

    async def elect_leaders(
        self, partitions: Sequence[Partition] | None, *, unclean: bool, timeout: float
    ) -> dict[Partition, Outcome]:
        """Elect preferred replicas, or any that is online (``unclean``); ``None`` means all partitions (KIP-460).

        Raises KafkaError: NOT_CONTROLLER, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR.
        """

    async def alter_reassignments(
        self, wanted: Mapping[Partition, Sequence[int] | None], timeout: float
    ) -> dict[Partition, Outcome]:
        """Move partitions to other replicas, or (``None``) cancel their moves (KIP-455). Raises as above."""

    async def reassignments(self, timeout: float) -> dict[Partition, Assignment]:
        """The partitions that are moving. Raises as above."""

    async def next_producer_id(self) -> int:
        """An id that no producer of this cluster had before.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE when no id is available now.
        """


class BrokerRequests(Protocol):
    """Requests of brokers to their cluster's controller. All raise KafkaError, NOT_CONTROLLER for example."""

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Change in-sync replicas for a leader (KIP-497)."""

    async def controlled_shutdown(self, broker: int, broker_epoch: int) -> list[Partition]:
        """Move leadership away from a broker that is about to stop.

        Returns the partitions that no other broker can lead, once the new leaders lead, or after a moment.
        """

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdBlock:
        """A block of producer ids for a broker."""
