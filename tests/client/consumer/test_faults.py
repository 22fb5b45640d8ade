"""Brokers that die, topics that are deleted, responses with errors: no record is lost, and errors say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.base.conftest import client_tasks, sockets
from tests.client.base.conftest import until as soon
from tests.client.base.fake import FakeBroker, Topic
from tests.client.base.test_cancel import CancelAt
from tests.client.consumer.chunks import aborted, batch, marker
from tests.client.consumer.conftest import QUICK, delete_topic, numbered, offsets, put, take, tp
from tests.support.topics import create_topic

from ottla_client import Consumer
from ottla_client.cluster import Backoff
from ottla_client.errors import (
    BrokerError,
    CorruptBatchError,
    LogTruncatedError,
    NotABrokerError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UnsupportedApiError,
)
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
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

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

New = Callable[..., Any]


# ---- with a real broker


async def test_a_broker_that_is_killed_and_comes_back(own_broker: New) -> None:
    broker = own_broker()
    create_topic(broker, "t", 2)
    for partition in range(2):
        put(broker, "t", numbered(300), partition)
    async with Consumer(
        "t", bootstrap_servers=broker.bootstrap, group_id="g", max_poll_records=7, **QUICK
    ) as consumer:
        seen = await take(consumer, 20)
        broker.kill()
        for _ in range(5):
            seen += await consumer.poll(100)
        broker.start()
        for partition in range(2):
            put(broker, "t", numbered(50, 300), partition)
        seen += await take(consumer, 700 - len(seen), 30)
    assert sorted((record.partition, record.offset) for record in seen) == [
        (partition, offset) for partition in range(2) for offset in range(350)
    ]


async def test_a_deleted_topic_is_named_and_others_are_read_on(
    broker: BrokerProcess, new_topic: New, new_consumer: New
) -> None:
    gone, stays = new_topic(), new_topic()
    put(broker, gone, numbered(3))
    consumer = await new_consumer(gone, stays)
    assert len(await take(consumer, 3)) == 3
    delete_topic(broker, gone)
    with pytest.raises(UnknownTopicError, match=f"'{gone}' has been deleted"):
        await take(consumer, 1)
    put(broker, stays, numbered(2))
    assert {record.topic for record in await take(consumer, 2)} == {stays}
    create_topic(broker, gone)
    put(broker, gone, [b"again"])
    assert [(record.offset, record.value) for record in await take(consumer, 1)] == [(0, b"again")]


async def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    broker: BrokerProcess, new_topic: New, new_consumer: New
) -> None:
    topic = new_topic()
    put(broker, topic, numbered(5))
    consumer = await new_consumer(topic, auto_offset_reset="latest")
    await consumer.poll(0)
    async with asyncio.timeout(60):
        while not consumer.assignment():
            await asyncio.sleep(0.01)
    await consumer.seek_to_beginning()
    assert len(await take(consumer, 5)) == 5
    delete_topic(broker, topic)
    create_topic(broker, topic)
    put(broker, topic, [b"new %d" % number for number in range(8)])
    assert [record.value for record in await take(consumer, 8)] == [b"new %d" % number for number in range(8)]


# ---- with a broker that says what the test wants


class Script:
    """A partition of the fake broker: its batches, and errors that come before them."""

    def __init__(self, fake: FakeBroker) -> None:
        self.fake = fake
        self.batches: list[tuple[int, bytes]] = []
        self.errors: list[int] = []
        self.start = 0
        self.transactions: list[Any] = []
        self.epoch_end: tuple[int, int] = (0, 0)
        self.fetched: list[Any] = []
        self.preferred = -1
        fake.topics["t"] = Topic()
        fake.versions[ApiKey.LIST_OFFSETS] = (1, 7)
        fake.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (0, 4)
        fake.answers[ApiKey.FETCH] = self._fetch
        fake.answers[ApiKey.LIST_OFFSETS] = self._offsets
        fake.answers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = self._epochs

    @property
    def end(self) -> int:
        return max((base + 10 for base, _ in self.batches), default=0)

    def write(self, count: int = 1, **options: Any) -> None:
        for _ in range(count):
            self.batches.append((self.end, batch(self.end, 10, **options)))

    def _fetch(self, header: Any, request: Any) -> FetchResponse | None:
        self.fetched.append(request)
        data = PartitionData(high_watermark=self.end, last_stable_offset=self.end)
        if request.topics:
            self.wanted = request.topics[0].partitions[0]
        if self.errors:
            code = self.errors.pop(0)
            if code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
                return FetchResponse(error_code=code)
            data.error_code = code
        elif self.preferred >= 0:
            data.preferred_read_replica = self.preferred
        else:
            offset = self.wanted.fetch_offset
            found = b"".join(each for base, each in self.batches if base + 10 > offset)
            if not self.start <= offset <= self.end:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            elif not found:
                return None if request.max_wait_ms else FetchResponse()
            data.records = found[:400]
            data.aborted_transactions = self.transactions
        topic = FetchableTopicResponse(topic="t", topic_id=self.fake.topics["t"].id, partitions=[data])
        return FetchResponse(responses=[topic])

    def _offsets(self, header: Any, request: Any) -> ListOffsetsResponse:
        (wanted,) = request.topics[0].partitions
        answer = ListOffsetsPartitionResponse(offset=self.start if wanted.timestamp == -2 else self.end)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])

    def _epochs(self, header: Any, request: Any) -> OffsetForLeaderEpochResponse:
        epoch, end = self.epoch_end
        answer = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic="t", partitions=[answer])]
        )


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
def script(fake: FakeBroker) -> Script:
    return Script(fake)


def consumer_of(fake: FakeBroker, **options: Any) -> Consumer:
    return Consumer("t", bootstrap_servers=fake.bootstrap, **{**QUICK, **options})


PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
]


@pytest.mark.parametrize("code", PASSING, ids=lambda code: code.name)
async def test_retriable_errors(fake: FakeBroker, script: Script, code: ErrorCode) -> None:
    script.write(5)
    script.errors = [code, code]
    async with consumer_of(fake) as consumer:
        assert offsets(await take(consumer, 50)) == list(range(50))
    assert not script.errors


async def test_a_broker_that_refuses_every_session_is_asked_ever_less_often(
    fake: FakeBroker, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []
    after = Backoff.after

    def recorded(self: Backoff, failures: int) -> float:
        if failures:
            pauses.append(failures)
        return after(self, failures)

    monkeypatch.setattr(Backoff, "after", recorded)
    script.write(5)
    script.errors = [int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)] * 5
    async with consumer_of(fake) as consumer:
        assert offsets(await take(consumer, 50)) == list(range(50))
    # The first error needs no pause, the second the shortest, which the metadata's refresh asks for as well.
    assert [count for count in pauses if count > 1] == [2, 3, 4]


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE])
async def test_permanent_errors(fake: FakeBroker, script: Script, code: ErrorCode) -> None:
    script.write(5)
    script.errors = [code]
    async with consumer_of(fake) as consumer:
        for _ in range(2):
            with pytest.raises(BrokerError, match=code.name) as caught:
                await consumer.poll(10_000)
            assert caught.value.code == code
        consumer.seek(tp("t"), 20)
        assert offsets(await take(consumer, 30)) == list(range(20, 50))


async def test_the_version_without_topic_ids(fake: FakeBroker, script: Script) -> None:
    fake.versions[ApiKey.FETCH] = (4, 6)
    script.write(5)
    async with consumer_of(fake) as consumer:
        assert offsets(await take(consumer, 50)) == list(range(50))
    assert {(each.session_id, each.session_epoch) for each in script.fetched} == {(0, -1)}


async def test_a_broker_that_is_too_old(fake: FakeBroker, script: Script) -> None:
    fake.versions[ApiKey.FETCH] = (0, 3)
    async with consumer_of(fake) as consumer:
        with pytest.raises(UnsupportedApiError):
            await consumer.poll(10_000)


async def test_aborted_records_are_left_out(fake: FakeBroker, script: Script) -> None:
    script.write(1, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    script.batches.append((10, marker(10, 4, commit=False)))
    script.batches.append((20, batch(20, 10)))
    script.transactions = aborted((4, 0))
    async with consumer_of(fake, isolation_level="read_committed") as consumer:
        assert offsets(await take(consumer, 10)) == list(range(20, 30))
    assert {each.isolation_level for each in script.fetched} == {1}


async def test_a_damaged_batch(fake: FakeBroker, script: Script) -> None:
    script.write(3)
    base, good = script.batches[1]
    script.batches[1] = (base, good[:-1] + b"?")
    async with consumer_of(fake) as consumer:
        assert offsets(await take(consumer, 10)) == list(range(10))
        with pytest.raises(CorruptBatchError) as caught:
            await consumer.poll(10_000)
        assert (caught.value.partition, caught.value.offset, caught.value.next_offset) == (tp("t"), 10, 20)
        # Intact again, as from another replica: it is fetched again.
        script.batches[1] = (base, good)
        assert offsets(await take(consumer, 20)) == list(range(10, 30))


async def test_bytes_that_are_no_batch(fake: FakeBroker, script: Script) -> None:
    script.batches.append((0, b"x" * 100))
    async with consumer_of(fake) as consumer:
        with pytest.raises(CorruptBatchError, match=r"not a whole record batch|can't be read"):
            await consumer.poll(10_000)


async def test_a_log_that_was_truncated(fake: FakeBroker, script: Script) -> None:
    script.write(3, leader_epoch=0)
    for policy in ("earliest", "none"):
        fake.topics["t"].partitions[0].epoch = 0
        script.epoch_end = (0, 20)
        async with consumer_of(fake, auto_offset_reset=policy) as consumer:
            async with asyncio.timeout(60):
                while not consumer.assignment():
                    await asyncio.sleep(0.01)
            consumer.seek(tp("t"), 0)
            assert offsets(await take(consumer, 30)) == list(range(30))
            fake.topics["t"].partitions[0].epoch = 1
            consumer._engine.cluster.stale()
            if policy == "earliest":
                assert offsets(await take(consumer, 10)) == list(range(20, 30))
            else:
                with pytest.raises(LogTruncatedError, match="begin at 20") as caught:
                    await take(consumer, 1)
                assert caught.value.offsets == {tp("t"): 30}


async def test_a_new_leader_that_has_everything(fake: FakeBroker, script: Script) -> None:
    script.write(2, leader_epoch=0)
    script.epoch_end = (0, 20)
    async with consumer_of(fake) as consumer:
        assert offsets(await take(consumer, 15)) == list(range(15))
        fake.topics["t"].partitions[0].epoch = 1
        consumer._engine.cluster.stale()
        await soon(lambda: fake.asked[ApiKey.OFFSET_FOR_LEADER_EPOCH] > 0)
        script.write(1, leader_epoch=1)
        assert offsets(await take(consumer, 15)) == list(range(15, 30))


async def test_retention_overtakes_the_reader(fake: FakeBroker, script: Script) -> None:
    script.write(10)
    async with consumer_of(fake) as consumer:
        assert (await consumer.getone()).offset == 0
        script.start = 50
        script.batches = script.batches[5:]
        seen = offsets(await take(consumer, 50))
        assert seen == sorted(set(seen))
        assert seen[-1] >= 50
    async with consumer_of(fake, auto_offset_reset="none") as consumer:
        consumer.unsubscribe()
        consumer.assign([tp("t")])
        consumer.seek(tp("t"), 7)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await consumer.poll(10_000)
        assert caught.value.offsets == {tp("t"): 7}


async def test_the_closest_replica(fake: FakeBroker, script: Script) -> None:
    async with FakeBroker() as other:
        near = Script(other)
        near.write(5)
        other.topics["t"] = fake.topics["t"]
        fake.nodes[2] = (other.host, other.port)
        script.preferred = 2
        async with consumer_of(fake, client_rack="here") as consumer:
            assert offsets(await take(consumer, 50)) == list(range(50))
        assert script.fetched[0].rack_id == "here"
        assert near.fetched


async def test_two_brokers_that_answer_for_a_partition(fake: FakeBroker, script: Script) -> None:
    """The replica's time is up while its fetch waits for records, so the leader is asked, too."""
    async with FakeBroker() as other:
        near = Script(other)
        other.topics["t"] = fake.topics["t"]
        fake.nodes[2] = (other.host, other.port)
        other.nodes = fake.nodes
        for each in (script, near):
            each.write(5)
        script.preferred = 2
        leader_has_answered = asyncio.Event()

        async def late(header: Any, request: Any) -> Any:
            script.preferred = -1
            await leader_has_answered.wait()
            return near._fetch(header, request)

        def at_once(header: Any, request: Any) -> Any:
            answer = script._fetch(header, request)
            if script.wanted.fetch_offset > 0:
                leader_has_answered.set()
            return answer

        other.answers[ApiKey.FETCH] = late
        fake.answers[ApiKey.FETCH] = at_once
        async with consumer_of(fake, metadata_max_age_ms=50) as consumer:
            assert offsets(await take(consumer, 50)) == list(range(50))
            while not near.fetched:
                await asyncio.sleep(0)
            assert not await consumer.poll(100)


