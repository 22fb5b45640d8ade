"""A queue in which clients take turns, so that a client that adds much doesn't keep the others waiting."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
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
