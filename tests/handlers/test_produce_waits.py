"""Produce that waits for the disk, produce without an answer, and who may write what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.badinput.requests import fetch, produce, produce_request, records
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.produce import ProduceResponse

Topic = Callable[..., str]


@pytest.mark.parametrize("acks", [1, -1])
def test_many_at_once_share_the_fsyncs(acks: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(flush_messages=1)
    for i in range(100):
        batch = bytes(records(b"%d" % i))
        wire.send(request_bytes(produce_request(topic, batch, acks=acks), 9, i))
    for i in range(100):
        data = wire.receive()
        correlation, position = parse_response_header(data, 0, 9)
        answer = ProduceResponse.decode(data, 9, position).responses[0].partition_responses[0]
        assert (correlation, answer.error_code, answer.base_offset) == (i, 0, i)
    assert fetch(wire, topic, 99)[0] == 0


def test_a_duplicate_is_answered_as_the_first_was(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(flush_messages=1)
    batch = bytes(records(b"v", producer_id=4711, producer_epoch=0, base_sequence=0))
    for i in range(10):
        wire.send(request_bytes(produce_request(topic, batch, acks=1), 9, i))
    for _ in range(10):
        data = wire.receive()
        _, position = parse_response_header(data, 0, 9)
        answer = ProduceResponse.decode(data, 9, position).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)


def test_without_acks_there_is_no_answer_but_order_is_kept(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    for i in range(50):
        wire.send(request_bytes(produce_request(topic, bytes(records(b"%d" % i)), acks=0), 9))
    assert produce(wire, topic, records(b"last")) == (0, 50)


def test_without_acks_on_a_log_that_is_flushed(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(flush_messages=1)
    for _ in range(5):
        wire.send(request_bytes(produce_request(topic, bytes(records(b"v")), acks=0), 9))
    assert produce(wire, topic, records(b"last")) == (0, 5)


def test_min_bytes_counts_what_has_been_flushed(broker: BrokerProcess, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(flush_messages=1)
    produce(wire, topic, records(b"v"))
    error, data = fetch(wire, topic, 0, min_bytes=1 << 19, max_wait_ms=1)
    assert (error, len(data)) == (0, len(records(b"v")))


def test_internal_topics_are_written_by_the_broker_alone(wire: Wire) -> None:
    wait_for(
        lambda: wire.call(FindCoordinatorRequest(key="g", key_type=0), 2).error_code == 0,
        "__consumer_offsets to be there",
    )
    refused = produce(wire, "__consumer_offsets", records(b"v"))
    assert refused == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    unknown = produce(wire, "__consumer_offsets", records(b"v"), partition=5000)
    assert unknown == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_no_more_replicas_are_asked_for_than_there_are(wire: Wire, new_topic: Topic) -> None:
    """Kafka: ``Partition.effectiveMinIsr``."""
    topic = new_topic(min_insync_replicas=2)
    assert produce(wire, topic, records(b"v")) == (0, 0)
    assert produce(wire, topic, records(b"v"), acks=1) == (0, 1)
