"""All partitions that this broker has in a cluster, as leader or follower: Kafka's ``ReplicaManager``.

The controller tells by LeaderAndIsr and StopReplica. Each request is checked against the controller's epoch by its
handler; here each partition is checked against its own leader's epoch. Requests are worked off one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple
from zlib import crc32

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.log.config import LogConfig
from ottla_broker.log.log import Log
from ottla_broker.log.manager import LogManager
from ottla_broker.log.names import is_topic_name
from ottla_broker.replica.fetcher import Fetcher, FetcherSettings, Leader
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.replica.partition import Partition
from ottla_broker.replica.replicated import IsrChange, LeaderState, ReplicatedPartition, Role
from ottla_broker.replica.standing import ASSURED, Standing
from ottla_broker.replica.throttle import Throttle
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
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

log = get_logger()

EPOCH_DURING_DELETE: Final = -2
NO_EPOCH: Final = -1
FULL: Final = 2
"""A LeaderAndIsr request that tells of all partitions that the broker has (KIP-866)."""

# Partitions that change their role before others get their turn on the event loop.
_SLICE: Final = 32


class Told(NamedTuple):
    """One partition of a LeaderAndIsr request."""

    topic: str
    topic_id: bytes
    partition: int
    state: LeaderState
    is_new: bool


class ClusterReplicas(ReplicaManager):
    """Owned by the loop thread.

    Attributes:
        on_folder_failed: told of a data folder whose disk has failed, and of its partitions, which are offline by then.
        on_all_failed: called when that was the last one.
        follower_throttle: how fast replicas are copied to here.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        clock: Clock,
        *,
        max_lag_ms: int,
        fetchers_per_leader: int,
        fetch: FetcherSettings,
        broker_epoch: Callable[[], int],
        connect: Callable[[int], Awaitable[Leader]],
        eligible: Callable[[int, int], bool],
        propose: Callable[[IsrChange], None],
        standing: Standing = ASSURED,
        marks: Callable[[str, str], str] = lambda topic, setting: "",
        windows: tuple[int, int] = (11, 1),
    ) -> None:
        """``marks`` gives a topic's setting, as text; ``windows`` is what throttles measure by: how many, how long."""
        super().__init__(broker_id, logs, clock)
        self._standing = standing
        self.leader_throttle = Throttle(clock, broker_id, partial(_setting, marks, "leader"), *windows)
        self.follower_throttle = Throttle(clock, broker_id, partial(_setting, marks, "follower"), *windows)
        self.on_folder_failed: list[Callable[[str, Sequence[ReplicatedPartition]], None]] = []
        self.on_all_failed: Callable[[], None] = lambda: None
        self._max_lag_ms = max_lag_ms
        self._per_leader = max(1, fetchers_per_leader)
        self._fetch_settings = fetch
        self._broker_epoch = broker_epoch
        self._connect = connect
        self._eligible = eligible
        self._propose = propose
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._turn = asyncio.Lock()
        self._leaving = False
        self._loop = asyncio.get_running_loop()
        # Until the controller has told of a partition, nothing is known to be committed but what is written down.
        logs.committed_of = self._written_down
        logs.environment.on_failure = self._log_failed

    def _written_down(self, topic: str, partition: int) -> int:
        return self._logs.high_watermark(topic, partition) or 0

    def last_stable_offset(self, log: Log) -> int:
        partition = self._partitions.get((log.topic, log.partition))
        if partition is None or not partition.is_open:
            return self._written_down(log.topic, log.partition)
        return partition.last_stable_offset

    def replicated(self) -> Iterator[ReplicatedPartition]:
        """All partitions, as what they are here."""
        for partition in self.partitions():
            assert isinstance(partition, ReplicatedPartition)
            yield partition

    # ---- what the controller tells

    async def apply_leader_and_isr(
        self, request: LeaderAndIsrRequest, version: int, config_of: Callable[[str], LogConfig]
    ) -> LeaderAndIsrResponse:
        """Lead and follow as told. ``config_of`` gives the configuration of a topic whose log may have to be made."""
        errors: dict[tuple[str, bytes], list[LeaderAndIsrPartitionError]] = {}
        async with self._turn:
            for done, told in enumerate(_told(request), 1):
                code = self._apply(told, config_of)
                errors.setdefault((told.topic, told.topic_id), []).append(
                    LeaderAndIsrPartitionError(
                        topic_name=told.topic if version < 5 else "",
                        partition_index=told.partition,
                        error_code=code,
                    )
                )
                if done % _SLICE == 0:
                    await asyncio.sleep(0)
            await self._close_idle_fetchers()
            for fetcher in self._fetchers.values():
                fetcher.hurry()
            if request.type == FULL:
                self._look_for_strays(request)
        if version < 5:
            return LeaderAndIsrResponse(
                partition_errors=[each for found in errors.values() for each in found]
            )
        return LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=found)
                for (_, topic_id), found in errors.items()
            ]
        )

    def _look_for_strays(self, request: LeaderAndIsrRequest) -> None:
        """Tell of logs that the controller, which has told of all partitions here, doesn't know. They are kept."""
        known = {(told.topic, told.partition) for told in _told(request)}
        for each in self._logs.logs():
            if (each.topic, each.partition) not in known and (
                each.topic,
                each.partition,
            ) not in self._partitions:
                log.warning("stray log", topic=each.topic, partition=each.partition, folder=each.path)

    def contradicts(self, request: LeaderAndIsrRequest) -> bool:
        """Whether a request speaks of other topics under the names of some that this broker has partitions of."""
        return any(
            self._partitions[told.topic_name, index].topic_id not in (told.topic_id, ZERO_UUID)
            for told in request.topic_states
            if told.topic_id != ZERO_UUID
            for index in self._numbers.get(told.topic_name, ())
        )

    def _apply(self, told: Told, config_of: Callable[[str], LogConfig]) -> ErrorCode:
        code = check_partition(told.topic, told.partition)
        if code is not ErrorCode.NONE:
            return code
        state = told.state
        found = self._partitions.get((told.topic, told.partition))
        if found is not None:
            assert isinstance(found, ReplicatedPartition)
            if found.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if found.topic_id != told.topic_id and ZERO_UUID not in (found.topic_id, told.topic_id):
                log.error(
                    "the controller speaks of another topic of this name",
                    topic=told.topic,
                    partition=told.partition,
                )
                return ErrorCode.INCONSISTENT_TOPIC_ID
            if state.leader_epoch <= found.leader_epoch:
                return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            partition = found or self._make(told, config_of)
            if state.leader == self.broker_id:
                self._lead(partition, state)
            else:
                self._follow(partition, state)
        except KafkaError as error:
            log.error(
                "a partition can't be served",
                topic=told.topic,
                partition=told.partition,
                reason=error.message,
            )
            return error.code
        return ErrorCode.NONE

    def _make(self, told: Told, config_of: Callable[[str], LogConfig]) -> ReplicatedPartition:
        """A partition that this broker didn't have. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        topic, index = told.topic, told.partition
        found = self._logs.get(topic, index)
        if (
            found is not None
            and found.topic_id != told.topic_id
            and ZERO_UUID not in (found.topic_id, told.topic_id)
        ):
            # It was deleted while this broker was away.
            path = self._logs.set_aside(topic, index)
            log.warning(
                "log of a deleted topic of this name set aside", topic=topic, partition=index, folder=path
            )
            found = None
        if found is None:
            self._logs.create(topic, index, told.topic_id, config_of(topic))
        made = ReplicatedPartition(
            topic,
            index,
            told.topic_id,
            self.broker_id,
            self._logs,
            self._clock,
            self._max_lag_ms,
            self._eligible,
            self._propose,
            self._standing,
        )
        self._put(made)
        return made

    def _lead(self, partition: ReplicatedPartition, state: LeaderState) -> None:
        key = (partition.topic, partition.partition)
        was = partition.role
        self._stop_following(key)
        new = partition.lead(state)
        log.info(
            "leader",
            topic=partition.topic,
            partition=partition.partition,
            epoch=state.leader_epoch,
            isr=list(state.isr),
            end_offset=partition.log.log_end_offset,
        )
        if was is not Role.LEADER or new:
            for listener in self.listeners:
                listener.on_leader(partition)

    def _follow(self, partition: ReplicatedPartition, state: LeaderState) -> None:
        key = (partition.topic, partition.partition)
        was = partition.role
        new = partition.follow(state)
        if was is Role.LEADER:
            for listener in self.listeners:
                listener.on_stop(*key)
        if new:
            self._stop_following(key)
            log.info(
                "follower",
                topic=partition.topic,
                partition=partition.partition,
                epoch=state.leader_epoch,
                leader=state.leader,
                end_offset=partition.log.log_end_offset,
            )
            if state.leader >= 0 and not self._leaving:
                self._fetcher(state.leader, key).add(partition)

    async def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete those that are to be deleted."""
        errors: list[StopReplicaPartitionError] = []
        async with self._turn:
            for topic, index, epoch, delete in _to_stop(request):
                code = self._stop_replica(topic, index, epoch, delete)
                errors.append(
                    StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code)
                )
            await self._close_idle_fetchers()
        return StopReplicaResponse(partition_errors=errors)

    def _stop_replica(self, topic: str, index: int, epoch: int, delete: bool) -> ErrorCode:
        code = check_partition(topic, index)
        if code is not ErrorCode.NONE:
            return code
        found = self._partitions.get((topic, index))
        if found is not None:
            assert isinstance(found, ReplicatedPartition)
            if found.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and epoch < found.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
        self._stop_following((topic, index))
        try:
            if delete:
                self.stop(topic, index, delete=True)
            elif found is not None:
                for listener in self.listeners:
                    listener.on_stop(topic, index)
                found.stop()
        except KafkaError as error:
            log.error("a replica can't be deleted", topic=topic, partition=index, reason=error.message)
            return error.code
        return ErrorCode.NONE

    async def retire(self, strays: Iterable[ReplicatedPartition]) -> None:
        """Have replicas no more that are not this broker's. Their logs are kept: nobody has asked to delete them."""
        async with self._turn:
            for each in strays:
                if each.role is Role.OFFLINE:
                    continue  # its disk has failed, so its log can't be used for another topic
                log.warning(
                    "stray replica: it is this broker's no more, and nobody told so; its log is left alone",
                    topic=each.topic,
                    partition=each.partition,
                    role=each.role.value,
                )
                self._stop_following((each.topic, each.partition))
                self.stop(each.topic, each.partition, delete=False)
            await self._close_idle_fetchers()

    # ---- fetchers

    def _fetcher(self, leader: int, key: tuple[str, int]) -> Fetcher:
        share = (leader, (crc32(key[0].encode()) * 31 + key[1]) % self._per_leader)
        found = self._fetchers.get(share)
        if found is None:
            found = self._fetchers[share] = Fetcher(
                leader,
                self.broker_id,
                self._broker_epoch,
                self._connect,
                self._fetch_settings,
                self._clock,
                self._disk_failed,
                self.follower_throttle,
            )
        return found

    def _stop_following(self, key: tuple[str, int]) -> None:
        for fetcher in self._fetchers.values():
            fetcher.remove(key)

    async def _close_idle_fetchers(self) -> None:
        for share in [share for share, fetcher in self._fetchers.items() if not len(fetcher)]:
            await self._fetchers.pop(share).close()

    # ---- from time to time

    def brokers_changed(self) -> None:
        """The brokers that are alive have changed."""
        for partition in self.replicated():
            partition.brokers_changed()

    def give_up_doubtful(self) -> set[tuple[str, int]]:
        """The partitions that others may lead by now in this broker's place; who waits there is sent to look for them.

        To be called from time to time while the store is silent.
        """
        doubtful = set()
        for partition in self.replicated():
            if partition.role is Role.LEADER and not partition.is_led_here:
                doubtful.add((partition.topic, partition.partition))
                partition.fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return doubtful

    def shrink_isrs(self) -> None:
        """Look for replicas that lag: to be called twice in ``replica.lag.time.max.ms``."""
        for partition in self.replicated():
            partition.consider_removing()

    # ---- failures, and the end

    def _log_failed(self, folder: str) -> None:
        """Called by a log whose disk has failed, on whatever thread it was used."""
        self._loop.call_soon_threadsafe(self._folder_failed, folder)

    def _disk_failed(self, partition: ReplicatedPartition, error: KafkaError) -> None:
        """Called by a fetcher that can't go on with a partition."""
        self._go_offline(partition)
        log.error(
            "a partition is offline",
            topic=partition.topic,
            partition=partition.partition,
            reason=error.message,
        )

    def _folder_failed(self, folder: str) -> None:
        """A data folder's disk has failed: its partitions are offline, those of the others go on."""
        if not self._logs.give_up_folder(folder):
            return
        prefix = folder + "/"
        offline = []
        for partition in self.replicated():
            local = self._logs.get(partition.topic, partition.partition)
            if local is not None and local.path.startswith(prefix):
                self._go_offline(partition)
                offline.append(partition)
        log.error("a data folder is out of use", folder=folder, partitions=len(offline))
        for callback in self.on_folder_failed:
            callback(folder, offline)
        if all(each.failed for each in self._logs.folders):
            self.on_all_failed()

    def _go_offline(self, partition: ReplicatedPartition) -> None:
        if partition.role is Role.OFFLINE:
            return
        was_leader = partition.role is Role.LEADER
        self._stop_following((partition.topic, partition.partition))
        partition.go_offline()
        if was_leader:
            for listener in self.listeners:
                listener.on_stop(partition.topic, partition.partition)

    def leave(self) -> None:
        """The broker hands its leaderships over, in order to stop.

        It follows none of the new leaders any more: they would wait for it as for one that is about to be in sync, and
        then it would be gone.
        """
        self._leaving = True

    async def stop_fetching(self) -> None:
        """No more fetches of leaders: the broker stops."""
        for fetcher in self._fetchers.values():
            await fetcher.close()
        self._fetchers.clear()

    def leads(self) -> Iterable[Partition]:
        """The partitions that this broker leads."""
        return [partition for partition in self.replicated() if partition.role is Role.LEADER]


