"""Runs a handler's coroutine in the call that has read its request, as far as it comes without waiting.

Where it waits for a :class:`Result`, it goes on in the call that gives the result, not in a later turn of the event
loop: requests of one producer keep their order. It may wait for a future of asyncio as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from ottla_broker.network.pending_response import CloseConnection, PendingResponse

T = TypeVar("T")


class Result(Generic[T]):
    """A value that one coroutine waits for. Owned by the loop thread."""

    __slots__ = ("_error", "_value", "given", "then")

    def __init__(self) -> None:
        self.given = False
        self.then: Callable[[], object] | None = None
        """Called when it is given."""
        self._value: T | None = None
        self._error: BaseException | None = None

    def give(self, value: T) -> None:
        """Give the value; what waits for it goes on before this returns."""
        self._value = value
        self._end()

    def fail(self, error: BaseException) -> None:
        """Raise ``error`` where the value is waited for."""
        self._error = error
        self._end()

    def value(self) -> T:
        """The value that was given. Raises what it failed with."""
        if self._error is None:
            return self._value  # type: ignore[return-value]
        try:
            raise self._error
        finally:
            # The error's traceback has this frame: together they would hold the request.
            del self

    def __await__(self) -> Generator[Any, None, T]:
        if not self.given:
            yield self
        return self.value()

    def _end(self) -> None:
        self.given = True
        then, self.then = self.then, None
        if then is not None:
            then()


class Running(Result[T]):
    """A coroutine, and its result."""

    __slots__ = ("_coroutine", "_is_abandoned", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, None, T]) -> None:
        super().__init__()
        self._coroutine = coroutine
        self._is_abandoned = False
        self._waits_for: Any = None
        self._go_on()

    def abandon(self) -> None:
        """Nobody wants the result: end the coroutine where it waits for a :class:`Result`, now or later."""
        self._is_abandoned = True
        self.then = None
        if isinstance(self._waits_for, Result):
            self._coroutine.close()

    def _go_on(self, _: object = None) -> None:
        self._waits_for = None
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as end:
            self.give(end.value)
            return
        except asyncio.CancelledError:
            self.fail(CloseConnection("the broker stops"))
            return
        except CloseConnection as error:
            # Without its traceback, which would hold the request.
            self.fail(error.with_traceback(None))
            return
        except Exception as error:
            self.fail(error)
            return
        if isinstance(waits_for, Result):
            if self._is_abandoned:
                self._coroutine.close()
                return
            waits_for.then = self._go_on
        else:
            # A future, as it tells the tasks of asyncio.
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self._go_on)
        self._waits_for = waits_for


def begin(coroutine: Coroutine[Any, None, T]) -> T | PendingResponse:
    """Run a handler's coroutine: its answer, or the place of one that comes later."""
    running = Running(coroutine)
    if running.given:
        try:
            return running.value()
        finally:
            del running  # see there
    pending = PendingResponse(running.abandon)
    running.then = lambda: pending.complete(running._value if running._error is None else running._error)
    return pending
