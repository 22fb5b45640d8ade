"""The requests that one event of the controller ends with: Kafka's ``ControllerBrokerRequestBatch``.

An event notes which partitions each broker shall lead or follow, which replicas it shall stop, and whose metadata has
changed; then all goes out, to each broker in this order: LeaderAndIsr, UpdateMetadata, StopReplica. What is sent is
what holds at that moment, in whichever version the broker turns out to speak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla_broker.controller.cluster.channel import Channels, QueuedRequest
from ottla_broker.controller.cluster.context import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    Context,
    Partition,
    PartitionView,
    RegisteredBroker,
)
from ottla_broker.store.keys import Assignment
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

if TYPE_CHECKING:
    from ottla_protocol.schema import Message

SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

Answered = Callable[[int, Any], None]
"""Told a broker and its answer; None when the broker has gone first."""


class Replies:
    """Waits for some brokers' answers to a batch. A broker that goes first counts as one that has answered."""

    def __init__(self) -> None:
        self._missing: set[int] = set()
        self._all = asyncio.Event()
        self._all.set()

    def expect(self, broker: int) -> None:
        self._missing.add(broker)
        self._all.clear()

    def heard(self, broker: int, answer: Any) -> None:
        """An :data:`Answered`."""
        self._missing.discard(broker)
        if not self._missing:
            self._all.set()

    async def wait(self, timeout: float) -> bool:
        """Whether all have answered within so many seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._all.wait()
        except TimeoutError:
            return False
        return True


class Endpoint(NamedTuple):
    """A listener of a broker, as ``/brokers/ids/N`` has it."""

    name: str
    host: str
    port: int
    protocol: int


class _Led(NamedTuple):
    partition: Partition
    topic_id: bytes
    view: PartitionView
    assignment: Assignment
    is_new: bool


class _Known(NamedTuple):
    """What brokers are to know of a partition; ``view`` None: it was never led."""

    partition: Partition
    topic_id: bytes
    view: PartitionView | None
    replicas: Sequence[int]
    offline: Sequence[int]
    deleting: bool


class _Stopped(NamedTuple):
    partition: Partition
    leader_epoch: int
    delete: bool


class Batch:
    """Made for one event, sent once."""

    def __init__(self, context: Context, channels: Channels, controller_id: int, listener: str) -> None:
        """``listener`` is the name of the one that brokers use among themselves."""
        self._context = context
        self._channels = channels
        self._controller_id = controller_id
        self._listener = listener
        self._lead: dict[int, dict[Partition, bool]] = {}
        self._stop: dict[int, dict[Partition, bool]] = {}
        self._tell: set[int] = set()
        self._changed: dict[Partition, None] = {}

    def lead(self, brokers: Iterable[int], partition: Partition, *, is_new: bool = False) -> None:
        """Have brokers lead or follow a partition as its state says; all brokers hear of it."""
        online = self._context.live_or_leaving()
        for broker in brokers:
            if broker in online:
                told = self._lead.setdefault(broker, {})
                told[partition] = is_new or told.get(partition, False)
        self.tell(online, [partition])

    def stop(self, brokers: Iterable[int], partition: Partition, *, delete: bool) -> None:
        """Have brokers stop a replica, and perhaps delete it."""
        online = self._context.live_or_leaving()
        for broker in brokers:
            if broker in online:
                told = self._stop.setdefault(broker, {})
                told[partition] = delete or told.get(partition, False)
                if delete:
                    # A replica that is no more neither leads nor follows.
                    self._lead.get(broker, {}).pop(partition, None)

    def tell(self, brokers: Iterable[int], partitions: Iterable[Partition] = ()) -> None:
        """Have brokers' metadata brought up to date: all live brokers, and these partitions."""
        self._tell.update(brokers)
        self._changed.update(dict.fromkeys(partitions))

    def send(self, *, on_led: Answered | None = None, on_stopped: Answered | None = None) -> None:
        """Send everything that was noted; those who want to hear the answers are told each broker's."""
        context = self._context
        for broker, told in sorted(self._lead.items()):
            led = [each for each in map(self._led, told, told.values()) if each is not None]
            if led:
                addresses = self._addresses({each.view.state.leader for each in led})
                self._order(
                    broker, ApiKey.LEADER_AND_ISR, partial(self._leader_and_isr, led, addresses), on_led
                )
        known = [self._known(partition) for partition in self._changed if context.has(partition)]
        brokers = [context.brokers[broker] for broker in sorted(context.live_or_leaving())]
        for broker in sorted(self._tell & context.live_or_leaving()):
            self._order(broker, ApiKey.UPDATE_METADATA, partial(self._metadata, known, brokers), None)
        for broker, to_stop in sorted(self._stop.items()):
            stopped = [_Stopped(each, self._stop_epoch(each), delete) for each, delete in to_stop.items()]
            self._order(broker, ApiKey.STOP_REPLICA, partial(self._stop_replica, stopped), on_stopped)

    def _order(
        self,
        broker: int,
        key: ApiKey,
        make: Callable[[int, int], Message],
        answered: Answered | None,
    ) -> None:
        """``make`` takes the broker's epoch and the version."""
        build = partial(make, self._context.brokers[broker].epoch)
        tell = None if answered is None else partial(answered, broker)
        self._channels.send(broker, QueuedRequest(int(key), build, tell))

    # ---- what holds now

    def _led(self, partition: Partition, is_new: bool) -> _Led | None:
        context = self._context
        view = context.view(partition)
        if view is None:
            return None
        topic_id = context.topics[partition[0]].id or ZERO_UUID
        return _Led(partition, topic_id, view, context.assignment(partition), is_new)

    def _known(self, partition: Partition) -> _Known:
        context = self._context
        return _Known(
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
        """Where brokers are reached by the others."""
        registered = [
            self._context.brokers[each] for each in sorted(brokers) if each in self._context.brokers
        ]
        return [
            LeaderAndIsrLiveLeader(broker_id=broker.id, host_name=endpoint.host, port=endpoint.port)
            for broker in registered
            for endpoint in endpoints_of(broker)
            if endpoint.name == self._listener
        ]

    # ---- requests

    def _leader_and_isr(
        self, led: list[_Led], addresses: list[LeaderAndIsrLiveLeader], broker_epoch: int, version: int
    ) -> Message:
        request = LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker_epoch,
            live_leaders=addresses,
        )
        topics: dict[str, LeaderAndIsrTopicState] = {}
        for (name, index), topic_id, view, assignment, is_new in led:
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
            if name not in topics:
                topics[name] = LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id)
                request.topic_states.append(topics[name])
            topics[name].partition_states.append(state)
        return request

    def _metadata(
        self, known: list[_Known], brokers: list[RegisteredBroker], broker_epoch: int, version: int
    ) -> Message:
        request = UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker_epoch,
            live_brokers=[_live_broker(broker, self._listener, version) for broker in brokers],
        )
        topics: dict[str, UpdateMetadataTopicState] = {}
        for each in known:
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
            if name not in topics:
                topics[name] = UpdateMetadataTopicState(topic_name=name, topic_id=each.topic_id)
                request.topic_states.append(topics[name])
            topics[name].partition_states.append(made)
        return request

    def _stop_replica(self, stopped: list[_Stopped], broker_epoch: int, version: int) -> Message:
        request = StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker_epoch,
        )
        if version < 3:
            # These versions delete all of a request or nothing; an event never asks for both.
            request.delete_partitions = any(each.delete for each in stopped)
        topics: dict[str, StopReplicaTopicState] = {}
        for (name, index), leader_epoch, delete in stopped:
            if version == 0:
                request.ungrouped_partitions.append(
                    StopReplicaPartitionV0(topic_name=name, partition_index=index)
                )
            elif version < 3:
                request.topics.append(StopReplicaTopicV1(name=name, partition_indexes=[index]))
            else:
                if name not in topics:
                    topics[name] = StopReplicaTopicState(topic_name=name)
                    request.topic_states.append(topics[name])
                topics[name].partition_states.append(
                    StopReplicaPartitionState(
                        partition_index=index, leader_epoch=leader_epoch, delete_partition=delete
                    )
                )
        return request


def endpoints_of(broker: RegisteredBroker) -> list[Endpoint]:
    """A broker's listeners. One that can't be read, or whose protocol isn't known, is left out."""
    found = []
    for text in broker.registration.endpoints:
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        protocol = SECURITY_PROTOCOLS.get(broker.registration.protocols.get(name, name))
        if port.isdigit() and protocol is not None:
            found.append(Endpoint(name, host.strip("[]"), int(port), protocol))
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
