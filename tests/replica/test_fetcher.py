"""A follower's fetcher against a leader whose answers the test chooses."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.replica.world import TOPIC, TOPIC_ID, open_log
from tests.support.clock import FakeClock

from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.fetcher import Fetcher, FetcherSettings
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla_protocol.records.batch import assign_offset
from ottla_protocol.records.record import encode_batch

ME, LEADER = 2, 1
BACKOFF = 5.0


class Link:
    """A connection whose requests the test answers one by one."""

    def __init__(self, version: int = 17) -> None:
        self.version = version
        self.closed = False
        self.requests: list[tuple[Any, asyncio.Future[Any]]] = []

    def version_of(self, api_key: int) -> int:
        return self.version

    def submit(self, request: Any, *, timeout: float, version: int | None = None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.requests.append((request, future))
        return future

    def close(self) -> None:
        self.closed = True
        for _, future in self.requests:
            if not future.done():
                future.set_exception(ConnectionError("closed"))


class Bench:
    """A fetcher, what it follows, and the leader's end of its connections."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.links: list[Link] = []
        self.version = 17
        self.refuse = False
        self.disk_errors: list[KafkaError] = []
        self.fetcher = Fetcher(
            LEADER,
            ME,
            lambda: 77,
            self._connect,
            FetcherSettings(backoff_ms=int(BACKOFF * 1000)),
            self.clock,
            lambda _, error: self.disk_errors.append(error),
        )

    async def _connect(self, broker_id: int) -> Link:
        if self.refuse:
            raise ConnectionError("refused")
        self.links.append(Link(self.version))
        return self.links[-1]

    def follow(self, index: int = 0, epoch: int = 5, records: int = 0) -> Partition:
        log = open_log(self.folder / f"{TOPIC}-{index}", self.clock, index=index)
        for number in range(records):
            log.append_as_follower(batch(number, epoch=3))
        logs: Any = SimpleNamespace(get=lambda *_: log, high_watermark=lambda *_: 0)
        partition = Partition(TOPIC, index, TOPIC_ID, ReplicaEnvironment(ME, logs, self.clock, 10.0))
        partition.follow(LeaderState(1, LEADER, epoch, [LEADER, ME], 0, [LEADER, ME]))
        self.fetcher.add(partition)
        return partition

    async def turn(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def asked(self) -> Any:
        """The request that waits for an answer; None without one."""
        await self.turn()
        waiting = [request for link in self.links for request, future in link.requests if not future.done()]
        assert len(waiting) < 2
        return waiting[0] if waiting else None

    async def answer(self, response: Any) -> None:
        for link in self.links:
            for _, future in link.requests:
                if not future.done():
                    future.set_result(response)
        await self.turn()

    async def rested(self) -> None:
        """End the pause after an error."""
        self.clock.time += BACKOFF + 0.001
        self.fetcher._changed.set()
        await self.turn()


def batch(offset: int, *, epoch: int = 5, count: int = 1) -> bytearray:
    made = encode_batch([(1, b"k", b"v%d" % (offset + i), ()) for i in range(count)])
    assign_offset(memoryview(made), 0, offset, epoch)
    return made


def fetched(index: int = 0, **fields: Any) -> FetchResponse:
    data = PartitionData(
        **{"partition_index": index, "records": memoryview(b""), "log_start_offset": 0, **fields}
    )
    return FetchResponse(
        responses=[FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[data])]
    )


def offset_answer(offset: int, error: int = 0) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(partition_index=0, offset=offset, error_code=error)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])])


def only(request: FetchRequest) -> Any:
    ((asked,),) = ([p for t in request.topics for p in t.partitions],)
    return asked


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.fetcher.close()


async def test_records_are_appended_and_acknowledged_by_the_next_fetch(bench: Bench) -> None:
    partition = bench.follow()
    request = await bench.asked()
    assert (request.replica_id, request.replica_state.replica_id, request.replica_state.replica_epoch) == (
        -1,
        ME,
        77,
    )
    asked = only(request)
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (0, -1, 5)
    await bench.answer(fetched(records=memoryview(batch(0, count=3)), high_watermark=2))
    assert (partition.log.log_end_offset, partition.high_watermark) == (3, 2)
    asked = only(await bench.asked())
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (3, 5, 0)
    # The high watermark may be above this log's end; the log's start is adopted.
    await bench.answer(fetched(high_watermark=9, log_start_offset=2))
    assert (partition.high_watermark, partition.log.log_start_offset) == (3, 2)


async def test_an_older_leader_gets_topic_names_and_the_old_fields(bench: Bench) -> None:
    bench.version = 12
    bench.follow()
    request = await bench.asked()
    assert request.replica_id == ME
    assert request.replica_state.replica_id == -1
    assert request.topics[0].topic == TOPIC


async def test_a_leader_that_is_too_old_is_not_followed(bench: Bench) -> None:
    bench.version = 11
    bench.follow()
    assert await bench.asked() is None


