"""The engines of a consumer's streams, whichever coordination says what they read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias

from ..consumer.engine import Engine
from ..errors import ClientError
from ..types import TopicPartition

_log = logging.getLogger("ottla_client")

StreamOf: TypeAlias = Callable[[str, int], int]
"""From a topic and the number of one of its streams to the index of the engine that reads it."""


class StreamEngines:
    """Belongs to the event loop's thread.

    ``patience``: how many seconds a stop waits for the application to process the records it has.
    """

    def __init__(self, engines: Sequence[Engine], stream_of: StreamOf, patience: float) -> None:
        self._engines = engines
        self._stream_of = stream_of
        self._patience = patience
        self.all_processed = False
        """Whether records that were handed out count as processed, because the application closes the consumer."""

    async def _hold(self, stack: AsyncExitStack, engines: Iterable[Engine]) -> None:
        """Hand out nothing until ``stack`` ends, once the application has processed what it has.

        All streams are waited for at once: others wait for the slowest one alone.
        """
        async with asyncio.TaskGroup() as group:
            for engine in engines:
                group.create_task(self._hold_one(stack, engine))

    async def _hold_one(self, stack: AsyncExitStack, engine: Engine) -> None:
        if not await stack.enter_async_context(engine.gate.held(self._patience)):
            _log.warning(
                "the application has not processed its records within %g s; others may get them again",
                self._patience,
            )
        if self.all_processed:
            engine.buffer.mark_processed()

    def lose(self) -> None:
        """Stop reading at once."""
        for engine in self._engines:
            engine.assign(())

    def report(self, error: ClientError) -> None:
        for engine in self._engines:
            engine.report(error)

    def _processed(self) -> Iterator[tuple[TopicPartition, int]]:
        """The offsets up to which the application has processed records."""
        for engine in self._engines:
            engine.buffer.sync()
            for state in engine.positions:
                offset = engine.buffer.processed_offset(state)
                if offset is not None:
                    yield state.partition, offset

    def handed_out(self) -> dict[TopicPartition, int]:
        """The positions of all streams, for a commit of all records that were handed out: they count as processed."""
        found = {}
        for engine in self._engines:
            engine.buffer.mark_processed()
            found.update(
                {state.partition: state.position for state in engine.positions if state.position is not None}
            )
        return found
