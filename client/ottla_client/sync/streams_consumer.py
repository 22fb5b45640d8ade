"""The base of consumers that read in streams, without asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

from ..consumer.consumer import CLOSE_SECONDS
from ..errors import ClosedError
from ..types import ConsumerRecord, TopicPartition
from ..zookeeper_consumer.stream import Stream as AsyncStream
from ..zookeeper_consumer.streams_consumer import StreamsConsumer as AsyncStreamsConsumer
from ..zookeeper_consumer.subscription import TopicFilter
from .sync_client import EXIT_SECONDS, SyncClient, blocking

_Record = ConsumerRecord[Any, Any]
C = TypeVar("C", bound=AsyncStreamsConsumer)


class Stream:
    """The records of the partitions that the group assigns to this stream; one thread at a time may take them."""

    def __init__(self, owner: SyncClient[Any], stream: AsyncStream) -> None:
        self._owner = owner
        self._stream = stream

    def __repr__(self) -> str:
        return f"<sync {self._stream!r}>"

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the stream reads now."""
        return self._stream.assignment()

    def __iter__(self) -> Iterator[_Record]:
        return chain.from_iterable(self._iterators())

    def _iterators(self) -> Iterator[Iterator[_Record]]:
        while True:
            try:
                records = self._owner._call(self._stream._consumer._iterate())
            except ClosedError:
                return  # closed by another thread
            yield records

    def getone(self) -> _Record:
        """Wait for the next record. Raises the errors of the async method."""
        while True:
            for record in self._stream._consumer._iterator:
                return record
            self._owner._call(self._stream._consumer._iterate())

    def poll(self, timeout_ms: int | None = 1_000, max_records: int | None = None) -> list[_Record]:
        """Return records as soon as there are some; none after ``timeout_ms``."""
        return self._owner._call(self._stream.poll(timeout_ms, max_records), self._give_back)

    def _give_back(self, records: Iterable[_Record]) -> None:
        """Records were taken for a call that was interrupted: hand them out again."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(record.topic_partition, record.offset)
        consumer = self._stream._consumer

        def seek() -> None:
            for partition in first.keys() & consumer.assignment():
                consumer.seek(partition, first[partition])

        with suppress(ClosedError):
            self._owner._post(seek)


class StreamsConsumer(SyncClient[C]):
    """A member of a group whose streams are read by threads."""

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Commit (if ``enable_auto_commit``), give up the partitions, leave the group and disconnect."""
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

    _create_streams = blocking(AsyncStreamsConsumer.create_streams)
    _create_streams_by_filter = blocking(AsyncStreamsConsumer.create_streams_by_filter)

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