async def test_diverging_logs_are_truncated_to_where_both_agree(bench: Bench) -> None:
    partition = bench.follow(records=6)
    assert only(await bench.asked()).fetch_offset == 6
    diverging = EpochEndOffset(epoch=3, end_offset=4)
    await bench.answer(fetched(diverging_epoch=diverging, high_watermark=2))
    assert partition.log.log_end_offset == 4
    assert only(await bench.asked()).fetch_offset == 4


async def test_an_epoch_without_records_does_not_diverge_for_ever(bench: Bench) -> None:
    partition = bench.follow(records=2)
    partition.log.epochs.assign(4, 2)  # this broker led in epoch 4, and was replaced before it wrote a record
    bench.fetcher.add(partition)
    await bench.answer(fetched())
    assert only(await bench.asked()).last_fetched_epoch == 4
    await bench.answer(fetched(diverging_epoch=EpochEndOffset(epoch=3, end_offset=2)))
    assert partition.log.log_end_offset == 2
    assert only(await bench.asked()).last_fetched_epoch == 3


async def test_a_leader_that_contradicts_itself_gets_pauses(bench: Bench) -> None:
    bench.follow(records=2)
    await bench.asked()
    await bench.answer(fetched(diverging_epoch=EpochEndOffset(epoch=3, end_offset=9)))
    assert await bench.asked() is None
    await bench.rested()
    assert await bench.asked() is not None


