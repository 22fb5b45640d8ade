"""Producer ids for the transaction coordinator, which is called back instead of waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla_broker.coordinator import codes
from ottla_broker.tasks import Tasks
from ottla_protocol.errors import KafkaError


class ProducerIdSource:
    """Owned by the loop thread. ``next_id`` returns an id, or raises KafkaError."""

    def __init__(self, next_id: Callable[[], Awaitable[int]]) -> None:
        self._next_id = next_id
        self._tasks = Tasks()

    def __call__(self, drawn: Callable[[int, int], None]) -> None:
        """Call ``drawn`` once with an error code and the id, in a later turn of the event loop."""
        self._tasks.start(self._draw(drawn))

    async def _draw(self, drawn: Callable[[int, int], None]) -> None:
        try:
            producer_id = await self._next_id()
        except KafkaError as error:
            drawn(int(error.code), -1)
        else:
            drawn(codes.NONE, producer_id)

    async def close(self) -> None:
        """Draw no further ids. Those who wait get no answer: their requests have been answered otherwise."""
        await self._tasks.close()
