"""Requests about leaders, replicas, access and quotas on a broker that stands alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controller.test_create import create
from tests.support.world import World

from ottla_broker.handlers import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
    elect_leaders,
    list_client_metrics_resources,
    list_partition_reassignments,
)
from ottla_broker.metadata.cache import PartitionInfo
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
from ottla_protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from ottla_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla_protocol.messages.list_client_metrics_resources import ListClientMetricsResourcesRequest
from ottla_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

ME = 1001


async def elect(world: World, version: int, kind: int, *partitions: tuple[str, int]) -> Any:
    asked = [TopicPartitions(topic=name, partitions=[index]) for name, index in partitions]
    request = ElectLeadersRequest(
        election_type=kind if version else 0, topic_partitions=asked or None, timeout_ms=1000
    )
    answer = await world.call(elect_leaders, request, version)
    if version:
        assert answer.error_code == ErrorCode.NONE
    return {
        (topic.topic, result.partition_id): ErrorCode(result.error_code)
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }


@pytest.mark.parametrize(("version", "kind"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)])
async def test_no_election_is_needed(world: World, version: int, kind: int) -> None:
    await create(world, "t", 2)
    assert await elect(world, version, kind, ("t", 0), ("t", 1), ("t", 2), ("absent", 0)) == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await elect(world, version, kind) == {}, "all partitions: those that need none are left out"


async def test_a_partition_without_its_log_elects_no_leader(world: World) -> None:
    await create(world, "t", 1)
    topic = world.metadata.topic("t")
    assert topic is not None
    topic.partitions[0] = PartitionInfo(0, -1, 0, [ME], [ME], [ME])
    assert await elect(world, 2, 0) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert await elect(world, 2, 1) == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


async def test_an_unknown_kind_of_election_is_refused(world: World) -> None:
    request = ElectLeadersRequest(
        election_type=7, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
    )
    answer = await world.call(elect_leaders, request, 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("replicas", "error", "message"),
    [
        ([ME], ErrorCode.NONE, None),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
        (
            [],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Empty replica list specified in partition reassignment.",
        ),
        (
            [ME, ME],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Duplicate replica ids in partition reassignment replica list: 1001,1001",
        ),
        ([-2], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid broker id in replica list: -2"),
        (
            [7],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Replica assignment has brokers that are not alive. Replica list: 7, live broker list: 1001",
        ),
    ],
)
async def test_a_partition_moves_nowhere_else(
    world: World, replicas: list[int] | None, error: ErrorCode, message: str | None
) -> None:
    await create(world, "t", 1)
    partitions = [ReassignablePartition(partition_index=index, replicas=replicas) for index in (0, 1)]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=partitions)], timeout_ms=1000
    )
    answer = await world.call(alter_partition_reassignments, request, 0)
    assert answer.error_code == ErrorCode.NONE
    known, unknown = answer.responses[0].partitions
    assert (known.error_code, known.error_message) == (error, message)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for topics in (None, [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])]):
        listed = await world.call(
            list_partition_reassignments, ListPartitionReassignmentsRequest(topics=topics), 0
        )
        assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("version", range(3))
async def test_replicas_stay_in_their_folder(world: World, version: int) -> None:
    long = "l" * 220
    await create(world, "t", 1)
    await create(world, long, 1)
    here = str(world.folder)
    wanted = [(here, "t", 0), ("/nowhere", "t", 1), (here, "absent", 0), (here, long, 0)]
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=[index])])
            for path, name, index in wanted
        ]
    )
    answer = await world.call(alter_replica_log_dirs, request, version)
    assert {
        (topic.topic_name, each.partition_index): ErrorCode(each.error_code)
        for topic in answer.results
        for each in topic.partitions
    } == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.LOG_DIR_NOT_FOUND,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (long, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize("version", range(4))
async def test_there_are_no_acls(world: World, version: int) -> None:
    described = await world.call(describe_acls, DescribeAclsRequest(), version)
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert described.error_message == "No Authorizer is configured on the broker"
    creations = [AclCreation(resource_name="t", principal="User:a", host="*")] * 2
    created = await world.call(create_acls, CreateAclsRequest(creations=creations), version)
    expected = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    assert [(each.error_code, each.error_message) for each in created.results] == [expected] * 2
    deleted = await world.call(delete_acls, DeleteAclsRequest(filters=[DeleteAclsFilter()] * 2), version)
    assert [(each.error_code, each.error_message) for each in deleted.filter_results] == [expected] * 2


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("kinds", "error", "message"),
    [
        ([], ErrorCode.NONE, ""),
        (["user", "client-id"], ErrorCode.NONE, ""),
        (["ip"], ErrorCode.NONE, ""),
        (["user", "user"], ErrorCode.INVALID_REQUEST, "Duplicate user filter component entity type"),
        (
            ["client-id", "client-id"],
            ErrorCode.INVALID_REQUEST,
            "Duplicate client filter component entity type",
        ),
        ([""], ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type"),
        (["team"], ErrorCode.UNSUPPORTED_VERSION, "Custom entity type 'team' not supported"),
        (
            ["ip", "user"],
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with user or"
            " clientId filter component.",
        ),
    ],
)
async def test_there_are_no_client_quotas(
    world: World, version: int, kinds: list[str], error: ErrorCode, message: str | None
) -> None:
    components = [ComponentData(entity_type=kind, match_type=2, match=None) for kind in kinds]
    answer = await world.call(
        describe_client_quotas, DescribeClientQuotasRequest(components=components), version
    )
    assert (answer.error_code, answer.error_message) == (error, message)
    assert answer.entries == ([] if error is ErrorCode.NONE else None)


async def test_an_exact_quota_filter_needs_a_name(world: World) -> None:
    component = ComponentData(entity_type="user", match_type=0, match=None)
    request = DescribeClientQuotasRequest(components=[component])
    answer = await world.call(describe_client_quotas, request, 1)
    assert (answer.error_code, answer.entries) == (ErrorCode.INVALID_REQUEST, None)


async def test_no_user_has_scram_credentials(world: World) -> None:
    for users in (None, []):
        answer = await world.call(
            describe_user_scram_credentials, DescribeUserScramCredentialsRequest(users=users), 0
        )
        assert (answer.error_code, answer.error_message, answer.results) == (ErrorCode.NONE, "", [])
    asked = [UserName(name=name) for name in ("a", "b", "b", "")]
    answer = await world.call(
        describe_user_scram_credentials, DescribeUserScramCredentialsRequest(users=asked), 0
    )
    assert [(each.user, ErrorCode(each.error_code), each.error_message) for each in answer.results] == [
        (
            "a",
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: a",
        ),
        (
            "b",
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: b",
        ),
        ("", ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty"),
    ]


async def test_client_metrics_are_listed(world: World) -> None:
    world.metadata.put_client_metrics("b", {"metrics": "*"})
    world.metadata.put_client_metrics("a", {"metrics": "*"})
    world.metadata.put_client_metrics("b", {})
    answer = await world.call(list_client_metrics_resources, ListClientMetricsResourcesRequest(), 0)
    assert (answer.error_code, [each.name for each in answer.client_metrics_resources]) == (
        ErrorCode.NONE,
        ["a"],
    )
