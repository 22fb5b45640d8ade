"""Requests about very many partitions are built and encoded with pauses for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla_broker.controller.cluster.batch import Batch
from ottla_broker.controller.cluster.channel import QueuedRequest, _build
from ottla_broker.controller.cluster.context import PORTION, Context, PartitionView, RegisteredBroker, Topic
from ottla_broker.store.keys import Assignment, BrokerRegistration, PartitionState
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.exchange import Encoded

COUNT = 4 * PORTION
VERSIONS = {ApiKey.LEADER_AND_ISR: 7, ApiKey.UPDATE_METADATA: 8, ApiKey.STOP_REPLICA: 4}


class Channels:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, QueuedRequest]] = []

    def send(self, broker: int, request: QueuedRequest) -> None:
        self.sent.append((broker, request))


async def turns_during(work: Callable[[], Any]) -> tuple[Any, int]:
    """What the work returns, and how many turns of the event loop others had meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        return await work(), turns
    finally:
        counting.cancel()


def cluster(count: int) -> Context:
    context = Context(1, 0)
    registration = BrokerRegistration("host", 9092, ["PLAINTEXT://host:9092"], {}, None, 0)
    context.brokers = {number: RegisteredBroker(number, 10 + number, registration) for number in (1, 2)}
    topic = Topic("t", bytes(15) + b"\x01", {index: Assignment([1, 2]) for index in range(count)}, 0)
    for index in range(count):
        topic.partitions[index] = PartitionView(PartitionState(1, 0, [1, 2], 1), 0)
    context.add_topic(topic)
    return context


async def sent_about(count: int) -> tuple[list[tuple[int, QueuedRequest]], int]:
    context, channels = cluster(count), Channels()
    batch = Batch(context, channels, 1, "PLAINTEXT", lambda *_: None)  # type: ignore[arg-type]
    for partition in context.partitions():
        batch.leader_and_isr([1, 2], partition)
        batch.stop_replica([2], partition, delete=False)
    _, turns = await turns_during(batch.send)
    return channels.sent, turns


async def test_a_large_batch_is_sent_with_pauses() -> None:
    sent, turns = await sent_about(COUNT)
    assert turns > COUNT // PORTION
    assert [(broker, ApiKey(request.api_key)) for broker, request in sent] == [
        (1, ApiKey.LEADER_AND_ISR),
        (2, ApiKey.LEADER_AND_ISR),
        (1, ApiKey.UPDATE_METADATA),
        (2, ApiKey.UPDATE_METADATA),
        (2, ApiKey.STOP_REPLICA),
    ]
    for _, queued in sent:
        version = VERSIONS[ApiKey(queued.api_key)]
        request, turns = await turns_during(partial(_build, queued.build(version), version))
        assert turns > COUNT // PORTION
        assert isinstance(request, Encoded)
        whole: Any = _run(queued.build(version))
        assert b"".join(map(bytes, request.encode_parts(version))) == whole.encode(version)


async def test_a_small_batch_is_sent_at_once() -> None:
    sent, turns = await sent_about(3)
    assert turns == 0
    for _, queued in sent:
        version = VERSIONS[ApiKey(queued.api_key)]
        _, turns = await turns_during(partial(_build, queued.build(version), version))
        assert turns == 0


def _run(building: Any) -> Any:
    while True:
        try:
            next(building)
        except StopIteration as end:
            return end.value
