"""Brokers that come, go, become unreachable, shut down, and whose disks fail."""

from __future__ import annotations

import asyncio

from tests.support.fakebrokers import FakeCluster
from tests.support.waiting import until

from ottla_broker.controller.api import NewTopic
from ottla_broker.controller.cluster import channel
from ottla_broker.store.keys import BrokerIdNode, TopicNode
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.controlled_shutdown import ControlledShutdownRequest


def by_hand(*replicas: int, name: str = "t") -> NewTopic:
    return NewTopic(name, assignments={0: list(replicas)})


async def test_a_dead_broker_loses_leadership_before_its_session_ends(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3, 1), by_hand(1, 2, name="u")], False)
    cluster.brokers[2].die()
    await cluster.until_state("t", 0, lambda state: state.leader == 3)
    state = await cluster.state("t", 0)
    assert (state.leader_epoch, state.isr) == (1, [3, 1])
    # It is no longer in sync where it followed, so acks=all goes on at once.
    await cluster.until_state("u", 0, lambda state: state.isr == [1])
    assert (await cluster.state("u", 0)).leader_epoch == 1
    await until(lambda: ("t", 0) in cluster.brokers[3].leads())
    await until(lambda: cluster.brokers[1].metadata["t", 0].offline_replicas == [2])
    assert set(cluster.brokers[1].live) == {1, 3}
    # When its node goes, nothing is left to do.
    await cluster.unregister(2)
    await asyncio.sleep(0.1)
    assert (await cluster.state("t", 0)) == state


async def test_a_broker_wrongly_judged_dead_comes_back_as_a_follower(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3, 1), by_hand(2, name="alone")], False)
    cluster.brokers[2].die()
    await cluster.until_state("t", 0, lambda state: state.leader == 3)
    await cluster.until_state("alone", 0, lambda state: state.leader == -1)
    assert (await cluster.state("alone", 0)).isr == [2]
    # It still believes that it leads in epoch 0.
    assert cluster.brokers[2].states["t", 0].leader == 2
    cluster.brokers[2].revive()
    await until(lambda: cluster.brokers[2].states["t", 0].leader == 3)
    assert cluster.brokers[2].states["t", 0].leader_epoch == 1
    await until(lambda: cluster.brokers[2].metadata["t", 0].leader == 3)
    # It leads the partitions again that no other broker had.
    await until(lambda: cluster.brokers[2].states["alone", 0].leader_epoch == 2)
    assert (await cluster.state("alone", 0)).leader == 2
    await until(lambda: set(cluster.brokers[1].live) == {1, 2, 3})


async def test_a_broker_without_a_node_is_gone_even_if_it_responds(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3, 1)], False)
    await cluster.unregister(2)
    await cluster.until_state("t", 0, lambda state: state.leader == 3)
    await until(lambda: set(cluster.brokers[1].live) == {1, 3})
    await cluster.register(2)
    await until(lambda: cluster.brokers[2].states["t", 0].leader == 3)
    await until(lambda: set(cluster.brokers[1].live) == {1, 2, 3})


async def test_a_broker_that_registers_again_has_lost_what_it_led(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3, 1)], False)
    active = candidate.active
    assert active is not None
    # Both within one event of the controller.
    event = asyncio.Event()
    active.events.post(event.wait)
    await cluster.unregister(2)
    await cluster.register(2)
    event.set()
    await until(lambda: cluster.brokers[2].states["t", 0].leader == 3)
    assert (await cluster.state("t", 0)).isr == [3, 1]


async def test_only_the_last_in_sync_replicas_can_lead_again(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3)], False)
    cluster.brokers[2].die()
    await cluster.until_state("t", 0, lambda state: state.leader == 3)
    cluster.brokers[3].die()
    await cluster.until_state("t", 0, lambda state: state.leader == -1)
    assert (await cluster.state("t", 0)).isr == [3]
    # The one that lacks records must not lead.
    cluster.brokers[2].revive()
    await until(lambda: 2 in cluster.brokers[1].live)
    assert (await cluster.state("t", 0)).leader == -1
    cluster.brokers[3].revive()
    await until(lambda: ("t", 0) in cluster.brokers[3].leads() and ("t", 0) not in cluster.brokers[2].leads())