async def test_a_leader_that_moves(fake: FakeBroker, script: Script) -> None:
    script.write(2)
    async with FakeBroker() as other, consumer_of(fake) as consumer:
        assert offsets(await take(consumer, 20)) == list(range(20))
        there = Script(other)
        there.write(4)
        there.epoch_end = (0, 20)
        fake.nodes[2] = (other.host, other.port)
        fake.topics["t"].partitions[0].leader = 2
        fake.topics["t"].partitions[0].epoch = 1
        other.topics["t"] = fake.topics["t"]
        other.nodes = fake.nodes
        script.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
        fake.cut()
        assert offsets(await take(consumer, 20)) == list(range(20, 40))


async def test_garbage_in_the_middle(fake: FakeBroker, script: Script) -> None:
    script.write(2)
    async with consumer_of(fake) as consumer:
        assert len(await take(consumer, 20)) == 20
        good = fake.answers[ApiKey.FETCH]
        fake.answers[ApiKey.FETCH] = lambda header, request: b"\xff" * 40
        with pytest.raises(NotABrokerError):
            await take(consumer, 1)
        fake.answers[ApiKey.FETCH] = good
        script.write(1)
        seen: list[int] = []
        while len(seen) < 10:
            try:
                seen += offsets(await consumer.poll(1_000))
            except NotABrokerError:
                continue
        assert seen == list(range(20, 30))


