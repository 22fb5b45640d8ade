"""Partitions of a follower's fetch session without news: recorded, but not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.replica.world import FETCH_VERSION, TOPIC_ID, World
from tests.support.handlers import INTER_BROKER, handled, request_context

from ottla_broker.handlers import fetch as fetch_handler
from ottla_broker.log.reader import LogReader
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.partition import Partition
from ottla_broker.replica.selector import RackAwareSelector
from ottla_broker.requests.inline import Running
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState


class Follower:
    """A broker's fetches from broker 1, built by hand."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, broker: int = 2) -> None:
        self.world = world
        self.broker = broker
        self.node = world.nodes[1]
        self.session = (0, 0)
        self.reads = 0
        read = LogReader.read

        def counted(reader: LogReader, *args: Any, **options: Any) -> Any:
            self.reads += 1
            return read(reader, *args, **options)

        monkeypatch.setattr(LogReader, "read", counted)

    @property
    def partition(self) -> Partition:
        return self.node.partition

    def fetch(self, offset: int | None = None, epoch: int = 1) -> Any:
        """The answer's partition, None without one, to a fetch that doesn't wait; see :meth:`ask`."""
        answer = self.ask(offset, epoch)
        return answer.responses[0].partitions[0] if answer.responses else None

    def ask(self, offset: int | None = None, epoch: int = 1, wait_ms: int = 0) -> Any:
        """The answer, or the response that is waited for; without an offset, the request doesn't name the partition."""
        self.reads = 0
        asked = []
        if offset is not None:
            wanted = FetchPartition(partition=0, fetch_offset=offset, log_start_offset=0)
            wanted.current_leader_epoch = epoch
            wanted.partition_max_bytes = 1 << 20
            asked.append(wanted)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.broker, replica_epoch=9),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session[0],
            session_epoch=self.session[1],
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=asked)] if asked else [],
        )
        context = request_context(self.node.services, FETCH_VERSION, ApiKey.FETCH, INTER_BROKER)
        answer: Any = handled(fetch_handler, context, request)
        if not isinstance(answer, Running):
            assert not answer.error_code
            self.session = (answer.session_id, self.session[1] + 1)
        return answer


@pytest.fixture
async def follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    world = World(tmp_path)
    world.nodes[1].apply(LeaderState(1, 1, 1, (1, 2), 0, world.numbers))
    made = Follower(world, monkeypatch)
    yield made
    await world.close()


async def test_a_follower_at_the_end_is_recorded_without_a_read(follower: Follower) -> None:
    world = follower.world
    assert follower.fetch(0) is not None
    follower.fetch()
    world.clock.time += 3
    assert follower.fetch() is None
    assert follower.reads == 0
    remote = follower.partition.followers[2]
    assert (remote.last_fetch, remote.caught_up) == (world.clock.time, world.clock.time)
    # Data; then the high watermark that the fetch has moved; then nothing again.
    world.produce(1, 2)
    assert len(follower.fetch().records) > 0
    answer = follower.fetch(2)
    assert (answer.high_watermark, len(answer.records)) == (2, 0)
    follower.fetch()
    assert follower.fetch() is None
    assert follower.reads == 0


async def test_news_is_answered(follower: Follower) -> None:
    world = follower.world
    world.produce(1, 3)
    for offset in (0, 3, None, None):
        follower.fetch(offset)
    assert follower.reads == 0
    follower.partition.log.advance_log_start_offset(2)
    assert follower.fetch().log_start_offset == 2
    follower.fetch()
    assert follower.fetch() is None
    # Another epoch, in which it leads, and then one in which it doesn't.
    follower.node.apply(LeaderState(1, 1, 2, (1, 2), 1, world.numbers))
    assert follower.fetch().error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert follower.fetch(3, epoch=2) is not None
    follower.fetch()
    assert follower.fetch() is None
    follower.node.apply(LeaderState(1, 3, 3, (3, 2), 2, world.numbers))
    assert follower.fetch().error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_leader_that_knows_no_brokers_yet_serves_its_followers(follower: Follower) -> None:
    """As just after its start, before the first UpdateMetadata: who is registered matters for joining the ISR only."""
    world = follower.world
    follower.node.services.metadata.brokers.clear()
    world.produce(1, 2)
    assert len(follower.fetch(0).records) > 0
    answer = follower.fetch(2)
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 2)
    assert follower.partition.followers[2].last_fetch == world.clock.time


async def test_a_replica_out_of_sync_is_read_for(follower: Follower) -> None:
    follower.node.apply(LeaderState(1, 1, 2, (1,), 1, follower.world.numbers))
    for offset in (0, None, None):
        follower.fetch(offset, epoch=2)
        assert follower.reads == 1
    assert [change.isr for _, change in follower.world.proposals] == [(1, 2)]


@pytest.mark.parametrize("has_selector", [False, True])
async def test_followers_that_consumers_read_from_hear_of_the_high_watermark_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_selector: bool
) -> None:
    world = World(tmp_path)
    node = world.nodes[1]
    if has_selector:
        node.services.replicas.selector = RackAwareSelector(1, lambda _: None)
    node.apply(LeaderState(1, 1, 1, (1, 2, 3), 0, world.numbers))
    world.produce(1, 2)
    second, third = (Follower(world, monkeypatch, broker) for broker in (2, 3))
    for one in (second, third):
        assert len(one.fetch(0).records) > 0
    waits = second.ask(2, wait_ms=500)
    assert isinstance(waits, Running)
    # Now all have the records. The third hears of it with the answer, the second while it waits.
    answer = third.ask(2, wait_ms=500)
    world.clock.advance(0)
    assert isinstance(answer, Running) is not has_selector
    assert waits.given is has_selector
    if has_selector:
        assert answer.responses[0].partitions[0].high_watermark == 2
        # That is no reason to be answered again.
        assert isinstance(third.ask(2, wait_ms=500), Running)
    await world.close()
