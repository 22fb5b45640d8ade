"""Transactions in one partition, through the handlers: produce, markers, fetch, offsets, producers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.badinput.requests import fetch_request, records
from tests.support.handlers import answered, handled, request_context, services
from tests.support.log_dirs import World

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.config import BrokerConfig
from ottla_broker.handlers import describe_producers, fetch, list_offsets, produce, write_txn_markers
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.replica.fetch_session import FetchSessions
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.txn_markers import MarkerErrors, TxnMarker, TxnMarkers
from ottla_broker.security.authorization import Authorizer
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla_protocol.records.formats import iter_headers

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=60_000)
ALONE = (1,)


class Deny(Authorizer):
    """Denies some operations."""

    def __init__(self, *denied: AclOperation) -> None:
        super().__init__(None)
        self.denied = denied
        self.open_operations = frozenset()

    def authorize(
        self, client: Any, operation: AclOperation, resource: AclResource, name: str, *, explicit: bool = True
    ) -> bool:
        return operation not in self.denied


class Bench:
    """A broker's handlers over its logs, in which it leads ``t-0``."""

    def __init__(self, world: World) -> None:
        self.world = world
        clock = SystemClock(asyncio.get_running_loop())
        self.completed: list[tuple[list[int], int, bool]] = []
        self.services = services(
            config=BrokerConfig.from_properties({}),
            replicas=world.replicas,
            clock=clock,
            metadata=SimpleNamespace(topic=lambda name: None, brokers={}),
            fetch_sessions=FetchSessions(0, clock, Random(1)),
            txn_markers=TxnMarkers(
                world.replicas, clock, lambda *done: self.completed.append((list(done[0]), *done[1:]))
            ),
        )
        self.partition = world.lead()

    async def call(self, handler: Any, key: ApiKey, request: Any, version: int) -> Any:
        async with asyncio.timeout(60):
            answer = await answered(handler, request_context(self.services, version, key), request)
        if key is not ApiKey.FETCH:
            answer.encode(version)
        return answer

    async def send(
        self, *values: bytes, transactional_id: str | None = "tx", version: int = 11, **options: Any
    ) -> Any:
        """Produce one batch; the partition's answer. ``options``: as of ``encode_batch``."""
        given = {"producer_id": 7, "producer_epoch": 0, "transactional": True, **options}
        data = PartitionProduceData(index=0, records=memoryview(records(*values, **given)))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        answer = await self.call(produce, ApiKey.PRODUCE, request, version)
        return answer.responses[0].partition_responses[0]

    async def plain(self, *values: bytes) -> Any:
        return await self.send(
            *values, transactional_id=None, producer_id=-1, producer_epoch=-1, transactional=False
        )

    async def mark(
        self,
        commit: bool,
        *,
        producer_id: int = 7,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        version: int = 1,
        transaction_version: int = 0,
        topic: str = "t",
        index: int = 0,
    ) -> ErrorCode:
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    coordinator_epoch=coordinator_epoch,
                    transaction_result=commit,
                    transaction_version=transaction_version,
                    topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
                )
            ]
        )
        answer = await self.call(write_txn_markers, ApiKey.WRITE_TXN_MARKERS, request, version)
        (result,) = answer.markers
        assert result.producer_id == producer_id
        return ErrorCode(result.topics[0].partitions[0].error_code)

    async def fetch(self, offset: int, *, committed: bool = True, version: int = 12, **options: Any) -> Any:
        request = fetch_request("t", offset, isolation_level=int(committed), **options)
        answer = await self.call(fetch, ApiKey.FETCH, request, version)
        return answer.responses[0].partitions[0]

    async def latest(self, committed: bool, timestamp: int = -1, version: int = 9) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=timestamp)])],
        )
        answer = await self.call(list_offsets, ApiKey.LIST_OFFSETS, request, version)
        offset: int = answer.topics[0].partitions[0].offset
        return offset


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    background = Background(4)
    world = await World(tmp_path, background, CONFIG, Files(64)).load()
    yield Bench(world)
    world.kill()
    background.close()


def offsets(answer: Any) -> list[int]:
    """The base offsets of the batches in a fetch's answer."""
    data = answer.records
    data = data.read() if hasattr(data, "read") else bytes(data)
    return [header.base_offset for _, header in iter_headers(data)]


def aborted(answer: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]


