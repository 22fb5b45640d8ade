"""Leads, follows and deletes partitions as the controller says: LeaderAndIsr and StopReplica.

The requests are checked against the controller's epoch before they come here; each partition is checked against its
own leader's epoch. Requests are worked off one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.events import get_logger
from ottla_broker.log.config import LogConfig
from ottla_broker.log.names import is_topic_name
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.partition import Partition, Role
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode, KafkaError
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
from ottla_protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla_broker.log.manager import LogManager
    from ottla_broker.replica.fetcher_manager import FetcherManager
    from ottla_broker.replica.manager import ReplicaManager

_log = get_logger()

EPOCH_DURING_DELETE: Final = -2
NO_EPOCH: Final = -1
FULL: Final = 2
"""The type of a LeaderAndIsr request that names all partitions that the broker has (KIP-866)."""

_FLAT_ERRORS_UNTIL: Final = 4
"""The last version of LeaderAndIsr whose answer has a flat list of errors, by topic name."""

# Partitions that change their role before others get their turn on the event loop.
_SLICE: Final = 32


class _Change(NamedTuple):
    """One partition of a LeaderAndIsr request."""

    topic: str
    topic_id: bytes
    partition: int
    state: LeaderState


class ReplicaStateChanges:
    """Owned by the loop thread."""

    def __init__(self, replicas: ReplicaManager, fetchers: FetcherManager, logs: LogManager) -> None:
        self._replicas = replicas
        self._fetchers = fetchers
        self._logs = logs
        self._turn = asyncio.Lock()

    async def apply_leader_and_isr(
        self, request: LeaderAndIsrRequest, version: int, config_of: Callable[[str], LogConfig]
    ) -> LeaderAndIsrResponse:
        """Lead and follow as requested; ``config_of`` gives a topic's configuration, should its log have to be made."""
        errors: dict[tuple[str, bytes], list[LeaderAndIsrPartitionError]] = {}
        is_flat = version <= _FLAT_ERRORS_UNTIL
        async with self._turn:
            async for change in unhurried(_changes(request), _SLICE):
                code = self._apply(change, config_of)
                errors.setdefault((change.topic, change.topic_id), []).append(
                    LeaderAndIsrPartitionError(
                        topic_name=change.topic if is_flat else "",
                        partition_index=change.partition,
                        error_code=code,
                    )
                )
            await self._fetchers.close_idle()
            self._fetchers.hurry()
            if request.type == FULL:
                self._log_strays(request)
        if is_flat:
            return LeaderAndIsrResponse(
                partition_errors=[each for found in errors.values() for each in found]
            )
        return LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=found)
                for (_, topic_id), found in errors.items()
            ]
        )

    def _log_strays(self, request: LeaderAndIsrRequest) -> None:
        """Log which logs here the controller doesn't know, after it has named all it knows. They are kept."""
        known = {(each.topic_name, each.partition_index) for each in request.ungrouped_partition_states}
        for topic in request.topic_states:
            known.update((topic.topic_name, each.partition_index) for each in topic.partition_states)
        for log in self._logs.logs():
            if (log.topic, log.partition) not in known and not self._replicas.partition(
                log.topic, log.partition
            ):
                _log.warning("stray log", topic=log.topic, partition=log.partition, folder=log.path)

    def contradicts(self, request: LeaderAndIsrRequest) -> bool:
        """Whether a request names a topic with another id than this broker's partitions of that name have."""
        return any(
            partition.topic_id not in (topic.topic_id, ZERO_UUID)
            for topic in request.topic_states
            if topic.topic_id != ZERO_UUID
            for partition in self._replicas.partitions_of(topic.topic_name)
        )

    def _apply(self, change: _Change, config_of: Callable[[str], LogConfig]) -> ErrorCode:
        code = check_partition(change.topic, change.partition)
        if code is not ErrorCode.NONE:
            return code
        state = change.state
        found = self._replicas.partition(change.topic, change.partition)
        if found is not None:
            if found.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if _differ(found.topic_id, change.topic_id):
                _log.error(
                    "the controller's topic of this name has another id",
                    topic=change.topic,
                    partition=change.partition,
                )
                return ErrorCode.INCONSISTENT_TOPIC_ID
            if state.leader_epoch <= found.leader_epoch:
                return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._replicas.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            partition = found or self._create(change, config_of)
            if state.leader == self._replicas.broker_id:
                self._lead(partition, state)
            else:
                self._follow(partition, state)
        except KafkaError as error:
            _log.error(
                "a partition can't be served",
                topic=change.topic,
                partition=change.partition,
                reason=error.message,
            )
            return error.code
        return ErrorCode.NONE

    def _create(self, change: _Change, config_of: Callable[[str], LogConfig]) -> Partition:
        """Add a partition that this broker didn't have. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        topic, index = change.topic, change.partition
        found = self._logs.get(topic, index)
        if found is not None and _differ(found.topic_id, change.topic_id):
            # Its topic was deleted while this broker was away.
            path = self._logs.set_aside(topic, index)
            _log.warning(
                "log of a deleted topic of this name set aside", topic=topic, partition=index, folder=path
            )
        return self._replicas.create(topic, index, change.topic_id, config_of(topic))

    def _lead(self, partition: Partition, state: LeaderState) -> None:
        was = partition.role
        self._fetchers.remove(partition.topic, partition.partition)
        is_new = partition.lead(state)
        _log.info(
            "leader",
            topic=partition.topic,
            partition=partition.partition,
            epoch=state.leader_epoch,
            isr=list(state.isr),
            end_offset=partition.log.log_end_offset,
        )
        if was is not Role.LEADER or is_new:
            self._replicas.announce_leader(partition)

    def _follow(self, partition: Partition, state: LeaderState) -> None:
        was = partition.role
        is_new = partition.follow(state)
        if was is Role.LEADER:
            self._replicas.announce_stop(partition.topic, partition.partition)
        if is_new:
            self._fetchers.remove(partition.topic, partition.partition)
            _log.info(
                "follower",
                topic=partition.topic,
                partition=partition.partition,
                epoch=state.leader_epoch,
                leader=state.leader,
                end_offset=partition.log.log_end_offset,
            )
            if state.leader >= 0:
                self._fetchers.add(partition)

    async def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete those that the request says."""
        errors: list[StopReplicaPartitionError] = []
        async with self._turn:
            async for topic, index, epoch, delete in unhurried(_stops(request), _SLICE):
                code = self._stop(topic, index, epoch, delete)
                errors.append(
                    StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code)
                )
            await self._fetchers.close_idle()
        return StopReplicaResponse(partition_errors=errors)

    def _stop(self, topic: str, index: int, epoch: int, delete: bool) -> ErrorCode:
        code = check_partition(topic, index)
        if code is not ErrorCode.NONE:
            return code
        found = self._replicas.partition(topic, index)
        if found is not None:
            if found.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and epoch < found.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
        self._fetchers.remove(topic, index)
        try:
            if delete:
                self._replicas.stop(topic, index, delete=True)
            elif found is not None:
                self._replicas.announce_stop(topic, index)
                found.stop()
        except KafkaError as error:
            _log.error("a replica can't be deleted", topic=topic, partition=index, reason=error.message)
            return error.code
        return ErrorCode.NONE

    async def drop_strays(self, strays: Iterable[Partition]) -> None:
        """Drop replicas that were assigned to other brokers. Their logs are kept: no one has asked to delete them."""
        async with self._turn:
            async for each in unhurried(strays, _SLICE):
                if each.role is Role.OFFLINE:
                    continue  # its disk has failed, so its log can't be used for another topic
                _log.warning(
                    "stray replica: no longer assigned to this broker; its log is kept",
                    topic=each.topic,
                    partition=each.partition,
                    role=each.role.value,
                )
                self._fetchers.remove(each.topic, each.partition)
                self._replicas.stop(each.topic, each.partition, delete=False)
            await self._fetchers.close_idle()


