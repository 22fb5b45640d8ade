"""What the handlers of transactions share."""

from __future__ import annotations

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.transaction.metadata import Producer
from ottla_broker.handlers.context import RequestContext
from ottla_broker.network.pending_response import CloseConnection


def producer_error(error: int, has_fenced: bool) -> int:
    """The error in the words of older versions, which don't have PRODUCER_FENCED."""
    return codes.INVALID_PRODUCER_EPOCH if error == codes.PRODUCER_FENCED and not has_fenced else error


def refuse_late(ctx: RequestContext, transactional_id: str, producer: Producer | None) -> None:
    """Refuse a request that would reach into a later transaction than its own (decision 9).

    Raises CloseConnection: any client survives it, and sends again on a new connection what it still wants sent.
    """
    if not ctx.services.transactions.hear(transactional_id, producer, ctx.connection.connected_at):
        raise late(f"transactional id {transactional_id!r}")


def late(who: str) -> CloseConnection:
    """For a request of a producer that has gone on."""
    return CloseConnection(
        f"a late request: {who} has gone on, on a newer connection, after an abort, or with another coordinator"
    )
