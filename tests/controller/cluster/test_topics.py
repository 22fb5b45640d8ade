"""Topics that are created, grow and are deleted, by the controller and by other processes."""

from __future__ import annotations

import io

from tests.support.fakebrokers import OLD_VERSIONS, FakeCluster
from tests.support.waiting import until

from ottla_broker.controller.api import MorePartitions, NewTopic, TopicToDelete
from ottla_broker.store.keys import (
    Assignment,
    ConfigNode,
    DeleteTopicNode,
    PartitionState,
    TopicNode,
    TopicPartitionStateNode,
)
from ottla_protocol.errors import ErrorCode


async def test_a_new_topic_has_leaders_and_is_known(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    (made,) = await candidate.api.create_topics(
        [NewTopic("t", 6, 3, configs={"retention.ms": "1000"})], False
    )
    assert made.error == ErrorCode.NONE
    assert (made.num_partitions, made.replication_factor) == (6, 3)
    for index in range(6):
        state = await cluster.state("t", index)
        assert state.leader_epoch == 0
        assert sorted(state.isr) == [1, 2, 3]
        assert ("t", index) in cluster.brokers[state.leader].leads()
        for broker in cluster.brokers.values():
            # The leaders have responded; the other brokers may not know yet.
            await until(lambda b=broker, i=index: ("t", i) in b.states and ("t", i) in b.metadata)
            assert broker.states["t", index].leader == state.leader
            assert ("t", index) in broker.new
            assert broker.metadata["t", index].leader == state.leader
    # The leaders are spread.
    assert {(await cluster.state("t", index)).leader for index in range(6)} == {1, 2, 3}
    data, _ = await cluster.store.get(TopicNode.path("t"))
    assert TopicNode.decode("t", data)[0] == made.topic_id
    data, _ = await cluster.store.get(ConfigNode.path("topics", "t"))
    assert ConfigNode.decode("", data) == {"retention.ms": "1000"}


async def test_invalid_topics_are_refused(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("a.b", 1, 1)], False)
    outcomes = await candidate.api.create_topics(
        [
            NewTopic("a.b", 1, 1),
            NewTopic("a_b", 1, 1),
            NewTopic("x/y", 1, 1),
            NewTopic("many", 1, 4),
            NewTopic("none", 0, 1),
            NewTopic("hand", assignments={0: [1, 9]}),
            NewTopic("bad", 1, 1, configs={"retention.ms": "x"}),
            NewTopic("__cluster_metadata", 1, 1),
            NewTopic("good", 1, 1),
        ],
        False,
    )
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert await cluster.store.children(TopicNode.PARENT) == ["a.b", "good"]


async def test_validation_creates_nothing(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    (made,) = await candidate.api.create_topics([NewTopic("t", 2, 2)], True)
    assert (made.error, made.num_partitions) == (ErrorCode.NONE, 2)
    assert await cluster.store.children(TopicNode.PARENT) == []


async def test_many_partitions_go_into_several_transactions(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    (made,) = await candidate.api.create_topics([NewTopic("wide", 250, 3)], False)
    assert made.error == ErrorCode.NONE
    assert len(await cluster.store.children("/brokers/topics/wide/partitions")) == 250
    assert sum(len(broker.leads()) for broker in cluster.brokers.values()) == 250


async def test_replicas_are_spread_over_racks(cluster: FakeCluster) -> None:
    cluster.racks = {1: "a", 2: "a", 3: "b"}
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("t", 6, 2)], False)
    for index in range(6):
        assert 3 in (await cluster.state("t", index)).isr


async def test_a_topic_created_by_another_process_gets_leaders_and_an_id(cluster: FakeCluster) -> None:
    await cluster.three()
    await cluster.store.create(TopicNode.path("foreign"), TopicNode.encode(None, {0: Assignment([2, 3])}))
    await until(lambda: ("foreign", 0) in cluster.brokers[2].leads())
    assert (await cluster.state("foreign", 0)).isr == [2, 3]
    # It gets an id, because leaders use it in requests.
    data, _ = await cluster.store.get(TopicNode.path("foreign"))
    topic_id, assignments = TopicNode.decode("foreign", data)
    assert topic_id is not None
    await until(lambda: cluster.brokers[2].ids.get(topic_id) == "foreign")
    assert assignments == {0: Assignment([2, 3])}


