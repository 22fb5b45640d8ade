"""Runs a coroutine in the call that begins it, as far as it comes without waiting.

What it may wait for:

- a :class:`Result`: it goes on in the call that gives the result, not in a later turn of the event loop, so requests of
  one producer keep their order;
- a future of asyncio. What uses asyncio's time-outs needs a task: ``await in_task(..)``;
- :func:`pause`: others go first, if it has done much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from types import coroutine
from typing import Any, Generic, TypeVar

from ottla_broker import tasks
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.network.service import ClientConnection
from ottla_broker.requests.turns import CODED

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

    @property
    def outcome(self) -> T | BaseException | None:
        """The value, or what it failed with."""
        return self._value if self._error is None else self._error

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
    """A coroutine that runs, and its result. Pauses don't stop it."""

    __slots__ = ("_coroutine", "_is_abandoned", "_waiting", "_waits_for")

    def __init__(self, work: Coroutine[Any, None, T], waiting: set[Running[Any]] | None = None) -> None:
        """``waiting`` has this while it waits for a future, or to begin, also after it was abandoned."""
        super().__init__()
        self._coroutine = work
        self._waiting = waiting
        self._is_abandoned = False
        self._waits_for: Any = None

    def start(self) -> Running[T]:
        """Run it as far as it comes."""
        self._go_on()
        return self

    def abandon(self) -> None:
        """The result is of no use: end the coroutine where it waits for a :class:`Result`, now or later."""
        self._is_abandoned = True
        self.then = None
        if isinstance(self._waits_for, Result):
            self._waits_for.then = None
            self._coroutine.close()

    def stop(self) -> None:
        """Cancel the future that the coroutine waits for, or end one that hasn't begun."""
        if self._waits_for is None:
            self._coroutine.close()
        elif not isinstance(self._waits_for, Result):
            self._waits_for.cancel()

    def _go_on(self, _: object = None) -> None:
        """Run until it waits."""
        while self._step() is not None:
            pass

    def _step(self) -> int | None:
        """Run until it pauses, and return for how much work; None: it has ended, or waits."""
        if self._waits_for is not None:
            self._waits_for = None
            if self._waiting is not None:
                self._waiting.discard(self)
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as end:
            self.give(end.value)
            return None
        except asyncio.CancelledError:
            self.fail(CloseConnection("the broker stops"))
            return None
        except CloseConnection as error:
            # Without its traceback, which would hold the request.
            self.fail(error.with_traceback(None))
            return None
        except Exception as error:
            self.fail(error)
            return None
        if waits_for.__class__ is int:
            work: int = waits_for
            return work
        if waits_for is None:
            # What sleeps for a turn of the event loop.
            self._coroutine.close()
            self.fail(TypeError("a coroutine that isn't in a task pauses instead of asyncio.sleep(0)"))
            return None
        if not isinstance(waits_for, Result):
            # A future, as it tells the tasks of asyncio.
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self._go_on)
            if self._waiting is not None:
                self._waiting.add(self)
        elif self._is_abandoned:
            self._coroutine.close()
            return None
        else:
            waits_for.then = self._go_on
        self._waits_for = waits_for
        return None


def abandon_all(begun: Iterable[Running[Any]]) -> None:
    for each in begun:
        each.abandon()


@coroutine
def pause(work: int) -> Generator[int, None, None]:
    """Let others go first, once enough work has been done: so much more, in elements that take some microseconds."""
    yield work


@coroutine
def in_slices(work: Generator[object, None, T], cost: int = CODED) -> Generator[int, None, T]:
    """Run a sliced reader, writer or search, with a pause after each slice. ``cost``: the work of a slice."""
    return (yield from tasks.in_slices(work, cost))


async def in_task(work: Awaitable[T]) -> T:
    """Run what uses asyncio's time-outs. It goes on to its end though the client leaves."""
    return await asyncio.ensure_future(work)


@contextmanager
def unread(connection: ClientConnection) -> Iterator[None]:
    """Read nothing from the connection meanwhile, as in Kafka."""
    connection.begin_long()
    try:
        yield
    finally:
        connection.end_long()


class if_left:
    """``with if_left(leave): await ..``: ``leave`` is called if the coroutine ends there, as its client has left."""

    __slots__ = ("_leave",)

    def __init__(self, leave: Callable[[], object]) -> None:
        self._leave = leave

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:
            self._leave()


async def unless_left(future: asyncio.Future[T], withdraw: Callable[[], object] | None = None) -> T:
    """Wait for what is of no use once the client has left: then ``withdraw`` is called, or the future cancelled."""
    done: Result[None] = Result()
    future.add_done_callback(lambda _: done.give(None))
    with if_left(withdraw or future.cancel):
        await done
    return future.result()
