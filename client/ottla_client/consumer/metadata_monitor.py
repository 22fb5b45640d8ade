"""Compares partitions with the cluster's metadata: new leaders, topics that are deleted or created again.

A topic that is deleted and created again is another topic with the same name: the old positions mean nothing in it, and
all its records are newer than those that were read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from time import monotonic

from ottla_protocol.errors import ErrorCode

from ..cluster import Cluster
from ..errors import ClientError, OffsetOutOfRangeError, UnknownTopicError
from ..types import OffsetSpec, TopicMetadata
from .buffer import Buffer
from .positions import PartitionState, Positions
from .settings import ConsumerSettings

_log = logging.getLogger("ottla_client")

GONE_AFTER = 2.0
"""Seconds for which the cluster must report a topic as missing before the consumer believes it."""


class MetadataMonitor:
    """Checks at each change of the metadata, and several times a second."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        positions: Positions,
        buffer: Buffer,
        *,
        fail: Callable[[PartitionState, ClientError], None],
        report: Callable[[ClientError], None],
        wake: Callable[[], None],
    ) -> None:
        """``fail`` stops a partition, ``report`` makes a poll raise, ``wake`` starts what new stages need."""
        self._cluster = cluster
        self._settings = settings
        self._positions = positions
        self._buffer = buffer
        self._fail = fail
        self._report = report
        self._wake = wake
        self._seen: set[str] = set()
        """Subscribed topics that exist, or existed a moment ago."""
        self._gone_since: dict[str, float] = {}
        self._missed: set[str] = set()
        """Subscribed topics that don't exist and were reported."""

    def check(self, names: Collection[str]) -> None:
        """Check all partitions, and the topics that are subscribed by name."""
        now = monotonic()
        for name in names:
            self._check_topic(name, now)
        for state in tuple(self._positions):
            self.check_partition(state, now)

    def _check_topic(self, name: str, now: float) -> None:
        """Report a deleted topic once: its partitions may have left this member before.

        For a topic that never existed, only log a warning: it may be created soon.
        """
        if self._cluster.topic(name) is not None:
            self._seen.add(name)
            self._missed.discard(name)
            self._gone_since.pop(name, None)
        elif name not in self._missed and self._is_unknown(name):
            since = self._gone_since.setdefault(name, now)
            if now - since > GONE_AFTER:
                self._missed.add(name)
                if name in self._seen:
                    self._seen.discard(name)
                    self._report(_deleted(name))
                else:
                    _log.warning("topic %r does not exist; the consumer waits for it", name)

    def _is_unknown(self, name: str) -> bool:
        return self._cluster.topic_error(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def check_partition(self, state: PartitionState, now: float) -> None:
        """Compare a partition with the metadata: its leader's epoch, and the topic's id."""
        name, number = state.partition
        topic = self._cluster.topic(name)
        if topic is None or number not in topic.partitions:
            self._missing(state, topic, now)
            return
        state.missing_since = None
        error = state.error
        if isinstance(error, UnknownTopicError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._came_back(state, topic)
        elif topic.id is not None and topic.id != state.topic_id:
            if state.topic_id is not None:
                self._came_back(state, topic)
            state.topic_id = topic.id
        epoch = topic.partitions[number].leader_epoch
        if epoch != state.leader_epoch:
            self._buffer.halt(state)
            if state.led_by(epoch):
                self._wake()

    def _missing(self, state: PartitionState, topic: TopicMetadata | None, now: float) -> None:
        """The metadata lacks the partition, perhaps for a moment only."""
        name, number = state.partition
        if topic is None and not self._is_unknown(name):
            return
        if state.missing_since is None:
            state.missing_since = now
            self._cluster.stale(name)
        elif now - state.missing_since > GONE_AFTER and state.error is None:
            if topic is not None:
                what = f"topic {name!r} has no partition {number}; it has {len(topic.partitions)}"
                self._fail(state, UnknownTopicError(what))
            elif state.topic_id is not None or state.position is not None:
                reported = name in self._gone_since
                self._fail(state, _deleted(name))
                state.reported = reported
            else:
                self._fail(
                    state, UnknownTopicError(f"topic {name!r} does not exist; create it, or correct its name")
                )

    def _came_back(self, state: PartitionState, topic: TopicMetadata) -> None:
        """The partition exists again: its topic was created again, or missing from the metadata for a while."""
        same = topic.id is not None and topic.id == state.topic_id
        self._buffer.drop(state)
        if same and state.position is not None:
            state.seek(state.position, state.epoch)
            return
        state.topic_id = topic.id
        state.leader_epoch = None
        position, state.epoch = state.position, None
        if position is None or self._settings.auto_offset_reset != "none":
            _log.warning(
                "topic %s was created again; %s is read from its beginning", topic.name, state.partition
            )
            state.reset(OffsetSpec.EARLIEST)
            return
        what = f"topic {topic.name!r} was deleted and created again: the position {position} of {state.partition}"
        self._fail(
            state,
            OffsetOutOfRangeError(
                f'{what} means nothing in it, and auto_offset_reset is "none"; seek to an offset',
                {state.partition: position},
            ),
        )


def _deleted(name: str) -> UnknownTopicError:
    return UnknownTopicError(
        f"topic {name!r} has been deleted; if it is created again, it is read from its beginning"
    )
