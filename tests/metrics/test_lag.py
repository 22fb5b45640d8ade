"""Lag in time against the truth, and its trend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import START, FakeClock
from tests.support.metrics import Scraped

from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.offsets import Committed
from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.metrics import lag_reader
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.metrics.lag import LagCollector
from ottla_broker.metrics.trend import HISTORY_SECONDS, Trend, catch_up_seconds
from ottla_protocol.lag import LOOK_BYTES
from ottla_protocol.records.record import encode_batch


class World:
    """A topic's logs, and groups that have committed offsets in them, on a clock that the test moves."""

    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.clock = FakeClock()
        environment = LogEnvironment(Files(100), self.clock.now_ms, Random(1))
        self.all_logs: list[Log] = []
        for index in range(partitions):
            at = folder / f"t-{index}"
            at.mkdir()
            log = Log(str(at), "t", index, LogConfig(segment_bytes=40_000), environment)
            self.all_logs.append(log.open())
        self.log = self.all_logs[0]
        self.groups: dict[str, Group] = {}
        self.written_in: list[list[int]] = [[] for _ in self.all_logs]
        """The timestamps of each partition's records."""
        self.written = self.written_in[0]
        self.is_open = True
        sources: Any = SimpleNamespace(
            clock=self.clock,
            groups=SimpleNamespace(groups=self.groups.values()),
            replicas=SimpleNamespace(partition=self.partition),
            logs=SimpleNamespace(high_watermark=lambda _, index: len(self.written_in[index])),
            lag_history=lambda: None,
        )
        self.collector = LagCollector(sources)

    def partition(self, topic: str, index: int) -> Any:
        if topic != "t" or index >= len(self.all_logs):
            return None
        return SimpleNamespace(
            topic="t",
            partition=index,
            is_open=self.is_open,
            log=self.all_logs[index],
            high_watermark=self.all_logs[index].log_end_offset,
            last_stable_offset=self.all_logs[index].log_end_offset,
        )

    def write(self, count: int, over_ms: int = 0, partition: int = 0) -> None:
        """Write a batch of records, whose timestamps are spread over the last ``over_ms``."""
        now = self.clock.now_ms()
        times = [now - over_ms + (over_ms * number // max(1, count - 1)) for number in range(count)]
        batch = encode_batch([(at, None, b"x" * 20, ()) for at in times])
        self.all_logs[partition].append(batch, leader_epoch=0, now_ms=now, from_client=True)
        self.written_in[partition] += times

    def commit(self, name: str, offset: int, topic: str = "t", partition: int = 0) -> None:
        group = self.groups.get(name)
        if group is None:
            shard: Any = None
            group = self.groups[name] = Group(name, shard, self.clock.now_ms())
        group.offsets.put(topic, partition, Committed(offset, -1, "", self.clock.now_ms()))

    def scrape(self, max_series: int = 10_000) -> Scraped:
        out = Exposition(max_series)
        for _ in self.collector.collect(out):
            pass
        return Scraped(b"".join(out.chunks()).decode())

    def close(self) -> None:
        for log in self.all_logs:
            log.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_lag_in_time_is_the_truth(tmp_path: Path) -> None:
    """Within a second or 5 % of the truth, whenever it is scraped.

    100 groups read four partitions, of which the first gets as much as all others together. Records come in bursts,
    with rests between them. The first groups keep up, the last hardly get on, and one in five stops for a while.
    """
    partitions, groups = 4, 100
    world, chance = World(tmp_path, partitions), Random(7)
    places = [[0] * partitions for _ in range(groups)]
    compared = behind = 0
    for step in range(120):
        world.clock.advance(chance.expovariate(1 / 3) if step % 30 else 400)
        for index in range(partitions):
            if chance.random() < 2.0**-index:
                burst = chance.random() < 0.1
                world.write(200 if burst else chance.randint(1, 5), chance.choice((0, 10, 900)), index)
        for number, place in enumerate(places):
            if number % 5 == 4 and step % 40 > 10:
                continue
            for index, written in enumerate(world.written_in):
                reads = int(chance.expovariate(1.0) * 400 / (1 + number))
                if reads or not place[index]:
                    place[index] = min(len(written), place[index] + reads)
                    world.commit(f"group-{number}", place[index], partition=index)
        if step % 15:
            continue
        found = world.scrape()
        now = world.clock.now_ms()
        for number, place in enumerate(places):
            for index, written in enumerate(world.written_in):
                at = {"topic": "t", "partition": index}
                unread = written[place[index] :]
                assert found("kafka_consumergroup_lag", consumergroup=f"group-{number}", **at) == len(unread)
                seconds = found("ottla_group_lag_seconds", group=f"group-{number}", **at)
                truth = (now - unread[0]) / 1000 if unread else 0.0
                assert seconds == pytest.approx(truth, rel=0.05, abs=1.0), (step, number, index)
                compared += 1
                behind += truth > 100
    world.close()
    assert compared == 8 * groups * partitions
    assert behind > compared / 10


def test_clocks_that_jump(world: World) -> None:
    """The trend doesn't see it; ages are never negative, and right again when the clock is."""
    world.write(100)
    world.commit("g", 0)
    world.scrape()
    for ahead in (-7200, 0, 86_400, 3600, 0):
        world.clock.advance(20)
        world.clock.ahead = ahead
        world.write(20)
        found = world.scrape()
        assert found("ottla_group_lag_slope", group="g") == 1
        seconds = found("ottla_group_lag_seconds", group="g", topic="t", partition=0)
        since = found("ottla_group_commit_age_seconds", group="g")
        passed = world.clock.monotonic() - START
        assert seconds == since == max(0, passed + ahead)
    # Written at the right time, and a day early.
    for offset, seconds in ((130, 60), (150, 0)):
        world.commit("g", offset)
        assert world.scrape()("ottla_group_lag_seconds", group="g", topic="t", partition=0) == seconds


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
    assert not world.collector._reader.looks
    assert world.scrape(0).samples.keys() == {"ottla_group_lag_unknown_partitions"}


def test_offsets_before_the_log_begins(world: World) -> None:
    for _ in range(200):
        world.write(1)
        world.clock.advance(1)
    world.log.high_watermark = lambda: 200
    world.log.advance_log_start_offset(150)
    world.commit("g", 10)
    found = world.scrape()
    assert found("kafka_consumergroup_lag", consumergroup="g", topic="t", partition=0) == 50
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


def test_a_scrape_looks_through_a_bounded_part_of_the_logs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_reader, "_BYTES_A_ROUND", 50_000)
    for _ in range(1000):
        world.write(1)
    for number in range(50):
        world.commit(f"group-{number}", number)
    looks = world.collector._reader.looks

    def looked() -> int:
        return sum(look.next - look.offset for look in looks.values()) * (world.log.size // 1000)

    world.scrape()
    assert 50_000 <= looked() < 50_000 + LOOK_BYTES + 50 * 1024
    while not all(look.is_over for look in looks.values()):
        before = looked()
        assert world.scrape()("kafka_consumergroup_lag_sum", consumergroup="group-49") == 951
        assert before < looked()
