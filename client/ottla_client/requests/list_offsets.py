"""ListOffsets: ends of partitions, and offsets by time. Source: Java's ``OffsetFetcher``, ``ListOffsetsHandler``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from ..deadline import Deadline
from ..errors import BrokerError, ClientError, UnsupportedApiError
from ..types import ListedOffset, OffsetAndTimestamp, OffsetSpec, TopicPartition
from .driver import Node, Outcomes, ToLeaders, drive
from .outcomes import outcome_of

if TYPE_CHECKING:
    from ..cluster import Cluster

_CONSUMER: Final = -1
_BY_TIME: Final = 1
"""The first version that answers with one offset for a time (KIP-79)."""
_ISOLATION: Final = 2
_FINDS_MAX_TIMESTAMP: Final = 7
"""The first version that finds the greatest timestamp (KIP-734)."""


class OffsetQuery(NamedTuple):
    """``timestamp`` in milliseconds, or an OffsetSpec; ``leader_epoch`` None where it isn't known."""

    timestamp: int
    leader_epoch: int | None = None


async def ask_offsets(
    cluster: Cluster,
    node: int,
    queries: Mapping[TopicPartition, OffsetQuery],
    isolation: int,
    deadline: Deadline,
) -> dict[TopicPartition, ListedOffset | BrokerError]:
    """One request to one broker; ``isolation`` is 0 (read_uncommitted) or 1 (read_committed).

    The offset is -1 where no record has the timestamp or a later one. Raises as ``Cluster.request``, and
    UnsupportedApiError for brokers that are too old for a query.
    """
    connection = await cluster.connection(node, deadline)
    version = connection.version_of(ApiKey.LIST_OFFSETS)
    if version < _BY_TIME:
        raise UnsupportedApiError(
            f"{connection.host}:{connection.port} is older than Kafka 0.10.1: it can't look up offsets by time"
        )
    if version < _FINDS_MAX_TIMESTAMP and any(
        each.timestamp == OffsetSpec.MAX_TIMESTAMP for each in queries.values()
    ):
        raise UnsupportedApiError(
            f"the greatest timestamp: broker {node} is too old for it (before Kafka 3.0)"
        )
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), (timestamp, epoch) in queries.items():
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(
                partition_index=partition,
                timestamp=timestamp,
                current_leader_epoch=-1 if epoch is None else epoch,
            )
        )
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation if version >= _ISOLATION else 0,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    answer = await cluster.request(node, request, deadline, version=version)
    return {
        partition: outcome_of(result.error_code, _listed(result), f"partition {partition}")
        for topic in answer.topics
        for result in topic.partitions
        for partition in [TopicPartition(topic.name, result.partition_index)]
    }


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation: int,
    deadline: Deadline,
    *,
    cached: bool = False,
) -> dict[TopicPartition, ListedOffset | ClientError]:
    """Ask the leaders of partitions, and ask again until the deadline where that may help; errors are outcomes.

    With ``cached``, leaders that are known already aren't looked up first, and their epochs are checked.
    """

    async def ask(
        node: Node, partitions: list[TopicPartition], deadline: Deadline
    ) -> Outcomes[TopicPartition, ListedOffset]:
        assert node is not None, "a leader"
        queries = {
            each: OffsetQuery(timestamps[each], epoch_of(each) if cached else None) for each in partitions
        }
        return await ask_offsets(cluster, node, queries, isolation, deadline)

    def epoch_of(partition: TopicPartition) -> int | None:
        topic = cluster.topic(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        return None if found is None else found.leader_epoch

    return await drive(timestamps, ToLeaders(cluster, cached=cached), ask, deadline, cluster.backoff)


async def find_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], isolation: int, deadline: Deadline
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The first record at each timestamp or later; None where there is none.

    Raises the first error: UnknownTopicError, BrokerError, or RequestTimeoutError at the deadline.
    """
    outcomes = await list_offsets(cluster, timestamps, isolation, deadline, cached=True)
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    for partition, outcome in outcomes.items():
        if isinstance(outcome, ClientError):
            raise outcome
        found[partition] = OffsetAndTimestamp(*outcome) if outcome.offset >= 0 else None
    return found


def _listed(result: Any) -> ListedOffset:
    epoch = result.leader_epoch
    return ListedOffset(result.offset, result.timestamp, epoch if epoch >= 0 else None)
