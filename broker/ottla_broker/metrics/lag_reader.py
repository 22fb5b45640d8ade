"""Reads how far groups are behind in the partitions of which this broker has a replica.

What counts as lag says :mod:`ottla_protocol.lag`. The log behind a committed offset is looked through when the offset
moves, and what was found is kept while it stays. Lag in time is the age of the next record that the group reads: now,
less the time in the header of its batch.
"""

from __future__ import annotations

from collections.abc import Container, Generator
from typing import Final, NamedTuple

from ottla_broker.events import get_logger
from ottla_broker.log.manager import LogManager
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import KafkaError, ProtocolError
from ottla_protocol.lag import LOOK_BYTES, MOST_LOOK_BYTES, Look, unread

_log = get_logger()

GroupPartition = tuple[str, str, int]
"""Group, topic and partition."""

_BYTES_A_ROUND: Final = 8 << 20
"""Of logs that are looked through in one scrape or sample: of tiny batches that takes most of a second."""
_BYTES_WHEN_SPENT: Final = 1 << 10
"""The same behind each further offset, so that a group which has read all but a marker has nothing left."""


class Behind(NamedTuple):
    """The records that a group has left in a partition, and the age of the first; None where that isn't known."""

    records: int
    age_ms: int | None


class LagReader:
    """Owned by the loop thread.

    Attributes:
        looks: what was found behind the committed offset of each group's partition that has a lag.
    """

    def __init__(self, replicas: ReplicaManager, logs: LogManager) -> None:
        self._replicas = replicas
        self._logs = logs
        self.looks: dict[GroupPartition, Look] = {}
        self._bytes_left = 0

    def begin(self) -> None:
        """Begin a scrape or a sample."""
        self._bytes_left = _BYTES_A_ROUND

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

    def behind(
        self, group_id: str, partition: Partition, offset: int, end: int, now_ms: int, done: int = 0
    ) -> Generator[None, None, Behind]:
        """How far a group is behind that reads on at ``offset``, where :meth:`find` has found the end.

        Yields after each few milliseconds of work. ``done``: as in :func:`ottla_protocol.lag.unread`, of a share group.
        """
        key = (group_id, partition.topic, partition.partition)
        if not partition.is_open:
            records = unread(offset, 0, end, done)
            return Behind(records, None if records else 0)
        start = partition.log.log_start_offset
        records = unread(offset, start, end, done)
        if records:
            look = yield from self._look(key, partition, max(offset, start))
            # Some of the records that it found may be done with, and some offsets aren't records: both are bounds.
            records = min(records, look.unread(start, end))
        if not records:
            self.looks.pop(key, None)
            return Behind(0, 0)
        time_ms = look.time_ms
        if look.first is None:
            # No decided record is near: the next one may be in a transaction that is open.
            time_ms = _time_at(partition, look.next)
        return Behind(records, None if time_ms is None else max(0, now_ms - time_ms))

    def keep(self, groups: Container[str]) -> None:
        """Forget all other groups."""
        self.looks = {key: value for key, value in self.looks.items() if key[0] in groups}

    def _look(self, key: GroupPartition, partition: Partition, offset: int) -> Generator[None, None, Look]:
        """What is behind an offset, read on as far as it goes."""
        look = self.looks.get(key)
        if look is None or look.offset != offset:
            look = self.looks[key] = Look(offset)
        try:
            while partition.is_open and not look.is_over:
                reader, stable = partition.log.reader, partition.last_stable_offset
                is_spent = self._bytes_left <= 0
                most = _BYTES_WHEN_SPENT if is_spent else LOOK_BYTES
                found = reader.read(look.next, most, max_offset=stable, min_one=True)
                if found is None or found.size > MOST_LOOK_BYTES:
                    break
                aborted = reader.aborted(look.next, found, stable)
                size = look.add(found.read(), [(each.first_offset, each.producer_id) for each in aborted])
                if not size or is_spent:
                    break
                self._bytes_left -= size
                yield
        except (KafkaError, ProtocolError, OSError) as error:
            _log.debug("lag counts offsets", topic=key[1], partition=key[2], why=str(error))
        return look


def _time_at(partition: Partition, offset: int) -> int | None:
    try:
        return partition.log.reader.timestamp_at(max(offset, partition.log.log_start_offset))
    except KafkaError as error:
        _log.debug("no lag in time", topic=partition.topic, partition=partition.partition, why=str(error))
        return None
