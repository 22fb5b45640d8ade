"""What requests wait for: replicas that reach an offset, and records that come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla_broker.replica.delayed_fetch import DelayedFetch
from ottla_broker.replica.delayed_produce import Awaited, DelayedProduce, Outcome
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, if_left


async def until_reached(
    ctx: RequestContext, offsets: Sequence[Awaited], timeout_ms: int
) -> Sequence[Outcome]:
    """Wait until all offsets are reached, or the time is up."""
    reached: Result[Sequence[Outcome]] = Result()
    delayed = DelayedProduce(offsets, ctx.services.clock, reached.give)
    delayed.start(timeout_ms)
    with if_left(delayed.abandon):
        return await reached


async def until_grown(
    ctx: RequestContext, places: Iterable[set[DelayedFetch]], missing_bytes: int, max_wait_ms: int
) -> None:
    """Wait until partitions have so many bytes more, or the time is up."""
    grown: Result[None] = Result()
    delayed = DelayedFetch(places, missing_bytes, ctx.services.clock, lambda: grown.give(None))
    delayed.start(max_wait_ms)
    with if_left(delayed.abandon):
        await grown
