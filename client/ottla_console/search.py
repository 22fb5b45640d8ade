"""Finding records in a topic: from an offset or a time on, the last ones, by key, or by what their values contain.

A search goes forwards from its start, or backwards from the end, and keeps the first or the last hits by time. It reads
the partitions in rounds, each time a longer part, and only those that may have a hit that comes before the ones it has
found. Batches that can't have a hit are passed over by their bytes; records of others are compared as Arrow columns. A
search ends with the ends that the partitions had when it began, with enough hits, or at a bound, and reports where it
got to.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla_cli.shared.admin import plural
from ottla_cli.shared.timefmt import show_time
from ottla_client.consumer import Consumer
from ottla_client.errors import ClientError, ConfigurationError, CorruptBatchError
from ottla_client.types import OffsetSpec, TopicPartition

from .decoding import LISTED_BYTES
from .reading import LIST_BYTES, RECORD_BYTES, BoundedReader, bound

if TYPE_CHECKING:
    import pyarrow as pa

    from .sessions import Session

MOST_HITS: Final = 500
MOST_RECORDS: Final = 50_000_000
MOST_SECONDS: Final = 120.0
_PAGE_SECONDS: Final = 20.0
"""Without a filter, the page waits for the records."""
_FIRST_PART: Final = 10_000
"""Offsets of each partition that the first round of a search with a filter reads. Each next one reads twice as many."""
_LARGEST_PART: Final = 1 << 20
"""The most that a round reads, unless the log is sparse."""
_AT_ONCE: Final = 100_000
_FEW_AT_ONCE: Final = 1_000
"""Without a filter, few records are wanted."""
WHOLE_VALUE: Final = 1 << 20
"""Longer values in a list are cut, as those are that have more than ``_WHOLE_BYTES`` together."""
_WHOLE_BYTES: Final = 32 << 20
MOST_HEADERS: Final = 200
_FETCH_BYTES: Final = 4 << 20
_BUFFERED_BYTES: Final = 16 << 20
_LONGEST_PATTERN: Final = 1_000
_QUIET_SECONDS: Final = 6.0
_POLL_MS: Final = 100
_WAIT_MS: Final = 20

_threads: Final = ThreadPoolExecutor(2, "search")
"""For regular expressions, which may take a minute for a long value: other pages wait for the other threads."""

STARTS: Final = ("latest", "earliest", "offset", "time")


class Found(NamedTuple):
    """A record. ``timestamp`` is in milliseconds, None without one.

    Of a search's hits, keys and long values are cut to what a list shows of them, and there are a few hundred headers
    at most. ``size`` is the whole value's.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    size: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def is_cut(self) -> bool:
        return self.value is not None and len(self.value) < self.size


@dataclass(frozen=True, slots=True)
class Query:
    """The records to look for. ``contains`` is text, or a regular expression of RE2, which takes linear time.

    ``start`` is one of STARTS; ``at`` is its offset or its time in milliseconds.
    """

    topic: str
    partition: int | None = None
    start: str = "latest"
    at: int = 0
    key: str = ""
    contains: str = ""
    is_regex: bool = False
    committed: bool = False
    limit: int = 50
    headers: bool = False

    @property
    def is_backwards(self) -> bool:
        return self.start == "latest"

    @property
    def filters(self) -> bool:
        return bool(self.key or self.contains)

    @property
    def needle(self) -> bytes | None:
        """Bytes that each hit has: batches without them needn't be decoded."""
        texts = [self.key, "" if self.is_regex else self.contains]
        return max(texts, key=len).encode() or None


@dataclass(slots=True)
class Progress:
    """The progress of a search: records that were looked at, hits among them, and offsets that are left.

    ``why`` is set once it has ended at a bound. ``reached`` is the time up to which, or back to which, everything was
    searched, in milliseconds. ``unread`` are batches that can't be decoded, ``first_unread`` is what was wrong with the
    first.
    """

    scanned: int = 0
    hits: int = 0
    left: int = 0
    why: str = ""
    reached: int | None = None
    unread: int = 0
    first_unread: str = ""

    @property
    def note(self) -> str:
        """What was left out, or ""."""
        notes = []
        if self.unread:
            notes.append(
                f"left out {plural(self.unread, 'part')} of the log that can't be read: {self.first_unread}"
            )
        if self.why:
            notes.append(f"{self.why}: {plural(self.left, 'offset')} not searched")
        return "; ".join(notes)

    def ended(self, query: Query) -> str:
        """The outcome in one line."""
        text = f"{self.hits:,} found in {plural(self.scanned, 'record')}"
        if not self.left:
            text += ", all searched"
        elif self.reached is not None:
            back = "back " if query.is_backwards else ""
            text += f", searched {back}to {show_time(self.reached)}"
        notes = []
        if self.hits > query.limit:
            which = "newest" if query.is_backwards else "first"
            notes.append(f"the {which} {query.limit:,} are shown")
        if self.note:
            notes.append(self.note)
        if self.left and not self.why:
            notes.append(f"{plural(self.left, 'offset')} not searched")
        return "; ".join((text, *notes))


