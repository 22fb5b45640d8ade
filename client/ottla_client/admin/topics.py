"""Admin's calls for topics: list, describe, create and delete them, add partitions, delete records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.schema import ZERO_UUID

from ..deadline import Deadline
from ..errors import ClientError, ConfigurationError
from ..requests.driver import Node, Outcomes, ToLeaders, by_topic, with_suggestions
from ..requests.outcomes import error_of, outcome_of
from ..types import TopicMetadata, TopicPartition
from .arguments import config_text, listed
from .base import AdminBase
from .results import results_or_raise
from .values import CreatedTopic, NewPartitions, NewTopic


class TopicCalls(AdminBase):
    async def list_topics(
        self, *, include_internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicMetadata]:
        """The topics that this user may see, by name; ``include_internal`` adds ``__consumer_offsets`` and others."""
        topics = await self._cluster.fetch_topics(None, self._deadline(timeout))
        return {
            name: topic for name, topic in sorted(topics.items()) if include_internal or not topic.is_internal
        }

    async def describe_topics(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicMetadata]:
        """Topics with their partitions, leaders and replicas. Doesn't create topics.

        Raises UnknownTopicError, BrokerError; PartialError for several topics.
        """
        wanted = list(dict.fromkeys(listed(names, str)))
        deadline = self._deadline(timeout)
        found = await self._cluster.fetch_topics(wanted, deadline) if wanted else {}
        outcomes: dict[str, TopicMetadata | ClientError] = {}
        for name in wanted:
            topic = found.get(name)
            if topic is None:
                outcomes[name] = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
            else:
                outcomes[name] = outcome_of(topic.error, topic, f"topic {name}")
        return results_or_raise("describe topics", await with_suggestions(self._cluster, outcomes, deadline))

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics, or with ``validate_only`` (from Kafka 0.10.2 on) check whether they could be created.

        Raises BrokerError, for example with TOPIC_ALREADY_EXISTS, INVALID_CONFIG or INVALID_REPLICATION_FACTOR;
        PartialError for several topics.
        """
        requests: dict[str, CreatableTopic] = {}
        for topic in listed(topics, NewTopic):
            if topic.name in requests:
                raise ConfigurationError(f"topic {topic.name!r} is in the list twice")
            requests[topic.name] = _creatable(topic)

        async def ask(node: Node, names: list[str], deadline: Deadline) -> Outcomes[str, CreatedTopic]:
            request = CreateTopicsRequest(
                topics=[requests[name] for name in names],
                timeout_ms=self._broker_ms(deadline),
                validate_only=validate_only,
            )
            answer = await self._call(node, request, deadline)
            return {
                result.name: outcome_of(
                    result.error_code,
                    CreatedTopic(
                        result.name,
                        None if result.topic_id == ZERO_UUID else result.topic_id,
                        result.num_partitions,
                        result.replication_factor,
                        frozenset(config.name for config in result.configs or ()),
                    ),
                    f"topic {result.name}",
                    result.error_message,
                )
                for result in answer.topics
            }

        return await self._ask_each("create topics", requests, self._controller(), ask, timeout)

    async def delete_topics(self, names: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics with all their records. Raises UnknownTopicError, BrokerError; PartialError for several."""

        async def ask(node: Node, some: list[str], deadline: Deadline) -> Outcomes[str, None]:
            version = await self._version(node, ApiKey.DELETE_TOPICS, deadline)
            by_name_alone = version < 6
            request = DeleteTopicsRequest(
                topics=[] if by_name_alone else [DeleteTopicState(name=name) for name in some],
                topic_names=some if by_name_alone else [],
                timeout_ms=self._broker_ms(deadline),
            )
            answer = await self._call(node, request, deadline, version)
            return {
                result.name: outcome_of(result.error_code, None, f"topic {result.name}", result.error_message)
                for result in answer.responses
            }

        await self._ask_each("delete topics", listed(names, str), self._controller(), ask, timeout)

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Add partitions to topics, up to the given totals (from Kafka 1.0 on).

        Records keep their partitions, but a key may go to another one from then on. Raises BrokerError with
        INVALID_PARTITIONS for a total that isn't above the current one; PartialError for several topics.
        """

        async def ask(node: Node, names: list[str], deadline: Deadline) -> Outcomes[str, None]:
            request = CreatePartitionsRequest(
                topics=[_growing(name, totals[name]) for name in names],
                timeout_ms=self._broker_ms(deadline),
                validate_only=validate_only,
            )
            answer = await self._call(node, request, deadline)
            return {
                result.name: outcome_of(result.error_code, None, f"topic {result.name}", result.error_message)
                for result in answer.results
            }

        await self._ask_each("create partitions", totals, self._controller(), ask, timeout)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition, -1 for all (KIP-107, from Kafka 0.11 on).

        Returns each partition's new start. Raises BrokerError with OFFSET_OUT_OF_RANGE beyond the end, and with
        POLICY_VIOLATION for a topic that is only compacted; PartialError for several partitions.
        """

        async def ask(
            node: Node, partitions: list[TopicPartition], deadline: Deadline
        ) -> Outcomes[TopicPartition, int]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(partition_index=p.partition, offset=before[p]) for p in its
                        ],
                    )
                    for topic, its in by_topic(partitions).items()
                ],
                timeout_ms=self._broker_ms(deadline),
            )
            answer = await self._call(node, request, deadline)
            return {
                partition: outcome_of(result.error_code, result.low_watermark, f"partition {partition}")
                for topic in answer.topics
                for result in topic.partitions
                for partition in [TopicPartition(topic.name, result.partition_index)]
            }

        route = ToLeaders(self._cluster)
        return await self._ask_each("delete records", before, route, ask, timeout)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignment = topic.assignment
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions if assignment is None else -1,
        replication_factor=topic.replication_factor if assignment is None else -1,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
            for partition, replicas in (assignment or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=config_text(name, value))
            for name, value in (topic.configs or {}).items()
        ],
    )


def _growing(name: str, wanted: int | NewPartitions) -> CreatePartitionsTopic:
    new = NewPartitions(wanted) if isinstance(wanted, int) else wanted
    return CreatePartitionsTopic(
        name=name,
        count=new.total,
        assignments=None
        if new.assignment is None
        else [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in new.assignment],
    )
