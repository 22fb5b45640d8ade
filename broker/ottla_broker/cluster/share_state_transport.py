"""Reaches the share coordinators of a cluster: this broker's own, or another by APIs 83 to 87 (KIP-932).

What one turn of the event loop wants of one broker for one group goes in one request. A broker that can't be reached,
or that doesn't serve these APIs, counts as no coordinator for now: the persister tries again. Kafka:
``PersisterStateManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.coordinator.share.state_batches import (
    ShareKey,
    ShareState,
    StateChange,
    from_wire,
    to_wire,
)
from ottla_broker.coordinator.share.state_coordinator import (
    Read,
    Settled,
    ShareStateCoordinator,
    coordinator_key,
)
from ottla_broker.events import get_logger
from ottla_broker.network.peer import PeerError, Peers, Purpose
from ottla_broker.tasks import Tasks
from ottla_protocol.errors import ErrorCode, KafkaError, error_code
from ottla_protocol.messages import (
    delete_share_group_state as deletion,
)
from ottla_protocol.messages import (
    initialize_share_group_state as initialization,
)
from ottla_protocol.messages import (
    read_share_group_state as reading,
)
from ottla_protocol.messages import (
    read_share_group_state_summary as summaries,
)
from ottla_protocol.messages import (
    write_share_group_state as writing,
)
from ottla_protocol.schema import Message

_log = get_logger()

_MOST_KEYS: Final = 200
_MOST_BATCHES: Final = 5_000
"""The most share partitions and state batches of one request; one share partition always fits."""
_MARGIN_SECONDS: Final = 5.0
"""How much longer than a coordinator waits for its replicas its answer may take."""
_ANY_EPOCH: Final = -1


class _Kind(NamedTuple):
    """The way in which requests of one API are made."""

    request: Callable[..., Message]
    topic: Callable[..., Any]


_INITIALIZE: Final = _Kind(
    initialization.InitializeShareGroupStateRequest, initialization.InitializeStateData
)
_READ: Final = _Kind(reading.ReadShareGroupStateRequest, reading.ReadStateData)
_WRITE: Final = _Kind(writing.WriteShareGroupStateRequest, writing.WriteStateData)
_DELETE: Final = _Kind(deletion.DeleteShareGroupStateRequest, deletion.DeleteStateData)
_SUMMARY: Final = _Kind(summaries.ReadShareGroupStateSummaryRequest, summaries.ReadStateSummaryData)


class _Asked(NamedTuple):
    """One share partition of a request. ``answered`` gets its part of the response, or why there is none."""

    data: Any
    answered: Callable[[Any], None]


class _Request:
    """A request in the making: no share partition is in it twice."""

    __slots__ = ("asked", "batches")

    def __init__(self) -> None:
        self.asked: dict[ShareKey, _Asked] = {}
        self.batches = 0

    def takes(self, key: ShareKey, batches: int) -> bool:
        return key not in self.asked and (
            not self.asked or (len(self.asked) < _MOST_KEYS and self.batches + batches <= _MOST_BATCHES)
        )


class ShareStateTransport:
    """Owned by the loop thread. See :class:`ottla_broker.coordinator.share.persister.ShareCoordinators`.

    ``leader_of`` is the broker that leads a partition of ``__share_group_state``, None or -1 without one.
    ``timeout_ms``: how long a coordinator waits for its replicas.
    """

    def __init__(
        self,
        broker_id: int,
        local: ShareStateCoordinator,
        leader_of: Callable[[int], int | None],
        peers: Peers,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._leader_of = leader_of
        self._peers = peers
        self._clock = clock
        self._timeout = timeout_ms / 1000 + _MARGIN_SECONDS
        self._waiting: dict[tuple[int, _Kind, str], list[_Request]] = {}
        # Brokers that didn't answer the last request.
        self._silent: set[int] = set()
        self._tasks = Tasks()

    def initialize(self, key: ShareKey, epoch: int, start: int, settled: Settled) -> None:
        broker = self._coordinator(key, settled)
        if broker == self._broker_id:
            self._local.initialize(key, epoch, start, settled)
        elif broker is not None:
            data = initialization.PartitionData(
                partition=key.partition, state_epoch=epoch, start_offset=start
            )
            self._ask(broker, _INITIALIZE, key, data, partial(_report, settled))

    def read(self, key: ShareKey, leader_epoch: int, read: Read) -> None:
        broker = self._coordinator(key, read)
        if broker == self._broker_id:
            self._local.read(key, leader_epoch, read)
        elif broker is not None:
            data = reading.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
            self._ask(broker, _READ, key, data, partial(_as_state, read, leader_epoch))

    def write(self, key: ShareKey, change: StateChange, settled: Settled) -> None:
        broker = self._coordinator(key, settled)
        if broker == self._broker_id:
            self._local.write(key, change, settled)
        elif broker is not None:
            data = writing.PartitionData(
                partition=key.partition,
                state_epoch=change.epoch,
                leader_epoch=change.leader_epoch,
                start_offset=change.start,
                delivery_complete_count=change.completed,
                state_batches=to_wire(change.batches),
            )
            self._ask(broker, _WRITE, key, data, partial(_report, settled), len(change.batches))

    def delete(self, key: ShareKey, settled: Settled) -> None:
        broker = self._coordinator(key, settled)
        if broker == self._broker_id:
            self._local.delete(key, settled)
        elif broker is not None:
            data = deletion.PartitionData(partition=key.partition)
            self._ask(broker, _DELETE, key, data, partial(_report, settled))

    def summary(self, key: ShareKey, read: Read) -> None:
        broker = self._coordinator(key, read)
        if broker == self._broker_id:
            self._local.summary(key, read)
        elif broker is not None:
            data = summaries.PartitionData(partition=key.partition, leader_epoch=_ANY_EPOCH)
            self._ask(broker, _SUMMARY, key, data, partial(_as_summary, read))

    async def close(self) -> None:
        """Drop the requests under way."""
        self._waiting.clear()
        await self._tasks.close()

    def _coordinator(self, key: ShareKey, refused: Callable[[KafkaError], None]) -> int | None:
        """The broker that coordinates the key; None: there is none, and ``refused`` knows."""
        broker = self._leader_of(self._local.partition_of(coordinator_key(key)))
        if broker is None or broker < 0:
            refused(
                KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    "no broker leads the partition of __share_group_state that has the state of the share partition",
                )
            )
            return None
        return broker

    def _ask(
        self,
        broker: int,
        kind: _Kind,
        key: ShareKey,
        data: Any,
        answered: Callable[[Any], None],
        batches: int = 0,
    ) -> None:
        if not self._waiting:
            self._clock.call_later(0, self._send_all)
        requests = self._waiting.setdefault((broker, kind, key.group_id), [])
        if not requests or not requests[-1].takes(key, batches):
            requests.append(_Request())
        requests[-1].asked[key] = _Asked(data, answered)
        requests[-1].batches += batches

    def _send_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (broker, kind, group_id), requests in waiting.items():
            for request in requests:
                self._tasks.start(self._send(broker, kind, group_id, request.asked))

    async def _send(self, broker: int, kind: _Kind, group_id: str, asked: dict[ShareKey, _Asked]) -> None:
        topics: dict[bytes, Any] = {}
        for key, each in asked.items():
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = kind.topic(topic_id=key.topic_id)
            topic.partitions.append(each.data)
        try:
            response = await self._peers.request(
                broker,
                kind.request(group_id=group_id, topics=list(topics.values())),
                timeout=self._timeout,
                purpose=Purpose.SHARE_STATE,
            )
        except PeerError as error:
            self._failed(broker, error)
            failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
            for each in asked.values():
                each.answered(failure)
            return
        self._silent.discard(broker)
        found = {
            (bytes(topic.topic_id), result.partition): result
            for topic in response.results
            for result in topic.partitions
        }
        for key, each in asked.items():
            result = found.get((key.topic_id, key.partition))
            if result is None:
                missing = f"broker {broker} answered nothing about {coordinator_key(key)}"
                each.answered(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, missing))
            elif result.error_code:
                each.answered(KafkaError(error_code(result.error_code), result.error_message))
            else:
                each.answered(result)

    def _failed(self, broker: int, error: PeerError) -> None:
        """Log the first of several failures."""
        if broker not in self._silent:
            self._silent.add(broker)
            _log.info("a share coordinator doesn't answer", broker=broker, reason=str(error))


def _report(settled: Settled, result: Any) -> None:
    settled(result if isinstance(result, KafkaError) else None)


def _as_state(read: Read, leader_epoch: int, result: reading.PartitionResult | KafkaError) -> None:
    if isinstance(result, KafkaError):
        read(result)
        return
    try:
        batches = from_wire(result.state_batches)
    except ValueError as error:
        read(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the share coordinator's answer is none: {error}"))
        return
    read(ShareState(result.state_epoch, leader_epoch, result.start_offset, batches))


def _as_summary(read: Read, result: summaries.PartitionResult | KafkaError) -> None:
    if isinstance(result, KafkaError):
        read(result)
        return
    read(
        ShareState(
            result.state_epoch,
            result.leader_epoch,
            result.start_offset,
            completed=result.delivery_complete_count,
        )
    )
