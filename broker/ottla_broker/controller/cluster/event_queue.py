"""The controller's events, worked off one after another by one task: Kafka's ``ControllerEventManager``.

An event that fails because of the store is tried again before the next one starts, so that nothing overtakes it. It
must therefore cope with what its earlier attempts have already done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ottla_broker.clock import Clock
from ottla_broker.controller.cluster.persistence import ClusterStore, ControllerMovedError
from ottla_broker.events import get_logger
from ottla_broker.store.api import (
    SessionLostError,
    SessionState,
    StoreError,
    StoreFailedError,
    UnknownOutcomeError,
    Watch,
)
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

T = TypeVar("T")
Event = Callable[[], Awaitable[None]]

_RETRY_SECONDS: Final = (0.05, 1.0)
_REFUSED_ATTEMPTS: Final = 8
"""How often to try an event that the store refuses because of what it holds."""
_FAILED_ATTEMPTS: Final = 100
"""How often to try an event that the store can't carry out although it is connected: the store is slow, for example."""


@dataclass(eq=False)
class EventQueue:
    """Owned by the loop thread.

    ``refresh`` is posted when the store has refused a change that may be made in part.
    ``on_moved`` is called when another controller turns out to have a higher epoch.
    """

    _store: ClusterStore
    _clock: Clock
    _refresh: Event
    _on_moved: Callable[[], None]
    _events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue, init=False)
    _watches: dict[str, Watch] = field(default_factory=dict, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    def start(self, first: Event) -> None:
        """Start working off events. ``first`` is tried until it succeeds; the others may be given up."""
        self._task = asyncio.get_running_loop().create_task(self._run(first))

    async def close(self) -> None:
        """Stop, also from within an event. Callers that wait for an event get NOT_CONTROLLER."""
        self._closed = True
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    @property
    def waiting(self) -> int:
        return self._events.qsize()

    def post(self, event: Event) -> None:
        self._events.put_nowait(event)

    def watch(self, path: str, event: Event) -> None:
        """Post an event whenever something happens at a path, until :meth:`unwatch` or :meth:`close`."""
        if path not in self._watches and not self._closed:
            self._watches[path] = self._store.watch(path, lambda _: self.post(event))

    def unwatch(self, path: str) -> None:
        watch = self._watches.pop(path, None)
        if watch is not None:
            watch.cancel()

    async def do(self, work: Callable[[], Awaitable[T]], timeout: float) -> T:
        """Do some work as an event and return its result. ``timeout`` is in seconds.

        Raises:
            KafkaError: what the work raises; NOT_CONTROLLER when this broker is no longer the controller;
                REQUEST_TIMED_OUT when the work isn't finished in time. Work that has not started by then never does.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def event() -> None:
            if done.done():
                return
            failure = ErrorCode.UNKNOWN_SERVER_ERROR
            try:
                result = await work()
            except (KafkaError, StoreError, ControllerMovedError) as error:
                if not done.done():
                    done.set_exception(_client_error(error))
                if isinstance(error, ControllerMovedError | SessionLostError):
                    raise
                if isinstance(error, StoreError):
                    _log.error("the store refused a change", reason=str(error))
                    self.post(self._refresh)
            except asyncio.CancelledError:
                failure = ErrorCode.NOT_CONTROLLER
                raise
            else:
                if not done.done():
                    done.set_result(result)
            finally:
                if not done.done():
                    done.set_exception(KafkaError(failure))

        ended = self._task
        if self._closed or ended is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        self.post(event)
        either: list[asyncio.Future[Any]] = [done, ended]
        try:
            async with self._clock.timeout(timeout):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from error
        else:
            if not done.done():
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            return done.result()
        finally:
            done.cancel()

    async def _run(self, first: Event) -> None:
        going_on = await self._work_off(first, must_succeed=True)
        while going_on:
            # Leave the loop to others, even while events come without end.
            await asyncio.sleep(0)
            going_on = await self._work_off(await self._events.get())

    async def _work_off(self, event: Event, *, must_succeed: bool = False) -> bool:
        """Work off one event. Returns False when this broker is no longer the controller."""
        rest, most = _RETRY_SECONDS
        failures = 0
        while True:
            try:
                await event()
                return True
            except SessionLostError:
                return False  # the election notices it too, and closes this controller
            except ControllerMovedError as error:
                _log.warning("another broker has become the controller", reason=str(error))
                self._on_moved()
                return False
            except StoreError as error:
                connected = self._store.state is SessionState.CONNECTED
                failures += connected and not isinstance(error, UnknownOutcomeError)
                most_failures = _FAILED_ATTEMPTS if isinstance(error, StoreFailedError) else _REFUSED_ATTEMPTS
                if failures >= most_failures and not must_succeed:
                    _log.error("gave up an event of the controller", reason=str(error))
                    return True
                _log.error("an event of the controller failed and is retried", reason=str(error))
            except Exception as error:
                # A defect: the controller goes on with the next event.
                _log.error("an event of the controller failed", exc_info=error)
                if not must_succeed:
                    return True
            await self._clock.sleep(rest)
            rest = min(most, rest * 2)


def _client_error(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, ControllerMovedError | SessionLostError):
        return KafkaError(ErrorCode.NOT_CONTROLLER)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
