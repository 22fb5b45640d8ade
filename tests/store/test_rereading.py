"""What is read again after each change."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable

from ottla_broker.clock import SystemClock
from ottla_broker.store.embedded import EmbeddedStore
from ottla_broker.store.notifications import Notifications
from ottla_broker.store.rereading import Rereading


async def test_a_defect_does_not_end_it(
    open_embedded: Callable[[], EmbeddedStore], events_log: io.StringIO
) -> None:
    store = open_embedded()
    reads: list[int] = []
    read = asyncio.Event()

    async def broken() -> None:
        reads.append(len(reads))
        read.set()
        if len(reads) == 1:
            raise RuntimeError

    rereading = Rereading(store, SystemClock(asyncio.get_running_loop()), broken, "it can't be read")
    rereading.start("/watched")
    async with asyncio.timeout(60):
        await read.wait()
        read.clear()
        rereading.wake()
        await read.wait()
    assert reads == [0, 1]
    await rereading.close()
    await store.close()
    assert "RuntimeError" in events_log.getvalue()


async def test_a_defect_in_one_notification_does_not_stop_the_others(
    open_embedded: Callable[[], EmbeddedStore], events_log: io.StringIO
) -> None:
    store = open_embedded()
    processed: list[bytes] = []

    async def process(path: str, data: bytes) -> None:
        if data == b"a":
            raise RuntimeError
        processed.append(data)

    notifications = Notifications(store, "/changes", "change_", process)
    await store.create("/changes")
    for data in (b"a", b"b"):
        await store.create("/changes/change_", data, sequence=True)
    await notifications.read()
    assert processed == [b"b"]
    await store.close()
    assert "RuntimeError" in events_log.getvalue()
