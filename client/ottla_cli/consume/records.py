"""``ottla consume`` of logs: start and stop positions, and a group's commits."""

from __future__ import annotations

import asyncio
import logging
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from ottla_client.errors import ClientError, GroupError
from ottla_client.types import OffsetAndMetadata, TopicPartition
from ottla_protocol.printable import shown_name

from ..shared.terminal import Console
from ..shared.topic_checks import matching_topics, require_topics
from .formatters import Formatter
from .log_positions import OFFSET, offsets_of
from .print_run import POLL_MS, ConsumeOptions, PrintRun

if TYPE_CHECKING:
    from ottla_client.consumer import Consumer, RebalanceListener
    from ottla_client.consumer.rows import Rows

_log = logging.getLogger(__name__)

# Seconds between a group's commits.
_COMMIT_EVERY = 5.0
# Seconds for which a member without partitions waits for some: others may be about to give them up.
_WITHOUT_SECONDS = 3.0
# Partitions that one note names.
_MOST_NOTED = 5


class ConsumeRun(PrintRun["Consumer"]):
    """One run of ``ottla consume``."""

    def __init__(
        self, console: Console, wanted: ConsumeOptions, formatter: Formatter, output: str | None
    ) -> None:
        """``output`` is a file's name, None for standard output."""
        super().__init__(console, wanted, formatter, output)
        self._bounds: dict[TopicPartition, int] = {}
        """The offset to stop at in each partition, exclusive. Empty without --until."""
        self._written: dict[TopicPartition, int] = {}
        """The offset that a group reads on at, if the command ends now; not committed yet."""
        self._places: dict[TopicPartition, int] = {}
        """The same, committed or not, to commit it once."""
        self._committed_at = monotonic()
        self._looked_at = monotonic()
        self._look_every = 0.0
        """Seconds between two looks for partitions and topics that were added."""
        self._without_since: float | None = None
        """Since when the group has given this member no partition."""

    def _make(self, client_options: dict[str, Any]) -> Consumer:
        from ottla_client.consumer import Consumer

        self._look_every = client_options["metadata_max_age_ms"] / 1000
        return Consumer(**client_options)

    async def _topics(self) -> list[str]:
        from ottla_client.consumer.settings import ConsumerSettings

        if self._wanted.pattern is not None:
            return await matching_topics(self._console, ConsumerSettings, self._wanted.pattern)
        await require_topics(
            self._console, ConsumerSettings, self._wanted.topics, max(self._wanted.partitions, default=None)
        )
        return list(dict.fromkeys(self._wanted.topics))

    async def _begin(self, consumer: Consumer, topics: Sequence[str]) -> None:
        wanted = self._wanted
        if wanted.group is not None:
            listener = _commit_first(self, consumer)
            if wanted.pattern is not None:
                consumer.subscribe(pattern=wanted.pattern, listener=listener)
            else:
                consumer.subscribe(topics, listener=listener)
            return
        partitions = [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in sorted(await consumer.partitions_for(topic))
            if not wanted.partitions or partition in wanted.partitions
        ]
        consumer.assign(partitions)
        offsets = await offsets_of(wanted.begin, partitions, consumer)
        for partition, offset in offsets.items():
            consumer.seek(partition, offset)
        self._note_past_the_end(offsets)
        await self._bound(consumer, partitions)

    def _note_past_the_end(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Warn about a --from past the end, which would print nothing."""
        begin = self._wanted.begin
        ends = [
            f"{p} ends at {end}" for p, end in offsets.items() if begin.kind == OFFSET and end < begin.value
        ]
        if ends:
            more = f" and {len(ends) - _MOST_NOTED} more" if len(ends) > _MOST_NOTED else ""
            shown = ", ".join(ends[:_MOST_NOTED])
            self._console.note(
                f"offset {begin.value} is past the end, so reading from the end: {shown}{more}"
            )

    async def _bound(self, consumer: Consumer, partitions: Collection[TopicPartition]) -> None:
        """Look up where to stop in new partitions."""
        if self._wanted.until is None:
            return
        new = [partition for partition in partitions if partition not in self._bounds]
        if new:
            self._bounds |= await offsets_of(self._wanted.until, new, consumer)

    async def _poll(self, consumer: Consumer, at_most: int) -> list[Rows]:
        from ottla_client.consumer.consumer import poll_rows

        return await poll_rows(consumer, timeout_ms=POLL_MS, max_records=at_most)

    async def _is_done(self, consumer: Consumer) -> bool:
        if self._left == 0:
            return True
        if self._wanted.until is None:
            return False
        assigned = consumer.assignment()
        if self._wanted.group is not None:
            if not assigned:
                return self._has_no_partition(consumer)
            self._without_since = None
            await self._bound(consumer, assigned)
        for partition in assigned:
            # The position, not the last record's offset: a log may end with control records.
            if await consumer.position(partition) < self._bounds[partition]:
                return False
        return bool(assigned)

    def _has_no_partition(self, consumer: Consumer) -> bool:
        """Whether the group has kept giving this member nothing to read: it has more members than partitions."""
        try:
            consumer.group_metadata()
        except GroupError:
            self._without_since = None  # not a member, or not again
            return False
        now = monotonic()
        self._without_since = self._without_since or now
        if now - self._without_since < _WITHOUT_SECONDS:
            return False
        group = shown_name(self._wanted.group or "")
        self._nothing = f"nothing to read: the other members of group {group} have all of its partitions"
        return True

    def _cut(self, rows: Rows) -> Rows:
        bound = self._bounds.get(TopicPartition(rows.topic, rows.partition))
        return rows if bound is None else rows.cut(0, bisect_left(rows.offsets, bound))

    def _wrote(self, consumer: Consumer, rows: Rows) -> None:
        self._passed(TopicPartition(rows.topic, rows.partition), rows.offsets[-1] + 1)

    async def _turn(self, consumer: Consumer) -> None:
        if self._wanted.group is None:
            if monotonic() - self._looked_at >= self._look_every:
                await self._take_up_new(consumer)
                self._looked_at = monotonic()
            return
        # All that came is written now. Behind the last record there may be markers and aborted records.
        from ottla_client.consumer.consumer import positions_of

        for partition, position in positions_of(consumer).items():
            self._passed(partition, min(position, self._bounds.get(partition, position)))
        if monotonic() - self._committed_at >= _COMMIT_EVERY:
            await self.commit(consumer)

    async def _take_up_new(self, consumer: Consumer) -> None:
        """Read partitions that were added, and topics that match, from their beginning. With a group, it does that."""
        wanted = self._wanted
        if wanted.partitions or wanted.until is not None:
            return
        from ottla_client.consumer.consumer import partitions_of

        pattern = wanted.pattern
        assigned = consumer.assignment()
        try:
            there = await partitions_of(consumer, wanted.topics if pattern is None else None)
            new = {p for p in there - assigned if pattern is None or re.fullmatch(pattern, p.topic)}
            offsets = await consumer.beginning_offsets(new) if new else {}
        except ClientError as error:
            _log.info("looking for new partitions failed: %s", error)
            return
        if offsets:
            consumer.assign(assigned | offsets.keys())
            for partition, offset in offsets.items():
                consumer.seek(partition, offset)

    def _passed(self, partition: TopicPartition, position: int) -> None:
        """Everything before the position is done with."""
        if self._places.get(partition) != position:
            self._places[partition] = self._written[partition] = position

    async def commit(self, consumer: Consumer, only: Collection[TopicPartition] | None = None) -> None:
        """Commit what was written, for the revoked partitions or for all."""
        self._committed_at = monotonic()
        if self._wanted.group is None:
            return
        offsets = {
            partition: OffsetAndMetadata(offset)
            for partition, offset in self._written.items()
            if only is None or partition in only
        }
        written = {partition: self._written.pop(partition) for partition in offsets}
        if offsets:
            try:
                await consumer.commit(offsets)
            except asyncio.CancelledError:
                self._written = {**written, **self._written}  # unknown, so they are committed again
                raise

    def begin(self, partition: TopicPartition, position: int) -> None:
        """Commit the start of a partition, too.

        Otherwise a later run that starts at the end would miss the records that arrive between the two runs.
        """
        self._places[partition] = self._written[partition] = position

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions that others already own, because their offsets can't be committed."""
        for partition in partitions:
            self._written.pop(partition, None)


def _commit_first(consuming: ConsumeRun, consumer: Consumer) -> RebalanceListener:
    """Commits the start of new partitions, and what was written before partitions go to other members."""
    from ottla_client.consumer import RebalanceListener

    class CommitFirst(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            for partition in assigned:
                consuming.begin(partition, await consumer.position(partition))

        async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            await consuming.commit(consumer, revoked)

        def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
            consuming.forget(lost)

    return CommitFirst()
