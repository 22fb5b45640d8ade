"""Admin requests that ask for too much, for nothing, or for the same thing twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

Topic = Callable[..., str]
Name = Callable[..., str]
TOPIC, BROKER = 2, 4


def create(wire: Wire, *topics: CreatableTopic) -> list[int]:
    """The error codes, in the order of the names."""
    answer = wire.call(CreateTopicsRequest(topics=list(topics), timeout_ms=10_000), 5)
    codes = {topic.name: topic.error_code for topic in answer.topics}
    return [codes[name] for name in dict.fromkeys(topic.name for topic in topics)]


def plain(name: str, partitions: int = 1, **options: Any) -> CreatableTopic:
    return CreatableTopic(**{"name": name, "num_partitions": partitions, "replication_factor": 1, **options})


@pytest.mark.parametrize("partitions", [10_001, 1_000_000, 2**31 - 1])
def test_absurd_numbers_of_partitions(
    partitions: int, wire: Wire, new_name: Name, new_topic: Topic, is_kafka: bool
) -> None:
    assert create(wire, plain(new_name("huge"), partitions)) == [ErrorCode.POLICY_VIOLATION]
    if is_kafka:
        return  # its controller takes harm from the rest
    topic = new_topic()
    more = CreatePartitionsTopic(name=topic, count=min(partitions + 1, 2**31 - 1), assignments=None)
    answer = wire.call(CreatePartitionsRequest(topics=[more], timeout_ms=5000), 3)
    assert answer.results[0].error_code == ErrorCode.POLICY_VIOLATION
    found = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 8).topics[0]
    assert len(found.partitions) == 1


def test_absurd_numbers_of_topics(wire: Wire, new_name: Name, is_kafka: bool) -> None:
    if is_kafka:
        pytest.skip("Kafka refuses the whole request")
    topics = [plain(new_name("many"), 9000) for _ in range(5)]
    answer = wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=True), 5)
    assert sorted(topic.error_code for topic in answer.topics) == [0, *[ErrorCode.POLICY_VIOLATION] * 4]


@pytest.mark.parametrize("partitions", [0, -2, -(2**31)])
def test_too_few_partitions(partitions: int, wire: Wire, new_name: Name) -> None:
    assert create(wire, plain(new_name("few"), partitions)) == [ErrorCode.INVALID_PARTITIONS]


@pytest.mark.parametrize("replicas", [0, -2, 2, 32767])
def test_impossible_replication(replicas: int, wire: Wire, new_name: Name) -> None:
    topic = plain(new_name("replicas"), replication_factor=replicas)
    assert create(wire, topic) == [ErrorCode.INVALID_REPLICATION_FACTOR]


@pytest.mark.parametrize(
    "assignments",
    [{0: []}, {0: [99]}, {1: [1]}, {0: [1, 1]}, {-1: [1]}, {0: [-1]}],
    ids=str,
)
def test_impossible_assignments(assignments: dict[int, list[int]], wire: Wire, new_name: Name) -> None:
    given = [CreatableReplicaAssignment(partition_index=p, broker_ids=b) for p, b in assignments.items()]
    topic = plain(new_name("assigned"), -1, replication_factor=-1, assignments=given)
    assert create(wire, topic) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_partitions_and_assignments_at_once(wire: Wire, new_name: Name) -> None:
    given = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    assert create(wire, plain(new_name("both"), 1, assignments=given)) == [ErrorCode.INVALID_REQUEST]


def test_one_name_twice(wire: Wire, new_name: Name) -> None:
    name = new_name("twice")
    assert create(wire, plain(name), plain(name, 2)) == [ErrorCode.INVALID_REQUEST]
    assert create(wire, plain(name)) == [0]


def test_good_topics_are_made_beside_bad_ones(wire: Wire, new_name: Name) -> None:
    good, bad = new_name("good"), new_name("bad")
    config = [CreatableTopicConfig(name="retention.ms", value="x")]
    assert create(wire, plain(good), plain(bad, configs=config)) == [0, ErrorCode.INVALID_CONFIG]


def test_nothing_asked_is_nothing_answered(wire: Wire) -> None:
    assert wire.call(CreateTopicsRequest(topics=[], timeout_ms=1000), 5).topics == []
    assert wire.call(DeleteTopicsRequest(topic_names=[], timeout_ms=1000), 5).responses == []
    assert wire.call(DescribeConfigsRequest(resources=[]), 4).results == []
    assert wire.call(DeleteRecordsRequest(topics=[], timeout_ms=1000), 2).topics == []


def test_deleting_what_is_not_there(wire: Wire) -> None:
    request = DeleteTopicsRequest(topic_names=["no-such-topic-to-delete"], timeout_ms=1000)
    assert wire.call(request, 5).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.call(request, 3).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_records_past_the_end(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    for name, partition, offset, error in [
        (topic, 0, 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (topic, 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (topic, 5, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no-such-topic", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]:
        asked = DeleteRecordsTopic(
            name=name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
        )
        answer = wire.call(DeleteRecordsRequest(topics=[asked], timeout_ms=1000), 2)
        assert answer.topics[0].partitions[0].error_code == error


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "99", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_configs_of_what_is_not_there(kind: int, name: str, error: ErrorCode, wire: Wire) -> None:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = wire.call(DescribeConfigsRequest(resources=[asked]), 4).results
    assert result.error_code == error


@pytest.mark.parametrize(
    ("config", "value", "operation"),
    [
        ("retention.ms", "never", 0),
        ("no.such.config", "1", 0),
        ("cleanup.policy", "shred", 0),
        ("retention.ms", "1", 2),  # APPEND to what is no list
        ("retention.ms", None, 0),
        ("segment.bytes", str(2**40), 0),
        ("min.cleanable.dirty.ratio", "1.5", 0),
    ],
)
def test_configs_that_are_refused(
    config: str, value: str | None, operation: int, wire: Wire, new_topic: Topic
) -> None:
    topic = new_topic()
    change = AlterableConfig(name=config, value=value, config_operation=operation)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[change])
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert answer.error_message
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    (result,) = wire.call(DescribeConfigsRequest(resources=[asked]), 4).results
    found = {one.name: one.value for one in result.configs}
    assert found["retention.ms"] == "604800000"
