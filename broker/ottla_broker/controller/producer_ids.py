"""Producer ids, given out from blocks that the store remembers: Kafka's ``ZkProducerIdManager``.

A block is written to the store before its first id is given out, so that no id is given out twice. A broker that stops
wastes the rest of its block, which is cheap: there are 2**63 ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ottla_broker.events import get_logger
from ottla_broker.store.api import (
    BadVersionError,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    Store,
    StoreError,
)
from ottla_broker.store.keys import BadNodeError, ProducerIdBlock, ProducerIdBlockNode
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

BLOCK_SIZE: Final = 1000
_LAST_ID: Final = 2**63 - 1


async def allocate_block(
    store: Store, broker_id: int, write: Callable[[Sequence[Operation]], Awaitable[object]]
) -> ProducerIdBlock:
    """Write the next block of ids, for a broker to give out. ``write`` makes one transaction.

    Raises:
        StoreError: also when the last block can't be read.
        KafkaError: all ids have been given out.
    """
    path = ProducerIdBlockNode.PATH
    while True:
        before, version = None, None
        try:
            data, version = await store.get(path)
            before = ProducerIdBlockNode.decode(data)
        except NoNodeError:
            pass  # no ids have been given out yet
        except BadNodeError as error:
            raise StoreError(str(error)) from error
        first = 0 if before is None else before.last + 1
        if first > _LAST_ID - BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
        block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        data = ProducerIdBlockNode.encode(block)
        try:
            await write([Create(path, data) if version is None else Set(path, data, version)])
        except (BadVersionError, NodeExistsError):
            continue  # another broker was quicker
        return block


class ProducerIds:
    """Owned by the loop thread."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        """``allocate`` gets another block; it raises StoreError or KafkaError."""
        self._allocate = allocate
        self._next = 0
        self._last = -1
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """A new id; waits only when a new block is needed.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE when no block is available.
        """
        while self._next > self._last:
            async with self._lock:
                # Another caller may have got a block in the meantime.
                if self._next > self._last:
                    await self._next_block()
        self._next += 1
        return self._next - 1

    async def _next_block(self) -> None:
        try:
            _, self._next, self._last = await self._allocate()
        except (StoreError, KafkaError) as error:
            _log.error("no block of producer ids", reason=str(error))
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no producer id is available: {error}"
            ) from error
