"""The history of groups' lag: samples of every kind of group, in a log that any coordinator goes on with."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.metrics.test_lag import World as LagWorld
from tests.support.group_lag import read_history
from tests.support.metrics import Scraped

from ottla_broker.coordinator.share.state_batches import ShareState
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.metrics.lag import LagCollector
from ottla_broker.metrics.lag_history import LagEnvironment, LagHistory, Settings
from ottla_broker.metrics.lag_page import lag_page
from ottla_broker.store.api import NoNodeError
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.group_lag import LagSample
from ottla_protocol.messages.group_lag_records import GroupLagValue
from ottla_protocol.partitioning import LAG_TOPIC
from ottla_protocol.records.batch import assign_offset, read_header
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import Record, decode_records
from ottla_protocol.versioned import decode_versioned

MINUTE = 60


class LagLog:
    """A partition of the topic, whose batches stay in memory."""

    topic = LAG_TOPIC
    is_open = True
    is_led_here = True

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.high_watermark = 0
        self.log = SimpleNamespace(reader=SimpleNamespace(offset_for_timestamp=lambda _: (0, 0, 0)))

    def append_internal(self, batch: bytearray, now_ms: int) -> int:
        assign_offset(batch, 0, self.high_watermark, 0)
        self.high_watermark += read_header(batch).last_offset_delta + 1
        self.batches.append(bytes(batch))
        return self.high_watermark

    def scan(self, offset: int) -> list[memoryview]:
        return [memoryview(each) for each in self.batches]

    def records(self) -> list[Record]:
        return [
            record
            for batch in self.batches
            for position, header in iter_headers(batch)
            for record in decode_records(batch, position, header)
        ]


class Nodes:
    """``/consumers`` of a store."""

    def __init__(self) -> None:
        self.offsets: dict[str, bytes] = {}

    async def children(self, path: str) -> list[str]:
        found = {
            each[len(path) + 1 :].partition("/")[0] for each in self.offsets if each.startswith(path + "/")
        }
        if not found:
            raise NoNodeError(path)
        return list(found)

    async def get(self, path: str) -> tuple[bytes, int]:
        return self.offsets[path], 0


class World(LagWorld):
    """The world of the lag's tests, with a history. A second broker may go on with the same log."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept = LagLog()
        self.nodes = Nodes()
        self.shares: dict[str, Any] = {}
        self.share_states: dict[str, ShareState | KafkaError] = {}
        self.made: list[str] = []
        self.remote: dict[tuple[str, int], int] = {}
        self.sent: list[tuple[int, str, int, bytes]] = []
        self.history = self.broker()

    def broker(self, most_groups: int = 100, leaders: Any = None, has_log: bool = True) -> LagHistory:
        async def ensure(topic: str) -> None:
            self.made.append(topic)

        def partition(topic: str, index: int) -> Any:
            if topic == LAG_TOPIC:
                return self.kept if has_log else None
            return self.partition(topic, index)

        replicas: Any = SimpleNamespace(partition=partition)
        groups: Any = SimpleNamespace(groups=self.groups.values(), shares=SimpleNamespace(groups=self.shares))
        logs: Any = SimpleNamespace(high_watermark=lambda *_: len(self.written))
        store: Any = self.nodes
        return LagHistory(
            Settings(MINUTE * 1000, most_groups),
            LagEnvironment(
                broker_id=1,
                clock=self.clock,
                replicas=replicas,
                logs=logs,
                groups=groups,
                partitions_of=lambda topic: {OFFSETS_TOPIC: 1, LAG_TOPIC: 1}[topic],
                leader_of=lambda topic, _: 2,
                ensure_topic=ensure,
                leaders=leaders,
                share_state=lambda key, answer: answer(self.share_states[key.group_id]),
                store=store,
                reads_store=lambda: True,
            ),
        )

    def commit(self, name: str, offset: int, topic: str = "t", partition: int = 0) -> None:
        super().commit(name, offset, topic, partition)
        group: Any = self.groups[name]
        group.shard = SimpleNamespace(index=0)

    async def minutes(self, count: int, history: LagHistory | None = None) -> None:
        for _ in range(count):
            await (history or self.history).sample()
            self.clock.advance(MINUTE)

    def samples(self, group: str) -> list[LagSample]:
        rows = ((record.key, record.value) for record in self.kept.records())
        return read_history(rows, group, 0, 0)


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(tmp_path)
    yield made
    made.close()


