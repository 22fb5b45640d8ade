"""Waiting for a partition's offsets with futures."""

from __future__ import annotations

import asyncio

from ottla_broker.replica.offset_waiters import OffsetWaiter, Reached
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import ErrorCode, KafkaError


def _future() -> tuple[asyncio.Future[int], Reached]:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def reached(error: ErrorCode, offset: int) -> None:
        if error is ErrorCode.NONE:
            future.set_result(offset)
        else:
            future.set_exception(KafkaError(error))

    return future, reached


def _unless_reached(future: asyncio.Future[int], waiter: OffsetWaiter | None) -> asyncio.Future[int] | None:
    return None if waiter is None else future


def committed(partition: Partition, end_offset: int) -> asyncio.Future[int] | None:
    """Done when everything below ``end_offset`` is committed; None: it is."""
    future, reached = _future()
    return _unless_reached(future, partition.when_committed(end_offset, reached))


def deleted(partition: Partition, offset: int) -> asyncio.Future[int] | None:
    """Done when all live replicas begin at ``offset``; None: they do."""
    future, reached = _future()
    return _unless_reached(future, partition.when_deleted(offset, reached))
