"""Finding records in a topic: from an offset or a time on, the last ones, by key, or by what their values contain.

Batches that can't have a hit are passed over by their bytes; records of others are compared as Arrow columns. A search
ends with the ends that the partitions had when it began, with enough hits, or at a bound, and reports where it got to.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..commands.admin_common import plural
from ..consumer import Consumer
from ..errors import ConfigurationError, CorruptBatchError
from ..types import OffsetSpec, TopicPartition
from .decoding import LISTED_BYTES
from .reading import LIST_BYTES, RECORD_BYTES, bound

if TYPE_CHECKING:
    import pyarrow as pa

    from ..types import ListedOffset
    from .sessions import Session

MOST_HITS: Final = 500
MOST_RECORDS: Final = 50_000_000
MOST_SECONDS: Final = 120.0
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
_QUIET_POLLS: Final = 3
_POLL_MS: Final = 2_000
_SAY_SECONDS: Final = 0.1
"""Between two reports without a hit."""

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
    def filters(self) -> bool:
        return bool(self.key or self.contains)

    @property
    def needle(self) -> bytes | None:
        """Bytes that each hit has: batches without them needn't be decoded."""
        texts = [self.key, "" if self.is_regex else self.contains]
        return max(texts, key=len).encode() or None


@dataclass(slots=True)
class Progress:
    """The progress of a search. ``why`` is set once it has ended before it saw everything.

    ``unread`` are batches that can't be decoded, ``first_unread`` is what was wrong with the first.
    """

    scanned: int = 0
    hits: int = 0
    left: int = 0
    why: str = ""
    unread: int = 0
    first_unread: str = ""
    next: dict[int, int] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """What was left out, or ""."""
        if not self.unread:
            return ""
        return f"left out {plural(self.unread, 'part')} of the log that can't be read: {self.first_unread}"


def check(query: Query) -> None:
    """Raises ConfigurationError for a filter that can't be right."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(query.contains) > _LONGEST_PATTERN or len(query.key) > _LONGEST_PATTERN:
        raise ConfigurationError(f"a filter may have {_LONGEST_PATTERN:,} characters")
    if query.is_regex:
        try:
            pc.match_substring_regex(pa.array([b""]), query.contains)
        except pa.ArrowInvalid as error:
            raise ConfigurationError(f"the regular expression is wrong: {error}") from None


def _consumer(session: Session, query: Query, most: int | None) -> Consumer:
    """``most`` are the decompressed bytes of a batch; None is the consumer's own limit."""
    consumer = Consumer(
        **session.client,
        client_id="ottla-console",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if query.committed else "read_uncommitted",
        max_partition_fetch_bytes=_FETCH_BYTES,
        fetch_max_bytes=_BUFFERED_BYTES,
        default_api_timeout_ms=30_000,
    )
    if most is not None:
        bound(consumer, most)
    return consumer