async def test_a_group_that_falls_behind_and_catches_up(world: World) -> None:
    world.write(10)
    world.commit("g", 10)
    await world.minutes(2)
    world.write(60)
    await world.minutes(2)
    world.commit("g", 40)
    await world.minutes(1)
    world.commit("g", 70)
    await world.minutes(1)
    found = world.samples("g")
    assert [each.records for each in found] == [0, 0, 60, 60, 30, 0]
    assert [each.lag_ms for each in found] == [0, 0, 0, 60_000, 120_000, 0]
    assert [each.commit_age_ms for each in found] == [0, 60_000, 120_000, 180_000, 0, 0]
    assert found[0].slope is None
    assert (found[2].slope or 0) > 0
    assert all(each.kind == "classic" and each.partitions == 1 for each in found)
    assert set(world.made) == {LAG_TOPIC}
    assert LAG_TOPIC in INTERNAL_TOPICS
    assert await world.history.history("g", 0) == found
    assert await world.history.history("other", 0) == []


async def test_records_without_the_group_are_not_decoded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(5)
    world.commit("g", 0)
    await world.minutes(2)
    decoded = []

    def decode(cls: type, data: bytes) -> Any:
        decoded.append(cls)
        return decode_versioned(cls, data)

    monkeypatch.setattr("ottla_protocol.group_lag.decode_versioned", decode)
    assert await asyncio.gather(*(world.history.history(f"other{each}", 0) for each in range(3))) == [[]] * 3
    assert GroupLagValue not in decoded
    assert len(await world.history.history("g", 0)) == decoded.count(GroupLagValue) == 2


async def test_the_next_coordinator_goes_on(world: World) -> None:
    world.write(5)
    world.commit("g", 0)
    await world.minutes(3)
    other = world.broker()
    await world.minutes(3, other)
    found = world.samples("g")
    assert [each.records for each in found] == [5] * 6
    assert len({each.time_ms for each in found}) == 6
    assert await other.history("g", 0) == found


async def test_keys_have_a_bound_and_coarse_samples_the_largest_lag(world: World) -> None:
    world.write(3)
    world.commit("g", 0)
    await world.minutes(30)
    world.write(100)
    await world.minutes(1)
    world.commit("g", 103)
    await world.minutes(400)
    keys = {record.key for record in world.kept.records()}
    assert len(keys) <= 360 + 680
    coarse = [record for record in world.kept.records() if record.key and record.key[2] == 1]
    lags = [read_history([(record.key, record.value)], "g", 0, 0)[0].most_records for record in coarse]
    assert max(each or 0 for each in lags) == 103


async def test_groups_in_zookeeper_and_share_groups(world: World) -> None:
    world.write(10)
    world.nodes.offsets = {
        "/consumers/old/offsets/t/0": b"4",
        "/consumers/old/offsets/t/x": b"4",
        "/consumers/old/offsets/gone/0": b"1",
        "/consumers/broken/offsets/t/0": b"no number",
        "/consumers/coordinator/config": b"{}",
    }
    shard = SimpleNamespace(index=0)
    topic = SimpleNamespace(name="t", partitions=frozenset({0}))
    for name in ("shared", "failing", "new"):
        world.shares[name] = SimpleNamespace(group_id=name, shard=shard, initialized={b"1" * 16: topic})
    world.share_states = {
        "shared": ShareState(1, 1, 3, (), 2),
        "failing": KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        "new": ShareState(1, 1, -1),
    }
    await world.minutes(2)
    world.nodes.offsets["/consumers/old/offsets/t/0"] = b"9"
    await world.minutes(2)
    old = world.samples("old")
    assert [each.records for each in old] == [6, 6, 1, 1]
    assert [each.commit_age_ms for each in old] == [None, None, 0, 60_000]
    assert {each.kind for each in old} == {"zookeeper"}
    assert old[0].unknown_partitions == 1
    shared = world.samples("shared")
    assert [(each.records, each.kind) for each in shared] == [(5, "share")] * 4
    assert not world.samples("new")
    assert not world.samples("failing")
    assert world.history.failures == 4
    # And /metrics has them.
    collector = LagCollector(
        SimpleNamespace(  # type: ignore[arg-type]
            clock=world.clock,
            groups=SimpleNamespace(groups=()),
            replicas=None,
            logs=None,
            lag_history=lambda: world.history,
        )
    )
    out = Exposition(100)
    for _ in collector.collect(out):
        pass
    scraped = Scraped(b"".join(out.chunks()).decode())
    assert scraped("kafka_consumergroup_lag_sum", consumergroup="old") == 1
    assert scraped("kafka_consumergroup_lag_sum", consumergroup="shared") == 5
    assert scraped("ottla_group_commit_age_seconds", group="old") == 60


