"""Admin's calls for offsets in partitions: look them up, and read timestamps and producers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

from ..deadline import Deadline
from ..errors import ConfigurationError
from ..requests.driver import Node, Outcomes, ToLeaders, by_topic
from ..requests.list_offsets import list_offsets
from ..requests.log_walk import LogWalk, walks
from ..requests.outcomes import outcome_of
from ..types import ISOLATION_LEVELS, ListedOffset, OffsetSpec, TimedOffset, TopicPartition
from .base import AdminBase
from .results import results_or_raise
from .values import ProducerState


class OffsetCalls(AdminBase):
    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """The earliest or latest offset, or the first one from a timestamp (milliseconds) on.

        The latest offset is the next one to be written, or with ``read_committed`` the last stable offset. The offset
        is -1 if no record has the timestamp or a later one. Raises UnknownTopicError, BrokerError; PartialError for
        several partitions.
        """
        if isolation_level not in ISOLATION_LEVELS:
            raise ConfigurationError(
                f"isolation_level is one of {', '.join(ISOLATION_LEVELS)}, not {isolation_level!r}"
            )
        for partition, spec in specs.items():
            if spec < OffsetSpec.MAX_TIMESTAMP:
                raise ConfigurationError(f"{partition}: a timestamp is milliseconds from 0 on, not {spec}")

        level = ISOLATION_LEVELS.index(isolation_level)
        outcomes = await list_offsets(self._cluster, specs, level, self._deadline(timeout))
        return results_or_raise("list offsets", outcomes)

    async def timestamps_of(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, TimedOffset | None]:
        """The first record at or after an offset of each partition, with its timestamp; None at the end of the log.

        Reads one batch per partition. Raises BrokerError with OFFSET_OUT_OF_RANGE for an offset outside the log,
        CorruptBatchError, …; PartialError for several partitions.
        """

        async def first(walk: LogWalk, partition: TopicPartition) -> TimedOffset | None:
            return await walk.first_from(offsets[partition])

        outcomes = await walks(self._cluster, offsets, first, self._deadline(timeout))
        return results_or_raise("read timestamps", outcomes)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The active idempotent and transactional producers of partitions (KIP-664, from Kafka 2.8 on).

        Raises UnknownTopicError, BrokerError; PartialError for several partitions.
        """

        async def ask(
            node: Node, some: list[TopicPartition], deadline: Deadline
        ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=topic, partition_indexes=[p.partition for p in its])
                    for topic, its in by_topic(some).items()
                ]
            )
            answer = await self._call(node, request, deadline)
            return {
                partition: outcome_of(
                    result.error_code,
                    tuple(map(_producer, result.active_producers)),
                    f"partition {partition}",
                    result.error_message,
                )
                for topic in answer.topics
                for result in topic.partitions
                for partition in [TopicPartition(topic.name, result.partition_index)]
            }

        route = ToLeaders(self._cluster)
        return await self._ask_each("describe producers", list(partitions), route, ask, timeout)


def _producer(state: Any) -> ProducerState:
    return ProducerState(
        state.producer_id,
        state.producer_epoch,
        None if state.last_sequence < 0 else state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
    )
