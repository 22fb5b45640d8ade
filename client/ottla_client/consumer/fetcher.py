"""Reads ahead into a bounded buffer: one fetch at a time from each broker.

A partition is fetched while less than ``max_partition_fetch_bytes`` of it is buffered, so the buffer holds at most
twice that. The next fetch is sent before the application gets the records of the last one, so that broker and
application work at the same time. Fetches wait at the broker, so they have a connection of their own. Source: Java's
``Fetcher``, ``AbstractFetch`` (KIP-227, KIP-320, KIP-392, KIP-516).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import RETRIABLE, ErrorCode, error_code
from ottla_protocol.fetch_session import NO_SESSION, SESSION_ERRORS, FetchSession, SessionRequest
from ottla_protocol.messages.fetch import (
    FetchResponse,
    PartitionData,
)

from ..cluster import Cluster
from ..cluster.tasks import background
from ..deadline import Deadline, wait_at_most
from ..errors import (
    BrokerError,
    ClientError,
    CorruptBatchError,
    UnknownTopicError,
    UnsupportedApiError,
    is_retriable,
)
from ..requests.fetch import FIRST_WITH_SESSIONS, LAST_BY_NAME, FetchPosition, fetch_request
from ..types import TopicPartition
from .buffer import Buffer
from .positions import PartitionState, Positions, Stage
from .records import Chunk
from .settings import ConsumerSettings

if TYPE_CHECKING:
    from ..connection import Connection

_log = logging.getLogger("ottla_client")

LEAST_VERSION = 4
"""Older brokers (before 0.11) send formats without batches."""
FEW_BYTES = 4096
"""An answer with fewer bytes is handed on before the next fetch is sent, since that takes as long as the rest of its
way to the application. With more, the broker should be at work meanwhile."""
FIRST_THROTTLED_HERE = 8
"""From this version on brokers answer at once, and the client keeps the pause (KIP-219)."""
PAUSE = 0.02
"""Seconds between two fetches that leave out a full partition: it should be fetched soon after it has room."""


class Fetcher:
    """Keeps the buffer filled for all partitions that are fetching."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        positions: Positions,
        buffer: Buffer,
        *,
        arrived: Callable[[], None],
        out_of_range: Callable[[PartitionState], None],
        fail: Callable[[PartitionState, ClientError], None],
        report: Callable[[ClientError], None],
    ) -> None:
        """Make a fetcher with four callbacks.

        ``arrived`` is called when records have come, ``out_of_range`` for a position that the log doesn't have,
        ``fail`` for a partition that can't be read, and ``report`` for a broker that can't be read from.
        """
        self.cluster = cluster
        self.settings = settings
        self.isolation = settings.isolation
        self.positions = positions
        self.buffer = buffer
        self.arrived = arrived
        self.out_of_range = out_of_range
        self.fail = fail
        self.report = report
        self._nodes: dict[int, NodeFetcher] = {}

    def wake(self) -> None:
        """Look for partitions to fetch."""
        for state in self.positions:
            if state.may_be_fetched:
                node = self.node_of(state)
                if node is not None and node not in self._nodes:
                    self._nodes[node] = NodeFetcher(self, node)
        for fetcher in self._nodes.values():
            fetcher.wake()

    def wake_for(self, state: PartitionState) -> None:
        """A partition has room in the buffer."""
        node = self.node_of(state)
        fetcher = self._nodes.get(node) if node is not None else None
        if fetcher is not None:
            fetcher.wake_for(state)

    def node_of(self, state: PartitionState) -> int | None:
        replica = state.replica
        if replica is not None:
            if replica in self.cluster.nodes and monotonic() < state.replica_until:
                return replica
            state.replica = None
        return self.cluster.leader(*state.partition)

    def stop(self) -> None:
        for fetcher in self._nodes.values():
            fetcher.task.cancel()

    async def wait_stopped(self) -> None:
        tasks = [fetcher.task for fetcher in self._nodes.values()]
        if tasks:
            await asyncio.wait(tasks)


