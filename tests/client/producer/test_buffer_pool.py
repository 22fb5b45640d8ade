"""The limit of the buffer's memory."""

from __future__ import annotations

import asyncio

import pytest

from ottla_client.deadline import Deadline
from ottla_client.errors import BufferFullError, ClosedError
from ottla_client.producer.buffer_pool import BufferPool


async def test_first_come_first_served() -> None:
    memory = BufferPool(100)
    assert memory.allocate(80)
    order: list[str] = []

    async def want(name: str, size: int) -> None:
        await memory.wait(size, Deadline(30))
        order.append(name)

    large = asyncio.create_task(want("large", 90))
    await asyncio.sleep(0)
    small = asyncio.create_task(want("small", 10))
    await asyncio.sleep(0)
    assert memory.contended
    assert not memory.allocate(1), "a small request must not overtake those that wait"
    memory.deallocate(80)
    await asyncio.gather(large, small)
    assert order == ["large", "small"]
    assert memory.free == 0


async def test_says_what_to_do_when_it_stays_full() -> None:
    memory = BufferPool(100)
    assert memory.allocate(100)
    with pytest.raises(BufferFullError, match=r"100 bytes \(buffer_memory\).*max_block_ms"):
        await memory.wait(1, Deadline(0.01))
    memory.deallocate(100)
    assert memory.free == 100


@pytest.mark.parametrize("served", [False, True])
async def test_cancelled_takes_nothing(served: bool) -> None:
    memory = BufferPool(100)
    assert memory.allocate(100)
    first = asyncio.create_task(memory.wait(60, Deadline(30)))
    second = asyncio.create_task(memory.wait(40, Deadline(30)))
    await asyncio.sleep(0)
    if served:
        memory.deallocate(60)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    if not served:
        memory.deallocate(60)
    await second
    assert memory.free == 20
    memory.deallocate(80)
    assert memory.free == 100


async def test_closing_ends_the_wait() -> None:
    memory = BufferPool(10)
    assert memory.allocate(10)
    waiting = asyncio.create_task(memory.wait(5, Deadline(30)))
    await asyncio.sleep(0)
    memory.refuse(ClosedError("closed"))
    with pytest.raises(ClosedError):
        await waiting
    assert memory.free == 0
