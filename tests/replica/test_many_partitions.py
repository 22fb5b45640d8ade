"""Fetches of so many partitions that they are read in turns."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from tests.replica.world import FETCH_VERSION, TOPIC_ID, World
from tests.support.handlers import INTER_BROKER, request_context

from ottla_broker.handlers import fetch as fetch_handler
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.requests.inline import Result, Running
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)


def until_it_waits(fetching: Coroutine[Any, None, FetchResponse]) -> Result[None]:
    """Run a fetch past its pauses."""
    while isinstance(waits_for := fetching.send(None), int):
        pass
    return cast("Result[None]", waits_for)


def begin(world: World, follower: int = -1, count: int = fetch_handler.MANY + 1, **session: int) -> Any:
    """A fetch of the one partition, and of a thousand that don't exist."""
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
    fetching = begin(world)
    assert isinstance(fetching.send(None), int)
    world.produce(1, 2)
    answer = Running(fetching).start().value()
    assert isinstance(answer, FetchResponse)
    assert len(answer.responses[0].partitions[0].records) > 0
    await world.close()


async def test_an_append_during_the_wait_is_read_in_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    lead(world, 1)
    fetching = begin(world)
    waits_for = until_it_waits(fetching)
    world.produce(1, 2)
    world.clock.run_due()
    assert waits_for.given
    assert isinstance(fetching.send(None), int)
    answer: Any = Running(fetching).start().value()
    assert len(answer.responses[0].partitions[0].records) > 0
    await world.close()


async def test_an_append_while_a_follower_reads_others_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_handler, "MANY", 0)
    monkeypatch.setattr(fetch_handler, "OPENED_AT_ONCE", 0)
    world = World(tmp_path)
    lead(world, 1, 2)
    fetching = begin(world, follower=2, count=1)
    assert isinstance(fetching.send(None), int)
    world.produce(1, 2)
    answer = Running(fetching).start().value()
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
    fetching = begin(world, follower=2, count=1, session_epoch=0)
    waits_for = until_it_waits(fetching)
    world.produce(1, 2)
    world.clock.run_due()
    assert waits_for.given
    assert isinstance(fetching.send(None), int)
    answer: Any = Running(fetching).start().value()
    assert len(answer.responses[0].partitions[0].records) > 0
    assert answer.session_id
    # The next one names none: it is read at once.
    again = begin(world, follower=2, count=0, session_id=answer.session_id, session_epoch=1)
    with suppress(StopIteration):
        assert not isinstance(again.send(None), int)
    again.close()
    await world.close()
