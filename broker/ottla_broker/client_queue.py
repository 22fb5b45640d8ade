"""Clients take turns, so that a client that adds much doesn't keep the others waiting."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ClientQueue(Generic[T]):
    """The next item is the oldest one of the client whose turn it is."""

    __slots__ = ("_count", "_items")

    def __init__(self) -> None:
        # In the order of their turns. A dict would find its first key by passing over those that were there before.
        self._items: OrderedDict[Hashable, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for items in self._items.values():
            yield from items

    def append(self, client: Hashable, item: T) -> None:
        self._items.setdefault(client, deque()).append(item)
        self._count += 1

    @property
    def first(self) -> T:
        """The item that :meth:`popleft` returns next."""
        return next(iter(self._items.values()))[0]

    def popleft(self) -> T:
        client, items = self._items.popitem(last=False)
        item = items.popleft()
        if items:
            self._items[client] = items
        self._count -= 1
        return item

    def clear(self) -> None:
        self._items.clear()
        self._count = 0


class Budget(Generic[T]):
    """Begins what clients ask for, in turns, as far as a limit of it may be under way. The rest waits.

    Owned by the loop thread.

    Attributes:
        used: what those under way have reserved.
    """

    __slots__ = ("_begin", "_limit", "_waiting", "used")

    def __init__(self, limit: int, begin: Callable[[T], bool]) -> None:
        """``begin`` returns whether an item has begun; one that was cancelled meanwhile hasn't."""
        self._limit = limit
        self._begin = begin
        self._waiting: ClientQueue[tuple[int, T]] = ClientQueue()
        self.used = 0

    def reserve(self, client: Hashable, size: int, item: T) -> None:
        """Begin the item, now or when enough has been released. One alone may exceed the limit."""
        self._waiting.append(client, (size, item))
        self._begin_some()

    def release(self, size: int) -> None:
        """An item has ended."""
        self.used -= size
        self._begin_some()

    def clear(self) -> list[T]:
        """Return those that wait, which won't begin."""
        items = [item for _, item in self._waiting]
        self._waiting.clear()
        return items

    def _begin_some(self) -> None:
        waiting = self._waiting
        while waiting and (not self.used or self.used + waiting.first[0] <= self._limit):
            size, item = waiting.popleft()
            if self._begin(item):
                self.used += size
