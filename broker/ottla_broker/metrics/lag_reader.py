"""Reads partitions' ends, and how old the record at an offset is: what lag is computed from.

A broker knows the partitions of which it has a replica. Lag in time is the age of the next record that the group reads:
now, less the timestamp in the header of the batch that holds the committed offset. It is looked up when the offset or
the lag begins, and kept while the offset stays.
"""

from __future__ import annotations

from collections.abc import Container

from ottla_broker.events import get_logger
from ottla_broker.log.manager import LogManager
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import KafkaError

_log = get_logger()

GroupPartition = tuple[str, str, int]
"""Group, topic and partition."""


class LagReader:
    """Owned by the loop thread.

    Attributes:
        times: the committed offset of each group's partition, and the timestamp of the record there.
    """

    def __init__(self, replicas: ReplicaManager, logs: LogManager) -> None:
        self._replicas = replicas
        self._logs = logs
        self.times: dict[GroupPartition, tuple[int, int | None]] = {}

    def find(self, topic: str, index: int) -> tuple[Partition | None, int | None]:
        """This broker's replica with its high watermark; None: there is no replica, or its end isn't known.

        The high watermark of a log that isn't in use comes from the checkpoint.
        """
        partition = self._replicas.partition(topic, index)
        if partition is None:
            return None, None
        if partition.is_open:
            return partition, partition.high_watermark
        return partition, self._logs.high_watermark(topic, index)

    def age_ms(
        self, group_id: str, partition: Partition, index: int, offset: int, records: int, now_ms: int
    ) -> int | None:
        """The age of the record at the committed offset; None where the log isn't in use or can't be read."""
        key = (group_id, partition.topic, index)
        if not records:
            self.times.pop(key, None)
            return 0
        known = self.times.get(key)
        if known is None or known[0] != offset:
            if not partition.is_open:
                return None
            known = self.times[key] = offset, _timestamp(partition, offset)
        timestamp = known[1]
        return None if timestamp is None else max(0, now_ms - timestamp)

    def keep(self, groups: Container[str]) -> None:
        """Forget all other groups."""
        self.times = {key: value for key, value in self.times.items() if key[0] in groups}


def _timestamp(partition: Partition, offset: int) -> int | None:
    try:
        return partition.log.reader.timestamp_at(max(offset, partition.log.log_start_offset))
    except KafkaError as error:
        _log.debug("no lag in time", topic=partition.topic, partition=partition.partition, why=str(error))
        return None
