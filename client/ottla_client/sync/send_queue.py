"""Passes records from the threads that send them to the producer's event loop, and their outcomes back.

A thread appends a record to a list, and wakes the loop unless another record has. The loop takes the whole list and
sends its records in order. So many records cost one wake-up. When the list has QUEUE_BYTES, threads wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import BufferFullError, ClientError, ClosedError, RequestTimeoutError

if TYPE_CHECKING:
    from ..producer import Delivery as AsyncDelivery
    from ..producer import Producer as AsyncProducer
    from ..producer.records import HeadersLike
    from ..types import RecordMetadata
    from .runner import Runner

QUEUE_BYTES = 1024 * 1024
"""Bytes that may wait for the loop, twice that while it sends them. They come on top of buffer_memory."""
TURN = 1000
"""Records after which other tasks of the loop get a turn."""
FEW = 50
"""Records after which they do, if batches are in partitions that a transaction lacks: its coordinator adds them while
other batches fill."""

_log = logging.getLogger("ottla_client.producer")

_Entry = tuple["Delivery", str, Any, Any, int | None, int | None, "HeadersLike"]
_Marker = asyncio.Future[None]


@dataclass(eq=False, slots=True)
class Refusal:
    """The outcome of a record that could not be buffered."""

    _topic: str
    _error: Exception
    _looked_at: bool = field(default=False, init=False)

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
            text = "a record for %s was not sent, and its delivery was never checked: %s"
            _log.error(text, self._topic, self._error)


class Delivery:
    """The outcome of one record. Any thread may ask for it, any number of times, also after ``close``.

    If you never ask, a failure is logged.
    """

    __slots__ = ("_inner", "_queue")

    def __init__(self, queue: SendQueue) -> None:
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


class SendQueue:
    """Any thread may call ``put``, ``wait``, ``when_done`` and ``refuse``; the rest runs in the loop's thread."""

    def __init__(self, producer: AsyncProducer, max_block: float) -> None:
        self._producer = producer
        self._max_block = max_block
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._list: list[_Entry | _Marker] = []
        self._bytes = 0
        self._awake = False
        self._closed = False
        self._runner: Runner | None = None
        self._task: asyncio.Task[None] | None = None
        self._sending: list[_Entry | _Marker] = []
        self.beginning = False
        """Whether a transaction has to begin before records from the list are sent. Set by any thread."""
        self._waiters: dict[int, list[Callable[[], object]]] = {}
        """By a delivery's id, functions to call once its record is buffered or has failed."""

    def open(self, runner: Runner) -> None:
        """Start accepting records."""
        self._runner = runner

    def put(self, entry: _Entry, size: int) -> None:
        """Accept a record of about ``size`` bytes. Raises BufferFullError after max_block_ms, ClosedError."""
        if self._bytes > QUEUE_BYTES:
            self._wait_for_room()
        with self._lock:
            if self._closed or self._runner is None:
                why = "closed" if self._closed else 'not started: use "with", or start()'
                raise ClosedError(f"the producer is {why}")
            self._list.append(entry)
            self._bytes += size
            if self._awake:
                return
            self._awake = True
        self._runner.post(self._wake)

    def _wait_for_room(self) -> None:
        assert self._runner is not None
        with self._room:
            if not self._room.wait_for(lambda: self._bytes <= QUEUE_BYTES or self._closed, self._max_block):
                raise BufferFullError(
                    "the producer's buffer (buffer_memory) stayed full for max_block_ms: records are sent faster than"
                    " the brokers accept them"
                )

    def wait(self, delivery: Delivery, timeout: float | None) -> bool:
        """Wait until the record is delivered or has failed; False after ``timeout`` seconds.

        Raises ClosedError if the client's thread has ended without an outcome, as in a forked process.
        """
        assert self._runner is not None
        try:
            return self._runner.wait_until(partial(self._on_outcome, delivery), timeout) or delivery.done()
        except ClosedError:
            if delivery.done():  # close() may have finished it meanwhile
                return True
            raise

    def when_done(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback`` in the loop's thread at the record's outcome; here, if it has one already."""
        assert self._runner is not None
        if delivery.done():
            callback(delivery)
        else:
            loop = self._runner.loop
            self._runner.post(lambda: self._on_outcome(delivery, lambda: loop.call_soon(callback, delivery)))

    def refuse(self) -> None:
        """Accept no more records."""
        with self._room:
            self._closed = True
            self._room.notify_all()

    def _on_outcome(self, delivery: Delivery, function: Callable[[], object]) -> None:
        """Call ``function``, which must not raise, as soon as the record has its outcome."""
        inner = delivery._inner
        if inner is None:
            waiters = self._waiters.setdefault(id(delivery), [])
            waiters.append(partial(self._on_outcome, delivery, function))
        elif isinstance(inner, Refusal) or inner.done():
            function()
        else:
            inner[0].callbacks.append(function)

    async def emptied(self) -> None:
        """Wait until all records in the list are buffered or have failed."""
        marker: _Marker = asyncio.get_running_loop().create_future()
        with self._lock:
            self._list.append(marker)
            self._awake = True
        self._wake()
        await marker

    def begin(self) -> None:
        """Begin the transaction of ``beginning``, unless that has happened."""
        if self.beginning:
            assert self._producer._transactions is not None
            try:
                with suppress(ClientError):
                    self._producer._check_open()
                    self._producer._transactions.begin()
            finally:
                self.beginning = False

    def give_up(self, error: Exception) -> int:
        """Fail all records that are not buffered. Returns their number."""
        self.refuse()
        if self._task is not None:
            self._task.cancel()
        with self._lock:
            left, self._list = self._list, []
        return sum(self._fail(entry, error) for entry in (*self._sending, *left))

    def _fail(self, entry: _Entry | _Marker, error: Exception) -> bool:
        if isinstance(entry, asyncio.Future):
            if not entry.done():
                entry.set_exception(error)
            return False
        delivery = entry[0]
        if delivery._inner is not None:
            return False
        delivery._inner = Refusal(entry[1], error)
        self._buffered(delivery)
        return True

    def _buffered(self, delivery: Delivery) -> None:
        for function in self._waiters.pop(id(delivery), ()):
            function()

    def _wake(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())
            self._task.add_done_callback(self._sent_all)

    def _sent_all(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            task.result()
            with self._lock:
                if not self._list:
                    self._awake = False
                    return
            self._wake()

    async def _send_all(self) -> None:
        """Send the records in the list, and those appended meanwhile."""
        send = self._producer.send
        waiters = self._waiters
        while True:
            with self._room:
                entries = self._sending = self._list
                self._list = []
                self._bytes = 0
                self._room.notify_all()
            if not entries:
                return
            if self.beginning:
                self.begin()  # a thread has sent records since; its call of this may still wait for the loop
            for count, entry in enumerate(entries, 1):
                if isinstance(entry, asyncio.Future):
                    if not entry.done():
                        entry.set_result(None)
                    continue
                delivery, topic, value, key, partition, timestamp_ms, headers = entry
                try:
                    delivery._inner = await send(
                        topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
                    )
                except Exception as error:
                    delivery._inner = Refusal(topic, error)
                    self._producer._not_sent(error)
                if waiters:
                    self._buffered(delivery)
                if not count % FEW and (not count % TURN or self._producer._adds_partitions()):
                    await asyncio.sleep(0)
            self._sending = []