async def test_an_unreadable_topic_is_left_out_until_it_is_readable(
    cluster: FakeCluster, events_log: io.StringIO
) -> None:
    candidate = await cluster.three()
    await cluster.store.create(TopicNode.path("torn"), b'{"partitions": ')
    await until(lambda: "torn" in events_log.getvalue())
    (made,) = await candidate.api.create_topics([NewTopic("whole", 1, 3)], False)
    assert made.error == ErrorCode.NONE
    await cluster.store.set(TopicNode.path("torn"), TopicNode.encode(None, {0: Assignment([1])}))
    await until(lambda: ("torn", 0) in cluster.brokers[1].leads())


async def test_partitions_are_added(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("t", 2, 2)], False)
    outcomes = await candidate.api.create_partitions(
        [MorePartitions("t", 5), MorePartitions("absent", 3), MorePartitions("t", 1)], False
    )
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS,
    ]
    for index in range(5):
        assert len((await cluster.state("t", index)).isr) == 2
    assert len(candidate.sync_metadata().topic("t").partitions) == 5
    outcomes = await candidate.api.create_partitions([MorePartitions("t", 6, [[3, 1]])], False)
    assert outcomes[0].error == ErrorCode.NONE
    assert (await cluster.state("t", 5)).leader == 3


async def test_partitions_added_by_another_process_get_leaders(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("t", assignments={0: [1, 2]})], False)
    data, _ = await cluster.store.get(TopicNode.path("t"))
    topic_id, assignments = TopicNode.decode("t", data)
    assignments[1] = Assignment([3, 2])
    await cluster.store.set(TopicNode.path("t"), TopicNode.encode(topic_id, assignments))
    await until(lambda: ("t", 1) in cluster.brokers[3].leads())
    # And the controller continues from there.
    outcomes = await candidate.api.create_partitions([MorePartitions("t", 3)], False)
    assert outcomes[0].error == ErrorCode.NONE


async def test_old_brokers_get_old_versions(cluster: FakeCluster) -> None:
    await cluster.add(1, 2)
    await cluster.add(3, versions=OLD_VERSIONS)
    candidate = await cluster.controller(1)
    await until(lambda: len(cluster.brokers[3].live) == 3)
    (made,) = await candidate.api.create_topics([NewTopic("t", 3, 3)], False)
    assert made.error == ErrorCode.NONE
    await until(lambda: len(cluster.brokers[3].leads()) == 1 and len(cluster.brokers[3].metadata) == 3)


async def test_a_deleted_topic_is_gone_everywhere(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("t", 3, 3), NewTopic("stays", 1, 1)], False)
    outcomes = await candidate.api.delete_topics([TopicToDelete("t"), TopicToDelete("absent")])
    assert [outcome.error for outcome in outcomes] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await cluster.store.children(TopicNode.PARENT) == ["stays"]
    assert await cluster.store.children(DeleteTopicNode.PARENT) == []
    assert await cluster.store.children("/config/topics") == ["stays"]
    for broker in cluster.brokers.values():
        assert sorted(broker.deleted) == [("t", 0), ("t", 1), ("t", 2)]
        await until(lambda b=broker: not any(name == "t" for name, _ in b.metadata))
    # Its name is free at once.
    (made,) = await candidate.api.create_topics([NewTopic("t", 1, 3)], False)
    assert made.error == ErrorCode.NONE


async def test_a_topic_is_deleted_by_its_id(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    (made,) = await candidate.api.create_topics([NewTopic("t", 1, 1)], False)
    outcomes = await candidate.api.delete_topics(
        [TopicToDelete(None, made.topic_id), TopicToDelete(None, b"x" * 16)]
    )
    assert [outcome.error for outcome in outcomes] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    assert outcomes[0].name == "t"
    assert await cluster.store.children(TopicNode.PARENT) == []


async def test_a_deletion_requested_by_another_process_is_done(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("t", 1, 3)], False)
    await cluster.store.create(DeleteTopicNode.path("absent"))
    await cluster.store.create(DeleteTopicNode.path("t"))
    await until(lambda: all(broker.deleted for broker in cluster.brokers.values()))
    await cluster.until_empty(DeleteTopicNode.PARENT)
    assert await cluster.store.children(TopicNode.PARENT) == []


