"""Exponential back-off with jitter, and retries until a deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla_client.deadline import Deadline
from ottla_client.errors import ClientError, RequestTimeoutError

T = TypeVar("T")

JITTER = 0.2
"""The random share of a delay, so that clients don't all retry at once."""


class Backoff:
    """``initial`` seconds after the first failure, twice that after the next, up to ``maximum`` (KIP-580)."""

    __slots__ = ("initial", "maximum")

    def __init__(self, initial: float, maximum: float) -> None:
        self.initial = initial
        self.maximum = max(initial, maximum)

    def after(self, failures: int) -> float:
        """Seconds to wait after this number of consecutive failures; 0 after none."""
        if failures <= 0:
            return 0.0
        delay: float = min(self.maximum, self.initial * 2.0 ** min(failures - 1, 30))
        return delay * random.uniform(1 - JITTER, 1 + JITTER)


async def retrying(
    attempt: Callable[[], Awaitable[T]], deadline: Deadline, *, backoff: Backoff, what: str
) -> T:
    """The result of ``attempt``, which is repeated after a back-off while its errors are retriable.

    ``what`` describes the attempt for the error. Raises the first error that isn't retriable, and RequestTimeoutError
    at the deadline, with the last failure as its cause; a running attempt is cancelled then.
    """
    failures = 0
    last: ClientError | None = None
    while True:
        try:
            async with deadline.timeout() as limit:
                return await attempt()
        except ClientError as error:
            if not error.retriable:
                raise
            last = error
        except TimeoutError:
            if not limit.expired():
                raise
        failures += 1
        delay = backoff.after(failures)
        if deadline.left() <= delay:
            raise RequestTimeoutError(f"{what}: {last or 'no answer'} (tried {_times(failures)})") from last
        await asyncio.sleep(delay)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
