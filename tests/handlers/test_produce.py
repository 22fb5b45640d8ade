"""Produce, called directly: one partition's fault, and what a request that waits keeps in memory."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.badinput.requests import produce_request, records
from tests.support.handlers import handled, request_context, services, when_answered
from tests.support.log_dirs import KEEP, TOPIC_ID, World

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.handlers import produce
from ottla_broker.log.files import Files
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.requests.inline import Running
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.produce import ProduceRequest

_VERSION = 9


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    background = Background(4)
    made = await World(tmp_path, background, KEEP, Files(64)).load()
    yield made
    made.kill()
    background.close()


def context(world: World) -> Any:
    given = services(
        replicas=world.replicas,
        clock=SystemClock(asyncio.get_running_loop()),
        metadata=SimpleNamespace(topic=lambda name: None),
    )
    return request_context(given, _VERSION, ApiKey.PRODUCE)


class Frame(bytearray):
    """A received frame to which there are weak references; a memoryview of it keeps it."""


async def test_a_request_is_released_while_its_answer_waits_for_replicas(world: World) -> None:
    partition = world.lead()
    partition.lead(LeaderState(0, 1, 1, (1, 2), 1, (1, 2)))
    frame = Frame(produce_request("t", bytes(records(b"v"))).encode(_VERSION))
    kept = weakref.ref(frame)
    request = ProduceRequest.decode(memoryview(frame), _VERSION, 0)
    answer = handled(produce, context(world), request)
    assert isinstance(answer, Running)
    del frame, request
    gc.collect()
    assert kept() is None
    answers: list[Any] = []
    when_answered(answer, answers.append)
    partition.stop()
    while not answers:
        await asyncio.sleep(0)
    assert answers[0].responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("acks", [0, 1, 5])
async def test_a_refused_request_needs_no_garbage_collection(world: World, acks: int) -> None:
    frame = Frame(produce_request("absent", bytes(records(b"v")), acks=acks).encode(_VERSION))
    kept = weakref.ref(frame)
    gc.disable()
    try:
        try:
            handled(produce, context(world), ProduceRequest.decode(memoryview(frame), _VERSION, 0))
        except CloseConnection:
            assert acks == 0
        del frame
        assert kept() is None
    finally:
        gc.enable()


async def test_a_partition_whose_log_does_not_open_leaves_the_others_alone(world: World) -> None:
    world.lead()
    world.logs.create("u", 0, bytes(reversed(TOPIC_ID)), KEEP)
    world.lead("u")
    request = produce_request("u", bytes(records(b"v")), acks=1)
    request.topic_data += produce_request("t", bytes(records(b"v")), acks=1).topic_data
    answer: Any = handled(
        produce,
        context(world),
        ProduceRequest.decode(memoryview(bytearray(request.encode(_VERSION))), _VERSION, 0),
    )
    refused, stored = (each.partition_responses[0] for each in answer.responses)
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.INCONSISTENT_TOPIC_ID, -1)
    assert (stored.error_code, stored.base_offset) == (ErrorCode.NONE, 0)
