"""A request while it is served: at once, or in turns with everything else, with waits between."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.network.service import Parts, Reply, client_of
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Running, if_left
from ottla_broker.requests.turns import AT_ONCE, TURN, Job, Reservation


class Serving(Running["Parts | None"]):
    """Runs the coroutine that serves a request. Owned by the loop thread.

    What does more than ``AT_ONCE`` goes on in turns; then nothing is read from its connection until it is answered, as
    in Kafka.
    """

    __slots__ = ("_api", "_context", "_done", "_holds_connection", "_waits_since")

    def __init__(
        self,
        work: Coroutine[Any, None, Parts | None],
        waiting: set[Running[Any]],
        context: RequestContext,
        api: Api,
        reserved: Reservation | None = None,
    ) -> None:
        """``reserved``: the memory that a large request may take, which does nothing at once; None for others."""
        super().__init__(work, waiting)
        self._context = context
        self._api = api
        self._done = 0
        self._holds_connection = False
        self._waits_since = 0.0
        if reserved is not None:
            waiting.add(self)
            self._take_turns(reserved)

    def start(self) -> Serving:
        if not self._context.in_turns:
            self._go_on()
        return self

    def abandon(self) -> None:
        """The client has left."""
        self._release_connection()
        super().abandon()

    def _end(self) -> None:
        self._release_connection()
        super()._end()

    def _release_connection(self) -> None:
        if self._holds_connection:
            self._holds_connection = False
            self._context.connection.end_long()

    def _go_on(self, _: object = None) -> None:
        context = self._context
        if self._waits_since:
            context.waited += context.services.clock.monotonic() - self._waits_since
            self._waits_since = 0.0
        if context.in_turns:
            context.services.turns.start(self._job(), client_of(context.connection))
            return
        context.begin_work()
        while (work := self._step()) is not None:
            self._done += work
            if self._done >= AT_ONCE:
                self._take_turns(self._api.answer)
                break
        context.end_work()
        if self._waits_for is not None:
            self._waits_since = context.services.clock.monotonic()

    def _take_turns(self, reserved: Reservation) -> None:
        context = self._context
        context.in_turns = True
        if not self._is_abandoned:
            self._holds_connection = True
            context.connection.begin_long()
        context.services.turns.start(
            self._job(), client_of(context.connection), reserved.memory, reserved.purpose
        )

    def _job(self) -> Job:
        """Go on in turns until it waits, or ends. It ends quietly once the client has gone."""
        context = self._context
        unlooked = TURN
        if self._waiting is not None:
            self._waiting.discard(self)
        with if_left(self._coroutine.close):
            while True:
                if unlooked >= TURN:
                    unlooked = 0
                    if not self._is_abandoned and not self._api.is_carried_out:
                        # Closing the connection abandons this.
                        context.connection.has_left()
                if self._is_abandoned:
                    self._coroutine.close()
                    return
                context.begin_work()
                work = self._step()
                context.end_work()
                if work is None:
                    if self._waits_for is not None:
                        self._waits_since = context.services.clock.monotonic()
                    return
                unlooked += work
                yield work


def reply_of(running: Running[Parts | None]) -> Reply:
    """The response that a coroutine has given, or the place of one that it will give. Raises CloseConnection."""
    if running.given:
        try:
            return running.value()
        finally:
            del running  # see there
    pending = PendingResponse(running.abandon)
    running.then = lambda: pending.complete(running.outcome)
    return pending
