"""Asks other brokers where their partitions begin and end, and has them append the samples of groups' lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla_broker.network.peer import PeerError, Peers
from ottla_protocol.errors import ErrorCode, KafkaError, error_code
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_TIMEOUT_SECONDS: Final = 10.0
_LATEST: Final = -1
_EARLIEST: Final = -2
_CONSUMER: Final = -1
_AT_ONCE: Final = 1000


class LagTransport:
    """Owned by the loop thread. See :class:`ottla_broker.metrics.lag_history.Leaders`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def bounds(
        self, broker_id: int, partitions: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """The starts and high watermarks of logs that a broker leads. Raises KafkaError: it can't be reached."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for first in range(0, len(partitions), _AT_ONCE):
            some = partitions[first : first + _AT_ONCE]
            starts, ends = [await self._listed(broker_id, some, at) for at in (_EARLIEST, _LATEST)]
            found |= {each: (starts[each], end) for each, end in ends.items() if each in starts}
        return found

    async def _listed(
        self, broker_id: int, partitions: Sequence[tuple[str, int]], timestamp: int
    ) -> dict[tuple[str, int], int]:
        topics: dict[str, ListOffsetsTopic] = {}
        for name, index in partitions:
            topics.setdefault(name, ListOffsetsTopic(name=name)).partitions.append(
                ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            )
        request = ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))
        try:
            response = await self._peers.request(broker_id, request, timeout=_TIMEOUT_SECONDS)
        except PeerError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        return {
            (topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if each.error_code == 0 and each.offset >= 0
        }

    async def append(self, broker_id: int, topic: str, index: int, batch: bytes) -> None:
        """Have a leader append a batch. Raises KafkaError: the leader's, or it can't be reached."""
        data = PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            acks=1,
            timeout_ms=round(_TIMEOUT_SECONDS * 1000),
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        try:
            response = await self._peers.request(broker_id, request, timeout=_TIMEOUT_SECONDS)
        except PeerError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        for found in response.responses:
            for each in found.partition_responses:
                if each.error_code != 0:
                    raise KafkaError(error_code(each.error_code), each.error_message)
