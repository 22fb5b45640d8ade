"""Fetched bytes made by hand, for tests without a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.client.consumer.conftest import tp

from ottla_client.consumer.buffer import Buffer
from ottla_client.consumer.positions import PartitionState
from ottla_client.consumer.records import Chunk, RecordReader
from ottla_client.consumer.rows import Rows
from ottla_client.consumer.settings import ConsumerSettings
from ottla_protocol.messages.fetch import AbortedTransaction
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.record import encode_batch

DEFAULTS: dict[str, Any] = {
    "group_id": None,
    "group_instance_id": None,
    "auto_offset_reset": "earliest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "isolation_level": "read_uncommitted",
    "fetch_min_bytes": 1,
    "fetch_max_wait_ms": 500,
    "fetch_max_bytes": 52_428_800,
    "max_partition_fetch_bytes": 1_048_576,
    "max_poll_records": 500,
    "max_poll_interval_ms": 300_000,
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "key_deserializer": None,
    "value_deserializer": None,
    "check_crcs": True,
    "exclude_internal_topics": True,
    "allow_auto_create_topics": False,
    "client_rack": "",
    "request_timeout_ms": 30_000,
    "default_api_timeout_ms": 60_000,
    "metadata_max_age_ms": 300_000,
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 1_000,
}


def settings(**changed: Any) -> ConsumerSettings:
    return ConsumerSettings(**{**DEFAULTS, **changed})


def batch(base: int, count: int, **options: Any) -> bytes:
    """Records from offset ``base`` on, whose values are their offsets."""
    rows = [(1_000 + base + each, None, b"%d" % (base + each), ()) for each in range(count)]
    return bytes(encode_batch(rows, base_offset=base, leader_epoch=options.pop("leader_epoch", 0), **options))


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    return bytes(
        encode_transaction_marker(
            commit=commit,
            coordinator_epoch=0,
            producer_id=producer,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=base,
            leader_epoch=0,
        )
    )


def aborted(*transactions: tuple[int, int]) -> list[AbortedTransaction]:
    """Of producers, from first offsets."""
    return [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in transactions]


def partition(number: int = 0, position: int = 0) -> PartitionState:
    state = PartitionState(tp("t", number))
    state.seek(position)
    return state


def chunk(
    state: PartitionState, *batches: bytes, offset: int = 0, transactions: Sequence[Any] | None = None
) -> Chunk:
    return Chunk(state, memoryview(b"".join(batches)), offset, transactions)


def buffer(
    room: int = 1 << 20, on_room: Callable[[PartitionState], None] = lambda state: None, **changed: Any
) -> Buffer:
    return Buffer(RecordReader(settings(**changed)), room, on_room)


def values(lists: Sequence[Rows]) -> list[int]:
    """What the records of ``Buffer.take`` say."""
    return [int(record.value) for rows in lists for record in rows.records()]
