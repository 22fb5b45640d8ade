"""What each API needs: a request, what it is refused with, and the rules that allow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import alter_configs, describe_topic_partitions, incremental_alter_configs
from ottla_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla_protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData
from ottla_protocol.messages.alter_configs import AlterConfigsRequest
from ottla_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from ottla_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla_protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla_protocol.messages.delete_groups import DeleteGroupsRequest
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.describe_acls import DescribeAclsRequest
from ottla_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_protocol.messages.describe_groups import DescribeGroupsRequest
from ottla_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla_protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla_protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from ottla_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla_protocol.messages.end_txn import EndTxnRequest
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.heartbeat import HeartbeatRequest
from ottla_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla_protocol.messages.list_client_metrics_resources import ListClientMetricsResourcesRequest
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla_protocol.messages.share_fetch import ShareFetchRequest
from ottla_protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla_protocol.messages.sync_group import SyncGroupRequest
from ottla_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla_protocol.messages.update_features import UpdateFeaturesRequest
from ottla_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOPIC = "orders"
MEMBER = "AAAAAAAAAAAAAAAAAAAAAg"
"""A member's id, which is a UUID where groups are shared."""

T = ErrorCode.TOPIC_AUTHORIZATION_FAILED
G = ErrorCode.GROUP_AUTHORIZATION_FAILED
C = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
X = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
D = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class Row(NamedTuple):
    """A request; what it is refused with; and rules that allow it, as ``Operation Type:name``.

    ``partial``: what it is refused with under the first rule alone.
    """

    request: Any
    version: int
    refused: ErrorCode
    rules: tuple[str, ...]
    partial: ErrorCode | None = None
    kafka: bool = True
    """Whether Kafka in ZooKeeper mode serves it."""
    users: bool = False
    """Whether it is only for clients that have logged in."""
    allowed: tuple[str, ...] = ()
    """Other users of :data:`acl_matrix.USERS` who may."""


def _commit() -> list[OffsetCommitRequestTopic]:
    return [OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition()])]


