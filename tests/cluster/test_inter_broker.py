"""What brokers ask of each other, asked by a client: on its own listener, and on the brokers' one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from harness.ports import free_port
from tests.conftest import unique
from tests.support.cluster import Cluster
from tests.support.topics import create_topic
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla_protocol.messages.alter_partition import AlterPartitionRequest
from ottla_protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla_protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla_protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from ottla_protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)

HIGHEST = {4: 7, 5: 4, 6: 8, 7: 3, 56: 3, 67: 0}


class Doors(NamedTuple):
    """One broker of a cluster of one: a port for clients, another for brokers."""

    cluster: Cluster
    clients: int
    brokers: int
    topic: str


@pytest.fixture
def doors(new_cluster: Callable[..., Cluster]) -> Doors:
    inner = free_port()
    settings = {
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT",
    }

    def listeners(port: int) -> dict[str, str]:
        return {"listeners": f"EXTERNAL://127.0.0.1:{port},INTERNAL://127.0.0.1:{inner}"}

    cluster = new_cluster(brokers=1, settings=settings, listeners=listeners)
    topic = unique("t")
    create_topic(cluster.brokers[1], topic)
    return Doors(cluster, cluster.brokers[1].port, inner, topic)


def from_a_controller(controller_epoch: int = 1000, broker_epoch: int = -1) -> list[Any]:
    """Requests that would take the cluster over."""
    epochs = {"controller_id": 99, "controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
    endpoint = UpdateMetadataEndpoint(port=1, host="elsewhere", listener="EXTERNAL", security_protocol=0)
    return [
        LeaderAndIsrRequest(**epochs),
        StopReplicaRequest(**epochs),
        UpdateMetadataRequest(**epochs, live_brokers=[UpdateMetadataBroker(id=99, endpoints=[endpoint])]),
    ]


def from_brokers(broker_epoch: int = -1) -> list[Any]:
    """Requests to the controller."""
    return [
        ControlledShutdownRequest(broker_id=1, broker_epoch=broker_epoch),
        AlterPartitionRequest(broker_id=1, broker_epoch=broker_epoch),
        AllocateProducerIdsRequest(broker_id=1, broker_epoch=broker_epoch),
    ]


def error_of(port: int, request: Any) -> ErrorCode:
    with Wire(port) as connection:
        answer = connection.call(request, HIGHEST[request.API_KEY])
        return ErrorCode(answer.error_code)


def is_unharmed(doors: Doors) -> bool:
    with Wire(doors.clients) as connection:
        answer = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=doors.topic)]), 12)
    return [broker.node_id for broker in answer.brokers] == [1] and answer.topics[0].partitions[
        0
    ].leader_id == 1


def follower_fetch(port: int, topic: str, replica: int, version: int, leader_epoch: int = -1) -> ErrorCode:
    partition = FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=leader_epoch
    )
    request = FetchRequest(
        replica_id=replica if version < 15 else -1,
        replica_state=ReplicaState(replica_id=replica if version >= 15 else -1, replica_epoch=-1),
        max_wait_ms=0,
        max_bytes=1 << 20,
        session_epoch=-1,
    )
    with Wire(port) as connection:
        if version >= 13:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            topic_id = connection.call(asked, 12).topics[0].topic_id
            request.topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
        else:
            request.topics = [FetchTopic(topic=topic, partitions=[partition])]
        answer = connection.call(request, version)
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def test_clients_are_not_brokers(doors: Doors) -> None:
    """On the listener for clients, nothing of the kind is obeyed, whatever epochs it names."""
    for request in from_a_controller() + from_a_controller(1, 0) + from_brokers():
        assert error_of(doors.clients, request) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request
    for version in (4, 12, 17):
        found = follower_fetch(doors.clients, doors.topic, 1, version)
        assert found is ErrorCode.TOPIC_AUTHORIZATION_FAILED, version
    epochs = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    offsets = ListOffsetsPartition(partition_index=0, timestamp=-1)
    with Wire(doors.clients) as connection:
        # Who names itself a broker is served as a consumer, as these only read: kafka-python 3.1 sends 0.
        for replica in (0, 1, -1):
            topic = OffsetForLeaderTopic(topic=doors.topic, partitions=[epochs])
            ends = connection.call(OffsetForLeaderEpochRequest(replica_id=replica, topics=[topic]), 4)
            assert ends.topics[0].partitions[0].error_code == 0
            asked = ListOffsetsTopic(name=doors.topic, partitions=[offsets])
            found_offsets = connection.call(ListOffsetsRequest(replica_id=replica, topics=[asked]), 8)
            assert found_offsets.topics[0].partitions[0].error_code == 0
    assert is_unharmed(doors)


def test_a_controller_has_been_elected(doors: Doors) -> None:
    """Where brokers speak, a request must name the broker's registration, and an epoch that ZooKeeper knows."""
    for request in from_a_controller(broker_epoch=-1):
        assert error_of(doors.brokers, request) is ErrorCode.STALE_BROKER_EPOCH
    for request in from_a_controller(broker_epoch=2**60):
        assert error_of(doors.brokers, request) is ErrorCode.STALE_CONTROLLER_EPOCH
    partition = StopReplicaPartitionState(partition_index=0, leader_epoch=1000, delete_partition=True)
    request = from_a_controller(broker_epoch=2**60)[1]
    request.topic_states = [StopReplicaTopicState(topic_name=doors.topic, partition_states=[partition])]
    assert error_of(doors.brokers, request) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert is_unharmed(doors)
    # The real controller is obeyed.
    create_topic(doors.cluster.brokers[1], unique("after"))


def test_brokers_name_their_registration(doors: Doors) -> None:
    for request in from_brokers(broker_epoch=-1):
        assert error_of(doors.brokers, request) is ErrorCode.STALE_BROKER_EPOCH


def test_a_follower_is_a_replica(doors: Doors) -> None:
    for version, epoch, code in (
        (4, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (12, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (12, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (17, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        for replica in (7, 1):
            found = follower_fetch(doors.brokers, doors.topic, replica, version, epoch)
            assert found is code, (version, epoch, replica)
