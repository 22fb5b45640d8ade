"""An event loop in a background thread, and calls into it from other threads."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Generic, TypeVar

from ..errors import ClientError, ClosedError

T = TypeVar("T")

_log = logging.getLogger("ottla_client")

CANCEL_SECONDS = 5.0
"""The longest time for an interrupted call (Ctrl-C) to end."""
_LOOK_SECONDS = 1.0
"""Seconds after which a thread that waits looks whether there is a signal, and whether the loop still runs."""

_FORKED = "the client belongs to the process that this one was forked from; make a client in each process"


def _held_lock() -> threading.Lock:
    """For a thread to wait until another one releases it, once: a threading.Event costs several times as much."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class _Call(Generic[T]):
    """A coroutine that runs in the loop while a thread waits to acquire ``ended``."""

    __slots__ = ("_coroutine", "ended", "error", "has_ended", "interrupted", "result", "task")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.ended = _held_lock()
        self.has_ended = False
        self.task: asyncio.Task[None] | None = None
        self.interrupted = False
        self.result: T | None = None
        self.error: BaseException | None = None

    def begin(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(self._finish)
        if self.interrupted:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            self.result = await self._coroutine
        except BaseException as error:
            self.error = error
        self._end()

    def _finish(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.error = asyncio.CancelledError()  # before it began
            self._coroutine.close()
            self._end()

    def _end(self) -> None:
        self.has_ended = True
        self.ended.release()

    def interrupt(self) -> None:
        self.interrupted = True
        if self.task is not None:
            self.task.cancel()


class Runner:
    """Uses the program's event loop policy, so with uvloop's policy the loop is uvloop's."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._stopping = False
        self._process = os.getpid()
        # A daemon thread, so that a program without close() still ends; see ``sync_client``.
        self._thread = threading.Thread(target=_run, args=(self.loop,), name=name, daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the thread is in this process: after a fork, only the parent has it."""
        return self._process == os.getpid()

    def call(self, coroutine: Coroutine[Any, Any, T], rescue: Callable[[T], None] | None = None) -> T:
        """Run a coroutine in the loop and wait for its result.

        If the wait is interrupted (KeyboardInterrupt), the coroutine is cancelled and waited for. If it returned a
        result nevertheless, ``rescue`` gets that, so that nothing is lost.
        """
        call = _Call(coroutine)
        try:
            self._check_thread()
            self.post(call.begin)
        except ClientError:
            coroutine.close()
            raise
        try:
            # With a timeout: a signal that comes just before a wait without one is seen only after it.
            while not call.ended.acquire(timeout=_LOOK_SECONDS):
                pass
        except BaseException:
            self.post(call.interrupt)
            # The interruption may have come right after the lock was acquired.
            ended = call.has_ended or call.ended.acquire(timeout=CANCEL_SECONDS)
            if ended and call.error is None and rescue is not None:
                rescue(call.result)  # type: ignore[arg-type]
            raise
        if isinstance(call.error, asyncio.CancelledError):
            raise ClosedError("the client was closed meanwhile")
        if call.error is not None:
            try:
                raise call.error
            finally:
                del call  # the traceback would hold it, and it the error
        return call.result  # type: ignore[return-value]

    def wait_until(self, begin: Callable[[Callable[[], None]], object], timeout: float | None) -> bool:
        """Have the loop call ``begin(done)``, and wait until ``done`` is called, once.

        False after ``timeout`` seconds. Raises ClosedError after ``stop``, and when the loop stops meanwhile.
        """
        self._check_thread()
        ended = _held_lock()
        self.post(partial(begin, ended.release))
        until = inf if timeout is None else monotonic() + timeout
        while not ended.acquire(timeout=min(max(until - monotonic(), 0.0), _LOOK_SECONDS)):
            if monotonic() >= until:
                return False
            if not self._thread.is_alive() and ended.locked():
                raise ClosedError("the client is closed")
        return True

    def _check_thread(self) -> None:
        if not self._thread.is_alive():
            raise ClosedError("the client is closed" if self.is_here else _FORKED)
        if threading.get_ident() == self._thread.ident:
            raise ClientError(
                "the client was called from its own background thread, which can't wait for itself; don't call the"
                " client in callbacks, serializers or deserializers"
            )

    def post(self, function: Callable[[], object]) -> None:
        """Have the loop call a function. Raises ClosedError after ``stop``, and in a forked process."""
        if not self.is_here:
            raise ClosedError(_FORKED)
        with self._lock:
            if self._stopping:
                raise ClosedError("the client is closed")
            self.loop.call_soon_threadsafe(function)

    def stop(self, timeout: float | None) -> None:
        """Stop the loop and its thread, and cancel the remaining tasks. A second call does nothing."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def end(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, then stop; returns at once."""
        with self._lock:
            if self._stopping:
                coroutine.close()
                return
            self._stopping = True
            self.loop.call_soon_threadsafe(_last, self.loop, coroutine)


def _last(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            _log.error("a client that was never closed could not be closed now: %s", task.exception())
        loop.stop()

    loop.create_task(coroutine).add_done_callback(ended)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """The thread. Refers to its loop only, so that a client that is never closed is noticed."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
