"""The driver's questions to brokers: partitions, offsets, committed offsets, and sizes of logs.

Every call blocks, up to a deadline: ``kafka.request.timeout.ms`` to find the brokers, and then
``kafka.default.api.timeout.ms`` if that is set. Errors are ``ottla_client``'s, each one line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final, Self

from ottla_client import TopicMetadata, TopicPartition
from ottla_client.admin import OffsetSpec, PartialError, PartitionLag
from ottla_client.errors import (
    BrokerError,
    ClientError,
    UnknownTopicError,
    UnsupportedApiError,
)
from ottla_client.lowlevel import near_names
from ottla_client.sync import Admin
from ottla_pipeline.reading.ranges import Isolation, SegmentPlace
from ottla_protocol.errors import ErrorCode

from . import kafka
from .errors import OptionError
from .options import Topics

log = logging.getLogger("ottla_pipeline")

_PLACES_SECONDS: Final = 30.0
"""The time for which sizes and folders of logs are cached."""


@dataclass(frozen=True)
class LogSize:
    """A partition's log on its leader's disk: bytes, data folder, and the leader's id."""

    size: int
    folder: str
    broker: int


@dataclass(frozen=True)
class LogEnd:
    """The end of a log, and its leader's epoch; -1 if unknown."""

    offset: int
    leader_epoch: int = -1


