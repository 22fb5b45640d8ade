"""Fetch sessions (KIP-227): a consumer names its partitions once and then sends only changes.

A session is a numbered list of partitions with the epoch of its next request. A request's epoch is one of these:

====  ===================================================================================
 -1   no session; a session named with it is closed
  0   a full request, and a new session wanted; a session named with it is closed first
  n   the next request of a session, whose epoch must be n
====  ===================================================================================

A response within a session leaves out partitions without news.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla_broker.clock import Clock
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.replica.partition import Partition
    from ottla_protocol.messages.fetch import FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_INT32 = 2**31 - 1

Key = tuple[str | bytes, int]
"""A partition as the request names it: the topic's name up to version 12, its id from 13 on."""


@dataclass(slots=True, eq=False)
class FetchPartition:
    """One partition of a fetch, and the values of its last response.

    Attributes:
        topic: the name or id from the request.
        name: the topic's name, kept once resolved, so that a new topic with the same name is noticed by its id.
        follower_start: the log start offset of the follower that fetches.
        settled: the partition, if a follower was at its end with nothing unusual; None: it must be read.
    """

    topic: str | bytes
    partition: int
    name: str | None
    fetch_offset: int = 0
    max_bytes: int = 0
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    follower_start: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    settled: Partition | None = None

    def changed(self, high_watermark: int, log_start_offset: int) -> bool:
        """Remember the values of a response; True if they differ from the last."""
        if high_watermark == self.high_watermark and log_start_offset == self.log_start_offset:
            return False
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        return True


@dataclass(slots=True, eq=False)
class FetchSession:
    """A session: its partitions in the order of the next read."""

    id: int
    partitions: OrderedDict[Key, FetchPartition]
    uses_ids: bool
    last_used: float
    epoch: int = 1


class FetchContext:
    """The partitions that a request reads, and whether its response has only news."""

    __slots__ = ("_epoch", "incremental", "partitions", "session")

    def __init__(
        self, partitions: OrderedDict[Key, FetchPartition], session: FetchSession | None, incremental: bool
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.incremental = incremental
        self._epoch = 0 if session is None else session.epoch

    @property
    def overtaken(self) -> bool:
        """Whether a later request of the session has arrived, so that this one's response would be stale."""
        return self.session is not None and self.session.epoch != self._epoch

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.id


class FetchSessions:
    """All sessions of a broker, at most ``max.incremental.fetch.session.cache.slots``.

    When all slots are taken, the least recently used session is evicted if it has been idle for ``EVICTION_SECONDS``;
    otherwise a new client is served without a session.

    Owned by the loop thread.
    """

    EVICTION_SECONDS = 120.0

    def __init__(self, slots: int, clock: Clock, rng: Random) -> None:
        self._slots = slots
        self._clock = clock
        self._rng = rng
        # By id, least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, uses_ids: bool) -> FetchContext:
        """The context of a request, with a new session if it wants one.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id:
                self._sessions.pop(session_id, None)
            partitions: OrderedDict[Key, FetchPartition] = OrderedDict()
            _update(partitions, request, uses_ids)
            session = None if epoch == FINAL_EPOCH else self._open(partitions, uses_ids)
            return FetchContext(partitions, session, incremental=False)

        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == _MAX_INT32 else epoch + 1
        session.last_used = self._clock.monotonic()
        self._sessions.move_to_end(session_id)
        _update(session.partitions, request, uses_ids)
        # After the others: a partition that is fetched and forgotten at once is forgotten.
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if uses_ids else topic.topic
            for number in topic.partitions:
                session.partitions.pop((name, number), None)
        if not session.partitions:
            # As in Kafka: the session is closed, and what the request names is answered without one.
            del self._sessions[session_id]
            named: OrderedDict[Key, FetchPartition] = OrderedDict()
            _update(named, request, uses_ids)
            return FetchContext(named, None, incremental=False)
        return FetchContext(session.partitions, session, incremental=True)

    def _open(self, partitions: OrderedDict[Key, FetchPartition], uses_ids: bool) -> FetchSession | None:
        if self._slots <= 0:
            return None
        now = self._clock.monotonic()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.last_used < self.EVICTION_SECONDS:
                return None
            del self._sessions[oldest.id]
        while True:
            session_id = self._rng.randint(1, _MAX_INT32)
            if session_id not in self._sessions:
                break
        session = self._sessions[session_id] = FetchSession(session_id, partitions, uses_ids, now)
        return session


def _update(partitions: OrderedDict[Key, FetchPartition], request: FetchRequest, uses_ids: bool) -> None:
    """Add or update the partitions of a request."""
    for topic in request.topics:
        name: str | bytes = topic.topic_id if uses_ids else topic.topic
        for p in topic.partitions:
            known = partitions.get((name, p.partition))
            if known is None:
                known = FetchPartition(name, p.partition, None if uses_ids else topic.topic)
                partitions[name, p.partition] = known
            known.fetch_offset = p.fetch_offset
            known.max_bytes = p.partition_max_bytes
            known.current_leader_epoch = p.current_leader_epoch
            known.last_fetched_epoch = p.last_fetched_epoch
            known.follower_start = p.log_start_offset
            known.settled = None
