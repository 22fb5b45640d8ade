"""The records of ``__transaction_state``, byte for byte as Kafka writes them.

A key and a value each begin with their version, an int16::

    key 0    TransactionLogKey: transactional id
    value 0  TransactionLogValue: producer id, producer epoch, timeout, state, partitions by topic (null in the state
             Empty), time of the last update, time of the start
    no value a tombstone: the id has expired

    value 1  the same, flexible, and as tagged fields what transaction version 2 needs: the ids before and after this
             one, the client's version

Version 1 is written where a client of transaction version 2 was the last; Kafka 3.9 reads it and skips the tagged
fields. Kafka: ``TransactionLog.scala``.
"""

from __future__ import annotations

from ottla_broker.coordinator.transaction.metadata import TopicPartition, TransactionMetadata
from ottla_broker.coordinator.transaction.states import (
    DEAD,
    EMPTY,
    PREPARE_EPOCH_FENCE,
    STATE_BY_ID,
    STATE_IDS,
)
from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages.transaction_records import (
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
)
from ottla_protocol.versioned import decode_versioned, encode_versioned

_KEY_VERSION = 0
_NEVER_WRITTEN = frozenset({DEAD, PREPARE_EPOCH_FENCE})


def transaction_key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def transaction_value(metadata: TransactionMetadata) -> bytes:
    return encode_versioned(
        TransactionLogValue(
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            transaction_timeout_ms=metadata.timeout_ms,
            transaction_status=STATE_IDS[metadata.state],
            transaction_partitions=None if metadata.state is EMPTY else _by_topic(metadata.partitions),
            transaction_last_update_timestamp_ms=metadata.update_ms,
            transaction_start_timestamp_ms=metadata.start_ms,
            previous_producer_id=metadata.previous_producer_id,
            next_producer_id=metadata.next_producer_id,
            client_transaction_version=metadata.client_version,
        ),
        1 if metadata.client_version else 0,
    )


def _by_topic(partitions: frozenset[TopicPartition]) -> list[TransactionLogPartitions]:
    found: dict[str, TransactionLogPartitions] = {}
    for topic, index in sorted(partitions):
        entry = found.get(topic)
        if entry is None:
            entry = found[topic] = TransactionLogPartitions(topic=topic)
        entry.partition_ids.append(index)
    return list(found.values())


def read_key(key: bytes | None) -> str:
    """The transactional id. Raises ProtocolError, also for a kind of key that only a newer broker knows."""
    if key is None:
        raise ProtocolError("a record without a key")
    return decode_versioned(TransactionLogKey, key).transactional_id


def read_value(value: bytes) -> TransactionMetadata:
    """The metadata in a value. Raises ProtocolError, also for an unknown state."""
    read = decode_versioned(TransactionLogValue, value)
    state = STATE_BY_ID.get(read.transaction_status)
    if state is None or state in _NEVER_WRITTEN:
        raise ProtocolError(f"no log has transactions in state {read.transaction_status}")
    return TransactionMetadata(
        producer_id=read.producer_id,
        producer_epoch=read.producer_epoch,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        client_version=read.client_transaction_version,
        timeout_ms=read.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (entry.topic, index)
            for entry in read.transaction_partitions or ()
            for index in entry.partition_ids
        ),
        start_ms=read.transaction_start_timestamp_ms,
        update_ms=read.transaction_last_update_timestamp_ms,
    )