async def test_deletion_can_be_forbidden(cluster: FakeCluster) -> None:
    candidate = await cluster.three(delete_topic_enable="false")
    await candidate.api.create_topics([NewTopic("t", 1, 3)], False)
    await cluster.store.create(DeleteTopicNode.path("t"))
    await cluster.until_empty(DeleteTopicNode.PARENT)
    assert await cluster.store.children(TopicNode.PARENT) == ["t"]


async def test_a_missing_broker_holds_a_deletion_up(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("t", 2, 3)], False)
    cluster.brokers[3].die()
    await cluster.unregister(3)
    await until(lambda: set(cluster.brokers[1].live) == {1, 2})
    (outcome,) = await candidate.api.delete_topics([TopicToDelete("t")])
    assert outcome.error == ErrorCode.NONE
    assert await cluster.store.children(TopicNode.PARENT) == ["t"]
    (made,) = await candidate.api.create_topics([NewTopic("t", 1, 1)], False)
    assert (made.error, made.message) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 't' is marked for deletion.",
    )
    cluster.brokers[3].revive()
    await cluster.register(3)
    await cluster.until_empty(TopicNode.PARENT)
    assert sorted(cluster.brokers[3].deleted) == [("t", 0), ("t", 1)]


async def test_a_broker_that_restarts_while_it_deletes_is_asked_again(cluster: FakeCluster) -> None:
    """The earlier request gets no response, or an error, which arrives after the broker has come back."""
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("t", 2, 3)], False)
    broker = cluster.brokers[3]
    broker.silent = True
    await cluster.store.create(DeleteTopicNode.path("t"))
    await until(lambda: all(cluster.brokers[number].deleted for number in (1, 2)))
    broker.silent = False
    await cluster.register(3, again=True)
    await cluster.until_empty(TopicNode.PARENT)
    assert sorted(broker.deleted) == [("t", 0), ("t", 1)]


async def test_a_replica_that_is_not_deleted_holds_a_deletion_up(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("t", 1, 3)], False)
    cluster.brokers[2].failing["t", 0] = ErrorCode.KAFKA_STORAGE_ERROR
    await candidate.api.delete_topics([TopicToDelete("t")])
    assert await cluster.store.children(TopicNode.PARENT) == ["t"]
    cluster.brokers[2].failing.clear()
    await cluster.unregister(2)
    await cluster.register(2)
    await cluster.until_empty(TopicNode.PARENT)


async def test_a_deletion_outlives_its_controller(cluster: FakeCluster) -> None:
    first = await cluster.three()
    await first.api.create_topics([NewTopic("t", 1, 3)], False)
    for broker in cluster.brokers.values():
        broker.silent = True
    await cluster.store.create(DeleteTopicNode.path("t"))
    active = first.active
    assert active is not None
    await until(lambda: "t" in active.context.deleting)
    await first.close()
    for broker in cluster.brokers.values():
        broker.silent = False
    await cluster.controller(2)
    await cluster.until_empty(TopicNode.PARENT)
    assert all(("t", 0) in broker.deleted for broker in cluster.brokers.values())


async def test_invalid_states_do_not_affect_other_topics(
    cluster: FakeCluster, events_log: io.StringIO
) -> None:
    await cluster.store.create(TopicNode.path("t"), TopicNode.encode(None, {0: Assignment([1, 2])}))
    path = TopicPartitionStateNode.path("t", 0)
    await cluster.store.create(path, b"not json", parents=True)
    await cluster.store.create(TopicNode.path("u"), TopicNode.encode(None, {0: Assignment([2, 1])}))
    state = TopicPartitionStateNode.encode(PartitionState(2, 7, [2, 1], 0))
    await cluster.store.create(TopicPartitionStateNode.path("u", 0), state, parents=True)
    await cluster.three()
    await until(lambda: ("u", 0) in cluster.brokers[2].leads())
    assert "partitions/0/state" in events_log.getvalue()
    assert cluster.brokers[2].states["u", 0].leader_epoch == 7
