"""The controller's requests to this broker, carried out in order: LeaderAndIsr, StopReplica, UpdateMetadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.cluster.configs import ClusterConfigs, Settings
from ottla_broker.cluster.reconcile import deleted, strays
from ottla_broker.controller.cluster.persistence import ClusterStore
from ottla_broker.events import get_logger
from ottla_broker.log.config import LogConfig
from ottla_broker.log.names import MAX_TOPIC_NAME, is_topic_name
from ottla_broker.metadata.cache import BrokerInfo, MetadataCache, PartitionInfo, TopicInfo
from ottla_broker.metadata.epoch_fencing import EpochFence
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.replica.state_changes import ReplicaStateChanges
from ottla_broker.store.api import StoreError
from ottla_broker.store.keys import BadNodeError
from ottla_broker.tasks import YieldEvery, unhurried
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from ottla_protocol.messages.metadata import MetadataResponseTopic
from ottla_protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla_protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla_protocol.schema import ZERO_UUID

_log = get_logger()

_LEADER_AND_ISR_BROKER_EPOCH: Final = 2
_STOP_REPLICA_BROKER_EPOCH: Final = 1
_UPDATE_METADATA_BROKER_EPOCH: Final = 5
"""The first versions of requests that name the broker's registration they are meant for (KIP-380)."""
LEADER_DURING_DELETE: Final = -2
_NO_TOPICS_SECONDS: Final = 20.0
"""How long to wait for a new controller's first topics, since it elects leaders first. This broker waits that long only
if all topics that it has settings of have been deleted."""
_SLICE: Final = 1_000
"""Partitions that are taken into the metadata before others get their turn on the event loop."""
_TOPIC: Final = 5
"""A topic takes as long as this many partitions."""
_FAREWELL_SECONDS: Final = 3.0
"""How long Metadata names a broker that is gone. librdkafka closes its connection to a broker that Metadata no longer
names; it then loses the new leaders in the same response, and asks again only a second later."""