def check_partition(topic: str, index: int) -> ErrorCode:
    """Refuse a partition that can have no folder: a topic named ``../x`` would leave ``log.dirs``."""
    if not is_topic_name(topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE if index >= 0 else ErrorCode.INVALID_REQUEST


def _setting(marks: Callable[[str, str], str], side: str, topic: str) -> str:
    return marks(topic, f"{side}.replication.throttled.replicas")


def _told(request: LeaderAndIsrRequest) -> Iterator[Told]:
    """A request's partitions, in whichever way its version groups them."""
    for state in request.ungrouped_partition_states:
        yield _one(request, state.topic_name, ZERO_UUID, state)
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield _one(request, topic.topic_name, topic.topic_id, state)


def _one(
    request: LeaderAndIsrRequest, topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState
) -> Told:
    return Told(
        topic,
        topic_id,
        state.partition_index,
        LeaderState(
            state.controller_epoch,
            state.leader,
            state.leader_epoch,
            state.isr,
            state.partition_epoch,
            state.replicas,
            state.adding_replicas,
            state.removing_replicas,
            state.leader_recovery_state != 0,
        ),
        state.is_new,
    )


def _to_stop(request: StopReplicaRequest) -> Iterator[tuple[str, int, int, bool]]:
    """Topic, partition, leader epoch and whether to delete, in whichever way the request's version has them."""
    for old in request.ungrouped_partitions:
        yield old.topic_name, old.partition_index, NO_EPOCH, request.delete_partitions
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield topic.name, index, NO_EPOCH, request.delete_partitions
    for state in request.topic_states:
        for each in state.partition_states:
            yield state.topic_name, each.partition_index, each.leader_epoch, each.delete_partition
