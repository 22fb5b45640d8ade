"""OffsetForLeaderEpoch: where leader epochs ended (KIP-320). Source: Java's ``OffsetsForLeaderEpochClient``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, error_code
from ottla_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ..deadline import Deadline
from ..errors import UnsupportedApiError
from ..types import TopicPartition

if TYPE_CHECKING:
    from ..cluster import Cluster

_CONSUMER: Final = -1
_FOR_CONSUMERS: Final = 3
"""The first version that a consumer may send with its own rights."""


class EpochEnd(NamedTuple):
    """The end of a leader epoch; -1 where the leader doesn't know."""

    code: ErrorCode
    epoch: int = -1
    end_offset: int = -1


async def ask_epochs(
    cluster: Cluster, node: int, wanted: Mapping[TopicPartition, tuple[int, int]], deadline: Deadline
) -> dict[TopicPartition, EpochEnd] | None:
    """One request to one broker: the epoch to look up and the current one, for each partition.

    None from brokers that don't answer it to consumers (before 2.3).
    """
    connection = await cluster.connection(node, deadline)
    try:
        version = connection.version_of(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    except UnsupportedApiError:
        return None
    if version < _FOR_CONSUMERS:
        return None
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, partition), (epoch, current) in wanted.items():
        topics.setdefault(topic, []).append(
            OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
        )
    request = OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[OffsetForLeaderTopic(topic=topic, partitions=of) for topic, of in topics.items()],
    )
    answer = await cluster.request(node, request, deadline)
    return {
        TopicPartition(topic.topic, each.partition): EpochEnd(
            error_code(each.error_code), each.leader_epoch, each.end_offset
        )
        for topic in answer.topics
        for each in topic.partitions
    }
