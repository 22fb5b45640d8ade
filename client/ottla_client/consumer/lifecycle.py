"""The base of consumers: their start and their loops, and the warning of one that is dropped while open."""

from __future__ import annotations

import asyncio
import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Protocol, Self

from ..deadline import Deadline
from ..errors import ClosedError
from ..types import ConsumerRecord


class Closable(ABC):
    """A consumer that has to be closed."""

    _closed_properly = True  # for __del__ after a constructor that raised
    _loop: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def start(self) -> None: ...

    def _disconnect(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return what disconnects without this object, which is about to go; called only if it has ``_loop``."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def __del__(self) -> None:
        if self._closed_properly:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        loop = self._loop
        if loop is not None and not loop.is_closed():
            disconnect = self._disconnect()
            loop.call_soon_threadsafe(lambda: loop.create_task(disconnect()))


class _Engine(Protocol):
    started: bool
    closed: bool

    async def start(self, deadline: Deadline) -> None: ...
    def api_deadline(self) -> Deadline: ...


class IteratedConsumer(Closable):
    """A consumer whose engine does the work, and whose records come one by one."""

    _engine: _Engine

    @abstractmethod
    async def _iterate(self) -> Iterator[ConsumerRecord[Any, Any]]: ...

    async def start(self) -> None:
        """Connect to the cluster. Raises BootstrapError if that fails within ``default_api_timeout_ms``."""
        if self._engine.started or self._engine.closed:
            raise ClosedError("the consumer was started before; make a new one")
        self._closed_properly = False
        self._loop = asyncio.get_running_loop()
        try:
            await self._engine.start(self._engine.api_deadline())
        except BaseException:
            self._closed_properly = True
            raise

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        return self._records()

    async def _records(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        # Nothing else in this loop: it runs for every record.
        engine = self._engine
        started = engine.started and not engine.closed
        while True:
            try:
                records = await self._iterate()
            except ClosedError:
                if engine.closed and started:
                    return
                raise
            for record in records:
                yield record
