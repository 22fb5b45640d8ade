"""The share session with one broker: one request at a time, on a connection of its own.

A session ends with its connection, or when broker and client disagree about its epoch. What was acquired in it is then
void: the broker releases it, and other members get it. So ``generation`` goes up, and acknowledgements of an older
generation are not sent. Java's ``ShareConsumeRequestManager`` and ``ShareSessionHandler``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from ottla_protocol.errors import RETRIABLE, ErrorCode, error_code
from ottla_protocol.fetch_session import FetchSession
from ottla_protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from ottla_protocol.messages.share_fetch import PartitionData, ShareFetchResponse

from ..cluster.tasks import background
from ..consumer.acquired import Acquired
from ..deadline import Deadline, wait_at_most
from ..errors import BrokerError, ClientError, ConnectionLostError, RequestTimeoutError, is_retriable
from ..meters import Meters
from ..types import TopicPartition
from .acknowledgements import AcknowledgedRun
from .acquisition import Acquisition, Outgoing
from .requests import FINAL_EPOCH, SessionPartition, share_acknowledge_request, share_fetch_request
from .settings import ShareConsumerSettings

if TYPE_CHECKING:
    from ..cluster import Cluster
    from ..connection import Connection

_log = logging.getLogger("ottla_client")

_LONGEST: Final = 3600.0
"""Seconds that a close takes at most, also without a deadline."""
_SESSION_ID: Final = 1
"""Share sessions go by the member's id; FetchSession needs some number."""
_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""The broker has lost the partition, and with it what the member had acquired: sending again is useless."""
_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

Results = Mapping[TopicPartition, tuple[int, str | None]]
"""The outcome of each partition's acknowledgements: an error code, 0 for none, and a message."""


class Owner(Protocol):
    """The interface that a session needs of its consumer."""

    @property
    def hungry(self) -> bool:
        """Whether the application waits for records."""

    @property
    def member_id(self) -> str: ...
    @property
    def meters(self) -> Meters: ...
    def wanted(self, node: int) -> Mapping[TopicPartition, SessionPartition]:
        """The partitions to read from a broker."""

    def arrived(self, acquisition: Acquisition, lock_ms: int) -> None:
        """Records have come, which are locked for ``lock_ms`` milliseconds."""

    def report(self, error: ClientError) -> None:
        """Have a poll raise ``error``."""


