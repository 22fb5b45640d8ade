"""Every served version of the data APIs, answers and errors: each must be encodable, and say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.badinput.requests import records
from tests.support.handlers import api_of
from tests.support.wire import Wire

from ottla_broker.handlers import served_apis
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Topic = Callable[..., str]


def versions(key: ApiKey, first: int | None = None) -> Any:
    low, high = api_of(key).versions
    return pytest.mark.parametrize("version", range(low if first is None else first, high + 1))


def topic_id(wire: Wire, topic: str) -> bytes:
    answer = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    return bytes(answer.topics[0].topic_id)


def produce_all(
    wire: Wire, version: int, topic: str, batches: dict[int, bytes | None], acks: int = -1
) -> dict[int, Any]:
    parts = [PartitionProduceData(index=i, records=b) for i, b in batches.items()]
    request = ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=parts)]
    )
    return {p.index: p for p in wire.call(request, version).responses[0].partition_responses}


@versions(ApiKey.PRODUCE, 3)
def test_produce(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(3, message_timestamp_type="LogAppendTime")
    bad = bytearray(records(b"v"))
    bad[17] ^= 1
    good = bytes(records(b"v"))
    answers = produce_all(wire, version, topic, {0: good, 1: bytes(bad), 2: None, 9: good})
    assert {i: p.error_code for i, p in answers.items()} == {
        0: 0,
        1: ErrorCode.CORRUPT_MESSAGE,
        2: ErrorCode.INVALID_RECORD,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert answers[0].base_offset == 0
    assert answers[0].log_append_time_ms > 0
    assert answers[0].log_start_offset == (0 if version >= 5 else -1)
    assert bool(answers[2].error_message) == (version >= 8)
    compacted = new_topic(cleanup_policy="compact")
    keyless = bytes(records(b"v", key=None))
    refused = produce_all(wire, version, compacted, {0: keyless})[0]
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert bool(refused.record_errors) == (version >= 8)
    assert produce_all(wire, version, topic, {0: good}, acks=7)[0].error_code == (
        ErrorCode.INVALID_REQUIRED_ACKS
    )


@versions(ApiKey.PRODUCE, 3)
def test_zstd_needs_produce_7(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    answer = produce_all(wire, version, topic, {0: bytes(records(b"v" * 100, codec=4))})[0]
    assert answer.error_code == (0 if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@versions(ApiKey.PRODUCE, 3)
def test_a_transactional_id(version: int, wire: Wire, new_topic: Topic) -> None:
    """Batches of a transaction need one; others may have one."""
    topic = new_topic()

    def refused(batch: bytearray, transactional_id: str | None) -> int:
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))]
        )
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=5000, topic_data=[data]
        )
        code: int = wire.call(request, version).responses[0].partition_responses[0].error_code
        return code

    assert refused(records(b"v"), "tx") == 0
    batch = records(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert refused(batch, None) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@versions(ApiKey.FETCH)
def test_fetch(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(3)
    produce_all(wire, 9, topic, {0: bytes(records(b"value"))})
    parts = [
        FetchPartition(partition=0, partition_max_bytes=1000),
        FetchPartition(partition=1, partition_max_bytes=1000, fetch_offset=5),
        FetchPartition(partition=2, partition_max_bytes=1000),
        FetchPartition(partition=9, partition_max_bytes=1000),
    ]
    if version >= 13:
        topics = [
            FetchTopic(topic_id=topic_id(wire, topic), partitions=parts),
            FetchTopic(topic_id=b"\x07" * 16, partitions=parts[:1]),
        ]
    else:
        topics = [
            FetchTopic(topic=topic, partitions=parts),
            FetchTopic(topic="none-such", partitions=parts[:1]),
        ]
    for isolation in (0, 1):
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=isolation, topics=topics
        )
        answer = wire.call(request, version)
        assert answer.error_code == 0
        known, unknown = answer.responses
        assert (known.topic_id if version >= 13 else known.topic) == (
            topics[0].topic_id if version >= 13 else topic
        )
        found = {p.partition_index: p for p in known.partitions}
        assert {i: p.error_code for i, p in found.items()} == {
            0: 0,
            1: ErrorCode.OFFSET_OUT_OF_RANGE,
            2: 0,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert b"value" in bytes(found[0].records)
        assert (found[0].high_watermark, found[0].last_stable_offset) == (1, 1 if version >= 4 else -1)
        assert found[0].log_start_offset == (0 if version >= 5 else -1)
        assert found[0].aborted_transactions == ([] if isolation or version < 4 else None)
        assert not found[2].records
        assert found[1].high_watermark == -1
        assert unknown.partitions[0].error_code == (
            ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )


@versions(ApiKey.FETCH, 7)
def test_fetch_session_errors(version: int, wire: Wire) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=100, session_id=5, session_epoch=3)
    answer = wire.call(request, version)
    assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


@versions(ApiKey.FETCH, 9)
def test_fetch_with_other_epochs(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    produce_all(wire, 9, topic, {0: bytes(records(b"value"))})
    name: dict[str, Any] = {"topic_id": topic_id(wire, topic)} if version >= 13 else {"topic": topic}

    def ask(**options: int) -> Any:
        part = FetchPartition(partition=0, partition_max_bytes=1000, **options)
        request = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=100_000,
            max_bytes=1 << 20,
            topics=[FetchTopic(partitions=[part], **name)],
        )
        return wire.call(request, version).responses[0].partitions[0]

    assert ask(current_leader_epoch=99).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    if version >= 12:
        assert ask(last_fetched_epoch=99, fetch_offset=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        diverged = ask(last_fetched_epoch=0, fetch_offset=2)
        assert diverged.error_code == 0
        assert diverged.diverging_epoch.end_offset == 1
        assert not diverged.records


@versions(ApiKey.FETCH)
def test_a_topic_that_is_kept_in_zstd(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic(compression_type="zstd")
    name: dict[str, Any] = {"topic_id": topic_id(wire, topic)} if version >= 13 else {"topic": topic}
    part = FetchPartition(partition=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=100, topics=[FetchTopic(partitions=[part], **name)]
    )
    error = wire.call(request, version).responses[0].partitions[0].error_code
    assert error == (0 if version >= 10 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@versions(ApiKey.LIST_OFFSETS)
def test_list_offsets(version: int, wire: Wire, new_topic: Topic) -> None:
    # Times of long ago, which retention would take away.
    topic = new_topic(**{"retention.ms": -1})
    for time in (1000, 3000, 2000):
        produce_all(wire, 9, topic, {0: bytes(records(b"v", timestamp=time))})

    def ask(timestamp: int, partition: int = 0, isolation: int = 0) -> Any:
        asked = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, **({"max_num_offsets": 5} if version == 0 else {})
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
            **({"isolation_level": isolation} if version >= 2 else {}),
        )
        return wire.call(request, version).topics[0].partitions[0]

    assert ask(-1, partition=7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version == 0:
        assert ask(-1).old_style_offsets == [3, 0]
        assert ask(-2).old_style_offsets == [0]
        assert ask(5).old_style_offsets == []
        assert ask(2**62).old_style_offsets == [3, 0]
        return
    for isolation in (0, 1):
        assert ask(-1, isolation=isolation).offset == 3
    assert ask(-2).offset == 0
    found = ask(2500)
    assert (found.offset, found.timestamp) == (1, 3000)
    assert ask(4000).offset == -1
    for special, since, offset in ((-3, 7, 1), (-4, 8, 0), (-5, 9, -1), (-6, 99, -1)):
        found = ask(special)
        if version >= since:
            assert (found.error_code, found.offset) == (0, offset)
        else:
            assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


@versions(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def test_offset_for_leader_epoch(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    produce_all(wire, 9, topic, {0: bytes(records(b"v"))})
    asked = [
        OffsetForLeaderPartition(partition=0, leader_epoch=0),
        OffsetForLeaderPartition(partition=4, leader_epoch=0),
    ]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=asked)])
    good, bad = wire.call(request, version).topics[0].partitions
    assert (good.error_code, good.end_offset) == (0, 1)
    assert (bad.error_code, bad.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_leader_without_records_has_an_epoch(wire: Wire, new_topic: Topic) -> None:
    """A consumer would take epoch -1 for a truncation (KIP-320)."""
    topic = new_topic()
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    epochs = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    (end,) = wire.call(epochs, 4).topics[0].partitions
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, 0, 0)
    for timestamp in (-1, -2, -4):
        listed = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        offsets = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[listed])]
        )
        found = wire.call(offsets, 8).topics[0].partitions[0]
        assert (found.error_code, found.offset, found.leader_epoch) == (0, 0, 0)
    fetched = FetchPartition(
        partition=0, fetch_offset=7, last_fetched_epoch=0, partition_max_bytes=1000, current_leader_epoch=0
    )
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=1,
        session_epoch=0,
        topics=[FetchTopic(topic=topic, partitions=[fetched])],
    )
    session = wire.call(fetch, 12)
    answer = session.responses[0].partitions[0]
    assert answer.error_code == 0
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 0)
    assert answer.aborted_transactions is None
    # The session goes on in a version that can't say where logs diverge.
    older = FetchRequest(max_wait_ms=0, session_id=session.session_id, session_epoch=1)
    (again,) = wire.call(older, 11).responses[0].partitions
    assert again.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@versions(ApiKey.DELETE_RECORDS)
def test_delete_records(version: int, wire: Wire, new_topic: Topic) -> None:
    topic, compacted = new_topic(), new_topic(cleanup_policy="compact")
    for _ in range(3):
        produce_all(wire, 9, topic, {0: bytes(records(b"v"))})

    def ask(offset: int, partition: int = 0, name: str = topic) -> tuple[int, int]:
        asked = DeleteRecordsTopic(
            name=name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
        )
        answer = wire.call(DeleteRecordsRequest(timeout_ms=1000, topics=[asked]), version)
        return answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].low_watermark

    assert ask(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1), "beyond the high watermark"
    assert ask(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert ask(1) == (0, 1)
    assert ask(0) == (0, 1), "what is gone stays gone"
    assert ask(-1) == (0, 3)
    assert ask(0, partition=3) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert ask(0, name=compacted) == (ErrorCode.POLICY_VIOLATION, -1)


@versions(ApiKey.INIT_PRODUCER_ID)
def test_init_producer_id(version: int, wire: Wire) -> None:
    answers = [
        wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), version)
        for _ in range(2)
    ]
    assert [a.error_code for a in answers] == [0, 0]
    assert answers[0].producer_id != answers[1].producer_id
    assert answers[0].producer_epoch == 0

    def refused(**options: Any) -> int:
        answer = wire.call(InitProducerIdRequest(transaction_timeout_ms=1000, **options), version)
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        return int(answer.error_code)

    assert refused(transactional_id="") == ErrorCode.INVALID_REQUEST
    if version >= 3:
        assert refused(transactional_id=None, producer_id=5) == ErrorCode.INVALID_REQUEST


@versions(ApiKey.DESCRIBE_PRODUCERS)
def test_describe_producers(version: int, wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    batch = records(b"v", b"w", producer_id=77, producer_epoch=3, base_sequence=0, timestamp=5000)
    produce_all(wire, 9, topic, {0: bytes(batch)})
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 8])])
    good, bad = wire.call(request, version).topics[0].partitions
    (producer,) = good.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 1)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (5000, -1)
    assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@versions(ApiKey.API_VERSIONS)
def test_api_versions(version: int, wire: Wire) -> None:
    software = {"client_software_name": "test", "client_software_version": "1.0"} if version >= 3 else {}
    answer = wire.call(ApiVersionsRequest(**software), version)
    assert {(a.api_key, a.min_version, a.max_version) for a in answer.api_keys} == {
        (key, served.min_version, served.max_version) for key, served in served_apis(in_cluster=False).items()
    }
    if version >= 3:
        assert wire.call(ApiVersionsRequest(), version).error_code == ErrorCode.INVALID_REQUEST


def test_moving_replicas_is_advertised_alone_and_in_a_cluster() -> None:
    for in_cluster in (False, True):
        assert ApiKey.ALTER_REPLICA_LOG_DIRS in served_apis(in_cluster=in_cluster)


def test_a_refused_batch_is_answered_with_the_logs_start(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    produce_all(wire, 9, topic, {0: bytes(records(b"a", b"b"))})
    asked = DeleteRecordsPartition(partition_index=0, offset=1)
    wire.call(
        DeleteRecordsRequest(timeout_ms=1000, topics=[DeleteRecordsTopic(name=topic, partitions=[asked])]),
        2,
    )
    gap = bytearray(records(b"v", producer_id=7, producer_epoch=0, base_sequence=0))
    assert produce_all(wire, 9, topic, {0: bytes(gap)})[0].log_start_offset == 1
    gap = bytearray(records(b"v", producer_id=7, producer_epoch=0, base_sequence=9))
    refused = produce_all(wire, 9, topic, {0: bytes(gap)})[0]
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (refused.base_offset, refused.log_append_time_ms, refused.log_start_offset) == (-1, -1, 1)
    corrupt = bytearray(records(b"v"))
    corrupt[-1] ^= 1
    refused = produce_all(wire, 9, topic, {0: bytes(corrupt)})[0]
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def test_a_repeated_batch_is_answered_with_its_timestamp(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    batch = bytes(records(b"v", producer_id=8, producer_epoch=0, base_sequence=0, timestamp=4321))
    assert produce_all(wire, 9, topic, {0: batch})[0].log_append_time_ms == -1
    again = produce_all(wire, 9, topic, {0: batch})[0]
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 0, 4321)


def test_aborted_transactions_of_a_partition_with_an_error(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()

    def fetch(name: str, offset: int) -> tuple[int, list[Any] | None]:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=name, partitions=[asked])]
        )
        answer = wire.call(request, 12).responses[0].partitions[0]
        return answer.error_code, answer.aborted_transactions

    assert fetch(topic, 9) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    assert fetch(f"{topic}-absent", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_describe_producers_of_an_illegal_name(wire: Wire) -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name="a b", partition_indexes=[0])])
    (answer,) = wire.call(request, 0).topics[0].partitions
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_telemetry_is_advertised_where_it_is_shown() -> None:
    for in_cluster in (False, True):
        assert ApiKey.PUSH_TELEMETRY not in served_apis(in_cluster=in_cluster)
        assert ApiKey.PUSH_TELEMETRY in served_apis(in_cluster=in_cluster, client_telemetry=True)
