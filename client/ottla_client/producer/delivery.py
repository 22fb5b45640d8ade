"""What a send returns: handles to learn what has become of the records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ClientError

if TYPE_CHECKING:
    from ..types import RecordMetadata
    from .batch import Batch


class Delivery(tuple["Batch", int]):
    """One record on its way. ``await delivery`` gives its RecordMetadata, or raises why it was not delivered.

    It may be awaited any number of times, by several tasks, and need not be awaited at all: a failure that
    nobody looks at is logged. Cancelling the await does not take the record back.

    It is a tuple underneath, its batch and its place there, because nothing else is made as quickly, and one is
    made for every record.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self[0]
        if not batch.done:
            yield from batch.wait().__await__()
        return self.result()

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self[0].done

    def result(self) -> RecordMetadata:
        """Where the record has gone; raises why it was not delivered, InvalidStateError while that is open."""
        error = self.exception()
        if error is not None:
            raise error
        return self[0].metadata(self[1])

    def exception(self) -> Exception | None:
        """Why the record was not delivered, None if it was. Raises InvalidStateError while that is open."""
        batch, index = self
        if not batch.done:
            raise asyncio.InvalidStateError("the record is still on its way")
        return batch.failure(index)

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback(delivery)`` from the event loop once it is known what became of the record."""
        loop = asyncio.get_running_loop()
        if self[0].done:
            loop.call_soon(callback, self)
        else:
            self[0].callbacks.append(lambda: loop.call_soon(callback, self))

    def __repr__(self) -> str:
        batch, index = self
        state = "pending" if not batch.done else "failed" if batch.error is not None else "delivered"
        return f"<Delivery of record {index} of a batch for {batch.topic}-{batch.partition}: {state}>"


@dataclass(frozen=True, slots=True)
class AppendedRange:
    """Records of a ``send_batch`` that lie one after the other in a partition.

    ``base_offset`` is the first one's, -1 where the broker didn't say. ``indices`` are their places among the
    values that were given, in the order of their offsets.
    """

    partition: int
    base_offset: int
    count: int
    indices: Sequence[int]


class BatchDeliveryError(ClientError):
    """Some records of a ``send_batch`` were not delivered. The first reason is ``__cause__``.

    ``delivered`` has the ranges that were, ``failed`` the places of the others among the values that were
    given, each with the reason.
    """

    def __init__(
        self,
        message: str,
        delivered: list[AppendedRange],
        failed: list[tuple[Sequence[int], Exception]],
    ) -> None:
        super().__init__(message)
        self.delivered = delivered
        self.failed = failed


class BatchDelivery:
    """The records of one ``send_batch``. ``await`` gives a list of AppendedRange, or raises BatchDeliveryError.

    As with a Delivery, awaiting may be repeated or left out, and cancelling it takes nothing back.
    """

    __slots__ = ("_count", "_parts", "_topic", "_unsent")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._parts: list[tuple[Batch, int, Sequence[int]]] = []
        self._unsent: list[tuple[Sequence[int], Exception]] = []
        self._count = 0

    def _add(self, batch: Batch, first: int, indices: Sequence[int]) -> None:
        """The values ``indices`` are the records of ``batch`` from ``first`` on."""
        self._parts.append((batch, first, indices))
        self._count += len(indices)

    def _refuse(self, indices: Sequence[int], error: Exception) -> None:
        """The values ``indices`` did not get into the buffer."""
        self._unsent.append((indices, error))
        self._count += len(indices)

    def __len__(self) -> int:
        """How many records there are."""
        return self._count

    def __repr__(self) -> str:
        state = "pending"
        if self.done():
            holders = (each for batch, at, of in self._parts for each, _, _ in batch.spans(at, len(of)))
            failed = self._unsent or any(holder.error is not None for holder in holders)
            state = "failed" if failed else "delivered"
        return f"<BatchDelivery of {self._count} records for {self._topic}: {state}>"

    def done(self) -> bool:
        """Whether it is known what became of every record."""
        return all(batch.done for batch, _, _ in self._parts)

    def __await__(self) -> Generator[Any, None, list[AppendedRange]]:
        for batch, _, _ in self._parts:
            if not batch.done:
                yield from batch.wait().__await__()
        return self.result()

    def result(self) -> list[AppendedRange]:
        """As awaiting it, without waiting: InvalidStateError while records are on their way."""
        if not self.done():
            raise asyncio.InvalidStateError("records are still on their way")
        delivered: list[AppendedRange] = []
        failed = list(self._unsent)
        for batch, first, indices in self._parts:
            at = 0
            for holder, start, count in batch.spans(first, len(indices)):
                mine = indices[at : at + count]
                at += count
                if holder.error is None:
                    offset = holder.base_offset
                    delivered.append(
                        AppendedRange(holder.partition, offset if offset < 0 else offset + start, count, mine)
                    )
                    continue
                holder.retrieved.update(range(start, start + count))
                if holder.record_errors:
                    failed += [
                        ((index,), holder.record_errors.get(place, holder.error))
                        for place, index in enumerate(mine, start)
                    ]
                else:
                    failed.append((mine, holder.error))
        if failed:
            lost = sum(len(indices) for indices, _ in failed)
            error = BatchDeliveryError(
                f"{lost} of {self._count} records for {self._topic} were not delivered: {failed[0][1]}",
                delivered,
                failed,
            )
            raise error from failed[0][1]
        return delivered