async def test_partitions_without_a_replica_here(world: World) -> None:
    class Leaders:
        async def bounds(self, broker_id: int, partitions: Any) -> dict[tuple[str, int], tuple[int, int]]:
            assert broker_id == 2
            return {key: (start, world.remote[key]) for key in partitions if key in world.remote}

        async def append(self, broker_id: int, topic: str, index: int, batch: bytes) -> None:
            if broker_id != 2:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
            world.sent.append((broker_id, topic, index, batch))
            world.kept.append_internal(bytearray(batch), 0)

    start = 0
    history = world.broker(leaders=Leaders(), has_log=False)
    world.commit("g", 5, "elsewhere")
    await world.minutes(1, history)
    world.remote["elsewhere", 0] = 5
    await world.minutes(1, history)
    world.remote["elsewhere", 0] = 12
    await world.minutes(3, history)
    found = world.samples("g")
    assert [each.records for each in found] == [None, 0, 7, 7, 7]
    assert [each.unknown_partitions for each in found] == [1, 0, 0, 0, 0]
    assert [each.lag_ms for each in found] == [None, 0, 0, 60_000, 120_000]
    assert {each[:3] for each in world.sent} == {(2, LAG_TOPIC, 0)}
    with pytest.raises(KafkaError, match="ask broker 2"):
        await history.history("g", 0)
    # A clock that is set back: the age isn't negative, nor unknown.
    world.clock.ahead = -3600
    await world.minutes(1, history)
    (state,) = history.latest.values()
    assert (state.records, state.lag_ms) == (7, 0)
    start = 10
    await world.minutes(1, history)
    (state,) = history.latest.values()
    assert state.records == 2, "what was removed is no lag"


async def test_a_clock_that_jumps(world: World) -> None:
    world.write(5)
    world.commit("g", 0)
    for ahead in (0, 7200, -7200, 0):
        world.clock.ahead = ahead
        await world.minutes(3)
    found = await world.history.history("g", 0)
    assert [each.time_ms for each in found] == sorted(each.time_ms for each in found)
    assert {each.records for each in found} == {5}
    assert {each.slope for each in found} == {None, 0.0}
    assert all(each.lag_ms is not None and each.lag_ms == each.commit_age_ms >= 0 for each in found)
    assert found[-1].time_ms > world.clock.now_ms() + 3_600_000  # the hour that hasn't come yet
    assert len({record.key for record in world.kept.records()}) <= 360 + 680


async def test_too_many_groups_are_left_out(world: World) -> None:
    history = world.broker(most_groups=2)
    world.write(1)
    for number in range(5):
        world.commit(f"group-{number}", 0)
    await world.minutes(1, history)
    assert (len(history.latest), history.left_out) == (2, 3)
    world.groups.clear()
    await world.minutes(1, history)
    assert (len(history.latest), history.left_out) == (0, 0)


async def test_a_log_that_refuses_is_counted(world: World) -> None:
    def refuse(batch: bytearray, now_ms: int) -> int:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    world.write(1)
    world.commit("g", 0)
    world.kept.append_internal = refuse  # type: ignore[method-assign]
    await world.minutes(2)
    assert world.history.failures >= 2
    assert not world.kept.batches


async def test_samples_are_taken_at_whole_minutes(world: World) -> None:
    world.write(1)
    world.commit("g", 0)
    world.clock.advance(17)
    running = asyncio.ensure_future(world.history.run())
    await world.clock.elapse(10 * MINUTE)
    running.cancel()
    await asyncio.wait([running])
    times = [each.time_ms // 60_000 for each in world.samples("g")]
    assert times == list(range(times[0], times[0] + 10))


async def test_the_page(world: World) -> None:
    config = SimpleNamespace(ottla_lag_history_enable=True)
    sources: Any = SimpleNamespace(config=config, clock=world.clock, lag_history=lambda: world.history)
    world.write(4)
    world.commit("g", 1)
    await world.minutes(2)
    page = await lag_page(sources, {})
    assert page.status == 200
    assert [each["group"] for each in json.loads(b"".join(page.body))["groups"]] == ["g"]
    page = await lag_page(sources, {"group": "g", "hours": "1"})
    samples = json.loads(b"".join(page.body))["samples"]
    assert (page.status, [each["lag_records"] for each in samples]) == (200, [3, 3])
    for query, status in (
        ({"group": "g", "hours": "x"}, 400),
        ({"group": "g", "hours": "nan"}, 400),
        ({"group": "g", "hours": "1000"}, 400),
        ({"group": "none"}, 404),
    ):
        assert (await lag_page(sources, query)).status == status
    sources.lag_history = lambda: None
    assert (await lag_page(sources, {})).status == 503
    config.ottla_lag_history_enable = False
    assert (await lag_page(sources, {})).status == 404
