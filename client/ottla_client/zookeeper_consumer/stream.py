"""One stream of records: what one thread of Kafka's high-level consumer reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ..consumer.consumer import Consumer
from ..types import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow


class Stream:
    """The records of the partitions that the group assigns to this stream, which change with its members.

    One task at a time may take records. A stream may have no partitions; then it waits until it gets some.
    """

    def __init__(self, consumer: Consumer, name: str) -> None:
        """Made by ``ZookeeperConsumer``. ``consumer`` reads; it has no group of its own."""
        self._consumer = consumer
        self._name = name

    def __repr__(self) -> str:
        return f"<Stream {self._name}>"

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the stream reads now."""
        return self._consumer.assignment()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        return self._consumer.__aiter__()

    async def getone(self) -> ConsumerRecord[Any, Any]:
        """Wait for the next record. Raises the errors of ``Consumer.getone``, and RebalanceFailedError."""
        return await self._consumer.getone()

    async def poll(
        self, timeout_ms: int | None = 1_000, max_records: int | None = None
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return up to ``max_records`` records as soon as there are some; none after ``timeout_ms``.

        Raises the errors of ``getone``.
        """
        return await self._consumer.poll(timeout_ms, max_records)

    async def poll_arrow(
        self, timeout_ms: int | None = 1_000, max_records: int = 100_000, *, headers: bool = False
    ) -> pyarrow.Table:
        """Return records as an Arrow table, as ``Consumer.poll_arrow`` does."""
        return await self._consumer.poll_arrow(timeout_ms, max_records, headers=headers)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to hand out. Raises ConfigurationError for another stream's partition."""
        return await self._consumer.position(partition)

    def lag(self, partition: TopicPartition) -> int | None:
        """The number of offsets between the position and the end, as of the last fetch; None before the first one."""
        return self._consumer.lag(partition)