class NodeFetcher:
    """One broker's fetches. Each answer is handled, and the next fetch sent, in the turn of the loop that brings it.

    The task does the rest: it connects, waits while there is nothing to fetch, and backs off.
    """

    def __init__(self, fetcher: Fetcher, node: int) -> None:
        self._fetcher = fetcher
        self._node = node
        self._session: FetchSession[TopicPartition, FetchPosition] = FetchSession()
        self._awake = asyncio.Event()
        self._failures = 0
        self._session_errors = 0
        """In a row. The first is ordinary, as sessions are dropped when a broker restarts or has many."""
        self._idle_answers = 0
        """In a row that brought nothing although they came early. The first may be chance."""
        self._not_before = 0.0
        """No fetch is sent until then: the broker throttles this client (KIP-219), or gives idle answers."""
        self._asked: dict[TopicPartition, tuple[PartitionState, int, int]] = {}
        """By partition: its state, version and offset in the request in flight."""
        self._number = 0
        """Of the last fetch; answers to others are discarded."""
        self._moved = False
        """Whether the answer that is handled sends partitions to other brokers, which are to be woken."""
        self._waits = False
        """Whether the fetch in flight may wait at the broker for records."""
        self._ended: asyncio.Future[float]
        """Done when no fetch is in flight, with the seconds to wait before the next one."""
        self.task = background(self._run(), f"the fetcher from broker {node}")

    def wake(self) -> None:
        """Look for partitions to fetch; abandon a waiting fetch that lacks one of them."""
        self._awake.set()
        if self._waits and not self._ended.done() and any(map(self._is_news, self._choose()[0])):
            self._number += 1
            self._waits = False
            self._session.failed()
            self._ended.set_result(0.0)

    def wake_for(self, state: PartitionState) -> None:
        """As ``wake``, for a partition that has room in the buffer."""
        if self._is_news(state):
            self.wake()
        else:
            self._awake.set()

    def _is_news(self, state: PartitionState) -> bool:
        asked = self._asked.get(state.partition)
        return asked is None or asked[0] is not state or asked[1] != state.version

    async def _run(self) -> None:
        while True:
            if (pause := self._not_before - monotonic()) > 0:
                await asyncio.sleep(pause)
            self._awake.clear()
            wanted, _, delay = self._choose()
            if not wanted:
                await self._sleep(delay)
                continue
            try:
                pause = await self._fetch()
            except ClientError as error:
                await self._failed(error)
                continue
            if self._session_errors > 1:
                await asyncio.sleep(self._fetcher.cluster.backoff.after(self._session_errors - 1))
            elif pause:
                await self._sleep(pause)

    async def _sleep(self, seconds: float | None) -> None:
        """Sleep until ``wake``, for ``seconds`` at most."""
        await wait_at_most(self._awake, seconds)

    def _choose(self) -> tuple[list[PartitionState], bool, float | None]:
        """Partitions to fetch now, whether others are full, and seconds until the next retry, if one is due."""
        fetcher = self._fetcher
        now = monotonic()
        wanted = []
        crowded = False
        delay: float | None = None
        for state in fetcher.positions:
            if not state.may_be_fetched or fetcher.node_of(state) != self._node:
                continue
            if state.retry_at > now:
                wait = state.retry_at - now
                delay = wait if delay is None else min(delay, wait)
            elif state.buffered >= fetcher.settings.max_partition_fetch_bytes:
                crowded = True
            else:
                wanted.append(state)
        return wanted, crowded, delay

    async def _fetch(self) -> float:
        """Send one fetch after the other, until there is a reason to wait. Returns the seconds to wait.

        Raises ClientError.
        """
        fetcher = self._fetcher
        deadline = Deadline(fetcher.settings.request_timeout)
        connection = await fetcher.cluster.dedicated(self._node, deadline, "fetch")
        if connection.in_flight:
            # An abandoned fetch still waits there.
            connection = await fetcher.cluster.dedicated(self._node, deadline, "fetch aside")
        self._ended = asyncio.get_running_loop().create_future()
        try:
            if not self._send(connection):
                return 0.0
            return await self._ended
        finally:
            self._number += 1
            self._waits = False

    def _send(self, connection: Connection) -> bool:
        """Send a fetch for the partitions that have room; False if there are none. Raises ClientError."""
        fetcher = self._fetcher
        settings = fetcher.settings
        wanted, crowded, _ = self._choose()
        if not wanted or connection.closed:
            return False
        max_wait_ms = 0 if crowded else settings.fetch_max_wait_ms
        version, session = self._prepare(connection, wanted)
        request = fetch_request(
            session.fetch,
            version=version,
            max_bytes=settings.fetch_max_bytes,
            min_bytes=settings.fetch_min_bytes,
            max_wait_ms=max_wait_ms,
            isolation=fetcher.isolation,
            rack_id=settings.client_rack,
            session=(session.session_id, session.epoch),
            forgotten=session.forgotten,
        )
        self._number += 1
        connection.call(
            request,
            partial(self._answered, connection, self._number, version, crowded, max_wait_ms, monotonic()),
            timeout=(settings.request_timeout_ms + max_wait_ms) / 1000,
            version=version,
        )
        self._waits = max_wait_ms > 0
        return True

    def _answered(
        self,
        connection: Connection,
        number: int,
        version: int,
        crowded: bool,
        max_wait_ms: int,
        since: float,
        response: FetchResponse,
        error: Exception | None,
    ) -> None:
        if number != self._number or self._ended.done():
            return  # it was abandoned
        self._waits = False
        try:
            if error is not None:
                raise error
            now = monotonic()
            meters = self._fetcher.buffer.meters
            meters.time("fetch-latency", now - since, now)
            if response.throttle_time_ms > 0:
                seconds = response.throttle_time_ms / 1000
                meters.time("throttle", seconds, now)
                if version >= FIRST_THROTTLED_HERE:
                    self._not_before = now + seconds
            brought, excused = self._handle(response, version)
            self._failures = 0
            # A broker that throttles doesn't wait for records (KIP-219), so it says nothing of later answers.
            excused = excused or response.throttle_time_ms > 0
            self._judge(brought, excused, early=(now - since) * 2000 < max_wait_ms)
            if self._session_errors > 1 or (crowded and not brought):
                self._ended.set_result(PAUSE)
            elif self._not_before > now:
                self._ended.set_result(0.0)
            elif 0 < brought < FEW_BYTES:
                # In the next turn the application gets them, and in the one after it, what it sends goes out.
                loop = asyncio.get_running_loop()
                loop.call_soon(loop.call_soon, self._go_on, connection, number)
            else:
                self._go_on(connection, number)
        except Exception as failed:
            self._ended.set_exception(failed)

    def _judge(self, brought: int, excused: bool, *, early: bool) -> None:
        """Back off from a broker that doesn't wait for records, and has none."""
        if brought or not early:
            self._idle_answers = 0
        elif not excused:
            pause = self._fetcher.cluster.backoff.after(self._idle_answers)
            self._idle_answers += 1
            self._not_before = max(self._not_before, monotonic() + pause)

    def _go_on(self, connection: Connection, number: int) -> None:
        """Send the fetch that follows this one."""
        if number != self._number or self._ended.done():
            return
        try:
            if not self._send(connection):
                self._ended.set_result(0.0)
        except Exception as failed:
            self._ended.set_exception(failed)

    def _prepare(
        self, connection: Connection, wanted: Iterable[PartitionState]
    ) -> tuple[int, SessionRequest[TopicPartition, FetchPosition]]:
        """The version and the session's part of the next request."""
        cluster = self._fetcher.cluster
        version = connection.version_of(ApiKey.FETCH)
        if version < LEAST_VERSION:
            raise UnsupportedApiError(
                f"{connection.host}:{connection.port} is older than Kafka 0.11, which this client can't read from"
            )
        max_bytes = self._fetcher.settings.max_partition_fetch_bytes
        wants: dict[TopicPartition, FetchPosition] = {}
        self._asked = {}
        by_id = version > LAST_BY_NAME
        for state in wanted:
            partition = state.partition
            topic = cluster.topic(partition.topic)
            topic_id = None if topic is None else topic.id
            by_id = by_id and topic_id is not None
            epoch = -1 if state.leader_epoch is None else state.leader_epoch
            wants[partition] = FetchPosition(topic_id, state.fetch_offset, epoch, max_bytes)
            self._asked[partition] = (state, state.version, state.fetch_offset)
        session = self._session.request(wants, by_id=by_id)
        return version if by_id else min(version, LAST_BY_NAME), session

    def _handle(self, response: FetchResponse, version: int) -> tuple[int, bool]:
        """Add the response's records to the buffer. Returns their bytes, and whether there is a reason to have none."""
        fetcher = self._fetcher
        answers: list[tuple[TopicPartition, PartitionData]] = []
        names: dict[bytes, str] = {}
        if version > LAST_BY_NAME:
            for partition in self._session.partitions:
                topic_id = self._session.topic_id(partition)
                if topic_id is not None:
                    names[topic_id] = partition.topic
        for topic in response.responses:
            # An unknown id gives a name that no topic has, and the session starts over.
            name = topic.topic if version <= LAST_BY_NAME else names.get(topic.topic_id, "")
            answers += [(TopicPartition(name, data.partition_index), data) for data in topic.partitions]
        error = response.error_code
        session_id = response.session_id if version >= FIRST_WITH_SESSIONS else NO_SESSION
        if not self._session.answered(error, session_id, [partition for partition, _ in answers]):
            if error and error_code(error) not in SESSION_ERRORS:
                code = error_code(error)
                raise BrokerError(code, f"broker {self._node} refused the fetch: {code.name}")
            if error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                fetcher.cluster.stale()
            self._session_errors += 1
            return 0, True
        self._session_errors = 0
        brought = 0
        excused = False
        for partition, data in answers:
            asked = self._asked.get(partition)
            if asked is None:
                continue
            state, state_version, offset = asked
            if state.version != state_version or state.stage is not Stage.FETCHING:
                excused = True
                continue
            if state.fetch_offset != offset:
                # Another broker, which was asked when the partition moved to it, has answered before.
                excused = True
                continue
            if data.error_code:
                excused = True
                self._refused(state, error_code(data.error_code))
            else:
                brought += self._accept(state, data, offset)
                excused = excused or state.retry_at > 0
        if self._moved:
            self._moved = False
            fetcher.wake()
        if brought:
            fetcher.arrived()
        return brought, excused

    def _accept(self, state: PartitionState, data: PartitionData, offset: int) -> int:
        """A partition's response without an error. Returns the bytes of its records."""
        fetcher = self._fetcher
        state.high_watermark = data.high_watermark
        if data.last_stable_offset >= 0:
            state.last_stable_offset = data.last_stable_offset
        if data.preferred_read_replica >= 0:
            state.replica = data.preferred_read_replica
            state.replica_until = monotonic() + fetcher.settings.metadata_max_age_ms / 1000
            self._moved = True
            if not data.records:
                state.set_back(fetcher.cluster.backoff.after)
                return 0
        if not data.records:
            state.calm()
            return 0
        size = len(data.records)
        fetcher.buffer.meters.add("bytes-consumed-total", size)
        chunk = Chunk(state, data.records, offset, data.aborted_transactions)
        if not chunk.size:
            what = f"{size} bytes at offset {offset}, which are not a whole record batch"
            fetcher.fail(
                state,
                CorruptBatchError(f"{state.partition}: the broker sent {what}", state.partition, offset),
            )
            return size
        state.calm()
        if chunk.end_offset > offset:
            state.setbacks = 0
        else:
            state.set_back(fetcher.cluster.backoff.after)
        state.fetch_offset = max(offset, chunk.end_offset)
        fetcher.buffer.add(chunk)
        fetcher.positions.to_the_back(state)
        return size

    def _refused(self, state: PartitionState, code: ErrorCode) -> None:
        """A partition's response with an error. Source: Java's ``FetchCollector``."""
        fetcher = self._fetcher
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and not state.buffered:
            if state.replica is not None:
                # A follower may be behind: ask the leader.
                state.replica = None
                state.set_back(fetcher.cluster.backoff.after)
                self._moved = True
            else:
                fetcher.out_of_range(state)
            return
        state.replica = None
        state.back_off(fetcher.cluster.backoff.after(state.attempts + 1))
        if code is ErrorCode.OFFSET_OUT_OF_RANGE or code is ErrorCode.UNKNOWN_LEADER_EPOCH:
            return
        if code in RETRIABLE and code is not ErrorCode.CORRUPT_MESSAGE:
            fetcher.cluster.stale(state.partition.topic)
            return
        why = f"this user is not allowed to read the topic ({code.name})" if code in _UNSEEN else code.name
        message = f"{state.partition} can't be read at offset {state.fetch_offset}: {why}"
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            _log.warning("%s; trying again", message)
            return
        error = UnknownTopicError(message, code) if code in _UNSEEN else BrokerError(code, message)
        fetcher.fail(state, error)

    async def _failed(self, error: ClientError) -> None:
        """The whole fetch failed."""
        self._session.failed()
        cluster = self._fetcher.cluster
        cluster.stale()
        self._failures += 1
        if not is_retriable(error):
            self._fetcher.report(error)
        _log.info("a fetch from broker %d failed: %s", self._node, error)
        await asyncio.sleep(cluster.backoff.after(self._failures))


_UNSEEN = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED})
