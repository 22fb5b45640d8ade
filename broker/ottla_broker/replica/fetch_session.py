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
MOST_PARTITIONS = 250_000
"""The most partitions in all sessions of consumers together; each takes about 400 bytes."""
_WAITING = 4
"""Fetches that wait may have this many times as many partitions: they don't last."""
_NAME_CHARACTERS = 256
"""Legal names are shorter. A longer name counts as another partition for every so many characters."""

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
    """A session: its partitions in the order of the next read.

    Attributes:
        counted: what its partitions count towards the bound on all; a follower's don't.
    """

    id: int
    partitions: OrderedDict[Key, FetchPartition]
    uses_ids: bool
    last_used: float
    of_follower: bool
    counted: int = 0
    epoch: int = 1


class FetchContext:
    """The partitions that a request reads, and whether its response has only news."""

    __slots__ = ("_epoch", "incremental", "of_follower", "partitions", "session", "session_id")

    def __init__(
        self,
        partitions: OrderedDict[Key, FetchPartition],
        session: FetchSession | None,
        incremental: bool,
        of_follower: bool = False,
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.incremental = incremental
        self.of_follower = of_follower
        self.session_id, self._epoch = (0, 0) if session is None else (session.id, session.epoch)

    @property
    def overtaken(self) -> bool:
        """Whether a later request of the session has arrived, so that this one's response would be stale."""
        return self.session is not None and self.session.epoch != self._epoch


class FetchSessions:
    """All sessions of a broker: at most ``max.incremental.fetch.session.cache.slots``, with a bound on partitions.

    When all slots are taken, or consumers' sessions have too many partitions, the least recently used sessions are
    evicted if they have been idle for ``EVICTION_SECONDS``; otherwise the client is served without a session. (Kafka
    bounds only the number of sessions.)

    Owned by the loop thread.
    """

    EVICTION_SECONDS = 120.0

    def __init__(self, slots: int, clock: Clock, rng: Random, most_partitions: int = MOST_PARTITIONS) -> None:
        self._slots = slots
        self._most_partitions = most_partitions
        self._counted = 0
        # Partitions of fetches without a session that wait.
        self._waiting = 0
        self._clock = clock
        self._rng = rng
        # By id, least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def may_wait(self, context: FetchContext) -> bool:
        """Whether a fetch may wait for data; then :meth:`has_waited` is to be called afterwards.

        A client may send many fetches without a session that wait. Other brokers' always may.
        """
        if context.session is not None or context.of_follower:
            return True
        if self._waiting + len(context.partitions) > _WAITING * self._most_partitions:
            return False
        self._waiting += len(context.partitions)
        return True

    def has_waited(self, context: FetchContext) -> None:
        """A fetch waits no longer."""
        if context.session is None and not context.of_follower:
            self._waiting -= len(context.partitions)

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, uses_ids: bool, of_follower: bool = False) -> FetchContext:
        """The context of a request, with a new session if it wants one; ``of_follower``: another broker sent it.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id:
                self._close(session_id)
            partitions: OrderedDict[Key, FetchPartition] = OrderedDict()
            size = _update(partitions, request, uses_ids)
            session = None
            if epoch == INITIAL_EPOCH:
                session = self._open(partitions, uses_ids, of_follower, 0 if of_follower else size)
            return FetchContext(partitions, session, incremental=False, of_follower=of_follower)

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
        growth = _update(session.partitions, request, uses_ids)
        # After the others: a partition that is fetched and forgotten at once is forgotten.
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if uses_ids else topic.topic
            for number in topic.partitions:
                if session.partitions.pop((name, number), None) is not None:
                    growth -= _size(name)
        if not session.of_follower:
            session.counted += growth
            self._counted += growth
        if not session.partitions:
            # As in Kafka: the session is closed, and what the request names is answered without one.
            self._close(session_id)
            named: OrderedDict[Key, FetchPartition] = OrderedDict()
            _update(named, request, uses_ids)
            return FetchContext(named, None, incremental=False, of_follower=of_follower)
        if growth > 0 and not self._make_room(0):
            # The client learns from the response that its session is closed, and names everything next.
            self._close(session_id)
            return FetchContext(session.partitions, None, incremental=False, of_follower=of_follower)
        return FetchContext(session.partitions, session, incremental=True)

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._counted -= session.counted

    def _make_room(self, size: int) -> bool:
        """Evict idle sessions until ``size`` more partitions fit; False: they don't."""
        while self._counted + size > self._most_partitions:
            if size > self._most_partitions or not self._evict():
                return False
        return True

    def _evict(self) -> bool:
        """Close the least recently used session, if it has been idle for long enough."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or self._clock.monotonic() - oldest.last_used < self.EVICTION_SECONDS:
            return False
        self._close(oldest.id)
        return True

    def _open(
        self, partitions: OrderedDict[Key, FetchPartition], uses_ids: bool, of_follower: bool, size: int
    ) -> FetchSession | None:
        if self._slots <= 0 or (size and not self._make_room(size)):
            return None
        if len(self._sessions) >= self._slots and not self._evict():
            return None
        while True:
            session_id = self._rng.randint(1, _MAX_INT32)
            if session_id not in self._sessions:
                break
        now = self._clock.monotonic()
        session = FetchSession(session_id, partitions, uses_ids, now, of_follower, size)
        self._sessions[session_id] = session
        self._counted += size
        return session


def _size(topic: str | bytes) -> int:
    """Return how much a partition of this topic counts towards the bound."""
    return 1 + len(topic) // _NAME_CHARACTERS


def _update(partitions: OrderedDict[Key, FetchPartition], request: FetchRequest, uses_ids: bool) -> int:
    """Add or update the partitions of a request; returns what the new ones count towards the bound."""
    growth = 0
    for topic in request.topics:
        name: str | bytes = topic.topic_id if uses_ids else topic.topic
        for p in topic.partitions:
            known = partitions.get((name, p.partition))
            if known is None:
                known = FetchPartition(name, p.partition, None if uses_ids else topic.topic)
                partitions[name, p.partition] = known
                growth += _size(name)
            known.fetch_offset = p.fetch_offset
            known.max_bytes = p.partition_max_bytes
            known.current_leader_epoch = p.current_leader_epoch
            known.last_fetched_epoch = p.last_fetched_epoch
            known.follower_start = p.log_start_offset
            known.settled = None
    return growth