async def test_a_leader_with_a_shorter_log(bench: Bench) -> None:
    partition = bench.follow(records=5)
    await bench.asked()
    await bench.answer(fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    request = await bench.asked()
    assert isinstance(request, ListOffsetsRequest)
    assert (request.replica_id, request.topics[0].partitions[0].timestamp) == (ME, -1)
    await bench.answer(offset_answer(3))
    assert partition.log.log_end_offset == 3
    assert only(await bench.asked()).fetch_offset == 3


async def test_a_leader_whose_log_starts_above_the_followers_end(bench: Bench) -> None:
    partition = bench.follow(records=2)
    await bench.asked()
    await bench.answer(fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    await bench.asked()
    await bench.answer(offset_answer(50))
    request = await bench.asked()
    assert request.topics[0].partitions[0].timestamp == -2
    await bench.answer(offset_answer(40))
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (40, 40)
    assert only(await bench.asked()).fetch_offset == 40


async def test_a_log_that_starts_in_the_middle_of_a_batch(bench: Bench) -> None:
    partition = bench.follow()
    partition.restart_at(7)
    await bench.answer(fetched())
    await bench.asked()
    await bench.answer(fetched(records=memoryview(batch(5, count=4)), high_watermark=9, log_start_offset=7))
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (7, 9)


@pytest.mark.parametrize(
    "code",
    [
        c
        for c in ErrorCode
        if c not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.FENCED_LEADER_EPOCH)
    ],
)
async def test_after_an_error_only_that_partition_pauses(code: ErrorCode, bench: Bench) -> None:
    bench.follow(0)
    bench.follow(1)
    request = await bench.asked()
    assert [p.partition for p in request.topics[0].partitions] == [0, 1]
    await bench.answer(fetched(1, error_code=code))
    request = await bench.asked()
    assert [p.partition for p in request.topics[0].partitions] == [0]
    await bench.rested()
    await bench.answer(fetched(0))
    request = await bench.asked()
    assert [p.partition for p in request.topics[0].partitions] == [0, 1]


async def test_pauses_double_while_a_leader_does_not_know_the_partition(bench: Bench) -> None:
    bench.follow(0)
    bench.follow(1)
    assert (await bench.asked()).max_wait_ms == 500
    for rest in (10, 20, 40):
        await bench.answer(fetched(1, error_code=ErrorCode.UNKNOWN_TOPIC_ID))
        request = await bench.asked()
        assert [p.partition for p in request.topics[0].partitions] == [0]
        assert request.max_wait_ms == rest, "the other's fetch doesn't delay it"
        bench.clock.time += rest / 1000 + 0.0001
        await bench.answer(fetched(0))
        request = await bench.asked()
        assert [p.partition for p in request.topics[0].partitions] == [0, 1]
    await bench.answer(fetched(1))
    await bench.asked()
    await bench.answer(fetched(1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (await bench.asked()).max_wait_ms == 10, "it had heard meanwhile"


async def test_a_partition_removed_while_the_connection_opens(bench: Bench) -> None:
    bench.follow(0)
    bench.follow(1)
    opened = asyncio.Event()
    connect = bench.fetcher._connect

    async def slowly(broker_id: int) -> Any:
        await opened.wait()
        return await connect(broker_id)

    bench.fetcher._connect = slowly
    await bench.turn()
    bench.fetcher.remove((TOPIC, 1))
    opened.set()
    assert (await bench.asked()).max_wait_ms == 500


async def test_a_pause_is_never_longer_than_the_backoff(bench: Bench) -> None:
    bench.follow()
    for _ in range(20):
        assert await bench.asked() is not None
        await bench.answer(fetched(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH))
        await bench.rested()


async def test_a_fenced_follower_waits_for_the_controller(bench: Bench) -> None:
    partition = bench.follow()
    await bench.asked()
    await bench.answer(fetched(error_code=ErrorCode.FENCED_LEADER_EPOCH))
    await bench.rested()
    assert await bench.asked() is None
    partition.follow(LeaderState(1, LEADER, 6, [LEADER, ME], 1, [LEADER, ME]))
    bench.fetcher.add(partition)
    assert only(await bench.asked()).current_leader_epoch == 6


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
async def test_a_lost_session_is_replaced_at_once(code: ErrorCode, bench: Bench) -> None:
    bench.follow()
    assert (await bench.asked()).session_epoch == 0
    opened = fetched()
    opened.session_id = 9
    await bench.answer(opened)
    request = await bench.asked()
    assert (request.session_id, request.session_epoch, request.topics) == (9, 1, [])
    await bench.answer(FetchResponse(error_code=code, responses=[]))
    request = await bench.asked()
    assert (request.session_epoch, only(request).fetch_offset) == (0, 0)


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_an_error_of_the_whole_request(code: ErrorCode, bench: Bench) -> None:
    bench.follow()
    await bench.asked()
    await bench.answer(FetchResponse(error_code=code, responses=[]))
    assert await bench.asked() is None
    await bench.rested()
    assert await bench.asked() is not None


async def test_an_answer_about_other_partitions_is_refused(bench: Bench) -> None:
    partition = bench.follow()
    await bench.asked()
    await bench.answer(fetched(7, records=memoryview(batch(0))))
    assert partition.log.log_end_offset == 0
    await bench.rested()
    assert (await bench.asked()).session_epoch == 0


async def test_an_answer_from_another_epoch_is_ignored(bench: Bench) -> None:
    partition = bench.follow()
    await bench.asked()
    partition.follow(LeaderState(1, LEADER, 6, [LEADER, ME], 1, [LEADER, ME]))
    await bench.answer(fetched(records=memoryview(batch(0))))
    assert partition.log.log_end_offset == 0


async def test_records_that_are_damaged_or_not_new_are_refused(bench: Bench) -> None:
    partition = bench.follow(records=3)
    await bench.asked()
    damaged = batch(3)
    damaged[-1] ^= 1
    for bad in (damaged, batch(1)):
        await bench.answer(fetched(records=memoryview(bad)))
        assert partition.log.log_end_offset == 3
        assert await bench.asked() is None
        await bench.rested()
        assert only(await bench.asked()).fetch_offset == 3
    await bench.answer(fetched(records=memoryview(batch(3))))
    assert partition.log.log_end_offset == 4


async def test_a_partial_last_batch_is_left_for_the_next_fetch(bench: Bench) -> None:
    partition = bench.follow()
    await bench.asked()
    both = batch(0) + batch(1)
    await bench.answer(fetched(records=memoryview(both)[:-5]))
    assert partition.log.log_end_offset == 1


async def test_an_added_partition_does_not_wait_behind_a_fetch(bench: Bench) -> None:
    bench.follow(0)
    assert await bench.asked() is not None
    bench.follow(1)
    bench.fetcher.hurry()
    request = await bench.asked()
    assert [p.partition for p in request.topics[0].partitions] == [0, 1]
    assert [link.closed for link in bench.links] == [True, False]
    bench.fetcher.hurry()
    await bench.turn()
    assert len(bench.links) == 2, "nothing was added since"


async def test_a_broken_connection_is_opened_again_after_a_pause(bench: Bench) -> None:
    bench.follow()
    await bench.asked()
    bench.refuse = True
    bench.links[0].close()
    assert await bench.asked() is None
    bench.refuse = False
    bench.fetcher._changed.set()
    assert (await bench.asked()).session_epoch == 0
    assert len(bench.links) == 2


async def test_a_failed_disk_is_reported_and_the_others_go_on(bench: Bench) -> None:
    partition = bench.follow(0)
    bench.follow(1)
    await bench.asked()
    partition.log.fail("the disk is gone")
    await bench.answer(fetched(0, records=memoryview(batch(0))))
    assert [error.code for error in bench.disk_errors] == [ErrorCode.KAFKA_STORAGE_ERROR]
    request = await bench.asked()
    assert [p.partition for p in request.topics[0].partitions] == [1]
    assert len(bench.fetcher) == 1


async def test_an_outage_is_logged_once_and_so_is_its_end(bench: Bench, events_log: io.StringIO) -> None:
    bench.refuse = True
    bench.follow()
    for _ in range(5):
        await bench.rested()
    assert events_log.getvalue().count("fetching from a leader failed") == 1
    bench.refuse = False
    await bench.rested()
    await bench.answer(fetched())
    await bench.answer(fetched())
    assert events_log.getvalue().count("fetched from again") == 1


async def test_a_truncation_that_removes_nothing_is_not_logged(bench: Bench, events_log: io.StringIO) -> None:
    partition = bench.follow(records=3)
    await bench.asked()
    await bench.answer(fetched(diverging_epoch=EpochEndOffset(epoch=3, end_offset=7)))
    assert partition.log.log_end_offset == 3
    assert "differs" not in events_log.getvalue()
    await bench.rested()
    await bench.answer(fetched(diverging_epoch=EpochEndOffset(epoch=3, end_offset=2)))
    assert partition.log.log_end_offset == 2
    assert "differs" in events_log.getvalue()
