"""Fetch by a follower: reads to the log's end, and takes the fetch offset as the follower's position.

Kafka's ``Partition.fetchRecords`` for a follower. The response goes out as soon as any partition has news: acks=all
waits for these round trips. Where consumers read from followers, a new high watermark is news as well (KIP-392).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ottla_broker.fetch.fetch_request import Fetch
from ottla_broker.replica.replication_quota import UNLIMITED
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.log.files import FileSlice
    from ottla_broker.replica.delayed_fetch import DelayedFetch
    from ottla_broker.replica.fetch_session import FetchContext, FetchPartition
    from ottla_broker.replica.partition import Partition
    from ottla_broker.requests.context import RequestContext
    from ottla_protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData


class FollowerFetch(Fetch):
    """A follower's fetch."""

    __slots__ = (
        "_epoch",
        "_held_up",
        "_quota",
        "_recorded",
        "_replica_id",
        "_sends_watermark",
        "_sent_after",
    )

    NON_IMMEDIATE_ERRORS: Collection[ErrorCode] = ()

    def __init__(
        self, ctx: RequestContext, request: FetchRequest, context: FetchContext, replica_id: int
    ) -> None:
        super().__init__(ctx, request, context)
        # The whole request needs CLUSTER_ACTION, and no topic anything.
        self._find = ctx.find_partition
        self._replica_id = replica_id
        self._epoch = request.replica_state.replica_epoch
        # Whether the partitions have the follower's position. A second read, after a wait, finds it unchanged.
        self._recorded = False
        self._sent_after = ctx.connection.age.sent_after
        # Partitions over the replication quota: neither read nor waited for.
        self._held_up: set[Partition] = set()
        self._quota = ctx.services.replicas.leader_quota
        # Without a session it isn't known what the follower has heard.
        self._sends_watermark = ctx.services.replicas.selector is not None and context.session is not None

    def read(self) -> int:
        self._held_up.clear()
        found = super().read()
        self._recorded = True
        return found

    async def read_in_portions(self) -> int:
        self._held_up.clear()
        found = await super().read_in_portions()
        self._recorded = True
        return found

    def has_grown(self) -> bool:
        """Whether a partition at whose end the follower was has more for it, or has gone."""
        for spec, answer in self._answers:
            partition = spec.settled
            if partition is None:
                continue  # the answer has records of it, or an error, or it is held up
            try:
                found = self._ctx.find_partition(spec.name or "", spec.partition)
                if (
                    found is not partition
                    or partition.log.log_end_offset != spec.fetch_offset
                    or partition.high_watermark != answer.high_watermark
                ):
                    return True
            except KafkaError:
                return True
        return False

    def _has_nothing_new(self, spec: FetchPartition, partition: Partition) -> bool:
        """True for most partitions of most fetches, so that thousands of idle ones cost almost nothing."""
        offset = spec.fetch_offset
        if (
            # The last response already had these values.
            spec.high_watermark == offset
            and spec.log_start_offset == partition.log.log_start_offset
            and self._context.incremental
            and partition.has_nothing_for(
                self._replica_id,
                self._epoch,
                spec.current_leader_epoch,
                offset,
                spec.follower_start,
                None if self._recorded else self._sent_after,
            )
        ):
            self.readable.append(partition)
            return True
        spec.settled = None
        return False

    def places(self) -> Iterable[set[DelayedFetch]]:
        partitions = [partition for partition in self.readable if partition not in self._held_up]
        places = [partition.follower_fetches for partition in partitions]
        if self._sends_watermark:
            places += [partition.fetches for partition in partitions]
        return places

    def _count_sent(self, spec: FetchPartition, size: int) -> None:
        self._ctx.services.replicas.counters.replication_bytes_out += size

    def response(self) -> FetchResponse:
        # A follower has one fetch under way on a connection, so it sends the next one after this response.
        self._ctx.connection.age.sent_after = self._ctx.services.clock.monotonic()
        quota = self._quota
        if quota is not None and quota.limit != UNLIMITED:
            for spec, answer in self._answers:
                if answer.records and quota.is_throttled(spec.name or "", spec.partition):
                    quota.record(len(answer.records))
        return super().response()

    def _read_partition(
        self, spec: FetchPartition, answer: PartitionData, left: int, min_one: bool
    ) -> FileSlice | None:
        partition = self._partition(spec)
        knows_epoch = spec.current_leader_epoch >= 0
        partition.check_epoch(spec.current_leader_epoch)
        partition.follower(self._replica_id, knows_epoch)
        log = partition.log
        if spec.last_fetched_epoch >= 0 and self._diverges(spec, answer, partition):
            return None
        end = log.log_end_offset
        if log.log_start_offset <= spec.fetch_offset <= end and self._is_too_fast(partition):
            if not self._recorded:
                self._record(spec, partition)
            self._held_up.add(partition)
            self.readable.append(partition)
            self._fill(answer, partition)
            return None
        records = log.reader.read(
            spec.fetch_offset, min(spec.max_bytes, left), max_offset=end, min_one=min_one
        )
        if not self._recorded:
            self._record(spec, partition)
        self.readable.append(partition)
        self._fill(answer, partition)
        if spec.fetch_offset == end:
            spec.settled = partition
        elif spec.fetch_offset < log.active.base_offset:
            self.immediate = True
        if self._sends_watermark and spec.high_watermark < partition.high_watermark:
            self.immediate = True
        return records

    def _record(self, spec: FetchPartition, partition: Partition) -> None:
        partition.fetched_by(
            self._replica_id, spec.fetch_offset, spec.follower_start, self._epoch, self._sent_after
        )

    def _is_too_fast(self, partition: Partition) -> bool:
        """Whether a follower out of sync has to wait because of the quota (KIP-73)."""
        quota = self._quota
        return (
            quota is not None
            and quota.exceeded
            and self._replica_id not in partition.isr
            and quota.is_throttled(partition.topic, partition.partition)
        )
