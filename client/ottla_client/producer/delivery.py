"""Deliveries: handles for the outcome of a send."""

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
    """The outcome of one record. ``await delivery`` gives its RecordMetadata, or raises the reason of the failure.

    Several tasks may await it, any number of times. If you never do, a failure is logged. Cancelling the await doesn't
    take the record back.

    A Delivery is a tuple of its batch and its index there, because one is made for every record.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self[0]
        if not batch.done:
            yield from batch.wait()
        return self.result()

    def done(self) -> bool:
        """Whether the record was delivered or has failed."""
        return self[0].done

    def result(self) -> RecordMetadata:
        """The record's place in its topic. Raises the reason of a failure, InvalidStateError before the outcome."""
        batch, index = self
        if not batch.done:
            raise asyncio.InvalidStateError("the record has no outcome yet")
        error = batch.failure(index)
        if error is not None:
            raise error
        return batch.metadata(index)

    def exception(self) -> Exception | None:
        """The reason of a failure, None without one. Raises InvalidStateError before the outcome."""
        batch, index = self
        if not batch.done:
            raise asyncio.InvalidStateError("the record has no outcome yet")
        return batch.failure(index)

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Have the event loop call ``callback(delivery)`` at the outcome."""
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
    """Consecutive records of a ``send_batch`` in one partition.

    ``base_offset`` is the offset of the first one, -1 if the broker didn't return it. ``indices`` are their indexes in
    the given values, in the order of their offsets.
    """

    partition: int
    base_offset: int
    count: int
    indices: Sequence[int]


class BatchDeliveryError(ClientError):
    """Some records of a ``send_batch`` were not delivered. The first reason is ``__cause__``.

    ``delivered`` has the ranges that were delivered, ``failed`` the indexes of the other values with their errors.
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
    """The outcome of one ``send_batch``. ``await`` gives a list of AppendedRange, or raises BatchDeliveryError.

    Like a Delivery, it may be awaited any number of times, or never.
    """

    __slots__ = ("_count", "_parts", "_topic", "_unsent")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._parts: list[tuple[Batch, int, Sequence[int]]] = []
        self._unsent: list[tuple[Sequence[int], Exception]] = []
        self._count = 0

    def _add(self, batch: Batch, first: int, indices: Sequence[int]) -> None:
        """The values at ``indices`` are the records of ``batch`` from ``first`` on."""
        self._parts.append((batch, first, indices))
        self._count += len(indices)

    def _refuse(self, indices: Sequence[int], error: Exception) -> None:
        """The values at ``indices`` were not buffered."""
        self._unsent.append((indices, error))
        self._count += len(indices)

    def __len__(self) -> int:
        """The number of records."""
        return self._count

    def __repr__(self) -> str:
        state = "pending"
        if self.done():
            holders = (each for batch, at, of in self._parts for each, _, _ in batch.spans(at, len(of)))
            failed = self._unsent or any(holder.error is not None for holder in holders)
            state = "failed" if failed else "delivered"
        return f"<BatchDelivery of {self._count} records for {self._topic}: {state}>"

    def done(self) -> bool:
        """Whether every record was delivered or has failed."""
        return all(batch.done for batch, _, _ in self._parts)

    def __await__(self) -> Generator[Any, None, list[AppendedRange]]:
        for batch, _, _ in self._parts:
            if not batch.done:
                yield from batch.wait()
        return self.result()

    def result(self) -> list[AppendedRange]:
        """The result of awaiting it. Raises InvalidStateError before every record has an outcome."""
        if not self.done():
            raise asyncio.InvalidStateError("some records have no outcome yet")
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
