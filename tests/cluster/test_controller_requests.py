"""The controller's requests: when a broker has joined, and how it finds deletions that it missed."""

from __future__ import annotations

import asyncio
import io
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import FakeClock

from ottla_broker import events
from ottla_broker.cluster.controller_requests import ControllerRequests
from ottla_broker.coordinator_environment import CoordinatorEnvironment
from ottla_broker.metadata.cache import NO_LEADER, MetadataCache
from ottla_broker.metadata.epoch_fencing import EpochFence
from ottla_broker.replica.partition import Role
from ottla_broker.store.api import StoreFailedError
from ottla_broker.store.keys import Assignment, TopicNode
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from ottla_protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC_ID = bytes(range(16))


class Configs:
    """Stands in for ``ClusterConfigs``."""

    def __init__(self, has_topics: bool) -> None:
        self.has_topics = has_topics
        self.looked_up: list[str] = []

    async def load(self, topics: Any) -> None:
        self.looked_up += topics

    def topic(self, name: str) -> dict[str, str]:
        return {}

    def forget(self, topic: str) -> None: ...


class Store:
    """A store of topics: the replicas of each one's partition 0."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[bytes, list[int]]] = {}
        self.works = True
        self.reads = 0

    async def children(self, path: str) -> list[str]:
        self._read()
        return list(self.topics)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        self._read()
        names = [path.rpartition("/")[2] for path in paths]
        return [self._node(*self.topics[name]) if name in self.topics else None for name in names]

    def _node(self, topic_id: bytes, replicas: list[int]) -> tuple[bytes, int]:
        return TopicNode.encode(topic_id, {0: Assignment(replicas)}), 0

    def _read(self) -> None:
        self.reads += 1
        if not self.works:
            raise StoreFailedError("no connection")


class Replicas:
    """Broker 1's partitions, in place of ``ReplicaManager``."""

    broker_id = 1

    def __init__(self) -> None:
        self.here: list[Any] = []
        self.reported = 0

    def has(self, topic: str, topic_id: bytes) -> None:
        self.here.append(SimpleNamespace(topic=topic, topic_id=topic_id, partition=0, role=Role.FOLLOWER))

    def partitions(self) -> Iterator[Any]:
        return iter(self.here)

    def contradicts(self, request: LeaderAndIsrRequest) -> bool:
        reported = {(state.topic_name, state.topic_id) for state in request.topic_states}
        return any((each.topic, each.topic_id) not in reported for each in self.here)

    async def drop_strays(self, strays: Sequence[Any]) -> None:
        self.here = [each for each in self.here if each not in strays]

    async def apply_leader_and_isr(self, *_: Any) -> LeaderAndIsrResponse:
        self.reported += 1
        return LeaderAndIsrResponse()


class World:
    def __init__(self, has_topics: bool = True) -> None:
        self.elected = 1000
        self.clock = FakeClock()
        self.fence, self.metadata, self.store = (
            EpochFence(self.clock, self._elected),
            MetadataCache(),
            Store(),
        )
        self.fence.broker_epoch = 1
        self.replicas = Replicas()
        configs: Any = Configs(has_topics)
        self.looked_up = configs.looked_up
        config: Any = SimpleNamespace()
        rooms: list[Any] = [self.fence, self.metadata, self.replicas, self.replicas, configs]
        self.controller_requests = ControllerRequests(
            *rooms, lambda _: config, lambda *_: None, self.store, self.clock
        )

    async def _elected(self) -> int:
        return self.elected

    def names(self) -> set[str]:
        return {topic.name for topic in self.metadata.topics()}


def update(**partitions: Sequence[int]) -> UpdateMetadataRequest:
    """UpdateMetadata with these topics' partitions."""
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1,
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=name.encode()[:16].ljust(16),
                partition_states=[
                    UpdateMetadataPartitionState(
                        partition_index=index,
                        controller_epoch=1,
                        leader=1,
                        leader_epoch=0,
                        isr=[1],
                        zk_version=0,
                        replicas=[1],
                    )
                    for index in indexes
                ],
            )
            for name, indexes in partitions.items()
        ],
    )


