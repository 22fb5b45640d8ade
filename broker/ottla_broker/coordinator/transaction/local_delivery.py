"""Delivers a coordinator's markers to the broker that it is on, if that broker stands alone.

The markers of a transaction take longer than its decision. So they are written in the event loop's next turn: the
answer to EndTxn is sent first, and the client goes on meanwhile. A request of its next transaction may be read in the
same turn, and would get CONCURRENT_TRANSACTIONS; so the coordinator has waiting markers written before each request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla_broker.clock import Clock
from ottla_broker.coordinator.transaction.markers import Written
from ottla_broker.events import get_logger
from ottla_broker.replica.txn_markers import TxnMarker

_log = get_logger()


class LocalDelivery:
    """A way to deliver markers; see :data:`.DeliverMarkers`. Owned by the loop thread."""

    def __init__(self, clock: Clock, write: Callable[[Sequence[TxnMarker], Written], None]) -> None:
        self._clock = clock
        self._write = write
        self._waiting: list[tuple[Sequence[TxnMarker], Written]] = []

    def __call__(self, broker_id: int, markers: Sequence[TxnMarker], written: Written) -> None:
        self._waiting.append((markers, written))
        if len(self._waiting) == 1:
            self._clock.call_later(0, self.flush)

    def flush(self) -> None:
        """Write the markers that wait."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for markers, written in waiting:
                try:
                    self._write(markers, written)
                except Exception as error:
                    # It is raised in the middle of another request, or of the loop, so the answer carries it.
                    _log.error("markers were not written", transactions=len(markers), exc_info=error)
                    written(None)
