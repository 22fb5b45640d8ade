"""Asks other brokers how long their partitions are, and has them append the samples of groups' lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla_broker.network.peer import PeerError, Peers
from ottla_protocol.errors import ErrorCode, KafkaError, error_code
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_TIMEOUT_SECONDS: Final = 10.0
_LATEST: Final = -1
_CONSUMER: Final = -1
_AT_ONCE: Final = 1000


class LagTransport:
    """Owned by the loop thread. See :class:`ottla_broker.metrics.lag_history.Leaders`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def ends(self, broker_id: int, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The high watermarks that a broker leads. Raises KafkaError: it can't be reached."""
        found: dict[tuple[str, int], int] = {}
        for start in range(0, len(partitions), _AT_ONCE):
            topics: dict[str, ListOffsetsTopic] = {}
            for name, index in partitions[start : start + _AT_ONCE]:
                topics.setdefault(name, ListOffsetsTopic(name=name)).partitions.append(
                    ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
                )
            request = ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))
            try:
                response = await self._peers.request(broker_id, request, timeout=_TIMEOUT_SECONDS)
            except PeerError as error:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
            for topic in response.topics:
                for each in topic.partitions:
                    if each.error_code == 0 and each.offset >= 0:
                        found[topic.name, each.partition_index] = each.offset
        return found

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
