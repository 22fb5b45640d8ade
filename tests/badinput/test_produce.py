"""Record batches that must not get into a log, and the error that the producer gets for each."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.badinput.requests import fetch, now_ms, produce, produce_answer, produce_request, records
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla_protocol.partitioning import LAG_TOPIC
from ottla_protocol.records.batch import write_crc
from ottla_protocol.records.compression import LZ4
from ottla_protocol.records.record import encode_batch

Topic = Callable[..., str]


def end_offset(wire: Wire, topic: str) -> int:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = wire.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5).topics[0].partitions[0]
    assert answer.error_code == 0
    return int(answer.offset)


def test_batches_that_take_long_to_check_keep_their_place(wire: Wire, new_topic: Topic) -> None:
    """Of a client that sends as fast as the broker reads, as librdkafka does."""
    topic = new_topic()
    slow = encode_batch([(now_ms(), None, os.urandom(200_000), ())], codec=LZ4)
    sent = [slow if number % 3 else records(b"quick", key=None) for number in range(30)]
    for number, batch in enumerate(sent):
        wire.send(request_bytes(produce_request(topic, bytes(batch), acks=1), 9, number))
    for number in range(len(sent)):
        data = wire.receive()
        correlation, position = parse_response_header(data, ApiKey.PRODUCE, 9)
        answer = ProduceResponse.decode(data, 9, position).responses[0].partition_responses[0]
        assert (correlation, answer.error_code, answer.base_offset) == (number, 0, number)


def changed(batch: bytearray, position: int, form: str, *values: int, crc: bool = True) -> bytearray:
    """The batch with something written over, and (unless a test says otherwise) a CRC that fits."""
    struct.pack_into(form, batch, position, *values)
    if crc:
        write_crc(batch, 0, len(batch))
    return batch


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(
            changed(records(b"v"), 17, ">I", 1, crc=False), ErrorCode.CORRUPT_MESSAGE, id="wrong-crc"
        ),
        pytest.param(
            changed(records(b"v" * 99), 80, ">B", 1, crc=False), ErrorCode.CORRUPT_MESSAGE, id="changed-byte"
        ),
        pytest.param(
            changed(records(b"v"), 8, ">i", 10, crc=False), ErrorCode.CORRUPT_MESSAGE, id="length-too-small"
        ),
        pytest.param(
            changed(records(b"v"), 8, ">i", -1, crc=False), ErrorCode.CORRUPT_MESSAGE, id="length-negative"
        ),
        pytest.param(records(b"v", control=True), ErrorCode.INVALID_RECORD, id="control-batch"),
        pytest.param(records(b"v") + records(b"v"), ErrorCode.INVALID_RECORD, id="two-batches"),
        pytest.param(changed(records(b"v"), 57, ">i", 5), ErrorCode.INVALID_RECORD, id="wrong-count"),
        pytest.param(changed(records(b"v"), 57, ">i", 0), ErrorCode.INVALID_RECORD, id="count-zero"),
        pytest.param(changed(records(b"v"), 57, ">i", -1), ErrorCode.INVALID_RECORD, id="count-negative"),
        pytest.param(
            changed(records(b"v"), 23, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD, id="last-offset-delta-huge"
        ),
        pytest.param(
            changed(records(b"v"), 23, ">i", -1), ErrorCode.INVALID_RECORD, id="last-offset-delta-negative"
        ),
        pytest.param(changed(records(b"v"), 21, ">h", 5), None, id="codec-unknown"),
        pytest.param(changed(records(b"v"), 16, ">b", 3, crc=False), None, id="magic-unknown"),
        pytest.param(b"x", None, id="one-byte"),
        pytest.param(b"x" * 100, None, id="garbage"),
    ],
)
def test_broken_batches(batch: bytes, error: ErrorCode | None, wire: Wire, new_topic: Topic) -> None:
    """``None``: Kafka has no one code for it; an error it must be."""
    topic = new_topic()
    try:
        code, offset = produce(wire, topic, bytes(batch))
    except ConnectionError:
        assert error is None
    else:
        assert code != 0
        assert offset == -1
        if error is not None:
            assert code == error
    with Wire(wire.socket.getpeername()[1]) as other:
        assert end_offset(other, topic) == 0
        assert produce(other, topic, records(b"good")) == (0, 0)


def test_a_batch_cut_short(wire: Wire, new_topic: Topic) -> None:
    topic, whole = new_topic(), bytes(records(b"v" * 50))
    for size in (5, 11, 12, 16, 17, 30, 60, 61, len(whole) - 1):
        try:
            code, _ = produce(wire, topic, whole[:size])
            assert code != 0, size
        except ConnectionError:
            pytest.fail(f"a batch of {size} bytes closed the connection")
    assert end_offset(wire, topic) == 0


@pytest.mark.parametrize("batch", [None, b""])
def test_null_and_empty_records(batch: bytes | None, wire: Wire, new_topic: Topic, is_kafka: bool) -> None:
    if is_kafka and batch is None:
        pytest.skip("Kafka does not answer")
    topic = new_topic()
    code, _ = produce(wire, topic, batch)
    assert code != 0
    assert end_offset(wire, topic) == 0


def test_too_large(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(max_message_bytes=1000)
    assert produce(wire, topic, records(os.urandom(1000))) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert produce(wire, topic, records(b"x" * 1000, codec=1)) == (0, 0)


def test_larger_than_a_segment(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(segment_bytes=2000)
    assert produce(wire, topic, records(os.urandom(3000))) == (ErrorCode.RECORD_LIST_TOO_LARGE, -1)
    assert produce(wire, topic, records(b"v")) == (0, 0)


def test_timestamps_out_of_range(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(message_timestamp_before_max_ms=10_000, message_timestamp_after_max_ms=10_000)
    hour = 3_600_000
    for codec in (0, 1):
        for timestamp in (now_ms() - hour, now_ms() + hour, 0):
            answer = produce_answer(wire, topic, records(b"v", timestamp=timestamp, codec=codec))
            assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
            assert [error.batch_index for error in answer.record_errors] == [0]
    assert produce(wire, topic, records(b"v")) == (0, 0)


@pytest.mark.not_kafka_4  # by default it allows an hour of future (KIP-1030)
def test_any_time_is_in_range_by_default(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    for offset, timestamp in enumerate((0, 1, now_ms() + 10**10)):
        assert produce(wire, topic, records(b"v", timestamp=timestamp)) == (0, offset)


def test_no_key_on_a_compacted_topic(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(cleanup_policy="compact")
    for codec in range(5):
        answer = produce_answer(wire, topic, records(b"v", key=None, codec=codec))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.base_offset == -1
        assert answer.error_message
        assert answer.record_errors
    assert produce(wire, topic, records(b"v", key=b"")) == (0, 0)


def test_a_refused_batch_names_the_records_to_blame(wire: Wire, new_topic: Topic) -> None:
    """So that the producer can send the others again (KIP-467)."""
    topic = new_topic(cleanup_policy="compact")
    mixed = [(now_ms(), None if number % 3 == 0 else b"k", b"v", ()) for number in range(8)]
    for codec in range(5):
        answer = produce_answer(wire, topic, encode_batch(mixed, codec=codec))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [0, 3, 6]
        assert all(error.batch_index_error_message for error in answer.record_errors)
    answer = produce_answer(wire, topic, changed(records(b"v"), 57, ">i", 5))
    assert (answer.error_code, answer.record_errors) == (ErrorCode.INVALID_RECORD, [])


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_invalid_required_acks(acks: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    assert produce(wire, topic, records(b"v"), acks=acks)[0] == ErrorCode.INVALID_REQUIRED_ACKS
    assert end_offset(wire, topic) == 0


def test_unknown_topics_and_partitions(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(wire, "no-such-topic-at-all", records(b"v"))[0] == unknown
    assert produce(wire, topic, records(b"v"), partition=1)[0] == unknown
    assert produce(wire, topic, records(b"v"), partition=-1)[0] == unknown
    assert produce(wire, "no such name", records(b"v"))[0] in (unknown, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_an_error_with_no_acks_closes_the_connection(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    wire.send(request_bytes(produce_request(topic, bytes(records(b"v")), partition=9, acks=0), 9))
    assert wire.is_closed()


def test_one_partitions_error_does_not_touch_the_others(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(3)
    bad = bytes(changed(records(b"v"), 17, ">I", 1, crc=False))
    parts = [
        PartitionProduceData(index=0, records=bytes(records(b"v"))),
        PartitionProduceData(index=1, records=bad),
        PartitionProduceData(index=2, records=bytes(records(b"v"))),
        PartitionProduceData(index=7, records=bytes(records(b"v"))),
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=parts)]
    )
    answer = wire.call(request, 9)
    got = {p.index: p.error_code for t in answer.responses for p in t.partition_responses}
    assert got == {0: 0, 1: ErrorCode.CORRUPT_MESSAGE, 2: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# ---- idempotent producers


@pytest.fixture
def producer(wire: Wire) -> tuple[int, int]:
    """A producer's id and epoch."""

    def ask() -> Any:
        answer = wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
        return answer if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else None

    answer = wait_for(ask, "a producer id", every=0.1)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def test_sequences(wire: Wire, new_topic: Topic, producer: tuple[int, int]) -> None:
    topic = new_topic()
    producer_id, epoch = producer

    def send(sequence: int, count: int = 2, epoch: int = epoch) -> tuple[int, int]:
        batch = records(
            *[b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        return produce(wire, topic, batch)

    assert send(0) == (0, 0)
    assert send(2) == (0, 2)
    assert send(2) == (0, 2), "a duplicate gets the first answer"
    assert send(0) == (0, 0)
    assert send(6)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(4) == (0, 4)
    assert end_offset(wire, topic) == 6
    assert send(0, epoch=epoch + 1) == (0, 6)
    assert send(6)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(5, epoch=epoch + 2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in range(2, 20, 2):
        assert send(sequence, epoch=epoch + 1)[0] == 0
    assert send(0, epoch=epoch + 1)[0] != 0, "too old to be known as a duplicate"
    assert end_offset(wire, topic) == 26


def test_a_transactional_batch_without_a_transaction(
    wire: Wire, new_topic: Topic, producer: tuple[int, int]
) -> None:
    topic = new_topic()
    producer_id, epoch = producer
    batch = records(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    assert produce(wire, topic, batch)[0] != 0
    assert end_offset(wire, topic) == 0


def test_an_empty_transactional_id(wire: Wire) -> None:
    answer = wire.call(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 4)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_producer_id_without_its_epoch(wire: Wire) -> None:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=0, producer_id=5, producer_epoch=-1
    )
    assert wire.call(request, 4).error_code == ErrorCode.INVALID_REQUEST


# ---- garbage with a valid CRC, which gets as far as the log


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_records_that_are_garbage_under_a_good_checksum(
    codec: int, policy: str, wire: Wire, new_topic: Topic
) -> None:
    topic = new_topic(cleanup_policy=policy)
    batch = records(b"v" * 200)
    struct.pack_into(">h", batch, 21, codec)
    batch[61:] = os.urandom(len(batch) - 61)
    write_crc(batch, 0, len(batch))
    code, _ = produce(wire, topic, bytes(batch))
    good, offset = produce(wire, topic, records(b"good"))
    assert good == 0
    assert offset == (0 if code else 1)
    asked = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=now_ms() - 1)]
    )
    wire.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5)
    assert b"good" in fetch(wire, topic, offset)[1]


@pytest.mark.ottla_only
@pytest.mark.parametrize("client_id", ["anyone", "__admin_client", "broker-1"])
def test_the_history_of_lag_cannot_be_forged(wire: Wire, client_id: str) -> None:
    """On a broker alone there is no other broker, whatever a client calls itself."""
    named = MetadataRequest(topics=[MetadataRequestTopic(name=LAG_TOPIC)], allow_auto_topic_creation=True)
    wait_for(lambda: wire.call(named, 9).topics[0].error_code == 0, "the topic")
    for number, version in enumerate((3, 9), 1):
        request = produce_request(LAG_TOPIC, bytes(records(b"forged")), acks=1)
        wire.send(request_bytes(request, version, number, client_id))
        data = wire.receive()
        _, position = parse_response_header(data, ApiKey.PRODUCE, version)
        answer = ProduceResponse.decode(data, version, position).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert end_offset(wire, LAG_TOPIC) == 0
