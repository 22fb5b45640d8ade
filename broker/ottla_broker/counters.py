"""Counts that the broker keeps while it works, as plain integers; :mod:`ottla_broker.metrics` reads them.

Counting must cost next to nothing, so nothing here computes rates or quantiles. The names follow Kafka's
``BrokerTopicMetrics`` and ``RequestMetrics``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_protocol.errors import ErrorCode

_PARTS_BITS: Final = 2
_PARTS: Final = 1 << _PARTS_BITS
_BUCKETS: Final = 40 * _PARTS


class Timings:
    """Durations of something, in buckets that grow by a fifth: bounded, and cheap to add to.

    A duration in microseconds falls into the bucket of its highest bit and the two bits after it.

    Attributes:
        count: how many durations there were; ``seconds``: their sum.
        buckets: how many there were in each bucket.
    """

    __slots__ = ("__weakref__", "buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * _BUCKETS

    def add(self, seconds: float) -> None:
        self.count += 1
        if not seconds:
            # As often as not, of what a request waited for.
            self.buckets[0] += 1
            return
        self.seconds += seconds
        micros = int(seconds * 1_000_000)
        bits = micros.bit_length()
        if bits <= _PARTS_BITS:
            self.buckets[micros if micros > 0 else 0] += 1
        elif bits < 40:
            self.buckets[(bits - _PARTS_BITS) * _PARTS + ((micros >> (bits - 3)) & (_PARTS - 1))] += 1
        else:
            self.buckets[-1] += 1

    @staticmethod
    def upper_seconds(bucket: int) -> float:
        """The duration that is just too long for a bucket."""
        if bucket < _PARTS:
            return (bucket + 1) / 1_000_000
        bits, part = divmod(bucket, _PARTS)
        bits += _PARTS_BITS
        return ((_PARTS + part + 1) << (bits - 3)) / 1_000_000


class RequestTimes:
    """Times of the requests of one API and version, and how much of it they waited (Kafka's ``RequestMetrics``).

    Most requests are handled as soon as they have been read, and answered at once. They took the handler's time and
    nothing else, so they are counted once, in ``direct``; the others are counted in each of the other four.

    Attributes:
        direct: requests that waited for nothing.
        total: from a request's last byte to its encoded response.
        queue: from its last byte until it was handled: other requests of its connection went first.
        local: what its handler took.
        remote: how long it then waited, for data, replicas or other brokers, until its response was encoded.
    """

    __slots__ = ("direct", "local", "queue", "remote", "total")

    def __init__(self) -> None:
        self.direct = Timings()
        self.total = Timings()
        self.queue = Timings()
        self.local = Timings()
        self.remote = Timings()

    @property
    def count(self) -> int:
        """The number of requests."""
        return self.direct.count + self.total.count

    def add(self, waiting_since: float, since: float, handled: float, now: float) -> None:
        """Count a request that waited. All are times of one clock, in seconds.

        ``waiting_since``: when its last byte came, or 0 if it was handled at once; ``since``: when it was handled;
        ``handled``: when its handler had done its part.
        """
        came = waiting_since or since
        self.total.add(now - came)
        self.queue.add(since - came)
        self.local.add(handled - since)
        self.remote.add(now - handled)


def quantiles(buckets: Sequence[int], wanted: Sequence[float], zeros: int = 0) -> list[float]:
    """The durations in seconds below which these shares of the durations lie; zeros where there are none.

    ``zeros`` is how many more there were that took no time.
    """
    total = sum(buckets) + zeros
    found = []
    for share in wanted:
        left = share * total - zeros
        value = 0.0
        if left > 0:
            for bucket, count in enumerate(buckets):
                left -= count
                if count and left <= 0:
                    value = Timings.upper_seconds(bucket)
                    break
        found.append(value)
    return found


@dataclass(eq=False, slots=True)
class TopicCounts:
    """Counts of a topic's partitions on this broker since the topic came to it.

    Attributes:
        messages_in, bytes_in: appended by this broker as leader; a batch's header says how many records it has.
        bytes_out: of record batches in responses to consumers.
        bytes_rejected: of batches larger than ``max.message.bytes``.
        produce_requests, fetch_requests: counted for each partition of a request, as in Kafka.
        failed_produce_requests, failed_fetch_requests: those that failed for a reason that clients don't expect.
    """

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    failed_fetch_requests: int = 0

    def add(self, other: TopicCounts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_EXPECTED_BY_PRODUCERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of an append that Kafka doesn't count as failed (``ReplicaManager.appendToLocalLog``)."""
_EXPECTED_BY_CONSUMERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    }
)
"""The same for a read (``ReplicaManager.readFromLog``)."""


@dataclass(eq=False, slots=True)
class ReplicaCounters:
    """The counts of a broker's partitions. Owned by the loop thread.

    Attributes:
        replication_bytes_in, replication_bytes_out: copied from other leaders, and by followers from here.
        isr_shrinks, isr_expands: changes of in-sync replicas that the controller has agreed to.
        failed_isr_updates: changes that it has refused.
    """

    _topics: dict[str, TopicCounts] = field(default_factory=dict)
    # The counts of topics that are no longer here: totals never go back.
    _gone: TopicCounts = field(default_factory=TopicCounts)
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0

    def topic(self, name: str) -> TopicCounts:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = TopicCounts()
        return found

    def forget(self, name: str) -> None:
        """Drop the counts of a topic of which this broker has no partition any longer."""
        found = self._topics.pop(name, None)
        if found is not None:
            self._gone.add(found)

    def topics(self) -> Iterator[tuple[str, TopicCounts]]:
        return iter(list(self._topics.items()))

    def total(self) -> TopicCounts:
        """The counts of all topics together, including those that are gone."""
        total = TopicCounts()
        total.add(self._gone)
        for each in self._topics.values():
            total.add(each)
        return total

    def sent(self, topic: str, size: int) -> None:
        """Count bytes of record batches that a response to a consumer has."""
        self._topics.get(topic, self._gone).bytes_out += size

    def produce_failed(self, topic: str, code: int, size: int = 0) -> None:
        """Count an append that was refused; ``size`` is the batch's, if it was too large."""
        found = self._topics.get(topic, self._gone)
        if code not in _EXPECTED_BY_PRODUCERS:
            found.failed_produce_requests += 1
        elif code == ErrorCode.MESSAGE_TOO_LARGE:
            found.bytes_rejected += size

    def fetch_failed(self, topic: str, code: int) -> None:
        """Count a read that failed."""
        if code not in _EXPECTED_BY_CONSUMERS:
            self._topics.get(topic, self._gone).failed_fetch_requests += 1
