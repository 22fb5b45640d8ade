"""Answers of transaction coordinators that a working one gives rarely, and coordinators that go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.client.producer.conftest import NewProducer
from tests.client.producer.test_answers import ProduceBroker

from ottla_client.errors import (
    BrokerError,
    ProducerFencedError,
    RequestTimeoutError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedApiError,
)
from ottla_client.producer import BatchDeliveryError, sender
from ottla_client.types import TopicPartition
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.features import TRANSACTION_VERSION
from ottla_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla_protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from ottla_protocol.messages.end_txn import EndTxnResponse
from ottla_protocol.messages.init_producer_id import InitProducerIdResponse
from ottla_protocol.records.batch import TRANSACTIONAL


class Coordinator(ProduceBroker):
    """Takes everything, after the error codes in ``coordinator_codes``."""

    def __init__(self) -> None:
        super().__init__()
        self.versions[ApiKey.ADD_PARTITIONS_TO_TXN] = (0, 5)
        self.versions[ApiKey.END_TXN] = (0, 4)
        self.coordinator_codes: dict[ApiKey, list[int]] = {}
        self.epoch = 0
        self.answers[ApiKey.INIT_PRODUCER_ID] = self._init
        self.answers[ApiKey.ADD_PARTITIONS_TO_TXN] = self._add
        self.answers[ApiKey.END_TXN] = lambda header, request: EndTxnResponse(
            error_code=self.code(ApiKey.END_TXN)
        )

    def code(self, key: ApiKey) -> int:
        codes = self.coordinator_codes.get(key)
        return int(codes.pop(0)) if codes else 0

    def _init(self, header: Any, request: Any) -> InitProducerIdResponse:
        code = self.code(ApiKey.INIT_PRODUCER_ID)
        if not code:
            self.epoch += 1
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def _add(self, header: Any, request: Any) -> AddPartitionsToTxnResponse:
        assert header.api_version == 3, "the last version for clients"
        code = self.code(ApiKey.ADD_PARTITIONS_TO_TXN)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
                        for each in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def of(self, name: str) -> list[Any]:
        return [each for each in self.requests if type(each).__name__ == name]


class CoordinatorOfVersion2(Coordinator):
    """The same where transaction.version is finalized at 2: each EndTxn raises the epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.versions[ApiKey.PRODUCE] = (0, 12)
        self.versions[ApiKey.END_TXN] = (0, 5)
        self.answers[ApiKey.END_TXN] = self._end

    def _versions(self, error: int = 0) -> ApiVersionsResponse:
        response = super()._versions(error)
        response.finalized_features_epoch = 1
        response.finalized_features = [
            FinalizedFeatureKey(name=TRANSACTION_VERSION, max_version_level=2, min_version_level=2)
        ]
        return response

    def _end(self, header: Any, request: Any) -> EndTxnResponse:
        self.epoch += 1
        return EndTxnResponse(producer_id=7, producer_epoch=self.epoch)


@pytest.fixture
async def fake() -> AsyncIterator[Coordinator]:
    async with Coordinator() as broker:
        yield broker


async def test_the_requests_of_a_transaction(fake: Coordinator, new_producer: NewProducer) -> None:
    producer = new_producer(fake.bootstrap, transactional_id="id", transaction_timeout_ms=5_000)
    async with producer, producer.transaction():
        await producer.send("t", b"v", partition=0)
        await producer.send("t", b"w", partition=1)
    (init,) = fake.of("InitProducerIdRequest")
    assert (init.transactional_id, init.transaction_timeout_ms, init.producer_id) == ("id", 5_000, -1)
    added = [each for request in fake.of("AddPartitionsToTxnRequest") for each in request.v3_and_below_topics]
    assert sorted(number for each in added for number in each.partitions) == [0, 1]
    assert [request.transactional_id for request in fake.of("ProduceRequest")] == ["id"]
    assert all(batch.attributes & TRANSACTIONAL and batch.producer_epoch == 1 for batch in fake.batches)
    (end,) = fake.of("EndTxnRequest")
    assert (end.transactional_id, end.producer_id, end.producer_epoch, end.committed) == ("id", 7, 1, True)


async def test_one_request_adds_the_partitions_of_all_open_batches(
    fake: Coordinator, new_producer: NewProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "_ADD_SOON", 3600.0)
    producer = new_producer(fake.bootstrap, transactional_id="id", batch_size=1000, linger_ms=60_000)
    async with producer, producer.transaction():
        for number in (0, 1, 1):
            await producer.send("t", bytes(900), partition=number)
    (request,) = fake.of("AddPartitionsToTxnRequest")  # for the full batch of partition 1
    assert [sorted(each.partitions) for each in request.v3_and_below_topics] == [[0, 1]]


