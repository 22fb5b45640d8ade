"""Produce of very many partitions at once, which is appended in portions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.badinput.requests import produce, records
from tests.conftest import unique
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_broker.handlers.produce import MANY
from ottla_broker.produce.sliced_produce import PORTION
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

pytestmark = pytest.mark.ottla_only

Topic = Callable[..., str]

NONE = ErrorCode.NONE


def request(acks: int, *topics: tuple[str, list[int]], **options: int) -> ProduceRequest:
    """One small batch for each of the partitions, which may be named several times."""
    batch = bytes(records(b"v", **options))
    return ProduceRequest(
        acks=acks,
        timeout_ms=60_000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=index, records=batch) for index in indexes],
            )
            for name, indexes in topics
        ],
    )


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("codec", [0, 1])
def test_each_partition_is_answered_in_its_place(wire: Wire, new_topic: Topic, acks: int, codec: int) -> None:
    """As in Kafka, a topic that is named twice is answered once, and one without partitions isn't."""
    one, other, small = new_topic(flush_messages=1), new_topic(), new_topic()
    counts = [(one, MANY), (small, 1), (other, PORTION), (one, 37), ("missing", 0)]
    sent = request(acks, *((name, [0] * count) for name, count in counts), codec=codec)
    sent.topic_data[1].partition_data[0].index = 7
    wire.send(request_bytes(sent, 9, 1) + request_bytes(request(1, (one, [0])), 9, 2))
    answers = []
    for number in (1, 2):
        data = wire.receive()
        correlation, position = parse_response_header(data, 0, 9)
        assert correlation == number
        answers.append(ProduceResponse.decode(data, 9, position).responses)
    first, second = answers
    assert [(topic.name, len(topic.partition_responses)) for topic in first] == [
        (one, MANY + 37),
        *counts[1:3],
    ]
    for topic in (first[0], first[2]):
        found = [(each.error_code, each.base_offset) for each in topic.partition_responses]
        assert found == [(NONE, offset) for offset in range(len(found))]
    assert first[1].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert second[0].partition_responses[0].base_offset == MANY + 37, "requests keep their order"
    assert wire.call(request(acks, (one, []), codec=codec), 9).responses == []


def test_without_acks_all_is_appended_though_the_client_leaves(
    broker: BrokerProcess, wire: Wire, new_topic: Topic
) -> None:
    topic = new_topic()
    with Wire(broker.port) as sender:
        sender.send(request_bytes(request(0, (topic, [0] * (MANY + 300))), 9))
    wait_for(
        lambda: produce(wire, topic, records(b"last"))[1] >= MANY + 300, "the records of the client that left"
    )


def test_without_acks_an_error_closes_the_connection_after_the_rest(
    broker: BrokerProcess, wire: Wire, new_topic: Topic
) -> None:
    topic = new_topic()
    with Wire(broker.port) as sender:
        sender.send(request_bytes(request(0, (unique("absent"), [0]), (topic, [0] * MANY)), 9))
        assert sender.is_closed()
    assert produce(wire, topic, records(b"last")) == (NONE, MANY)
