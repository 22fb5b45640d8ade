"""Brokers in memory for a controller: they obey, refuse, fall silent, die and come back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.support.handlers import answered, module_of, request_context, services
from tests.support.waiting import until

from ottla_broker.clock import SystemClock
from ottla_broker.config import BrokerConfig
from ottla_broker.controller.cluster.cluster_controller import ClusterController
from ottla_broker.controller.cluster.context import Context
from ottla_broker.controller.cluster.controller import ActiveController
from ottla_broker.controller.cluster.controller_election import ControllerElection
from ottla_broker.controller.config_admin import check_topic
from ottla_broker.metadata.cache import MetadataCache, PartitionInfo, TopicInfo
from ottla_broker.network.peer import PeerUnreachableError
from ottla_broker.store.api import Create, Delete, StoreFailedError, UnknownOutcomeError
from ottla_broker.store.keys import (
    PERSISTENT_PATHS,
    BrokerIdNode,
    BrokerRegistration,
    ConfigNode,
    PartitionState,
    TopicPartitionStateNode,
)
from ottla_broker.store.zookeeper import ZooKeeperSettings, ZooKeeperStore
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla_protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from ottla_protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla_protocol.registry import request_class

Partition = tuple[str, int]

VERSIONS = {4: 7, 5: 4, 6: 8}
OLD_VERSIONS = {4: 1, 5: 1, 6: 4}


class FakeBroker:
    """The state that a controller has sent one broker.

    Attributes:
        up: whether its process lives; connections to a dead one are refused.
        silent: it accepts connections, but never responds.
        failing: error codes for LeaderAndIsr or StopReplica, by partition.
        unable: the number of requests that it answers with an error.
    """

    def __init__(self, broker_id: int, versions: dict[int, int] | None = None) -> None:
        self.id = broker_id
        self.versions = versions or VERSIONS
        self.up = True
        self.silent = False
        self.failing: dict[Partition, int] = {}
        self.unable = 0
        self.controller_epoch = 0
        self.states: dict[Partition, Any] = {}
        self.new: set[Partition] = set()
        self.deleted: list[Partition] = []
        self.stopped: list[Partition] = []
        self.ids: dict[bytes, str] = {}
        self.metadata: dict[Partition, Any] = {}
        self.live: dict[int, Any] = {}
        self.log: list[str] = []
        self.links: list[FakeLink] = []

    def die(self) -> None:
        """End the process, closing its sockets."""
        self.up = False
        for link in self.links:
            link.close()
        self.links.clear()

    def revive(self) -> None:
        self.up = True

    def leads(self) -> set[Partition]:
        return {partition for partition, state in self.states.items() if state.leader == self.id}

    def take(self, request: Any) -> Any:
        self.log.append(type(request).__name__)
        if self.unable:
            self.unable -= 1
            return self._answer_type(request)(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if request.controller_epoch < self.controller_epoch:
            return self._answer_type(request)(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        match request:
            case LeaderAndIsrRequest():
                return self._lead(request)
            case UpdateMetadataRequest():
                return self._learn(request)
            case StopReplicaRequest():
                return self._stop(request)
        raise AssertionError(request)

    @staticmethod
    def _answer_type(request: Any) -> Any:
        return {
            LeaderAndIsrRequest: LeaderAndIsrResponse,
            UpdateMetadataRequest: UpdateMetadataResponse,
            StopReplicaRequest: StopReplicaResponse,
        }[type(request)]

    def _lead(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        answer = LeaderAndIsrResponse(partition_errors=[], topics=[])
        states = [(s.topic_name, b"", s) for s in request.ungrouped_partition_states]
        states += [(t.topic_name, t.topic_id, s) for t in request.topic_states for s in t.partition_states]
        for name, topic_id, state in states:
            partition = (name, state.partition_index)
            known = self.states.get(partition)
            code = self.failing.get(partition, 0)
            if not code and known is not None and state.leader_epoch <= known.leader_epoch:
                code = ErrorCode.STALE_CONTROLLER_EPOCH
            if not code:
                self.states[partition] = state
                if state.is_new:
                    self.new.add(partition)
            error = LeaderAndIsrPartitionError(
                topic_name="" if self.versions[4] >= 5 else name,
                partition_index=state.partition_index,
                error_code=code,
            )
            if self.versions[4] >= 5:
                answer.topics.append(LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[error]))
            else:
                answer.partition_errors.append(error)
        return answer

    def _learn(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        self.live = {broker.id: broker for broker in request.live_brokers}
        for state in request.ungrouped_partition_states:
            self.metadata[state.topic_name, state.partition_index] = state
        for topic in request.topic_states:
            self.ids[topic.topic_id] = topic.topic_name
            for state in topic.partition_states:
                self.metadata[topic.topic_name, state.partition_index] = state
        for partition in [p for p, state in self.metadata.items() if state.leader == -2]:
            del self.metadata[partition]
        return UpdateMetadataResponse()

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        answer = StopReplicaResponse(partition_errors=[])
        states = [(t.topic_name, s) for t in request.topic_states for s in t.partition_states]
        for name, state in states:
            partition = (name, state.partition_index)
            code = self.failing.get(partition, 0)
            if not code:
                (self.deleted if state.delete_partition else self.stopped).append(partition)
                self.states.pop(partition, None)
            answer.partition_errors.append(
                StopReplicaPartitionError(
                    topic_name=name, partition_index=state.partition_index, error_code=code
                )
            )
        return answer


class FakeLink:
    """A connection to a :class:`FakeBroker`; requests and responses are encoded and decoded."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.closed = False
        self.on_close: Callable[[Any], None] | None = None
        self._pending: list[asyncio.Future[Any]] = []
        broker.links.append(self)

    def version_of(self, api_key: int) -> int:
        return self._broker.versions[api_key]

    async def submit(self, request: Any, *, timeout: float, version: int | None = None) -> Any:
        if self.closed:
            raise ConnectionError("closed")
        assert version is not None
        data = b"".join(map(bytes, request.encode_parts(version)))
        asked = request_class(int(request.API_KEY), version).decode(data, version)
        if self._broker.silent:
            pending = asyncio.get_running_loop().create_future()
            self._pending.append(pending)
            try:
                async with asyncio.timeout(timeout):
                    await pending
            except TimeoutError:
                raise ConnectionError("no answer") from None
        else:
            await asyncio.sleep(0)
        answer = self._broker.take(asked)
        return type(answer).decode(answer.encode(version), version)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        for pending in self._pending:
            if not pending.done():
                pending.set_exception(ConnectionError("the connection broke"))
        if self.on_close is not None:
            self.on_close(None)


