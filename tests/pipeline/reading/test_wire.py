"""Reading over the wire from a scripted broker: leaders that move, logs that lose records."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest
from tests.client.base.fake import FakeBroker, Partition, Topic
from tests.pipeline.reading.logs import batch

from ottla_pipeline.reading import CorruptData, DataLoss, OffsetRange, ReadError, ReadSettings, read, wire
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla_protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.record import decode_records, rebuild_batch

QUICK = {
    "retry.backoff.ms": "1",
    "retry.backoff.max.ms": "5",
    "reconnect.backoff.ms": "1",
    "reconnect.backoff.max.ms": "5",
}
ID = UUID(bytes=b"i" * 16)


def last_offset(data: bytearray) -> int:
    """Of a batch, be it as broken as it may."""
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big")


class LogBroker(FakeBroker):
    """One partition, ``t-0``: batches of ten records from offset 0 to 99, unless a test says otherwise.

    ``faults`` are done before fetches, one each: an error code for the answer, or a function to call first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.versions |= {ApiKey.LIST_OFFSETS: (1, 8), ApiKey.OFFSET_FOR_LEADER_EPOCH: (3, 4)}
        self.answers |= {
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.epoch_end,
        }
        self.topics["t"] = Topic()
        self.log = [batch(at, 10) for at in range(0, 100, 10)]
        self.start_offset = 0
        self.aborted: list[AbortedTransaction] = []
        self.epoch_ends: dict[int, tuple[int, int]] = {}
        self.faults: list[int | Callable[[], object]] = []
        self.fetched: list[int] = []
        self.throttled = 0
        self.high_watermark: int | None = None
        self.preferred = -1
        self.most = 1 << 30

    @property
    def end(self) -> int:
        if self.high_watermark is not None:
            return self.high_watermark
        return last_offset(self.log[-1]) + 1 if self.log else self.start_offset

    def fetch(self, header: Any, request: Any) -> FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        offset = wanted.fetch_offset
        self.fetched.append(offset)
        fault = self.faults.pop(0) if self.faults else 0
        code = int(fault) if not callable(fault) else int(fault() or 0)
        data = b""
        throttled, self.throttled = self.throttled, 0
        if not code and not self.start_offset <= offset <= self.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif not code and not throttled:
            for each in self.log:
                if last_offset(each) >= offset:
                    if data and len(data) + len(each) > min(wanted.partition_max_bytes, self.most):
                        data += each[:40]
                        break
                    data += each
        answer = PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=self.end,
            last_stable_offset=self.end,
            log_start_offset=self.start_offset,
            aborted_transactions=self.aborted,
            preferred_read_replica=self.preferred,
            records=memoryview(data),
        )
        return FetchResponse(
            throttle_time_ms=throttled,
            responses=[
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[answer])
            ],
        )

    def list_offsets(self, header: Any, request: Any) -> ListOffsetsResponse:
        wanted = request.topics[0].partitions[0].timestamp
        offset = self.start_offset if wanted == -2 else self.end
        found = ListOffsetsPartitionResponse(partition_index=0, offset=offset, timestamp=-1)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

    def epoch_end(self, header: Any, request: Any) -> OffsetForLeaderEpochResponse:
        epoch = request.topics[0].partitions[0].leader_epoch
        known, end = self.epoch_ends.get(epoch, (-1, -1))
        found = EpochEndOffset(partition=0, leader_epoch=known, end_offset=end)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic="t", partitions=[found])]
        )

    async def read(self, start: int = 0, end: int = 100, **given: Any) -> list[int]:
        """The offsets that are read."""
        seen: list[int] = []
        await self.read_into(seen, start, end, **given)
        return seen

    async def read_into(self, seen: list[int], start: int, end: int, **given: Any) -> None:
        client = {**QUICK, **given.pop("client", {})}
        about = {name: given.pop(name) for name in ("topic_id", "leader_epoch", "topic") if name in given}
        wanted = OffsetRange(about.pop("topic", "t"), about.pop("topic_id", str(ID)), 0, start, end, **about)
        options = ReadSettings(self.bootstrap, client, ("offset",), **{"fetch_bytes": 500, **given})

        def run() -> None:
            for made in read(wanted, options):
                seen.extend(made.column("offset").to_pylist())

        await asyncio.to_thread(run)


@pytest.fixture
async def broker() -> AsyncIterator[LogBroker]:
    async with LogBroker() as made:
        yield made
    assert not [thread.name for thread in threading.enumerate() if thread.name == "ottla-read"]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (3, 97), (10, 20), (15, 16), (99, 100), (0, 0)])
@pytest.mark.parametrize("size", [1, 500, 1 << 20])
async def test_any_range(broker: LogBroker, start: int, end: int, size: int) -> None:
    broker.most = size
    assert await broker.read(start, end, fetch_bytes=size) == list(range(start, end))
    assert all(start <= offset < end for offset in broker.fetched)


