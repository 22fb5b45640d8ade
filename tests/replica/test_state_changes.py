"""LeaderAndIsr and StopReplica applied to a broker's replicas, with real logs in real data folders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.log.config import LogConfig
from ottla_broker.log.manager import LogManager
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.fetcher import Fetcher, FetcherSettings
from ottla_broker.replica.fetcher_manager import FetcherManager
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.replica.partition import Partition, Role
from ottla_broker.replica.state_changes import ReplicaStateChanges
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla_protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)

ME = 1
IDS = {"a": b"a" * 16, "b": b"b" * 16}


class Heard:
    """Records the calls that coordinators get."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []

    def on_leader(self, partition: Any) -> None:
        self.calls.append(("leader", partition.topic, partition.partition))

    def on_stop(self, topic: str, partition: int) -> None:
        self.calls.append(("stop", topic, partition))


class Bench:
    def __init__(self, folders: list[Path]) -> None:
        self.background = Background(2)
        clock = SystemClock(asyncio.get_running_loop())
        self.logs = LogManager(folders, LogConfig(), clock, self.background, Random(1))
        self.asked: list[int] = []
        self.heard = Heard()
        self.replicas = ReplicaManager(ReplicaEnvironment(ME, self.logs, clock, propose=lambda _: None))
        self.replicas.share_with_cluster()
        failed = self.replicas.partition_failed
        self.fetchers = self.replicas.fetchers = FetcherManager(
            1,
            lambda leader: Fetcher(leader, ME, lambda: 1, self._connect, FetcherSettings(), clock, failed),
        )
        self.changes = ReplicaStateChanges(self.replicas, self.fetchers, self.logs)
        self.replicas.listeners.append(self.heard)

    async def _connect(self, broker: int) -> Any:
        self.asked.append(broker)
        raise ConnectionError("refused")

    async def apply(
        self, *states: tuple[str, int, int, int], ids: dict[str, bytes] = IDS, **options: Any
    ) -> list[int]:
        """Apply states of topic, partition, leader and leader epoch; returns the error codes."""
        topics: dict[str, list[LeaderAndIsrPartitionState]] = {}
        for topic, index, leader, epoch in states:
            topics.setdefault(topic, []).append(
                LeaderAndIsrPartitionState(
                    partition_index=index,
                    controller_epoch=1,
                    leader=leader,
                    leader_epoch=epoch,
                    isr=[1, 2],
                    partition_epoch=0,
                    replicas=options.get("replicas", [1, 2]),
                    is_new=True,
                )
            )
        request = LeaderAndIsrRequest(
            type=options.get("kind", 1),
            topic_states=[
                LeaderAndIsrTopicState(topic_name=name, topic_id=ids[name], partition_states=found)
                for name, found in topics.items()
            ],
        )
        answer = await self.changes.apply_leader_and_isr(request, 7, lambda _: LogConfig())
        return [error.error_code for topic in answer.topics for error in topic.partition_errors]

    async def stop(self, topic: str, index: int, epoch: int, delete: bool) -> int:
        state = StopReplicaPartitionState(partition_index=index, leader_epoch=epoch, delete_partition=delete)
        request = StopReplicaRequest(
            topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=[state])]
        )
        return (await self.changes.stop_replicas(request)).partition_errors[0].error_code

    def partition(self, topic: str, index: int) -> Partition:
        found = self.replicas.partition(topic, index)
        assert found is not None
        return found

    async def close(self) -> None:
        await self.fetchers.close()
        await self.logs.close()
        self.background.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench([tmp_path / "one", tmp_path / "two"])
    await made.logs.load()
    yield made
    await made.close()


async def test_leading_and_following(bench: Bench) -> None:
    assert await bench.apply(("a", 0, ME, 3), ("a", 1, 2, 3), ("b", 0, -1, 1)) == [0, 0, 0]
    assert bench.partition("a", 0).role is Role.LEADER
    assert bench.partition("a", 1).role is Role.FOLLOWER
    assert bench.partition("b", 0).role is Role.FOLLOWER
    assert bench.heard.calls == [("leader", "a", 0)]
    await asyncio.sleep(0)
    assert bench.asked == [2]
    assert [p.partition for p in bench.replicas.partitions() if p.role is Role.LEADER] == [0]
    assert await bench.apply(("a", 0, 2, 4), ("a", 1, ME, 4)) == [0, 0]
    assert bench.heard.calls[1:] == [("stop", "a", 0), ("leader", "a", 1)]


