"""A consumer's fetch of so many partitions that it is read in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.replica.world import FETCH_VERSION, TOPIC_ID, World
from tests.support.handlers import request_context

from ottla_broker.handlers import fetch as fetch_handler
from ottla_broker.handlers.turns import run_whole
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.replica.leadership import LeaderState
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic


class Row:
    """Where the response to a fetch that waits goes."""

    def __init__(self) -> None:
        self.ready = False

    def on_response_ready(self) -> None:
        self.ready = True

    def close(self, reason: str | None) -> None:
        raise AssertionError(reason)


def begin(world: World) -> Any:
    """The steps of a fetch of the one partition, and of a thousand that don't exist."""
    world.nodes[1].apply(LeaderState(1, 1, 1, (1,), 0, (1,)))
    asked = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(fetch_handler.MANY + 1)
    ]
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=asked)],
    )
    context = request_context(world.nodes[1].services, FETCH_VERSION, ApiKey.FETCH)
    return fetch_handler.handle(context, request)


async def test_an_append_while_other_partitions_are_read_is_not_missed(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = begin(world)
    next(steps)
    world.produce(1, 2)
    answer = run_whole(steps)
    assert isinstance(answer, FetchResponse)
    assert len(answer.responses[0].partitions[0].records) > 0
    await world.close()


async def test_an_append_during_the_wait_is_read_in_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    pending = run_whole(begin(world))
    assert isinstance(pending, PendingResponse)
    row = Row()
    pending.put(row)
    world.produce(1, 2)
    world.clock.settle()
    assert row.ready
    answer: Any = run_whole(pending.parts)  # type: ignore[arg-type]
    assert len(answer.responses[0].partitions[0].records) > 0
    await world.close()
