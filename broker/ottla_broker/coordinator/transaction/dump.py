"""Records of ``__transaction_state`` as ``ottla log dump`` shows them."""

from __future__ import annotations

from typing import Any

from ottla_broker.coordinator.transaction.states import STATE_BY_ID
from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla_protocol.versioned import decode_versioned

Entry = dict[str, Any]


def decode_record(key: bytes | None, value: bytes | None) -> Entry | None:
    """Key and value of a transactional id's record as a structure; None for another record."""
    if key is None:
        return None
    try:
        about = decode_versioned(TransactionLogKey, key)
        return {
            "key": {"transactionalId": about.transactional_id},
            "payload": None if value is None else _payload(decode_versioned(TransactionLogValue, value)),
        }
    except ProtocolError:
        return None


def _payload(value: TransactionLogValue) -> Entry:
    state = STATE_BY_ID.get(value.transaction_status)
    return {
        "producerId": value.producer_id,
        "producerEpoch": value.producer_epoch,
        "transactionTimeoutMs": value.transaction_timeout_ms,
        "state": value.transaction_status if state is None else state.value,
        "partitions": {each.topic: each.partition_ids for each in value.transaction_partitions or ()},
        "lastUpdateTimestamp": value.transaction_last_update_timestamp_ms,
        "startTimestamp": value.transaction_start_timestamp_ms,
        "previousProducerId": value.previous_producer_id,
        "nextProducerId": value.next_producer_id,
        "clientTransactionVersion": value.client_transaction_version,
    }