async def test_committed_readers_stop_at_the_first_open_transaction(bench: Bench) -> None:
    assert (await bench.plain(b"before")).error_code == 0
    first = await bench.send(b"a", b"b", base_sequence=0)
    assert (first.error_code, first.base_offset) == (0, 1)
    await bench.plain(b"after")
    answer = await bench.fetch(0)
    assert (answer.high_watermark, answer.last_stable_offset) == (4, 1)
    assert offsets(answer) == [0]
    assert aborted(answer) == []
    dirty = await bench.fetch(0, committed=False)
    assert offsets(dirty) == [0, 1, 3]
    assert dirty.aborted_transactions is None
    assert (dirty.high_watermark, dirty.last_stable_offset) == (4, 1)
    assert [await bench.latest(True), await bench.latest(False)] == [1, 4]
    assert await bench.mark(commit=True) is ErrorCode.NONE
    answer = await bench.fetch(0)
    assert answer.last_stable_offset == answer.high_watermark == 5
    assert offsets(answer) == [0, 1, 3, 4]
    assert aborted(answer) == []
    assert await bench.latest(True) == 5


async def test_aborted_transactions_are_named(bench: Bench) -> None:
    for number in range(12):
        await bench.send(b"x" * 60, base_sequence=number, producer_id=7)
        await bench.send(b"y" * 60, base_sequence=number, producer_id=8)
        assert await bench.mark(commit=False, producer_id=7) is ErrorCode.NONE
        assert await bench.mark(commit=True, producer_id=8) is ErrorCode.NONE
    log = bench.partition.log
    assert len(log.segments) > 4
    every = [(7, 4 * number) for number in range(12)]
    offset, found = 0, []
    while offset < 48:
        answer = await bench.fetch(offset)
        assert answer.last_stable_offset == 48
        batches = offsets(answer)
        found += aborted(answer)
        # Every aborted batch is named in the answer that has it.
        assert {(7, each) for each in batches if each % 4 == 0} <= set(aborted(answer))
        offset = batches[-1] + 1
    assert sorted(set(found)) == every
    restarted = log.reader.read(0, 100, max_offset=48, min_one=True)
    assert restarted is not None
    assert [each.first_offset for each in log.reader.aborted(0, restarted, 48)][:1] == [0]


async def test_a_transaction_that_spans_segments(bench: Bench) -> None:
    await bench.send(b"first", base_sequence=0)
    for _ in range(10):
        await bench.plain(b"x" * 200)
    await bench.send(b"last", base_sequence=1)
    assert await bench.mark(commit=False) is ErrorCode.NONE
    assert len(bench.partition.log.segments) > 3
    for offset in (0, 3, 6, 9, 11):
        assert aborted(await bench.fetch(offset)) == [(7, 0)]
    assert aborted(await bench.fetch(13)) == []


async def test_what_belongs_to_no_transaction_is_refused(bench: Bench) -> None:
    unnamed = await bench.send(b"v", base_sequence=0, transactional_id=None)
    assert unnamed.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    without_id = await bench.send(b"v", producer_id=-1, producer_epoch=-1)
    assert without_id.error_code == ErrorCode.INVALID_RECORD
    marker = await bench.send(b"v", base_sequence=0, control=True)
    assert marker.error_code == ErrorCode.INVALID_RECORD
    assert (await bench.send(b"v", base_sequence=0)).error_code == 0
    plain = await bench.send(b"v", base_sequence=1, transactional=False)
    assert plain.error_code == ErrorCode.INVALID_TXN_STATE
    assert (await bench.send(b"v", base_sequence=1, transactional=False, producer_id=8)).error_code == 0
    assert (await bench.send(b"v", base_sequence=2)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert bench.partition.log.log_end_offset == 2


async def test_a_request_of_two_producers_or_without_authority(bench: Bench) -> None:
    parts = [
        PartitionProduceData(
            index=index,
            records=bytes(
                records(b"v", producer_id=7 + index, producer_epoch=0, base_sequence=0, transactional=True)
            ),
        )
        for index in (0, 1)
    ]
    request = ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name="t", partition_data=parts)],
    )
    bench.world.replicas.become_leader("t", 1, bench.partition.topic_id, 0, CONFIG)
    answer = await bench.call(produce, ApiKey.PRODUCE, request, 9)
    assert [each.error_code for each in answer.responses[0].partition_responses] == [
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ] * 2
    context = request_context(bench.services, 9, ApiKey.PRODUCE)
    context.rules = {AclResource.TOPIC: None, AclResource.TRANSACTIONAL_ID: AclOperation.WRITE}
    bench.services.authorizer = Deny(AclOperation.WRITE)
    del request.topic_data[0].partition_data[1:]
    refused: Any = handled(produce, context, request)
    assert refused.responses[0].partition_responses[0].error_code == (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )


class DenyTopics(Deny):
    def authorize(
        self, client: Any, operation: AclOperation, resource: AclResource, name: str, *, explicit: bool = True
    ) -> bool:
        return resource is not AclResource.TOPIC


@pytest.mark.parametrize("topic", ["t", "__consumer_offsets"])
async def test_who_may_not_write_a_topic_takes_no_producers_connection_away(bench: Bench, topic: str) -> None:
    bench.world.replicas.become_leader(topic, 1, bench.partition.topic_id, 0, CONFIG)
    if topic == "t":
        bench.services.authorizer = DenyTopics()
    data = PartitionProduceData(
        index=1,
        records=memoryview(
            records(b"v", producer_id=7, producer_epoch=0, transactional=True, base_sequence=0)
        ),
    )
    request = ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = await bench.call(produce, ApiKey.PRODUCE, request, 9)
    assert answer.responses[0].partition_responses[0].error_code in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    )
    partition = bench.world.replicas.partition(topic, 1)
    assert partition is not None
    assert len(partition.log.producers.heard) == 0
    assert partition.log.producers.remembered == 0


async def test_markers_of_old_producers_and_coordinators_are_refused(bench: Bench) -> None:
    assert await bench.mark(commit=True, epoch=3, coordinator_epoch=5) is ErrorCode.NONE
    assert bench.partition.log.log_end_offset == 1
    assert await bench.mark(commit=True, epoch=2, coordinator_epoch=5) is ErrorCode.INVALID_PRODUCER_EPOCH
    old = await bench.mark(commit=True, epoch=3, coordinator_epoch=4)
    assert old is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await bench.mark(commit=False, epoch=4, coordinator_epoch=5) is ErrorCode.NONE
    zombie = await bench.send(b"v", base_sequence=0, producer_epoch=3)
    assert zombie.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.partition.log.log_end_offset == 2
    assert await bench.latest(True) == 2


async def test_a_marker_with_a_higher_epoch_ends_the_transaction(bench: Bench) -> None:
    """A coordinator that aborts a transaction for its timeout raises the epoch."""
    await bench.send(b"v", base_sequence=0)
    assert await bench.mark(commit=False, epoch=1) is ErrorCode.NONE
    assert await bench.latest(True) == 2
    assert aborted(await bench.fetch(0)) == [(7, 0)]
    assert (await bench.send(b"v", base_sequence=1)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await bench.send(b"v", base_sequence=0, producer_epoch=1)).error_code == 0


async def test_a_repeated_marker_does_not_end_the_next_transaction_of_version_2(bench: Bench) -> None:
    """One that led for a moment sends a marker again, late, and with a coordinator epoch that was not seen here."""
    mark = partial(bench.mark, version=2, transaction_version=2)
    await bench.send(b"a", base_sequence=0)
    assert await mark(commit=False, epoch=1, coordinator_epoch=5) is ErrorCode.NONE
    # Sent again because the answer was lost.
    assert await mark(commit=False, epoch=1, coordinator_epoch=5) is ErrorCode.NONE
    assert (await bench.send(b"b", base_sequence=0, producer_epoch=1)).error_code == 0
    late = await mark(commit=False, epoch=1, coordinator_epoch=6)
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await bench.send(b"c", base_sequence=1, producer_epoch=1)).error_code == 0
    assert await mark(commit=True, epoch=2, coordinator_epoch=5) is ErrorCode.NONE
    assert aborted(await bench.fetch(0)) == [(7, 0)]


async def test_a_producer_of_an_older_version_has_the_epoch_of_its_markers(bench: Bench) -> None:
    assert await bench.mark(commit=True) is ErrorCode.NONE
    await bench.send(b"a", base_sequence=0)
    assert await bench.mark(commit=False, version=2) is ErrorCode.NONE
    assert aborted(await bench.fetch(0)) == [(7, 1)]