async def test_an_unclean_leader_is_elected_where_allowed(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3)], False)
    cluster.brokers[2].die()
    await cluster.until_state("t", 0, lambda state: state.leader == 3)
    cluster.brokers[3].die()
    await cluster.until_state("t", 0, lambda state: state.leader == -1)
    cluster.brokers[2].revive()
    await until(lambda: 2 in cluster.brokers[1].live)
    # The topic's setting changes.
    cluster.unclean.add("t")
    assert candidate.active is not None
    candidate.active.leader_balancer.on_configs("t")
    await cluster.until_state("t", 0, lambda state: state.leader == 2)
    assert (await cluster.state("t", 0)).isr == [2]
    await until(lambda: candidate.active is not None and candidate.active.context.unclean_elections == 1)


async def test_a_new_broker_gets_the_full_state(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([NewTopic("t", 3, 3)], False)
    await cluster.add(4)
    await until(lambda: len(cluster.brokers[4].metadata) == 3 and len(cluster.brokers[4].live) == 4)
    await until(lambda: all(len(broker.live) == 4 for broker in cluster.brokers.values()))
    assert cluster.brokers[4].log[0] == "UpdateMetadataRequest"


async def test_a_request_that_a_broker_cannot_carry_out_is_repeated(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    cluster.brokers[2].unable = 3
    (made,) = await candidate.api.create_topics([by_hand(2, 3)], False)
    assert made.error == ErrorCode.NONE
    assert ("t", 0) in cluster.brokers[2].leads()


async def test_a_broken_connection_loses_nothing(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    cluster.brokers[2].silent = True
    making = asyncio.ensure_future(candidate.api.create_topics([by_hand(2, 3)], False))
    await until(lambda: ("t", 0) in cluster.brokers[3].states)
    cluster.brokers[2].silent = False
    for link in list(cluster.brokers[2].links):
        link.close()
    assert (await making)[0].error == ErrorCode.NONE
    assert ("t", 0) in cluster.brokers[2].leads()


async def test_a_broker_that_does_not_respond_is_judged_unreachable(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3, 1)], False)
    active = candidate.active
    assert active is not None
    cluster.brokers[2].silent = True

    async def tell() -> None:
        for _ in range(channel.MOST_WAITING + 2):
            batch = active.new_batch()
            batch.update_metadata([2])
            await batch.send()

    await active.events.do(tell, 60)
    await cluster.until_state("t", 0, lambda state: state.leader == 3)
    # It responds again, and gets the full state.
    cluster.brokers[2].silent = False
    for link in list(cluster.brokers[2].links):
        link.close()
    await until(lambda: cluster.brokers[2].states["t", 0].leader == 3)


async def test_changed_addresses_are_announced(cluster: FakeCluster) -> None:
    await cluster.three()
    path = BrokerIdNode.path(2)
    data, _ = await cluster.store.get(path)
    await cluster.store.set(path, data.replace(b"127.0.0.1:", b"127.0.0.2:"))
    await until(lambda: cluster.brokers[1].live[2].endpoints[0].host == "127.0.0.2")


async def test_a_registration_that_cannot_be_read_is_left_out(cluster: FakeCluster) -> None:
    await cluster.three()
    cluster.brokers[4] = cluster.brokers[3]
    await cluster.store.create(BrokerIdNode.path(4), b"{", ephemeral=True)
    await cluster.add(5)
    await until(lambda: set(cluster.brokers[1].live) == {1, 2, 3, 5})


async def test_a_replica_on_a_failed_disk_loses_leadership(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3, 1), by_hand(2, 1, name="u")], False)
    cluster.brokers[2].failing["t", 0] = ErrorCode.KAFKA_STORAGE_ERROR
    notice = b'{"version":1,"broker":2,"event":1}'
    await cluster.store.create("/log_dir_event_notification/log_dir_event_", notice, sequence=True)
    await cluster.until_state("t", 0, lambda state: state.leader == 3)
    assert (await cluster.state("t", 0)).isr == [3, 1]
    assert (await cluster.state("u", 0)).leader == 2
    await cluster.until_empty("/log_dir_event_notification")
    await until(lambda: cluster.brokers[1].metadata["t", 0].offline_replicas == [2])


