"""Waiting for a partition's offsets with futures."""

from __future__ import annotations

import asyncio

from ottla_broker.replica.offset_waiters import Reached
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


def committed(partition: Partition, end_offset: int) -> asyncio.Future[int]:
    """Done when everything below ``end_offset`` is committed, which it isn't yet."""
    future, reached = _future()
    assert partition.when_committed(end_offset, reached) is not None, "it is committed already"
    return future


def deleted(partition: Partition, offset: int) -> asyncio.Future[int]:
    """Done when all live replicas begin at ``offset``, which they don't yet."""
    future, reached = _future()
    assert partition.when_deleted(offset, reached) is not None, "the records are deleted already"
    return future
