"""Reaches the share coordinator for leaders of partitions and the group coordinator. Kafka: ``Persister``.

A broker that stands alone is its own share coordinator. In a cluster, a transport asks the broker that coordinates a
key, which may be this one. A request is repeated while the coordinator loads or moves, up to a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from ottla_broker.clock import Clock
from ottla_broker.coordinator.share.state_batches import ShareKey, StateChange
from ottla_broker.coordinator.share.state_coordinator import Read, Settled
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

T = TypeVar("T")

PATIENCE_SECONDS: Final = 10.0
"""How long a request is repeated."""
_PAUSE_SECONDS: Final = (0.05, 0.2)
"""The first and the longest pause before it is repeated; it doubles each time."""
_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class ShareCoordinators(Protocol):
    """The share coordinators: the requests of :class:`.ShareStateCoordinator`, to the one that serves a key."""

    def initialize(self, key: ShareKey, epoch: int, start: int, settled: Settled) -> None: ...
    def read(self, key: ShareKey, leader_epoch: int, read: Read) -> None: ...
    def write(self, key: ShareKey, change: StateChange, settled: Settled) -> None: ...
    def delete(self, key: ShareKey, settled: Settled) -> None: ...
    def summary(self, key: ShareKey, read: Read) -> None: ...


@dataclass(eq=False)
class Persister:
    """Owned by the loop thread. Each callback is called exactly once, unless the broker stops first.

    ``ensure_topic`` creates ``__share_group_state`` unless it exists.

    Attributes:
        closed: no more requests are sent.
    """

    _coordinators: ShareCoordinators
    _ensure_topic: Callable[[], Awaitable[object]]
    clock: Clock
    _has_topic: bool = field(default=False, init=False)
    closed: bool = field(default=False, init=False)
    _making: asyncio.Future[None] | None = field(default=None, init=False)
    _waiting: list[Callable[[], None]] = field(default_factory=list, init=False)

    def initialize(self, key: ShareKey, epoch: int, start: int, settled: Settled) -> None:
        self._try(partial(self._coordinators.initialize, key, epoch, start), settled)

    def read(self, key: ShareKey, leader_epoch: int, read: Read) -> None:
        self._try(partial(self._coordinators.read, key, leader_epoch), read)

    def write(self, key: ShareKey, change: StateChange, settled: Settled) -> None:
        self._try(partial(self._coordinators.write, key, change), settled)

    def delete(self, key: ShareKey, settled: Settled) -> None:
        self._try(partial(self._coordinators.delete, key), settled)

    def summary(self, key: ShareKey, read: Read) -> None:
        self._try(partial(self._coordinators.summary, key), read)

    async def close(self) -> None:
        self.closed = True
        self._waiting.clear()
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])

    def _try(
        self,
        request: Callable[[Callable[[T], None]], None],
        reply: Callable[[T], None],
    ) -> None:
        attempts = _Attempts(self, request, reply)
        if self._has_topic:
            attempts.go()
            return
        self._waiting.append(attempts.go)
        if self._making is None:
            self._making = asyncio.ensure_future(self._make_topic())

    async def _make_topic(self) -> None:
        try:
            await self._ensure_topic()
            self._has_topic = True
        except Exception as error:
            # Whatever it is: the requests fail by themselves after their time, and the next one tries again.
            _log.warning("topic of share groups not made", reason=str(error) or repr(error))
        self._making = None
        waiting, self._waiting = self._waiting, []
        for attempt in waiting:
            attempt()


class _Attempts(Generic[T]):
    """One request, as often as it takes. Nothing of it is left once it is answered: no reference goes round."""

    __slots__ = ("_owner", "_pause", "_reply", "_request", "_until")

    def __init__(
        self,
        owner: Persister,
        request: Callable[[Callable[[T], None]], None],
        reply: Callable[[T], None],
    ) -> None:
        self._owner = owner
        self._request = request
        self._reply = reply
        self._until = owner.clock.monotonic() + PATIENCE_SECONDS
        self._pause = _PAUSE_SECONDS[0]

    def go(self) -> None:
        if not self._owner.closed:
            self._request(self._answered)

    def _answered(self, answer: T) -> None:
        clock = self._owner.clock
        if (
            isinstance(answer, KafkaError)
            and answer.code in _AGAIN
            and clock.monotonic() < self._until
            and not self._owner.closed
        ):
            clock.call_later(self._pause, self.go)
            self._pause = min(2 * self._pause, _PAUSE_SECONDS[1])
        else:
            self._reply(answer)
