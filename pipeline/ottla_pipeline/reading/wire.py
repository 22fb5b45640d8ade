"""Reads a range over the wire: one connection to the leader, and the next fetch under way while the last is decoded.

The event loop runs in a thread of its own, which passes on one chunk at a time. At most three are held: one that is
decoded, one that waits, one that arrives. Source: Java's ``Fetcher``, ``AbstractFetch`` (KIP-320, KIP-392, KIP-516).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla_client import TopicPartition
from ottla_client.errors import BrokerError, ClientError, is_retriable
from ottla_client.lowlevel import (
    LAST_BY_NAME,
    Cluster,
    ConnectionSettings,
    Deadline,
    FetchPosition,
    Runner,
    ask_epochs,
    fetch_request,
    find_offsets,
)
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import RETRIABLE, ErrorCode, error_code
from ottla_protocol.messages.fetch import FetchResponse, PartitionData
from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.formats import read_any_header

from .aborted import Aborted, Chunk
from .batches import Batches, as_octets, find_batches
from .errors import CorruptData, ReadError
from .options import DEFAULT_API_TIMEOUT, cluster_options, number

if TYPE_CHECKING:
    from .errors import LossKind
    from .ranges import OffsetRange, ReadSettings

    Lost: TypeAlias = Callable[[LossKind, int, int], None]

log = logging.getLogger("ottla_pipeline")

LEAST_VERSION: Final = 4
"""Earlier versions, of brokers before 0.11, return message sets instead of batches."""
WAIT_MS: Final = 250
"""The longest wait of a fetch at the broker. The records usually exist already."""
GONE_SECONDS: Final = 3.0
"""A broker that has just started doesn't know topics yet; after this time the topic counts as deleted."""
EMPTY_ANSWERS: Final = 2
"""After this many responses without records, from a log that reaches the range's end, there are none."""
FIRST_BYTES: Final = 512 * 1024
LIKELY_SIZE: Final = 256
"""Assumed bytes of a record at first, so that a fetch of few records stays small."""
_EARLIEST, _LATEST = -2, -1
_UNKNOWN: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)


def read_wire(range: OffsetRange, settings: ReadSettings, start: int, lost: Lost) -> Iterator[Chunk]:
    """The chunks with the range's records from ``start`` on; the first and last may hold others.

    ``lost`` is called for records that are gone, and raises unless the read may go on without them. Raises ReadError.
    """
    runner = Runner("ottla-read")
    try:
        wire = runner.call(_opened(range, settings, start, lost))
        try:
            while (chunk := runner.call(wire.next())) is not None:
                yield chunk
        finally:
            runner.call(wire.close())
    except ClientError as error:
        raise ReadError(f"{range.topic}-{range.partition}: {error}") from error
    finally:
        runner.stop(5.0)


async def _opened(range: OffsetRange, settings: ReadSettings, start: int, lost: Lost) -> Wire:
    options = {"client_id": "ottla-pipeline", **cluster_options(settings.client)}
    cluster = Cluster(settings.bootstrap_servers, ConnectionSettings(**options))
    wire = Wire(cluster, range, settings, start, lost)
    await cluster.start(Deadline(cluster.request_timeout))
    wire.begin()
    return wire


