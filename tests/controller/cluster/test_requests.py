"""Requests of brokers and clients to the controller: in-sync replicas, producer ids, elections, moves."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest
from tests.support.fakebrokers import Candidate, FakeCluster
from tests.support.waiting import until

from ottla_broker.controller.api import MorePartitions, NewTopic, TopicToDelete
from ottla_broker.store.api import UnknownOutcomeError
from ottla_broker.store.keys import (
    Assignment,
    PartitionState,
    ProducerIdBlockNode,
    TopicNode,
    TopicPartitionStateNode,
)
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla_protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from ottla_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla_protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


async def make(candidate: Candidate, *replicas: int, name: str = "t") -> bytes:
    topic = NewTopic(name, assignments={0: list(replicas)})
    (made,) = await candidate.api.create_topics([topic], False)
    assert made.error == ErrorCode.NONE
    return made.topic_id


async def change(
    cluster: FakeCluster,
    candidate: Candidate,
    topic_id: bytes,
    isr: list[int],
    *,
    broker: int,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    epochs: dict[int, int] | None = None,
) -> Any:
    """Ask for in-sync replicas as a leader does; returns the partition's response."""
    data = PartitionData(
        partition_index=0,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        new_isr_with_epochs=[
            BrokerState(broker_id=each, broker_epoch=(epochs or {}).get(each, -1)) for each in isr
        ],
    )
    request = AlterPartitionRequest(
        broker_id=broker,
        broker_epoch=await cluster.epoch(broker),
        topics=[TopicData(topic_id=topic_id, partitions=[data])],
    )
    answer = await candidate.handle(request, 3)
    assert answer.error_code == ErrorCode.NONE
    return answer.topics[0].partitions[0]