class FlakyStore:
    """A store whose connection sometimes breaks before or after a controller's write."""

    def __init__(self, store: ZooKeeperStore, random: Random, likelihood: float) -> None:
        self._store = store
        self._random = random
        self._likelihood = likelihood

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def transaction(self, operations: Any) -> Any:
        fails = self._random.random() < self._likelihood
        if fails and self._random.random() < 0.5:
            raise UnknownOutcomeError("broke before")
        result = await self._store.transaction(operations)
        if fails:
            raise UnknownOutcomeError("broke after")
        return result

    async def children(self, path: str) -> list[str]:
        if self._random.random() < self._likelihood:
            raise StoreFailedError("no answer")
        return await self._store.children(path)


class FakeCluster:
    """Fake brokers, registered in a real ZooKeeper, and controllers for them."""

    def __init__(self, connect: str) -> None:
        self.settings = ZooKeeperSettings(connect, session_timeout_ms=30_000, connection_timeout_ms=6000)
        # Of each broker's last registration.
        self.epochs: dict[int, int] = {}
        self.brokers: dict[int, FakeBroker] = {}
        self.unclean: set[str] = set()
        self.controllers: list[Candidate] = []
        self._sessions: dict[int, ZooKeeperStore] = {}
        self.racks: dict[int, str] = {}
        self.flaky: tuple[Random, float] | None = None
        self._ports = itertools.count(9000)

    @classmethod
    async def open(cls, connect: str) -> FakeCluster:
        cluster = cls(connect)
        cluster.store = await ZooKeeperStore.open(cluster.settings)
        for path in PERSISTENT_PATHS:
            await cluster.store.create(path, parents=True)
        return cluster

    store: ZooKeeperStore

    async def close(self) -> None:
        for candidate in self.controllers:
            await candidate.close()
        for session in (*self._sessions.values(), self.store):
            await session.close()

    async def add(self, *ids: int, versions: dict[int, int] | None = None) -> None:
        for broker_id in ids:
            self.brokers[broker_id] = FakeBroker(broker_id, versions)
            await self.register(broker_id)

    async def register(self, broker_id: int, *, again: bool = False) -> None:
        """Register the broker. ``again`` replaces its node, so that the broker is never missing."""
        registration = BrokerRegistration(
            "127.0.0.1",
            9092,
            [f"PLAINTEXT://127.0.0.1:{next(self._ports)}"],
            {"PLAINTEXT": "PLAINTEXT"},
            self.racks.get(broker_id),
            1,
        )
        node = BrokerIdNode.encode(registration)
        path = BrokerIdNode.path(broker_id)
        removal = [Delete(path)] if again else []
        await self.store.transaction([*removal, Create(path, node, ephemeral=True)])
        self.epochs[broker_id] = await self.epoch(broker_id)

    async def unregister(self, broker_id: int) -> None:
        await self.store.delete(BrokerIdNode.path(broker_id))

    async def epoch(self, broker_id: int) -> int:
        found = await self.store.created_at(BrokerIdNode.path(broker_id))
        assert found is not None
        return found

    async def link(self, broker_id: int, timeout: float) -> FakeLink:
        broker = self.brokers[broker_id]
        await asyncio.sleep(0)
        if not broker.up:
            raise PeerUnreachableError("connection refused", refused=True)
        return FakeLink(broker)

    async def until(self, check: Callable[[], Awaitable[object]], timeout: float = 60.0) -> None:
        """Wait until a node of the store satisfies a condition."""

        async def holds() -> object:
            try:
                return await check()
            except StoreFailedError:
                return False

        async with asyncio.timeout(timeout):
            while not await holds():
                await asyncio.sleep(0.005)

    async def until_empty(self, path: str) -> None:
        """Wait until a node has no children."""

        async def empty() -> bool:
            return not await self.store.children(path)

        await self.until(empty)

    async def until_state(self, topic: str, index: int, check: Callable[[PartitionState], object]) -> None:
        """Wait until a partition's state in the store satisfies a condition."""

        async def right() -> object:
            return check(await self.state(topic, index))

        await self.until(right)

    async def state(self, topic: str, index: int) -> PartitionState:
        path = TopicPartitionStateNode.path(topic, index)
        return TopicPartitionStateNode.decode(path, (await self.store.get(path))[0])

    async def three(self, **settings: str) -> Candidate:
        """Start three brokers, the first of which is the controller and has sent them their state."""
        await self.add(1, 2, 3)
        candidate = await self.controller(1, **settings)
        await until(lambda: all(len(broker.live) == 3 for broker in self.brokers.values()))
        return candidate

    async def controller(self, broker_id: int, **settings: str) -> Candidate:
        """Start a controller candidate, which wins if there is no controller."""
        candidate = Candidate(self, broker_id, settings)
        self.controllers.append(candidate)
        await candidate.open()
        return candidate


