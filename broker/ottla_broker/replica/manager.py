"""All partitions that this broker has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.log.config import LogConfig
from ottla_broker.log.log import Log
from ottla_broker.log.manager import LogManager
from ottla_broker.replica.partition import Partition

if TYPE_CHECKING:
    from ottla_broker.replica.throttle import Throttle

_log = get_logger()


class ReplicaListener(Protocol):
    """Whoever must know which partitions are led here: the coordinators."""

    def on_leader(self, partition: Partition) -> None:
        """This broker leads ``partition`` from now on."""
        ...

    def on_stop(self, topic: str, partition: int) -> None:
        """This broker leads it no longer."""
        ...


class ReplicaSelector(Protocol):
    """Says which replica a consumer had better read from (KIP-392)."""

    def choose(self, partition: Partition, rack: str, offset: int) -> int | None:
        """The broker for a consumer in ``rack`` that is at ``offset``; ``None``: this one, the leader."""
        ...


class ReplicaManager:
    """Owned by the loop thread. Who leads what is decided by the controller, which calls this.

    Attributes:
        selector: where consumers are sent to read, None for here.
        leader_throttle: how fast replicas are copied from here, None where there are no followers.
    """

    def __init__(self, broker_id: int, logs: LogManager, clock: Clock) -> None:
        self.broker_id = broker_id
        self.listeners: list[ReplicaListener] = []
        self.selector: ReplicaSelector | None = None
        self.leader_throttle: Throttle | None = None
        self._logs = logs
        self._clock = clock
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._names: dict[bytes, str] = {}
        self._numbers: dict[str, set[int]] = {}

    def become_leader(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        leader_epoch: int,
        config: LogConfig,
        is_new: bool = False,
    ) -> Partition:
        """Lead a partition, with a new log if it has none yet.

        A partition that ``is_new`` never takes over a folder that stands there under its name.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the log can't be made.
        """
        found = self._partitions.get((topic, partition))
        if found is not None:
            found.leader_epoch = leader_epoch
            return found
        if is_new and self._logs.has(topic, partition):
            path = self._logs.set_aside(topic, partition)
            _log.warning("stray log set aside for a new topic", topic=topic, partition=partition, folder=path)
        if not self._logs.has(topic, partition):
            self._logs.create(topic, partition, topic_id, config)
        made = Partition(topic, partition, topic_id, leader_epoch, [self.broker_id], self._logs, self._clock)
        self._put(made)
        for listener in self.listeners:
            listener.on_leader(made)
        return made

    def _put(self, partition: Partition) -> None:
        self._partitions[partition.topic, partition.partition] = partition
        self._numbers.setdefault(partition.topic, set()).add(partition.partition)
        self._names[partition.topic_id] = partition.topic

    def stop(self, topic: str, partition: int, delete: bool) -> None:
        """Lead a partition no longer; ``delete`` removes its files too."""
        found = self._partitions.pop((topic, partition), None)
        if found is not None:
            siblings = self._numbers[topic]
            siblings.discard(partition)
            if not siblings:
                del self._numbers[topic]
                self._names.pop(found.topic_id, None)
            for listener in self.listeners:
                listener.on_stop(topic, partition)
            found.stop()
        if delete:
            self._logs.delete(topic, partition)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Have a topic's logs follow a new configuration, at once."""
        self._logs.update_config(topic, config)

    def partition(self, topic: str, partition: int) -> Partition | None:
        """The partition, if this broker has it."""
        return self._partitions.get((topic, partition))

    def preferred_replica(self, partition: Partition, rack: str, offset: int) -> int | None:
        """The broker that a consumer in ``rack`` had better read from, where it isn't this one."""
        return None if self.selector is None else self.selector.choose(partition, rack, offset)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, if this broker has a partition of it."""
        return self._names.get(topic_id)

    def partitions(self) -> Iterator[Partition]:
        """All of them."""
        return iter(self._partitions.values())

    def answer_fetches(self) -> None:
        """Have fetches that wait answered with what there is: the broker stops."""
        for partition in self._partitions.values():
            partition.answer_fetches()

    def last_stable_offset(self, log: Log) -> int:
        """How far a log may be compacted; its end where nobody leads it."""
        partition = self._partitions.get((log.topic, log.partition))
        return log.log_end_offset if partition is None else partition.last_stable_offset

    async def checkpoint_high_watermarks(self) -> None:
        """Write down the high watermarks of the partitions that have been used.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        used = {key: p.high_watermark for key, p in self._partitions.items() if p.is_open}
        if used:
            await self._logs.write_high_watermarks(used)
