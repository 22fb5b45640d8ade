"""Fetches of so many partitions that they are read in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.replica.world import FETCH_VERSION, TOPIC_ID, World
from tests.support.handlers import INTER_BROKER, request_context

from ottla_broker.handlers import fetch as fetch_handler
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.tasks import run_whole
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)


class Row:
    """Where the response to a fetch that waits goes."""

    def __init__(self) -> None:
        self.ready = False

    def on_response_ready(self) -> None:
        self.ready = True

    def close(self, reason: str | None) -> None:
        raise AssertionError(reason)


def begin(world: World, follower: int = -1, count: int = fetch_handler.MANY + 1, **session: int) -> Any:
    """The steps of a fetch of the one partition, and of a thousand that don't exist."""
    asked = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)
    ]
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=asked)],
        replica_state=ReplicaState(replica_id=follower, replica_epoch=world.nodes[2].epoch),
        **session,
    )
    node = world.nodes[1]
    context = request_context(node.services, FETCH_VERSION, ApiKey.FETCH, INTER_BROKER)
    return fetch_handler.handle(context, request)


def lead(world: World, *isr: int) -> None:
    world.nodes[1].apply(LeaderState(1, 1, 1, isr, 0, isr))


async def test_an_append_while_other_partitions_are_read_is_not_missed(tmp_path: Path) -> None:
    world = World(tmp_path)
    lead(world, 1)
    steps = begin(world)
    next(steps)
    world.produce(1, 2)
    answer = run_whole(steps)
    assert isinstance(answer, FetchResponse)
    assert len(answer.responses[0].partitions[0].records) > 0
    await world.close()


async def test_an_append_during_the_wait_is_read_in_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    lead(world, 1)
    pending = run_whole(begin(world))
    assert isinstance(pending, PendingResponse)
    row = Row()
    pending.put(row)
    world.produce(1, 2)
    world.clock.run_due()
    assert row.ready
    answer: Any = run_whole(pending.parts)  # type: ignore[arg-type]
    assert len(answer.responses[0].partitions[0].records) > 0
    await world.close()


async def test_an_append_while_a_follower_reads_others_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_handler, "MANY", 0)
    monkeypatch.setattr(fetch_handler, "OPENED_AT_ONCE", 0)
    world = World(tmp_path)
    lead(world, 1, 2)
    steps = begin(world, follower=2, count=1)
    next(steps)
    world.produce(1, 2)
    answer = run_whole(steps)
    assert isinstance(answer, FetchResponse)
    assert len(answer.responses[0].partitions[0].records) > 0
    await world.close()


async def test_a_followers_first_fetch_is_read_in_turns_also_after_its_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_handler, "MANY", 0)
    monkeypatch.setattr(fetch_handler, "OPENED_AT_ONCE", 0)
    world = World(tmp_path)
    lead(world, 1, 2)
    pending = run_whole(begin(world, follower=2, count=1, session_epoch=0))
    assert isinstance(pending, PendingResponse)
    row = Row()
    pending.put(row)
    world.produce(1, 2)
    world.clock.run_due()
    assert row.ready
    answer: Any = run_whole(pending.parts)  # type: ignore[arg-type]
    assert len(answer.responses[0].partitions[0].records) > 0
    assert answer.session_id
    # The next one names none: it is read at once.
    again = begin(world, follower=2, count=0, session_id=answer.session_id, session_epoch=1)
    assert isinstance(again, FetchResponse | PendingResponse)
    await world.close()
