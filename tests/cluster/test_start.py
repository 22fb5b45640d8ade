"""The answers of a broker that has just started, before the controller's first request."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.cluster.test_cluster import create
from tests.support.cluster import Cluster
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.metadata import MetadataResponse
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def first_answer(cluster: Cluster, number: int) -> MetadataResponse:
    deadline = time.monotonic() + 60
    while True:
        try:
            return cluster.metadata(number, ["t"])
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_a_restarted_broker_never_returns_empty_metadata(
    new_cluster: Callable[..., Cluster],
) -> None:
    """Empty metadata would make clients forget all brokers and topics."""
    cluster = new_cluster()
    create(cluster, "t")
    cluster.wait_in_sync("t", 3)
    for number, broker in cluster.brokers.items():
        broker.kill()
        broker.spawn()
        answer = first_answer(cluster, number)
        assert number in {each.node_id for each in answer.brokers}
        assert answer.controller_id in cluster.brokers
        cluster.wait_in_sync("t", 3)


def test_clients_are_answered_after_a_new_controllers_topics(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = new_cluster()
    create(cluster, "t")
    cluster.wait_in_sync("t", 3)
    for broker in cluster.brokers.values():
        broker.kill()
    for broker in cluster.brokers.values():
        broker.spawn()
    for number in cluster.brokers:
        answer = first_answer(cluster, number)
        assert answer.topics[0].error_code == 0
    cluster.wait_in_sync("t", 3)


def test_commits_before_topics_are_known_are_redirected(new_cluster: Callable[..., Cluster]) -> None:
    """A member may still use the broker as its coordinator. For librdkafka an unknown topic is a permanent error."""
    cluster = new_cluster(settings={"zookeeper.session.timeout.ms": 20_000})
    create(cluster, "t")
    controller = cluster.controller()
    cluster.freeze(controller)
    broker = cluster.brokers[controller % 3 + 1]
    broker.kill()
    broker.spawn()
    topic = OffsetCommitRequestTopic(
        name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            with Wire(broker.port) as connection:
                answer = connection.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
