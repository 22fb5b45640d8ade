"""Messages of transaction version 2, byte for byte as Apache Kafka 4.2 writes them (KIP-890)."""

from __future__ import annotations

import pytest

from ottla_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.messages.transaction_records import TransactionLogPartitions, TransactionLogValue
from ottla_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla_protocol.schema import Message


def logged(**ids: int) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=4000,
        producer_epoch=7,
        transaction_timeout_ms=60_000,
        transaction_status=2,
        transaction_partitions=[TransactionLogPartitions(topic="t", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=1_700_000_000_001,
        transaction_start_timestamp_ms=1_700_000_000_000,
        client_transaction_version=2,
        **ids,
    )


_LOGGED = "0000000000000fa000070000ea6002020274030000000000000002000000018bcfe568010000018bcfe56800"
"""A value up to its tagged fields. Kafka 3.9.1 reads it, and skips them."""

GOLDEN: list[tuple[Message, int, str]] = [
    (
        EndTxnRequest(transactional_id="tx", producer_id=4000, producer_epoch=7, committed=True),
        5,
        "0374780000000000000fa000070100",
    ),
    (
        EndTxnResponse(throttle_time_ms=3, producer_id=4000, producer_epoch=8),
        5,
        "0000000300000000000000000fa0000800",
    ),
    (EndTxnResponse(error_code=51), 5, "000000000033ffffffffffffffffffff00"),
    (
        TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=4000,
            producer_epoch=7,
            generation_id=2,
            member_id="m",
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=1,
                            committed_offset=42,
                            committed_leader_epoch=5,
                            committed_metadata="x",
                        )
                    ],
                )
            ],
        ),
        5,
        "03747802670000000000000fa0000700000002026d000202740200000001000000000000002a000000050278000000",
    ),
    (
        ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=None)])
            ],
        ),
        12,
        "037478ffff000003e8020274020000000100000000",
    ),
    (logged(), 1, _LOGGED + "0102020002"),
    (
        logged(previous_producer_id=3000, next_producer_id=5000),
        1,
        _LOGGED + "0300080000000000000bb80108000000000000138802020002",
    ),
]


@pytest.mark.parametrize(("message", "version", "golden"), GOLDEN)
def test_the_bytes_are_kafka_s(message: Message, version: int, golden: str) -> None:
    assert bytes(message.encode(version)).hex() == golden
    assert type(message).decode(bytes.fromhex(golden), version) == message
