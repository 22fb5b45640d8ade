"""Requests about leaders, replicas, access and quotas, which a single broker can only refuse or answer empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla_protocol.messages.describe_acls import DescribeAclsRequest
from ottla_protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla_protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from ottla_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla_protocol.messages.metadata import MetadataRequest

Topic = Callable[..., str]
Code = ErrorCode


def test_elections(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()

    def elect(kind: int, *partitions: tuple[str, int]) -> dict[tuple[str, int], ErrorCode]:
        asked = [TopicPartitions(topic=name, partitions=[index]) for name, index in partitions]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=asked or None, timeout_ms=5000)
        answer = wire.call(request, 2)
        assert answer.error_code == 0
        return {
            (each.topic, result.partition_id): Code(result.error_code)
            for each in answer.replica_election_results
            for result in each.partition_result
        }

    for kind in (0, 1):
        assert elect(kind, (topic, 0), (topic, 1), ("absent", 0)) == {
            (topic, 0): Code.ELECTION_NOT_NEEDED,
            (topic, 1): Code.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert elect(kind) == {}


def test_reassignments(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    (broker,) = (each.node_id for each in wire.call(MetadataRequest(topics=[]), 9).brokers)

    def move(replicas: list[int] | None, partition: int = 0) -> ErrorCode:
        moved = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[moved])], timeout_ms=5000
        )
        answer = wire.call(request, 0)
        assert answer.error_code == 0
        return Code(answer.responses[0].partitions[0].error_code)

    assert move([broker]) == Code.NONE
    assert move([broker], partition=7) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert move(None) == Code.NO_REASSIGNMENT_IN_PROGRESS
    for replicas in ([], [broker, broker], [-2], [broker + 1]):
        assert move(replicas) == Code.INVALID_REPLICA_ASSIGNMENT
    answer = wire.call(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (answer.error_code, answer.topics) == (0, [])


def test_log_dirs(wire: Wire, new_topic: Topic) -> None:
    topic = new_topic()
    folder = wire.call(DescribeLogDirsRequest(topics=None), 4).results[0].log_dir

    def move(path: str, name: str) -> ErrorCode:
        moved = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=[0])])
        answer = wire.call(AlterReplicaLogDirsRequest(dirs=[moved]), 2)
        return Code(answer.results[0].partitions[0].error_code)

    assert move(folder, topic) == Code.NONE
    assert move("/nowhere", topic) == Code.LOG_DIR_NOT_FOUND
    assert move(folder, "absent") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert move(folder, "l" * 220) == Code.INVALID_TOPIC_EXCEPTION


def test_acls(wire: Wire) -> None:
    described = wire.call(DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), 3)
    assert described.error_code == Code.SECURITY_DISABLED
    assert described.error_message == "No Authorizer is configured on the broker"
    creation = AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    matching = DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)
    created: list[Any] = wire.call(CreateAclsRequest(creations=[creation] * 2), 3).results
    deleted: list[Any] = wire.call(DeleteAclsRequest(filters=[matching] * 2), 3).filter_results
    for results in (created, deleted):
        assert [(each.error_code, each.error_message) for each in results] == [
            (Code.SECURITY_DISABLED, "No Authorizer is configured.")
        ] * 2


def test_client_quotas(wire: Wire) -> None:
    def describe(*kinds: str) -> tuple[ErrorCode, list[Any] | None]:
        components = [ComponentData(entity_type=kind, match_type=2, match=None) for kind in kinds]
        answer = wire.call(DescribeClientQuotasRequest(components=components), 1)
        return Code(answer.error_code), answer.entries

    for kinds in ((), ("user", "client-id"), ("ip",)):
        assert describe(*kinds) == (Code.NONE, [])
    for kinds in (("user", "user"), ("",), ("ip", "user")):
        assert describe(*kinds) == (Code.INVALID_REQUEST, None)
    assert describe("team") == (Code.UNSUPPORTED_VERSION, None)


def test_scram_credentials(wire: Wire) -> None:
    def describe(*names: str) -> dict[str, ErrorCode]:
        users = [UserName(name=name) for name in names]
        answer = wire.call(DescribeUserScramCredentialsRequest(users=users or None), 0)
        assert answer.error_code == 0
        return {each.user: Code(each.error_code) for each in answer.results}

    assert describe() == {}
    assert describe("a", "b", "b") == {"a": Code.RESOURCE_NOT_FOUND, "b": Code.DUPLICATE_RESOURCE}
