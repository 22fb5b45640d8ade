"""Puts records into topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.wire import Wire

from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.record import encode_batch

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess


def put(broker: BrokerProcess, topic: str, partition: int, *timestamps: int, **batch: Any) -> int:
    """Write one batch with a record at each timestamp; returns its first offset."""
    data = encode_batch([(timestamp, None, b"v", ()) for timestamp in timestamps], **batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=data)])
        ],
    )
    with Wire(broker.port) as wire:
        answer = wire.call(request, 8).responses[0].partition_responses[0]
    assert answer.error_code == 0, answer
    offset: int = answer.base_offset
    return offset
