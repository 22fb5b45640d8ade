"""Parts that the handlers of transactions share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.transaction.metadata import Producer, TopicPartition
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_broker.requests.late_requests import is_uncertain


def producer_error(error: int, has_fenced: bool) -> int:
    """The error in the words of older versions, which don't have PRODUCER_FENCED."""
    return codes.INVALID_PRODUCER_EPOCH if error == codes.PRODUCER_FENCED and not has_fenced else error


def must_try_again(ctx: RequestContext, transactional_id: str, producer: Producer | None, api: int) -> bool:
    """Whether a request may have been sent before its producer went on (decision 9).

    Answer it with :data:`TRY_AGAIN`: a producer that still uses the connection sends it again. Raises CloseConnection
    for a request that is late.
    """
    return is_uncertain(
        ctx.services.transactions.hear(transactional_id, producer, ctx.connection.age, api), "its producer"
    )


TRY_AGAIN: Final = codes.COORDINATOR_LOAD_IN_PROGRESS
"""All producers send a request again that gets this, to the same coordinator."""


async def add_partitions(
    ctx: RequestContext,
    api: int,
    transactional_id: str,
    producer: Producer,
    partitions: Collection[TopicPartition],
) -> int:
    """Make partitions part of a client's transaction; returns the error code.

    A client that begins its next transaction at once may be quicker than the markers of the last one. Then the request
    is held until they are written, which takes less time than the client's pause before it asks again (20 ms and more).
    A held request is checked again, and dropped if its client has gone.
    """
    again: Callable[[], None] | None
    for may_wait in (True, False):
        if must_try_again(ctx, transactional_id, producer, api):
            return TRY_AGAIN
        added: Result[int | None] = Result()
        again = partial(added.give, None) if may_wait else None
        ctx.services.transactions.add_partitions(transactional_id, producer, partitions, added.give, again)
        error = await added
        if error is not None:
            return error
    raise AssertionError("a request is held once")
