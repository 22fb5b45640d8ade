"""Producer ids for many that wait at once."""

from __future__ import annotations

import asyncio

from ottla_broker.coordinator.transaction.producer_id_source import ProducerIdSource
from ottla_protocol.errors import ErrorCode, KafkaError


async def test_thousands_that_wait_for_a_block_are_called_back_in_portions() -> None:
    """Each then writes its transactional id: together they would hold the event loop."""
    block, drawn = asyncio.Event(), list[tuple[int, int]]()

    async def next_id() -> int:
        await block.wait()
        if len(drawn) == 7:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return len(drawn)

    source = ProducerIdSource(next_id)
    for _ in range(1000):
        source(lambda code, producer_id: drawn.append((code, producer_id)))
    await asyncio.sleep(0)
    assert not drawn
    block.set()
    most, before = 0, 0
    async with asyncio.timeout(60):
        while len(drawn) < 1000:
            await asyncio.sleep(0)
            most, before = max(most, len(drawn) - before), len(drawn)
    assert most <= 64
    assert drawn[6:9] == [(0, 6), (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1), (0, 8)]
    source(lambda code, producer_id: drawn.append((code, producer_id)))
    while len(drawn) == 1000:
        await asyncio.sleep(0)
    await source.close()


async def test_a_defect_of_one_keeps_no_other_waiting() -> None:
    async def next_id() -> int:
        return 7

    def broken(code: int, producer_id: int) -> None:
        raise RuntimeError

    drawn: list[tuple[int, int]] = []
    source = ProducerIdSource(next_id)
    source(broken)
    source(lambda code, producer_id: drawn.append((code, producer_id)))
    async with asyncio.timeout(60):
        while not drawn:
            await asyncio.sleep(0)
    assert drawn == [(0, 7)]
    await source.close()