@pytest.mark.parametrize("newest", [4, 6, 11, 12, 13, 17])
async def test_every_generation_of_brokers(broker: LogBroker, newest: int) -> None:
    broker.versions[ApiKey.FETCH] = (0, newest)
    assert await broker.read(5, 95) == list(range(5, 95))


async def test_a_broker_that_is_too_old(broker: LogBroker) -> None:
    broker.versions[ApiKey.FETCH] = (0, 3)
    with pytest.raises(ReadError, match=r"is older than 0\.11"):
        await broker.read()


async def test_topics_without_ids(broker: LogBroker) -> None:
    broker.topics["t"].id = bytes(16)
    assert await broker.read(topic_id="") == list(range(100))


TRANSIENT = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
]


@pytest.mark.parametrize("code", TRANSIENT)
async def test_what_goes_away_by_itself(broker: LogBroker, code: ErrorCode) -> None:
    broker.faults = [code, code, 0, 0, code]
    assert await broker.read(isolation="read_committed") == list(range(100))


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION])
async def test_what_does_not(broker: LogBroker, code: ErrorCode) -> None:
    broker.faults = [0, code]
    seen: list[int] = []
    with pytest.raises(ReadError, match=f"t-0: can't be read at offset [1-9]0: {code.name}"):
        await broker.read_into(seen, 0, 100)
    assert seen == list(range(len(seen)))


async def test_connections_that_break(broker: LogBroker) -> None:
    broker.faults = [0, broker.cut, 0, broker.cut, broker.cut]
    assert await broker.read() == list(range(100))


async def test_the_leader_moves(broker: LogBroker) -> None:
    async with LogBroker() as other:
        broker.nodes = other.nodes = {1: (broker.host, broker.port), 2: (other.host, other.port)}

        def move() -> ErrorCode:
            for each in (broker, other):
                each.topics["t"].partitions[0] = Partition(leader=2, epoch=1)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER

        broker.faults = [0, 0, move]
        assert await broker.read(leader_epoch=0) == list(range(100))
        assert other.fetched
        # The new leader was asked whether its log goes as far as the range does.
        assert other.asked[ApiKey.OFFSET_FOR_LEADER_EPOCH] == 1


async def test_the_nearest_replica(broker: LogBroker) -> None:
    async with LogBroker() as follower:
        broker.nodes = follower.nodes = {1: (broker.host, broker.port), 2: (follower.host, follower.port)}
        follower.topics = broker.topics
        broker.preferred = 2
        broker.log, log = [], broker.log
        broker.high_watermark = 100
        follower.log = log
        follower.faults = [0, 0, ErrorCode.OFFSET_OUT_OF_RANGE]
        broker.faults = [0, lambda: broker.log.extend(log)]
        assert await broker.read() == list(range(100))
        assert len(follower.fetched) >= 3


async def test_no_leader_for_a_while(broker: LogBroker) -> None:
    broker.topics["t"].partitions[0] = Partition(leader=-1, error=ErrorCode.LEADER_NOT_AVAILABLE)
    reading = asyncio.create_task(broker.read())
    while broker.asked[ApiKey.METADATA] < 4:
        await asyncio.sleep(0.001)
    broker.topics["t"].partitions[0] = Partition(epoch=1)
    assert await reading == list(range(100))


async def test_nobody_answers(broker: LogBroker) -> None:
    await broker.stop()
    with pytest.raises(ReadError, match="no bootstrap server answered") as caught:
        await broker.read(client={"request.timeout.ms": "50"})
    assert "\n" not in str(caught.value)


async def test_no_leader_ever(broker: LogBroker) -> None:
    broker.topics["t"].partitions[0] = Partition(leader=-1)
    with pytest.raises(
        ReadError, match=r"t-0: nothing could be read at offset 0 for 0.05 s: t-0 has no leader"
    ):
        await broker.read(client={"default.api.timeout.ms": "50"})


async def test_retention(broker: LogBroker, caplog: pytest.LogCaptureFixture) -> None:
    def trim() -> None:
        broker.start_offset = 55
        broker.log = broker.log[5:]

    broker.faults = [0, trim]
    seen: list[int] = []
    with pytest.raises(DataLoss, match=r"t-0: offsets [1-5]0 to 54 are lost \(retention\)") as caught:
        await broker.read_into(seen, 0, 100)
    assert seen == list(range(caught.value.first))
    assert await broker.read(20, 100, fail_on_data_loss=False) == list(range(55, 100))
    assert "t-0: offsets 20 to 54 are lost (retention)" in caplog.text
    assert await broker.read(20, 50, fail_on_data_loss=False) == []