async def test_a_leader_changes_its_in_sync_replicas(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    topic_id = await make(candidate, 2, 3, 1)
    answer = await change(cluster, candidate, topic_id, [2, 3], broker=2)
    assert (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch) == (0, [2, 3], 0, 1)
    assert (await cluster.state("t", 0)).isr == [2, 3]
    await until(lambda: cluster.brokers[1].metadata["t", 0].isr == [2, 3])
    epochs = {each: await cluster.epoch(each) for each in (1, 2, 3)}
    answer = await change(cluster, candidate, topic_id, [2, 3, 1], broker=2, partition_epoch=1, epochs=epochs)
    assert (answer.error_code, answer.partition_epoch) == (0, 2)
    # Repeating the request is no error: the first response may have been lost.
    answer = await change(cluster, candidate, topic_id, [2, 3, 1], broker=2, partition_epoch=1)
    assert (answer.error_code, answer.partition_epoch) == (0, 2)


async def test_invalid_changes_are_refused(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    topic_id = await make(candidate, 2, 3)
    await change(cluster, candidate, topic_id, [2], broker=2)
    ask: dict[str, Any] = {"broker": 2, "partition_epoch": 1}
    for isr, override, error in (
        ([2, 3], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([2, 3], {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([2, 3], {"partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ([2, 3], {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ([3], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([2, 1], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {"epochs": {3: 1}}, ErrorCode.INELIGIBLE_REPLICA),
    ):
        answer = await change(cluster, candidate, topic_id, isr, **{**ask, **override})
        assert answer.error_code == error, (isr, override)
    assert (await change(cluster, candidate, b"x" * 16, [2], **ask)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    cluster.brokers[3].die()
    await until(lambda: 3 not in cluster.brokers[1].live)
    answer = await change(cluster, candidate, topic_id, [2, 3], **ask)
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert (await cluster.state("t", 0)).isr == [2]


class BreakingStore:
    """A store whose connection breaks during the first ``times`` writes: after they are made, or before."""

    def __init__(self, store: Any, times: float, made: bool) -> None:
        self._store = store
        self._left = times
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def transaction(self, operations: Any) -> Any:
        if self._left <= 0:
            return await self._store.transaction(operations)
        self._left -= 1
        if self._made:
            await self._store.transaction(operations)
        raise UnknownOutcomeError("the connection broke")


@pytest.mark.parametrize(("times", "made"), [(1, True), (1, False), (3, False)])
async def test_a_change_is_made_although_the_connection_breaks(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, times: int, made: bool
) -> None:
    """With an error the leader would wait for ever for another process's change."""
    candidate = await cluster.three()
    topic_id = await make(candidate, 2, 3)
    assert candidate.active is not None
    store = BreakingStore(cluster.store, times, made)
    monkeypatch.setattr(candidate.active._persistence, "_store", store)
    answer = await change(cluster, candidate, topic_id, [2], broker=2)
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [2], 1)
    assert (await cluster.state("t", 0)).isr == [2]
    await until(lambda: cluster.brokers[1].metadata["t", 0].isr == [2])


async def test_a_change_is_requested_again_if_the_connection_keeps_breaking(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = await cluster.three()
    topic_id = await make(candidate, 2, 3)
    assert candidate.active is not None
    data = PartitionData(partition_index=0, leader_epoch=0, new_isr_with_epochs=[BrokerState(broker_id=2)])
    request = AlterPartitionRequest(
        broker_id=2,
        broker_epoch=await cluster.epoch(2),
        topics=[TopicData(topic_id=topic_id, partitions=[data])],
    )
    with monkeypatch.context() as patched:
        store = BreakingStore(cluster.store, inf, made=False)
        patched.setattr(candidate.active._persistence, "_store", store)
        answer = await candidate.handle(request, 3)
    # An error of the whole request, so the leader repeats it.
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answer = await candidate.handle(request, 3)
    assert answer.topics[0].partitions[0].isr == [2]


async def test_only_the_registered_broker_may_change_in_sync_replicas(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    for broker, epoch, error in (
        (9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (2, 1, ErrorCode.STALE_BROKER_EPOCH),
        (2, -1, ErrorCode.STALE_BROKER_EPOCH),
    ):
        request = AlterPartitionRequest(broker_id=broker, broker_epoch=epoch)
        assert (await candidate.handle(request, 3)).error_code == error
    answer = await (await cluster.controller(2)).handle(AlterPartitionRequest(broker_id=2, broker_epoch=1), 3)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


async def test_old_versions_name_topics(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await make(candidate, 2, 3)
    data = PartitionData(partition_index=0, new_isr=[2])
    request = AlterPartitionRequest(
        broker_id=2,
        broker_epoch=await cluster.epoch(2),
        topics=[
            TopicData(topic_name="t", partitions=[data]),
            TopicData(topic_name="u", partitions=[data]),
        ],
    )
    answer = await candidate.handle(request, 1)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert answer.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_states_written_by_an_old_leader_are_read_again(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    topic_id = await make(candidate, 2, 3, 1)
    path = TopicPartitionStateNode.path("t", 0)
    await cluster.store.set(path, TopicPartitionStateNode.encode(PartitionState(2, 0, [2], 1)))
    # A request before the controller has noticed fails, and makes the controller read the state.
    answer = await change(cluster, candidate, topic_id, [2, 3], broker=2)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    await until(lambda: cluster.brokers[1].metadata["t", 0].isr == [2])
    await cluster.store.set(path, TopicPartitionStateNode.encode(PartitionState(2, 0, [2, 1], 1)))
    notice = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"x","partition":0}]}'
    await cluster.store.create("/isr_change_notification/isr_change_", notice, sequence=True)
    await until(lambda: cluster.brokers[3].metadata["t", 0].isr == [2, 1])
    await cluster.until_empty("/isr_change_notification")


async def test_blocks_of_producer_ids_never_overlap(cluster: FakeCluster) -> None:
    candidate = await cluster.three()

    async def take(broker: int) -> tuple[int, int]:
        request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=await cluster.epoch(broker))
        answer = await candidate.handle(request, 0)
        assert answer.error_code == ErrorCode.NONE
        return answer.producer_id_start, answer.producer_id_len

    blocks = sorted(await asyncio.gather(*(take(broker) for broker in (1, 2, 3, 1, 2, 3))))
    assert blocks == [(at * 1000, 1000) for at in range(6)]
    block = ProducerIdBlockNode.decode((await cluster.store.get(ProducerIdBlockNode.PATH))[0])
    assert block is not None
    assert (block.first, block.last) == (5000, 5999)
    for broker, epoch, error in (
        (9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (2, 1, ErrorCode.STALE_BROKER_EPOCH),
    ):
        request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
        assert (await candidate.handle(request, 0)).error_code == error
    answer = await (await cluster.controller(2)).handle(
        AllocateProducerIdsRequest(broker_id=2, broker_epoch=1), 0
    )
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


async def test_an_unreadable_block_is_an_error(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await cluster.store.set(ProducerIdBlockNode.PATH, b"{")
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=await cluster.epoch(2))
    answer = await candidate.handle(request, 0)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def elect(candidate: Candidate, kind: int, *partitions: tuple[str, int]) -> dict[Any, Any]:
    asked = None
    if partitions:
        asked = [TopicPartitions(topic=name, partitions=[index]) for name, index in partitions]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=10000)
    answer = await candidate.handle(request, 2)
    return {
        (topic.topic, result.partition_id): ErrorCode(result.error_code)
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }


async def bounce(cluster: FakeCluster, broker: int) -> None:
    """Let a broker lose its leadership, and come back in sync with nothing."""
    cluster.brokers[broker].die()
    await until(lambda: broker not in cluster.brokers[1].live)
    cluster.brokers[broker].revive()
    await until(lambda: broker in cluster.brokers[1].live)


async def test_the_preferred_replica_is_elected_by_request(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    topic_id = await make(candidate, 2, 3)
    await make(candidate, 1, 3, name="fine")
    await bounce(cluster, 2)
    assert await elect(candidate, 0, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    answer = await change(cluster, candidate, topic_id, [3, 2], broker=3, leader_epoch=1, partition_epoch=1)
    assert answer.error_code == ErrorCode.NONE
    assert await elect(candidate, 0, ("t", 0), ("fine", 0), ("none", 0)) == {
        ("t", 0): ErrorCode.NONE,
        ("fine", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (await cluster.state("t", 0)).leader == 2
    # For all partitions, those that need no election are left out.
    assert await elect(candidate, 0) == {}
    other = await cluster.controller(2)
    assert await elect(other, 0, ("t", 0)) == {("t", 0): ErrorCode.NOT_CONTROLLER}
    assert await elect(candidate, 7, ("t", 0)) == {("t", 0): ErrorCode.INVALID_REQUEST}


async def test_an_unclean_leader_is_elected_by_request(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await make(candidate, 2, 3)
    await bounce(cluster, 2)
    assert await elect(candidate, 1, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    cluster.brokers[3].die()
    await cluster.until_state("t", 0, lambda state: state.leader == -1)
    assert await elect(candidate, 1, ("t", 0)) == {("t", 0): ErrorCode.NONE}
    state = await cluster.state("t", 0)
    assert (state.leader, state.isr) == (2, [2])
    cluster.brokers[2].die()
    await cluster.until_state("t", 0, lambda state: state.leader == -1)
    assert await elect(candidate, 1, ("t", 0)) == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


async def test_the_balancer_elects_preferred_replicas(cluster: FakeCluster) -> None:
    candidate = await cluster.three(leader_imbalance_check_interval_seconds="1")
    topic_id = await make(candidate, 2, 3)
    await bounce(cluster, 2)
    await change(cluster, candidate, topic_id, [3, 2], broker=3, leader_epoch=1, partition_epoch=1)
    await cluster.until_state("t", 0, lambda state: state.leader == 2)


async def test_a_balanced_enough_cluster_is_left_alone(cluster: FakeCluster) -> None:
    candidate = await cluster.three(leader_imbalance_per_broker_percentage="50")
    topics = [NewTopic("t", assignments={0: [2, 3], 1: [2, 1], 2: [2, 1], 3: [2, 1]})]
    (made,) = await candidate.api.create_topics(topics, False)
    active = candidate.active
    assert active is not None
    await bounce(cluster, 2)
    # Two of four are led elsewhere, that is not more than half.
    for index, leader in ((0, 3), (1, 1), (2, 1), (3, 1)):
        data = PartitionData(partition_index=index, leader_epoch=1, partition_epoch=1, new_isr=[leader, 2])
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=await cluster.epoch(leader),
            topics=[TopicData(topic_id=made.topic_id, partitions=[data])],
        )
        await candidate.handle(request, 2)
    assert set((await elect(candidate, 0, ("t", 0), ("t", 1))).values()) == {ErrorCode.NONE}
    await active.events.do(active.leader_balancer.rebalance, 60)
    assert [(await cluster.state("t", index)).leader for index in range(4)] == [2, 2, 1, 1]


async def test_elections_and_moves_are_requested_by_nodes_too(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    topic_id = await make(candidate, 2, 3)
    await bounce(cluster, 2)
    await change(cluster, candidate, topic_id, [3, 2], broker=3, leader_epoch=1, partition_epoch=1)
    asked = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"no","partition":0}]}'
    for data in (b"{", b'{"partitions":[1]}', asked):
        await cluster.store.create("/admin/preferred_replica_election", data)

        async def taken() -> bool:
            return not await cluster.store.exists("/admin/preferred_replica_election")

        await cluster.until(taken)
    assert (await cluster.state("t", 0)).leader == 2
    for data in (
        b"{",
        b'{"partitions":[{"topic":"t"}]}',
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]},'
        b'{"topic":"no","partition":0,"replicas":[2]}]}',
    ):
        await cluster.store.create("/admin/reassign_partitions", data)

        async def gone() -> bool:
            return not await cluster.store.exists("/admin/reassign_partitions")

        await cluster.until(gone)
    assert (await cluster.state("t", 0)).isr == [2]


async def assignment(cluster: FakeCluster, name: str = "t") -> Assignment:
    return TopicNode.decode(name, (await cluster.store.get(TopicNode.path(name)))[0])[1][0]


async def until_assigned(cluster: FakeCluster, wanted: Assignment) -> None:
    """Wait for an assignment: it is written after the partition's state."""

    async def right() -> bool:
        return await assignment(cluster) == wanted

    await cluster.until(right)


async def move(candidate: Candidate, replicas: list[int] | None, name: str = "t") -> ErrorCode:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=10000,
        topics=[
            ReassignableTopic(
                name=name, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
            )
        ],
    )
    answer = await candidate.handle(request, 0)
    assert answer.error_code == ErrorCode.NONE
    return ErrorCode(answer.responses[0].partitions[0].error_code)


async def moving(candidate: Candidate, *names: str) -> Any:
    topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in names]
    request = ListPartitionReassignmentsRequest(topics=topics or None)
    answer = await candidate.handle(request, 0)
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return [
        (topic.name, list(p.replicas), list(p.adding_replicas), list(p.removing_replicas))
        for topic in answer.topics
        for p in topic.partitions
    ]


async def test_a_partition_moves_to_other_replicas(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await cluster.add(4)
    await until(lambda: 4 in cluster.brokers[1].live)
    topic_id = await make(candidate, 2, 3)
    assert await move(candidate, [1, 4]) == ErrorCode.NONE
    assert await assignment(cluster) == Assignment([1, 4, 2, 3], [1, 4], [2, 3])
    assert await moving(candidate) == [("t", [1, 4, 2, 3], [1, 4], [2, 3])]
    assert await moving(candidate, "t", "u") == await moving(candidate)
    assert await moving(candidate, "u") == []
    assert await moving(await cluster.controller(2)) == ErrorCode.NOT_CONTROLLER
    brokers = cluster.brokers
    await until(lambda: all(("t", 0) in brokers[each].states for each in (1, 2, 3, 4)))
    await until(lambda: brokers[2].states["t", 0].leader_epoch == 1)
    state = brokers[2].states["t", 0]
    assert state.leader == 2
    assert (state.adding_replicas, state.removing_replicas) == ([1, 4], [2, 3])
    assert ("t", 0) in cluster.brokers[4].new
    (refused,) = await candidate.api.create_partitions([MorePartitions("t", 2)], False)
    assert refused.error == ErrorCode.REASSIGNMENT_IN_PROGRESS
    # One has caught up: not enough.
    answer = await change(
        cluster, candidate, topic_id, [2, 3, 1], broker=2, leader_epoch=1, partition_epoch=1
    )
    assert answer.error_code == ErrorCode.NONE
    assert (await assignment(cluster)).adding == [1, 4]
    await change(cluster, candidate, topic_id, [2, 3, 1, 4], broker=2, leader_epoch=1, partition_epoch=2)
    await cluster.until_state("t", 0, lambda state: state.leader == 1)
    state = await cluster.state("t", 0)
    assert (state.leader_epoch, sorted(state.isr)) == (2, [1, 4])
    await until(lambda: all(("t", 0) in cluster.brokers[each].deleted for each in (2, 3)))
    await until(lambda: cluster.brokers[4].states["t", 0].leader_epoch == 2)
    assert cluster.brokers[4].states["t", 0].replicas == [1, 4]
    await until(lambda: cluster.brokers[3].metadata["t", 0].replicas == [1, 4])
    assert await assignment(cluster) == Assignment([1, 4])
    assert await moving(candidate) == []


async def test_a_move_is_cancelled(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await make(candidate, 2, 3)
    assert await move(candidate, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await move(candidate, [1]) == ErrorCode.NONE
    assert await move(candidate, None) == ErrorCode.NONE
    assert await assignment(cluster) == Assignment([2, 3])
    await until(lambda: ("t", 0) in cluster.brokers[1].deleted)
    assert (await cluster.state("t", 0)).leader == 2
    assert await moving(candidate) == []


async def test_a_move_is_redirected(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await cluster.add(4)
    await until(lambda: 4 in cluster.brokers[1].live)
    topic_id = await make(candidate, 2, 3)
    assert await move(candidate, [2, 1]) == ErrorCode.NONE
    assert await move(candidate, [2, 4]) == ErrorCode.NONE
    assert await assignment(cluster) == Assignment([2, 4, 3], [4], [3])
    await until(lambda: ("t", 0) in cluster.brokers[1].deleted)
    await change(cluster, candidate, topic_id, [2, 3, 4], broker=2, leader_epoch=2, partition_epoch=2)
    await cluster.until_state("t", 0, lambda state: sorted(state.isr) == [2, 4])
    await until_assigned(cluster, Assignment([2, 4]))


async def test_the_order_of_replicas_is_changed(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await make(candidate, 2, 3)
    assert await move(candidate, [3, 2]) == ErrorCode.NONE
    assert await assignment(cluster) == Assignment([3, 2])
    assert (await cluster.state("t", 0)).leader == 2
    assert await elect(candidate, 0, ("t", 0)) == {("t", 0): ErrorCode.NONE}
    assert (await cluster.state("t", 0)).leader == 3


async def test_invalid_moves_are_refused(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await make(candidate, 2, 3)
    for replicas in ([], [1, 1], [-1], [9]):
        assert await move(candidate, replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await move(candidate, [1], "absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = await (await cluster.controller(2)).handle(AlterPartitionReassignmentsRequest(), 0)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert await assignment(cluster) == Assignment([2, 3])


async def test_a_move_is_not_cancelled_if_that_would_lose_records(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    topic_id = await make(candidate, 2)
    assert await move(candidate, [1, 3]) == ErrorCode.NONE
    await change(cluster, candidate, topic_id, [2, 1], broker=2, leader_epoch=1, partition_epoch=1)
    cluster.brokers[2].die()
    await cluster.until_state("t", 0, lambda state: state.leader == 1)
    assert (await cluster.state("t", 0)).isr == [1]
    assert await move(candidate, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_a_move_outlives_its_controller(cluster: FakeCluster) -> None:
    first = await cluster.three()
    topic_id = await make(first, 2, 3)
    assert await move(first, [1, 3]) == ErrorCode.NONE
    await first.close()
    second = await cluster.controller(3)
    await until(lambda: second.active is not None)
    await change(cluster, second, topic_id, [2, 3, 1], broker=2, leader_epoch=1, partition_epoch=1)
    await until(lambda: ("t", 0) in cluster.brokers[2].deleted)
    await until_assigned(cluster, Assignment([1, 3]))


async def test_a_moving_topic_can_be_deleted(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await make(candidate, 2, 3)
    assert await move(candidate, [1, 3]) == ErrorCode.NONE
    (outcome,) = await candidate.api.delete_topics([TopicToDelete("t")])
    assert outcome.error == ErrorCode.NONE
    assert await cluster.store.children(TopicNode.PARENT) == []
    assert all(("t", 0) in broker.deleted for broker in cluster.brokers.values())
    assert await moving(candidate) == []


async def test_a_leaving_broker_gets_no_replicas(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await make(candidate, 2, 3)
    leaving = ControlledShutdownRequest(broker_id=1, broker_epoch=await cluster.epoch(1))
    await candidate.handle(leaving, 3)
    assert await move(candidate, [1, 3]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
