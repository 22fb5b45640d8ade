"""Request frames as confluent-kafka 2.16 (librdkafka 2.16) put them on a socket, read and written again.

An idempotent producer, a static member of a group that commits, and an admin client; client id "golden".
"""

from __future__ import annotations

import pytest

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.header import encode_request_header, parse_request_header
from ottla_protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla_protocol.messages.delete_groups import DeleteGroupsRequest
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_protocol.messages.describe_groups import DescribeGroupsRequest
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.heartbeat import HeartbeatRequest
from ottla_protocol.messages.incremental_alter_configs import AlterableConfig as Change
from ottla_protocol.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from ottla_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla_protocol.messages.list_groups import ListGroupsRequest
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla_protocol.registry import request_class
from ottla_protocol.schema import Message

TOPIC_ID = bytes(range(16))

BATCH = bytes.fromhex(
    "00000000000000000000004400000000022c0c09110000000000000000018bcfe568000000018bcfe5680000000000000000"
    "050000000000000000000124000000066b65790a76616c75650202680231"
)

SUBSCRIPTION = bytes.fromhex("00030000000100066576656e74730000000000000000ffffffff00027231")

ASSIGNMENT = bytes.fromhex("00000000000100066576656e7473000000010000000000000000")

FRAMES: list[tuple[str, int, int, Message]] = [
    (
        "00120003000000010006676f6c64656e0017636f6e666c75656e742d6b61666b612d707974686f6e16322e31362e312d7264"
        "6b61666b612d322e31362e3000",
        3,
        1,
        ApiVersionsRequest(
            client_software_name="confluent-kafka-python", client_software_version="2.16.1-rdkafka-2.16.0"
        ),
    ),
    (
        "0003000c000000020006676f6c64656e000200000000000000000000000000000000076576656e747300010000",
        12,
        2,
        MetadataRequest(topics=[MetadataRequestTopic(name="events")], allow_auto_topic_creation=True),
    ),
    (
        "0003000a0000000e0006676f6c64656e000100010000",
        10,
        14,
        MetadataRequest(
            topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=True
        ),
    ),
    (
        "00160004000000020006676f6c64656e0000ffffffffffffffffffffffffffff00",
        4,
        2,
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1),
    ),
    (
        "0000000a000000030006676f6c64656e0000ffff0000753002076576656e7473020000000051000000000000000000000044"
        "00000000022c0c09110000000000000000018bcfe568000000018bcfe5680000000000000000050000000000000000000124"
        "000000066b65790a76616c75650202680231000000",
        10,
        3,
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=30000,
            topic_data=[
                TopicProduceData(
                    name="events", partition_data=[PartitionProduceData(index=0, records=memoryview(BATCH))]
                )
            ],
        ),
    ),
    (
        "000a0002000000030006676f6c64656e00077265616465727300",
        2,
        3,
        FindCoordinatorRequest(key="readers", key_type=0),
    ),
    (
        "000b0005000000040006676f6c64656e00077265616465727300001770000493e000036d2d3100036f6e650008636f6e7375"
        "6d657200000002000572616e67650000001e00030000000100066576656e74730000000000000000ffffffff00027231000a"
        "726f756e64726f62696e0000001e00030000000100066576656e74730000000000000000ffffffff00027231",
        5,
        4,
        JoinGroupRequest(
            group_id="readers",
            session_timeout_ms=6000,
            rebalance_timeout_ms=300000,
            member_id="m-1",
            group_instance_id="one",
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),
                JoinGroupRequestProtocol(name="roundrobin", metadata=SUBSCRIPTION),
            ],
        ),
    ),
    (
        "000e0003000000060006676f6c64656e0007726561646572730000000100036d2d3100036f6e650000000100036d2d310000"
        "001a00000000000100066576656e7473000000010000000000000000",
        3,
        6,
        SyncGroupRequest(
            group_id="readers",
            generation_id=1,
            member_id="m-1",
            group_instance_id="one",
            assignments=[SyncGroupRequestAssignment(member_id="m-1", assignment=ASSIGNMENT)],
        ),
    ),
    (
        "000c0003000000070006676f6c64656e0007726561646572730000000100036d2d3100036f6e65",
        3,
        7,
        HeartbeatRequest(group_id="readers", generation_id=1, member_id="m-1", group_instance_id="one"),
    ),
    (
        "00090009000000080006676f6c64656e0002087265616465727300ffffffff02076576656e7473020000000000000100",
        9,
        8,
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="readers",
                    topics=[OffsetFetchRequestTopics(name="events", partition_indexes=[0])],
                )
            ],
            require_stable=True,
        ),
    ),
    (
        "00020007000000220006676f6c64656e00ffffffff0102076576656e74730200000000000000000000018bcfe56800000000",
        7,
        34,
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1,
            topics=[
                ListOffsetsTopic(
                    name="events",
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=0, current_leader_epoch=0, timestamp=1_700_000_000_000
                        )
                    ],
                )
            ],
        ),
    ),
    (
        "00010010000000060006676f6c64656e00000001f400000001032000000100000000ffffffff02000102030405060708090a"
        "0b0c0d0e0f0200000000000000000000000000000000ffffffffffffffffffffffff0010000000000103723100",
        16,
        6,
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=52_428_800,
            isolation_level=1,
            topics=[
                FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        FetchPartition(partition=0, current_leader_epoch=0, partition_max_bytes=1_048_576)
                    ],
                )
            ],
            rack_id="r1",
        ),
    ),
    (
        "000800090000000f0006676f6c64656e00087265616465727300000001046d2d31046f6e6502076576656e74730200000000"
        "0000000000000003ffffffff056e6f7465000000",
        9,
        15,
        OffsetCommitRequest(
            group_id="readers",
            generation_id_or_member_epoch=1,
            member_id="m-1",
            group_instance_id="one",
            topics=[
                OffsetCommitRequestTopic(
                    name="events",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=3, committed_metadata="note"
                        )
                    ],
                )
            ],
        ),
    ),
    (
        "00130004000000030006676f6c64656e0000000100046d6164650000000300010000000000000001000e636c65616e75702e"
        "706f6c6963790007636f6d706163740000ea6000",
        4,
        3,
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="made",
                    num_partitions=3,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
                )
            ],
            timeout_ms=60000,
        ),
    ),
    (
        "00250002000000040006676f6c64656e0002056d6164650000000600000000ea600000",
        2,
        4,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="made", count=6, assignments=None)], timeout_ms=60000
        ),
    ),
    (
        "00140004000000050006676f6c64656e0002056d6164650000ea6000",
        4,
        5,
        DeleteTopicsRequest(topic_names=["made"], timeout_ms=60000),
    ),
    (
        "00200001000000060006676f6c64656e000000010200046d616465ffffffff01",
        1,
        6,
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name="made", configuration_keys=None)
            ],
            include_synonyms=True,
        ),
    ),
    (
        "002c0001000000070006676f6c64656e000202056d616465020d726574656e74696f6e2e6d7300053130303000000000",
        1,
        7,
        IncrementalAlterConfigsRequest(
            resources=[
                ChangedResource(
                    resource_type=2,
                    resource_name="made",
                    configs=[Change(name="retention.ms", config_operation=0, value="1000")],
                )
            ]
        ),
    ),
    (
        "00210002000000080006676f6c64656e000202056d616465020d726574656e74696f6e2e6d73053130303000000000",
        2,
        8,
        AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="made",
                    configs=[AlterableConfig(name="retention.ms", value="1000")],
                )
            ]
        ),
    ),
    (
        "00100005000000090006676f6c64656e000207537461626c650100",
        5,
        9,
        ListGroupsRequest(states_filter=["Stable"]),
    ),
    (
        "000f00050000000b0006676f6c64656e000208726561646572730100",
        5,
        11,
        DescribeGroupsRequest(groups=["readers"], include_authorized_operations=True),
    ),
    (
        "002a00020000000c0006676f6c64656e0002087265616465727300",
        2,
        12,
        DeleteGroupsRequest(groups_names=["readers"]),
    ),
    (
        "001500020000000f0006676f6c64656e0002076576656e74730200000000000000000000000200000000ea6000",
        2,
        15,
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="events", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)]
                )
            ],
            timeout_ms=60000,
        ),
    ),
]


