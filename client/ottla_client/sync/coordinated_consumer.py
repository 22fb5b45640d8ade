"""The consumer of the coordinator designed in 2012, without asyncio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack

from ..consumer.consumer import CLOSE_SECONDS
from ..coordinated_consumer import CoordinatedConsumer as AsyncCoordinatedConsumer
from ..coordinated_consumer.consumer import DEFAULT_COORDINATOR
from ..coordinated_consumer.settings import CoordinatedConsumerOptions, CoordinatedConsumerSettings
from ..settings import accepts
from ..types import ConsumerRecord
from ..zookeeper_consumer import TopicFilter
from .sync_client import EXIT_SECONDS, SyncClient, blocking, in_loop
from .zookeeper_consumer import Stream

_Record = ConsumerRecord[Any, Any]


class CoordinatedConsumer(SyncClient[AsyncCoordinatedConsumer]):
    """``ottla_client.CoordinatedConsumer`` for code without asyncio::

        with CoordinatedConsumer("orders", coordinator_servers="127.0.0.1:9094", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.value)

    Each stream may be read by a thread of its own.
    """

    @accepts(CoordinatedConsumerSettings)
    def __init__(
        self,
        *topics: str,
        coordinator_servers: str | Sequence[str] = DEFAULT_COORDINATOR,
        **options: Unpack[CoordinatedConsumerOptions],
    ) -> None:
        """Takes the options of the async class."""
        super().__init__(
            AsyncCoordinatedConsumer(*topics, coordinator_servers=coordinator_servers, **options)
        )

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Commit (if ``enable_auto_commit``), leave the group and disconnect."""
        self._end(lambda: self._client.close(timeout))

    def _close_at_exit(self) -> None:
        self.close(EXIT_SECONDS)

    @property
    def consumer_id(self) -> str:
        """The member's name in the group."""
        return self._client.consumer_id

    def create_streams(self, streams: Mapping[str, int]) -> dict[str, list[Stream]]:
        """Join the group and read topics, each in a number of streams; see the async method."""
        made = self._create_streams(streams)
        return {topic: [Stream(self, each) for each in its] for topic, its in made.items()}

    def create_streams_by_filter(self, topics: TopicFilter, streams: int = 1) -> list[Stream]:
        """Join the group and read all topics that a filter allows; see the async method."""
        return [Stream(self, each) for each in self._create_streams_by_filter(topics, streams)]

    _create_streams = blocking(AsyncCoordinatedConsumer.create_streams)
    _create_streams_by_filter = blocking(AsyncCoordinatedConsumer.create_streams_by_filter)

    def _only(self) -> Stream:
        return Stream(self, self._client._only())

    def __iter__(self) -> Iterator[_Record]:
        return iter(self._only())

    def getone(self) -> _Record:
        """Wait for the next record of the topics in the constructor."""
        return self._only().getone()

    def poll(self, timeout_ms: int | None = 1_000, max_records: int | None = None) -> list[_Record]:
        """Records of the topics in the constructor, as soon as there are some; none after ``timeout_ms``."""
        return self._only().poll(timeout_ms, max_records)

    assignment = in_loop(AsyncCoordinatedConsumer.assignment)
    commit = blocking(AsyncCoordinatedConsumer.commit)
