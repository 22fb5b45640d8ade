"""The responses of a connection, in the order of its requests.

Those that are ready before an earlier one wait for it. What the client doesn't take is counted in the memory for
answers.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ottla_broker.network.answer_memory import SMALL_ANSWERS
from ottla_broker.network.owner import Ends
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.network.service import Parts
from ottla_broker.network.writer import Writer, memory_of

FEW_PARKED: Final = 8
"""Requests of one connection that may wait for their answers however many others wait."""
MOST_PARKED: Final = 2_000
"""Requests of a processor's connections that wait, beyond which each connection has only a few. One takes 3 KB."""
QUEUED_RESPONSE_BYTES: Final = 1024 * 1024
"""Bytes of finished responses that may wait behind a pending one; beyond that nothing is read."""
NONE_PENDING: Final[deque[PendingResponse]] = deque(maxlen=0)
"""The requests without an answer of a connection that has never had one; a deque of its own would take 600 bytes."""


class Answers:
    """Owned by its connection, on the loop thread.

    Attributes:
        pending: the requests without an answer, and those behind them.
        queued_bytes: of finished responses that wait behind a pending one.
    """

    __slots__ = (
        "_connection",
        "_counted",
        "_processor",
        "_queued_held",
        "_writer",
        "pending",
        "queued_bytes",
    )

    def __init__(self, connection: Ends, writer: Writer) -> None:
        self._connection = connection
        self._processor = connection.processor
        self._writer = writer
        self.pending = NONE_PENDING
        self.queued_bytes = 0
        # Of these bytes, those in memory; whether all that is held is counted.
        self._queued_held = 0
        self._counted = False

    @property
    def are_too_many(self) -> bool:
        """Whether so many wait that reading pauses."""
        if self.queued_bytes > QUEUED_RESPONSE_BYTES:
            return True
        count, processor = len(self.pending), self._processor
        return count >= processor.max_parked or (count >= FEW_PARKED and processor.parked >= MOST_PARKED)

    def put(self, reply: Parts | PendingResponse) -> None:
        """Add the answer of the latest request."""
        if isinstance(reply, PendingResponse):
            if self._connection.closed:
                if reply.abandon is not None:
                    reply.abandon()
                return
            self._park(reply)
            reply.put(self._connection)
        elif self.pending:
            finished = PendingResponse()
            finished.parts, finished.ready = reply, True
            self._queue(finished, reply)
            self._park(finished)
            self.count()
        else:
            self._writer.write(reply)

    def send_ready(self) -> None:
        """Send the responses that are ready, up to the first that is pending."""
        pending, connection = self.pending, self._connection
        if pending and pending[0].ready:
            connection.last_active = self._processor.clock.monotonic()
        elif pending:
            self._queue_ready()
        while pending and pending[0].ready and not connection.closed:
            response = pending.popleft()
            self._processor.parked -= 1
            self.queued_bytes -= response.size
            self._queued_held -= response.held
            if response.parts is not None:
                self._writer.write(response.parts)
        if self._counted:
            self.count()

    def count(self) -> None:
        """Have the bytes counted that the client doesn't take yet."""
        held = self._queued_held + self._writer.held
        if held > SMALL_ANSWERS:
            self._counted = True
            self._processor.memory.answers.hold(self._connection, held)
        elif self._counted:
            self._counted = False
            self._processor.memory.answers.hold(self._connection, 0)

    def detach(self) -> deque[PendingResponse]:
        """Forget them, for a connection that has closed; returns the pending ones."""
        pending, self.pending = self.pending, NONE_PENDING
        self._processor.parked -= len(pending)
        self._queued_held = 0
        self.count()
        return pending

    def _park(self, response: PendingResponse) -> None:
        if self.pending is NONE_PENDING:
            self.pending = deque()
        self.pending.append(response)
        self._processor.parked += 1

    def _queue(self, response: PendingResponse, parts: Parts) -> None:
        response.size = sum(map(len, parts))  # type: ignore[arg-type]
        response.held = memory_of(parts)
        self.queued_bytes += response.size
        self._queued_held += response.held

    def _queue_ready(self) -> None:
        """Count the responses that are ready but wait for an earlier one."""
        for response in self.pending:
            if response.ready and response.parts and not response.size:
                self._queue(response, response.parts)
        self.count()
