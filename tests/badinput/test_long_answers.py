"""Short requests for all that a broker keeps: none holds the event loop, or takes much memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from harness.ports import free_port
from tests.badinput.hostile_check import SHARE, measure
from tests.badinput.requests import produce_request
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.watched import WatchedBroker
from tests.support.wire import Wire, plain_login, request_bytes

from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla_protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla_protocol.messages.describe_acls import DescribeAclsRequest
from ottla_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla_protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.list_client_metrics_resources import ListClientMetricsResourcesRequest
from ottla_protocol.messages.list_groups import ListGroupsRequest
from ottla_protocol.messages.list_transactions import ListTransactionsRequest
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla_protocol.records.record import encode_batch
from ottla_protocol.registry import response_class
from ottla_protocol.schema import Message

pytestmark = pytest.mark.ottla_only

_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_mallory="secret";'
_AT_ONCE = 64
"""Requests that are sent ahead."""


class Broker(WatchedBroker):
    """With ACLs, logins and delegation tokens. Clients that don't log in may do everything."""

    sasl_port = 0

    def mallory(self) -> Wire:
        return plain_login(self.sasl_port, "mallory", "secret")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(
        tmp_path_factory.mktemp("kept") / "data",
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _USERS,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "a secret",
            "ottla.lag.history.enable": "false",
        },
    )
    broker.sasl_port = free_port()
    broker.settings["listeners"] = (
        f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://127.0.0.1:{broker.sasl_port}"
    )
    broker.start()
    yield broker
    broker.stop()


def pipelined(wire: Wire, requests: Iterable[Message], version: int) -> list[Any]:
    """The answers to many requests, of which some are sent ahead."""
    answers: list[Any] = []
    sent = 0
    key = 0

    def receive() -> None:
        data = wire.receive()
        _, position = parse_response_header(data, key, version)
        answers.append(response_class(key).decode(data, version, position))

    for sent, request in enumerate(requests, 1):
        key = request.API_KEY
        wire.send(request_bytes(request, version, sent))
        if sent - len(answers) >= _AT_ONCE:
            receive()
    while len(answers) < sent:
        receive()
    return answers


def asked_twice(
    watched: Broker, name: str, request: Message, version: int, connect: Callable[[], Wire] | None = None
) -> None:
    """The first request compiles the codecs."""
    for _ in range(2):
        try:
            measure(watched, name, request_bytes(request, version)[4:], connect=connect)
            failed = None
        except AssertionError as error:
            failed = error
    if failed is not None:
        raise failed


def test_delegation_tokens(watched: Broker) -> None:
    def create(renewers: int) -> CreateDelegationTokenRequest:
        return CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type="User", principal_name=f"{number:04}")
                for number in range(renewers)
            ],
            max_lifetime_ms=-1,
        )

    with watched.mallory() as wire:
        answers = pipelined(wire, [create(900)] * 300, 3)
        assert {each.error_code for each in answers} == {ErrorCode.POLICY_VIOLATION}
        answers = pipelined(wire, [create(32)] * 1_500, 3)
        assert {each.error_code for each in answers} == {0}
    request = DescribeDelegationTokenRequest(owners=None)
    asked_twice(watched, "tokens", request, 3, watched.mallory)
    with watched.mallory() as wire:
        described = wire.call(request, 3).tokens
        assert len(described) == 1_500
        assert {len(each.renewers) for each in described} == {32}


def test_quotas(watched: Broker) -> None:
    count, portion = 30_000 * SHARE // 100, 500

    def entry(number: int) -> EntryData:
        return EntryData(
            entity=[
                EntityData(entity_type="user", entity_name=f"u{number}"),
                EntityData(entity_type="client-id", entity_name=f"c{number}"),
            ],
            ops=[OpData(key="producer_byte_rate", value=1e6), OpData(key="consumer_byte_rate", value=1e6)],
        )

    with Wire(watched.port) as wire:
        for start in range(0, count, portion):
            entries = [entry(number) for number in range(start, start + portion)]
            alter = AlterClientQuotasRequest(entries=entries)
            assert measure(watched, "quotas to set", request_bytes(alter, 1)[4:], made=portion * 4_000)
        request = DescribeClientQuotasRequest(components=[], strict=False)
        asked_twice(watched, "quotas", request, 1)
        found = wire.call(request, 1).entries
    names = {tuple(part.entity_name for part in each.entity) for each in found}
    assert names == {(f"u{number}", f"c{number}") for number in range(count)}
    assert {len(each.values) for each in found} == {2}


