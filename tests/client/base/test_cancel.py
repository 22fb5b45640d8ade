"""Cancellation at every await leaves neither task nor socket, and the rest keeps working."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import pytest
from tests.client.base.conftest import QUICK, client_tasks, sockets, until
from tests.client.base.fake import FakeBroker, Topic

from ottla_client.cluster import Cluster
from ottla_client.connection import Connection
from ottla_client.deadline import Deadline
from ottla_client.errors import ClientError
from ottla_client.settings import ConnectionSettings
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class CancelAt:
    """Awaits a coroutine and cancels its task at the ``place``-th suspension."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], place: int) -> None:
        self.coroutine = coroutine
        self.place = place
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                waited_for = self.coroutine.send(sent) if error is None else self.coroutine.throw(error)
            except StopIteration as end:
                return end.value
            if self.waits == self.place:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # takes hold of what it waits for as soon as it does
            self.waits += 1
            sent, error = None, None
            try:
                sent = yield waited_for
            except BaseException as raised:
                error = raised


async def _cancelled_everywhere(scenario: Callable[[], Coroutine[Any, Any, None]], fake: FakeBroker) -> int:
    """Repeat the call, cancelled one suspension later each time, until it succeeds; their number."""
    place = 0
    while True:
        before = sockets() - fake.open_now
        run = CancelAt(scenario(), place)

        async def drive(run: CancelAt = run) -> None:
            await run

        task = asyncio.ensure_future(drive())
        await asyncio.wait((task,), timeout=60)
        assert task.done(), f"cancelled at wait {place}, it did not end"
        assert task.cancelled() or run.waits <= place, f"the cancellation at wait {place} was swallowed"
        if not task.cancelled():
            task.result()
        await until(lambda: not client_tasks())
        await until(lambda before=before: sockets() - fake.open_now <= before)  # type: ignore[misc]
        if run.waits <= place:
            return place
        place += 1


async def test_opening_a_connection(fake: FakeBroker) -> None:
    async def scenario() -> None:
        connection = await Connection.open("127.0.0.1", fake.port, client_id="me", timeout=60)
        connection.close()
        await connection.wait_closed()

    assert await _cancelled_everywhere(scenario, fake) >= 2


async def test_opening_a_connection_to_a_name(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several addresses are tried in parallel."""
    loop = asyncio.get_running_loop()
    usual = loop.getaddrinfo

    async def found(host: str, port: int, **options: Any) -> Any:
        if host != "broker.example":
            return await usual(host, port, **options)
        await asyncio.sleep(0)
        addresses = ("127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.3")
        return [(2, 1, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(loop, "getaddrinfo", found)
    monkeypatch.setattr("ottla_client.connection.ADDRESS_DELAY", 0.0)

    async def scenario() -> None:
        connection = await Connection.open("broker.example", fake.port, client_id="me", timeout=60)
        connection.close()
        await connection.wait_closed()

    assert await _cancelled_everywhere(scenario, fake) >= 3


async def test_starting_a_cluster(fake: FakeBroker) -> None:
    """After a cancelled start there is nothing to close, and a cancelled close leaves nothing behind."""

    async def scenario() -> None:
        cluster = Cluster(f"127.0.0.2:{fake.port},{fake.bootstrap}", ConnectionSettings(**QUICK))
        await cluster.start(Deadline(30))
        await cluster.close()

    assert await _cancelled_everywhere(scenario, fake) >= 1


@pytest.mark.parametrize(
    "use",
    [
        lambda cluster: cluster.fetch_topics(None, Deadline(30)),
        lambda cluster: cluster.wait_for_topic("later", Deadline(30)),
        lambda cluster: cluster.coordinator("g", Deadline(30)),
        lambda cluster: cluster.dedicated(1, Deadline(30)),
        lambda cluster: cluster.request(1, ListGroupsRequest(), Deadline(30)),
        lambda cluster: cluster.request(None, ListGroupsRequest(), Deadline(30)),
    ],
    ids=["fetch_topics", "wait_for_topic", "coordinator", "dedicated", "request", "any"],
)
async def test_using_a_cluster(fake: FakeBroker, use: Callable[[Cluster], Awaitable[Any]]) -> None:
    fake.topics["later"] = Topic()
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: ListGroupsResponse()

    before = sockets() - fake.open_now
    place = 0
    while True:
        cluster = Cluster(fake.bootstrap, ConnectionSettings(**QUICK))
        await cluster.start(Deadline(30))
        cluster.stale()
        run = CancelAt(use(cluster), place)  # type: ignore[arg-type]

        async def drive(run: CancelAt = run) -> None:
            await run

        task = asyncio.ensure_future(drive())
        await asyncio.wait((task,), timeout=60)
        assert task.done()
        # It goes on working, for those who are left.
        assert (await cluster.fetch_topics(["later"], Deadline(30)))["later"].error == 0
        await cluster.close()
        assert not client_tasks()
        assert task.cancelled() or run.waits <= place
        if run.waits <= place:
            break
        place += 1
    await until(lambda: sockets() - fake.open_now <= before)


async def test_one_caller_is_cancelled_and_the_others_are_served(fake: FakeBroker) -> None:
    cluster = Cluster(fake.bootstrap, ConnectionSettings(**QUICK))
    await cluster.start(Deadline(30))
    callers = [asyncio.ensure_future(cluster.dedicated(1, Deadline(30))) for _ in range(3)]
    await asyncio.sleep(0)
    callers[0].cancel()
    first, *others = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert others[0] is others[1]
    await cluster.close()


async def test_closing_ends_pending_calls(fake: FakeBroker) -> None:
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: None
    cluster = Cluster(fake.bootstrap, ConnectionSettings(**QUICK))
    await cluster.start(Deadline(30))
    waiting = [
        asyncio.ensure_future(each)
        for each in (
            cluster.request(1, ListGroupsRequest(), Deadline(600)),
            cluster.wait_for_topic("never", Deadline(600)),
            cluster.dedicated(1, Deadline(600)),
        )
    ]
    await until(lambda: fake.asked[ApiKey.LIST_GROUPS] == 1)
    await cluster.close()
    await cluster.close()
    done, pending = await asyncio.wait(waiting, timeout=60)
    assert not pending
    assert all(isinstance(each.exception(), ClientError) or each.exception() is None for each in done)
