"""What the handlers of transactions share."""

from __future__ import annotations

from typing import Final

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.transaction.metadata import Producer
from ottla_broker.handlers.context import RequestContext
from ottla_broker.network.pending_response import CloseConnection


def producer_error(error: int, has_fenced: bool) -> int:
    """The error in the words of older versions, which don't have PRODUCER_FENCED."""
    return codes.INVALID_PRODUCER_EPOCH if error == codes.PRODUCER_FENCED and not has_fenced else error


def is_late(ctx: RequestContext, transactional_id: str, producer: Producer | None, api: int) -> bool:
    """Whether a request would reach into a later transaction than its own (decision 9).

    Answer it with :data:`TRY_AGAIN`: a producer that still uses the connection sends it again.
    """
    return not ctx.services.transactions.hear(transactional_id, producer, ctx.connection.connected_at, api)


TRY_AGAIN: Final = codes.COORDINATOR_LOAD_IN_PROGRESS
"""All producers send a request again that gets this, to the same coordinator."""


def late(who: str) -> CloseConnection:
    """For a request of a coordinator that has sent it again."""
    return CloseConnection(f"a late request: {who} has gone on, on a newer connection or with another leader")
