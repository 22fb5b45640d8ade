"""What a send returns: handles to learn, in any thread, what has become of the records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import RequestTimeoutError

if TYPE_CHECKING:
    from ..producer import AppendedRange
    from ..producer import BatchDelivery as AsyncBatchDelivery
    from ..producer import Delivery as AsyncDelivery
    from ..types import RecordMetadata

log = logging.getLogger("ottla_client.producer")


class Waiting(Protocol):
    """How a delivery waits, in any thread: ``SendQueue``."""

    def wait(self, delivery: Delivery, timeout: float | None) -> bool:
        """Wait until the record is delivered or has failed; False after ``timeout`` seconds."""

    def when_done(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback`` in the loop's thread then."""


class Refusal:
    """Stands for the delivery of a record that did not get into the producer's buffer."""

    __slots__ = ("_error", "_looked_at", "_topic")

    def __init__(self, topic: str, error: Exception) -> None:
        self._topic = topic
        self._error = error
        self._looked_at = False

    def done(self) -> bool:
        return True

    def result(self) -> RecordMetadata:
        self._looked_at = True
        raise self._error

    def exception(self) -> Exception:
        self._looked_at = True
        return self._error

    def __repr__(self) -> str:
        return f"<Delivery of a record for {self._topic}: failed>"

    def __del__(self) -> None:
        if not self._looked_at:
            log.error("a record for %s was not sent, and nobody asked: %s", self._topic, self._error)


class Delivery:
    """One record on its way. May be asked from any thread, any number of times, also after ``close``.

    It need not be asked at all: a failure that nobody looks at is logged.
    """

    __slots__ = ("_inner", "_queue")

    def __init__(self, queue: Waiting) -> None:
        self._queue = queue
        self._inner: AsyncDelivery | Refusal | None = None

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        inner = self._inner
        return inner is not None and inner.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged; where it has gone. Raises why it was not delivered.

        Raises RequestTimeoutError when that isn't known after ``timeout`` seconds; the record is still on its way.
        """
        return self._finished(timeout).result()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """As ``result``, but returns why the record was not delivered; None if it was."""
        return self._finished(timeout).exception()

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Have ``callback(delivery)`` called once it is known what became of the record.

        The background thread calls it: keep it short, and don't call the producer in it.
        """
        self._queue.when_done(self, callback)

    def _finished(self, timeout: float | None) -> AsyncDelivery | Refusal:
        if not self.done() and not self._queue.wait(self, timeout):
            raise RequestTimeoutError(
                f"the record was not acknowledged within {timeout:g} s; it is on its way"
            )
        assert self._inner is not None
        return self._inner

    def __repr__(self) -> str:
        return "<Delivery: on its way to the buffer>" if self._inner is None else repr(self._inner)


class BatchDelivery:
    """The records of one ``send_batch``; as a Delivery."""

    __slots__ = ("_call", "_inner")

    def __init__(self, inner: AsyncBatchDelivery, call: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._call = call

    def __len__(self) -> int:
        """How many records there are."""
        return len(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    def done(self) -> bool:
        """Whether it is known what became of every record."""
        return self._inner.done()

    def result(self, timeout: float | None = None) -> list[AppendedRange]:
        """Wait until all are acknowledged; the ranges of offsets that they have been given.

        Raises BatchDeliveryError where some were not delivered, RequestTimeoutError after ``timeout`` seconds.
        """
        if not self._inner.done():
            self._call(self._wait(timeout))
        return self._inner.result()

    async def _wait(self, timeout: float | None) -> None:
        from ..deadline import Deadline

        try:
            async with Deadline(timeout).timeout() as limit:
                await self._inner
        except TimeoutError:
            if limit.expired():
                raise RequestTimeoutError(
                    f"the records were not acknowledged within {timeout:g} s; they are on their way"
                ) from None
            raise