class Wire:
    """Fetches the range's chunks. Runs in the event loop's thread."""

    def __init__(
        self,
        cluster: Cluster,
        range: OffsetRange,
        settings: ReadSettings,
        start: int,
        lost: Lost,
    ) -> None:
        self._cluster = cluster
        self._range = range
        self._settings = settings
        self._partition = TopicPartition(range.topic, range.partition)
        self._lost = lost
        self._position = start
        self._bytes_read = 0
        self._records_read = 0
        self._replica: int | None = None
        self._empty = 0
        self._unknown: Deadline | None = None
        self._validated = range.leader_epoch
        self._patience = number(settings.client, DEFAULT_API_TIMEOUT, 60_000) / 1000
        self._chunks: asyncio.Queue[Chunk | BaseException | None] = asyncio.Queue(1)
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def next(self) -> Chunk | None:
        """The next chunk; None after the last. Raises the error that ended reading."""
        chunk = await self._chunks.get()
        if isinstance(chunk, BaseException):
            raise chunk
        return chunk

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._cluster.close()

    async def _run(self) -> None:
        try:
            await self._check_topic(Deadline(self._patience))
            while self._position < self._range.end:
                chunk = await self._next_chunk()
                if chunk is not None:
                    await self._chunks.put(chunk)
        except Exception as error:
            await self._chunks.put(error)
        else:
            await self._chunks.put(None)

    async def _next_chunk(self) -> Chunk | None:
        """The batches from the position on, which moves past them; None if it moved without any."""
        deadline = Deadline(self._patience)
        failures = 0
        trouble: ClientError | None = None
        while True:
            try:
                leader = self._replica is None
                answer, throttled = await self._fetch(deadline)
                code = error_code(answer.error_code)
                if not code and leader and answer.preferred_read_replica >= 0:
                    # The leader sends nothing then, but the id of a follower in the reader's rack.
                    self._replica = answer.preferred_read_replica
                    if not answer.records:
                        continue
                if not code and answer.records:
                    return self._take(answer)
                if not code:
                    if not throttled and await self._is_over(answer, deadline):
                        return None
                elif code is ErrorCode.OFFSET_OUT_OF_RANGE and self._replica is None:
                    if await self._out_of_range(deadline):
                        return None
                elif code is ErrorCode.CORRUPT_MESSAGE:
                    raise CorruptData(
                        *self._partition, self._position, "the broker says that its log is corrupt there"
                    )
                elif code not in RETRIABLE and code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise BrokerError(code, f"can't be read at offset {self._position}: {code.name}")
                self._replica = None
                trouble = BrokerError(code, f"the last answer was {code.name}") if code else None
            except ClientError as error:
                if not is_retriable(error):
                    raise
                self._replica = None
                trouble = error
            failures += 1
            delay = self._cluster.backoff.after(failures)
            if deadline.left() <= delay:
                raise ReadError(
                    f"{self._partition}: nothing could be read at offset {self._position} for"
                    f" {self._patience:.3g} s: {trouble or 'the broker sends no records'}"
                )
            await asyncio.sleep(delay)
            if trouble is not None:
                await self._refresh(deadline)
                if self._position >= self._range.end:
                    return None

    async def _refresh(self, deadline: Deadline) -> None:
        try:
            await self._check_topic(deadline.within(self._cluster.request_timeout))
        except ClientError as error:
            if not is_retriable(error):
                raise
            log.debug("%s: metadata can't be had yet: %s", self._partition, error)

    async def _fetch(self, deadline: Deadline) -> tuple[PartitionData, bool]:
        """One fetch, and whether a quota throttled it."""
        cluster, range, settings = self._cluster, self._range, self._settings
        leader = cluster.leader(range.topic, range.partition)
        node = leader if self._replica is None else self._replica
        if node is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._partition} has no leader")
        connection = await cluster.dedicated(node, deadline, "fetch")
        version = connection.version_of(ApiKey.FETCH)
        if version < LEAST_VERSION:
            raise ReadError(
                f"{connection.host}:{connection.port} is older than 0.11: it has no fetch that this reader takes"
            )
        topic = cluster.topic(range.topic)
        topic_id = None if topic is None else topic.id
        if topic_id is None:
            version = min(version, LAST_BY_NAME)
        epoch = None if topic is None else topic.partitions[range.partition].leader_epoch
        size = self._fetch_bytes()
        where = FetchPosition(topic_id, self._position, -1 if epoch is None else epoch, size)
        request = fetch_request(
            {self._partition: where},
            version=version,
            max_bytes=size,
            min_bytes=1,
            max_wait_ms=WAIT_MS,
            isolation=int(settings.isolation == "read_committed"),
            rack_id=settings.client.get("client.rack", ""),
        )
        timeout = deadline.left(cluster.request_timeout) + WAIT_MS / 1000
        response: FetchResponse = await connection.submit(request, timeout=timeout, version=version)
        code = error_code(response.error_code)
        if code:
            raise BrokerError(code, f"broker {node} refused to be read from: {code.name}")
        for each in response.responses:
            for data in each.partitions:
                return data, response.throttle_time_ms > 0
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {node} answered without {self._partition}")

    def _fetch_bytes(self) -> int:
        """Bytes to request: an estimate of the rest of the range, from the records so far, and a little more."""
        most = self._settings.fetch_bytes
        if not self._records_read:
            return min(most, max(FIRST_BYTES, LIKELY_SIZE * (self._range.end - self._position)))
        each = self._bytes_read / self._records_read
        return min(most, int(1.1 * each * (self._range.end - self._position)) + FIRST_BYTES // 4)

    def _take(self, answer: PartitionData) -> Chunk | None:
        """The fetched chunk, and the position after it."""
        self._empty = 0
        first = self._position
        data = as_octets(answer.records)
        found = find_batches(data, -1, self._range.end)
        if not len(found.table) and found.problem is None:
            found = found._replace(problem=_not_a_batch(found))
        elif found.problem is None and found.expected > answer.high_watermark:
            reach = f"offsets up to {found.expected - 1}, beyond the high watermark {answer.high_watermark}"
            found = found._replace(problem=f"it has {reach}", table=found.table[:0], expected=-1)
        if found.problem is not None:
            # Nothing after it can be found; the decoder raises the problem.
            behind, found = self._range.end, found._replace(expected=max(found.expected, self._position))
        else:
            behind = found.expected
        if behind <= self._position:
            found = found._replace(
                problem=f"the broker sent batches up to {found.expected - 1} only", expected=self._position
            )
            behind = self._range.end
        self._bytes_read += found.size
        self._records_read += min(behind, self._range.end) - first
        self._position = behind
        aborted = [Aborted(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        return Chunk(found, aborted if self._settings.isolation == "read_committed" else [], first)

    async def _check_topic(self, deadline: Deadline) -> None:
        """Look up the leader again; detect a topic that was created again, and a truncated log (KIP-320)."""
        range, cluster = self._range, self._cluster
        topics = await cluster.fetch_topics((range.topic,), deadline)
        topic = topics.get(range.topic)
        if topic is None or error_code(topic.error) in _UNKNOWN:
            self._unknown = self._unknown or Deadline(GONE_SECONDS)
            if self._unknown.passed():
                self._stop("deletion")
            return
        self._unknown = None
        if topic.error:
            return
        wanted = range.topic_uuid
        if wanted is not None and topic.id is not None and topic.id != wanted:
            self._stop("recreated")
            return
        if range.partition not in topic.partitions:
            self._stop("deletion")
            return
        placed = topic.partitions[range.partition]
        if range.leader_epoch < 0 or placed.leader is None or placed.leader_epoch is None:
            return
        if placed.leader_epoch <= self._validated:
            return
        ends = await ask_epochs(
            cluster, placed.leader, {self._partition: (range.leader_epoch, placed.leader_epoch)}, deadline
        )
        end = None if ends is None else ends.get(self._partition)
        if end is None or end.code:
            return
        self._validated = placed.leader_epoch
        if end.epoch >= 0 and 0 <= end.end_offset < range.end:
            self._lost("truncation", max(end.end_offset, self._position), range.end - 1)

    def _stop(self, kind: LossKind) -> None:
        """Report the rest of the range as lost."""
        if self._position < self._range.end:
            self._lost(kind, self._position, self._range.end - 1)
            self._position = self._range.end

    async def _bound(self, which: int, deadline: Deadline) -> int:
        """The log's start offset or its high watermark."""
        found = await find_offsets(self._cluster, {self._partition: which}, 0, deadline)
        at = found[self._partition]
        return 0 if at is None else at.offset

    async def _out_of_range(self, deadline: Deadline) -> bool:
        """Handle a position outside of the log; returns whether it has moved."""
        position, end = self._position, self._range.end
        earliest = await self._bound(_EARLIEST, deadline)
        if position < earliest:
            behind = min(earliest, end)
            self._lost("retention", position, behind - 1)
            self._position = behind
            return True
        if await self._bound(_LATEST, deadline) < position:
            self._stop("truncation")
            return True
        return False

    async def _is_over(self, answer: PartitionData, deadline: Deadline) -> bool:
        """Handle a log without records at the position: none are left, or they were truncated."""
        end = self._range.end
        reach = answer.high_watermark
        if self._settings.isolation == "read_committed":
            reach = min(reach, answer.last_stable_offset)
        if reach < end:
            self._empty = 0
            if await self._bound(_LATEST, deadline) < end:
                self._stop("truncation")
                return True
            return False
        self._empty += 1
        if self._empty < EMPTY_ANSWERS:
            return False
        self._position = end
        return True


def _not_a_batch(found: Batches) -> str:
    size = len(found.data)
    try:
        header = read_any_header(found.data.data)
    except CorruptRecordError as error:
        return str(error)
    return f"the broker sent {size} bytes of a record batch of {header.size}"