def tell(
    topics: int, *, controller_epoch: int = 1, broker_epoch: int = 1, brokers: Sequence[int] = (1,)
) -> UpdateMetadataRequest:
    endpoint = UpdateMetadataEndpoint(port=9092, host="localhost", listener="PLAINTEXT", security_protocol=0)
    state = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=1, leader_epoch=0, isr=[1], zk_version=0, replicas=[1]
    )
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[
            UpdateMetadataTopicState(topic_name=f"topic{n}", topic_id=TOPIC_ID, partition_states=[state])
            for n in range(topics)
        ],
        live_brokers=[UpdateMetadataBroker(id=number, endpoints=[endpoint]) for number in brokers],
    )


async def test_a_broker_with_topic_settings_joins_at_the_first_topics() -> None:
    """A new controller sends the live brokers, elects leaders, and then sends the topics.

    The broker waits for them, because librdkafka doesn't recover from a response without its topic.
    """
    world = World()
    requests = world.controller_requests
    await requests.update_metadata(tell(0), 8)
    assert list(world.metadata.brokers) == [1]
    await world.clock.elapse(19)
    assert not requests.joined.is_set()
    await requests.update_metadata(tell(2), 8)
    assert requests.joined.is_set()
    assert world.names() == {"topic0", "topic1"}


async def test_a_broker_without_topic_settings_joins_at_once() -> None:
    requests = World(has_topics=False).controller_requests
    await requests.update_metadata(tell(0), 8)
    assert requests.joined.is_set()


async def test_departed_brokers_stay_in_the_metadata_for_a_moment() -> None:
    world = World(has_topics=False)
    requests, metadata = world.controller_requests, world.metadata
    await requests.update_metadata(tell(0, brokers=(1, 2, 3)), 8)
    assert metadata.departed == {}
    await requests.update_metadata(tell(0, brokers=(1, 3)), 8)
    assert (list(metadata.brokers), list(metadata.departed)) == ([1, 3], [2])
    await world.clock.elapse(2)
    await requests.update_metadata(tell(0, brokers=(1,)), 8)
    assert list(metadata.departed) == [2, 3]
    await world.clock.elapse(2)
    assert list(metadata.departed) == [3]
    await world.clock.elapse(2)
    assert metadata.departed == {}


async def test_a_broker_joins_without_topics_after_a_while() -> None:
    world = World()
    requests = world.controller_requests
    await requests.update_metadata(tell(0), 8)
    await world.clock.elapse(21)
    assert requests.joined.is_set()
    # What it may lead since, and has to complete, has partitions in topics that aren't there yet.
    rooms: list[Any] = [None, world.clock, None, world.metadata, None, None]
    member: Any = SimpleNamespace(controller_requests=requests)
    rest: list[Any] = [None, None]
    environment = CoordinatorEnvironment(*rooms, member, *rest)
    assert environment.leader_of("topic0", 0) == NO_LEADER
    await requests.update_metadata(tell(1), 8)
    assert environment.leader_of("topic0", 0) == 1
    assert environment.leader_of("deleted", 0) is None


async def test_a_topic_deleted_by_the_previous_controller_is_dropped() -> None:
    """That controller informed other brokers only, and the next one doesn't know the topic."""
    world = World()
    world.store.topics = {"topic0": (TOPIC_ID, [1]), "topic1": (TOPIC_ID, [1])}
    await world.controller_requests.update_metadata(tell(2), 8)
    del world.store.topics["topic1"]
    await world.controller_requests.update_metadata(tell(1), 8)
    assert world.names() == {"topic0", "topic1"}, "not checked under the same controller"
    await world.controller_requests.update_metadata(tell(0, controller_epoch=2), 8)
    assert world.names() == {"topic0"}
    reads = world.store.reads
    await world.controller_requests.update_metadata(tell(1, controller_epoch=2), 8)
    assert world.store.reads == reads


async def test_replicas_moved_away_under_an_earlier_registration_are_dropped() -> None:
    world = World()
    await world.controller_requests.update_metadata(tell(0), 8)
    other = b"o" * 16
    for name, topic_id in (("stays", TOPIC_ID), ("moved", TOPIC_ID), ("deleted", TOPIC_ID), ("new", other)):
        world.replicas.has(name, topic_id)
    world.store.topics = {"stays": (TOPIC_ID, [2, 1]), "moved": (TOPIC_ID, [2]), "new": (TOPIC_ID, [2, 1])}
    await world.controller_requests.update_metadata(tell(0, controller_epoch=2), 8)
    assert len(world.replicas.here) == 4, "the same registration: nothing was missed"
    world.fence.broker_epoch = 2
    world.store.works = False
    answer = await world.controller_requests.update_metadata(tell(0, controller_epoch=2, broker_epoch=2), 8)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR, "the controller asks again"
    world.store.works = True
    answer = await world.controller_requests.update_metadata(tell(0, controller_epoch=2, broker_epoch=2), 8)
    assert answer.error_code == ErrorCode.NONE
    assert [each.topic for each in world.replicas.here] == ["stays"]