class ClusterQueries:
    """Asks a cluster's brokers. Connects at the first call; safe to use from several threads."""

    def __init__(
        self,
        bootstrap_servers: str,
        client: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``client`` has Kafka's settings without ``kafka.``. Raises OptionError for an invalid one."""
        given = client or {}
        self._servers = bootstrap_servers
        self._options = {"client_id": "ottla-spark", **kafka.client_options(given)}
        self._to_connect = kafka.request_timeout(given)
        self._timeout = kafka.call_timeout(given)
        self._clock = clock
        self._lock = Lock()
        self._admin: Admin | None = None
        self._stored: tuple[float, Mapping[TopicPartition, LogSize]] | None = None
        self._leaders: dict[TopicPartition, int] = {}
        self._cluster_id = ""

    def _ask(self) -> Admin:
        with self._lock:
            if self._admin is None:
                admin = Admin(
                    self._servers,
                    default_api_timeout_ms=max(1, int(self._to_connect * 1000)),
                    **self._options,
                )
                admin.start()
                self._admin = admin
            return self._admin

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        with self._lock:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def topics(self, wanted: Topics) -> dict[str, TopicMetadata]:
        """The wanted topics that exist; a pattern finds no internal ones.

        Raises BrokerError for a topic that this user may not see, or with an invalid name.
        """
        if wanted.pattern is not None:
            like = re.compile(wanted.pattern)
            every = self._ask().list_topics(timeout=self._timeout)
            return self._know({name: topic for name, topic in every.items() if like.search(name)})
        names = dict.fromkeys([*wanted.names, *(partition.topic for partition in wanted.assigned)])
        return self._know(self._described(names))

    def _described(self, names: Collection[str]) -> dict[str, TopicMetadata]:
        """The topics that exist. Raises for any error but a missing topic."""
        if not names:
            return {}
        try:
            return self._ask().describe_topics(names, timeout=self._timeout)
        except UnknownTopicError:
            return {}
        except PartialError as partial:
            for error in partial.errors.values():
                if not isinstance(error, UnknownTopicError):
                    raise error from None
            return partial.results

    def _know(self, topics: dict[str, TopicMetadata]) -> dict[str, TopicMetadata]:
        for name, topic in topics.items():
            for number, partition in topic.partitions.items():
                if partition.leader is not None:
                    self._leaders[TopicPartition(name, number)] = partition.leader
        return topics

    def missing(self, name: str) -> UnknownTopicError:
        """The error for a missing topic, with the nearest names."""
        near = near_names(name, self._ask().list_topics(timeout=self._timeout))
        meant = f" (is it {' or '.join(map(repr, near))}?)" if near else ""
        return UnknownTopicError(f"topic {name!r} does not exist{meant}; create it, or correct its name")

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of the topics. Raises UnknownTopicError for a missing topic."""
        names = tuple(dict.fromkeys(topics))
        found = self.topics(Topics(names))
        for name in names:
            if name not in found:
                raise self.missing(name)
        return sorted(TopicPartition(name, number) for name in names for number in found[name].partitions)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Topics' ids as 32 hexadecimal digits, without topics that don't exist or have no id."""
        return ids_of(self.topics(Topics(tuple(topics))))

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each log."""
        return self._listed(dict.fromkeys(partitions, OffsetSpec.EARLIEST))

    def latest(
        self, partitions: Collection[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """The offset at which reading ends: the high watermark, or with ``read_committed`` the last stable offset."""
        return {partition: end.offset for partition, end in self.ends(partitions, isolation).items()}

    def ends(
        self, partitions: Collection[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, LogEnd]:
        """As ``latest``, with the leaders' epochs."""
        if not partitions:
            return {}
        found = self._ask().list_offsets(
            dict.fromkeys(partitions, OffsetSpec.LATEST), isolation_level=isolation, timeout=self._timeout
        )
        return {
            partition: LogEnd(each.offset, -1 if each.leader_epoch is None else each.leader_epoch)
            for partition, each in found.items()
        }

    def by_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is at or after a time in milliseconds; None if no record is."""
        found = self._listed(dict(times))
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def lag_of(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, PartitionLag]:
        """The lag of a reader that is at these offsets."""
        return self._ask().lag_of(offsets, timeout=self._timeout) if offsets else {}

    def _listed(self, specs: Mapping[TopicPartition, OffsetSpec | int]) -> dict[TopicPartition, int]:
        if not specs:
            return {}
        found = self._ask().list_offsets(specs, timeout=self._timeout)
        return {partition: each.offset for partition, each in found.items()}

    def group_offsets(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """A group's committed offsets; partitions without one are left out."""
        found = self._ask().list_group_offsets(group, partitions, timeout=self._timeout)
        return {partition: each.offset for partition, each in found.items()}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of the next records to read, for a group without members; creates a missing group.

        Raises GroupError while the group has members, and BrokerError for other refusals.
        """
        if offsets:
            self._ask().alter_group_offsets(group, offsets, timeout=self._timeout)

    def log_sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogSize]:
        """Sizes of logs on their leaders' disks, at most some seconds old; without partitions that aren't reported.

        Raises UnsupportedApiError before Kafka 1.0, and BrokerError if this user may not describe the cluster.
        """
        now = self._clock()
        known = self._stored
        if known is None or now - known[0] > _PLACES_SECONDS or not known[1].keys() >= set(partitions):
            known = self._stored = (now, self._look({partition.topic for partition in partitions}))
        return {partition: known[1][partition] for partition in partitions if partition in known[1]}

    def _look(self, topics: Collection[str]) -> dict[TopicPartition, LogSize]:
        self.topics(Topics(tuple(topics)))  # Learn the current leaders.
        found: dict[TopicPartition, LogSize] = {}
        every = self._ask().describe_log_dirs(topics=topics, timeout=self._timeout)
        for node, folders in every.items():
            for folder in folders:
                for partition, replica in folder.replicas.items():
                    if self._leaders.get(partition) == node and not replica.is_future:
                        found[partition] = LogSize(replica.size, folder.path, node)
        return found

    def places(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, SegmentPlace]:
        """Where brokers keep these logs, for executors that can see the files. Raises as :meth:`log_sizes`."""
        cluster = self.cluster_id()
        return {
            partition: SegmentPlace(log.folder, cluster, log.broker)
            for partition, log in self.log_sizes(partitions).items()
        }

    def cluster_id(self) -> str:
        """The cluster's id; empty with brokers that don't report it."""
        if not self._cluster_id:
            self._cluster_id = self._ask().describe_cluster(timeout=self._timeout).cluster_id or ""
        return self._cluster_id


def ids_of(topics: Mapping[str, TopicMetadata]) -> dict[str, str]:
    """The ids of topics as 32 hexadecimal digits."""
    return {name: topic.id.hex() for name, topic in topics.items() if topic.id is not None}


def select(wanted: Topics, topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
    """The partitions to read of existing topics. Raises OptionError for an assigned partition that doesn't exist."""
    every = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    if not wanted.assigned:
        return sorted(every)
    there = set(every)
    for partition in wanted.assigned:
        if partition.topic in topics and partition not in there:
            count = len(topics[partition.topic].partitions)
            has = f"{count} partition{'' if count == 1 else 's'}"
            raise OptionError(f"assign names {partition}, and topic {partition.topic} has {has}")
    return [partition for partition in wanted.assigned if partition in there]


def sizes_unavailable(error: ClientError) -> bool:
    """Whether the brokers won't report sizes of logs at all: they are too old, or this user may not ask."""
    if isinstance(error, PartialError):
        return all(sizes_unavailable(each) for each in error.errors.values())
    return isinstance(error, UnsupportedApiError) or (
        isinstance(error, BrokerError) and error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
