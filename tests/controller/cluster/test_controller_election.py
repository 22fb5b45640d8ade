"""There is one controller at a time, and a replaced one can't write."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from tests.support.fakebrokers import FakeCluster
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker.clock import SystemClock
from ottla_broker.controller.api import NewTopic, TopicToDelete
from ottla_broker.controller.cluster.controller_election import ControllerElection
from ottla_broker.controller.cluster.persistence import ControllerMovedError
from ottla_broker.store.keys import ControllerEpochNode, ControllerNode
from ottla_broker.store.zookeeper import ZooKeeperStore
from ottla_protocol.errors import ErrorCode


async def test_another_controller_is_elected_when_one_leaves(cluster: FakeCluster) -> None:
    await cluster.add(1, 2)
    first = await cluster.controller(1)
    await until(lambda: first.active is not None)
    second = await cluster.controller(2)
    await until(lambda: second.known_controllers == [1])
    assert second.active is None
    data, _ = await cluster.store.get(ControllerEpochNode.PATH)
    assert ControllerEpochNode.decode(data) == 1
    await first.close()
    assert (first.elected, first.resigned) == (1, 1)
    await until(lambda: second.active is not None)
    assert second.known_controllers[-1] == 2
    data, _ = await cluster.store.get(ControllerEpochNode.PATH)
    assert ControllerEpochNode.decode(data) == 2
    await until(lambda: all(broker.controller_epoch == 2 for broker in cluster.brokers.values()))


async def test_one_of_many_candidates_wins(cluster: FakeCluster) -> None:
    await cluster.add(1, 2, 3, 4)
    candidates = await asyncio.gather(*(cluster.controller(each) for each in (1, 2, 3, 4)))
    await until(lambda: all(candidate.known_controllers for candidate in candidates))
    await until(lambda: len({candidate.known_controllers[-1] for candidate in candidates}) == 1)
    assert sum(candidate.active is not None for candidate in candidates) == 1
    assert sum(candidate.elected for candidate in candidates) == 1


async def test_a_broker_that_resigned_can_be_elected_again(cluster: FakeCluster) -> None:
    await cluster.add(1)
    candidate = await cluster.controller(1)
    await until(lambda: candidate.elected == 1)
    candidate.election.resign()
    await until(lambda: candidate.elected == 2)
    assert candidate.resigned == 1


async def test_a_dead_controller_is_replaced_before_its_session_ends(cluster: FakeCluster) -> None:
    await cluster.add(1, 2)
    first = await cluster.controller(1)
    await until(lambda: first.active is not None)
    second = await cluster.controller(2)
    await until(lambda: second.known_controllers == [1])
    # Only that broker is replaced.
    second.election.take_over(3)
    await asyncio.sleep(0.1)
    assert second.active is None
    second.election.take_over(1)
    await until(lambda: second.active is not None)
    # The old controller was alive after all: it finds its node gone.
    await until(lambda: first.resigned == 1)
    await until(lambda: first.known_controllers[-1] == 2)
    assert first.active is None


async def test_only_one_of_two_brokers_takes_over(cluster: FakeCluster) -> None:
    await cluster.add(1, 2, 3)
    first = await cluster.controller(1)
    await until(lambda: first.active is not None)
    others = [await cluster.controller(2), await cluster.controller(3)]
    await until(lambda: all(other.known_controllers == [1] for other in others))
    for other in others:
        other.election.take_over(1)
    await until(lambda: any(other.active for other in others))
    await until(lambda: len({c.known_controllers[-1] for c in (first, *others)}) == 1)
    assert sum(other.elected for other in others) == 1


async def test_a_node_of_an_earlier_process_is_replaced(cluster: FakeCluster) -> None:
    await cluster.add(1)
    await cluster.store.create(ControllerNode.PATH, ControllerNode.encode(1, 0), ephemeral=True)
    candidate = await cluster.controller(1)
    await until(lambda: candidate.active is not None)
    assert await candidate.store.ephemeral_owner(ControllerNode.PATH) == candidate.store.session_id


async def test_an_unreadable_controller_node_blocks_the_election(
    cluster: FakeCluster, events_log: io.StringIO
) -> None:
    await cluster.add(1)
    await cluster.store.create(ControllerNode.PATH, b"{", ephemeral=True)
    candidate = await cluster.controller(1)
    await until(lambda: "no controller can be elected" in events_log.getvalue())
    assert candidate.active is None
    await cluster.store.delete(ControllerNode.PATH)
    await until(lambda: candidate.active is not None)


async def test_a_stale_controller_cannot_write(cluster: FakeCluster) -> None:
    """It doesn't know yet that it has been replaced: every kind of write fails, and it resigns."""
    await cluster.add(1, 2, 3)
    stale = await cluster.controller(1)
    await until(lambda: len(cluster.brokers[3].live) == 3)
    await stale.api.create_topics([NewTopic("t", assignments={0: [2, 3], 1: [3, 1]})], False)
    old = stale.active
    assert old is not None
    # A second one takes over without the first noticing.
    data, version = await cluster.store.get(ControllerEpochNode.PATH)
    epoch = ControllerEpochNode.decode(data)
    await cluster.store.set(ControllerEpochNode.PATH, ControllerEpochNode.encode(epoch + 1), version)
    new = await cluster.controller(2)
    successor = new.make(epoch + 1, version + 1)
    successor.start()
    await until(lambda: cluster.brokers[3].controller_epoch == epoch + 1)
    context, persistence = old.context, old._persistence
    view = context.view(("t", 0))
    assert view is not None
    topic = context.topics["t"]
    before = await cluster.store.get("/brokers/topics/t")
    for write in (
        lambda: persistence.write_states({("t", 0): (view.state._replace(leader=3), view.version)}),
        lambda: persistence.create_states({("t", 7): view.state}),
        lambda: persistence.set_assignments(topic, {}),
        lambda: persistence.request_deletion("t"),
        lambda: persistence.remove_topic(topic),
        lambda: old.allocate_producer_ids(2, -1),
        lambda: persistence.remove_node("/config/topics/t"),
    ):
        with pytest.raises(ControllerMovedError):
            await write()
    assert await cluster.state("t", 0) == view.state
    assert await cluster.store.get("/brokers/topics/t") == before
    assert await cluster.store.exists("/config/topics/t")
    # It refuses clients' requests, and has noticed now.
    (made,) = await stale.api.create_topics([NewTopic("u", 1, 1)], False)
    assert made.error == ErrorCode.NOT_CONTROLLER
    assert stale.moved == 1
    (gone,) = await stale.api.delete_topics([TopicToDelete("t")])
    assert gone.error == ErrorCode.NOT_CONTROLLER
    assert not await cluster.store.exists("/brokers/topics/u")
    await successor.close()


