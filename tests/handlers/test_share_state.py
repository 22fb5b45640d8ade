"""The share coordinator's requests between brokers: encoded, served, and sent to the broker that coordinates."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.coordinator.share_cluster import StateReplica
from tests.support.clock import FakeClock
from tests.support.handlers import (
    INTER_BROKER,
    Client,
    api_of,
    begun,
    handled,
    module_of,
    request_context,
    services,
)

from ottla_broker.cluster.share_state_transport import ShareStateTransport
from ottla_broker.coordinator.share.in_flight import Batch
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState, StateChange
from ottla_broker.coordinator.share.state_coordinator import (
    ShareStateCoordinator,
    StateSettings,
    coordinator_key,
)
from ottla_broker.coordinator.share.states import RecordState
from ottla_broker.handlers import find_coordinator, write_share_group_state
from ottla_broker.log.config import LogConfig
from ottla_broker.log.heard_connections import ConnectionAge
from ottla_broker.metadata.cache import BrokerInfo, MetadataCache, PartitionInfo, TopicInfo
from ottla_broker.metadata.internal_topics import SHARE_STATE_TOPIC
from ottla_broker.network.peer import PeerError, Peers
from ottla_broker.network.pending_response import CloseConnection
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.read_share_group_state import (
    PartitionData as ReadPartition,
)
from ottla_protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from ottla_protocol.messages.share_state_records import StateBatch
from ottla_protocol.messages.write_share_group_state import (
    PartitionData,
    WriteShareGroupStateRequest,
    WriteStateData,
)

KEYS = [ShareKey("g", b"t" * 16, 0), ShareKey("g", b"t" * 16, 1), ShareKey("g", b"u" * 16, 0)]
DONE = [Batch(3, 4, RecordState.ACKNOWLEDGED, 1), Batch(6, 6, RecordState.AVAILABLE, 2)]


def coordinator_of(clock: FakeClock) -> ShareStateCoordinator:
    made = ShareStateCoordinator(
        StateSettings(topic_partitions=1), clock, lambda: 1, lambda index, offset: None
    )
    made.start()
    return made


class Other:
    """Another broker, as ``Peers``: its handlers get what the wire has of a request."""

    def __init__(self, clock: FakeClock) -> None:
        self.coordinator = coordinator_of(clock)
        self.coordinator.on_leader(cast(Any, StateReplica(0)))
        self.asked: list[Any] = []
        self.error: PeerError | None = None
        self.given = services(clock=clock, shares=SimpleNamespace(coordinator=self.coordinator))

    def serve(self, request: Any, listener: str = INTER_BROKER, connected_at: float = 1e9) -> Any:
        """The response, or what replaces it."""
        _, version = api_of(request.API_KEY).versions
        asked = type(request).decode(request.encode(version), version)
        context = request_context(self.given, version, request.API_KEY, listener)
        cast(Client, context.connection).age = ConnectionAge(connected_at)
        running = begun(module_of(request.API_KEY), context, asked)
        cast(FakeClock, self.given.clock).run_due()
        assert running.given
        answer: Any = running.outcome
        if isinstance(answer, BaseException):
            return answer
        return type(answer).decode(answer.encode(version), version)

    async def request(self, broker_id: int, request: Any, **_: Any) -> Any:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        return self.serve(request)


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.other = Other(self.clock)
        self.local = coordinator_of(self.clock)
        self.leader: int | None = 2
        peers = cast(Peers, self.other)
        self.transport = ShareStateTransport(
            1, self.local, lambda index: self.leader, peers, self.clock, timeout_ms=5_000
        )
        self.clock.run_due()

    async def ask(self, *calls: Callable[[Callable[[Any], None]], None]) -> list[Any]:
        """The answers of requests that are made in one turn."""
        answers: list[Any] = []
        for call in calls:
            call(answers.append)
        await self.clock.elapse(0)
        return answers


async def test_another_broker_coordinates() -> None:
    world = World()
    to = world.transport
    made = [lambda done, key=key: to.initialize(key, 7, -1, done) for key in KEYS]
    assert await world.ask(*made) == [None] * 3
    # One group's in one turn go in one request.
    assert len(world.other.asked) == 1
    assert await world.ask(lambda read: to.read(KEYS[0], 4, read)) == [ShareState(7, 4, -1, [])]
    assert await world.ask(lambda done: to.write(KEYS[0], StateChange(7, 4, 3, 1, DONE), done)) == [None]
    assert await world.ask(lambda read: to.read(KEYS[0], 5, read)) == [ShareState(7, 5, 3, DONE)]
    assert await world.ask(lambda read: to.summary(KEYS[0], read)) == [ShareState(7, 5, 3, (), 1)]
    (fenced,) = await world.ask(lambda done: to.write(KEYS[0], StateChange(7, 4, 9, 0), done))
    assert fenced.code is ErrorCode.FENCED_LEADER_EPOCH
    assert await world.ask(lambda done: to.initialize(KEYS[0], 8, 2, done)) == [None]
    (fenced,) = await world.ask(lambda done: to.write(KEYS[0], StateChange(7, 5, 9, 0), done))
    assert fenced.code is ErrorCode.FENCED_STATE_EPOCH
    assert await world.ask(lambda done: to.delete(KEYS[0], done)) == [None]
    (gone,) = await world.ask(lambda read: to.summary(KEYS[0], read))
    assert (gone.code, gone.message is None) == (ErrorCode.INVALID_REQUEST, False)


async def test_the_same_share_partition_twice_in_a_turn_takes_two_requests() -> None:
    world = World()
    calls = [lambda read: world.transport.summary(KEYS[0], read)] * 2
    assert [each.code for each in await world.ask(*calls)] == [ErrorCode.INVALID_REQUEST] * 2
    assert len(world.other.asked) == 2


async def test_this_broker_coordinates() -> None:
    world = World()
    world.leader = 1
    world.local.on_leader(cast(Any, StateReplica(0)))
    world.clock.run_due()
    assert await world.ask(lambda done: world.transport.initialize(KEYS[0], 7, 5, done)) == [None]
    (found,) = await world.ask(lambda read: world.transport.summary(KEYS[0], read))
    assert found.start == 5
    assert not world.other.asked


@pytest.mark.parametrize("leader", [None, -1])
async def test_no_broker_coordinates(leader: int | None) -> None:
    world = World()
    world.leader = leader
    (answer,) = await world.ask(lambda read: world.transport.summary(KEYS[0], read))
    assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_broker_that_does_not_answer_is_no_coordinator_for_now() -> None:
    world = World()
    world.other.error = PeerError("it is gone")
    answers = await world.ask(*[lambda read, key=key: world.transport.read(key, 0, read) for key in KEYS])
    assert [str(each) for each in answers] == ["COORDINATOR_NOT_AVAILABLE: it is gone"] * 3
    await world.transport.close()


def write(*partitions: PartitionData, group: str = "g") -> WriteShareGroupStateRequest:
    topic = WriteStateData(topic_id=b"t" * 16, partitions=list(partitions))
    return WriteShareGroupStateRequest(group_id=group, topics=[topic])


def test_what_is_wrong_with_one_share_partition_is_answered_for_it() -> None:
    clock = FakeClock()
    other = Other(clock)
    clock.run_due()
    made: list[KafkaError | None] = []
    other.coordinator.initialize(KEYS[0], 7, 0, made.append)
    batches = [
        StateBatch(first_offset=2, last_offset=1),
        StateBatch(first_offset=-1, last_offset=1),
        StateBatch(first_offset=1, last_offset=1, delivery_state=RecordState.ACQUIRED),
        StateBatch(first_offset=1, last_offset=1, delivery_state=3),
        StateBatch(first_offset=1, last_offset=1, delivery_count=-1),
    ]
    answer = other.serve(
        write(
            PartitionData(partition=-1),
            PartitionData(partition=1),
            *[PartitionData(partition=0, state_epoch=7, state_batches=[each]) for each in batches],
            PartitionData(partition=0, state_epoch=7),
        )
    )
    codes = [each.error_code for each in answer.results[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST] * (2 + len(batches)) + [0]
    # Kafka has nothing to say to these.
    assert other.serve(write(PartitionData(), group="")).results == []
    assert other.serve(write()).results == []
    assert other.serve(WriteShareGroupStateRequest(group_id="g")).results == []


def test_many_share_partitions_let_others_go_first() -> None:
    clock = FakeClock()
    other = Other(clock)
    clock.run_due()
    request = write(*[PartitionData(partition=index) for index in range(100)])
    context = request_context(other.given, 1, request.API_KEY, INTER_BROKER)
    answering = write_share_group_state.handle(context, request)
    for _ in range(100):
        assert answering.send(None)
    with pytest.raises(StopIteration) as end:
        answering.send(None)
    assert [each.partition for each in end.value.value.results[0].partitions] == list(range(100))


def test_only_brokers_may_ask() -> None:
    clock = FakeClock()
    other = Other(clock)
    clock.run_due()
    answer = other.serve(write(PartitionData()), listener="PLAINTEXT")
    assert answer.results[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_late_request_closes_its_connection() -> None:
    clock = FakeClock()
    other = Other(clock)
    clock.run_due()
    assert isinstance(other.serve(write(PartitionData()), connected_at=1.0), CloseConnection)


def test_a_read_has_the_batches() -> None:
    clock = FakeClock()
    other = Other(clock)
    clock.run_due()
    made: list[KafkaError | None] = []
    other.coordinator.initialize(KEYS[0], 7, 3, made.append)
    other.coordinator.write(KEYS[0], StateChange(7, 0, 3, 0, DONE), made.append)
    topic = ReadStateData(topic_id=b"t" * 16, partitions=[ReadPartition(partition=0, leader_epoch=0)])
    answer = other.serve(ReadShareGroupStateRequest(group_id="g", topics=[topic]))
    (found,) = answer.results[0].partitions
    assert (found.error_code, found.state_epoch, found.start_offset) == (0, 7, 3)
    assert [(each.first_offset, each.delivery_state) for each in found.state_batches] == [(3, 2), (6, 0)]


def test_brokers_find_the_coordinator() -> None:
    clock = FakeClock()
    other = Other(clock)
    metadata = MetadataCache("cluster", 1)
    metadata.brokers[2] = BrokerInfo(2, "two", 9092, None, {})
    metadata.put(
        TopicInfo(SHARE_STATE_TOPIC, b"s" * 16, {0: PartitionInfo(0, 2, 0, [2], [2])}, True, {}, LogConfig())
    )
    other.given.metadata = metadata

    def find(key: str, listener: str = INTER_BROKER, version: int = 6) -> Any:
        context = request_context(other.given, version, FindCoordinatorRequest.API_KEY, listener)
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
        answer: Any = handled(find_coordinator, context, request)
        return answer.coordinators[0]

    assert find(coordinator_key(KEYS[0])).node_id == 2
    assert find("a:group:" + coordinator_key(KEYS[0])[2:]).node_id == 2
    for wrong in ("g", "g:0", ":AAAAAAAAAAAAAAAAAAAAAA:0", "g:AAAA:0", "g:AAAAAAAAAAAAAAAAAAAAAA:-1"):
        assert find(wrong).error_code == ErrorCode.INVALID_REQUEST
    assert find(coordinator_key(KEYS[0]), version=5).error_code == ErrorCode.INVALID_REQUEST
    assert find("g", listener="PLAINTEXT").error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    other.given.find_shares = lambda: None
    assert find(coordinator_key(KEYS[0])).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
