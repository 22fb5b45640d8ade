"""The requests that an event of the controller ends with: Kafka's ``ControllerBrokerRequestBatch``.

An event collects what each broker needs to know. :meth:`Batch.send` then sends each broker LeaderAndIsr, UpdateMetadata
and StopReplica, in this order, with the state at that moment and in the version that the broker supports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from ottla_broker.controller.api import Partition
from ottla_broker.controller.cluster.channel import Building, Channels, QueuedRequest
from ottla_broker.controller.cluster.context import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    PORTION,
    Context,
    PartitionView,
    RegisteredBroker,
)
from ottla_broker.store.keys import Assignment, decimal
from ottla_broker.tasks import unhurried
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla_protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from ottla_protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla_protocol.schema import ZERO_UUID

SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

OnResponse = Callable[[int, Any], None]
"""Called with a broker and its response; None if the broker is gone before it responds."""


class Replies:
    """Waits for some brokers' responses to a batch. A broker that is gone counts as one that has responded."""

    def __init__(self) -> None:
        self._missing: set[int] = set()
        self._all = asyncio.Event()
        self._all.set()

    def expect(self, broker: int) -> None:
        self._missing.add(broker)
        self._all.clear()

    def expect_leaders(self, context: Context, partitions: Iterable[Partition]) -> None:
        for leader in {context.leader(each) for each in partitions} & context.live_or_shutting_down():
            self.expect(leader)

    def received(self, broker: int, response: Any) -> None:
        self._missing.discard(broker)
        if not self._missing:
            self._all.set()

    async def wait(self) -> None:
        await self._all.wait()


class Endpoint(NamedTuple):
    """A listener of a broker, as in ``/brokers/ids/N``."""

    name: str
    host: str
    port: int
    protocol: int


class _State(NamedTuple):
    """A partition's state in LeaderAndIsr."""

    partition: Partition
    topic_id: bytes
    view: PartitionView
    assignment: Assignment
    is_new: bool


class _Metadata(NamedTuple):
    """A partition in UpdateMetadata; without a ``view`` it never had a leader."""

    partition: Partition
    topic_id: bytes
    view: PartitionView | None
    replicas: Sequence[int]
    offline: Sequence[int]
    deleting: bool


class _Stopped(NamedTuple):
    """A replica in StopReplica."""

    partition: Partition
    leader_epoch: int
    delete: bool


