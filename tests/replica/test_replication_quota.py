"""Replication quotas: which replicas they delay, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
from tests.replica.test_fetcher import LEADER, Bench, batch, bench, fetched
from tests.replica.world import FETCH_VERSION, TOPIC, World
from tests.support.clock import FakeClock
from tests.support.handlers import INTER_BROKER, handled, request_context, when_answered

from ottla_broker.handlers import fetch as fetch_handler
from ottla_broker.replica.replication_quota import UNLIMITED, ReplicationQuota
from ottla_broker.requests.inline import Running
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)

__all__ = ["bench"]


def quota_of(clock: FakeClock, setting: str = "*", broker_id: int = 1) -> ReplicationQuota:
    made = ReplicationQuota(clock, broker_id, lambda topic: setting if topic == TOPIC else "")
    made.limit = 100
    return made


def is_exceeded(quota: ReplicationQuota) -> bool:
    return quota.exceeded


@pytest.mark.parametrize(
    ("setting", "partitions"),
    [("*", {0, 1, 2}), ("", set()), ("0:1, 1:2,2:1", {0, 2}), ("1:2", set()), (" * ", {0, 1, 2})],
)
def test_replicas_that_a_topic_names(setting: str, partitions: set[int]) -> None:
    quota = quota_of(FakeClock(), setting)
    assert {number for number in range(3) if quota.is_throttled(TOPIC, number)} == partitions
    assert not quota.is_throttled("another", 0)
    quota.limit = UNLIMITED
    assert not quota.is_throttled(TOPIC, 0)


def test_bytes_over_the_limit_are_made_up_for() -> None:
    clock = FakeClock()
    quota = quota_of(clock)
    assert not is_exceeded(quota)
    quota.record(100)
    assert not is_exceeded(quota)
    quota.record(400)
    for second in range(5):
        assert is_exceeded(quota) == (second < 5), second
        clock.time += 1
    # 500 bytes in 5 s are exactly the limit.
    assert not is_exceeded(quota)
    quota.record(1)
    assert is_exceeded(quota)
    quota.limit = UNLIMITED
    assert not is_exceeded(quota)


def test_old_bytes_do_not_count() -> None:
    clock = FakeClock()
    quota = quota_of(clock)
    quota.record(1_000_000)
    clock.time += 10.9
    assert is_exceeded(quota)
    clock.time += 0.2
    assert not is_exceeded(quota)
    for _ in range(1000):
        quota.record(1)
        clock.time += 0.1
    assert len(quota._windows) <= 11
    assert not is_exceeded(quota)


async def test_a_follower_leaves_out_throttled_partitions(bench: Bench) -> None:
    quota = bench.fetcher._quota = quota_of(bench.clock, "0:1,1:1")
    for index in range(3):
        bench.follow(index)
    assert {each.partition for each in (await bench.asked()).topics[0].partitions} == {0, 1, 2}
    # The second is in sync with this, the first is not; the third is not throttled.
    answer = fetched(0, records=memoryview(batch(0, count=20)), high_watermark=1000)
    answer.responses[0].partitions += (
        fetched(1, records=memoryview(batch(0)), high_watermark=1).responses[0].partitions
    )
    await bench.answer(answer)
    assert is_exceeded(quota)
    wanted = await bench.asked()
    assert {each.partition for each in wanted.topics[0].partitions} == {1, 2}
    bench.clock.time += 20
    await bench.answer(FetchResponse())
    (again,) = (await bench.asked()).topics
    assert 0 in {each.partition for each in again.partitions}


async def test_a_fetcher_with_only_throttled_partitions_pauses(bench: Bench) -> None:
    quota = bench.fetcher._quota = quota_of(bench.clock)
    bench.follow()
    await bench.asked()
    await bench.answer(fetched(records=memoryview(batch(0, count=20)), high_watermark=1000))
    assert is_exceeded(quota)
    assert await bench.asked() is None
    for _ in range(40):
        await bench.rested()
    assert await bench.asked() is not None
    assert bench.fetcher.leader_id == LEADER


async def test_a_leader_throttles_only_replicas_out_of_sync(tmp_path: Any) -> None:
    world = World(tmp_path)
    node = world.nodes[1]
    quota = node.services.replicas.leader_quota = quota_of(world.clock)
    world.state = world.state._replace(isr=(1, 2), leader_epoch=1)
    node.apply(world.state)
    world.produce(1, 5)

    def ask(replica: int, offset: int = 0, wait: int = 0) -> Any:
        partition = FetchPartition(
            partition=0, current_leader_epoch=1, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replica, replica_epoch=1),
            max_wait_ms=wait,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=node.partition.topic_id, partitions=[partition])],
        )
        context = request_context(node.services, FETCH_VERSION, ApiKey.FETCH, INTER_BROKER)
        return handled(fetch_handler, context, request)

    def size(answer: FetchResponse) -> int:
        return len(answer.responses[0].partitions[0].records or b"")

    assert size(ask(3)) > 0
    assert is_exceeded(quota)
    assert size(ask(3)) == 0
    assert size(ask(2)) > 0
    # The follower's position is recorded though nothing is sent, and nothing wakes it before its time is up.
    waiting = ask(3, offset=1, wait=500)
    assert isinstance(waiting, Running)
    assert node.partition.followers[3].end_offset == 1
    assert not node.partition.follower_fetches
    answered: list[Any] = []
    when_answered(waiting, answered.append)
    world.produce(1, 1)
    await world.settle_down()
    assert not answered
    world.clock.time += 60
    world.clock.run_due()
    assert size(answered[0]) > 0
    await world.close()
