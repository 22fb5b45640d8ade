"""A consumer's membership: it finds the coordinator, registers, and does what the coordinator says.

::

    LOOKING --> REGISTERING --> MEMBER
       ^             |             |
       +-------------+-------------+   the connection broke, the coordinator is silent or has refused

"The consumer does not need to embed a socket server": it reads the coordinator's requests from the connection by which
it has registered. Having lost that, it stops its fetchers at once and begins again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Final

from ottla_protocol.errors import ErrorCode
from ottla_protocol.push import (
    CONFIRMATION,
    Broker,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
)

from ..deadline import Deadline
from ..errors import BootstrapError, ClientError, CommitFailedError, GroupError
from ..types import TopicPartition
from .connection import CoordinatorConnection
from .fetchers import Fetchers

_log = logging.getLogger("ottla_client")

_BACK_OFF: Final = 0.2
"""Seconds between two attempts to find the coordinator."""
_LOGGED_EVERY: Final = 25


class Reaction(Enum):
    """The reaction to the coordinator's answer to a registration."""

    LOOK_AGAIN = auto()
    """Another broker may be the coordinator by now."""
    WAIT = auto()
    """The id is taken, maybe by a process that has just ended: try for a session timeout."""
    GIVE_UP = auto()
    """Report the error to the application; try again, in case it passes."""


REACTIONS: Final[dict[ErrorCode, Reaction]] = {
    ErrorCode.NOT_COORDINATOR: Reaction.LOOK_AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.LOOK_AGAIN,
    ErrorCode.DUPLICATE_RESOURCE: Reaction.WAIT,
}
"""All other codes mean GIVE_UP."""


