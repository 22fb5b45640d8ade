"""Fetches that wait, sizes, sessions, and topics that go and come back."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.badinput.requests import produce, records
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest
from ottla_protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

Topic = Callable[..., str]
FOREVER = 60_000
"""A wait that no test sits out: where an answer comes, something has ended the wait."""


def ask(topics: dict[str | bytes, dict[int, int]], part_bytes: int = 1 << 20, **options: Any) -> FetchRequest:
    """Topics by name or id, each with the offsets of its partitions."""
    asked = []
    for topic, offsets in topics.items():
        parts = [
            FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=part_bytes)
            for p, o in offsets.items()
        ]
        name: dict[str, Any] = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
        asked.append(FetchTopic(partitions=parts, **name))
    return FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": asked, **options}
    )


def send(wire: Wire, request: FetchRequest, version: int = 12) -> None:
    wire.send(request_bytes(request, version))


def answered(wire: Wire, version: int = 12) -> FetchResponse:
    data = wire.receive()
    _, position = parse_response_header(data, 1, version)
    return FetchResponse.decode(data, version, position)


def nothing_comes(wire: Wire, seconds: float = 0.15) -> bool:
    wire.socket.settimeout(seconds)
    try:
        wire.socket.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        wire.socket.settimeout(60)
    return False


def parts(response: FetchResponse) -> dict[tuple[str | bytes, int], Any]:
    return {(t.topic or t.topic_id, p.partition_index): p for t in response.responses for p in t.partitions}


def topic_id(wire: Wire, topic: str) -> bytes:
    return bytes(wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics[0].topic_id)


# ---- waiting


def test_several_appends_add_up_to_min_bytes(broker: BrokerProcess, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(2)
    size = len(records(b"v" * 100))
    send(wire, ask({topic: {0: 0, 1: 0}}, max_wait_ms=FOREVER, min_bytes=3 * size))
    with Wire(broker.port) as producer:
        produce(producer, topic, records(b"v" * 100))
        produce(producer, topic, records(b"v" * 100), partition=1)
        assert nothing_comes(wire)
        produce(producer, topic, records(b"v" * 100))
    found = parts(answered(wire))
    assert [len(found[topic, i].records) for i in (0, 1)] == [2 * size, size]


def test_the_time_runs_out(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    produce(wire, topic, records(b"v"))
    answer = wire.call(ask({topic: {0: 0}}, max_wait_ms=50, min_bytes=10_000), 12)
    assert parts(answer)[topic, 0].records


def test_thousands_wait_and_all_are_woken(broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic()
    wires = [Wire(broker.port) for _ in range(20)]
    try:
        for wire in wires:
            wire.send(request_bytes(ask({topic: {0: 0}}, max_wait_ms=FOREVER), 12) * 100)
        with Wire(broker.port) as producer:
            produce(producer, topic, records(b"v"))
        for wire in wires:
            for _ in range(100):
                assert parts(answered(wire))[topic, 0].records
    finally:
        for wire in wires:
            wire.close()


def test_who_leaves_while_waiting_leaves_nothing_behind(
    broker: BrokerProcess, wire: Wire, new_topic: Topic
) -> None:
    topic = new_topic()
    for _ in range(20):
        with Wire(broker.port) as gone:
            send(gone, ask({topic: {0: 0}}, max_wait_ms=FOREVER))
    assert produce(wire, topic, records(b"v")) == (0, 0)
    assert parts(wire.call(ask({topic: {0: 0}}), 12))[topic, 0].records


def test_an_unknown_topic_does_not_keep_the_others_from_waiting(
    broker: BrokerProcess, wire: Wire, new_topic: Topic
) -> None:
    topic = new_topic()
    send(wire, ask({topic: {0: 0}, "no-such-topic": {0: 0}}, max_wait_ms=FOREVER))
    assert nothing_comes(wire)
    with Wire(broker.port) as producer:
        produce(producer, topic, records(b"v"))
    found = parts(answered(wire))
    assert found[topic, 0].records
    assert found["no-such-topic", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    alone = wire.call(ask({"no-such-topic": {0: 0}}, max_wait_ms=FOREVER), 12)
    assert parts(alone)["no-such-topic", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_data_in_the_next_segment_is_reason_enough_to_answer(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(segment_bytes=3000)
    for _ in range(3):
        produce(wire, topic, records(b"v" * 2000))
    answer = wire.call(ask({topic: {0: 0}}, max_wait_ms=FOREVER, min_bytes=5000), 12)
    assert 2000 < len(parts(answer)[topic, 0].records) < 3000


def test_a_topic_deleted_under_a_waiting_fetch(broker: BrokerProcess, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    send(wire, ask({topic: {0: 0}}, max_wait_ms=FOREVER))
    assert nothing_comes(wire, 0.05)
    delete(broker, topic)
    assert parts(answered(wire))[topic, 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- sizes


def test_one_batch_comes_however_small_the_limits(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(2)
    for partition in (0, 0, 1):
        produce(wire, topic, records(b"v" * 500), partition=partition)
    size = len(records(b"v" * 500))
    for options in ({"max_bytes": 0}, {"max_bytes": 1}, {"part_bytes": 0}, {"part_bytes": size - 1}):
        found = parts(wire.call(ask({topic: {0: 0, 1: 0}}, **options), 12))  # type: ignore[arg-type]
        assert len(found[topic, 0].records) == size, options
        assert not found[topic, 1].records, options


def test_the_whole_answer_keeps_to_max_bytes(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(3)
    for partition in range(3):
        produce(wire, topic, records(b"v" * 500), partition=partition)
    size = len(records(b"v" * 500))
    found = parts(wire.call(ask({topic: {0: 0, 1: 0, 2: 0}}, max_bytes=2 * size + 10), 12))
    assert [len(found[topic, i].records) for i in (0, 1)] == [size, size]
    assert len(found[topic, 2].records) <= 10


# ---- sessions


def test_a_session_tells_what_is_new_and_no_more(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(3)
    full = wire.call(ask({topic: {0: 0, 1: 0}}, session_epoch=0), 12)
    session = full.session_id
    assert session > 0
    assert set(parts(full)) == {(topic, 0), (topic, 1)}

    def step(epoch: int, topics: dict[str | bytes, dict[int, int]], **options: Any) -> dict[Any, Any]:
        answer = wire.call(ask(topics, session_id=session, session_epoch=epoch, **options), 12)
        assert (answer.error_code, answer.session_id) == (0, session)
        return parts(answer)

    assert step(1, {}) == {}
    produce(wire, topic, records(b"a"), partition=1)
    assert set(step(2, {})) == {(topic, 1)}
    assert set(step(3, {})) == {(topic, 1)}, "still at offset 0, so there are records"
    assert step(4, {topic: {1: 1}}) == {}
    assert set(step(5, {topic: {2: 0}})) == {(topic, 2)}, "a new partition is news"
    out_of_range = step(6, {topic: {0: 7}})
    assert out_of_range[topic, 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert set(step(7, {})) == {(topic, 0)}, "an error is reported every time"
    assert step(8, {topic: {0: 0}})[topic, 0].error_code == 0, "that it is gone is news"
    assert step(9, {}) == {}
    forgotten = [ForgottenTopic(topic=topic, partitions=[1])]
    produce(wire, topic, records(b"b"), partition=1)
    assert step(10, {}, forgotten_topics_data=forgotten) == {}
    closing = [ForgottenTopic(topic=topic, partitions=[0, 2])]
    answer = wire.call(ask({}, session_id=session, session_epoch=11, forgotten_topics_data=closing), 12)
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    answer = wire.call(ask({}, session_id=session, session_epoch=12), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_busy_partition_goes_to_the_end_of_the_row(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(2)
    for _ in range(2):
        for partition in range(2):
            produce(wire, topic, records(b"v" * 500), partition=partition)
    full = wire.call(ask({topic: {0: 0, 1: 0}}, session_epoch=0, max_bytes=1), 12)
    got = [i for (_, i), p in parts(full).items() if p.records]
    for epoch in range(1, 5):
        answer = wire.call(ask({}, session_id=full.session_id, session_epoch=epoch, max_bytes=1), 12)
        got += [i for (_, i), p in parts(answer).items() if p.records]
    assert got == [0, 0, 1, 0, 1]


def test_a_request_that_the_session_has_overtaken(
    broker: BrokerProcess, wire: Wire, new_topic: Topic
) -> None:
    topic = new_topic()
    session = wire.call(ask({topic: {0: 0}}, session_epoch=0), 12).session_id
    send(wire, ask({}, session_id=session, session_epoch=1, max_wait_ms=FOREVER))
    assert nothing_comes(wire, 0.05)
    with Wire(broker.port) as other:
        assert other.call(ask({}, session_id=session, session_epoch=2), 12).error_code == 0
        produce(other, topic, records(b"v"))
    assert answered(wire).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_by_name_is_not_one_by_id(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    by_name = wire.call(ask({topic: {0: 0}}, session_epoch=0), 12).session_id
    by_id = wire.call(ask({topic_id(wire, topic): {0: 0}}, session_epoch=0), 13).session_id
    wrong = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert wire.call(ask({}, session_id=by_name, session_epoch=1), 13).error_code == wrong
    assert wire.call(ask({}, session_id=by_id, session_epoch=1), 12).error_code == wrong
    assert wire.call(ask({}, session_id=by_id, session_epoch=1), 13).error_code == 0


# ---- topics that go and come back


def delete(broker: BrokerProcess, topic: str) -> None:
    with Wire(broker.port) as wire:
        answer = wire.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5)
        assert answer.responses[0].error_code == 0


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_made_anew_under_a_session(
    version: int, broker: BrokerProcess, wire: Wire, new_topic: Topic
) -> None:
    topic = new_topic()
    produce(wire, topic, records(b"old"))
    name: str | bytes = topic if version < 13 else topic_id(wire, topic)
    session = wire.call(ask({name: {0: 1}}, session_epoch=0), version).session_id
    delete(broker, topic)

    def step(epoch: int) -> int:
        answer = wire.call(ask({}, session_id=session, session_epoch=epoch), version)
        assert answer.error_code == 0
        return int(parts(answer)[name, 0].error_code)

    assert step(1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(broker, topic)
    assert step(2) == (ErrorCode.OFFSET_OUT_OF_RANGE if version < 13 else ErrorCode.INCONSISTENT_TOPIC_ID)
    if version >= 13:
        stale = wire.call(ask({name: {0: 0}}), version)
        assert parts(stale)[name, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        fresh = topic_id(wire, topic)
        assert fresh != name
        assert parts(wire.call(ask({fresh: {0: 0}}), version))[fresh, 0].error_code == 0


# ---- a fetch at a broker that stops


def test_a_waiting_fetch_is_answered_when_the_broker_stops(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    create_topic(broker, "t")
    with Wire(broker.port) as wire:
        send(wire, ask({"t": {0: 0}}, max_wait_ms=FOREVER))
        wait_for(lambda: nothing_comes(wire, 0.05), "the fetch to wait")
        assert broker.stop() == 0
        assert parts(answered(wire))["t", 0].error_code == 0
