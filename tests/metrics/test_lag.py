"""Lag in time against the truth, and its trend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import FakeClock
from tests.support.metrics import Scraped

from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.offsets import Committed
from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.metrics.lag import LagCollector
from ottla_broker.metrics.trend import HISTORY_SECONDS, Trend, catch_up_seconds
from ottla_protocol.records.record import encode_batch


class World:
    """One partition's log, and groups that have committed offsets in it, on a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        environment = LogEnvironment(Files(100), self.clock.now_ms, Random(1))
        self.log = Log(str(folder), "t", 0, LogConfig(segment_bytes=40_000), environment).open()
        self.groups: dict[str, Group] = {}
        self.written: list[int] = []
        self.is_open = True
        sources: Any = SimpleNamespace(
            clock=self.clock,
            groups=SimpleNamespace(groups=self.groups.values()),
            replicas=SimpleNamespace(partition=self.partition),
            logs=SimpleNamespace(high_watermark=lambda *_: len(self.written)),
            lag_history=lambda: None,
        )
        self.collector = LagCollector(sources)

    def partition(self, topic: str, index: int) -> Any:
        if (topic, index) != ("t", 0):
            return None
        return SimpleNamespace(
            topic="t", partition=0, is_open=self.is_open, log=self.log, high_watermark=len(self.written)
        )

    def write(self, count: int, over_ms: int = 0) -> None:
        """Write a batch of records, whose timestamps are spread over the last ``over_ms``."""
        now = self.clock.now_ms()
        times = [now - over_ms + (over_ms * number // max(1, count - 1)) for number in range(count)]
        batch = encode_batch([(at, None, b"x" * 20, ()) for at in times])
        self.log.append(batch, leader_epoch=0, now_ms=now, from_client=True)
        self.written += times

    def commit(self, name: str, offset: int, topic: str = "t") -> None:
        group = self.groups.get(name)
        if group is None:
            shard: Any = None
            group = self.groups[name] = Group(name, shard, self.clock.now_ms())
        group.offsets.put(topic, 0, Committed(offset, -1, "", self.clock.now_ms()))

    def scrape(self, max_series: int = 10_000) -> Scraped:
        out = Exposition(max_series)
        for _ in self.collector.collect(out):
            pass
        return Scraped(b"".join(out.chunks()).decode())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    folder = tmp_path / "t-0"
    folder.mkdir()
    made = World(folder)
    yield made
    made.log.close()


def test_lag_in_time_is_the_truth(world: World) -> None:
    """100 groups at random offsets, while bursts of random sizes are written: within a second or 5 %."""
    chance = Random(7)
    for _ in range(60):
        world.clock.advance(chance.expovariate(1 / 20))
        world.write(chance.choice((1, 3, 40)), over_ms=chance.choice((0, 10, 900)))
        for number in range(100):
            if chance.random() < 0.1:
                world.commit(f"group-{number}", chance.randrange(len(world.written) + 1))
    found = world.scrape()
    now = world.clock.now_ms()
    for name, group in world.groups.items():
        committed = group.offsets.get("t", 0)
        assert committed is not None
        unread = world.written[committed.offset :]
        assert found("kafka_consumergroup_lag", consumergroup=name, topic="t", partition=0) == len(unread)
        seconds = found("ottla_group_lag_seconds", group=name, topic="t", partition=0)
        truth = (now - unread[0]) / 1000 if unread else 0.0
        assert seconds == pytest.approx(truth, rel=0.05, abs=1.0), name


def test_trend_and_time_to_catch_up(world: World) -> None:
    world.write(600)
    world.commit("g", 0)
    found = world.scrape()
    assert found("ottla_group_lag_slope", group="g") is None
    assert found("ottla_group_catch_up_seconds", group="g") is None
    world.clock.advance(100)
    world.commit("g", 200)
    found = world.scrape()
    assert found("ottla_group_lag_slope", group="g") == -2
    assert found("ottla_group_catch_up_seconds", group="g") == 200
    assert found("ottla_group_commit_age_seconds", group="g") == 0
    world.clock.advance(100)
    world.write(500)
    found = world.scrape()
    assert (found("ottla_group_lag_slope", group="g") or 0) > 0
    assert found("ottla_group_catch_up_seconds", group="g") is None
    assert found("ottla_group_commit_age_seconds", group="g") == 100
    world.commit("g", 1100)
    assert world.scrape()("ottla_group_catch_up_seconds", group="g") == 0


def test_what_this_broker_does_not_know(world: World) -> None:
    world.write(3)
    world.commit("g", 0)
    world.commit("elsewhere", 5, "other")
    found = world.scrape()
    assert found("ottla_group_lag_unknown_partitions") == 1
    assert found("kafka_consumergroup_lag_sum", consumergroup="elsewhere") is None
    del world.groups["g"]
    world.is_open = False
    world.commit("closed", 1)
    found = world.scrape()
    assert found("kafka_consumergroup_lag", consumergroup="closed", topic="t", partition=0) == 2
    assert found("ottla_group_lag_seconds", group="closed", topic="t", partition=0) is None
    assert list(world.collector._trends) == ["closed"]
    assert not world.collector._reader.times
    assert world.scrape(0).samples.keys() == {"ottla_group_lag_unknown_partitions"}


def test_offsets_before_the_log_begins(world: World) -> None:
    for _ in range(200):
        world.write(1)
        world.clock.advance(1)
    world.log.high_watermark = lambda: 200
    world.log.advance_log_start_offset(150)
    world.commit("g", 10)
    found = world.scrape()
    assert found("kafka_consumergroup_lag", consumergroup="g", topic="t", partition=0) == 190
    assert found("ottla_group_lag_seconds", group="g", topic="t", partition=0) == pytest.approx(50, abs=1)


def test_a_trend_forgets() -> None:
    trend = Trend()
    for second in range(0, 1000, 1):
        trend.add(second, 1000 - second)
    assert trend.slope(1000, 0) == pytest.approx(-1, rel=0.05)
    assert len(trend._samples) <= HISTORY_SECONDS / 5 + 1
    assert Trend().slope(0, 5) is None
    assert catch_up_seconds(10, -2.0) == 5
    assert catch_up_seconds(10, 0.0) is None
    assert catch_up_seconds(0, None) == 0
