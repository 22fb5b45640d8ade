"""One partition of a share group, and the broker that leads it, without sockets: for what goes wrong in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.client.consumer.chunks import batch

from ottla_client import TopicPartition
from ottla_client.cluster import Backoff
from ottla_client.errors import ConnectionLostError
from ottla_client.types import TopicMetadata
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import share_acknowledge, share_fetch
from ottla_protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla_protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

TOPIC, TOPIC_ID = "t", bytes(range(16))
PARTITION = TopicPartition(TOPIC, 0)
_BATCH = 5
_FINAL = {1: "accepted", 3: "rejected"}


@dataclass
class SharePartition:
    """The states of records: available, acquired, or what became of them."""

    count: int
    states: dict[int, str] = field(init=False)
    deliveries: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.states = dict.fromkeys(range(self.count), "available")
        self.deliveries = dict.fromkeys(range(self.count), 0)
        self.applied: list[tuple[int, int]] = []

    @property
    def is_done(self) -> bool:
        return all(state in _FINAL.values() for state in self.states.values())

    def release(self) -> None:
        for offset, state in self.states.items():
            if state == "acquired":
                self.states[offset] = "available"

    def acquire(self) -> tuple[bytes, list[share_fetch.AcquiredRecords]]:
        """What is available of the first batch that has any, and the batch."""
        free = next((offset for offset, state in self.states.items() if state == "available"), None)
        if free is None:
            return b"", []
        base = free - free % _BATCH
        acquired = []
        for offset in range(base, base + _BATCH):
            if self.states[offset] == "available":
                self.states[offset] = "acquired"
                self.deliveries[offset] += 1
                acquired.append(
                    share_fetch.AcquiredRecords(
                        first_offset=offset, last_offset=offset, delivery_count=self.deliveries[offset]
                    )
                )
        return batch(base, _BATCH), acquired

    def acknowledge(self, batches: list[Any]) -> int:
        """All of them or none, as brokers do; returns an error code."""
        kinds: dict[int, int] = {}
        last = -1
        for each in batches:
            assert each.first_offset > last, "out of order"
            last = each.last_offset
            for offset in range(each.first_offset, last + 1):
                kinds[offset] = each.acknowledge_types[0]
        if any(self.states[offset] != "acquired" for offset in kinds):
            return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in kinds.items():
            self.states[offset] = _FINAL.get(kind, "available")
            self.applied.append((offset, kind))
        return 0


class FakeConnection:
    """A connection, and the share session that ends with it."""

    host, port = "fake", 9092

    def __init__(self, broker: FakeShareBroker) -> None:
        self.closed = False
        self._broker = broker
        self.epoch: int | None = None

    def submit(self, request: Any, *, timeout: float) -> asyncio.Future[Any]:
        assert not self.closed
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        loop.call_soon(self._broker.serve, self, request, future)
        return future

    def lose(self) -> None:
        """The connection breaks: the session ends, and what it has acquired is released."""
        self.closed = True
        self.epoch = None
        self._broker.partition.release()


class FakeShareBroker:
    """``chance`` decides what goes wrong.

    Connections break before or after a request is served, sessions and locks end,
    and acknowledgements can't be persisted for a while.
    """

    def __init__(self, partition: SharePartition, chance: random.Random | None) -> None:
        self.partition = partition
        self.chance = chance
        self.requests = 0
        self.connection: FakeConnection | None = None
        self.defects: list[AssertionError] = []
        """What it has found wrong with requests."""

    def _goes_wrong(self, share: float = 0.06) -> bool:
        return self.chance is not None and self.chance.random() < share

    def serve(self, connection: FakeConnection, request: Any, future: asyncio.Future[Any]) -> None:
        self.requests += 1
        lost = ConnectionLostError("the fake connection broke")
        if self._goes_wrong():
            connection.lose()
        elif self._goes_wrong():
            connection.epoch = None
            self.partition.release()  # the broker has started again
        elif self._goes_wrong():
            self.partition.release()  # locks have timed out
        if connection.closed:
            self._fail(future, lost)
            return
        is_fetch = isinstance(request, ShareFetchRequest)
        try:
            self._enter(connection, request)
            answer = self._fetch(request) if is_fetch else self._acknowledge(request)
        except AssertionError as error:
            self.defects.append(error)
            connection.lose()
            self._fail(future, lost)
            return
        except KafkaError as error:
            answer = (ShareFetchResponse if is_fetch else ShareAcknowledgeResponse)(error_code=error.code)
        if request.share_session_epoch == -1:
            self.partition.release()
            connection.epoch = None
        if self._goes_wrong():
            connection.lose()
            self._fail(future, lost)
        elif not future.done():
            future.set_result(answer)

    @staticmethod
    def _fail(future: asyncio.Future[Any], error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    def _enter(self, connection: FakeConnection, request: Any) -> None:
        assert len(request.member_id) == 22
        assert request.group_id == "g"
        epoch = request.share_session_epoch
        if epoch == 0:
            assert isinstance(request, ShareFetchRequest)
            assert not any(
                each.acknowledgement_batches for topic in request.topics for each in topic.partitions
            )
            self.partition.release()
        elif connection.epoch is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        elif epoch not in (-1, connection.epoch):
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        connection.epoch = epoch + 1

    def _settle(self, request: Any) -> dict[int, int]:
        results = {}
        for topic in request.topics:
            assert topic.topic_id == TOPIC_ID
            for each in topic.partitions:
                if not each.acknowledgement_batches:
                    continue
                if self._goes_wrong():
                    results[each.partition_index] = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                else:
                    results[each.partition_index] = self.partition.acknowledge(each.acknowledgement_batches)
        return results

    def _fetch(self, request: ShareFetchRequest) -> ShareFetchResponse:
        results = self._settle(request)
        records, acquired = self.partition.acquire()
        if not acquired and not results:
            return ShareFetchResponse(acquisition_lock_timeout_ms=30_000)
        data = share_fetch.PartitionData(
            acknowledge_error_code=results.get(0, 0), records=records, acquired_records=acquired
        )
        topic = share_fetch.ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
        return ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=[topic])

    def _acknowledge(self, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
        partitions = [
            share_acknowledge.PartitionData(partition_index=index, error_code=code)
            for index, code in self._settle(request).items()
        ]
        topic = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=partitions)
        return ShareAcknowledgeResponse(responses=[topic])


class FakeCluster:
    """A cluster of one broker, of which ``connect`` makes connections."""

    def __init__(self, broker: FakeShareBroker) -> None:
        self.backoff = Backoff(0.0001, 0.001)
        self._broker = broker
        self.connection_count = 1

    async def dedicated(self, node: int, deadline: object, purpose: str) -> FakeConnection:
        await asyncio.sleep(0)
        connection = self._broker.connection
        if connection is None or connection.closed:
            connection = self._broker.connection = FakeConnection(self._broker)
        return connection

    def leader(self, topic: str, partition: int) -> int:
        return 1

    def topic(self, name: str) -> TopicMetadata:
        return TopicMetadata(name, TOPIC_ID)

    def stale(self, topic: str | None = None) -> None: ...
    def interest(self, names: object) -> None: ...
    def disinterest(self, names: object) -> None: ...
    async def start(self, deadline: object) -> None: ...
    async def close(self) -> None: ...
    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class FakeMember:
    """Has been assigned the partition."""

    assignment = frozenset({PARTITION})

    def polled(self) -> None: ...
    async def close(self, deadline: object) -> None: ...