@dataclass(eq=False)
class Batch:
    """Made for one event, sent once.

    ``listener`` is the name of the inter-broker listener. ``on_leader_and_isr`` is called with every response to
    LeaderAndIsr.
    """

    _context: Context
    _channels: Channels
    _controller_id: int
    _listener: str
    _on_leader_and_isr: OnResponse
    _states: dict[int, dict[Partition, bool]] = field(default_factory=dict, init=False)
    _stopped: dict[int, dict[Partition, bool]] = field(default_factory=dict, init=False)
    _to_update: set[int] = field(default_factory=set, init=False)
    _changed: dict[Partition, None] = field(default_factory=dict, init=False)

    def leader_and_isr(self, brokers: Iterable[int], partition: Partition, *, is_new: bool = False) -> None:
        """Let brokers lead or follow a partition as its state says, and update all brokers' metadata."""
        online = self._context.live_or_shutting_down()
        for broker in brokers:
            if broker in online:
                states = self._states.setdefault(broker, {})
                states[partition] = is_new or states.get(partition, False)
        self.update_metadata(online, [partition])

    def stop_replica(self, brokers: Iterable[int], partition: Partition, *, delete: bool) -> None:
        """Let brokers stop a replica, and delete it if ``delete`` is set."""
        online = self._context.live_or_shutting_down()
        for broker in brokers:
            if broker in online:
                stopped = self._stopped.setdefault(broker, {})
                stopped[partition] = delete or stopped.get(partition, False)
                if delete:
                    self._states.get(broker, {}).pop(partition, None)

    def update_metadata(self, brokers: Iterable[int], partitions: Iterable[Partition] = ()) -> None:
        """Send brokers the list of live brokers, and these partitions' metadata."""
        self._to_update.update(brokers)
        self._changed.update(dict.fromkeys(partitions))

    async def send(
        self, *, on_leader_and_isr: OnResponse | None = None, on_stop_replica: OnResponse | None = None
    ) -> None:
        """Send everything, with pauses for others if it is much. The callbacks get each broker's response."""
        context = self._context

        def led(broker: int, response: Any) -> None:
            if response is not None:
                self._on_leader_and_isr(broker, response)
            if on_leader_and_isr is not None:
                on_leader_and_isr(broker, response)

        for broker, wanted in sorted(self._states.items()):
            states = [
                state
                async for partition, is_new in unhurried(wanted.items(), PORTION)
                if (state := self._state(partition, is_new)) is not None
            ]
            if states:
                leaders = self._addresses({each.view.state.leader for each in states})
                self._send(
                    broker, ApiKey.LEADER_AND_ISR, partial(self._build_leader_and_isr, states, leaders), led
                )
        changed = [
            self._metadata(partition)
            async for partition in unhurried(self._changed, PORTION)
            if context.has(partition)
        ]
        brokers = [context.brokers[broker] for broker in sorted(context.live_or_shutting_down())]
        for broker in sorted(self._to_update & context.live_or_shutting_down()):
            self._send(
                broker, ApiKey.UPDATE_METADATA, partial(self._build_update_metadata, changed, brokers), None
            )
        for broker, to_stop in sorted(self._stopped.items()):
            stopped = [
                _Stopped(each, self._stop_epoch(each), delete)
                async for each, delete in unhurried(to_stop.items(), PORTION)
            ]
            self._send(
                broker, ApiKey.STOP_REPLICA, partial(self._build_stop_replica, stopped), on_stop_replica
            )

    def _send(
        self,
        broker: int,
        key: ApiKey,
        build: Callable[[int, int], Building],
        on_response: OnResponse | None,
    ) -> None:
        """``build`` takes the broker's epoch and the version."""
        self._channels.send(
            broker,
            QueuedRequest(
                int(key),
                partial(build, self._context.brokers[broker].epoch),
                None if on_response is None else partial(on_response, broker),
            ),
        )

    def _state(self, partition: Partition, is_new: bool) -> _State | None:
        context = self._context
        view = context.view(partition)
        if view is None:
            return None
        topic_id = context.topics[partition[0]].id or ZERO_UUID
        return _State(partition, topic_id, view, context.assignment(partition), is_new)

    def _metadata(self, partition: Partition) -> _Metadata:
        context = self._context
        return _Metadata(
            partition,
            context.topics[partition[0]].id or ZERO_UUID,
            context.view(partition),
            list(context.replicas(partition)),
            context.offline_replicas(partition),
            context.is_deleting(partition),
        )

    def _stop_epoch(self, partition: Partition) -> int:
        if self._context.is_deleting(partition):
            return EPOCH_DURING_DELETE
        view = self._context.view(partition)
        return -1 if view is None else view.state.leader_epoch

    def _addresses(self, brokers: Iterable[int]) -> list[LeaderAndIsrLiveLeader]:
        """The brokers' addresses on the inter-broker listener."""
        registered = [
            self._context.brokers[each] for each in sorted(brokers) if each in self._context.brokers
        ]
        return [
            LeaderAndIsrLiveLeader(broker_id=broker.id, host_name=endpoint.host, port=endpoint.port)
            for broker in registered
            for endpoint in endpoints_of(broker)
            if endpoint.name == self._listener
        ]

    def _build_leader_and_isr(
        self, states: list[_State], leaders: list[LeaderAndIsrLiveLeader], broker_epoch: int, version: int
    ) -> Building:
        request = LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker_epoch,
            live_leaders=leaders,
        )
        topics: dict[str, LeaderAndIsrTopicState] = {}
        for done, ((name, index), topic_id, view, assignment, is_new) in enumerate(states, 1):
            if done % PORTION == 0:
                yield
            state = LeaderAndIsrPartitionState(
                topic_name=name if version < 2 else "",
                partition_index=index,
                controller_epoch=view.state.controller_epoch,
                leader=view.state.leader,
                leader_epoch=view.state.leader_epoch,
                isr=list(view.state.isr),
                partition_epoch=view.version,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
                is_new=is_new,
            )
            if version < 2:
                request.ungrouped_partition_states.append(state)
                continue
            topic = topics.setdefault(name, LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id))
            topic.partition_states.append(state)
        request.topic_states = list(topics.values())
        return request

    def _build_update_metadata(
        self, changed: list[_Metadata], brokers: list[RegisteredBroker], broker_epoch: int, version: int
    ) -> Building:
        request = UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker_epoch,
            live_brokers=[_live_broker(broker, self._listener, version) for broker in brokers],
        )
        topics: dict[str, UpdateMetadataTopicState] = {}
        for done, each in enumerate(changed, 1):
            if done % PORTION == 0:
                yield
            name, index = each.partition
            if each.view is None and not each.deleting:
                continue
            state = each.view.state if each.view is not None else None
            made = UpdateMetadataPartitionState(
                topic_name=name if version < 5 else "",
                partition_index=index,
                controller_epoch=self._context.epoch if state is None else state.controller_epoch,
                leader=LEADER_DURING_DELETE if each.deleting or state is None else state.leader,
                leader_epoch=0 if state is None else state.leader_epoch,
                isr=[] if state is None else list(state.isr),
                zk_version=0 if each.view is None else each.view.version,
                replicas=list(each.replicas),
                offline_replicas=list(each.offline),
            )
            if version < 5:
                request.ungrouped_partition_states.append(made)
                continue
            topic = topics.setdefault(name, UpdateMetadataTopicState(topic_name=name, topic_id=each.topic_id))
            topic.partition_states.append(made)
        request.topic_states = list(topics.values())
        return request

    def _build_stop_replica(self, stopped: list[_Stopped], broker_epoch: int, version: int) -> Building:
        request = StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker_epoch,
        )
        if version < 3:
            # These versions delete all replicas or none; an event never needs both.
            request.delete_partitions = any(each.delete for each in stopped)
        topics: dict[str, StopReplicaTopicState] = {}
        for done, ((name, index), leader_epoch, delete) in enumerate(stopped, 1):
            if done % PORTION == 0:
                yield
            if version == 0:
                request.ungrouped_partitions.append(
                    StopReplicaPartitionV0(topic_name=name, partition_index=index)
                )
            elif version < 3:
                request.topics.append(StopReplicaTopicV1(name=name, partition_indexes=[index]))
            else:
                topics.setdefault(name, StopReplicaTopicState(topic_name=name)).partition_states.append(
                    StopReplicaPartitionState(
                        partition_index=index, leader_epoch=leader_epoch, delete_partition=delete
                    )
                )
        request.topic_states = list(topics.values())
        return request


NewBatch = Callable[[], Batch]


def endpoints_of(broker: RegisteredBroker) -> list[Endpoint]:
    """A broker's listeners, without those that can't be read or whose protocol isn't known."""
    found = []
    for text in broker.registration.endpoints:
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        protocol = SECURITY_PROTOCOLS.get(broker.registration.protocols.get(name, name))
        number = decimal(port)
        if number is not None and protocol is not None:
            found.append(Endpoint(name, host.strip("[]"), number, protocol))
    return found


def _live_broker(broker: RegisteredBroker, listener: str, version: int) -> UpdateMetadataBroker:
    made = UpdateMetadataBroker(id=broker.id, rack=broker.rack)
    endpoints = endpoints_of(broker)
    if version == 0:
        own = next((each for each in endpoints if each.name == listener), None)
        if own is not None:
            made.v0_host, made.v0_port = own.host, own.port
        return made
    made.endpoints = [
        UpdateMetadataEndpoint(
            port=each.port, host=each.host, listener=each.name, security_protocol=each.protocol
        )
        for each in endpoints
    ]
    return made
