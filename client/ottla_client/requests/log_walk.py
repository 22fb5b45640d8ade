"""Reads batches of a partition at some offset, without a session: for timestamps, lag and the last records."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.lag import Look
from ottla_protocol.records.aborted import AbortedRecords
from ottla_protocol.records.batch import CONTROL, MAGIC, BatchHeader, CorruptRecordError
from ottla_protocol.records.formats import decode_any, is_intact, iter_headers
from ottla_protocol.records.record import record_data

from ..deadline import Deadline
from ..errors import ClientError, CorruptBatchError
from ..types import TimedOffset, TopicPartition
from .driver import Node, ToLeaders, drive, together
from .fetch import LAST_BY_NAME, FetchPosition, fetch_request
from .large_batch import LargeBatch
from .outcomes import error_of

if TYPE_CHECKING:
    from ..cluster import Cluster

_FIRST_WITH_ISOLATION: Final = 4
_BATCH_BYTES: Final = 32 << 20
"""The most decompressed bytes of a batch in which a record is looked up. It keeps others waiting for some 40 ms."""
_FETCHES_AT_ONCE: Final = 8
"""Fetches in flight per broker. Each returns at least one batch, of any size."""
_WALK_BYTES: Final = 1 << 20
_FIRST_WINDOW: Final = 1 << 16
"""The most offsets of the first step back from the end."""
UNCOMMITTED, COMMITTED = 0, 1

V = TypeVar("V")


class Fetched(NamedTuple):
    """Batches, the last of which may be cut off, and the aborted transactions among them (first offset, producer)."""

    data: bytes
    aborted: tuple[tuple[int, int], ...] = ()


class LogWalk:
    """Reads one partition from its leader. Each call raises as ``Cluster.request``, BrokerError, CorruptBatchError."""

    def __init__(self, cluster: Cluster, node: Node, partition: TopicPartition, deadline: Deadline) -> None:
        assert node is not None, "the leader"
        self._cluster = cluster
        self._node = node
        self._partition = partition
        self._deadline = deadline

    async def fetch(self, offset: int, isolation: int = UNCOMMITTED, max_bytes: int = 1) -> Fetched:
        """The batches from the one that holds ``offset`` on: always a whole one (KIP-74), if there is one."""
        connection = await self._cluster.connection(self._node, self._deadline)
        version = min(LAST_BY_NAME, connection.version_of(ApiKey.FETCH))
        request = fetch_request(
            {self._partition: FetchPosition(None, offset, -1, max_bytes)},
            version=version,
            max_bytes=max_bytes,
            isolation=isolation if version >= _FIRST_WITH_ISOLATION else UNCOMMITTED,
        )
        answer = await self._cluster.request(self._node, request, self._deadline, version=version)
        if answer.error_code:
            raise error_of(answer.error_code, f"partition {self._partition}")
        found = answer.responses[0].partitions[0]
        if found.error_code:
            raise error_of(found.error_code, f"partition {self._partition}")
        aborted = found.aborted_transactions or ()
        return Fetched(found.records or b"", tuple((a.first_offset, a.producer_id) for a in aborted))

    async def first_from(self, offset: int, isolation: int = UNCOMMITTED) -> TimedOffset | None:
        """The first record at or after an offset; None at the end of the log, or of what is decided.

        Reads batch by batch, because compaction may have removed the record or emptied the batch.
        """
        while True:
            found = await self.fetch(offset, isolation)
            dropped = AbortedRecords(found.aborted)
            behind = offset
            for position, header in self._headers(found.data, offset):
                behind = max(behind, header.last_offset + 1)
                is_read = self._is_read(dropped, found.data, position, header)
                if header.last_offset < offset or not header.record_count or not is_read:
                    continue
                first = self._first_in(found.data, position, header, offset)
                if first is not None:
                    return first
            if behind == offset:
                return None
            offset = behind

    async def look(self, offset: int, end: int) -> tuple[Look, TimedOffset | None]:
        """What is left from an offset to the end, and the first record of it; None without one."""
        look, first = Look(offset), None
        while not look.is_over and look.next < end:
            found = await self.fetch(look.next, COMMITTED, look.wanted)
            is_new = look.first is None
            try:
                size = look.add(found.data, found.aborted)
            except CorruptRecordError as error:
                raise self._corrupt(look.next, str(error)) from error
            if is_new and look.first is not None:
                first = self._first_in(found.data, look.first_position, look.first, look.first_offset)
            if not size:
                break
        if first is None and look.unread(0, end):
            # Compaction has removed it, or the next record is in a transaction that is open.
            behind = look.next if look.first is None else look.first.last_offset + 1
            first = await self.first_from(behind, COMMITTED) or await self.first_from(look.next)
        return look, first

    async def last(self, count: int, start: int, end: int, isolation: int) -> int:
        """The offset from which ``count`` records can be read up to ``end``; ``start`` if there are fewer.

        Walks back in steps of some offsets, larger ones where few records are.
        """
        need, stop, window = count, end, min(count, _FIRST_WINDOW)
        while stop > start and need:
            begin, found = await self._between(max(start, stop - window), stop, isolation, need)
            total = sum(records for _, records in found)
            while found and need:
                header, records = found.pop()
                if records >= need:
                    return max(start, await self._last_in(header, records, need))
                need -= records
            if total < window // 2:
                window *= 2
            stop = min(begin, stop)
        return start if need else stop

    async def _between(
        self, begin: int, stop: int, isolation: int, need: int
    ) -> tuple[int, deque[tuple[BatchHeader, int]]]:
        """The last batches before ``stop`` with ``need`` records, and the first offset of the batch of ``begin``."""
        found: deque[tuple[BatchHeader, int]] = deque()
        total = 0
        first = begin
        at = begin
        while at < stop:
            fetched = await self.fetch(at, isolation, _WALK_BYTES)
            dropped = AbortedRecords(fetched.aborted)
            before = at
            for position, header in self._headers(fetched.data, at):
                if header.base_offset >= stop:
                    at = stop
                    break
                first = min(first, header.base_offset)
                is_new = header.last_offset >= at
                at = max(at, header.last_offset + 1)
                if not self._is_read(dropped, fetched.data, position, header) or not is_new:
                    continue
                records = self._count(fetched.data, position, header)
                if records:
                    found.append((header, records))
                    total += records
                    while total - found[0][1] >= need:
                        total -= found.popleft()[1]
            if at == before:
                break
        return first, found

    def _is_read(self, dropped: AbortedRecords, data: bytes, position: int, header: BatchHeader) -> bool:
        try:
            return not dropped.has(data, position, header) and not header.attributes & CONTROL
        except CorruptRecordError as error:
            raise self._corrupt(header.base_offset, str(error)) from error

    def _count(self, data: bytes, position: int, header: BatchHeader) -> int:
        if header.record_count >= 0:
            return header.record_count
        return len(self._decoded(data, position, header))

    def _decoded(self, data: bytes, position: int, header: BatchHeader) -> list[int]:
        """The offsets of a batch's records."""
        try:
            if header.magic != MAGIC:
                return [each.offset for each in decode_any(data, position, header, max_bytes=_BATCH_BYTES)]
            large = LargeBatch(position, header, record_data(data, position, header, _BATCH_BYTES))
            offsets: list[int] = []
            while not large.done:
                offsets += large.next().offsets
            return offsets
        except CorruptRecordError as error:
            raise self._corrupt(header.base_offset, str(error)) from error

    async def _last_in(self, header: BatchHeader, records: int, need: int) -> int:
        """The offset of the record from which ``need`` ones are left in a batch."""
        if header.magic == MAGIC and records == header.last_offset_delta + 1:
            return header.last_offset + 1 - need
        # Compaction has removed some, or it is a message of an old format with others in it.
        fetched = await self.fetch(header.last_offset)
        for position, there in self._headers(fetched.data, header.last_offset):
            if there.last_offset == header.last_offset:
                return self._decoded(fetched.data, position, there)[-need:][0]
        return header.base_offset

    def _headers(self, data: bytes, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        try:
            yield from iter_headers(data)
        except CorruptRecordError as error:
            raise self._corrupt(offset, str(error)) from error

    def _first_in(self, data: bytes, position: int, header: BatchHeader, offset: int) -> TimedOffset | None:
        """The first record of a batch at or after an offset."""
        if not is_intact(data, position, header):
            raise CorruptBatchError(
                f"partition {self._partition}: the checksum of the batch at offset {header.base_offset} is wrong",
                self._partition,
                header.base_offset,
                header.last_offset + 1,
            )
        try:
            if header.magic != MAGIC:
                found = decode_any(data, position, header, max_bytes=_BATCH_BYTES)
                return next(
                    (TimedOffset(each.offset, each.timestamp) for each in found if each.offset >= offset),
                    None,
                )
            # A batch of a few kilobytes can have millions of records, or of headers.
            large = LargeBatch(position, header, record_data(data, position, header, _BATCH_BYTES))
            while not large.done:
                columns = large.next(offset)
                index = bisect_left(columns.offsets, offset)
                if index < columns.count:
                    return TimedOffset(columns.offsets[index], columns.timestamps[index])
        except CorruptRecordError as error:
            raise self._corrupt(offset, str(error)) from error
        return None

    def _corrupt(self, offset: int, why: str) -> CorruptBatchError:
        return CorruptBatchError(f"partition {self._partition}: {why}", self._partition, offset)


async def walks(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    read: Callable[[LogWalk, TopicPartition], Awaitable[V]],
    deadline: Deadline,
) -> dict[TopicPartition, V | ClientError]:
    """What ``read`` finds in each partition's log; errors are outcomes, too."""

    async def ask(
        node: Node, some: list[TopicPartition], deadline: Deadline
    ) -> Mapping[TopicPartition, V | ClientError]:
        room = asyncio.Semaphore(_FETCHES_AT_ONCE)

        async def one(partition: TopicPartition) -> V | ClientError:
            async with room:
                try:
                    return await read(LogWalk(cluster, node, partition, deadline), partition)
                except ClientError as error:
                    return error

        return dict(zip(some, await together([one(each) for each in some]), strict=True))

    return await drive(partitions, ToLeaders(cluster), ask, deadline, cluster.backoff)