def wrong_in(query: Query) -> dict[str, str]:
    """What can't be right, by the names of fields."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wrong = {}
    for name, text in (("key", query.key), ("contains", query.contains)):
        if len(text) > _LONGEST_PATTERN:
            wrong[name] = f"a filter may have {_LONGEST_PATTERN:,} characters"
    if query.is_regex and "contains" not in wrong:
        try:
            pc.match_substring_regex(pa.array([b""]), query.contains)
        except pa.ArrowInvalid as error:
            wrong["contains"] = f"the regular expression is wrong: {error}"
    return wrong


def _consumer(session: Session, query: Query) -> Consumer:
    return Consumer(
        **session.client,
        client_id="ottla-console",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if query.committed else "read_uncommitted",
        max_partition_fetch_bytes=_FETCH_BYTES,
        fetch_max_bytes=_BUFFERED_BYTES,
        # A request that waits at the end of a log delays the next round's.
        fetch_max_wait_ms=_WAIT_MS,
        default_api_timeout_ms=30_000,
    )


@dataclass(slots=True)
class _Span:
    """What isn't searched yet of a partition: the offsets from ``low`` to before ``high``.

    ``size`` is how many the next round takes. ``time`` is that of the last record that was looked at, or about that; in
    milliseconds, None if it isn't known.
    """

    low: int
    high: int
    size: int
    time: int | None = None

    def take(self, *, backwards: bool) -> tuple[int, int]:
        """The next part: its first offset, and its end."""
        if backwards:
            self.high, end = max(self.low, self.high - self.size), self.high
            return self.high, end
        self.low, begin = min(self.high, self.low + self.size), self.low
        return begin, self.low


async def _spans(session: Session, query: Query) -> dict[TopicPartition, _Span]:
    """What there is to search. Raises ClientError."""
    admin = session.admin
    topic = (await admin.describe_topics([query.topic]))[query.topic]
    if query.partition is not None and query.partition not in topic.partitions:
        raise ConfigurationError(
            f"topic {query.topic} has {plural(len(topic.partitions), 'partition')}, no {query.partition}"
        )
    wanted = [
        TopicPartition(query.topic, number)
        for number, each in topic.partitions.items()
        if each.leader is not None and query.partition in (None, number)
    ]
    if not wanted:
        raise ConfigurationError(
            "no partition has a leader at the moment; try again when the brokers are back"
        )
    level = "read_committed" if query.committed else "read_uncommitted"

    async def listed(spec: OffsetSpec | int) -> dict[TopicPartition, int]:
        found = await admin.list_offsets(dict.fromkeys(wanted, spec), isolation_level=level)
        return {p: each.offset for p, each in found.items()}

    starts, ends = await listed(OffsetSpec.EARLIEST), await listed(OffsetSpec.LATEST)
    begins = starts
    if query.start == "time":
        begins = {p: ends[p] if offset < 0 else offset for p, offset in (await listed(query.at)).items()}
    elif query.start == "offset":
        begins = dict.fromkeys(wanted, query.at)
    size = _FIRST_PART if query.filters else query.limit
    return {p: _Span(min(max(begins[p], starts[p]), ends[p]), ends[p], size) for p in wanted}


class _Search:
    """One search. ``best`` are the hits that come first, in order."""

    def __init__(self, session: Session, query: Query, spans: dict[TopicPartition, _Span]) -> None:
        self.query = query
        self.spans = spans
        self.best: list[Found] = []
        self.progress = Progress(left=sum(span.high - span.low for span in spans.values()))
        self._session = session
        self._seconds = MOST_SECONDS if query.filters else _PAGE_SECONDS
        self._until = asyncio.get_running_loop().time() + self._seconds

    def _next(self) -> list[TopicPartition]:
        """The partitions that may have records which come before the hits."""
        backwards = self.query.is_backwards
        left = {p: span.time for p, span in self.spans.items() if span.low < span.high}
        if len(self.best) < self.query.limit:
            return list(left)
        last = _when(self.best[-1])[0]
        return [p for p, time in left.items() if time is None or (time > last if backwards else time < last)]

    async def run(self, consumer: Consumer, reader: BoundedReader) -> AsyncIterator[None]:
        """Search until there are enough hits; yields whenever there is news."""
        consumer.assign(list(self.spans))
        consumer.pause(*self.spans)
        progress, backwards = self.progress, self.query.is_backwards
        while (chosen := self._next()) and not progress.why:
            parts = {p: self.spans[p].take(backwards=backwards) for p in chosen}
            before = progress.scanned
            reader.until = {p: end for p, (_, end) in parts.items()}
            async for _ in self._read(consumer, parts):
                yield
            is_sparse = progress.scanned - before < sum(end - begin for begin, end in parts.values()) // 8
            for span in (self.spans[p] for p in chosen):
                span.size = 2 * span.size if is_sparse else min(2 * span.size, _LARGEST_PART)
            await self._look_at_times(chosen)

    async def _read(
        self, consumer: Consumer, parts: Mapping[TopicPartition, tuple[int, int]]
    ) -> AsyncIterator[None]:
        """Read these parts of partitions: from an offset to an end."""
        loop = asyncio.get_running_loop()
        progress, query = self.progress, self.query
        for p, (begin, _) in parts.items():
            consumer.seek(p, begin)
            consumer.resume(p)
        ends = {p: end for p, (_, end) in parts.items()}
        positions = {p: begin for p, (begin, _) in parts.items()}
        heard = loop.time()
        while positions and not progress.why:
            table, left_out = await self._poll(consumer)
            if table is None or table.num_rows or left_out:
                heard = loop.time()
            if table is not None and (table.num_rows or left_out):
                threads = _threads if query.is_regex else None
                rows, scanned, hits = await loop.run_in_executor(threads, _matching, table, query, ends)
                heard = loop.time()
                progress.scanned += scanned + left_out
                progress.hits += hits
                self.best = _best(query, [*self.best, *rows])
            for p in list(positions):
                positions[p] = await consumer.position(p)
                if positions[p] >= ends[p]:
                    del positions[p]
                    consumer.pause(p)
            there = sum(span.high - span.low for span in self.spans.values())
            progress.left = there + sum(ends[p] - at for p, at in positions.items())
            if progress.scanned >= MOST_RECORDS:
                progress.why = f"stopped after {progress.scanned:,} records"
            elif loop.time() > self._until:
                progress.why = f"stopped after {self._seconds:.0f} s"
            elif loop.time() - heard > _QUIET_SECONDS:
                progress.why = "the brokers sent nothing further"
            yield

    async def _poll(self, consumer: Consumer) -> tuple[pa.Table | None, int]:
        """The next records, and how many were passed over; no table for a batch that can't be read."""
        query, progress = self.query, self.progress
        most = _AT_ONCE if query.filters else max(query.limit, _FEW_AT_ONCE)
        try:
            table = await consumer.poll_arrow(
                timeout_ms=_POLL_MS, max_records=most, headers=query.headers, having=query.needle
            )
        except CorruptBatchError as error:
            if error.next_offset is None:
                raise
            consumer.seek(error.partition, error.next_offset)
            progress.unread += 1
            progress.first_unread = progress.first_unread or str(error)
            return None, 0
        return table, int((table.schema.metadata or {}).get(b"ottla.left_out", 0))

    async def _look_at_times(self, partitions: list[TopicPartition]) -> None:
        """Find out how far the search has come in time."""
        from ottla_client.admin import PartialError

        backwards = self.query.is_backwards
        left = {p: span for p, span in self.spans.items() if span.low < span.high}
        asked = {p: left[p].high if backwards else left[p].low for p in partitions if p in left}
        try:
            found = await self._session.admin.timestamps_of(asked) if asked else {}
        except PartialError as error:
            found = error.results
        except ClientError:
            found = {}
        for p in asked:
            first = found.get(p)
            left[p].time = None if first is None else first.timestamp
        times = [span.time for span in left.values() if span.time is not None]
        is_known = bool(left) and len(times) == len(left)
        self.progress.reached = (max(times) if backwards else min(times)) if is_known else None


