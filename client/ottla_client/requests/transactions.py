"""The requests of a transaction: to its coordinator, and to the coordinator of a group whose offsets it commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ottla_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla_protocol.messages.end_txn import EndTxnRequest
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from ..types import ConsumerGroupMetadata, OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from .driver import by_topic
from .group_offsets import committed_by_topic

ADD_PARTITIONS_UP_TO: Final = 3
"""The last version of AddPartitionsToTxn for clients; brokers send the later ones to each other."""
PRODUCE_ADDS_SINCE: Final = 12
"""The first version of Produce that adds its partitions to the transaction; for transaction version 2 (KIP-890)."""
COMMIT_ADDS_SINCE: Final = 5
"""The first version of TxnOffsetCommit that adds its group to the transaction."""
END_RAISES_EPOCH_SINCE: Final = 5
"""The first version of EndTxn that returns the epoch for the next transaction."""
RAISES_EPOCH_SINCE: Final = 3
"""The first version of InitProducerId with which a producer raises its own epoch (KIP-360)."""
MEMBERS_SINCE: Final = 3
"""The first version of TxnOffsetCommit with the member and its generation (KIP-447)."""


def init_request(
    transactional_id: str, timeout_ms: int, current: ProducerIdAndEpoch | None
) -> InitProducerIdRequest:
    """``current`` None fences earlier producers; otherwise the producer keeps its place and gets a new epoch."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    if current is not None:
        request.producer_id, request.producer_epoch = current
    return request


def add_partitions_request(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Send it with a version up to ADD_PARTITIONS_UP_TO."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=[each.partition for each in its])
            for name, its in by_topic(sorted(partitions)).items()
        ],
    )


def add_partitions_codes(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, int]:
    """The error code of each partition, 0 for success."""
    return {
        TopicPartition(topic.name, each.partition_index): each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


def add_offsets_request(
    transactional_id: str, producer: ProducerIdAndEpoch, group_id: str
) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )


def commit_offsets_request(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    group: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    """Brokers without MEMBERS_SINCE accept only a ``group`` with an id alone."""
    topics = committed_by_topic(offsets, TxnOffsetCommitRequestPartition)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def end_request(transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