@dataclass(eq=False)
class ControllerRequests:
    """Owned by the loop thread. Handles one request at a time, so that none overtakes another.

    Attributes:
        on_topic_deleted: called with a topic and its partitions when the controller deletes it.
        on_brokers: called when the live brokers have changed.
        on_leaders: called after LeaderAndIsr is carried out, with the epoch of the registration it was meant for.
        joined: set once a controller has sent this broker the cluster's metadata.

    ``log_config`` turns a topic's settings into the config in force; ``set_address`` gets brokers' addresses.
    """

    _fence: EpochFence
    _metadata: MetadataCache
    _replicas: ReplicaManager
    _changes: ReplicaStateChanges
    _configs: ClusterConfigs
    _log_config: Callable[[Settings], LogConfig]
    _set_address: Callable[[int, str, int], None]
    _store: ClusterStore
    _clock: Clock
    # The epochs of the controller and of this broker's registration in which no deletion was missed.
    _caught_up: tuple[int, int] = field(default=(-1, -1), init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _updated: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    joined: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    on_topic_deleted: list[Callable[[str, Sequence[int]], None]] = field(default_factory=list, init=False)
    on_brokers: list[Callable[[], None]] = field(default_factory=list, init=False)
    on_leaders: Callable[[int], None] = field(default_factory=lambda: lambda broker_epoch: None, init=False)

    async def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        async with self._turn:
            code = await self._check(request, version >= _LEADER_AND_ISR_BROKER_EPOCH)
            if code is ErrorCode.NONE:
                topics = {state.topic_name for state in request.ungrouped_partition_states}
                topics |= {topic.topic_name for topic in request.topic_states}
                code = await self._load_settings(filter(is_topic_name, topics))
            if code is ErrorCode.NONE and self._changes.contradicts(request):
                code = await self._drop_missing(replicas=True)
            if code is not ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=code)
            for leader in request.live_leaders:
                self._set_address(leader.broker_id, leader.host_name, leader.port)
            response = await self._changes.apply_leader_and_isr(request, version, self._config_of)
            self.on_leaders(request.broker_epoch)
            for topic in request.topic_states:
                await self._publish_leaders(topic)
            return response

    async def _publish_leaders(self, topic: LeaderAndIsrTopicState) -> None:
        """Put the new leaders into the metadata at once.

        UpdateMetadata comes a moment later. Until then, a client that this broker has just refused would be sent back
        to it, and some clients wait a second before they ask again.
        """
        states = topic.partition_states
        async for start in unhurried(range(0, len(states), _SLICE), 1):
            self._update_newer(
                topic.topic_name,
                topic.topic_id,
                [
                    PartitionInfo(
                        state.partition_index, state.leader, state.leader_epoch, state.replicas, state.isr
                    )
                    for state in states[start : start + _SLICE]
                ],
            )

    def learn_leaders(self, topic: MetadataResponseTopic) -> None:
        """Put leaders that another broker knows into the metadata, where they are newer."""
        self._update_newer(
            topic.name or "",
            topic.topic_id,
            [
                PartitionInfo(
                    each.partition_index,
                    each.leader_id,
                    each.leader_epoch,
                    each.replica_nodes,
                    each.isr_nodes,
                )
                for each in topic.partitions
                if each.leader_id >= 0
            ],
        )

    def _update_newer(self, name: str, topic_id: bytes, infos: Iterable[PartitionInfo]) -> None:
        known = self._metadata.topic(name)
        if known is None or known.topic_id != topic_id:
            return
        partitions = known.partitions
        newer = {
            info.index: PartitionInfo(
                info.index,
                info.leader,
                info.leader_epoch,
                info.replicas,
                info.isr,
                partitions[info.index].offline,
            )
            for info in infos
            if info.index in partitions and info.leader_epoch > partitions[info.index].leader_epoch
        }
        if newer:
            self._put(name, topic_id, {**partitions, **newer})

    async def stop_replica(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        async with self._turn:
            code = await self._check(request, version >= _STOP_REPLICA_BROKER_EPOCH)
            if code is not ErrorCode.NONE:
                return StopReplicaResponse(error_code=code)
            return await self._changes.stop_replicas(request)

    async def update_metadata(self, request: UpdateMetadataRequest, version: int) -> UpdateMetadataResponse:
        async with self._turn:
            code = await self._check(request, version >= _UPDATE_METADATA_BROKER_EPOCH)
            states: dict[str, tuple[bytes, list[UpdateMetadataPartitionState]]] = {}
            for state in request.ungrouped_partition_states:
                states.setdefault(state.topic_name, (ZERO_UUID, []))[1].append(state)
            for topic in request.topic_states:
                states[topic.topic_name] = (topic.topic_id, list(topic.partition_states))
            _drop_invalid(states)
            if code is ErrorCode.NONE:
                code = await self._load_settings(states)
            if code is ErrorCode.NONE:
                code = await self._catch_up()
            if code is ErrorCode.NONE:
                self._update_brokers(request.live_brokers)
                await self._update_topics(states)
                self._metadata.controller_id = request.controller_id
                self._join(states)
                self._updated.set()
                self._updated = asyncio.Event()
            return UpdateMetadataResponse(error_code=code)

    def _join(self, topics: Collection[str]) -> None:
        """Join at the first topics: a new controller sends the live brokers first, and topics after its elections."""
        if topics or not self._configs.has_topics:
            self.joined.set()
        elif not self.joined.is_set():
            self._clock.call_later(_NO_TOPICS_SECONDS, self.joined.set)

    async def _check(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest, names_broker: bool
    ) -> ErrorCode:
        """Return NONE to obey. ``names_broker``: the request names this broker's registration that it is meant for."""
        try:
            code = await self._fence.admit(
                request.controller_id,
                request.controller_epoch,
                request.broker_epoch if names_broker else None,
            )
        except (StoreError, BadNodeError) as error:
            _log.warning(
                "a new controller can't be confirmed", controller=request.controller_id, reason=str(error)
            )
            return ErrorCode.UNKNOWN_SERVER_ERROR  # the controller retries
        if code is not ErrorCode.NONE:
            # Normal after a restart: the controller may still send requests meant for the previous process.
            write = _log.info if code is ErrorCode.STALE_BROKER_EPOCH else _log.warning
            write(
                "controller request refused",
                controller=request.controller_id,
                epoch=request.controller_epoch,
                known_epoch=self._fence.controller_epoch,
                error=code.name,
            )
        return code

    async def _load_settings(self, topics: Iterable[str]) -> ErrorCode:
        """Read settings of topics that aren't loaded. Returns an error without ZooKeeper; the controller retries."""
        try:
            await self._configs.load(topics)
        except StoreError as error:
            _log.warning("topic settings can't be read", reason=str(error))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    async def _catch_up(self) -> ErrorCode:
        """Find missed deletions before the first metadata of a controller or of a registration.

        A controller that dies may have announced a deletion to some brokers only, and the next one doesn't know of it.
        Nor does a controller that judges a broker gone tell it which replicas it loses.
        """
        now = (self._fence.controller_epoch, self._fence.broker_epoch)
        if now == self._caught_up:
            return ErrorCode.NONE
        code = await self._drop_missing(replicas=now[1] != self._caught_up[1])
        if code is ErrorCode.NONE:
            self._caught_up = now
        return code

    async def _drop_missing(self, *, replicas: bool) -> ErrorCode:
        """Drop deleted topics, and with ``replicas`` also replicas that are no longer this broker's.

        Returns an error without ZooKeeper; the controller retries.
        """
        try:
            gone = await deleted(self._store, [topic.name for topic in self._metadata.topics()])
            lost = (
                await strays(self._store, self._replicas.broker_id, self._replicas.partitions())
                if replicas
                else []
            )
        except StoreError as error:
            _log.warning("missed deletions can't be read", reason=str(error))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        for name in gone:
            _log.info("topic was deleted while this broker was unreachable", topic=name)
            self._forget(name)
        if lost:
            await self._changes.drop_strays(lost)
        return ErrorCode.NONE

    def _config_of(self, topic: str) -> LogConfig:
        return self._log_config(self._configs.topic(topic))

    def _update_brokers(self, live: Iterable[UpdateMetadataBroker]) -> None:
        brokers: dict[int, BrokerInfo] = {}
        for broker in live:
            listeners = {each.listener: (each.host, each.port) for each in broker.endpoints}
            if not listeners:
                continue  # a version older than any controller that works with this broker
            host, port = next(iter(listeners.values()))
            brokers[broker.id] = BrokerInfo(broker.id, host, port, broker.rack, listeners)
        before = self._metadata.brokers
        if brokers != before:
            self._metadata.brokers = brokers
            for number in before.keys() - brokers.keys():
                self._keep_departed(before[number])
            for callback in self.on_brokers:
                callback()

    def _keep_departed(self, broker: BrokerInfo) -> None:
        """Keep naming a broker that is gone for a moment, until clients know the new leaders."""
        departed = self._metadata.departed

        def forget() -> None:
            if departed.get(broker.id) is broker:
                del departed[broker.id]

        departed[broker.id] = broker
        self._clock.call_later(_FAREWELL_SECONDS, forget)

    async def _update_topics(
        self, states: Mapping[str, tuple[bytes, list[UpdateMetadataPartitionState]]]
    ) -> None:
        yields = YieldEvery(_SLICE)
        for name, (topic_id, partitions) in states.items():
            await yields.worked(_TOPIC + len(partitions))
            if any(state.leader == LEADER_DURING_DELETE for state in partitions):
                self._forget(name)
                continue
            infos = {
                state.partition_index: PartitionInfo(
                    state.partition_index,
                    state.leader,
                    state.leader_epoch,
                    state.replicas,
                    state.isr,
                    state.offline_replicas,
                )
                async for state in unhurried(partitions, _SLICE)
            }
            # After the pauses: the topic may have been configured meanwhile.
            known = self._metadata.topic(name)
            if known is not None and known.topic_id != topic_id:
                self._forget(name)
                known = None
            if known is not None:
                infos = {**known.partitions, **infos}
            self._put(name, topic_id, dict(sorted(infos.items())))

    def _put(self, name: str, topic_id: bytes, partitions: dict[int, PartitionInfo]) -> None:
        settings = self._configs.topic(name)
        self._metadata.put(
            TopicInfo(
                name, topic_id, partitions, name in INTERNAL_TOPICS, settings, self._log_config(settings)
            )
        )

    def _forget(self, name: str) -> None:
        known = self._metadata.topic(name)
        self._configs.forget(name)
        if known is None:
            return
        self._metadata.remove(name)
        for callback in self.on_topic_deleted:
            callback(name, list(known.partitions))

    def topic_configured(self, name: str) -> None:
        known = self._metadata.topic(name)
        if known is not None:
            self._put(name, known.topic_id, known.partitions)
        self._replicas.update_config(name, self._config_of(name))

    def defaults_changed(self) -> None:
        """Apply changed defaults of the broker to its topics."""
        for topic in list(self._metadata.topics()):
            self.topic_configured(topic.name)

    async def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until the metadata fulfil a condition. Returns False after ``timeout`` seconds."""
        try:
            async with self._clock.timeout(timeout):
                while not condition():
                    await self._updated.wait()
        except TimeoutError:
            return False
        return True


def _drop_invalid(states: dict[str, tuple[bytes, list[UpdateMetadataPartitionState]]]) -> None:
    """Remove partitions that can't exist, so that one bad node in ZooKeeper doesn't stop all metadata updates."""
    for name, (_, partitions) in list(states.items()):
        valid = [each for each in partitions if each.partition_index >= 0] if is_topic_name(name) else []
        if len(valid) < len(partitions):
            _log.warning("invalid partitions ignored", topic=name[:MAX_TOPIC_NAME])
            partitions[:] = valid
        if not valid:
            del states[name]