async def test_an_old_leader_epoch_is_refused(bench: Bench) -> None:
    await bench.apply(("a", 0, ME, 3))
    assert await bench.apply(("a", 0, 2, 3)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert await bench.apply(("a", 0, 2, 2)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert await bench.apply(("a", 0, 2, 4), ids={"a": b"z" * 16}) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert bench.partition("a", 0).role is Role.LEADER
    assert await bench.apply(("b", 0, 2, 4), replicas=[2, 3]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("topic", "index", "error"),
    [
        ("../../x", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\n1 0 9", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a", -1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_partitions_that_cannot_exist_are_refused_one_by_one(
    bench: Bench, tmp_path: Path, topic: str, index: int, error: ErrorCode
) -> None:
    codes = await bench.apply((topic, index, ME, 3), ("b", 0, ME, 3), ids={**IDS, topic: b"x" * 16})
    assert codes == [error, ErrorCode.NONE]
    assert await bench.stop(topic, index, -2, delete=True) == error
    assert [each.topic for each in bench.replicas.partitions()] == ["b"]
    folders = [
        each.name for folder in ("one", "two") for each in (tmp_path / folder).iterdir() if each.is_dir()
    ]
    assert folders == ["b-0"]
    assert {each.name for each in tmp_path.iterdir()} == {"one", "two"}


async def test_stopping_and_deleting(bench: Bench) -> None:
    await bench.apply(("a", 0, ME, 3), ("a", 1, 2, 3))
    assert await bench.stop("a", 0, 2, delete=False) == ErrorCode.FENCED_LEADER_EPOCH
    assert await bench.stop("a", 0, 4, delete=False) == 0
    assert bench.partition("a", 0).role is Role.NONE
    assert bench.heard.calls[-1] == ("stop", "a", 0)
    assert await bench.apply(("a", 0, ME, 5)) == [0]
    assert bench.partition("a", 0).role is Role.LEADER
    assert await bench.stop("a", 1, -2, delete=True) == 0
    assert bench.replicas.partition("a", 1) is None
    assert not bench.logs.has("a", 1)
    assert await bench.stop("a", 1, -2, delete=True) == 0, "what isn't there is gone already"


async def test_the_log_of_a_deleted_topic_of_the_same_name_is_set_aside(tmp_path: Path) -> None:
    first = Bench([tmp_path / "one"])
    await first.logs.load()
    await first.apply(("a", 0, ME, 3))
    first.logs.get("a", 0).append(  # type: ignore[union-attr]
        _batch(), leader_epoch=3, now_ms=1, from_client=True
    )
    await first.close()
    second = Bench([tmp_path / "one"])
    await second.logs.load()
    try:
        assert await second.apply(("a", 0, ME, 1), ids={"a": b"n" * 16}) == [0]
        assert second.partition("a", 0).log.log_end_offset == 0
        assert any(folder.name.endswith("-stray") for folder in (tmp_path / "one").iterdir())
    finally:
        await second.close()


async def test_a_replica_that_is_no_longer_assigned_is_dropped(bench: Bench, tmp_path: Path) -> None:
    """While the broker was away, the topic was deleted and another of its name created."""
    await bench.apply(("a", 0, 2, 3), ("b", 0, ME, 3))
    bench.logs.get("a", 0).append(  # type: ignore[union-attr]
        _batch(), leader_epoch=3, now_ms=1, from_client=True
    )
    ids = {**IDS, "a": b"n" * 16}
    topic = LeaderAndIsrTopicState(topic_name="a", topic_id=ids["a"], partition_states=[])
    assert bench.changes.contradicts(LeaderAndIsrRequest(topic_states=[topic]))
    await bench.changes.drop_strays([bench.partition("a", 0), bench.partition("b", 0)])
    assert list(bench.replicas.partitions()) == []
    assert bench.heard.calls[-1] == ("stop", "b", 0)
    assert not bench.changes.contradicts(LeaderAndIsrRequest(topic_states=[topic]))
    assert await bench.apply(("a", 0, 2, 1), ids=ids) == [0]
    assert bench.partition("a", 0).log.log_end_offset == 0
    (kept,) = (each for folder in ("one", "two") for each in (tmp_path / folder).glob("a-0.*-stray"))
    assert any(file.stat().st_size for file in kept.glob("*.log"))


def _batch() -> bytearray:
    from ottla_protocol.records.record import encode_batch

    return encode_batch([(1, b"k", b"v", ())])


async def test_a_log_without_a_leader_is_committed_to_its_checkpoint(tmp_path: Path) -> None:
    first = Bench([tmp_path / "one"])
    await first.logs.load()
    await first.apply(("a", 0, ME, 3))
    for _ in range(3):
        first.logs.get("a", 0).append(_batch(), leader_epoch=3, now_ms=1, from_client=True)  # type: ignore[union-attr]
    await first.logs.write_high_watermarks({("a", 0): 2})
    await first.close()
    second = Bench([tmp_path / "one"])
    await second.logs.load()
    try:
        log = second.logs.get("a", 0)
        assert log is not None
        assert log.open().committed_offset() == 2
        assert second.replicas.last_stable_offset(log) == 2
    finally:
        await second.close()


async def test_a_failed_data_folder_takes_only_its_partitions_offline(bench: Bench) -> None:
    await bench.apply(("a", 0, ME, 1), ("a", 1, ME, 1), ("b", 0, 2, 1), ("b", 1, 2, 1))
    failed: list[tuple[str, list[str]]] = []
    bench.replicas.on_folder_failed.append(
        lambda folder, partitions: failed.append((folder, [f"{p.topic}-{p.partition}" for p in partitions]))
    )
    log = bench.logs.get("a", 0)
    assert log is not None
    folder = log.path.rpartition("/")[0]
    there = sorted(each.name for each in bench.logs.logs() if each.path.startswith(folder + "/"))
    log.fail("the disk is gone")
    log.fail("once more")
    await asyncio.sleep(0)
    assert [(path, sorted(names)) for path, names in failed] == [(folder, there)]
    roles = {f"{p.topic}-{p.partition}": p.role for p in bench.replicas.partitions()}
    assert {name for name, role in roles.items() if role is Role.OFFLINE} == set(there)
    assert ("stop", "a", 0) in bench.heard.calls
    assert await bench.apply(("a", 0, ME, 2)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await bench.stop("a", 0, 2, delete=True) == ErrorCode.KAFKA_STORAGE_ERROR
    # New partitions go to the folders that are left.
    assert await bench.apply(("b", 2, ME, 1), ("b", 3, ME, 1)) == [0, 0]
    new = bench.logs.get("b", 2)
    assert new is not None
    assert not new.path.startswith(folder + "/")
    ended: list[None] = []
    bench.replicas.on_all_failed = lambda: ended.append(None)
    new.fail("this one too")
    await asyncio.sleep(0)
    assert len(ended) == 1
    assert await bench.apply(("b", 4, ME, 1)) == [ErrorCode.KAFKA_STORAGE_ERROR]