class CoordinatorMembership:
    """Belongs to the event loop's thread.

    Attributes:
        fetchers: the streams' reading, made when the first StartFetcherRequest names the brokers. Each one names them,
            "which is used to update the consumer's server cluster metadata".
        started: set while the fetchers run.
        failed: why the coordinator refuses the consumer, until it accepts it.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        registration: RegisterConsumerRequest,
        request_seconds: float,
        fetchers_from: Callable[[tuple[Broker, ...]], Awaitable[Fetchers]],
    ) -> None:
        self.fetchers: Fetchers | None = None
        self.started = asyncio.Event()
        self.failed: ClientError | None = None
        self.news = asyncio.Event()
        self._servers = list(servers)
        self._known: tuple[tuple[str, int], ...] = ()
        self._registration = registration
        self._seconds = request_seconds
        self._fetchers_from = fetchers_from
        self._connection: CoordinatorConnection | None = None
        self._commits: deque[asyncio.Future[None]] = deque()
        self._next = 0
        self._failures = 0
        self._taken_until: float | None = None
        self._left_at: dict[TopicPartition, PartitionOffset] = {}
        """Where it was when it lost its connection, for the next coordinator: the last one may have died before it
        stored that."""

    @property
    def _session(self) -> float:
        return self._registration.session_timeout_ms / 1000

    async def run(self) -> None:
        """Be a member until cancelled."""
        while True:
            try:
                await self._be_member()
            except ClientError as error:
                self._react(error)
            finally:
                self._leave()
            await asyncio.sleep(_BACK_OFF)

    async def _be_member(self) -> None:
        """Find the coordinator, register, and serve its requests until the connection ends. Raises ClientError."""
        host, port = await self._find()
        connection = self._connection = CoordinatorConnection(host, port)
        await connection.open(Deadline(self._seconds))
        await connection.register(self._registration, Deadline(self._seconds))
        _log.info("consumer %s is registered at %s", self._registration.consumer_id, connection.address)
        self.failed = None
        self._failures = 0
        self._taken_until = None
        while True:
            # Pings come every third of the session timeout; having missed one, others may get the partitions.
            message = await connection.pushed(self._session * 2 / 3)
            if message.consumer_id != self._registration.consumer_id:
                raise ClientError(f"{connection.address} sent a request for {message.consumer_id!r}")
            if isinstance(message, PingRequest):
                self._ping(connection, message)
            elif isinstance(message, StopFetcherRequest):
                await self._stop(connection)
            else:
                await self._start(connection, message)

    async def _find(self) -> tuple[str, int]:
        """Ask one broker after another which one is the coordinator. Raises ClientError if one can't say."""
        # What the brokers said last, then what the application gave.
        servers = list(dict.fromkeys((*self._known, *self._servers)))
        host, port = servers[self._next % len(servers)]
        self._next += 1
        connection = CoordinatorConnection(host, port)
        try:
            await connection.open(Deadline(self._seconds))
            found = await connection.cluster_metadata(Deadline(self._seconds))
        finally:
            connection.close()
        self._known = tuple((broker.host, broker.port) for broker in found.brokers)
        for broker in found.brokers:
            if broker.id == found.coordinator_id:
                return broker.host, broker.port
        raise BootstrapError(f"{connection.address} knows no coordinator at the moment")

    def _react(self, error: ClientError) -> None:
        reaction = Reaction.LOOK_AGAIN
        if isinstance(error, GroupError):
            reaction = REACTIONS.get(error.code, Reaction.GIVE_UP)
        if reaction is Reaction.WAIT:
            now = asyncio.get_running_loop().time()
            self._taken_until = self._taken_until or now + self._session
            if now >= self._taken_until:
                reaction = Reaction.GIVE_UP
        if self._failures % _LOGGED_EVERY == 0:
            _log.warning("consumer %s: %s", self._registration.consumer_id, error)
        self._failures += 1
        if reaction is Reaction.GIVE_UP:
            if self.failed is None and self.fetchers is not None:
                self.fetchers.report(error)
            self.failed = error
            self.news.set()

    def _leave(self) -> None:
        """Without the connection, the partitions are others'."""
        self.started.clear()
        if self.fetchers is not None:
            self._left_at |= {
                TopicPartition(each.topic, each.partition): each for each in self.fetchers.processed()
            }
            self.fetchers.lose()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for commit in self._commits:
            if not commit.done():
                commit.set_exception(
                    CommitFailedError(
                        ErrorCode.NOT_COORDINATOR,
                        "the offsets may not be committed: the connection to the coordinator was lost",
                    )
                )
        self._commits.clear()

    # "On Consumer Handling Coordinator Request"

    def _ping(self, connection: CoordinatorConnection, request: PingRequest) -> None:
        if request.num_retries == CONFIRMATION and self._commits:
            commit = self._commits.popleft()
            if not commit.done():
                commit.set_result(None)
        offsets = None
        if self._registration.auto_commit:
            offsets = () if self.fetchers is None else self.fetchers.processed()
        connection.send(PingResponse(0, request.consumer_id, offsets).encode())

    async def _stop(self, connection: CoordinatorConnection) -> None:
        self.started.clear()
        offsets, self._left_at = tuple(self._left_at.values()), {}
        if self.fetchers is not None:
            offsets += await self.fetchers.stop()
        auto_commit = self._registration.auto_commit
        connection.send(
            StopFetcherResponse(0, self._registration.consumer_id, offsets if auto_commit else None).encode()
        )

    async def _start(self, connection: CoordinatorConnection, request: StartFetcherRequest) -> None:
        self.fetchers = await self._fetchers_from(request.brokers)
        self.fetchers.start(request.ownership)
        connection.send(StartFetcherResponse(0, request.consumer_id).encode())
        self.started.set()
        self.news.set()

    async def commit(self, offsets: tuple[PartitionOffset, ...], seconds: float) -> None:
        """Have the coordinator store offsets: a PingResponse that no ping asked for. Raises CommitFailedError."""
        connection = self._connection
        if connection is None or self.fetchers is None:
            raise CommitFailedError(
                ErrorCode.NOT_COORDINATOR,
                "nothing was committed: the consumer is not registered at the moment",
            )
        if not offsets:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commits.append(done)
        connection.send(PingResponse(0, self._registration.consumer_id, offsets).encode())
        try:
            async with asyncio.timeout(seconds):
                await done
        except TimeoutError:
            # A later confirmation would be taken for that of the next commit.
            connection.close()
            raise CommitFailedError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the coordinator has not confirmed the commit within {seconds:g} s",
            ) from None
