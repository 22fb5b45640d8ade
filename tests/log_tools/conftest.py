"""A small data folder as a broker leaves it, with a file of every kind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.log.cleaner import CleanerSettings, LogCleaner
from ottla_broker.log.config import LogConfig
from ottla_broker.log.manager import LogManager
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.log.txn_index import encode as encode_txn_index
from ottla_broker.store.api import Create, Delete
from ottla_broker.store.embedded import EmbeddedStore
from ottla_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla_protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.record import encode_batch
from ottla_protocol.versioned import encode_versioned

TOPIC_ID = bytes(range(16))
START_MS = 1_700_000_000_000


async def make_folder(path: Path) -> None:
    """``flights-0`` with three segments, ``__consumer_offsets-0``, checkpoints and a store."""
    background = Background(2)
    clock = SystemClock(asyncio.get_running_loop())
    logs = LogManager([path], LogConfig(), clock, background, Random(1))
    await logs.load()
    logs.claim("Zk5tq3ZUR7i0kQJv1mHs3A", 1)

    flights = logs.create(
        "flights", 0, TOPIC_ID, replace(LogConfig(compact=True), index_interval_bytes=100)
    ).open()

    def append(data: bytearray, epoch: int = 0) -> None:
        flights.append(memoryview(data), leader_epoch=epoch, now_ms=START_MS, from_client=False)

    for number in range(12):
        rows = [(START_MS + number, b"key-%d" % (number % 3), b"value-%d" % number, (("h", b"\xff"),))]
        append(
            encode_batch(rows, codec=number % 5, producer_id=7, producer_epoch=0, base_sequence=number),
            epoch=number // 5,
        )
        if number % 4 == 3:
            flights.roll(START_MS)
    append(
        encode_batch(
            [(START_MS + 50, b"key-9", None, ())],
            producer_id=8,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        ),
        epoch=2,
    )
    append(
        encode_transaction_marker(
            commit=False, coordinator_epoch=4, producer_id=8, producer_epoch=0, timestamp_ms=START_MS + 60
        ),
        epoch=2,
    )
    cleaner = LogCleaner(logs, clock, CleanerSettings(), lambda log: 4)
    await cleaner._clean(cleaner._measure(flights))
    await cleaner.close()

    offsets = logs.create("__consumer_offsets", 0, TOPIC_ID, LogConfig(compact=True, delete=False)).open()
    offsets.append(memoryview(group_records()), leader_epoch=0, now_ms=START_MS, from_client=False)
    await logs.write_high_watermarks({("flights", 0): 14, ("__consumer_offsets", 0): 3})
    await logs.close()

    aborted = AbortedTransaction(producer_id=8, first_offset=12, last_offset=13, last_stable_offset=14)
    (path / "flights-0" / "00000000000000000012.txnindex").write_bytes(encode_txn_index([aborted]))

    store = EmbeddedStore.open(path, background)
    await store.transaction([Create("/brokers", b""), Create("/brokers/ids", b"\x00\xff")])
    await store.transaction([Delete("/brokers/ids")])
    await store.close()
    background.close()


def group_records() -> bytearray:
    """A commit, a group with a member, and a deleted commit."""
    member = MemberMetadata(
        member_id="m-1",
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout=10_000,
        rebalance_timeout=60_000,
        subscription=encode_versioned(ConsumerProtocolSubscription(topics=["flights"]), 1),
        assignment=encode_versioned(
            ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="flights", partitions=[0])]),
            1,
        ),
    )
    group = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m-1",
        current_state_timestamp=START_MS,
        members=[member],
    )
    commit = OffsetCommitValue(offset=12, leader_epoch=2, metadata="note", commit_timestamp=START_MS)
    key = OffsetCommitKey(group="g", topic="flights", partition=0)
    return encode_batch(
        [
            (START_MS, encode_versioned(key, 1), encode_versioned(commit, 3), ()),
            (START_MS, encode_versioned(GroupMetadataKey(group="g"), 2), encode_versioned(group, 3), ()),
            (START_MS, encode_versioned(OffsetCommitKey(group="old", topic="t", partition=3), 1), None, ()),
        ]
    )


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder; tests copy it before they change it."""
    path = tmp_path_factory.mktemp("data")
    asyncio.run(make_folder(path))
    return path


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A copy of the folder for one test."""
    import shutil

    return Path(shutil.copytree(made, tmp_path / "data"))