async def _bounds(
    session: Session, query: Query
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The offsets to begin at in each partition, and to end at."""
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

    async def listed(spec: OffsetSpec | int) -> dict[TopicPartition, ListedOffset]:
        return await admin.list_offsets(dict.fromkeys(wanted, spec), isolation_level=level)

    starts = {p: each.offset for p, each in (await listed(OffsetSpec.EARLIEST)).items()}
    ends = {p: each.offset for p, each in (await listed(OffsetSpec.LATEST)).items()}
    if query.start == "time":
        from_time = await listed(query.at)
        begins = {p: ends[p] if from_time[p].offset < 0 else from_time[p].offset for p in wanted}
    elif query.start == "offset":
        begins = dict.fromkeys(wanted, query.at)
    elif query.start == "latest" and not query.filters:
        begins = {p: ends[p] - query.limit for p in wanted}
    else:
        begins = dict(starts)
    begins = {p: min(max(begin, starts[p]), ends[p]) for p, begin in begins.items()}
    return {p: begin for p, begin in begins.items() if begin < ends[p]}, ends


async def search(session: Session, query: Query) -> AsyncGenerator[tuple[list[Found], Progress], None]:
    """Hits as they are found, with the progress; at least one item. Closing it ends the reading at once."""
    check(query)
    begins, ends = await _bounds(session, query)
    progress = Progress(left=sum(ends[p] - begin for p, begin in begins.items()))
    if not begins:
        yield [], progress
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + MOST_SECONDS
    positions = dict(begins)
    quiet, said = 0, 0.0
    having = query.needle
    at_once = _AT_ONCE if query.filters else max(query.limit, _FEW_AT_ONCE)
    async with _consumer(session, query, LIST_BYTES) as consumer:
        consumer.assign(list(begins))
        for partition, begin in begins.items():
            consumer.seek(partition, begin)
        while positions:
            table, left_out = None, 0
            try:
                table = await consumer.poll_arrow(
                    timeout_ms=_POLL_MS, max_records=at_once, headers=query.headers, having=having
                )
                left_out = int((table.schema.metadata or {}).get(b"ottla.left_out", 0))
            except CorruptBatchError as error:
                if error.next_offset is None:
                    raise
                consumer.seek(error.partition, error.next_offset)
                progress.unread += 1
                progress.first_unread = progress.first_unread or str(error)
            if table is None:
                quiet, hits = 0, []
            elif table.num_rows or left_out:
                quiet = 0
                progress.scanned += table.num_rows + left_out
                hits = await asyncio.to_thread(_matching, table, query, ends, query.limit - progress.hits)
                progress.hits += len(hits)
            else:
                quiet += 1
                hits = []
            for partition in list(positions):
                positions[partition] = await consumer.position(partition)
                if positions[partition] >= ends[partition]:
                    del positions[partition]
                    consumer.pause(partition)
            progress.left = sum(ends[p] - at for p, at in positions.items())
            progress.next = {p.partition: at for p, at in positions.items()}
            if progress.hits >= query.limit and query.filters:
                progress.why = f"the first {query.limit:,} hits"
            elif progress.scanned >= MOST_RECORDS:
                progress.why = f"stopped after {progress.scanned:,} records"
            elif loop.time() > until:
                progress.why = f"stopped after {MOST_SECONDS:.0f} s"
            elif quiet >= _QUIET_POLLS:
                # Behind the last records there may be markers of transactions alone.
                positions.clear()
            if (
                hits
                or progress.why
                or table is None
                or not positions
                or (query.filters and loop.time() - said > _SAY_SECONDS)
            ):
                said = loop.time()
                yield hits, progress
            if progress.why:
                return
            if not query.filters and query.start != "latest" and progress.hits >= query.limit:
                return


def _matching(table: pa.Table, query: Query, ends: Mapping[TopicPartition, int], room: int) -> list[Found]:
    """The rows that match, and that were there when the search began."""
    import pyarrow.compute as pc

    mask: Any = None
    if query.contains:
        find = pc.match_substring_regex if query.is_regex else pc.match_substring
        mask = find(table["value"], query.contains)
    if query.key:
        keys = pc.equal(table["key"], query.key.encode())
        mask = keys if mask is None else pc.and_(mask, keys)
    if mask is not None:
        table = table.filter(mask)
    if query.filters:
        table = table.slice(0, max(0, room))
    return [each for each in _rows(table) if each.offset < ends[TopicPartition(each.topic, each.partition)]]


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
    """The records of a query without a filter: the last ones, or the first ones from its start on, in order of time."""
    kept: list[Found] = []
    progress = Progress()
    async for hits, latest in search(session, query):
        progress = latest
        kept += hits
        if query.start == "latest":
            kept = heapq.nlargest(query.limit, kept, key=_when)
        else:
            kept = heapq.nsmallest(query.limit, kept, key=_when)
        kept = _bounded(kept)
    return kept, progress


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
    return (found.timestamp or -1, found.offset, found.partition)


async def read_one(
    session: Session, topic: str, partition: int, offset: int, *, whole: bool = False
) -> Found | None:
    """The first record at or after an offset, with its headers; None at the end of the log.

    Raises CorruptBatchError if its batch has more than ``RECORD_BYTES``, unless ``whole`` accepts it.
    """
    query = Query(topic, partition, "offset", offset)
    begins, ends = await _bounds(session, query)
    place = TopicPartition(topic, partition)
    if place not in begins or offset >= ends[place]:
        return None
    async with _consumer(session, query, None if whole else RECORD_BYTES) as consumer:
        consumer.assign([place])
        consumer.seek(place, begins[place])
        for _ in range(_QUIET_POLLS):
            for record in await consumer.poll(timeout_ms=_POLL_MS, max_records=1):
                stamp = record.timestamp if record.timestamp >= 0 else None
                size = len(record.value or b"")
                return Found(
                    topic, partition, record.offset, stamp, record.key, record.value, size, record.headers
                )
    return None


def local_time(text: str) -> int:
    """Milliseconds of a time in a form; without a zone it is this machine's. Raises ConfigurationError."""
    from ..commands.timefmt import parse_time

    try:
        moment = parse_time(text)
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(str(error)) from None
    if not 0 <= moment < 2**63:
        raise ConfigurationError(f"{text[:40]!r}: timestamps start in 1970")
    return moment


def zone() -> str:
    """The name of this machine's time zone, for forms."""
    return datetime.now().astimezone().tzname() or "local time"