async def test_truncation(broker: LogBroker) -> None:
    """The log is shorter than it was when the range was planned."""
    broker.log = broker.log[:6]
    with pytest.raises(DataLoss, match=r"t-0: offsets 60 to 99 are lost \(truncation\)"):
        await broker.read()
    with pytest.raises(DataLoss, match=r"t-0: offsets 80 to 99 are lost \(truncation\)"):
        await broker.read(80, 100)
    assert await broker.read(fail_on_data_loss=False) == list(range(60))


async def test_a_high_watermark_that_is_behind_for_a_moment(broker: LogBroker) -> None:
    """A new leader learns it a little later; the log is there."""
    log, broker.log = broker.log, []
    broker.high_watermark = 0

    def learn() -> None:
        broker.high_watermark, broker.log = None, log

    broker.answers[ApiKey.LIST_OFFSETS] = lambda header, request: ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name="t",
                partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=100, timestamp=-1)],
            )
        ]
    )
    broker.faults = [0, 0, 0, learn]
    assert await broker.read() == list(range(100))


async def test_an_older_log_came_back_and_went_on(broker: LogBroker) -> None:
    """Offsets that are there again hold other records (KIP-320)."""
    broker.topics["t"].partitions[0] = Partition(epoch=5)
    broker.epoch_ends[3] = (3, 70)
    with pytest.raises(DataLoss, match=r"t-0: offsets 70 to 99 are lost \(truncation\)"):
        await broker.read(leader_epoch=3)
    assert await broker.read(0, 70, leader_epoch=3) == list(range(70))
    assert await broker.read(leader_epoch=3, fail_on_data_loss=False) == list(range(100))
    broker.epoch_ends[3] = (2, 100)
    assert await broker.read(leader_epoch=3) == list(range(100))
    del broker.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH]
    assert await broker.read(leader_epoch=3) == list(range(100))


async def test_a_topic_made_again(broker: LogBroker) -> None:
    def again() -> ErrorCode:
        broker.topics["t"].id = b"j" * 16
        return ErrorCode.UNKNOWN_TOPIC_ID

    broker.faults = [0, again]
    seen: list[int] = []
    with pytest.raises(DataLoss, match=r"t-0: offsets [1-9]0 to 99 are lost \(recreated\)"):
        await broker.read_into(seen, 0, 100)
    assert seen == list(range(len(seen)))
    with pytest.raises(DataLoss, match=r"t-0: offsets 0 to 99 are lost \(recreated\)"):
        await broker.read()
    assert await broker.read(fail_on_data_loss=False) == []


async def test_a_topic_deleted(broker: LogBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "GONE_SECONDS", 0.05)

    def delete() -> ErrorCode:
        broker.topics.clear()
        return ErrorCode.UNKNOWN_TOPIC_ID

    broker.faults = [0, delete, *[ErrorCode.UNKNOWN_TOPIC_ID] * 1000]
    with pytest.raises(DataLoss, match=r"t-0: offsets [1-9]0 to 99 are lost \(deletion\)"):
        await broker.read()
    broker.faults = []
    assert await broker.read(fail_on_data_loss=False) == []


async def test_a_topic_with_fewer_partitions(broker: LogBroker) -> None:
    broker.topics["t"].partitions = {1: Partition()}
    with pytest.raises(DataLoss, match=r"t-0: offsets 0 to 99 are lost \(deletion\)"):
        await broker.read()


async def test_a_topic_that_is_not_known_yet(broker: LogBroker) -> None:
    topics, broker.topics = broker.topics, {}
    reading = asyncio.create_task(broker.read())
    while broker.asked[ApiKey.METADATA] < 4:
        await asyncio.sleep(0.001)
    broker.topics = topics
    assert await reading == list(range(100))


