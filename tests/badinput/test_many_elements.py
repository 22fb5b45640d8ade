"""Requests of very many elements: the largest that real clients send are served, larger ones close the connection."""

from __future__ import annotations

import pytest
from tests.conftest import unique
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire, frame, request_bytes

from ottla_broker.handlers.metadata import MOST_CREATED
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import MOST_TAGS, RequestHeader, encode_request_header
from ottla_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.ottla_only


def test_too_many_elements_close_the_connection(broker: BrokerProcess, wire: Wire) -> None:
    head = encode_request_header(RequestHeader(ApiKey.FIND_COORDINATOR, 6, 7, "bad"))
    # Two million empty keys, one byte each.
    wire.send(frame(head + b"\x00" + b"\x81\x89\x7a" + b"\x01" * 2_000_000 + b"\x00"))
    assert wire.is_closed()
    wait_for(
        lambda: "too many elements: coordinator_keys has 2000000" in broker.log(), "the reason in the log"
    )


def test_tags_of_a_header_are_limited(broker: BrokerProcess, wire: Wire) -> None:
    head = encode_request_header(RequestHeader(ApiKey.METADATA, 9, 7, "bad"))
    wire.send(frame(head[:-1] + bytes((MOST_TAGS + 1,)) + b"\x05\x00" * (MOST_TAGS + 1) + bytes(10)))
    assert wire.is_closed()
    wait_for(lambda: "101 tagged fields, 100 are allowed" in broker.log(), "the reason in the log")


def test_large_requests_of_real_clients_are_served_in_order(wire: Wire) -> None:
    names = [f"not-here-{number}" for number in range(30_000)]
    topics = [MetadataRequestTopic(name=name) for name in names]
    wire.send(request_bytes(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9, 1))
    wire.send(request_bytes(MetadataRequest(topics=[]), 9, 2))
    assert wire.receive()[:4] == b"\x00\x00\x00\x01"
    assert wire.receive()[:4] == b"\x00\x00\x00\x02"


def test_ten_thousand_assignments_can_be_asked_for(wire: Wire) -> None:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[0, 1, 2]) for index in range(10_000)
    ]
    topic = CreatableTopic(
        name=unique("wide"), num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    answer = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True), 5)
    assert answer.topics[0].error_code in (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_PARTITIONS,
    )


def test_one_request_creates_a_limited_number_of_topics(broker: BrokerProcess, wire: Wire) -> None:
    topics = [MetadataRequestTopic(name=unique("made")) for _ in range(MOST_CREATED + 3)]
    answer = wire.call(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9)
    codes = [topic.error_code for topic in answer.topics]
    assert codes.count(0) == MOST_CREATED
    assert codes.count(ErrorCode.LEADER_NOT_AVAILABLE) == 3, "clients ask again, and get the next ones"


def test_what_is_named_twice_is_described_once(wire: Wire) -> None:
    own = DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
    assert len(wire.call(DescribeConfigsRequest(resources=[own] * 50), 4).results) == 1
    found = wire.call(FindCoordinatorRequest(coordinator_keys=["g", "g", "h"]), 4)
    assert [each.key for each in found.coordinators] == ["g", "h"]


def test_a_long_client_id_gives_a_member_id_that_can_be_sent(wire: Wire) -> None:
    join = JoinGroupRequest(
        group_id=unique("long"),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    wire.send(request_bytes(join, 3, 5, "x" * 32_767))
    answer = JoinGroupResponse.decode(wire.receive(), 3, 4)
    assert answer.error_code == 0
    assert [member.member_id for member in answer.members] == [answer.member_id]
    assert len(answer.member_id) < 300
