"""Ids for producers, handed out from blocks that the store remembers (Kafka's ``ZkProducerIdManager``).

A block is written to the store before its first id is given out, so that no id is ever given twice; what a
stopped broker had left of its block is lost, which is cheap: there are 2**63 ids.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla_broker.events import get_logger
from ottla_broker.store.api import NoNodeError, Store, StoreError
from ottla_broker.store.keys import BadNodeError, ProducerIdBlock, ProducerIdBlockNode
from ottla_protocol.errors import ErrorCode, KafkaError

log = get_logger()

BLOCK_SIZE: Final = 1000
_LAST_ID: Final = 2**63 - 1


class ProducerIds:
    """Owned by the loop thread."""

    def __init__(self, store: Store, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._last = -1
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """An id that was never given before; waits only when a new block is needed.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE when the store can't give a block.
        """
        if self._next > self._last:
            async with self._lock:
                # Another may have fetched a block while this one waited.
                while self._next > self._last:
                    await self._take_block()
        taken = self._next
        self._next += 1
        return taken

    async def _take_block(self) -> None:
        path = ProducerIdBlockNode.PATH
        try:
            try:
                data, version = await self._store.get(path)
            except NoNodeError:
                await self._store.create(path)
                data, version = b"", 0
            before = ProducerIdBlockNode.decode(data)
            first = 0 if before is None else before.last + 1
            if first > _LAST_ID - BLOCK_SIZE:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
            last = first + BLOCK_SIZE - 1
            block = ProducerIdBlock(self._broker_id, first, last)
            await self._store.set(path, ProducerIdBlockNode.encode(block), version)
        except (StoreError, BadNodeError) as error:
            log.error("no block of producer ids", reason=str(error))
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no producer id can be had: {error}"
            ) from error
        self._next, self._last = first, last
