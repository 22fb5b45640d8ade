"""Notices when ZooKeeper has been silent for so long that it may have ended this broker's session.

ZooKeeper counts from what it heard last of the broker, the broker from when it sent what was answered last, which is
earlier: so the broker is the first to know. It needs no news for that, and none comes: a session that has ended is
told of when ZooKeeper answers again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.store.api import Lease

log = get_logger()

_LOOK_SECONDS: Final = 0.25


async def watch_lease(
    lease: Callable[[], Lease],
    clock: Clock,
    on_silent: Callable[[], Awaitable[None]],
    on_heard: Callable[[], None],
) -> None:
    """Run until cancelled. ``on_silent`` is awaited again and again while the present lease has run out."""
    silent = False
    while True:
        left = lease().until - clock.monotonic()
        if left > 0:
            if silent:
                silent = False
                log.info("ZooKeeper is heard again")
                on_heard()
            # At most so long, for the session may be another one by then.
            await clock.sleep(min(left, 1.0))
            continue
        if not silent:
            silent = True
            log.warning("nothing is heard of ZooKeeper: another broker may take over what this one does")
        await on_silent()
        await clock.sleep(_LOOK_SECONDS)
