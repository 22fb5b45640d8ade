"""Fetches and offset look-ups that can't be served as asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.badinput.requests import fetch, fetch_request, produce, records
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

Topic = Callable[..., str]


def test_offsets_out_of_range(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    for _ in range(3):
        produce(wire, topic, records(b"v"))
    out = ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(wire, topic, 3) == (0, b"")
    for offset in (4, 2**62, -1, -2, -(2**62)):
        assert fetch(wire, topic, offset)[0] == out, offset
    request = DeleteRecordsRequest(
        timeout_ms=5000,
        topics=[
            DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
        ],
    )
    assert wire.call(request, 2).topics[0].partitions[0].error_code == 0
    assert fetch(wire, topic, 1)[0] == out
    assert fetch(wire, topic, 2)[0] == 0


def test_an_error_is_told_without_waiting(wire: Wire, new_topic: Topic) -> None:
    assert fetch(wire, new_topic(), 5, max_wait_ms=60_000)[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_unknown_topics_and_partitions(wire: Wire, new_topic: Topic) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = new_topic()
    assert fetch(wire, "no-such-topic-to-fetch", 0)[0] == unknown
    assert fetch(wire, topic, 0, partition=1)[0] == unknown
    assert fetch(wire, topic, 0, partition=-1)[0] == unknown
    by_id = FetchTopic(
        topic_id=b"\x11" * 16, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)]
    )
    answer = wire.call(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=[by_id]), 13)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    found = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 8).topics[0].partitions[0]
    epoch = found.leader_epoch
    wait_for(lambda: fetch(wire, topic, 0, leader_epoch=epoch)[0] == 0, "the leader to know its epoch")
    assert fetch(wire, topic, 0, leader_epoch=epoch + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    if epoch > 0:
        assert fetch(wire, topic, 0, leader_epoch=epoch - 1)[0] == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    "sizes",
    [
        {"max_bytes": 0},
        {"max_bytes": -1},
        {"min_bytes": -1},
        {"min_bytes": 2**31 - 1, "max_wait_ms": 50},
        {"max_wait_ms": -1},
        {"isolation_level": 5},
    ],
    ids=str,
)
def test_odd_sizes_are_answered(sizes: dict[str, int], wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    produce(wire, topic, records(b"v"))
    error, _ = fetch(wire, topic, 0, **sizes)
    assert error in (0, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR)


# ---- sessions (KIP-227)


def open_session(wire: Wire, topic: str) -> int:
    answer = wire.call(fetch_request(topic, 0, session_id=0, session_epoch=0), 12)
    assert answer.error_code == 0
    assert answer.session_id != 0
    return int(answer.session_id)


def incremental(session: int, epoch: int, **options: Any) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=session, session_epoch=epoch, **options
    )


def test_fetch_session_errors(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    produce(wire, topic, records(b"v"))
    session = open_session(wire, topic)
    assert wire.call(incremental(session, 1), 12).error_code == 0
    assert wire.call(incremental(session, 1), 12).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert wire.call(incremental(session, 7), 12).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = session + 1 if session < 2**31 - 1 else 1
    assert wire.call(incremental(unknown, 1), 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert wire.call(incremental(0, 5), 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert wire.call(incremental(session, 2), 12).error_code == 0, "errors leave the session as it was"
    assert wire.call(incremental(session, -1), 12).error_code == 0
    assert wire.call(incremental(session, 3), 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_both_fetched_and_forgotten_is_forgotten(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(2)

    def ask(session: int, epoch: int, fetched: list[int], forgotten: list[int]) -> Any:
        partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in fetched]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=session,
            session_epoch=epoch,
            topics=[FetchTopic(topic=topic, partitions=partitions)] if fetched else [],
            forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=forgotten)] if forgotten else [],
        )
        return wire.call(request, 12)

    session = ask(0, 0, [0, 1], []).session_id
    assert session > 0
    second = ask(session, 1, [0], [0])
    assert (second.error_code, second.session_id) == (0, session)
    # The last one: the session is closed, and the request answered without one.
    third = ask(session, 2, [1], [1])
    assert (third.error_code, third.session_id) == (0, 0)
    assert [p.partition_index for t in third.responses for p in t.partitions] == [1]
    assert ask(session, 3, [], []).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_of_no_topics_opens_a_session(wire: Wire) -> None:
    answer = wire.call(FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0), 12)
    assert answer.error_code == 0
    assert answer.session_id > 0


def test_a_session_is_told_of_a_bad_partition_and_forgets_it(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    session = open_session(wire, topic)
    bad = FetchTopic(topic=topic, partitions=[FetchPartition(partition=44, partition_max_bytes=1000)])
    answer = wire.call(incremental(session, 1, topics=[bad]), 12)
    (error,) = [p for t in answer.responses for p in t.partitions if p.error_code]
    assert (error.partition_index, error.error_code) == (44, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    gone = [ForgottenTopic(topic=topic, partitions=[44, 45])]
    answer = wire.call(incremental(session, 2, forgotten_topics_data=gone), 12)
    assert not [p for t in answer.responses for p in t.partitions if p.error_code]


# ---- ListOffsets


def look_up(wire: Wire, topic: str, version: int = 5, **options: int) -> Any:
    asked = ListOffsetsPartition(**{"partition_index": 0, "timestamp": -1, **options})
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    return wire.call(request, version).topics[0].partitions[0]


def test_list_offsets_of_what_is_not_there(wire: Wire, new_topic: Topic) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = new_topic()
    assert look_up(wire, "no-such-topic-to-look-up").error_code == unknown
    assert look_up(wire, topic, partition_index=3).error_code == unknown
    assert look_up(wire, topic, current_leader_epoch=99).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    later = look_up(wire, topic, timestamp=2**62)
    assert (later.error_code, later.offset) == (0, -1)


def test_list_offsets_with_an_unknown_special_time(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    produce(wire, topic, records(b"v"))
    for timestamp in (-6, -99):
        answer = look_up(wire, topic, timestamp=timestamp)
        assert answer.error_code != 0 or answer.offset in (-1, 0)


def test_records_beside_an_error_are_empty_not_null(wire: Wire, new_topic: Topic) -> None:
    answer = wire.call(fetch_request(new_topic(), 99), 12).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert answer.high_watermark == -1
    assert answer.records is not None
    assert not answer.records