class NodeSession:
    """Belongs to one event loop."""

    def __init__(self, node: int, cluster: Cluster, settings: ShareConsumerSettings, owner: Owner) -> None:
        self.node = node
        self.generation = 0
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._session: FetchSession[TopicPartition, SessionPartition] = FetchSession()
        self._connection: Connection | None = None
        self._pending: list[Outgoing] = []
        self._failures = 0
        self._throttled_until = 0.0
        """The broker throttles this client until then (KIP-219): acknowledgements go out, fetches wait."""
        self._awake = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = background(self._run(), f"the share session with broker {node}")

    def wake(self) -> None:
        """Look for something to do."""
        self._awake.set()

    def acknowledge(self, outgoing: Outgoing) -> None:
        """Send acknowledgements with the next request."""
        if outgoing.acquisition.valid and not self._task.done():
            self._pending.append(outgoing)
            self._awake.set()
        else:
            outgoing.complete(
                BrokerError(
                    ErrorCode.SHARE_SESSION_NOT_FOUND,
                    f"the share session with broker {self.node} has ended, so the records are delivered again",
                )
            )

    async def close(self, deadline: Deadline) -> None:
        """Send what is pending and end the session, which releases the other records; by the deadline."""
        self._closing.set()
        self._awake.set()
        if not self._session.is_open:
            self._task.cancel()  # it may wait for a broker that doesn't answer
        try:
            ended, _ = await asyncio.wait((self._task,), timeout=deadline.left(_LONGEST))
            if not ended:
                _log.warning("broker %d did not answer the end of the share session in time", self.node)
            elif not self._task.cancelled():
                self._task.result()  # raises a defect
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._lost(_closed())

    async def _run(self) -> None:
        while not self._closing.is_set():
            self._awake.clear()
            pause = 0.0
            # Read once: a throttle that ends between two readings would be waited for without end.
            now = monotonic()
            try:
                if self._pending or self._fetches(now):
                    pause = await self._exchange()
                else:
                    throttle = self._throttled_until - now
                    await wait_at_most(self._awake, throttle if throttle > 0 else None)
            except ClientError as error:
                pause = self._failed(error)
            if pause:
                await wait_at_most(self._closing, pause)
        await self._end()

    def _fetches(self, now: float) -> bool:
        return self._owner.hungry and now >= self._throttled_until and bool(self._owner.wanted(self.node))

    async def _connect(self) -> Connection:
        deadline = Deadline(self._settings.request_timeout)
        connection = await self._cluster.dedicated(self.node, deadline, "share")
        if connection is not self._connection:
            if self._connection is not None:
                self._lost(ConnectionLostError(f"the connection to broker {self.node} was lost"))
            self._connection = connection
        return connection

    async def _exchange(self) -> float:
        """One request, with what there is to send; returns the seconds until the next one."""
        connection = await self._connect()
        if self._closing.is_set():
            return 0.0
        # Chosen now that nothing is awaited before the request.
        wanted = self._owner.wanted(self.node)
        sent = self._choose()
        apart = any(
            wanted.get(each.acquisition.partition) != SessionPartition(each.acquisition.topic_id)
            for each in sent
        )
        with _settled(sent):
            if self._fetches(monotonic()) and wanted and not apart:
                return await self._fetch(connection, wanted, sent)
            if sent:
                return await self._acknowledge(connection, sent)
        return 0.0

    def _choose(self) -> list[Outgoing]:
        """Pending acknowledgements to send now. Those of one partition whose offsets may overlap go one by one."""
        chosen: dict[TopicPartition, list[Outgoing]] = {}
        left = []
        for each in self._pending:
            first, last = each.span
            beside = chosen.setdefault(each.acquisition.partition, [])
            if each.deadline.passed():
                each.complete(RequestTimeoutError("the broker did not take the acknowledgements in time"))
            elif any(other.span[0] <= last and first <= other.span[1] for other in beside):
                left.append(each)
            else:
                beside.append(each)
        self._pending = left
        return [each for its in chosen.values() for each in its]

    async def _fetch(
        self, connection: Connection, wanted: Mapping[TopicPartition, SessionPartition], sent: list[Outgoing]
    ) -> float:
        meters = self._owner.meters
        session = self._session.request(wanted, by_id=True)
        request = share_fetch_request(self._settings, self._owner.member_id, session, _by_place(sent))
        timeout = self._settings.request_timeout + self._settings.fetch_max_wait_ms / 1000
        since = monotonic()
        response: ShareFetchResponse = await connection.submit(request, timeout=timeout)
        now = monotonic()
        meters.time("fetch-latency", now - since, now)
        if response.throttle_time_ms > 0:
            seconds = response.throttle_time_ms / 1000
            meters.time("throttle", seconds, now)
            self._throttled_until = now + seconds
        self._check(response, "ShareFetch")
        names = {place.topic_id: partition.topic for partition, place in wanted.items()}
        answers = {
            TopicPartition(names.get(topic.topic_id, ""), data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }
        if not self._session.answered(0, _SESSION_ID, answers.keys()):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"broker {self.node} answered ShareFetch with other partitions"
            )
        again = self._complete(
            sent,
            {
                each: (data.acknowledge_error_code, data.acknowledge_error_message)
                for each, data in answers.items()
            },
        )
        for partition, data in answers.items():
            if data.error_code:
                self._refused(partition, data)
                again = True
            elif data.acquired_records:
                self._acquired(partition, wanted[partition], data, response.acquisition_lock_timeout_ms)
        self._failures = self._failures + 1 if again else 0
        return self._cluster.backoff.after(self._failures)

    def _acquired(
        self, partition: TopicPartition, place: SessionPartition, data: PartitionData, lock_ms: int
    ) -> None:
        try:
            acquired = Acquired(
                (each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records
            )
        except ValueError as error:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"{partition}: broker {self.node} answered ShareFetch wrongly: {error}",
            ) from None
        self._owner.meters.add("bytes-consumed-total", len(data.records or b""))
        self._owner.arrived(
            Acquisition(self, partition, place.topic_id or b"", data.records, acquired), lock_ms
        )

    def _refused(self, partition: TopicPartition, data: PartitionData) -> None:
        """A partition's part of a response is an error."""
        code = error_code(data.error_code)
        message = f"{partition} can't be read for the share group: {data.error_message or code.name}"
        if code in _MOVED or code in RETRIABLE:
            _log.info("%s", message)
            self._cluster.stale(partition.topic)
        elif code is ErrorCode.UNKNOWN_SERVER_ERROR:
            _log.warning("%s; trying again", message)
        else:
            self._owner.report(BrokerError(code, message))

    async def _acknowledge(self, connection: Connection, sent: list[Outgoing]) -> float:
        epoch = self._session.unchanged().epoch
        request = share_acknowledge_request(self._settings, self._owner.member_id, epoch, _by_place(sent))
        response = await connection.submit(request, timeout=self._settings.request_timeout)
        self._check(response, "ShareAcknowledge")
        self._session.answered(0, _SESSION_ID, ())
        again = self._complete(sent, _results(response, sent))
        self._failures = self._failures + 1 if again else 0
        return self._cluster.backoff.after(self._failures)

    async def _end(self) -> None:
        """End the session, with what is pending."""
        sent = self._choose()
        connection = self._connection
        if not self._session.is_open or connection is None or connection.closed:
            return
        request = share_acknowledge_request(
            self._settings, self._owner.member_id, FINAL_EPOCH, _by_place(sent)
        )
        try:
            with _settled(sent):
                response = await connection.submit(request, timeout=self._settings.request_timeout)
                self._check(response, "ShareAcknowledge")
        except ClientError as error:
            _log.info("ending the share session with broker %d failed: %s", self.node, error)
        else:
            self._complete(sent, _results(response, sent))

    def _check(self, response: ShareFetchResponse | ShareAcknowledgeResponse, what: str) -> None:
        """Raise the error of a whole response."""
        if response.error_code:
            code = error_code(response.error_code)
            said = f": {response.error_message}" if response.error_message else ""
            raise BrokerError(code, f"broker {self.node} refused {what}: {code.name}{said}")

    def _complete(self, sent: Iterable[Outgoing], results: Results) -> bool:
        """Give acknowledgements their outcome; returns whether some have to be sent again."""
        again = False
        for each in sent:
            partition = each.acquisition.partition
            number, message = results.get(partition, (int(ErrorCode.UNKNOWN_SERVER_ERROR), None))
            if not number:
                each.complete(None)
                continue
            code = error_code(number)
            if code in RETRIABLE and code not in _MOVED and not self._closing.is_set():
                self._pending.append(each)
                again = True
                continue
            if code in _MOVED:
                self._cluster.stale(partition.topic)
            each.complete(
                BrokerError(code, f"the acknowledgements of {partition} were refused: {message or code.name}")
            )
        return again

    def _failed(self, error: ClientError) -> float:
        """A request failed as a whole, and the session with it; returns the seconds until the next one."""
        _log.info("the share session with broker %d ended: %s", self.node, error)
        self._lost(error)
        self._failures += 1
        code = error.code if isinstance(error, BrokerError) else None
        if code not in _SESSION_LOST:
            self._cluster.stale()
            if not is_retriable(error):
                self._owner.report(error)
        elif code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return self._cluster.backoff.after(self._failures - 1)
        return self._cluster.backoff.after(self._failures)

    def _lost(self, error: ClientError) -> None:
        """The session has ended: what was acquired in it is void."""
        self.generation += 1
        self._session.failed()
        pending, self._pending = self._pending, []
        for each in pending:
            each.complete(error)


@contextmanager
def _settled(sent: Iterable[Outgoing]) -> Iterator[None]:
    """If the block raises, that is the outcome of acknowledgements that have none yet."""
    try:
        yield
    except BaseException as error:
        for each in sent:
            each.complete(error if isinstance(error, ClientError) else _closed())
        raise


def _closed() -> RequestTimeoutError:
    return RequestTimeoutError("the consumer was closed before the broker answered")


def _by_place(sent: Iterable[Outgoing]) -> dict[tuple[TopicPartition, bytes], list[AcknowledgedRun]]:
    """Runs by partition, in order."""
    places: dict[tuple[TopicPartition, bytes], list[AcknowledgedRun]] = {}
    for each in sent:
        places.setdefault((each.acquisition.partition, each.acquisition.topic_id), []).extend(each.runs)
    return {place: sorted(runs) for place, runs in places.items()}


def _results(response: ShareAcknowledgeResponse, sent: Iterable[Outgoing]) -> Results:
    names = {each.acquisition.topic_id: each.acquisition.partition.topic for each in sent}
    return {
        TopicPartition(names.get(topic.topic_id, ""), data.partition_index): (
            data.error_code,
            data.error_message,
        )
        for topic in response.responses
        for data in topic.partitions
    }
