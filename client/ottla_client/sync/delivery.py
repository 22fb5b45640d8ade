"""Deliveries: handles for the outcome of a send, for any thread."""

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

_log = logging.getLogger("ottla_client.producer")


class Waiting(Protocol):
    """How a delivery waits, in any thread: ``SendQueue``."""

    def wait(self, delivery: Delivery, timeout: float | None) -> bool:
        """Wait until the record is delivered or has failed; False after ``timeout`` seconds."""

    def when_done(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback`` in the loop's thread then."""


class Refusal:
    """The outcome of a record that could not be buffered."""

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
            _log.error(
                "a record for %s was not sent, and its delivery was never checked: %s",
                self._topic,
                self._error,
            )


class Delivery:
    """The outcome of one record. Any thread may ask for it, any number of times, also after ``close``.

    If you never ask, a failure is logged.
    """

    __slots__ = ("_inner", "_queue")

    def __init__(self, queue: Waiting) -> None:
        self._queue = queue
        self._inner: AsyncDelivery | Refusal | None = None

    def done(self) -> bool:
        """Whether the record was delivered or has failed."""
        inner = self._inner
        return inner is not None and inner.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged, and return where it was stored. Raises the reason of a failure.

        Raises RequestTimeoutError after ``timeout`` seconds; the record may still be delivered.
        """
        return self._finished(timeout).result()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for the outcome, and return the reason of a failure; None without one."""
        return self._finished(timeout).exception()

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback(delivery)`` at the outcome.

        The background thread calls it: keep it short, and don't call the producer in it.
        """
        self._queue.when_done(self, callback)

    def _finished(self, timeout: float | None) -> AsyncDelivery | Refusal:
        if not self.done() and not self._queue.wait(self, timeout):
            raise RequestTimeoutError(
                f"the record was not acknowledged within {timeout:g} s; it is still being sent"
            )
        assert self._inner is not None
        return self._inner

    def __repr__(self) -> str:
        return "<Delivery: not buffered yet>" if self._inner is None else repr(self._inner)


class BatchDelivery:
    """The outcome of one ``send_batch``; used like a Delivery."""

    __slots__ = ("_call", "_inner")

    def __init__(self, inner: AsyncBatchDelivery, call: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._call = call

    def __len__(self) -> int:
        """The number of records."""
        return len(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    def done(self) -> bool:
        """Whether every record was delivered or has failed."""
        return self._inner.done()

    def result(self, timeout: float | None = None) -> list[AppendedRange]:
        """Wait until all records are acknowledged, and return their ranges of offsets.

        Raises BatchDeliveryError if some were not delivered, RequestTimeoutError after ``timeout`` seconds.
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
                    f"the records were not acknowledged within {timeout:g} s; they are still being sent"
                ) from None
            raise
