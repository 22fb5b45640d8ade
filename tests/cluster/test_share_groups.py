"""A share group in a cluster whose brokers die: leaders of its partition, of its state, and its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

from tests.support.cluster import Cluster
from tests.support.share import Member, configure, kept_states
from tests.support.traffic import create
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_broker.coordinator.share.state_batches import ShareKey
from ottla_broker.coordinator.share.state_coordinator import coordinator_key
from ottla_client.sync import Producer, ShareConsumer
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

GROUP_RESOURCE = 32
GROUP, SHARE = 0, 2
TOPIC = "t"


def coordinator(cluster: Cluster, kind: int, key: str) -> int:
    """The broker that coordinates a key, as soon as one does that runs."""

    def found() -> int:
        running = next(each for each in cluster.brokers.values() if each.running)
        with Wire(running.port) as wire:
            answer = wire.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 6)
        (one,) = answer.coordinators
        assert isinstance(one, Coordinator)
        if one.error_code:
            assert one.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, one
            return 0
        return one.node_id if cluster.brokers[one.node_id].running else 0

    return wait_for(found, f"a coordinator of {key}")


def order_by_key(cluster: Cluster, group: str) -> None:
    """Set the group's configs, and wait until each broker has them."""
    with Wire(cluster.brokers[1].port) as wire:
        configure(wire, group, share_auto_offset_reset="earliest", share_key_ordered="true")
    asked = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group)
    for broker in cluster.brokers.values():
        with Wire(broker.port) as wire:

            def known(wire: Wire = wire) -> bool:
                (result,) = wire.call(DescribeConfigsRequest(resources=[asked]), 4).results
                values = {each.name: each.value for each in result.configs}
                return (
                    values["share.auto.offset.reset"] == "earliest" and values["share.key.ordered"] == "true"
                )

            wait_for(known, "the group's configs")


def join(cluster: Cluster, group: str, topic: str = TOPIC) -> None:
    """Have the group's coordinator give the member its partition, as soon as it can."""
    number = coordinator(cluster, GROUP, group)
    with Member(cluster.brokers[number].port, group, topic) as member:

        def joined() -> bool:
            answer = member.heartbeat(0, [topic])
            return answer.error_code == 0 and bool(answer.assignment and answer.assignment.topic_partitions)

        wait_for(joined, "the member to have its partition")


def offsets(acquired: list[tuple[int, int, int]]) -> list[int]:
    return [each for first, last, _ in acquired for each in range(first, last + 1)]


def acquire(member: Member, wanted: Iterable[int]) -> None:
    """Fetch until the member has just these offsets."""
    got: list[int] = []

    def complete() -> bool:
        got.extend(offsets(member.acquire()))
        assert set(got) <= set(wanted), got
        return sorted(got) == list(wanted)

    wait_for(complete, "the records that are left")


def wait_in_sync(cluster: Cluster, replicas: int) -> None:
    """Wait until the cluster has done with what happened: no write waits for a broker that is gone."""
    for topic in (TOPIC, "__share_group_state", "__consumer_offsets"):
        cluster.wait_in_sync(topic, replicas)


def read(consumer: ShareConsumer, wanted: set[int]) -> set[int]:
    """Poll until the records with these offsets have come, and accept all that come; returns their offsets."""
    found: set[int] = set()

    def complete() -> bool:
        for record in consumer.poll(500):
            consumer.acknowledge(record)
            found.add(record.offset)
        return found >= wanted

    wait_for(complete, f"records {wanted}")
    return found


def lag(cluster: Cluster, group: str) -> int:
    number = coordinator(cluster, GROUP, group)
    with Wire(cluster.brokers[number].port) as wire:
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        (found,) = wire.call(DescribeShareGroupOffsetsRequest(groups=[asked]), 1).groups
    return found.topics[0].partitions[0].lag if found.topics else -1


def test_what_is_acknowledged_stays_so_when_brokers_die(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(
        brokers=3,
        settings={
            "share.coordinator.state.topic.num.partitions": 3,
            "share.coordinator.state.topic.min.isr": 1,
            "offsets.topic.num.partitions": 3,
        },
    )
    create(cluster, TOPIC, 1, 3)
    create(cluster, "leftover", 6, 1)
    with Wire(cluster.brokers[1].port) as wire:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        topic_id = bytes(wire.call(asked, 12).topics[0].topic_id)
    leader = cluster.leader(TOPIC)
    # A group whose state is kept on another broker than the records.
    names = (f"group-{number}" for number in range(100))
    group, key = next(
        (name, found)
        for name in names
        if coordinator(cluster, SHARE, found := coordinator_key(ShareKey(name, topic_id, 0))) != leader
    )
    order_by_key(cluster, group)
    # With a topic, all that its groups have of it is deleted, by the coordinators of its partitions.
    made, gone = dict.fromkeys(range(6), True), dict.fromkeys(range(6), False)

    def has_states() -> bool:
        join(cluster, "of leftover", "leftover")
        return kept_states(cluster.bootstrap, "of leftover") == made

    wait_for(has_states, "the states to be made")
    with Wire(cluster.brokers[cluster.controller()].port) as wire:
        deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name="leftover")], timeout_ms=60_000)
        assert wire.call(deleted, 6).responses[0].error_code == 0
    wait_for(lambda: kept_states(cluster.bootstrap, "of leftover") == gone, "the states to be deleted")
    join(cluster, group)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(12):
            producer.send(TOPIC, b"%d" % number, key=b"a" if number % 2 else b"b")
    wait_in_sync(cluster, 3)
    order_by_key(cluster, "readers")
    with ExitStack() as stack:
        reader = ShareConsumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap,
            group_id="readers",
            max_poll_records=4,
            share_acknowledgement_mode="explicit",
            share_acquire_mode="record_limit",
        )
        stack.enter_context(reader)
        was_read = read(reader, {0, 1, 2, 3})
        assert set(reader.commit_sync().values()) == {None}
        member = stack.enter_context(Member(cluster.brokers[leader].port, group, TOPIC))
        assert offsets(member.acquire(records=4, mode=1)) == [0, 1, 2, 3]
        assert member.outcome([(0, 1, [1])]) == 0
        wait_for(lambda: lag(cluster, group) == 10, "the group's lag")
        cluster.brokers[leader].kill()
        wait_in_sync(cluster, 2)
        leader = cluster.leader(TOPIC)
        # The client finds the next leader, and what it has accepted doesn't come again.
        assert not was_read & read(reader, set(range(12)) - was_read)
    with Member(cluster.brokers[leader].port, group, TOPIC) as member:
        # Two were locked by the member; what is accepted is not delivered again.
        acquire(member, range(2, 12))
        assert member.outcome([(2, 5, [1])]) == 0
        state = coordinator(cluster, SHARE, key)
        cluster.brokers[state].kill()
    wait_in_sync(cluster, 1)
    leader = cluster.leader(TOPIC)
    assert coordinator(cluster, SHARE, key) != state
    join(cluster, group)
    with Member(cluster.brokers[leader].port, group, TOPIC) as member:
        acquire(member, range(6, 12))
        assert member.outcome([(6, 11, [1])]) == 0
    wait_for(lambda: lag(cluster, group) == 0, "nothing to be left")
