"""Asking leaders for offsets: by time, at the ends of the log, and where leader epochs ended.

``ask_offsets`` and ``ask_epochs`` put one request to one broker; ``find_offsets`` finds the leaders, asks them
side by side and tries again until its deadline. Sources: Java's ``OffsetFetcher``, ``OffsetsForLeaderEpochClient``.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import RETRIABLE, ErrorCode, error_code
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ..cluster import Cluster
from ..deadline import Deadline
from ..errors import (
    BrokerError,
    ClientError,
    RequestTimeoutError,
    UnknownTopicError,
    UnsupportedApiError,
    is_retriable,
)
from ..types import OffsetAndTimestamp, TopicPartition

CONSUMER = -1
"""The replica id of who isn't one."""
EPOCHS_FOR_CONSUMERS = 3
"""The first version of OffsetForLeaderEpoch that a consumer may ask with its own rights."""
_NO_REFRESH = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH})


class Found(NamedTuple):
    """An answer for a partition: ``code`` is 0 for success, ``offset`` -1 where no record is as late."""

    code: ErrorCode
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int | None = None


class EpochEnd(NamedTuple):
    """Where a leader epoch ended. -1 where the leader doesn't know."""

    code: ErrorCode
    epoch: int = -1
    end_offset: int = -1


async def ask_offsets(
    cluster: Cluster,
    node: int,
    wanted: Mapping[TopicPartition, tuple[int, int | None]],
    isolation: int,
    deadline: Deadline,
) -> dict[TopicPartition, Found]:
    """One ListOffsets request; ``wanted`` has a time and the leader epoch, if known, for each partition.

    Raises what ``Cluster.request`` raises, and UnsupportedApiError for brokers that know no times (before 0.10.1).
    """
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for (topic, partition), (time, epoch) in wanted.items():
        topics[topic].append(
            ListOffsetsPartition(
                partition_index=partition,
                timestamp=time,
                current_leader_epoch=-1 if epoch is None else epoch,
            )
        )
    connection = await cluster.connection(node, deadline)
    if connection.version_of(ApiKey.LIST_OFFSETS) < 1:
        raise UnsupportedApiError(
            f"{connection.host}:{connection.port} is older than 0.10.1: it can't look up offsets by time"
        )
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation if connection.version_of(ApiKey.LIST_OFFSETS) >= 2 else 0,
        topics=[ListOffsetsTopic(name=topic, partitions=of) for topic, of in topics.items()],
    )
    answer = await cluster.request(node, request, deadline)
    return {
        TopicPartition(topic.name, each.partition_index): Found(
            error_code(each.error_code),
            each.offset,
            each.timestamp,
            each.leader_epoch if each.leader_epoch >= 0 else None,
        )
        for topic in answer.topics
        for each in topic.partitions
    }


async def ask_epochs(
    cluster: Cluster,
    node: int,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    deadline: Deadline,
) -> dict[TopicPartition, EpochEnd] | None:
    """One OffsetForLeaderEpoch request: the epoch to look up and the current one, for each partition.

    None from brokers that don't answer it to consumers (before 2.3).
    """
    connection = await cluster.connection(node, deadline)
    try:
        version = connection.version_of(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    except UnsupportedApiError:
        return None
    if version < EPOCHS_FOR_CONSUMERS:
        return None
    topics: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
    for (topic, partition), (epoch, current) in wanted.items():
        topics[topic].append(
            OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
        )
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER,
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


async def find_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int, deadline: Deadline
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The offset of a time for each partition; None where no record is as late.

    Raises UnknownTopicError, BrokerError at once where nothing will help, RequestTimeoutError at the deadline.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    failures = 0
    while True:
        left = {partition: time for partition, time in wanted.items() if partition not in found}
        problem = await _one_round(cluster, left, isolation, deadline, found)
        if len(found) == len(wanted):
            return found
        failures += 1
        delay = cluster.backoff.after(failures)
        if deadline.left() <= delay:
            missing = ", ".join(str(partition) for partition in wanted if partition not in found)
            raise RequestTimeoutError(
                f"no offsets of {missing} in time: {problem or 'no answer'}"
            ) from problem
        await asyncio.sleep(delay)


async def _one_round(
    cluster: Cluster,
    left: Mapping[TopicPartition, int],
    isolation: int,
    deadline: Deadline,
    found: dict[TopicPartition, OffsetAndTimestamp | None],
) -> ClientError | None:
    """Ask once for everything that is left; returns the last problem that may go away."""
    problem: ClientError | None = None
    unknown = {tp.topic for tp in left if cluster.leader(*tp) is None}
    if unknown:
        for name, topic in (await cluster.fetch_topics(unknown, deadline)).items():
            code = error_code(topic.error)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                problem = UnknownTopicError(f"topic {name!r} does not exist")
            elif code and code not in RETRIABLE:
                raise BrokerError(code, f"topic {name!r}: {code.name}")
            elif not code:
                check_partitions(
                    name, {tp.partition for tp in left if tp.topic == name}, set(topic.partitions)
                )
    by_node: dict[int, dict[TopicPartition, tuple[int, int | None]]] = defaultdict(dict)
    for tp, time in left.items():
        node = cluster.leader(*tp)
        if node is None:
            problem = problem or RequestTimeoutError(f"{tp} has no leader")
            continue
        known = cluster.topic(tp.topic)
        epoch = known.partitions[tp.partition].leader_epoch if known else None
        by_node[node][tp] = (time, epoch)
    answers = await asyncio.gather(
        *(ask_offsets(cluster, node, asked, isolation, deadline) for node, asked in by_node.items()),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            if not isinstance(answer, ClientError) or not is_retriable(answer):
                raise answer
            problem = answer
            cluster.stale()
            continue
        for tp, result in answer.items():
            if result.code:
                problem = BrokerError(result.code, f"{tp}: {result.code.name}")
                if result.code not in RETRIABLE:
                    raise problem
                await _refresh(cluster, tp, result.code, deadline)
            elif tp in left:
                found[tp] = (
                    OffsetAndTimestamp(result.offset, result.timestamp, result.leader_epoch)
                    if result.offset >= 0
                    else None
                )
    return problem


async def _refresh(cluster: Cluster, tp: TopicPartition, code: ErrorCode, deadline: Deadline) -> None:
    if code not in _NO_REFRESH:
        await cluster.fetch_topics((tp.topic,), deadline)


def check_partitions(name: str, wanted: set[int], there: set[int]) -> None:
    """Raise UnknownTopicError for partitions that a topic doesn't have."""
    missing = wanted - there
    if missing:
        raise UnknownTopicError(
            f"topic {name!r} has no partition {', '.join(map(str, sorted(missing)))}; it has "
            f"{len(there)}, from 0 to {max(there, default=-1)}"
        )
