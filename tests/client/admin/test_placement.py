"""Elections and reassignments with a fake controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.client.base.fake import FakeBroker

from ottla_client import Admin, TopicPartition
from ottla_client.admin import ElectionType, PartialError, PartitionReassignment
from ottla_client.errors import (
    BrokerError,
    ConfigurationError,
    RequestTimeoutError,
    UnknownTopicError,
    UnsupportedApiError,
)
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla_protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

Answer = Callable[[Any, Any], Any]


@pytest.fixture(autouse=True)
def _offered(fake: FakeBroker) -> None:
    fake.versions |= {
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    }


def electing(codes: dict[TopicPartition, int], error: int = 0) -> Answer:
    def answer(header: Any, request: Any) -> ElectLeadersResponse:
        topics: dict[str, list[PartitionResult]] = {}
        for (topic, partition), code in codes.items():
            result = PartitionResult(partition_id=partition, error_code=code, error_message=None)
            topics.setdefault(topic, []).append(result)
        return ElectLeadersResponse(
            error_code=error,
            replica_election_results=[
                ReplicaElectionResult(topic=topic, partition_result=results)
                for topic, results in topics.items()
            ],
        )

    return answer


def altering(codes: dict[TopicPartition, int], error: int = 0, message: str | None = None) -> Answer:
    def answer(header: Any, request: Any) -> AlterPartitionReassignmentsResponse:
        return AlterPartitionReassignmentsResponse(
            error_code=error,
            error_message=message,
            responses=[
                ReassignableTopicResponse(
                    name=topic,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=partition, error_code=code, error_message=message
                        )
                    ],
                )
                for (topic, partition), code in codes.items()
            ],
        )

    return answer


async def test_elections_of_some(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.ELECT_LEADERS] = electing({T0: 0, T1: ErrorCode.ELECTION_NOT_NEEDED, U0: 0})
    elected = await fake_admin.elect_leaders(partitions=[T0, T1, U0])
    assert elected == {T0: True, T1: False, U0: True}
    request = fake.requests[-1]
    assert request.election_type == 0
    assert [(each.topic, each.partitions) for each in request.topic_partitions] == [("t", [0, 1]), ("u", [0])]


async def test_elections_of_all_partitions(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.ELECT_LEADERS] = electing({T1: 0})
    assert await fake_admin.elect_leaders(ElectionType.UNCLEAN) == {T1: True}
    request = fake.requests[-1]
    assert (request.election_type, request.topic_partitions) == (1, None)
    fake.answers[ApiKey.ELECT_LEADERS] = electing({})
    assert await fake_admin.elect_leaders() == {}
    assert await fake_admin.elect_leaders(partitions=[]) == {}


async def test_an_election_that_fails(fake: FakeBroker, fake_admin: Admin) -> None:
    unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    fake.answers[ApiKey.ELECT_LEADERS] = electing({T0: 0, T1: unavailable})
    for partitions in ([T0, T1], None):
        with pytest.raises(PartialError, match="t-1") as caught:
            await fake_admin.elect_leaders(partitions=partitions)
        assert caught.value.results == {T0: True}
        assert [error.code for error in caught.value.errors.values()] == [unavailable]  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="a list is needed"):
        await fake_admin.elect_leaders(partitions=T0)  # type: ignore[arg-type]


async def test_an_old_broker_knows_no_unclean_election(fake: FakeBroker) -> None:
    fake.versions[ApiKey.ELECT_LEADERS] = (0, 0)
    del fake.versions[ApiKey.ALTER_PARTITION_REASSIGNMENTS]
    fake.answers[ApiKey.ELECT_LEADERS] = electing({T0: 0})
    async with Admin(fake.bootstrap, default_api_timeout_ms=2_000) as admin:
        assert await admin.elect_leaders(partitions=[T0]) == {T0: True}
        with pytest.raises(UnsupportedApiError, match=r"Kafka 2\.4"):
            await admin.elect_leaders(ElectionType.UNCLEAN, [T0])
        with pytest.raises(UnsupportedApiError):
            await admin.alter_partition_reassignments({T0: [1]})


async def test_moves_begin_and_stop(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = altering({T0: 0, T1: 0})
    await fake_admin.alter_partition_reassignments({T0: (2, 3), T1: None})
    (topic,) = fake.requests[-1].topics
    assert [(each.partition_index, each.replicas) for each in topic.partitions] == [(0, [2, 3]), (1, None)]


async def test_moves_that_can_not_be(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = altering(
        {T0: ErrorCode.INVALID_REPLICA_ASSIGNMENT}, message="brokers that are not alive"
    )
    with pytest.raises(BrokerError, match="t-0: brokers that are not alive"):
        await fake_admin.alter_partition_reassignments({T0: [9]})
    fake.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = altering(
        {T0: 0, U0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    )
    with pytest.raises(PartialError) as caught:
        await fake_admin.alter_partition_reassignments({T0: [2], U0: [2]})
    assert isinstance(caught.value.errors[U0], UnknownTopicError)
    fake.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = altering(
        {}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you"
    )
    with pytest.raises(BrokerError, match="not you"):
        await fake_admin.alter_partition_reassignments({T0: [2]})


async def test_moving_partitions(fake: FakeBroker, fake_admin: Admin) -> None:
    moving = OngoingPartitionReassignment(
        partition_index=1, replicas=[3, 4, 1, 2], adding_replicas=[3, 4], removing_replicas=[1]
    )
    fake.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda header, request: (
        ListPartitionReassignmentsResponse(
            error_message=None, topics=[OngoingTopicReassignment(name="t", partitions=[moving])]
        )
    )
    found = await fake_admin.list_partition_reassignments()
    assert found == {T1: PartitionReassignment((3, 4, 1, 2), (3, 4), (1,))}
    assert found[T1].target == (3, 4, 2)
    assert fake.requests[-1].topics is None
    await fake_admin.list_partition_reassignments([T1, U0])
    assert [(each.name, each.partition_indexes) for each in fake.requests[-1].topics] == [
        ("t", [1]),
        ("u", [0]),
    ]
    assert await fake_admin.list_partition_reassignments([]) == {}


async def test_a_moved_controller_is_found(fake: FakeBroker, fake_admin: Admin) -> None:
    async with FakeBroker() as second:
        second.versions = fake.versions
        second.answers[ApiKey.ELECT_LEADERS] = electing({T0: 0})
        second.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = altering({T0: 0})
        second.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda header, request: (
            ListPartitionReassignmentsResponse(error_message=None)
        )
        fake.nodes[2] = (second.host, second.port)
        code = ErrorCode.NOT_CONTROLLER

        def moved(answer: Any) -> Answer:
            def answers(header: Any, request: Any) -> Any:
                fake.controller = 2
                return answer(header, request) if callable(answer) else answer

            return answers

        fake.answers[ApiKey.ELECT_LEADERS] = moved(electing({T0: code}, code))
        fake.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = moved(altering({}, code))
        fake.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = moved(
            ListPartitionReassignmentsResponse(error_code=code, error_message=None)
        )
        for call in (
            lambda: fake_admin.elect_leaders(partitions=[T0]),
            fake_admin.elect_leaders,
            lambda: fake_admin.alter_partition_reassignments({T0: [1]}),
            fake_admin.list_partition_reassignments,
        ):
            # As the client is to believe again that the first one is it.
            fake.controller = 1
            await fake_admin.describe_cluster()
            await call()
        assert fake.asked[ApiKey.ELECT_LEADERS] == second.asked[ApiKey.ELECT_LEADERS] == 2
        for key in (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS):
            assert fake.asked[key] == second.asked[key] == 1
        await fake_admin.close()


async def test_without_a_controller_the_deadline_ends_it(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda header, request: (
        ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
    )
    with pytest.raises(RequestTimeoutError, match="NOT_CONTROLLER"):
        await fake_admin.list_partition_reassignments(timeout=0.2)