async def test_a_stale_controller_finds_out_from_the_brokers(cluster: FakeCluster) -> None:
    await cluster.add(1, 2, 3)
    stale = await cluster.controller(1)
    await until(lambda: len(cluster.brokers[3].live) == 3)
    _, version = await cluster.store.get(ControllerEpochNode.PATH)
    await cluster.store.set(ControllerEpochNode.PATH, ControllerEpochNode.encode(9), version)
    cluster.brokers[2].controller_epoch = 9
    active = stale.active
    assert active is not None

    async def tell() -> None:
        batch = active.new_batch()
        batch.update_metadata([2])
        await batch.send()

    await active.events.do(tell, 60)
    await until(lambda: stale.moved == 1)


async def test_a_change_waits_for_zookeeper(tmp_path: Path) -> None:
    """The same controller handles events from ZooKeeper's downtime when it is back."""
    zookeeper = ZooKeeperProcess(tmp_path)
    zookeeper.start()
    cluster = await FakeCluster.open(f"{zookeeper.address}/c")
    try:
        await change_while_away(cluster, zookeeper)
    finally:
        await cluster.close()
        zookeeper.kill()


async def change_while_away(cluster: FakeCluster, zookeeper: ZooKeeperProcess) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics(
        [NewTopic("t", assignments={index: [2, 3, 1] for index in range(20)})], False
    )
    zookeeper.kill()
    try:
        cluster.brokers[2].die()
        making = asyncio.ensure_future(candidate.api.create_topics([NewTopic("u", 1, 1)], False))
        await asyncio.sleep(1)
        assert all(state.leader == 2 for state in cluster.brokers[3].states.values())
    finally:
        zookeeper.start()
    for index in range(20):
        await cluster.until_state("t", index, lambda state: state.isr == [3, 1])
    await until(lambda: len(cluster.brokers[3].leads()) >= 20)
    (made,) = await making
    # The topic may or may not have been created before the client got an error.
    assert made.error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
    (later,) = await candidate.api.create_topics([NewTopic("v", 1, 2)], False)
    if candidate.active is not None:
        assert later.error == ErrorCode.NONE


async def test_a_controller_resigns_when_its_session_ends(cluster: FakeCluster) -> None:
    await cluster.add(1)
    candidate = await cluster.controller(1)
    await until(lambda: candidate.active is not None)
    await candidate.store.close()
    await until(lambda: candidate.resigned == 1)


async def test_a_session_that_ends_before_the_first_election_ends_it(cluster: FakeCluster) -> None:
    """Otherwise the broker would stay without a session for ever."""

    async def nothing(*news: int) -> None:
        raise AssertionError("no callback is expected")

    store = await ZooKeeperStore.open(cluster.settings)
    await store.close()
    clock = SystemClock(asyncio.get_running_loop())
    await ControllerElection(store, 1, clock, nothing, nothing, lambda controller: None).run()
