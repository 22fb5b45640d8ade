"""Brokers that die and come back at random: leaders were in sync, and all partitions get leaders in the end."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

import pytest
from tests.support.fakebrokers import Candidate, FakeCluster
from tests.support.waiting import until

from ottla_broker.controller.api import NewTopic
from ottla_broker.store.keys import PartitionState, TopicNode, TopicPartitionStateNode
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_partition import AlterPartitionRequest, PartitionData, TopicData
from ottla_protocol.messages.controlled_shutdown import ControlledShutdownRequest

_BROKERS = (2, 3, 4)
_PARTITIONS = 6


class History:
    """Every state that a partition had in the store, in order."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.states: dict[int, list[tuple[int, PartitionState]]] = {}

    async def look(self) -> None:
        for index in range(_PARTITIONS):
            path = TopicPartitionStateNode.path("t", index)
            data, version = await self._cluster.store.get(path)
            seen = self.states.setdefault(index, [])
            if not seen or seen[-1][0] != version:
                seen.append((version, TopicPartitionStateNode.decode(path, data)))

    def check(self) -> None:
        for seen in self.states.values():
            for (v0, before), (v1, after) in pairwise(seen):
                assert v0 < v1
                assert before.leader_epoch <= after.leader_epoch
                assert after.isr
                if after.leader != -1:
                    assert after.leader in after.isr
                if before.leader_epoch == after.leader_epoch:
                    assert before.leader == after.leader
                if v1 == v0 + 1 and before.leader_epoch < after.leader_epoch:
                    # A clean election adds no in-sync replica.
                    assert set(after.isr) <= set(before.isr)


async def catch_up(cluster: FakeCluster, candidate: Candidate, topic_id: bytes, index: int) -> None:
    """Ask for in-sync replicas as a leader does when all live followers have caught up."""
    state = await cluster.state("t", index)
    broker = cluster.brokers.get(state.leader)
    if broker is None or not broker.up:
        return
    _, version = await cluster.store.get(TopicPartitionStateNode.path("t", index))
    isr = sorted({state.leader, *(each for each in _BROKERS if cluster.brokers[each].up)})
    data = PartitionData(
        partition_index=index, leader_epoch=state.leader_epoch, partition_epoch=version, new_isr=isr
    )
    request = AlterPartitionRequest(
        broker_id=state.leader,
        broker_epoch=cluster.epochs[state.leader],
        topics=[TopicData(topic_id=topic_id, partitions=[data])],
    )
    await candidate.handle(request, 2)


@pytest.mark.parametrize("seed", range(6))
async def test_every_leader_was_in_sync(cluster: FakeCluster, seed: int) -> None:
    await turmoil(cluster, Random(seed))


@pytest.mark.parametrize("seed", range(6))
async def test_every_leader_was_in_sync_although_the_connection_keeps_breaking(
    cluster: FakeCluster, seed: int
) -> None:
    cluster.flaky = Random(seed + 100), 0.2
    await turmoil(cluster, Random(seed))


async def turmoil(cluster: FakeCluster, random: Random) -> None:
    await cluster.add(1, *_BROKERS)
    candidate = await cluster.controller(1)
    await until(lambda: len(cluster.brokers[4].live) == 4)
    replicas = {index: random.sample(_BROKERS, 3) for index in range(_PARTITIONS)}
    while True:
        (made,) = await candidate.api.create_topics([NewTopic("t", assignments=replicas)], False)
        if made.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            break
    topic_id, _ = TopicNode.decode("t", (await cluster.store.get(TopicNode.path("t")))[0])
    assert topic_id is not None
    history = History(cluster)
    registered = set(_BROKERS)
    for _ in range(40):
        broker = random.choice(_BROKERS)
        fake = cluster.brokers[broker]
        match random.choice(
            ["die", "back", "node goes", "node comes", "leave", "catch up", "new controller"]
        ):
            case "die":
                fake.die()
            case "back":
                fake.revive()
            case "node goes" if broker in registered:
                registered.discard(broker)
                await cluster.unregister(broker)
            case "node comes" if broker not in registered:
                registered.add(broker)
                await cluster.register(broker)
            case "leave":
                leaving = ControlledShutdownRequest(broker_id=broker, broker_epoch=cluster.epochs[broker])
                await candidate.handle(leaving, 3)
            case "catch up":
                await catch_up(cluster, candidate, topic_id, random.randrange(_PARTITIONS))
            case "new controller" if random.random() < 0.3:
                candidate.election.resign()
                # Not before another has begun.
                resigned = candidate.resigned
                await until(lambda n=resigned: candidate.resigned > n and candidate.active is not None)
        await history.look()
        if random.random() < 0.5:
            await asyncio.sleep(random.random() * 0.05)
            await history.look()
    # Everything works again, and the brokers that left register again.
    for broker in _BROKERS:
        if broker in registered:
            await cluster.unregister(broker)
        cluster.brokers[broker].revive()
        await cluster.register(broker)
    for index in range(_PARTITIONS):
        await cluster.until_state("t", index, lambda state: state.leader in _BROKERS)
        await history.look()
    history.check()

    async def reported() -> bool:
        for index in range(_PARTITIONS):
            state = await cluster.state("t", index)
            for broker in cluster.brokers.values():
                known = broker.metadata.get(("t", index))
                if known is None or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch):
                    return False
            for broker in _BROKERS:
                held = cluster.brokers[broker].states.get(("t", index))
                if held is None or (held.leader, held.leader_epoch) != (state.leader, state.leader_epoch):
                    return False
        return True

    # And all brokers know.
    await cluster.until(reported)