# ---- cancellation


USES: dict[str, Callable[[Consumer, list[int]], Any]] = {}


def use(function: Callable[[Consumer, list[int]], Any]) -> Callable[[Consumer, list[int]], Any]:
    USES[function.__name__] = function
    return function


@use
async def one_by_one(consumer: Consumer, seen: list[int]) -> None:
    while len(seen) < 40:
        seen.append((await consumer.getone()).offset)


@use
async def iterating(consumer: Consumer, seen: list[int]) -> None:
    async for record in consumer:
        seen.append(record.offset)
        if len(seen) == 40:
            return


@use
async def polling(consumer: Consumer, seen: list[int]) -> None:
    while len(seen) < 40:
        seen += offsets(await consumer.poll(1_000, 3))


@use
async def polling_tables(consumer: Consumer, seen: list[int]) -> None:
    while len(seen) < 40:
        seen += (await consumer.poll_arrow(1_000, 3))["offset"].to_pylist()


@pytest.mark.parametrize("name", list(USES))
async def test_cancelled_at_every_await_nothing_is_lost(fake: FakeBroker, script: Script, name: str) -> None:
    script.write(4)
    place = 0
    while True:
        async with consumer_of(fake) as consumer:
            seen: list[int] = []
            run = CancelAt(USES[name](consumer, seen), place)

            async def drive(run: CancelAt = run) -> None:
                await run

            task = asyncio.ensure_future(drive())
            await asyncio.wait((task,), timeout=60)
            assert task.done()
            seen += offsets(await take(consumer, 40 - len(seen))) if len(seen) < 40 else []
            assert seen == list(range(40)), place
        assert not client_tasks()
        if run.waits <= place:
            break
        place += 1
    assert place > 0


