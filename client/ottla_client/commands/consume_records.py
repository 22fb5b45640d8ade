"""The run of ``ottla consume``: start and stop positions, writing, and a group's commits."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..types import OffsetAndMetadata, TopicPartition
from .admin_common import plural
from .console import Console, OutputClosedError
from .formatters import Formatter
from .log_positions import LogPosition, offsets_of
from .output import Output
from .progress import amount_of_bytes, rate_of
from .topic_checks import matching_topics, require_topics

if TYPE_CHECKING:
    from ..consumer import Consumer, RebalanceListener
    from ..consumer.rows import Rows

# Milliseconds that a poll waits: how long reaching the end of a partition may go unnoticed.
_POLL_MS = 100
# Records that are read and written at once.
AT_ONCE = 20_000
# Seconds between a group's commits.
_COMMIT_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """What to consume: ``topics``, or those that match ``pattern``; without ``partitions``, all of them."""

    topics: tuple[str, ...]
    pattern: str | None
    partitions: frozenset[int]
    group: str | None
    begin: LogPosition
    until: LogPosition | None
    count: int | None


class ConsumeRun:
    """One run of ``ottla consume``."""

    def __init__(
        self, console: Console, wanted: ConsumeOptions, formatter: Formatter, output: str | None
    ) -> None:
        """``output`` is a file's name, None for standard output."""
        self._console = console
        self._wanted = wanted
        self._formatter = formatter
        self._path = output
        self._left = wanted.count
        self._records = 0
        self._bounds: dict[TopicPartition, int] = {}
        """Where to stop in each partition, exclusive. Empty without --until."""
        self._written: dict[TopicPartition, int] = {}
        """The offset after the last record written, or the start of a group's partition; not committed yet."""
        self._committed_at = monotonic()

    async def run(self, client_options: dict[str, Any]) -> None:
        from ..consumer import Consumer

        consumer = Consumer(**client_options)  # first, because it checks the options
        topics = await self._topics()
        output = Output(self._path)
        task = asyncio.current_task()
        gone = False

        def reader_has_gone() -> None:
            nonlocal gone
            if not gone and task is not None:
                gone = True
                task.cancel()

        output.watch(reader_has_gone)
        started = monotonic()
        try:
            await consumer.start()
            await output.write(self._formatter.head)
            await self._begin(consumer, topics)
            await self._receive(consumer, output)
            await self.commit(consumer)
        except asyncio.CancelledError:
            if task is not None:
                task.uncancel()
            await self.commit(consumer)
            if gone:
                raise OutputClosedError from None
            raise
        except OutputClosedError:
            await self.commit(consumer)
            raise
        finally:
            await consumer.close()
            output.close()
            self._print_summary(output, monotonic() - started)

    async def _topics(self) -> list[str]:
        """The topics' names. Raises click.ClickException for unknown ones, and if none matches."""
        from ..consumer.settings import ConsumerSettings

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
        for partition, offset in (await offsets_of(wanted.begin, partitions, consumer)).items():
            consumer.seek(partition, offset)
        await self._bound(consumer, partitions)

    async def _bound(self, consumer: Consumer, partitions: Collection[TopicPartition]) -> None:
        """Look up where to stop in new partitions."""
        if self._wanted.until is None:
            return
        new = [partition for partition in partitions if partition not in self._bounds]
        if new:
            self._bounds |= await offsets_of(self._wanted.until, new, consumer)

    async def _receive(self, consumer: Consumer, output: Output) -> None:
        """Read and write records until the limits are reached."""
        from ..consumer.consumer import poll_rows

        talks = self._console.talks and (self._path is not None or not self._console.is_terminal)
        with self._console.progress(
            "from " + (self._wanted.pattern or ", ".join(self._wanted.topics)), hidden=not talks
        ) as bar:
            while not await self._is_done(consumer):
                at_once = AT_ONCE if self._left is None else min(self._left, AT_ONCE)
                for rows in await poll_rows(consumer, timeout_ms=_POLL_MS, max_records=at_once):
                    await self._write(rows, output)
                bar.update(self._records)
                if self._wanted.group is not None and monotonic() - self._committed_at >= _COMMIT_EVERY:
                    await self.commit(consumer)

    async def _is_done(self, consumer: Consumer) -> bool:
        if self._left == 0:
            return True
        if self._wanted.until is None:
            return False
        assigned = consumer.assignment()
        if self._wanted.group is not None:
            await self._bound(consumer, assigned)
        for partition in assigned:
            # The position, not the last record's offset: a log may end with control records.
            if await consumer.position(partition) < self._bounds[partition]:
                return False
        return bool(assigned)

    async def _write(self, rows: Rows, output: Output) -> None:
        partition = TopicPartition(rows.topic, rows.partition)
        bound = self._bounds.get(partition)
        if bound is not None:
            rows = rows.cut(0, bisect_left(rows.offsets, bound))
        if not rows.count:
            return
        data = self._formatter.render(rows)
        before = output.bytes
        try:
            await output.write(data)
        finally:
            if output.bytes - before == len(data):
                self._records += rows.count
                self._written[partition] = rows.offsets[-1] + 1
                if self._left is not None:
                    self._left -= rows.count

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
        for partition in offsets:
            del self._written[partition]
        if offsets:
            await consumer.commit(offsets)

    def begin(self, partition: TopicPartition, position: int) -> None:
        """Commit the start of a partition, too.

        Otherwise a later run that starts at the end would miss the records that arrive between the two runs.
        """
        self._written[partition] = position

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions that others already own, because their offsets can't be committed."""
        for partition in partitions:
            self._written.pop(partition, None)

    def _print_summary(self, output: Output, seconds: float) -> None:
        """Print a summary for a file."""
        if self._path is not None and self._console.talks:
            what = f"{plural(self._records, 'record')} ({amount_of_bytes(output.bytes)}) to {self._path}"
            self._console.note(f"{what} {rate_of(self._records, seconds)}")


def _commit_first(consuming: ConsumeRun, consumer: Consumer) -> RebalanceListener:
    """Commits the start of new partitions, and what was written before partitions go to other members."""
    from ..consumer import RebalanceListener

    class CommitFirst(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            for partition in assigned:
                consuming.begin(partition, await consumer.position(partition))

        async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            await consuming.commit(consumer, revoked)

        def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
            consuming.forget(lost)

    return CommitFirst()
