"""Brokers whose answers lead nowhere, or that throttle: they are asked ever less often, or not before it is time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.client.base.conftest import until as soon
from tests.client.base.fake import FakeBroker, Partition
from tests.client.consumer.chunks import batch
from tests.client.consumer.conftest import QUICK, offsets, take
from tests.client.consumer.test_faults import Script, consumer_of

from ottla_client import Consumer, TopicPartition
from ottla_client.cluster import Backoff
from ottla_client.consumer.fetcher import Fetcher, NodeFetcher
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

TIMES = 5


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
def script(fake: FakeBroker) -> Script:
    return Script(fake)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After how many failures the client paused, but for one: the metadata's refresh asks for that as well."""
    found: list[int] = []
    after = Backoff.after

    def recorded(self: Backoff, failures: int) -> float:
        if failures > 1:
            found.append(failures)
        return after(self, failures) / 10

    monkeypatch.setattr(Backoff, "after", recorded)
    return found


def _out_of_range(script: Script) -> FetchResponse:
    return _answer(script, PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))


def _stale(script: Script) -> FetchResponse:
    return _answer(script, PartitionData(records=batch(-10, 10)))


def _cut_short(script: Script) -> FetchResponse:
    return _answer(script, PartitionData())


def _nothing(script: Script) -> FetchResponse:
    return FetchResponse()


def _redirected(script: Script) -> FetchResponse:
    return _answer(script, PartitionData(preferred_read_replica=1))


def _answer(script: Script, data: PartitionData) -> FetchResponse:
    topic = FetchableTopicResponse(topic="t", topic_id=script.fake.topics["t"].id, partitions=[data])
    return FetchResponse(responses=[topic])


@pytest.mark.parametrize(
    "answer", [_out_of_range, _stale, _cut_short, _nothing, _redirected], ids=lambda each: each.__name__[1:]
)
async def test_answers_that_lead_nowhere(
    fake: FakeBroker, script: Script, pauses: list[int], answer: Callable[[Script], FetchResponse]
) -> None:
    script.write(5)
    usual = script._fetch
    left = [answer] * TIMES

    def fetched(header: Any, request: Any) -> FetchResponse | None:
        found = usual(header, request)
        return left.pop()(script) if left else found

    fake.answers[ApiKey.FETCH] = fetched
    async with consumer_of(fake) as consumer:
        assert offsets(await take(consumer, 50)) == list(range(50))
        # The first time the client asks again at once.
        assert pauses == list(range(2, TIMES))
        # Progress makes up for it.
        pauses.clear()
        left.append(answer)
        script.write(1)
        fake.cut()
        assert await take(consumer, 10)
        assert not pauses


async def test_empty_answers_of_a_broker_that_throttles_are_not_idle(
    fake: FakeBroker, script: Script, pauses: list[int]
) -> None:
    """They come early because the client is over its quota, not because the broker doesn't wait."""
    script.write(5)
    usual = script._fetch
    left = TIMES

    def fetched(header: Any, request: Any) -> FetchResponse | None:
        nonlocal left
        left -= 1
        return usual(header, request) if left < 0 else FetchResponse(throttle_time_ms=1)

    fake.answers[ApiKey.FETCH] = fetched
    async with consumer_of(fake) as consumer:
        assert offsets(await take(consumer, 50)) == list(range(50))
    assert not pauses


async def test_an_answer_that_moves_many_partitions_wakes_the_fetchers_once(
    fake: FakeBroker, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All partitions are looked at then."""
    wakes = 0
    by_answer: list[int] = []
    wake, handle = Fetcher.wake, NodeFetcher._handle

    def counted(self: Fetcher) -> None:
        nonlocal wakes
        wakes += 1
        wake(self)

    def handled(self: NodeFetcher, response: FetchResponse, version: int) -> tuple[int, bool]:
        before = wakes
        result = handle(self, response, version)
        by_answer.append(wakes - before)
        return result

    def fetched(header: Any, request: Any) -> FetchResponse | None:
        asked = [each.partition for topic in request.topics for each in topic.partitions]
        data = [PartitionData(partition_index=each, preferred_read_replica=1) for each in asked]
        topic = FetchableTopicResponse(topic="t", topic_id=fake.topics["t"].id, partitions=data)
        return FetchResponse(responses=[topic])

    monkeypatch.setattr(Fetcher, "wake", counted)
    monkeypatch.setattr(NodeFetcher, "_handle", handled)
    fake.topics["t"].partitions = {number: Partition() for number in range(50)}
    fake.answers[ApiKey.FETCH] = fetched
    async with Consumer(bootstrap_servers=fake.bootstrap, **QUICK) as consumer:
        places = [TopicPartition("t", number) for number in fake.topics["t"].partitions]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        async with asyncio.timeout(60):
            while not by_answer:
                await consumer.poll(1)
    assert max(by_answer) == 1


async def test_a_replica_that_is_always_behind(fake: FakeBroker, script: Script, pauses: list[int]) -> None:
    """The leader sends the consumer to a replica that lacks the position, which sends it back."""
    async with FakeBroker() as other:
        behind = Script(other)
        other.topics["t"] = fake.topics["t"]
        fake.nodes[2] = (other.host, other.port)
        other.nodes = fake.nodes
        script.preferred = 2
        behind.start = 1
        async with consumer_of(fake, client_rack="here"):
            await soon(lambda: len(pauses) >= TIMES)
    assert pauses[:TIMES] == list(range(2, TIMES + 2))
    assert fake.asked[ApiKey.FETCH] + other.asked[ApiKey.FETCH] < 3 * len(pauses)


@pytest.mark.parametrize("version", [7, 8])
async def test_nothing_is_fetched_from_a_broker_that_throttles(
    fake: FakeBroker, script: Script, version: int
) -> None:
    """Before version 8, the broker has waited itself."""
    fake.versions[ApiKey.FETCH] = (4, version)
    script.write(40)
    usual = script._fetch
    loop = asyncio.get_running_loop()
    times: list[float] = []

    def fetched(header: Any, request: Any) -> FetchResponse | None:
        times.append(loop.time())
        answer = usual(header, request)
        if len(times) == 1:
            assert answer is not None
            answer.throttle_time_ms = 300 if version >= 8 else 60_000_000
        return answer

    fake.answers[ApiKey.FETCH] = fetched
    async with consumer_of(fake) as consumer:
        assert offsets(await take(consumer, 400)) == list(range(400))
    if version >= 8:
        assert times[1] - times[0] >= 0.3
