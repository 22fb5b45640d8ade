"""Pages while no broker answers, and after it is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from harness.ports import free_port
from tests.client.base.fake import FakeBroker
from tests.console.browsing import browsing
from tests.support.waiting import until

from ottla_client import Admin
from ottla_client.errors import ConnectError
from ottla_console.site import while_reachable
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from ottla_protocol.messages.list_groups import ListGroupsResponse

NEVER = 3600.0
"""A test that waits for the cluster's deadline doesn't end in time."""


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as started:
        started.versions[ApiKey.DESCRIBE_CLIENT_QUOTAS] = (0, 1)
        started.answers = {
            ApiKey.LIST_GROUPS: lambda header, request: ListGroupsResponse(),
            ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda header, request: DescribeClientQuotasResponse(entries=[]),
        }
        yield started


async def test_pages_say_at_once_that_no_broker_answers_and_work_when_one_is_back(broker: FakeBroker) -> None:
    async with browsing(broker.bootstrap, timeout=NEVER, refresh=0.1) as browser:
        assert (await browser.get("/groups")).status == 200
        async with browser.events("/groups") as events:
            assert (await anext(events))[0] == "live"
            await broker.stop()
            for path in ("/", "/topics/orders", "/quotas", "/access", "/groups"):
                page = await browser.get(path)
                assert (page.status, "no broker can be reached" in page.text) == (503, True), page.text
            name, text = await anext(events)
            assert (name, "no broker can be reached" in text) == ("failed", True)
            await broker.start()
            while (await anext(events))[0] != "live":
                pass
        assert (await browser.get("/groups")).status == 200


async def test_it_starts_before_the_brokers() -> None:
    port = free_port()
    async with browsing(f"127.0.0.1:{port}", timeout=0.5) as browser:
        page = await browser.get("/quotas")
        assert (page.status, "no broker can be reached" in page.text) == (503, True), page.text
        started = FakeBroker()
        started.port = port
        async with started:
            started.versions[ApiKey.DESCRIBE_CLIENT_QUOTAS] = (0, 1)
            started.answers = {
                ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda header, request: DescribeClientQuotasResponse(
                    entries=[]
                )
            }
            async with asyncio.timeout(60):
                while (await browser.get("/quotas")).status != 200:
                    await asyncio.sleep(0.05)


async def test_a_form_that_comes_while_no_broker_answers_is_not_begun(broker: FakeBroker) -> None:
    async with browsing(broker.bootstrap, timeout=NEVER) as browser:
        csrf = (await browser.get("/quotas")).hidden["csrf"]
        await broker.stop()
        assert (await browser.get("/quotas")).status == 503
        page = await browser.post("/group/delete", id="billing", csrf=csrf)
        assert (page.status, "no broker can be reached" in page.text) == (503, True), page.text


async def test_what_waits_for_the_last_broker_ends_when_it_goes(broker: FakeBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        waiting = asyncio.ensure_future(wait(admin, NEVER))
        await broker.stop()
        with pytest.raises(ConnectError, match="no broker can be reached"):
            await waiting
        await broker.start()
        await until(lambda: admin.unreachable is None)
        with pytest.raises(TimeoutError):
            await wait(admin, 0)


async def wait(admin: Admin, seconds: float) -> None:
    async with while_reachable(admin, seconds):
        await asyncio.Event().wait()
