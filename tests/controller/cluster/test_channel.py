"""A channel to one broker, on a link without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla_broker.clock import SystemClock
from ottla_broker.controller.cluster.channel import Channel, Listener, QueuedRequest
from ottla_protocol.exchange import Encoded
from ottla_protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class Link:
    """Answers each request at once."""

    def __init__(self) -> None:
        self.closed = False
        self.on_close: Callable[[Any], None] | None = None
        self.sent: list[bytes] = []

    def version_of(self, api_key: int) -> int:
        return 8

    def submit(self, request: Encoded, *, timeout: float, version: int) -> asyncio.Future[Any]:
        self.sent.append(b"".join(map(bytes, request.encode_parts(version))))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result(UpdateMetadataResponse())
        return answer

    def close(self) -> None:
        self.closed = True


async def test_a_request_that_cannot_be_encoded_holds_up_no_others() -> None:
    link, answers = Link(), list[object]()
    done = asyncio.Event()

    async def connect(broker_id: int, seconds: float) -> Any:
        return link

    def update(epoch: int) -> QueuedRequest:
        def build(version: int) -> Any:
            return UpdateMetadataRequest(controller_epoch=epoch)
            yield

        def answered(response: object) -> None:
            answers.append(response)
            if len(answers) == 2:
                done.set()

        return QueuedRequest(UpdateMetadataRequest.API_KEY, build, answered)

    heard = Listener(lambda _: None, lambda _: None, lambda _: None)
    channel = Channel(1, connect, SystemClock(asyncio.get_running_loop()), heard)
    channel.send(update(2**40))
    channel.send(update(7))
    async with asyncio.timeout(60):
        await done.wait()
    assert answers[0] is None
    assert isinstance(answers[1], UpdateMetadataResponse)
    assert len(link.sent) == 1
    await channel.close()