async def test_a_new_replica_whose_disk_fails_is_replaced(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    cluster.brokers[2].failing["t", 0] = ErrorCode.KAFKA_STORAGE_ERROR
    await candidate.api.create_topics([by_hand(2, 3, 1)], False)
    await cluster.until_state("t", 0, lambda state: state.leader == 3)


async def test_unreadable_notifications_are_removed(cluster: FakeCluster) -> None:
    await cluster.three()
    for parent in ("/log_dir_event_notification/log_dir_event_", "/isr_change_notification/isr_change_"):
        for data in (b"{", b"[]", b"{}", b'{"partitions": 1}'):
            await cluster.store.create(parent, data, sequence=True)
    await cluster.until_empty("/log_dir_event_notification")
    await cluster.until_empty("/isr_change_notification")


async def test_a_stopping_broker_hands_over_its_leadership(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics(
        [by_hand(2, 3, 1), by_hand(3, 2, name="u"), by_hand(2, name="alone")], False
    )
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=await cluster.epoch(2))
    answer = await candidate.handle(request, 3)
    assert (answer.error_code, answer.remaining_partitions) == (ErrorCode.NONE, [])
    await until(lambda: ("t", 0) in cluster.brokers[3].leads())
    assert (await cluster.state("t", 0)).isr == [3, 1]
    assert (await cluster.state("u", 0)).isr == [3]
    assert (await cluster.state("alone", 0)).leader == 2
    await until(lambda: cluster.brokers[2].stopped == [("u", 0)])
    # It is not elected any more.
    await candidate.api.create_topics([by_hand(2, 3, name="v")], False)
    assert (await cluster.state("v", 0)).leader == 3
    # When it is back it follows.
    await cluster.unregister(2)
    await cluster.register(2)
    await until(lambda: cluster.brokers[2].states["t", 0].leader == 3)


async def test_partitions_without_another_leader_are_reported(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3)], False)
    cluster.brokers[3].die()
    await cluster.until_state("t", 0, lambda state: state.isr == [2])
    leaving = ControlledShutdownRequest(broker_id=2, broker_epoch=await cluster.epoch(2))
    answer = await candidate.handle(leaving, 3)
    assert [(p.topic_name, p.partition_index) for p in answer.remaining_partitions] == [("t", 0)]


async def test_the_last_brokers_do_not_wait_for_each_other(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3), by_hand(3, name="u")], False)
    remaining = []
    for broker in (3, 2, 1):
        leaving = ControlledShutdownRequest(broker_id=broker, broker_epoch=await cluster.epoch(broker))
        answer = await candidate.handle(leaving, 3)
        remaining.append([(p.topic_name, p.partition_index) for p in answer.remaining_partitions])
    assert remaining == [[], [("t", 0)], []]


async def test_only_registered_brokers_may_leave(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    other = await cluster.controller(2)
    for request, error in (
        (ControlledShutdownRequest(broker_id=9, broker_epoch=1), ErrorCode.BROKER_NOT_AVAILABLE),
        (ControlledShutdownRequest(broker_id=2, broker_epoch=1), ErrorCode.STALE_BROKER_EPOCH),
        (ControlledShutdownRequest(broker_id=2), ErrorCode.STALE_BROKER_EPOCH),
    ):
        assert (await candidate.handle(request, 3)).error_code == error
    answer = await other.handle(ControlledShutdownRequest(broker_id=2, broker_epoch=1), 3)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


async def test_a_topic_removed_by_another_process_is_forgotten(cluster: FakeCluster) -> None:
    candidate = await cluster.three()
    await candidate.api.create_topics([by_hand(2, 3)], False)
    for path in ("/t/partitions/0/state", "/t/partitions/0", "/t/partitions", "/t"):
        await cluster.store.delete(TopicNode.PARENT + path)
    active = candidate.active
    assert active is not None
    await until(lambda: "t" not in active.context.topics)
    (made,) = await candidate.api.create_topics([by_hand(3, 2)], False)
    assert made.error == ErrorCode.NONE