async def search(session: Session, query: Query) -> AsyncGenerator[tuple[list[Found], Progress], None]:
    """The hits that come first, as far as they are found, with the progress; at least one item.

    Each item has all hits that are to be shown, in order: the newest first, or the oldest. Closing it ends the reading
    at once. Raises ClientError.
    """
    for why in wrong_in(query).values():
        raise ConfigurationError(why)
    going = _Search(session, query, await _spans(session, query))
    if going.progress.left:
        consumer = _consumer(session, query)
        reader = bound(consumer, LIST_BYTES)
        async with consumer:
            async for _ in going.run(consumer, reader):
                yield going.best, going.progress
    yield going.best, going.progress


def _matching(
    table: pa.Table, query: Query, ends: Mapping[TopicPartition, int]
) -> tuple[list[Found], int, int]:
    """The matching rows that come first, how many rows are before the ends, and how many of them match."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pa.array([each.partition for each in ends], pa.int32())
    until = pa.array(list(ends.values()), pa.int64())
    mask: Any = pc.less(table["offset"], pc.take(until, pc.index_in(table["partition"], numbers)))
    table = table.filter(mask)
    scanned = table.num_rows
    if query.contains:
        find = pc.match_substring_regex if query.is_regex else pc.match_substring
        table = table.filter(find(table["value"], query.contains))
    if query.key:
        table = table.filter(pc.equal(table["key"], query.key.encode()))
    hits = table.num_rows
    if hits > query.limit:
        order = "descending" if query.is_backwards else "ascending"
        keys = [(name, order) for name in ("timestamp", "offset", "partition")]
        places = table.select([name for name, _ in keys])
        table = table.take(pc.select_k_unstable(places, query.limit, keys))
    return _rows(table), scanned, hits


def _rows(table: pa.Table) -> list[Found]:
    import pyarrow as pa
    import pyarrow.compute as pc

    def cut(column: Any, most: int) -> Any:
        # One byte more than is shown tells that there are more.
        short = pc.binary_slice(column, 0, LISTED_BYTES + 1)
        return pc.if_else(pc.greater(pc.binary_length(column), most), short, column)

    has_headers = "headers" in table.column_names
    headers: Iterable[Any] = [()] * len(table)
    if has_headers:
        headers = map(_headers, pc.list_slice(table["headers"], 0, MOST_HEADERS).to_pylist())
    columns = (
        table["topic"].to_pylist(),
        table["partition"].to_pylist(),
        table["offset"].to_pylist(),
        table["timestamp"].cast(pa.int64()).to_pylist(),
        cut(table["key"], LISTED_BYTES).to_pylist(),
        cut(table["value"], WHOLE_VALUE).to_pylist(),
        pc.fill_null(pc.binary_length(table["value"]), 0).to_pylist(),
        headers,
    )
    return [Found(*row) for row in zip(*columns, strict=True)]


def _headers(found: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((each["key"], each["value"]) for each in found or ())


async def newest(session: Session, query: Query) -> tuple[list[Found], Progress]:
    """The outcome of a search: the last records, or the first ones from its start on, in order of time."""
    async for found in search(session, query):
        last = found
    return last


def _best(query: Query, found: list[Found]) -> list[Found]:
    """The first of these, in order."""
    first = heapq.nlargest if query.is_backwards else heapq.nsmallest
    return _bounded(first(query.limit, found, key=_when))


def _bounded(kept: list[Found]) -> list[Found]:
    """These records with the longest values cut, so that all have so many bytes together."""
    left = _WHOLE_BYTES
    whole = set()
    for index in sorted(range(len(kept)), key=lambda index: len(kept[index].value or b"")):
        left -= len(kept[index].value or b"")
        if left < 0:
            break
        whole.add(index)
    return [
        each if index in whole else each._replace(value=(each.value or b"")[: LISTED_BYTES + 1])
        for index, each in enumerate(kept)
    ]


def _when(found: Found) -> tuple[int, int, int]:
    return (-1 if found.timestamp is None else found.timestamp, found.offset, found.partition)


async def read_one(
    session: Session, topic: str, partition: int, offset: int, *, whole: bool = False
) -> Found | None:
    """The first record at or after an offset, with its headers; None at the end of the log.

    Raises CorruptBatchError if its batch has more than ``RECORD_BYTES``, unless ``whole`` accepts it.
    """
    query, place = Query(topic, partition, "offset", offset), TopicPartition(topic, partition)
    span = (await _spans(session, query))[place]
    if offset >= span.high:
        return None
    consumer = _consumer(session, query)
    if not whole:
        bound(consumer, RECORD_BYTES)
    until = asyncio.get_running_loop().time() + _QUIET_SECONDS
    async with consumer:
        consumer.assign([place])
        consumer.seek(place, span.low)
        while await consumer.position(place) < span.high and asyncio.get_running_loop().time() < until:
            for record in await consumer.poll(timeout_ms=_POLL_MS, max_records=1):
                stamp = record.timestamp if record.timestamp >= 0 else None
                size = len(record.value or b"")
                return Found(
                    topic, partition, record.offset, stamp, record.key, record.value, size, record.headers
                )
    return None


def local_time(text: str) -> int:
    """Milliseconds of a time in a form; without a zone it is this machine's. Raises ConfigurationError."""
    from ottla_cli.shared.timefmt import parse_time

    try:
        return parse_time(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def zone() -> str:
    """The name of this machine's time zone, for forms."""
    return datetime.now().astimezone().tzname() or "local time"