async def test_compacted_batches(broker: LogBroker) -> None:
    for row in (0, 4, 9):
        records = decode_records(broker.log[row])
        broker.log[row] = rebuild_batch(read_header(broker.log[row]), records[3:5])
    del broker.log[6]
    expected = [
        each
        for each in range(100)
        if not 60 <= each < 70 and (each // 10 not in (0, 4, 9) or each % 10 in (3, 4))
    ]
    assert await broker.read() == expected


async def test_nothing_is_left_at_the_end(broker: LogBroker) -> None:
    """Compaction took the last records, so answers stay empty though the log goes on."""
    broker.log = broker.log[:5]
    broker.high_watermark = 100
    assert await broker.read() == list(range(50))


async def test_a_broker_that_holds_back(broker: LogBroker) -> None:
    """An answer without records for a quota's sake doesn't mean that there are none."""

    def hold() -> None:
        broker.throttled = 1

    broker.faults = [0, hold, hold, hold, 0]
    assert await broker.read() == list(range(100))


async def test_aborted_transactions(broker: LogBroker) -> None:
    mine = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    broker.log[2] = batch(20, 10, **mine)
    broker.log[3] = batch(30, 10, **mine)
    broker.log[4] = encode_transaction_marker(
        commit=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=0, base_offset=40
    )
    broker.log[5] = batch(50, 10, **mine)
    broker.aborted = [AbortedTransaction(producer_id=7, first_offset=20)]
    there = [each for each in range(100) if not 40 <= each < 50]
    assert await broker.read() == there
    committed = [each for each in there if not 20 <= each < 40]
    assert await broker.read(isolation="read_committed", fetch_bytes=1 << 20) == committed
    broker.log[4][-1] ^= 1
    with pytest.raises(CorruptData, match="checksum of a transaction's marker"):
        await broker.read(isolation="read_committed", fetch_bytes=1 << 20)


async def test_corrupt_batches(broker: LogBroker) -> None:
    broker.log[3][-1] ^= 1
    seen: list[int] = []
    with pytest.raises(CorruptData, match="t-0: the record batch at offset 30 can't be read: its checksum"):
        await broker.read_into(seen, 0, 100)
    assert seen == list(range(30))
    broker.log[3][16] = 3
    with pytest.raises(CorruptData, match=r"at offset 30 .*magic"):
        await broker.read(fetch_bytes=1 << 20)


async def test_every_byte_that_changes(broker: LogBroker) -> None:
    """A flipped bit anywhere in a response never gives wrong records, only errors."""
    good = broker.log = [batch(at, 2) for at in range(0, 6, 2)]
    for row in range(3):
        for at in range(len(good[row])):
            broker.log = [bytearray(each) for each in good]
            broker.log[row][at] ^= 1 << at % 8
            broker.high_watermark = 6
            seen: list[int] = []
            try:
                await broker.read_into(
                    seen, 0, 6, fetch_bytes=1 << 20, client={"default.api.timeout.ms": "200"}
                )
            except ReadError:
                continue
            assert seen == list(range(6)), (row, at)


async def test_a_broker_that_finds_its_log_corrupt(broker: LogBroker) -> None:
    broker.faults = [0, ErrorCode.CORRUPT_MESSAGE]
    with pytest.raises(CorruptData, match="the broker says that its log is corrupt"):
        await broker.read()


@pytest.mark.parametrize("size", [1, 30, 60, 61, 200])
async def test_less_than_a_batch(broker: LogBroker, size: int) -> None:
    broker.log[0] = broker.log[0][:size]
    broker.answers[ApiKey.FETCH] = lambda header, request: FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=request.topics[0].topic,
                topic_id=request.topics[0].topic_id,
                partitions=[PartitionData(high_watermark=100, records=memoryview(broker.log[0]))],
            )
        ]
    )
    with pytest.raises(CorruptData, match="t-0: the record batch at offset 0 can't be read"):
        await broker.read()


async def test_a_broker_that_sends_what_was_read(broker: LogBroker) -> None:
    """It would be asked for ever."""
    usual = broker.fetch

    def again(header: Any, request: Any) -> Any:
        request.topics[0].partitions[0].fetch_offset = 0
        return usual(header, request)

    broker.answers[ApiKey.FETCH] = again
    broker.most = 1
    with pytest.raises(CorruptData, match="the broker sent batches up to 9 only"):
        await broker.read(20, 100)


async def test_a_reader_that_is_not_finished(broker: LogBroker) -> None:
    wanted = OffsetRange("t", str(ID), 0, 0, 100)

    def begin() -> int:
        reading = read(wanted, ReadSettings(broker.bootstrap, QUICK, ("offset",), fetch_bytes=100))
        rows: int = next(reading).num_rows
        reading.close()  # type: ignore[attr-defined]
        return rows

    assert await asyncio.to_thread(begin) == 10
    while broker.open_now:
        await asyncio.sleep(0.001)


async def test_no_more_is_fetched_than_needed(broker: LogBroker) -> None:
    broker.log = [batch(at, 10, size=1000) for at in range(0, 1000, 10)]
    sizes: list[int] = []

    def note(header: Any, request: Any) -> Any:
        sizes.append(request.topics[0].partitions[0].partition_max_bytes)
        return LogBroker.fetch(broker, header, request)

    broker.answers[ApiKey.FETCH] = note
    assert await broker.read(0, 300, fetch_bytes=100_000) == list(range(300))
    assert sizes[0] == 100_000
    assert await broker.read(0, 10, fetch_bytes=1 << 30) == list(range(10))
    assert sizes[-1] == wire.FIRST_BYTES


def test_who_is_to_get_corrupt_batches() -> None:
    with pytest.raises(ReadError, match="onCorrupt=deadletter needs a function"):
        next(read(OffsetRange("t", "", 0, 0, 1), ReadSettings("127.0.0.1:1", on_corrupt="deadletter")))