CALLS: dict[str, Callable[[Consumer], Any]] = {
    "position": lambda consumer: consumer.position(tp("t")),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "end_offsets": lambda consumer: consumer.end_offsets([tp("t")]),
    "partitions_for": lambda consumer: consumer.partitions_for("t"),
    "topics": lambda consumer: consumer.topics(),
    "close": lambda consumer: consumer.close(),
}


@pytest.mark.parametrize("name", list(CALLS))
async def test_cancelled_at_every_await_nothing_is_left(fake: FakeBroker, script: Script, name: str) -> None:
    script.write(2)
    before = sockets() - fake.open_now
    place = 0
    while True:
        consumer = consumer_of(fake)
        consumer.unsubscribe()
        consumer.assign([tp("t")])
        await consumer.start()
        run = CancelAt(CALLS[name](consumer), place)

        async def drive(run: CancelAt = run) -> None:
            await run

        task = asyncio.ensure_future(drive())
        await asyncio.wait((task,), timeout=60)
        assert task.done()
        assert task.cancelled() or run.waits <= place, f"the cancellation at wait {place} was swallowed"
        await consumer.close()
        await soon(lambda: not client_tasks())
        if run.waits <= place:
            break
        place += 1
    await soon(lambda: sockets() - fake.open_now <= before)


async def test_starting_can_be_cancelled_everywhere(fake: FakeBroker, script: Script) -> None:
    place = 0
    while True:
        consumer = consumer_of(fake)
        run = CancelAt(consumer.start(), place)

        async def drive(run: CancelAt = run) -> None:
            await run

        task = asyncio.ensure_future(drive())
        await asyncio.wait((task,), timeout=60)
        assert task.done()
        await consumer.close()
        await soon(lambda: not client_tasks())
        if run.waits <= place:
            break
        place += 1