async def test_a_transaction_without_records_asks_nothing(
    fake: Coordinator, new_producer: NewProducer
) -> None:
    async with new_producer(fake.bootstrap, transactional_id="id") as producer:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert not fake.of("EndTxnRequest")


async def test_brokers_without_transactions(new_producer: NewProducer) -> None:
    async with ProduceBroker() as broker:
        producer = new_producer(broker.bootstrap, transactional_id="id")
        with pytest.raises(UnsupportedApiError, match="EndTxn"):
            await producer.start()


async def test_temporary_errors_are_retried(fake: Coordinator, new_producer: NewProducer) -> None:
    temporary: list[int] = [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
    for key in (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN):
        fake.coordinator_codes[key] = list(temporary)
    async with new_producer(fake.bootstrap, transactional_id="id") as producer, producer.transaction():
        await producer.send("t", b"v", partition=0)
    assert fake.asked[ApiKey.END_TXN] == 5
    assert fake.asked[ApiKey.FIND_COORDINATOR] == 7


async def test_the_coordinator_moves(fake: Coordinator, new_producer: NewProducer) -> None:
    async with Coordinator() as other:
        fake.nodes[2] = (other.host, other.port)
        async with new_producer(fake.bootstrap, transactional_id="id") as producer:
            async with producer.transaction():
                await producer.send("t", b"v", partition=0)
            fake.coordinator = (2, 0)
            fake.coordinator_codes[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.NOT_COORDINATOR]
            async with producer.transaction():
                await producer.send("t", b"w", partition=0)
        assert len(other.of("EndTxnRequest")) == len(fake.of("EndTxnRequest")) == 1


async def test_a_lost_answer_to_the_commit(fake: Coordinator, new_producer: NewProducer) -> None:
    usual = fake.answers[ApiKey.END_TXN]

    def cut(header: Any, request: Any) -> None:
        fake.answers[ApiKey.END_TXN] = usual
        fake.cut()

    async with new_producer(fake.bootstrap, transactional_id="id") as producer, producer.transaction():
        await producer.send("t", b"v", partition=0)
        fake.answers[ApiKey.END_TXN] = cut
    assert [request.committed for request in fake.of("EndTxnRequest")] == [True, True]


async def test_a_commit_without_an_outcome(fake: Coordinator, new_producer: NewProducer) -> None:
    fake.coordinator_codes[ApiKey.END_TXN] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000
    async with new_producer(fake.bootstrap, transactional_id="id") as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        with pytest.raises(RequestTimeoutError, match=r"committed is unknown.*COORDINATOR_LOAD_IN_PROGRESS"):
            await producer.commit_transaction(0.2)
        with pytest.raises(TransactionStateError, match="may have been committed"):
            await producer.abort_transaction()
        with pytest.raises(TransactionStateError, match="has no outcome yet"):
            await producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="being committed"):
            await producer.send("t", b"w", partition=0)
        fake.coordinator_codes.clear()
        await producer.commit_transaction()
        await producer.begin_transaction()
    assert [request.committed for request in fake.of("EndTxnRequest")][-1]


async def test_an_abort_takes_a_new_epoch_after_a_failure(
    fake: Coordinator, new_producer: NewProducer
) -> None:
    async with new_producer(fake.bootstrap, transactional_id="id", linger_ms=0) as producer:
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
        fake.codes = [int(ErrorCode.INVALID_TXN_STATE)]
        await producer.begin_transaction()
        with pytest.raises(BrokerError, match="INVALID_TXN_STATE"):
            await (await producer.send("t", b"v", partition=0))
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
    _, second = fake.of("InitProducerIdRequest")
    assert (second.producer_id, second.producer_epoch) == (7, 1)
    assert [request.committed for request in fake.of("EndTxnRequest")] == [True, False, True]
    assert [(batch.producer_epoch, batch.base_sequence) for batch in fake.batches] == [(1, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize("key", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN])
async def test_a_fenced_producer_stops(
    fake: Coordinator, new_producer: NewProducer, key: ApiKey, code: int
) -> None:
    fake.coordinator_codes[key] = [code]
    async with new_producer(fake.bootstrap, transactional_id="id") as producer:
        await producer.begin_transaction()
        delivery = await producer.send("t", b"v", partition=0)
        with pytest.raises(ProducerFencedError, match="create a new one"):
            await producer.commit_transaction()
        assert delivery.done()
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(ProducerFencedError):
                await call()
        with pytest.raises(ProducerFencedError):
            await producer.send("t", b"w", partition=0)


@pytest.mark.parametrize(
    ("code", "stops"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (ErrorCode.TRANSACTION_ABORTABLE, False),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, False),
        (ErrorCode.INVALID_TXN_STATE, True),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True),
    ],
)
async def test_partitions_that_are_refused(
    fake: Coordinator, new_producer: NewProducer, code: ErrorCode, stops: bool
) -> None:
    fake.coordinator_codes[ApiKey.ADD_PARTITIONS_TO_TXN] = [code]
    async with new_producer(fake.bootstrap, transactional_id="id") as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        with pytest.raises(BrokerError if stops else TransactionAbortedError, match=code.name):
            await producer.commit_transaction()
        if stops:
            return
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
    assert fake.of("EndTxnRequest")[-1].committed


