"""Comparing what is read with what the cluster says: new leaders, topics that go, and topics that come back.

A topic that is deleted and made again is another topic of the same name: its positions mean nothing, and all of
its records came after those that were read.
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

log = logging.getLogger("ottla_client")

GONE_AFTER = 2.0
"""Seconds for which the cluster has to say that something doesn't exist until that is taken for true."""


class MetadataMonitor:
    """Looked through at each change of the metadata, and a few times a second."""

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
        """``fail`` stops a partition, ``report`` tells the application, ``wake`` has new stages looked at."""
        self._cluster = cluster
        self._settings = settings
        self._positions = positions
        self._buffer = buffer
        self._fail = fail
        self._report = report
        self._wake = wake
        self._seen: set[str] = set()
        """Subscribed topics that are there, or were until a moment ago."""
        self._gone_since: dict[str, float] = {}
        self._missed: set[str] = set()
        """Subscribed topics that aren't there, of which that has been said."""

    def look(self, names: Collection[str]) -> None:
        """At all partitions, and at the topics that are subscribed by their names."""
        now = monotonic()
        for name in names:
            self._look_at_topic(name, now)
        for state in tuple(self._positions):
            self.look_at(state, now)

    def _look_at_topic(self, name: str, now: float) -> None:
        """Tell once of a subscribed topic that has gone: its partitions may have left this member before.

        One that was never there is but warned of. It may be about to be made, or its name mistyped.
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
                    log.warning("topic %r does not exist; it is read from when it does", name)

    def _is_unknown(self, name: str) -> bool:
        return self._cluster.topic_error(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def look_at(self, state: PartitionState, now: float) -> None:
        """Compare a partition with what the cluster says of it: its leader's epoch, and whether it is the same."""
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
        """The cluster doesn't know the partition, or not at this moment."""
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
                told = name in self._gone_since
                self._fail(state, _deleted(name))
                state.told = told
            else:
                self._fail(
                    state, UnknownTopicError(f"topic {name!r} does not exist; make it, or mend its name")
                )

    def _came_back(self, state: PartitionState, topic: TopicMetadata) -> None:
        """The partition is there again, in a topic that was made anew or that was not told of for a while."""
        same = topic.id is not None and topic.id == state.topic_id
        self._buffer.drop(state)
        if same and state.position is not None:
            state.seek(state.position, state.epoch)
            return
        state.topic_id = topic.id
        state.leader_epoch = None
        position, state.epoch = state.position, None
        if position is None or self._settings.auto_offset_reset != "none":
            log.warning("topic %s was made anew; %s is read from its beginning", topic.name, state.partition)
            state.reset(OffsetSpec.EARLIEST)
            return
        what = f"topic {topic.name!r} was deleted and made anew: the position {position} of {state.partition}"
        self._fail(
            state,
            OffsetOutOfRangeError(
                f'{what} means nothing in it, and auto_offset_reset is "none"; seek to where to begin',
                {state.partition: position},
            ),
        )


def _deleted(name: str) -> UnknownTopicError:
    return UnknownTopicError(
        f"topic {name!r} has been deleted; when it is made again, it is read from its beginning"
    )