async def test_a_new_topic_with_the_name_of_a_known_one_triggers_the_check() -> None:
    """As after the controller judged the broker gone although it stayed registered."""
    world = World()
    await world.controller_requests.update_metadata(tell(0), 8)
    world.replicas.has("t", b"o" * 16)
    world.store.topics = {"t": (TOPIC_ID, [1, 2])}
    request = LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1,
        topic_states=[LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[])],
    )
    await world.controller_requests.leader_and_isr(request, 7)
    assert world.replicas.here == []
    assert world.replicas.reported == 1


async def test_a_partition_with_a_large_index_costs_nothing() -> None:
    world = World()
    tracemalloc.start()
    try:
        answer = await world.controller_requests.update_metadata(update(t=[2_000_000, 2**31 - 1]), 8)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.error_code == ErrorCode.NONE
    known = world.metadata.topic("t")
    assert known is not None
    assert list(known.partitions) == [2_000_000, 2**31 - 1]
    assert peak < 1 << 20


async def test_impossible_partitions_are_left_out_of_the_metadata() -> None:
    world = World()
    request = update(**{"../../x": [0], "a b": [0], "": [0], "t": [-1, 0], "negative": [-1]})
    assert (await world.controller_requests.update_metadata(request, 8)).error_code == ErrorCode.NONE
    assert world.names() == {"t"}
    known = world.metadata.topic("t")
    assert known is not None
    assert list(known.partitions) == [0]
    assert world.looked_up == ["t"], "no setting is looked for under a name that leaves its folder"


async def test_invalid_names_are_not_read_from_the_store() -> None:
    world = World()
    states = [
        LeaderAndIsrTopicState(topic_name=name, topic_id=TOPIC_ID, partition_states=[])
        for name in ("../../x", "t")
    ]
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=states)
    await world.controller_requests.leader_and_isr(request, 7)
    assert world.looked_up == ["t"]


@pytest.mark.parametrize(
    ("requested", "error", "level"),
    [
        ({"broker_epoch": 1}, ErrorCode.STALE_BROKER_EPOCH, "info"),
        ({"broker_epoch": 2, "controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH, "warning"),
    ],
)
async def test_a_request_for_an_earlier_registration_logs_no_warning(
    requested: dict[str, int], error: ErrorCode, level: str
) -> None:
    """After a restart the controller may still send requests meant for the previous process."""
    world = World()
    world.fence.broker_epoch, world.fence.controller_epoch = 2, 1
    written = io.StringIO()
    events.configure(stream=written, json=True)
    try:
        answer = await world.controller_requests.update_metadata(tell(0, **requested), 8)
    finally:
        events.configure()
    assert answer.error_code == error
    (line,) = map(json.loads, written.getvalue().splitlines())
    assert (line["event"], line["level"]) == ("controller request refused", level)


async def test_very_many_partitions_are_taken_in_with_pauses() -> None:
    world = World()
    requests = world.controller_requests
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    # One topic of many partitions, and many topics of one.
    await requests.update_metadata(update(wide=range(10_000)), 8)
    wide = turns
    assert wide > 5
    await requests.update_metadata(tell(3_000), 8)
    assert turns - wide > 5
    counting.cancel()
    known = world.metadata.topic("wide")
    assert known is not None
    assert list(known.partitions) == list(range(10_000))
    assert len(world.names()) == 3_001


async def test_what_changes_while_a_topic_is_taken_in_is_kept() -> None:
    world = World()
    requests = world.controller_requests
    await requests.update_metadata(update(wide=range(2)), 8)
    changing = asyncio.create_task(requests.update_metadata(update(wide=range(1, 5_000)), 8))
    await asyncio.sleep(0)
    before = world.metadata.topic("wide")
    assert before is not None
    assert list(before.partitions) == [0, 1]
    requests._put("wide", before.topic_id, {**before.partitions, 7_000: before.partitions[0]})
    await changing
    known = world.metadata.topic("wide")
    assert known is not None
    assert list(known.partitions) == [*range(5_000), 7_000]