def check_partition(topic: str, index: int) -> ErrorCode:
    """Refuse a partition that can have no folder: a topic named ``../x`` would leave ``log.dirs``."""
    if not is_topic_name(topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE if index >= 0 else ErrorCode.INVALID_REQUEST


def _differ(one: bytes, other: bytes) -> bool:
    """Whether two topic ids are of different topics; topics made before Kafka 2.8 have none."""
    return one != other and ZERO_UUID not in (one, other)


def _changes(request: LeaderAndIsrRequest) -> Iterator[_Change]:
    """A request's partitions, whichever way its version groups them."""
    named = [(each.topic_name, ZERO_UUID, each) for each in request.ungrouped_partition_states]
    for topic in request.topic_states:
        named += [(topic.topic_name, topic.topic_id, each) for each in topic.partition_states]
    for name, topic_id, each in named:
        state = LeaderState(
            each.controller_epoch,
            each.leader,
            each.leader_epoch,
            each.isr,
            each.partition_epoch,
            each.replicas,
        )
        yield _Change(name, topic_id, each.partition_index, state)


def _stops(request: StopReplicaRequest) -> Iterator[tuple[str, int, int, bool]]:
    """Topic, partition, leader epoch and whether to delete, whichever way the request's version has them."""
    for old in request.ungrouped_partitions:
        yield old.topic_name, old.partition_index, NO_EPOCH, request.delete_partitions
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield topic.name, index, NO_EPOCH, request.delete_partitions
    for state in request.topic_states:
        for each in state.partition_states:
            yield state.topic_name, each.partition_index, each.leader_epoch, each.delete_partition
