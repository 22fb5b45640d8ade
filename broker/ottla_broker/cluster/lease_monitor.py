"""Notices when ZooKeeper has been silent for so long that it may have ended this broker's session.

ZooKeeper counts from the last message it received from the broker. The broker counts from when it sent the last request
that was answered, which is earlier, so it is the first to know. No notification would come: ZooKeeper reports an ended
session only when it answers again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.store.api import Lease

_log = get_logger()

_REPEAT_SECONDS: Final = 0.25


async def watch_lease(
    lease: Callable[[], Lease],
    clock: Clock,
    on_silent: Callable[[], Awaitable[None]],
    on_heard: Callable[[], None],
) -> None:
    """Run until cancelled. ``on_silent`` is awaited repeatedly while the current lease has expired."""
    silent = False
    while True:
        left = lease().until - clock.monotonic()
        if left > 0:
            if silent:
                silent = False
                _log.info("ZooKeeper answers again")
                on_heard()
            # Not longer, because another session may begin meanwhile.
            await clock.sleep(min(left, 1.0))
            continue
        if not silent:
            silent = True
            _log.warning("ZooKeeper doesn't answer: another broker may take over from this one")
        await on_silent()
        await clock.sleep(_REPEAT_SECONDS)