def test_acls(watched: Broker) -> None:
    count, portion = 15_000 * SHARE // 100, 500

    def creation(number: int) -> AclCreation:
        return AclCreation(
            resource_type=2,
            resource_name=f"topic-{number % 1_000}",
            principal=f"User:u{number}",
            host="*",
            operation=3,
            permission_type=3,
        )

    every = {
        "resource_type_filter": 2,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    with Wire(watched.port) as wire:
        for start in range(0, count, portion):
            creations = [creation(number) for number in range(start, start + portion)]
            create = CreateAclsRequest(creations=creations)
            assert measure(watched, "ACLs to add", request_bytes(create, 3)[4:], made=portion * 4_000)
        request = DescribeAclsRequest(**every)
        asked_twice(watched, "ACLs", request, 3)
        found = wire.call(request, 3).resources
        assert sum(len(each.acls) for each in found) == count
        some = wire.call(DescribeAclsRequest(**{**every, "principal_filter": "User:u7"}), 3).resources
        assert [(each.resource_name, len(each.acls)) for each in some] == [("topic-7", 1)]
        none = [
            DeleteAclsFilter(**{**every, "principal_filter": f"User:x{number}"}) for number in range(2_000)
        ]
        asked_twice(watched, "ACLs to delete by many filters", DeleteAclsRequest(filters=none), 3)
        gone = DeleteAclsRequest(filters=[DeleteAclsFilter(**every)])
        measure(watched, "ACLs to delete", request_bytes(gone, 3)[4:])
        assert wire.call(request, 3).resources == []


def test_users(watched: Broker) -> None:
    count, portion = 10_000 * SHARE // 100, 500
    with Wire(watched.port) as wire:
        for start in range(0, count, portion):
            made = [
                ScramCredentialUpsertion(
                    name=f"u{number}", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32
                )
                for number in range(start, start + portion)
            ]
            alter = AlterUserScramCredentialsRequest(upsertions=made)
            assert measure(watched, "users to add", request_bytes(alter, 0)[4:], made=portion * 4_000)
        request = DescribeUserScramCredentialsRequest(users=None)
        asked_twice(watched, "users", request, 0)
        assert len(wire.call(request, 0).results) == count


def test_client_metrics(watched: Broker) -> None:
    count, portion = 10_000 * SHARE // 100, 500
    interval = [AlterableConfig(name="interval.ms", config_operation=0, value="100")]
    for start in range(0, count, portion):
        made = [
            AlterConfigsResource(resource_type=16, resource_name=f"m{number}", configs=interval)
            for number in range(start, start + portion)
        ]
        alter = IncrementalAlterConfigsRequest(resources=made)
        assert measure(watched, "client metrics to set", request_bytes(alter, 1)[4:], made=portion * 4_000)
    asked_twice(watched, "client metrics", ListClientMetricsResourcesRequest(), 0)


def test_groups(watched: Broker) -> None:
    create_topic(watched, "read")
    count = 50_000 * SHARE // 100
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name="read", partitions=[place])]
    with Wire(watched.port) as wire:
        find = FindCoordinatorRequest(key="group-0", key_type=0)
        wait_for(lambda: wire.call(find, 3).error_code == 0, "a coordinator")
        first = OffsetCommitRequest(group_id="group-0", topics=topics)
        wait_for(
            lambda: wire.call(first, 7).topics[0].partitions[0].error_code == 0, "the coordinator's groups"
        )
        commits = [OffsetCommitRequest(group_id=f"group-{n}", topics=topics) for n in range(count)]
        answers = pipelined(wire, commits, 7)
        assert {each.topics[0].partitions[0].error_code for each in answers} == {0}
        asked_twice(watched, "groups", ListGroupsRequest(), 4)
        assert len(wire.call(ListGroupsRequest(), 4).groups) >= count


def test_partitions(watched: Broker) -> None:
    count = 10_000 * SHARE // 100
    create_topic(watched, "wide", count)
    with Wire(watched.port) as wire:
        group, portion = "all-offsets", 1_000
        find = FindCoordinatorRequest(key=group, key_type=0)
        wait_for(lambda: wire.call(find, 3).error_code == 0, "a coordinator")
        for start in range(0, count, portion):
            places = [
                OffsetCommitRequestPartition(partition_index=index, committed_metadata="x" * 50)
                for index in range(start, start + portion)
            ]
            topic = OffsetCommitRequestTopic(name="wide", partitions=places)
            commit = OffsetCommitRequest(group_id=group, topics=[topic])
            wait_for(
                lambda commit=commit: wire.call(commit, 7).topics[0].partitions[0].error_code == 0, "offsets"
            )
    asked_twice(watched, "log dirs", DescribeLogDirsRequest(topics=None), 4)
    asked_twice(
        watched,
        "topic partitions",
        DescribeTopicPartitionsRequest(topics=[], response_partition_limit=count),
        0,
    )
    asked_twice(watched, "offsets", OffsetFetchRequest(group_id="all-offsets", topics=None), 7)
    several = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="all-offsets", topics=None)])
    asked_twice(watched, "offsets of groups", several, 8)


def test_transactional_ids(watched: Broker) -> None:
    count = 50_000 * SHARE // 100
    with Wire(watched.port) as wire:
        find = FindCoordinatorRequest(key="t", key_type=1)
        wait_for(lambda: wire.call(find, 3).error_code == 0, "a coordinator")
        first = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
        wait_for(lambda: wire.call(first, 4).error_code == 0, "the coordinator's ids")
        made = [
            InitProducerIdRequest(transactional_id=f"t-{number}", transaction_timeout_ms=1000)
            for number in range(count)
        ]
        pipelined(wire, made, 4)
        asked_twice(watched, "transactions", ListTransactionsRequest(), 1)


def test_producers(watched: Broker) -> None:
    count = 20_000 * SHARE // 100
    create_topic(watched, "produced")
    with Wire(watched.port) as wire:
        batches = [
            bytes(encode_batch([(1, None, b"v", ())], producer_id=number, producer_epoch=0, base_sequence=0))
            for number in range(count)
        ]
        answers = pipelined(wire, [produce_request("produced", each, acks=1) for each in batches], 9)
        assert {each.responses[0].partition_responses[0].error_code for each in answers} == {0}
        request = DescribeProducersRequest(topics=[TopicRequest(name="produced", partition_indexes=[0])])
        asked_twice(watched, "producers", request, 0)
        found = wire.call(request, 0).topics[0].partitions[0].active_producers
        assert len(found) == count
