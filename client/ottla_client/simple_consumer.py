"""The simple consumer: fetches by hand, from offsets that the application keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, Unpack

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, error_code

from .cluster import Cluster
from .consumer.lifecycle import Closable
from .consumer.positions import PartitionState
from .consumer.records import Chunk, RecordReader
from .consumer.rows import Rows, to_records
from .consumer.settings import ConsumerSettings, ReadingOptions, ReadingSettings
from .deadline import Deadline
from .errors import (
    BrokerError,
    ClientError,
    ClosedError,
    ConfigurationError,
    CorruptBatchError,
    DeserializationError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from .group.offsets import OffsetsClient
from .requests.driver import Node, Outcomes, ToLeaders, drive
from .requests.fetch import LAST_BY_NAME, FetchPosition, fetch_request
from .requests.list_offsets import find_offsets
from .requests.outcomes import error_of
from .settings import DEFAULT_BOOTSTRAP, accepts
from .types import (
    ConsumerRecord,
    IsolationLevel,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetSpec,
    TopicPartition,
)
from .types import Node as Broker

K = TypeVar("K")
V = TypeVar("V")

_AT_ONCE: Final = 1 << 20
"""About the most records of a response; the next fetch continues behind them. Few responses have as many."""
_JUST_MADE: Final = 1.0
"""Seconds for which some brokers may not know a new topic yet."""


class SimpleConsumerOptions(ReadingOptions, total=False):
    """The keyword arguments of SimpleConsumer."""

    group_id: str | None
    isolation_level: IsolationLevel
    max_partition_fetch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SimpleConsumerSettings(ReadingSettings):
    """The options' values; ``SimpleConsumer`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-simple-consumer"

    group_id: str | None = None
    isolation_level: IsolationLevel = "read_uncommitted"
    max_partition_fetch_bytes: int = 1_048_576

    def __post_init__(self) -> None:
        self.of_reading()

    def of_reading(self) -> ConsumerSettings:
        """The same as a consumer's settings, which check them. Raises ConfigurationError."""
        return ConsumerSettings(**{name: getattr(self, name) for name in self.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class Fetched(Generic[K, V]):
    """The result of one fetch from a partition.

    ``next_offset`` is where the next fetch goes on; it is beyond the last record where records were compacted away or
    belong to aborted transactions. ``high_watermark`` is the end for consumers, ``last_stable_offset`` the end with
    "read_committed". ``log_start_offset`` is the first offset, -1 from brokers before Kafka 0.11. A fetch returns about
    a million records at most.
    """

    records: list[ConsumerRecord[K, V]]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int

    @property
    def lag(self) -> int:
        """The number of offsets between ``next_offset`` and the high watermark."""
        return max(0, self.high_watermark - self.next_offset)


class SimpleConsumer(Closable):
    """Fetches records by hand, without positions, groups or rebalances::

        async with SimpleConsumer("127.0.0.1:9092") as consumer:
            partition = TopicPartition("orders", 0)
            offset = await consumer.beginning_offset(partition)
            while True:
                fetched = await consumer.fetch(partition, offset)
                for record in fetched.records:
                    print(record.offset, record.value)
                offset = fetched.next_offset

    It finds each partition's leader, and finds it again after it has moved. The application keeps the offsets, where it
    likes; ``commit`` keeps them in Kafka under a group's name. Any number of tasks may use one consumer, but a broker
    answers its fetches one after another.
    """

    @accepts(SimpleConsumerSettings)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[SimpleConsumerOptions],
    ) -> None:
        """Options as Kafka's consumer names them; times in milliseconds, sizes in bytes.

        :param bootstrap_servers: brokers to contact first: ``host:port``, separated by commas or as a list.
        :param group_id: the name under which ``commit`` and ``committed`` keep offsets. The group has no members.
        :param fetch_min_bytes: a broker answers a fetch when it has this many bytes, or after ``fetch_max_wait_ms``.
        :param max_partition_fetch_bytes: the most bytes from a partition, exceeded only by a single larger batch.

        The other options are those of ``Consumer``. Raises ConfigurationError for an invalid option.
        """
        settings = self._settings = SimpleConsumerSettings.of(options, "SimpleConsumer")
        self._reader = RecordReader(settings.of_reading())
        self._cluster = Cluster(bootstrap_servers, settings)
        self._offsets: OffsetsClient | None = None
        if settings.group_id is not None:
            self._offsets = OffsetsClient(self._cluster, settings.group_id)
        self._topics: set[str] = set()
        """Topics whose leaders are kept up to date, because they were fetched."""
        self._started = False
        self._closed = False

    def __repr__(self) -> str:
        return f"<SimpleConsumer of {self._cluster}>"

    async def start(self) -> None:
        """Connect to the cluster. Raises BootstrapError if that fails within ``default_api_timeout_ms``."""
        if self._started or self._closed:
            raise ClosedError("the consumer was started before; make a new one")
        self._started = True
        self._loop = asyncio.get_running_loop()
        await self._cluster.start(self._deadline())
        self._closed_properly = False

    async def close(self) -> None:
        """Disconnect; commits nothing. A second call does nothing."""
        self._closed_properly = True
        if self._closed:
            return
        self._closed = True
        if self._started:
            await self._cluster.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _disconnect(self) -> Callable[[], Coroutine[Any, Any, None]]:
        return self._cluster.close

    def _deadline(self) -> Deadline:
        return Deadline(self._settings.default_api_timeout_ms / 1000)

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")
        if not self._started:
            raise ClosedError("the consumer is not started: await start(), or use `async with`")

    async def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int | None = None,
        max_wait_ms: int | None = None,
    ) -> Fetched[Any, Any]:
        """Fetch a partition's records from ``offset`` on, from its leader.

        Returns without records if none come within ``max_wait_ms`` (None: ``fetch_max_wait_ms``). ``max_bytes`` None
        means ``max_partition_fetch_bytes``. Raises OffsetOutOfRangeError with the log's ends in its message,
        UnknownTopicError, CorruptBatchError and DeserializationError at the record, BrokerError, and
        RequestTimeoutError while the partition has no leader.
        """
        found = await self.fetch_many({partition: offset}, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        outcome = found[TopicPartition(*partition)]
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    async def fetch_many(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_bytes: int | None = None,
        max_wait_ms: int | None = None,
    ) -> dict[TopicPartition, Fetched[Any, Any] | ClientError]:
        """Fetch several partitions at once, each from its leader; ``fetch``'s errors are outcomes.

        A leader waits up to ``max_wait_ms`` while none of its partitions has records.
        """
        self._check()
        settings = self._settings
        limit = _checked_size(settings.max_partition_fetch_bytes if max_bytes is None else max_bytes)
        wait = settings.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms
        if not 0 <= wait < settings.request_timeout_ms:
            raise ConfigurationError(
                f"max_wait_ms is {wait}; it must be below request_timeout_ms ({settings.request_timeout_ms})"
            )
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        for partition, offset in wanted.items():
            if offset < 0:
                raise ConfigurationError(
                    f"{partition}: offset {offset} is negative; beginning_offset() and end_offset() find the ends"
                )

        new = {partition.topic for partition in wanted} - self._topics
        self._topics |= new
        self._cluster.interest(new)

        async def ask(
            node: Node, some: list[TopicPartition], deadline: Deadline
        ) -> Outcomes[TopicPartition, Fetched[Any, Any]]:
            assert node is not None, "a leader"
            return await self._ask(node, {each: wanted[each] for each in some}, limit, wait, deadline)

        route = ToLeaders(self._cluster, cached=True)
        found = await drive(wanted, route, ask, self._deadline(), self._cluster.backoff)
        for partition, outcome in found.items():
            if isinstance(outcome, BrokerError) and outcome.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                found[partition] = await self._out_of_range(partition, wanted[partition])
        return found

    async def _ask(
        self, node: int, offsets: Mapping[TopicPartition, int], limit: int, wait_ms: int, deadline: Deadline
    ) -> dict[TopicPartition, Fetched[Any, Any] | ClientError]:
        """One request to one broker."""
        settings = self._settings
        # A fetch waits at the broker, so it has a connection of its own.
        connection = await self._cluster.dedicated(node, deadline, "fetch")
        version = min(LAST_BY_NAME, connection.version_of(ApiKey.FETCH))
        request = fetch_request(
            {each: FetchPosition(None, offset, -1, limit) for each, offset in offsets.items()},
            version=version,
            max_bytes=settings.fetch_max_bytes,
            min_bytes=settings.fetch_min_bytes,
            max_wait_ms=wait_ms,
            isolation=settings.of_reading().isolation,
            rack_id=settings.client_rack,
        )
        answer = await connection.submit(
            request, timeout=deadline.left(settings.request_timeout), version=version
        )
        if answer.error_code:
            raise error_of(answer.error_code, f"fetching from broker {node}")
        outcomes: dict[TopicPartition, Fetched[Any, Any] | ClientError] = {}
        for topic in answer.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                if partition not in offsets:
                    continue
                if data.error_code:
                    outcomes[partition] = _refused(partition, data.error_code, offsets[partition])
                else:
                    try:
                        outcomes[partition] = self._read(partition, data, offsets[partition])
                    except (CorruptBatchError, DeserializationError) as error:
                        outcomes[partition] = error
        return outcomes

    def _read(self, partition: TopicPartition, data: Any, offset: int) -> Fetched[Any, Any]:
        """The records of a response. Raises the error of the first record, if that can't be read."""
        state = PartitionState(partition)
        state.seek(offset)
        runs: list[Rows] = []
        count = 0
        behind = offset
        if data.records:
            chunk = Chunk(state, data.records, offset, data.aborted_transactions)
            if not chunk.size:
                raise CorruptBatchError(
                    f"{partition}: the broker sent {len(data.records)} bytes at offset {offset}, which are not a whole"
                    " record batch",
                    partition,
                    offset,
                )
            try:
                while count < _AT_ONCE and self._reader.read(chunk, _AT_ONCE):
                    runs.append(chunk.take(chunk.rows.count))
                    count += runs[-1].count
                    behind = chunk.position
                behind = max(behind, chunk.offset)
            except (CorruptBatchError, DeserializationError):
                # The good records before it come first; the next fetch begins at the bad one.
                if not runs:
                    raise
        return Fetched(
            to_records(runs), behind, data.high_watermark, data.last_stable_offset, data.log_start_offset
        )

    async def _out_of_range(self, partition: TopicPartition, offset: int) -> ClientError:
        try:
            first = await self.beginning_offset(partition)
            end = await self.end_offset(partition)
        except ClientError as error:
            return error
        return OffsetOutOfRangeError(
            f"{partition} has no offset {offset}: its log has {first} to {end - 1}, and {end} is the next one",
            {partition: offset},
        )

    async def leader(self, partition: TopicPartition) -> Broker:
        """The broker that leads a partition now. Raises UnknownTopicError, BrokerError, RequestTimeoutError."""
        self._check()

        async def ask(
            node: Node, some: list[TopicPartition], deadline: Deadline
        ) -> Outcomes[TopicPartition, Broker]:
            assert node is not None, "a leader"
            gone = error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
            return dict.fromkeys(some, self._cluster.nodes.get(node, gone))

        key = TopicPartition(*partition)
        found = await drive([key], ToLeaders(self._cluster), ask, self._deadline(), self._cluster.backoff)
        outcome = found[key]
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions. Raises UnknownTopicError, which suggests similar names."""
        self._check()
        known = await self._cluster.wait_for_topic(topic, self._deadline(), grace=_JUST_MADE)
        return sorted(known.partitions)

    async def beginning_offset(self, partition: TopicPartition) -> int:
        """The first offset of a partition's log. Raises UnknownTopicError, BrokerError, RequestTimeoutError."""
        return (await self._find({partition: OffsetSpec.EARLIEST}, 0))[TopicPartition(*partition)]

    async def end_offset(self, partition: TopicPartition) -> int:
        """The offset of the next record to be written; with "read_committed", of the first that is undecided."""
        return (await self._find({partition: OffsetSpec.LATEST}, 0))[TopicPartition(*partition)]

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """The offset of the first record at a time or later; the end if there is none yet."""
        if timestamp_ms < 0:
            raise ConfigurationError(
                f"{partition}: the timestamp {timestamp_ms} is negative; use milliseconds since 1970"
            )
        return (await self._find({partition: timestamp_ms}, None))[TopicPartition(*partition)]

    async def _find(
        self, wanted: Mapping[TopicPartition, int], missing: int | None
    ) -> dict[TopicPartition, int]:
        """Offsets of times or ends; ``missing`` stands for none, None for the end."""
        self._check()
        exact = {TopicPartition(*partition): at for partition, at in wanted.items()}
        isolation = self._settings.of_reading().isolation
        found: dict[TopicPartition, OffsetAndTimestamp | None] = await find_offsets(
            self._cluster, exact, isolation, self._deadline()
        )
        offsets = {}
        for partition, each in found.items():
            if each is not None:
                offsets[partition] = each.offset
            else:
                offsets[partition] = await self.end_offset(partition) if missing is None else missing
        return offsets

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Keep the offsets of the next records to read, under the name of ``group_id``.

        Raises CommitFailedError while the group has members, which commit for themselves; GroupError,
        RequestTimeoutError; ConfigurationError without a group_id.
        """
        client = self._client()
        exact = {
            TopicPartition(*partition): OffsetAndMetadata(each) if isinstance(each, int) else each
            for partition, each in offsets.items()
        }
        await client.commit(exact, self._deadline())

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, without partitions that have none. Raises the errors of ``commit``."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        stable = self._settings.isolation_level == "read_committed"
        return await self._client().fetch(wanted, self._deadline(), require_stable=stable)

    def _client(self) -> OffsetsClient:
        self._check()
        if self._offsets is None:
            raise ConfigurationError("offsets are kept under a group's name: set group_id")
        return self._offsets


def _checked_size(max_bytes: int) -> int:
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or not 0 < max_bytes < 2**31:
        raise ConfigurationError(
            f"max_bytes is {max_bytes!r}; it must be a whole number from 1 to {2**31 - 1}"
        )
    return max_bytes


def _refused(partition: TopicPartition, number: int, offset: int) -> ClientError:
    code = error_code(number)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return UnknownTopicError(
            f"{partition} can't be read at offset {offset}: this user is not allowed to see the topic ({code.name})",
            code,
        )
    return error_of(number, f"{partition} at offset {offset}")
