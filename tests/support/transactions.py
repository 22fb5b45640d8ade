"""Transactions in tests: whether a broker supports them, waiting for their markers, and a hanging one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_client import Admin as AsyncAdmin
from ottla_client import TopicPartition
from ottla_client.admin import OffsetSpec
from ottla_client.sync import Admin
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.record import encode_batch

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess


def has_transactions(broker: BrokerProcess) -> bool:
    with Wire(broker.port) as wire:
        answer = wire.call(ApiVersionsRequest(), 0)
    return any(each.api_key == ApiKey.END_TXN for each in answer.api_keys)


def wait_until_settled(bootstrap: str, topic: str) -> None:
    """Wait for the markers of ended transactions: a coordinator responds before it writes them."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        (described,) = admin.describe_topics([topic]).values()
        latest = dict.fromkeys(
            (TopicPartition(topic, each) for each in described.partitions), OffsetSpec.LATEST
        )

        def has_all_markers() -> bool:
            stable = admin.list_offsets(latest, isolation_level="read_committed")
            return stable == admin.list_offsets(latest)

        wait_for(has_all_markers, f"the transactions in {topic} to be complete")


async def hang(broker: BrokerProcess, topic: str, transactional_id: str) -> int:
    """Write a record in a transaction that its coordinator doesn't know; returns the producer id, whose epoch is 1.

    The broker needs transaction.partition.verification.enable=false.
    """
    async with AsyncAdmin(broker.bootstrap) as admin:
        await admin.fence_producers([transactional_id])
        producer = (await admin.fence_producers([transactional_id]))[transactional_id]
    batch = encode_batch(
        [(int(time.time() * 1000), None, b"hanging", ())],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        ],
    )
    with Wire(broker.port) as wire:
        answer = wire.call(request, 8).responses[0].partition_responses[0]
    assert answer.error_code == 0, answer
    return producer.producer_id
