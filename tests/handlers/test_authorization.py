"""What each API needs to be allowed, and what it answers when it isn't."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import FakeClock
from tests.support.handlers import (
    Client,
    answered,
    api_of,
    module_of,
    request_context,
    services,
)

from ottla_broker.config import BrokerConfig
from ottla_broker.coordinator.transaction.coordinator import Listed
from ottla_broker.counters import ReplicaCounters
from ottla_broker.handlers.index import INDEX
from ottla_broker.log.config import LogConfig
from ottla_broker.metadata.cache import MetadataCache, TopicInfo
from ottla_broker.replica.fetch_session import FetchSessions
from ottla_broker.requests.route import NAME_FIELDS
from ottla_broker.security.authorization import Authorizer
from ottla_protocol.acls import CLUSTER_NAME, AclOperation, AclResource
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import alter_configs, describe_topic_partitions, incremental_alter_configs
from ottla_protocol.messages import delete_share_group_state as delete_state
from ottla_protocol.messages import initialize_share_group_state as initialize_state
from ottla_protocol.messages import read_share_group_state as read_state
from ottla_protocol.messages import read_share_group_state_summary as state_summary
from ottla_protocol.messages import write_share_group_state as write_state
from ottla_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla_protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData
from ottla_protocol.messages.alter_configs import AlterConfigsRequest
from ottla_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from ottla_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
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
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla_protocol.messages.describe_groups import DescribeGroupsRequest
from ottla_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla_protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla_protocol.messages.elect_leaders import ElectLeadersRequest
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.list_groups import ListGroupsRequest
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.list_transactions import ListTransactionsRequest
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
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
from ottla_protocol.registry import request_class, response_class

APIS = {key: api_of(key) for key in INDEX}
GATED = {key: api.gate for key, api in APIS.items() if api.gate is not None}


@pytest.mark.parametrize("key", [ApiKey(key) for key in GATED], ids=lambda key: key.name)
def test_a_gate_is_something_needed_and_the_answer_has_an_error(key: ApiKey) -> None:
    gate = GATED[key]
    assert gate in APIS[key].needs
    first, last = APIS[key].versions
    for version in range(first, last + 1):
        if gate in NAME_FIELDS:
            assert hasattr(request_class(key, version)(), NAME_FIELDS[gate])
        response = response_class(key)()
        response.error_code = 29
        assert response.encode(version)


def test_only_the_brokers_listener_has_brokers() -> None:
    authorizer = Authorizer("INTERNAL")

    def may(operation: AclOperation, listener: str) -> bool:
        return authorizer.authorize(Client(listener=listener), operation, AclResource.CLUSTER, CLUSTER_NAME)

    assert may(AclOperation.CLUSTER_ACTION, "INTERNAL")
    assert not may(AclOperation.CLUSTER_ACTION, "EXTERNAL")
    assert may(AclOperation.ALTER, "EXTERNAL")
    alone = Authorizer(None)
    assert not alone.authorize(
        Client(listener="PLAINTEXT"), AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME
    )


class DenyAll(Authorizer):
    open_operations = frozenset()

    def __init__(self) -> None:
        super().__init__(None)

    def authorize(self, *_: object, **__: object) -> bool:
        return False

    def authorize_by_type(self, *_: object) -> bool:
        return False

    def operations(self, *_: object) -> int:
        return 0


def test_only_operations_that_are_open_to_all_skip_the_check() -> None:
    rules = api_of(ApiKey.FETCH).needs
    assert Authorizer("INTERNAL").checked(rules) == {
        AclResource.TOPIC: None,
        AclResource.CLUSTER: AclOperation.CLUSTER_ACTION,
    }
    assert DenyAll().checked(rules) == rules


class Nothing:
    """A controller or coordinator that is asked for nothing, and gives nothing."""

    def list(self, *_: object) -> tuple[int, Sequence[Any]]:
        return 0, [SimpleNamespace(group_id="x")]

    def delete(self, groups: Sequence[str], reply: Callable[[dict[str, int]], None]) -> None:
        assert not groups
        reply({})

    async def _nothing(self, wanted: Sequence[Any], *_: object) -> Sequence[Any]:
        assert not wanted
        return []

    create_topics = create_partitions = delete_topics = _nothing


def error_codes(message: Any) -> list[int]:
    """Every error code of an answer, those of its lists included."""
    found = []
    for name, value in vars(message).items() if hasattr(message, "__dict__") else _slots(message):
        if name in {"error_code", "partition_error_code"}:
            found.append(int(value))
        elif isinstance(value, list):
            for each in value:
                if hasattr(each, "encode") or hasattr(type(each), "__slots__"):
                    found += error_codes(each)
    return found


def _slots(message: Any) -> Iterable[tuple[str, Any]]:
    return [(name, getattr(message, name)) for name in type(message).__slots__]


TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

SHARE_STATE = [
    SimpleNamespace(request=request, topic=topic, partition=partition)
    for request, topic, partition in (
        (
            initialize_state.InitializeShareGroupStateRequest,
            initialize_state.InitializeStateData,
            initialize_state.PartitionData,
        ),
        (read_state.ReadShareGroupStateRequest, read_state.ReadStateData, read_state.PartitionData),
        (write_state.WriteShareGroupStateRequest, write_state.WriteStateData, write_state.PartitionData),
        (delete_state.DeleteShareGroupStateRequest, delete_state.DeleteStateData, delete_state.PartitionData),
        (
            state_summary.ReadShareGroupStateSummaryRequest,
            state_summary.ReadStateSummaryData,
            state_summary.PartitionData,
        ),
    )
]
"""The requests between brokers for share groups, and their parts."""

REQUESTS: list[tuple[Any, int, ErrorCode | None]] = [
    (
        ProduceRequest(
            acks=1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData()])]
        ),
        9,
        TOPIC,
    ),
    (
        FetchRequest(session_epoch=-1, topics=[FetchTopic(topic="t", partitions=[FetchPartition()])]),
        12,
        TOPIC,
    ),
    (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])],
        ),
        8,
        TOPIC,
    ),
    (
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="u", mechanism=1)]),
        0,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
    (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12, TOPIC),
    (MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True), 12, TOPIC),
    (MetadataRequest(topics=None), 12, None),
    (
        OffsetCommitRequest(
            group_id="g",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])],
        ),
        8,
        GROUP,
    ),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), 8, GROUP),
    (
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]),
        1,
        GROUP,
    ),
    (FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, GROUP),
    (FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4, TRANSACTIONAL_ID),
    (InitProducerIdRequest(transactional_id=None), 5, CLUSTER),
    (InitProducerIdRequest(transactional_id="x"), 5, TRANSACTIONAL_ID),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
        TRANSACTIONAL_ID,
    ),
    (AddPartitionsToTxnRequest(), 5, CLUSTER),
    (AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), 4, TRANSACTIONAL_ID),
    (
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition()])],
        ),
        4,
        TRANSACTIONAL_ID,
    ),
    (DescribeTransactionsRequest(transactional_ids=["x"]), 0, TRANSACTIONAL_ID),
    (ListTransactionsRequest(), 1, None),
    (DescribeGroupsRequest(groups=["g"]), 5, GROUP),
    (ConsumerGroupDescribeRequest(group_ids=["g"]), 1, GROUP),
    (ListGroupsRequest(), 4, None),
    (DeleteGroupsRequest(groups_names=["g"]), 2, GROUP),
    (CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7, TOPIC),
    (DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6, TOPIC),
    (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)]), 3, TOPIC),
    (
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition()])]),
        2,
        TOPIC,
    ),
    (
        OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition()])]
        ),
        4,
        TOPIC,
    ),
    (
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="t")]),
        4,
        TOPIC,
    ),
    (
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="1")]),
        4,
        CLUSTER,
    ),
    (
        AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name="t")]
        ),
        2,
        TOPIC,
    ),
    (
        IncrementalAlterConfigsRequest(
            resources=[incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="1")]
        ),
        1,
        CLUSTER,
    ),
    (DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])]), 0, TOPIC),
    (
        DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name="t")], response_partition_limit=9
        ),
        0,
        TOPIC,
    ),
    (ElectLeadersRequest(topic_partitions=None), 2, CLUSTER),
    (AlterClientQuotasRequest(entries=[EntryData()]), 1, CLUSTER),
    (UpdateFeaturesRequest(), 1, CLUSTER),
    (CreateAclsRequest(creations=[AclCreation()]), 3, CLUSTER),
    (DeleteAclsRequest(filters=[DeleteAclsFilter()]), 3, CLUSTER),
    (
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=1, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
                )
            ]
        ),
        1,
        CLUSTER,
    ),
    (ShareGroupDescribeRequest(group_ids=["g"]), 1, GROUP),
    (ShareFetchRequest(group_id="g", member_id="m"), 1, GROUP),
    (ShareAcknowledgeRequest(group_id="g", member_id="m"), 1, GROUP),
    *[
        (
            state.request(
                group_id="g", topics=[state.topic(topic_id=b"i" * 16, partitions=[state.partition()])]
            ),
            0,
            CLUSTER,
        )
        for state in SHARE_STATE
    ],
    (
        DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g")]),
        1,
        GROUP,
    ),
    (
        AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])]
        ),
        2,
        CLUSTER,
    ),
    # Before any rule counts; tests/security tries the rules.
    (CreateDelegationTokenRequest(), 3, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    (DescribeDelegationTokenRequest(), 3, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
]


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    REQUESTS,
    ids=lambda each: type(each).__name__ if hasattr(each, "API_KEY") else "",
)
async def test_a_request_that_is_not_allowed_is_refused(
    request_: Any, version: int, code: ErrorCode | None
) -> None:
    """``code``: None where forbidden items are left out instead."""
    clock, metadata = FakeClock(), MetadataCache("cluster", 1)
    metadata.put(TopicInfo("t", b"t" * 16, {}, False, {}, LogConfig()))
    given = services(
        authorizer=DenyAll(),
        config=BrokerConfig.from_properties({}),
        clock=clock,
        metadata=metadata,
        controller=Nothing(),
        groups=Nothing(),
        transactions=SimpleNamespace(list=lambda *_: (0, [], [Listed("x", 1, "Empty")])),
        replicas=SimpleNamespace(selector=None, counters=ReplicaCounters()),
        fetch_sessions=FetchSessions(0, clock, Random(1)),
    )
    api = request_.API_KEY
    answer = await answered(module_of(api), request_context(given, version, api), request_)
    if version < 13:
        found = {each for each in error_codes(answer) if each}
        assert found == (set() if code is None else {int(code)})
    assert b"t" * 16 not in bytes(answer.encode(version)) if api != ApiKey.FETCH else True


def test_all_other_apis_have_gates_or_need_nothing() -> None:
    """Those that answer a refusal themselves are tested above."""
    tested = {request.API_KEY for request, _, _ in REQUESTS}
    assert {key for key, api in APIS.items() if api.needs} == tested | GATED.keys()
