"""The base of the classes without asyncio: an async client on an event loop in a background thread."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ..errors import ClientError, ClosedError
from .runner import Runner

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("ottla_client")

STOP_SECONDS = 10.0
"""Seconds to wait for the background thread to stop."""
EXIT_SECONDS = 10.0
"""Seconds to wait for the closing of an open client when the interpreter ends."""


class Client(Protocol):
    """The interface of an async client."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


C = TypeVar("C", bound=Client)


class SyncClient(Generic[C]):
    """A client for code without asyncio.

    Several threads may use it. After a ``fork``, make a client in each process.
    """

    def __init__(self, client: C) -> None:
        self._client = client
        self._lock = threading.RLock()
        self._runner: Runner | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<sync {self._client!r}>"

    def start(self) -> None:
        """Start the background thread and connect; ``with`` does it. Raises the errors of the async class."""
        with self._lock:
            if self._runner is not None or self._closed:
                raise ClosedError(f"a {type(self).__name__} was started before; make a new one")
            self._runner = runner = Runner(f"ottla-{type(self).__name__.lower()}")
        try:
            runner.call(self._client.start())
        except BaseException:
            self._closed = True
            runner.stop(STOP_SECONDS)
            raise
        _open.add(self)

    @property
    def _usable(self) -> bool:
        """Whether methods may be called now."""
        return not self._closed

    def _call(self, coroutine: Coroutine[Any, Any, T], rescue: Callable[[T], None] | None = None) -> T:
        runner = self._runner
        if runner is None or not self._usable:
            coroutine.close()
            why = "closed" if self._closed else 'not started: use "with", or start()'
            raise ClosedError(f"the {type(self).__name__.lower()} is {why}")
        return runner.call(coroutine, rescue)

    def _post(self, function: Callable[[], object]) -> None:
        """Have the loop call a function, without waiting. Raises ClosedError."""
        if self._runner is None:
            raise ClosedError("not started")
        self._runner.post(function)

    def _end(self, closing: Callable[[], Coroutine[Any, Any, None]], timeout: float | None = None) -> None:
        """Run ``closing`` within ``timeout`` seconds and stop the thread; a second call does nothing.

        After a fork, the child leaves all that to its parent.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            runner = self._runner
        _open.discard(self)
        if runner is not None and runner.is_here:
            try:
                runner.call(_within(closing(), timeout))
            finally:
                runner.stop(STOP_SECONDS)

    def close(self) -> None:
        """Close everything; a second call does nothing."""
        self._end(self._client.close)

    def _close_at_exit(self) -> None:
        """Close a client that is still open when the interpreter ends."""
        self._end(self._client.close, EXIT_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(lambda: self._client.__aexit__(kind, error, traceback))

    def __del__(self) -> None:
        runner = getattr(self, "_runner", None)
        if runner is not None and not self._closed and runner.is_here:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
            runner.end(_within(self._client.close(), EXIT_SECONDS))


_open: weakref.WeakSet[SyncClient[Any]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    # The clients stay the parent's: their threads aren't in the child.
    os.register_at_fork(after_in_child=_open.clear)


@atexit.register
def _close_all() -> None:
    """Close what the program left open, each client within EXIT_SECONDS."""
    for client in tuple(_open):
        try:
            client._close_at_exit()
        except (ClientError, TimeoutError) as error:
            _log.error("%r was still open at the program's end and could not be closed: %s", client, error)


async def _within(coroutine: Coroutine[Any, Any, None], timeout: float | None) -> None:
    async with asyncio.timeout(timeout):
        await coroutine


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
    rescue: Callable[[Any, T], None] | None = None,
) -> Callable[Concatenate[Any, P], T]:
    """The async class's method, waited for.

    ``rescue`` gets the client and a result that came while the wait was interrupted.
    """

    @wraps(method)
    def call(self: SyncClient[Any], /, *args: P.args, **options: P.kwargs) -> T:
        give_back = None if rescue is None else partial(rescue, self)
        return self._call(method(self._client, *args, **options), give_back)

    return call


def in_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The async class's plain method, called in the loop's thread; before ``start``, in this one."""

    @wraps(method)
    def call(self: SyncClient[Any], /, *args: P.args, **options: P.kwargs) -> T:
        if self._runner is None and not self._closed:
            return method(self._client, *args, **options)

        async def run() -> T:
            return method(self._client, *args, **options)

        return self._call(run())

    return call