class ShortSleeps(SystemClock):
    """Pauses before retries are ten times shorter."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 10)


class Candidate:
    """A broker's candidacy in elections, and its controller once elected."""

    def __init__(self, cluster: FakeCluster, broker_id: int, settings: dict[str, str]) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.config = BrokerConfig.from_properties(
            {
                "broker.id": str(broker_id),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.active: ActiveController | None = None
        self.elected = 0
        self.resigned = 0
        self.moved = 0
        self.known_controllers: list[int] = []
        self.clock = ShortSleeps(asyncio.get_running_loop())
        self.metadata = MetadataCache()
        self.store: ZooKeeperStore
        self.election: ControllerElection
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self.store = await ZooKeeperStore.open(self.cluster.settings)
        self.election = ControllerElection(
            self.store,
            self.broker_id,
            self.clock,
            self._on_elected,
            self._on_resigned,
            self.known_controllers.append,
        )
        self.api = ClusterController(
            config=self.config,
            metadata=self.metadata,
            clock=self.clock,
            random=Random(self.broker_id),
            configs=self,
            to_controller=self._to_controller,
            wait_for=self._wait_for,
            broker_epoch=lambda: self.cluster.epochs.get(self.broker_id, -1),
            active=lambda: self.active,
        )
        self._task = asyncio.get_running_loop().create_task(self.election.run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self.store.close()

    async def handle(self, request: Any, version: int) -> Any:
        """Return this broker's response to a request, through its handler."""
        key = int(request.API_KEY)
        member = SimpleNamespace(controller=self.api)
        given = services(controller=self.api, cluster_member=member, config=self.config)
        ctx = request_context(given, version, key)
        return await answered(module_of(key), ctx, request)

    async def _on_elected(self, epoch: int, version: int) -> None:
        self.elected += 1
        self.active = self.make(epoch, version)
        self.active.start()

    def make(self, epoch: int, version: int) -> ActiveController:
        flaky = self.cluster.flaky
        return ActiveController(
            self.store if flaky is None else FlakyStore(self.store, *flaky),
            self.broker_id,
            epoch,
            version,
            config=self.config,
            connect=self.cluster.link,
            clock=self.clock,
            listener="PLAINTEXT",
            unclean_allowed=lambda topic: topic in self.cluster.unclean,
            on_moved=self._on_moved,
            on_brokers=self._on_brokers,
        )

    async def _on_resigned(self) -> None:
        self.resigned += 1
        if self.active is not None:
            await self.active.close()
            self.active = None

    def _on_moved(self) -> None:
        self.moved += 1
        self.election.resign()

    def _on_brokers(self, context: Context) -> None:
        assert all(broker in self.cluster.brokers for broker in context.brokers)

    async def _to_controller(self) -> Any:
        for candidate in self.cluster.controllers:
            if candidate.active is not None:
                return _ToController(candidate)
        raise ConnectionError("there is no controller")

    def sync_metadata(self) -> MetadataCache:
        """Update this broker's metadata from its fake's state."""
        found: dict[str, dict[int, Any]] = {}
        fake = self.cluster.brokers[self.broker_id]
        for (name, index), state in fake.metadata.items():
            found.setdefault(name, {})[index] = state
        ids = {name: topic_id for topic_id, name in fake.ids.items()}
        for topic in list(self.metadata.topics()):
            if topic.name not in found:
                self.metadata.remove(topic.name)
        for name, states in found.items():
            infos = {
                i: PartitionInfo(i, s.leader, s.leader_epoch, s.replicas, s.isr, s.offline_replicas)
                for i, s in sorted(states.items())
            }
            self.metadata.put(
                TopicInfo(name, ids[name], infos, False, {}, check_topic(self.config, name, {}))
            )
        return self.metadata

    async def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        deadline = self.clock.monotonic() + timeout
        while True:
            self.sync_metadata()
            if condition():
                return True
            if self.clock.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.005)

    async def read(self, kind: str, name: str) -> dict[str, str]:
        path = ConfigNode.path(kind, name)
        if not await self.store.exists(path):
            return {}
        return ConfigNode.decode(path, (await self.store.get(path))[0])

    async def write(self, kind: str, name: str, settings: Any) -> None:
        path = ConfigNode.path(kind, name)
        if not await self.store.exists(path):
            await self.store.create(path, parents=True)
        await self.store.set(path, ConfigNode.encode(settings))
        topic = self.metadata.topic(name)
        if topic is not None:
            topic.configs = dict(settings)


class _ToController:
    """Connect another broker to the controller."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    def version_of(self, api_key: int) -> int:
        return {19: 7, 67: 0}[api_key]

    async def submit(self, request: Any, *, timeout: float, version: int | None = None) -> Any:
        assert version is not None
        return await self._candidate.handle(request, version)
