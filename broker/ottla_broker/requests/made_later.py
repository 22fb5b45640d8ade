"""Elements of a response that are made while it is encoded, and gone once they are.

An answer with all of what the broker keeps would take several times its bytes as objects. A module whose elements cost
more than usual says so: ``coded`` of its ``API`` replaces ``CODED`` of :mod:`.turns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast, overload

S = TypeVar("S")
T = TypeVar("T")


class _MadeLater(Sequence[T], Generic[S, T]):
    """The things that ``make`` makes of ``sources``, each time that they are looked at."""

    __slots__ = ("_make", "_sources")

    def __init__(self, sources: Sequence[S], make: Callable[[S], T]) -> None:
        self._sources = sources
        self._make = make

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._sources)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return list(map(self._make, self._sources[index]))
        return self._make(self._sources[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __repr__(self) -> str:
        return repr(list(self))


def made_later(sources: Sequence[S], make: Callable[[S], T]) -> list[T]:
    """An array for a response. What ``sources`` has must not change until the response is encoded."""
    return cast("list[T]", _MadeLater(sources, make))
