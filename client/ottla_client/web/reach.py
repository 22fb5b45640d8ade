"""The time of a page, which ends when no broker can be reached: its calls would wait for one until their deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from ..admin import Admin
from ..errors import ConnectError

_LOOK_SECONDS: Final = 0.5


def check_reachable(admin: Admin) -> None:
    """Raises ConnectError if no broker can be reached, as far as the admin knows. Its refresh goes on trying."""
    if admin.unreachable is not None:
        raise ConnectError(admin.unreachable) from None


@asynccontextmanager
async def while_reachable(admin: Admin, seconds: float) -> AsyncIterator[None]:
    """Raises ConnectError if no broker can be reached, at once or a moment after the last one went.

    Raises TimeoutError after so many seconds.
    """
    loop = asyncio.get_running_loop()
    check_reachable(admin)

    def look() -> None:
        if admin.unreachable is None:
            timers[0] = loop.call_later(_LOOK_SECONDS, look)
        elif not limit.expired():
            limit.reschedule(loop.time())

    timers = [loop.call_later(_LOOK_SECONDS, look)]
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        check_reachable(admin)
        raise
    finally:
        timers[0].cancel()
