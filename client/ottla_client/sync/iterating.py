"""The base of consumers without asyncio: the records one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Protocol, TypeVar

from ..errors import ClosedError
from ..types import ConsumerRecord
from .sync_client import Client, SyncClient

_Record = ConsumerRecord[Any, Any]


class _Iterated(Client, Protocol):
    @property
    def _iterator(self) -> Iterator[_Record]:
        """Over records that are there."""

    async def _iterate(self) -> Iterator[_Record]: ...


C = TypeVar("C", bound=_Iterated)


class IteratingClient(SyncClient[C]):
    """``for`` gets records from the background a list at a time."""

    def __iter__(self) -> Iterator[_Record]:
        return chain.from_iterable(self._iterators())

    def _iterators(self) -> Iterator[Iterator[_Record]]:
        started = self._runner is not None and not self._closed
        while True:
            try:
                records = self._call(self._client._iterate())
            except ClosedError:
                if started:
                    return  # closed by another thread
                raise
            yield records

    def getone(self) -> _Record:
        """Wait for the next record. Raises the errors of the async method."""
        while True:
            for record in self._client._iterator:
                return record
            self._call(self._client._iterate())