async def test_a_marker_that_becomes_late_before_its_slice_is_not_written(bench: Bench) -> None:
    await bench.send(b"a", base_sequence=0)
    end = bench.partition.log.log_end_offset
    found: list[list[MarkerErrors]] = []
    marker = TxnMarker(7, 0, 5, False, [("t", 0)])
    bench.services.txn_markers.write([marker], found.append, lambda *_: True)
    assert found == [[{("t", 0): ErrorCode.REQUEST_TIMED_OUT}]]
    assert bench.partition.log.log_end_offset == end


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_partitions_that_get_no_marker(bench: Bench, version: int) -> None:
    assert await bench.mark(True, topic="absent", version=version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await bench.mark(True, index=9, version=version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    bench.partition.follow(LeaderState(0, 2, 1, (2,), 1, (1, 2)))
    assert await bench.mark(True, version=version) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.partition.go_offline()
    assert await bench.mark(True, version=version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_marker_counts_when_the_replicas_have_it(bench: Bench) -> None:
    partition = bench.partition
    partition.lead(LeaderState(0, 1, 1, (1, 2), 1, (1, 2)))
    sent = asyncio.create_task(bench.send(b"v", base_sequence=0))
    await asyncio.sleep(0)
    partition.fetched_by(2, 1, 0, -1)
    assert (await sent).error_code == 0
    marked = asyncio.create_task(bench.mark(commit=True))
    await asyncio.sleep(0.01)
    assert not marked.done()
    assert partition.log.producers.unstable.first_open is None
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    waiting = asyncio.create_task(bench.fetch(0, max_wait_ms=60_000))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    partition.fetched_by(2, 2, 0, -1)
    assert await marked is ErrorCode.NONE
    assert partition.last_stable_offset == 2
    assert offsets(await waiting) == [0, 1]


async def test_too_few_replicas_for_a_marker(bench: Bench) -> None:
    partition = bench.partition
    partition.log.config = LogConfig(min_insync_replicas=2)
    partition.lead(LeaderState(0, 1, 1, ALONE, 1, (1, 2)))
    assert await bench.mark(commit=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0


async def test_a_waiting_reader_of_committed_records_is_woken_by_the_marker(bench: Bench) -> None:
    await bench.send(b"v", base_sequence=0)
    waiting = asyncio.create_task(bench.fetch(0, max_wait_ms=60_000))
    dirty = asyncio.create_task(bench.fetch(1, max_wait_ms=60_000, committed=False))
    await asyncio.sleep(0.01)
    await bench.plain(b"w")
    assert offsets(await dirty) == [1]
    await asyncio.sleep(0.01)
    assert not waiting.done()
    assert not bench.partition.fetches
    await bench.mark(commit=False)
    answer = await waiting
    assert offsets(answer) == [0, 1, 2]
    assert aborted(answer) == [(7, 0)]
    assert not bench.partition.committed_fetches


async def test_min_bytes_counts_what_is_stable(bench: Bench) -> None:
    await bench.send(b"x" * 100, base_sequence=0)
    await bench.send(b"y" * 100, base_sequence=0, producer_id=8)
    waiting = asyncio.create_task(bench.fetch(0, max_wait_ms=60_000, min_bytes=300))
    await asyncio.sleep(0)
    await bench.mark(commit=True)
    await asyncio.sleep(0.01)
    assert bench.partition.last_stable_offset == 1
    assert not waiting.done()
    await bench.mark(commit=True, producer_id=8)
    assert offsets(await waiting) == [0, 1, 2, 3]


async def test_markers_complete_the_offsets_of_their_transactions(bench: Bench) -> None:
    for index in (3, 4):
        bench.world.replicas.become_leader("__consumer_offsets", index, b"o" * 16, 0, CONFIG)
    topics = [
        WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[3, 4, 4, 9]),
        WritableTxnMarkerTopic(name="t", partition_indexes=[0]),
    ]
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(producer_id=7, producer_epoch=0, transaction_result=True, topics=topics),
            WritableTxnMarker(producer_id=8, producer_epoch=0, topics=topics[:1]),
            WritableTxnMarker(producer_id=8, producer_epoch=0, topics=topics[1:]),
            WritableTxnMarker(producer_id=9, producer_epoch=0, topics=[]),
        ]
    )
    answer = await bench.call(write_txn_markers, ApiKey.WRITE_TXN_MARKERS, request, 1)
    assert bench.completed == [([3, 4], 7, True), ([3, 4], 8, False)]
    found = {
        each.producer_id: {
            (topic.name, part.partition_index): part.error_code
            for topic in each.topics
            for part in topic.partitions
        }
        for each in answer.markers
    }
    codes = {
        ("__consumer_offsets", 3): 0,
        ("__consumer_offsets", 4): 0,
        ("__consumer_offsets", 9): 3,
        ("t", 0): 0,
    }
    assert found == {7: codes, 8: codes, 9: {}}
    offsets_log = bench.world.logs.get("__consumer_offsets", 4)
    assert offsets_log is not None
    assert offsets_log.log_end_offset == 2


async def test_a_defect_at_one_partition_is_its_error_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka: the other partitions get their markers, and the coordinator gets an answer."""
    bad = bench.world.lead("bad")
    bench.world.replicas.become_leader("__consumer_offsets", 3, b"o" * 16, 0, CONFIG)

    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(type(bad), "append_marker", _failing_at(bad, type(bad).append_marker))
    monkeypatch.setattr(bench.services.txn_markers, "complete_offsets", fail)
    topics = [
        WritableTxnMarkerTopic(name="bad", partition_indexes=[0]),
        WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[3]),
        WritableTxnMarkerTopic(name="t", partition_indexes=[0]),
    ]
    marker = WritableTxnMarker(producer_id=7, producer_epoch=0, transaction_result=True, topics=topics)
    request = WriteTxnMarkersRequest(markers=[marker])
    answer = await bench.call(write_txn_markers, ApiKey.WRITE_TXN_MARKERS, request, 1)
    [found] = answer.markers
    assert {topic.name: topic.partitions[0].error_code for topic in found.topics} == {
        "bad": ErrorCode.UNKNOWN_SERVER_ERROR,
        "__consumer_offsets": ErrorCode.UNKNOWN_SERVER_ERROR,
        "t": ErrorCode.NONE,
    }
    assert bench.partition.log.log_end_offset == 1


def _failing_at(bad: Any, append: Any) -> Any:
    """``append_marker`` of all partitions, which raises in one of them."""

    def append_marker(partition: Any, *about: Any) -> Any:
        if partition is bad:
            raise ValueError("a defect")
        return append(partition, *about)

    return append_marker


@pytest.mark.parametrize(
    ("denied", "code"),
    [
        ((AclOperation.ALTER,), ErrorCode.NONE),
        ((AclOperation.CLUSTER_ACTION,), ErrorCode.NONE),
        ((AclOperation.ALTER, AclOperation.CLUSTER_ACTION), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
async def test_who_may_write_markers(bench: Bench, denied: tuple[AclOperation, ...], code: ErrorCode) -> None:
    bench.services.authorizer = Deny(*denied)
    assert await bench.mark(commit=True) is code
    assert bench.partition.log.log_end_offset == (code is ErrorCode.NONE)


async def test_many_markers_leave_room_for_others(bench: Bench) -> None:
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=number,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            )
            for number in range(3000)
        ]
    )
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    answer = await bench.call(write_txn_markers, ApiKey.WRITE_TXN_MARKERS, request, 1)
    counting.cancel()
    assert len(answer.markers) == bench.partition.log.log_end_offset == 3000
    assert turns > 3


async def test_producers_are_described_with_their_transactions(bench: Bench) -> None:
    await bench.send(b"v", base_sequence=0)
    await bench.mark(commit=True, coordinator_epoch=3)
    await bench.send(b"v", b"w", base_sequence=1, timestamp=1234)
    await bench.send(b"v", base_sequence=0, producer_id=8, transactional=False, timestamp=99)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    answer = await bench.call(describe_producers, ApiKey.DESCRIBE_PRODUCERS, request, 0)
    found = [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in answer.topics[0].partitions[0].active_producers
    ]
    assert found == [(7, 0, 2, 1234, 3, 2), (8, 0, 0, 99, -1, -1)]


async def test_offsets_by_time_lie_below_the_last_stable_offset(bench: Bench) -> None:
    await bench.plain(b"v")
    await bench.send(b"v", base_sequence=0, timestamp=5_000_000_000_000)
    assert await bench.latest(False, timestamp=4_000_000_000_000) == 1
    assert await bench.latest(True, timestamp=4_000_000_000_000) == -1
    await bench.mark(commit=True)
    assert await bench.latest(True, timestamp=4_000_000_000_000) == 1


async def test_an_answer_with_too_many_aborted_transactions_is_cut(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla_broker.fetch.fetch_request._MOST_ABORTED", 2)
    bench.partition.log.config = LogConfig(index_interval_bytes=100)
    for number in range(20):
        await bench.send(b"v", base_sequence=number)
        await bench.mark(commit=False)
    offset, seen = 0, set()
    while offset < 40:
        answer = await bench.fetch(offset)
        batches = offsets(answer)
        assert batches[0] == offset
        assert len(aborted(answer)) <= 2
        seen |= set(aborted(answer))
        assert {(7, each) for each in batches if each % 2 == 0} <= seen
        offset = batches[-1] + 1
