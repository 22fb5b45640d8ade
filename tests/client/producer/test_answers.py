"""Responses that a working broker gives rarely or never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.client.base.fake import FakeBroker, Partition, Topic
from tests.client.producer.conftest import NewProducer

from ottla_client.errors import BrokerError, RequestTimeoutError, UnsupportedApiError
from ottla_client.producer import BatchDeliveryError
from ottla_client.producer.batch import Batch
from ottla_client.producer.sequences import Sequences
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, LocalProtocolError
from ottla_protocol.messages.init_producer_id import InitProducerIdResponse
from ottla_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla_protocol.records.batch import BatchHeader, read_header


class ProduceBroker(FakeBroker):
    """Accepts every batch, after the error codes in ``codes``."""

    def __init__(self) -> None:
        super().__init__()
        self.versions[ApiKey.INIT_PRODUCER_ID] = (0, 5)
        self.topics["t"] = Topic(partitions={0: Partition(), 1: Partition()})
        self.codes: list[PartitionProduceResponse | int] = []
        self.throttle = 0
        self.batches: list[BatchHeader] = []
        self.next_epoch = 0
        self.answers[ApiKey.PRODUCE] = self._produce
        self.answers[ApiKey.INIT_PRODUCER_ID] = lambda header, request: InitProducerIdResponse(
            producer_id=7, producer_epoch=self.next_epoch
        )

    def _produce(self, header: Any, request: Any) -> ProduceResponse:
        responses = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                self.batches.append(read_header(bytes(data.records)))
                said = self.codes.pop(0) if self.codes else 0
                if isinstance(said, int):
                    said = PartitionProduceResponse(error_code=said, base_offset=-1 if said else 100)
                said.index = data.index
                answers.append(said)
            responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        return ProduceResponse(responses=responses, throttle_time_ms=self.throttle)


@pytest.fixture
async def fake() -> AsyncIterator[ProduceBroker]:
    async with ProduceBroker() as broker:
        yield broker


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_retriable_errors_are_retried(
    fake: ProduceBroker, new_producer: NewProducer, code: ErrorCode
) -> None:
    fake.codes = [int(code), int(code)]
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 100
    assert [batch.base_sequence for batch in fake.batches] == [0, 0, 0]


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TIMESTAMP, ErrorCode.POLICY_VIOLATION]
)
async def test_permanent_errors_fail_at_once(
    fake: ProduceBroker, new_producer: NewProducer, code: ErrorCode
) -> None:
    fake.codes = [int(code)]
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        with pytest.raises(BrokerError, match=code.name) as caught:
            await producer.send_and_wait("t", b"v", partition=0)
        assert caught.value.code is code
        assert (await producer.send_and_wait("t", b"w", partition=0)).offset == 100
    first, second = fake.batches
    assert (first.producer_epoch, first.base_sequence) == (0, 0)
    assert (second.producer_epoch, second.base_sequence) == (1, 0), (
        "the number that is left out is not used again"
    )


async def test_an_unknown_error_code(fake: ProduceBroker, new_producer: NewProducer) -> None:
    fake.codes = [999]
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
            await producer.send_and_wait("t", b"v", partition=0)


async def test_a_producer_that_is_not_allowed_ends(fake: ProduceBroker, new_producer: NewProducer) -> None:
    fake.codes = [int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        with pytest.raises(BrokerError, match="enable_idempotence=False"):
            await producer.send_and_wait("t", b"v", partition=0)
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await producer.send("t", b"v", partition=0)


async def test_an_old_duplicate_is_a_success(fake: ProduceBroker, new_producer: NewProducer) -> None:
    fake.codes = [int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        assert (await producer.send_and_wait("t", b"v", partition=0)).offset == -1


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
async def test_a_broker_that_has_lost_the_producer(
    fake: ProduceBroker, new_producer: NewProducer, code: ErrorCode
) -> None:
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        await producer.send_and_wait("t", b"v", partition=1)
        fake.codes = [int(code)]
        await producer.send_and_wait("t", b"w", partition=0)
        await producer.send_and_wait("t", b"w", partition=1)
    seen = [(batch.producer_epoch, batch.base_sequence) for batch in fake.batches]
    assert seen == [(0, 0), (0, 0), (0, 1), (1, 0), (1, 0)], "KIP-360: the next epoch from 0"


async def test_after_the_last_epoch_comes_a_new_id(fake: ProduceBroker, new_producer: NewProducer) -> None:
    fake.next_epoch = 32_766
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        fake.codes = [int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
        fake.next_epoch = 0
        await producer.send_and_wait("t", b"w", partition=0)
    assert [batch.producer_epoch for batch in fake.batches] == [32_766, 32_766, 0]
    assert fake.asked[ApiKey.INIT_PRODUCER_ID] == 2


async def test_without_idempotence_sequences_mean_failure(
    fake: ProduceBroker, new_producer: NewProducer
) -> None:
    fake.codes = [int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
    async with new_producer(fake.bootstrap, linger_ms=0, enable_idempotence=False) as producer:
        with pytest.raises(BrokerError, match="OUT_OF_ORDER"):
            await producer.send_and_wait("t", b"v", partition=0)
    assert fake.asked[ApiKey.INIT_PRODUCER_ID] == 0
    assert fake.batches[0].producer_id == -1


async def test_single_records_at_fault_are_named(fake: ProduceBroker, new_producer: NewProducer) -> None:
    fake.codes = [
        PartitionProduceResponse(
            error_code=ErrorCode.INVALID_RECORD,
            base_offset=-1,
            error_message="one is bad",
            record_errors=[BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")],
        )
    ]
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        delivery = await producer.send_batch("t", [b"a", b"b", b"c"], partition=0)
        with pytest.raises(BatchDeliveryError) as caught:
            await delivery
    errors = {indices[0]: str(error) for indices, error in caught.value.failed}
    assert set(errors) == {0, 1, 2}
    assert errors[1].endswith("no key")
    assert errors[0].endswith("one is bad")


@pytest.mark.parametrize("acks", [1, "all"])
async def test_leader_moves(fake: ProduceBroker, new_producer: NewProducer, acks: int | str) -> None:
    async with ProduceBroker() as other:
        fake.nodes[2] = (other.host, other.port)
        async with new_producer(fake.bootstrap, linger_ms=0, acks=acks) as producer:
            await producer.send_and_wait("t", b"v", partition=0)
            fake.codes = [int(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 1000
            fake.topics["t"].partitions[0] = Partition(leader=2, epoch=1)
            await producer.send_and_wait("t", b"w", partition=0)
        assert len(other.batches) == 1


async def test_a_partition_without_a_leader_yet(fake: ProduceBroker, new_producer: NewProducer) -> None:
    fake.topics["t"].partitions[0] = Partition(leader=-1, error=int(ErrorCode.LEADER_NOT_AVAILABLE))
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        delivery = await producer.send("t", b"v", partition=0)
        await asyncio.sleep(0.05)
        assert not delivery.done()
        fake.topics["t"].partitions[0] = Partition()
        assert (await delivery).offset == 100


async def test_a_producer_id_that_is_not_available_yet(
    fake: ProduceBroker, new_producer: NewProducer
) -> None:
    codes = [int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), int(ErrorCode.COORDINATOR_NOT_AVAILABLE), 0]
    fake.answers[ApiKey.INIT_PRODUCER_ID] = lambda header, request: InitProducerIdResponse(
        error_code=codes.pop(0), producer_id=9
    )
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
    assert fake.batches[0].producer_id == 9


async def test_brokers_without_idempotence(fake: ProduceBroker, new_producer: NewProducer) -> None:
    del fake.versions[ApiKey.INIT_PRODUCER_ID]
    producer = new_producer(fake.bootstrap, linger_ms=0)
    await producer.start()

    async def send() -> None:
        await producer.send_and_wait("t", b"v", partition=0)

    with pytest.raises(UnsupportedApiError, match="enable_idempotence=False"):
        await send()
    async with new_producer(fake.bootstrap, linger_ms=0, enable_idempotence=False) as other:
        await other.send_and_wait("t", b"v", partition=0)


async def test_brokers_without_record_batches(fake: ProduceBroker, new_producer: NewProducer) -> None:
    fake.versions[ApiKey.PRODUCE] = (0, 2)
    async with new_producer(fake.bootstrap, linger_ms=0, enable_idempotence=False) as producer:
        with pytest.raises(UnsupportedApiError, match=r"older than Kafka 0\.11"):
            await producer.send_and_wait("t", b"v", partition=0)


async def test_throttling_is_obeyed(fake: ProduceBroker, new_producer: NewProducer) -> None:
    fake.throttle = 600
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        delivery = await producer.send("t", b"w", partition=0)
        await asyncio.sleep(0.02)
        assert len(fake.batches) == 1
        await delivery


async def test_a_response_without_the_partition(fake: ProduceBroker, new_producer: NewProducer) -> None:
    usual = fake.answers[ApiKey.PRODUCE]
    empty: Callable[..., Any] = lambda header, request: ProduceResponse()  # noqa: E731
    fake.answers[ApiKey.PRODUCE] = empty
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        delivery = await producer.send("t", b"v", partition=0)
        await asyncio.sleep(0.02)
        fake.answers[ApiKey.PRODUCE] = usual
        assert (await delivery).offset == 100


async def test_one_request_at_a_time_where_order_depends_on_it(
    fake: ProduceBroker, new_producer: NewProducer
) -> None:
    fake.codes = [int(ErrorCode.NOT_ENOUGH_REPLICAS)]
    async with new_producer(
        fake.bootstrap, enable_idempotence=False, max_in_flight_requests_per_connection=1, batch_size=100
    ) as producer:
        for number in range(5):
            await producer.send("t", b"%d" % number * 60, partition=0, timestamp_ms=number)
    assert [batch.base_timestamp for batch in fake.batches] == [0, 0, 1, 2, 3, 4]


async def test_requests_stay_below_their_size(fake: ProduceBroker, new_producer: NewProducer) -> None:
    fake.topics["t"] = Topic(partitions={number: Partition() for number in range(20)})
    async with new_producer(fake.bootstrap, max_request_size=5_000, batch_size=2_000) as producer:
        for number in range(20):
            await producer.send("t", bytes(1_500), partition=number)
        await producer.flush()
    sent = [request for request in fake.requests if type(request).__name__ == "ProduceRequest"]
    for request in sent:
        assert sum(len(data.records) for topic in request.topic_data for data in topic.partition_data) < 5_000
    assert 7 <= len(sent) < 20, "several partitions in one"


async def test_flush_has_a_deadline(fake: ProduceBroker, new_producer: NewProducer) -> None:
    silent: Callable[..., Any] = lambda header, request: None  # noqa: E731
    usual = fake.answers[ApiKey.PRODUCE]
    fake.answers[ApiKey.PRODUCE] = silent
    async with new_producer(fake.bootstrap, request_timeout_ms=300) as producer:
        delivery = await producer.send("t", b"v", partition=0)
        with pytest.raises(RequestTimeoutError, match="1 batches were not acknowledged"):
            await producer.flush(0.05)
        fake.answers[ApiKey.PRODUCE] = usual
        await delivery


async def test_batches_behind_one_that_cannot_be_encoded_are_sent(
    fake: ProduceBroker, new_producer: NewProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Batch.encode

    def encode_all_but_the_first(batch: Batch, *details: Any) -> bytearray:
        if batch.sequence == 0 and not fake.batches and batch.values[0] == b"bad":
            raise LocalProtocolError("not to be encoded")
        return encode(batch, *details)

    monkeypatch.setattr(Batch, "encode", encode_all_but_the_first)
    async with new_producer(fake.bootstrap, linger_ms=60_000, batch_size=1_000) as producer:
        bad = await producer.send("t", b"bad", partition=0)
        good = await producer.send("t", bytes(990), partition=0)
        await producer.flush(30)
        with pytest.raises(LocalProtocolError):
            await bad
        assert (await good).offset == 100


async def test_a_defect_while_an_answer_is_handled_ends_the_producer(
    fake: ProduceBroker, new_producer: NewProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(sequences: Sequences, batch: Batch) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Sequences, "acknowledged", broken)
    async with new_producer(fake.bootstrap, linger_ms=0) as producer:
        with pytest.raises(RuntimeError, match="a defect"):
            await producer.send_and_wait("t", b"v", partition=0)
        with pytest.raises(RuntimeError, match="a defect"):
            await producer.send("t", b"w", partition=0)
