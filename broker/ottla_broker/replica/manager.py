"""All partitions that this broker has, as leader or follower: Kafka's ``ReplicaManager``.

A broker that stands alone leads them all (:meth:`ReplicaManager.become_leader`). In a cluster the controller decides
(:mod:`.state_changes`), and partitions of other leaders are fetched (:mod:`.fetcher_manager`); nothing of both is
imported here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla_broker.events import get_logger
from ottla_broker.log.config import LogConfig
from ottla_broker.log.log import Log
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.log_dir_moves import LogDirMoves
from ottla_broker.replica.partition import Partition, Role
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.replica.fetcher_manager import FetcherManager
    from ottla_broker.replica.replication_quota import ReplicationQuota
    from ottla_broker.replica.selector import RackAwareSelector

_log = get_logger()


class ReplicaListener(Protocol):
    """Learns which partitions this broker leads: the coordinators."""

    def on_leader(self, partition: Partition) -> None:
        """This broker leads ``partition`` from now on."""

    def on_stop(self, topic: str, partition: int) -> None:
        """This broker no longer leads it."""


class ReplicaManager:
    """Owned by the loop thread.

    Attributes:
        listeners: learn which partitions are led here.
        selector: chooses the replica that a consumer reads from; None: always this one.
        leader_quota: how fast replicas are copied from here, None where there are no followers.
        moves: moves logs between data folders.
        fetchers: the fetchers of followed partitions, None for a broker that stands alone.
        on_folder_failed: called with a data folder whose disk has failed and its partitions, which are offline by then.
        on_all_failed: called when that was the last data folder.
        counters: what the partitions count, for metrics.
    """

    def __init__(self, environment: ReplicaEnvironment) -> None:
        self.broker_id = environment.broker_id
        self.listeners: list[ReplicaListener] = []
        self.selector: RackAwareSelector | None = None
        self.leader_quota: ReplicationQuota | None = None
        self.fetchers: FetcherManager | None = None
        self.moves = LogDirMoves(environment)
        self.counters = environment.counters
        self.on_folder_failed: list[Callable[[str, Sequence[Partition]], None]] = []
        self.on_all_failed: Callable[[], None] = lambda: None
        self._environment = environment
        # The replicas of partitions on a broker that stands alone.
        self._itself = (environment.broker_id,)
        self._logs = environment.logs
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._names: dict[bytes, str] = {}
        self._numbers: dict[str, set[int]] = {}

    def partition(self, topic: str, partition: int) -> Partition | None:
        """The partition, if this broker has it."""
        return self._partitions.get((topic, partition))

    def partitions(self) -> Collection[Partition]:
        """All partitions of this broker."""
        return self._partitions.values()

    def partitions_of(self, topic: str) -> list[Partition]:
        """A topic's partitions that this broker has."""
        return [self._partitions[topic, index] for index in self._numbers.get(topic, ())]

    def count_closed(self, partitions: Iterable[tuple[str, int]]) -> int:
        """Return the number of these partitions, by topic and number, whose log nothing has used yet."""
        found = (self._partitions.get(key) for key in partitions)
        return sum(partition is not None and not partition.is_open for partition in found)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, if this broker has a partition of it."""
        return self._names.get(topic_id)

    def become_leader(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        leader_epoch: int,
        config: LogConfig,
        is_new: bool = False,
    ) -> Partition:
        """Lead a partition as its only replica, with a new log if it has none yet.

        A partition that ``is_new`` never takes over a folder that exists under its name. Raises KafkaError:
        KAFKA_STORAGE_ERROR when the log can't be made.
        """
        state = LeaderState(0, self.broker_id, leader_epoch, self._itself, 0, self._itself)
        found = self.partition(topic, partition)
        if found is not None:
            found.lead(state, open_log=False)
            return found
        if is_new and self._logs.has(topic, partition):
            path = self._logs.set_aside(topic, partition)
            _log.warning("stray log set aside for a new topic", topic=topic, partition=partition, folder=path)
        made = self.create(topic, partition, topic_id, config)
        made.lead(state, open_log=False)
        self.announce_leader(made)
        return made

    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Partition:
        """Add a partition, with a new log if it has none; it has no role yet. Raises KafkaError."""
        if not self._logs.has(topic, partition):
            self._logs.create(topic, partition, topic_id, config)
        made = self._partitions[topic, partition] = Partition(topic, partition, topic_id, self._environment)
        self._numbers.setdefault(topic, set()).add(partition)
        self._names[topic_id] = topic
        self.moves.resume(made)
        return made

    def announce_leader(self, partition: Partition) -> None:
        """Have the listeners know that this broker leads a partition."""
        for listener in self.listeners:
            listener.on_leader(partition)

    def announce_stop(self, topic: str, partition: int) -> None:
        """Have the listeners know that this broker no longer leads a partition."""
        for listener in self.listeners:
            listener.on_stop(topic, partition)

    def stop(self, topic: str, partition: int, delete: bool) -> None:
        """Drop a partition; ``delete`` removes its files too. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        self.moves.stop(topic, partition)
        found = self._partitions.pop((topic, partition), None)
        if found is not None:
            numbers = self._numbers[topic]
            numbers.discard(partition)
            if not numbers:
                del self._numbers[topic]
                self._names.pop(found.topic_id, None)
                self.counters.forget(topic)
            self.announce_stop(topic, partition)
            found.stop()
        if delete:
            self._logs.delete(topic, partition)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Apply a new configuration to a topic's logs, at once."""
        self._logs.update_config(topic, config)

    def preferred_replica(self, partition: Partition, rack: str, offset: int) -> int | None:
        """The broker that a consumer in ``rack`` should read from, where it isn't this one."""
        return None if self.selector is None else self.selector.choose(partition, rack, offset)

    def answer_fetches(self) -> None:
        """Have fetches that wait answered with what they find: the broker stops."""
        for partition in self._partitions.values():
            partition.answer_fetches()

    def last_stable_offset(self, log: Log) -> int:
        """The offset below which a log may be compacted."""
        partition = self.partition(log.topic, log.partition)
        if partition is None or not partition.is_open:
            return log.open().committed_offset()
        return partition.last_stable_offset

    async def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of the partitions that have been used. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        used = {key: each.high_watermark for key, each in self._partitions.items() if each.is_open}
        if used:
            await self._logs.write_high_watermarks(used)

    def brokers_changed(self) -> None:
        """The set of live brokers has changed."""
        for partition in self._partitions.values():
            partition.brokers_changed()

    def remove_lagging(self) -> None:
        """Look for in-sync replicas that lag: to be called twice in ``replica.lag.time.max.ms``."""
        for partition in self._partitions.values():
            partition.remove_lagging()

    def fail_doubtful(self) -> set[tuple[str, int]]:
        """The partitions that another broker may lead by now; callers that wait there go and look for it.

        To be called from time to time while the store is silent.
        """
        doubtful = set()
        for key, partition in self._partitions.items():
            if partition.role is Role.LEADER and not partition.is_led_here:
                doubtful.add(key)
                partition.fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return doubtful

    def share_with_cluster(self) -> None:
        """From now on, other brokers may have replicas too: to be called before the logs are loaded.

        Partitions of a failed data folder go offline, so that others can lead them. Until the controller has sent a
        partition's state, only what the checkpoint says is known to be committed.
        """
        logs, loop = self._logs, asyncio.get_running_loop()

        def on_failure(folder: str) -> None:
            # On whatever thread used the log.
            loop.call_soon_threadsafe(self._folder_failed, folder)

        logs.environment.on_failure = on_failure
        logs.committed_of = lambda topic, partition: logs.high_watermark(topic, partition) or 0

    def _folder_failed(self, folder: str) -> None:
        if not self._logs.give_up_folder(folder):
            return
        self.moves.folder_failed(folder)
        prefix = folder + "/"
        offline = []
        for partition in self._partitions.values():
            log = self._logs.get(partition.topic, partition.partition)
            if log is not None and log.path.startswith(prefix):
                self._go_offline(partition)
                offline.append(partition)
        _log.error("a data folder is out of use", folder=folder, partitions=len(offline))
        for callback in self.on_folder_failed:
            callback(folder, offline)
        if all(each.failed for each in self._logs.folders):
            self.on_all_failed()

    def partition_failed(self, partition: Partition, error: KafkaError) -> None:
        """Take a partition offline whose log can't be used."""
        self._go_offline(partition)
        _log.error(
            "a partition is offline",
            topic=partition.topic,
            partition=partition.partition,
            reason=error.message,
        )

    def _go_offline(self, partition: Partition) -> None:
        if partition.role is Role.OFFLINE:
            return
        self.moves.stop(partition.topic, partition.partition)
        was_leader = partition.role is Role.LEADER
        if self.fetchers is not None:
            self.fetchers.remove(partition.topic, partition.partition)
        partition.go_offline()
        if was_leader:
            self.announce_stop(partition.topic, partition.partition)