async def test_close_aborts_with_a_deadline(fake: Coordinator, new_producer: NewProducer) -> None:
    producer = new_producer(fake.bootstrap, transactional_id="id")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"v", partition=0)
    silent: Callable[..., Any] = lambda header, request: None  # noqa: E731
    fake.answers[ApiKey.END_TXN] = silent
    await producer.close(0.2)
    assert [request.committed for request in fake.of("EndTxnRequest")] == [False]


async def test_brokers_without_offsets_in_transactions(fake: Coordinator, new_producer: NewProducer) -> None:
    async with new_producer(fake.bootstrap, transactional_id="id") as producer:
        await producer.begin_transaction()
        with pytest.raises(UnsupportedApiError, match="AddOffsetsToTxn"):
            await producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "group")


async def test_partitions_are_added_while_their_batches_fill(
    fake: Coordinator, new_producer: NewProducer
) -> None:
    async with (
        asyncio.timeout(60),
        new_producer(fake.bootstrap, transactional_id="id", linger_ms=60_000) as producer,
        producer.transaction(),
    ):
        await producer.send("t", b"v", partition=0)
        while not fake.of("AddPartitionsToTxnRequest"):
            await asyncio.sleep(0.001)
        assert not fake.batches, "the batch lingers"
    assert len(fake.of("AddPartitionsToTxnRequest")) == 1
    assert [request.committed for request in fake.of("EndTxnRequest")] == [True]


async def test_no_commit_without_records_that_wait_for_room(
    fake: Coordinator, new_producer: NewProducer
) -> None:
    producer = new_producer(fake.bootstrap, transactional_id="id", batch_size=10_000, buffer_memory=10_000)
    async with producer:
        await producer.begin_transaction()
        sending = asyncio.create_task(producer.send_batch("t", [bytes(4_000)] * 6, partition=0))
        while not (producer._sender and producer._sender.in_flight):
            await asyncio.sleep(0)
        with pytest.raises(TransactionAbortedError, match="is being committed"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        with pytest.raises(BatchDeliveryError, match="4 of 6"):
            await (await sending)
    assert [request.committed for request in fake.of("EndTxnRequest")] == [False]


async def test_a_record_that_comes_after_the_commit_does_not_change_its_outcome(
    fake: Coordinator, new_producer: NewProducer
) -> None:
    producer = new_producer(fake.bootstrap, transactional_id="id")

    def end(header: Any, request: Any) -> EndTxnResponse:
        producer._not_sent(TransactionStateError("the transaction is being committed"))
        return EndTxnResponse()

    fake.answers[ApiKey.END_TXN] = end
    async with producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await producer.commit_transaction()
    assert [request.committed for request in fake.of("EndTxnRequest")] == [True]


async def test_a_leader_that_throttles_has_nothing_left_of_an_aborted_transaction(
    new_producer: NewProducer,
) -> None:
    async with CoordinatorOfVersion2() as fake:
        fake.throttle = 200
        async with new_producer(fake.bootstrap, transactional_id="id", linger_ms=0) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"v", partition=0)
            unsent = await producer.send("t", b"dropped", partition=0)
            await asyncio.sleep(0.05)  # its leader is asked later
            await producer.abort_transaction()
            with pytest.raises(TransactionAbortedError):
                await unsent
            await producer.begin_transaction()
            await asyncio.sleep(0.3)
            await producer.send_and_wait("t", b"w", partition=0)
            await producer.commit_transaction()
    assert [request.committed for request in fake.of("EndTxnRequest")] == [False, True]