@pytest.mark.parametrize(
    ("frame", "version", "correlation_id", "message"),
    FRAMES,
    ids=[f"{type(message).__name__}-{version}" for _, version, _, message in FRAMES],
)
def test_frame(frame: str, version: int, correlation_id: int, message: Message) -> None:
    data = bytes.fromhex(frame)
    header, position = parse_request_header(memoryview(data))
    assert message.API_KEY is not None
    assert (header.api_key, header.api_version) == (message.API_KEY, version)
    assert (header.correlation_id, header.client_id) == (correlation_id, "golden")
    cls = request_class(header.api_key, version)
    decoded, end = cls.decode_from(data, version, position)
    assert decoded == message
    assert end == len(data)
    assert encode_request_header(header) + message.encode(version) == data


def test_every_captured_kind_of_request_is_covered() -> None:
    seen = {ApiKey(int(frame[:4], 16)) for frame, *_ in FRAMES}
    assert len(seen) == 22


def test_subscription() -> None:
    subscription = decode_subscription(SUBSCRIPTION)
    assert subscription == ConsumerProtocolSubscription(topics=["events"], user_data=b"", rack_id="r1")
    assert encode_subscription(subscription, 3) == SUBSCRIPTION


def test_assignment() -> None:
    assignment = decode_assignment(ASSIGNMENT)
    expected = [TopicPartition(topic="events", partitions=[0])]
    assert assignment == ConsumerProtocolAssignment(assigned_partitions=expected, user_data=b"")
    assert encode_assignment(assignment, 0) == ASSIGNMENT