ROWS: Sequence[Row] = (
    Row(
        ProduceRequest(
            acks=1,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(records=b"")])],
        ),
        9,
        T,
        ("Write Topic:orders",),
    ),
    Row(
        FetchRequest(
            replica_id=-1,
            max_bytes=1024,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition_max_bytes=1024)])],
        ),
        12,
        T,
        ("Read Topic:orders",),
    ),
    Row(
        ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(timestamp=-1)])],
        ),
        8,
        T,
        ("Describe Topic:orders",),
    ),
    Row(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12, T, ("Describe Topic:orders",)),
    Row(MetadataRequest(topics=[MetadataRequestTopic(name="gone")]), 4, T, ("Describe Topic:gone",)),
    Row(
        OffsetCommitRequest(group_id="billing", topics=_commit()),
        8,
        G,
        ("Read Group:billing", "Read Topic:orders"),
        T,
    ),
    Row(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="billing",
                    topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])],
                )
            ]
        ),
        8,
        G,
        ("Describe Group:billing", "Describe Topic:orders"),
        T,
    ),
    Row(FindCoordinatorRequest(key="billing", key_type=0), 3, G, ("Describe Group:billing",)),
    Row(
        FindCoordinatorRequest(coordinator_keys=["pay"], key_type=1), 4, X, ("Describe TransactionalId:pay",)
    ),
    Row(
        JoinGroupRequest(
            group_id="billing",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        5,
        G,
        ("Read Group:billing",),
    ),
    Row(
        ConsumerGroupHeartbeatRequest(group_id="billing", member_id="m", member_epoch=-1),
        0,
        G,
        ("Read Group:billing",),
        kafka=False,
    ),
    Row(ConsumerGroupDescribeRequest(group_ids=["billing"]), 0, G, ("Describe Group:billing",), kafka=False),
    Row(
        ShareGroupHeartbeatRequest(group_id="billing", member_id=MEMBER, member_epoch=-1),
        1,
        G,
        ("Read Group:billing",),
        kafka=False,
    ),
    Row(ShareGroupDescribeRequest(group_ids=["billing"]), 1, G, ("Describe Group:billing",), kafka=False),
    Row(
        DescribeShareGroupOffsetsRequest(
            groups=[
                DescribeShareGroupOffsetsRequestGroup(
                    group_id="billing",
                    topics=[DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])],
                )
            ]
        ),
        0,
        G,
        ("Describe Group:billing",),
        kafka=False,
    ),
    Row(
        AlterShareGroupOffsetsRequest(
            group_id="billing",
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=TOPIC, partitions=[AlterShareGroupOffsetsRequestPartition()]
                )
            ],
        ),
        0,
        G,
        ("Read Group:billing", "Read Topic:orders"),
        kafka=False,
    ),
    Row(
        DeleteShareGroupOffsetsRequest(
            group_id="billing", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)]
        ),
        0,
        G,
        ("Delete Group:billing", "Read Topic:orders"),
        kafka=False,
    ),
    Row(
        ShareFetchRequest(group_id="billing", member_id=MEMBER, share_session_epoch=7),
        1,
        G,
        ("Read Group:billing",),
        kafka=False,
    ),
    Row(
        ShareAcknowledgeRequest(group_id="billing", member_id=MEMBER, share_session_epoch=7),
        1,
        G,
        ("Read Group:billing",),
        kafka=False,
    ),
    Row(HeartbeatRequest(group_id="billing", member_id="m"), 4, G, ("Read Group:billing",)),
    Row(
        LeaveGroupRequest(group_id="billing", members=[MemberIdentity(member_id="m")]),
        4,
        G,
        ("Read Group:billing",),
    ),
    Row(SyncGroupRequest(group_id="billing", member_id="m"), 4, G, ("Read Group:billing",)),
    Row(DescribeGroupsRequest(groups=["billing"]), 5, G, ("Describe Group:billing",)),
    Row(DeleteGroupsRequest(groups_names=["gone"]), 2, G, ("Delete Group:gone",)),
    Row(
        OffsetDeleteRequest(
            group_id="billing",
            topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition()])],
        ),
        0,
        G,
        ("Delete Group:billing", "Read Topic:orders"),
    ),
    Row(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)], validate_only=True
        ),
        7,
        T,
        ("Create Topic:new",),
    ),
    Row(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)], validate_only=True
        ),
        4,
        T,
        ("Create Cluster:kafka-cluster",),
    ),
    Row(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]), 6, T, ("Delete Topic:gone",)),
    Row(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=TOPIC, count=2)], validate_only=True),
        3,
        T,
        ("Alter Topic:orders",),
    ),
    Row(
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition()])]),
        2,
        T,
        ("Delete Topic:orders",),
    ),
    Row(InitProducerIdRequest(transactional_id=None), 4, C, ("IdempotentWrite Cluster:kafka-cluster",)),
    # Any topic is enough, and a prefix has others than the one that is denied.
    Row(
        InitProducerIdRequest(transactional_id=None),
        4,
        C,
        ("Write Topic:orders",),
        allowed=("literal-denied",),
    ),
    Row(
        InitProducerIdRequest(transactional_id="pay", transaction_timeout_ms=1000),
        4,
        X,
        ("Write TransactionalId:pay",),
    ),
    Row(
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[OffsetForLeaderPartition()])],
        ),
        4,
        T,
        ("Describe Topic:orders",),
    ),
    Row(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="pay",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        ),
        3,
        X,
        ("Write TransactionalId:pay", "Write Topic:orders"),
        T,
    ),
    Row(
        AddOffsetsToTxnRequest(transactional_id="pay", group_id="billing"),
        3,
        X,
        ("Write TransactionalId:pay", "Read Group:billing"),
        G,
    ),
    Row(EndTxnRequest(transactional_id="pay"), 3, X, ("Write TransactionalId:pay",)),
    Row(
        TxnOffsetCommitRequest(
            transactional_id="pay",
            group_id="billing",
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[TxnOffsetCommitRequestPartition()])],
        ),
        3,
        X,
        ("Write TransactionalId:pay", "Read Group:billing", "Read Topic:orders"),
        G,
    ),
    Row(
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=1, topics=[WritableTxnMarkerTopic(name="gone", partition_indexes=[0])]
                )
            ]
        ),
        1,
        C,
        ("Alter Cluster:kafka-cluster",),
    ),
    Row(
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        3,
        C,
        ("Describe Cluster:kafka-cluster",),
    ),
    Row(
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2,
                    resource_name="",
                    resource_pattern_type=3,
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        3,
        C,
        ("Alter Cluster:kafka-cluster",),
    ),
    Row(
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter="gone",
                    pattern_type_filter=3,
                    principal_filter="User:gone",
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        3,
        C,
        ("Alter Cluster:kafka-cluster",),
    ),
    Row(
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name=TOPIC)]),
        4,
        T,
        ("DescribeConfigs Topic:orders",),
    ),
    Row(
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="")]),
        4,
        C,
        ("DescribeConfigs Cluster:kafka-cluster",),
    ),
    Row(
        AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name=TOPIC)],
            validate_only=True,
        ),
        2,
        T,
        ("AlterConfigs Topic:orders",),
    ),
    Row(
        IncrementalAlterConfigsRequest(
            resources=[incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="")],
            validate_only=True,
        ),
        1,
        C,
        ("AlterConfigs Cluster:kafka-cluster",),
    ),
    Row(
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path="/nowhere", topics=[AlterReplicaLogDirTopic(name="gone", partitions=[0])]
                )
            ]
        ),
        2,
        C,
        ("Alter Cluster:kafka-cluster",),
    ),
    Row(DescribeLogDirsRequest(topics=[]), 4, C, ("Describe Cluster:kafka-cluster",)),
    Row(
        ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic="gone", partitions=[0])], timeout_ms=1000
        ),
        2,
        C,
        ("Alter Cluster:kafka-cluster",),
    ),
    Row(UpdateFeaturesRequest(), 1, C, ("Alter Cluster:kafka-cluster",)),
    Row(AlterPartitionReassignmentsRequest(), 0, C, ("Alter Cluster:kafka-cluster",)),
    Row(ListPartitionReassignmentsRequest(topics=None), 0, C, ("Describe Cluster:kafka-cluster",)),
    Row(DescribeClientQuotasRequest(), 1, C, ("DescribeConfigs Cluster:kafka-cluster",)),
    Row(
        AlterClientQuotasRequest(entries=[EntryData()], validate_only=True),
        1,
        C,
        ("AlterConfigs Cluster:kafka-cluster",),
    ),
    Row(
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="u", mechanism=1)]),
        0,
        C,
        ("Alter Cluster:kafka-cluster",),
    ),
    # Kafka doesn't answer at all if it must refuse a request for all users.
    Row(
        DescribeUserScramCredentialsRequest(users=[UserName(name="u")]),
        0,
        C,
        ("Describe Cluster:kafka-cluster",),
    ),
    Row(
        DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])]),
        0,
        T,
        ("Read Topic:orders",),
    ),
    Row(DescribeTransactionsRequest(transactional_ids=["pay"]), 0, X, ("Describe TransactionalId:pay",)),
    Row(
        CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="boss", max_lifetime_ms=60_000
        ),
        3,
        D,
        ("CreateTokens User:User:boss",),
        users=True,
    ),
    Row(ListClientMetricsResourcesRequest(), 0, C, ("DescribeConfigs Cluster:kafka-cluster",), kafka=False),
    Row(
        DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=TOPIC)], response_partition_limit=9
        ),
        0,
        T,
        ("Describe Topic:orders",),
        kafka=False,
    ),
)
