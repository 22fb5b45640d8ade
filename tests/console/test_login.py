"""Logging in as users of the cluster, whose access control lists decide what they see and change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.ports import free_port
from tests.console.browsing import Browser, browsing
from tests.support.processes import BrokerProcess

from ottla_client import Admin, TopicPartition
from ottla_client.admin import NewTopic
from ottla_protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    ResourcePattern,
)

pytestmark = pytest.mark.ottla_only

LOGIN: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_alice="alice-secret" user_bob="bob-secret";'
)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker where alice may do everything and bob nothing; the address with a login."""
    port = free_port()
    broker = BrokerProcess(
        tmp_path_factory.mktemp("secured") / "data",
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
            "connection.failed.authentication.delay.ms": 10,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
            "offsets.topic.num.partitions": 1,
        },
    )
    broker.settings["listeners"] = f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://127.0.0.1:{port}"
    broker.start()
    yield broker, f"127.0.0.1:{port}"
    broker.kill()


@pytest.fixture
async def browser(secured: tuple[BrokerProcess, str], tmp_path: Path) -> AsyncIterator[Browser]:
    async with browsing(secured[1], LOGIN, audit_log=str(tmp_path / "audit")) as opened:
        yield opened


async def test_nothing_without_a_login(browser: Browser, tmp_path: Path) -> None:
    asked = await browser.get("/topics?q=a", allow_redirects=False)
    assert (asked.status, asked.headers["Location"]) == (303, "/login?next=/topics?q%3Da")
    async with browser.events("/topics") as events:
        assert (await anext(events))[0] == "ended"
    assert (await browser.post("/confirm", token="x")).status == 401
    wrong = await browser.post("/login", user="alice", password="<wrong>")
    assert (wrong.status, "refuses" in wrong.text, "wrong" not in wrong.text) == (401, True, True)
    assert (
        await browser.post("/login", {"Origin": "http://evil.example"}, user="a", password="b")
    ).status == 403
    log = (tmp_path / "audit").read_text()
    assert json.loads(log)["outcome"] == "refused"
    assert "<wrong>" not in log


async def test_logins_that_fail_are_slowed_down(browser: Browser) -> None:
    for _ in range(5):
        assert (await browser.post("/login", user="alice", password="no")).status == 401
    late = await browser.post("/login", user="alice", password="alice-secret")
    assert (late.status, "try again in" in late.text) == (429, True)


async def test_the_clusters_lists_decide(secured: tuple[BrokerProcess, str], browser: Browser) -> None:
    broker, _ = secured
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic("payroll", 1)])
        await admin.alter_group_offsets("payers", {TopicPartition("payroll", 0): 0})
        page = await browser.post("/login?next=//evil.example", user="bob", password="bob-secret")
        assert (page.status, "bob" in page.text, "evil" in page.text) == (200, True, False)
        assert "payroll" not in (await browser.get("/topics")).text
        assert (await browser.get("/topics/payroll")).status in (403, 404)
        assert (await browser.get("/topics/payroll/messages")).status in (403, 404)
        refused = await browser.get("/group?id=payers")
        assert (refused.status, "You have no right to this." in refused.text) == (403, True)
        assert "payers" not in (await browser.get("/groups")).text
        csrf = page.hidden["csrf"]
        assert (await browser.post("/group/delete", csrf=csrf, id="payers")).status == 403
        assert (await browser.post("/logout", csrf="x")).status == 403
        await browser.post("/logout", csrf=csrf)
        assert (await browser.get("/", allow_redirects=False)).status == 303

        page = await browser.post("/login?next=/topics", user="alice", password="alice-secret")
        assert "payroll" in page.text
        proposed = await browser.post("/group/delete", csrf=page.hidden["csrf"], id="payers")
        assert (await browser.post("/confirm", **proposed.hidden)).status == 200
        assert "payers" not in await admin.list_groups()


async def test_what_few_rights_show(secured: tuple[BrokerProcess, str], browser: Browser) -> None:
    broker, _ = secured
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic("letters", 1)])
        allowed = AclEntry("User:bob", "*", AclOperation.READ, AclPermission.ALLOW)
        pattern = ResourcePattern(AclResource.TOPIC, "letters")
        await admin.create_acls([AclBinding(pattern, allowed)])
        await browser.post("/login", user="bob", password="bob-secret")
        page = await browser.get("/topics/letters")
        assert (page.status, "permission describe-configs on the topic" in page.text) == (200, True), (
            page.text
        )
        page = await browser.get("/moves")
        said = ("It isn't known what moves" in page.text, "by their protocol" in page.text)
        assert (page.status, *said) == (200, True, False), page.text
        refused = await browser.get("/group?id=payers")
        assert (refused.status, "ottla acls explain" in refused.text) == (403, True)
        await admin.delete_acls([AclFilter(name="letters")])


async def test_a_session_ends(secured: tuple[BrokerProcess, str]) -> None:
    async with browsing(secured[1], LOGIN, session_minutes=1e-9) as browser:
        page = await browser.post("/login", user="alice", password="alice-secret", headers=None)
        assert "Log in" in page.text


async def test_a_session_that_ends_amid_a_change(
    secured: tuple[BrokerProcess, str], browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is finished, with the rights that it began with, and what came of it is in the audit log."""
    begun, may_go_on, delete = asyncio.Event(), asyncio.Event(), Admin.delete_groups

    async def slow(self: Admin, names: Iterable[str]) -> None:
        begun.set()
        await may_go_on.wait()
        await delete(self, names)

    async with Admin(secured[0].bootstrap) as admin, asyncio.timeout(60):
        await admin.create_topics([NewTopic("bills", 1)])
        await admin.alter_group_offsets("billers", {TopicPartition("bills", 0): 0})
        page = await browser.post("/login", user="alice", password="alice-secret")
        monkeypatch.setattr(Admin, "delete_groups", slow)
        proposed = await browser.post("/group/delete", csrf=page.hidden["csrf"], id="billers")
        other = await browser.post("/group/delete", csrf=page.hidden["csrf"], id="billers")
        confirmed = asyncio.ensure_future(browser.post("/confirm", **proposed.hidden))
        await begun.wait()
        await browser.post("/logout", csrf=page.hidden["csrf"])
        assert (await browser.post("/confirm", **other.hidden)).status == 401
        may_go_on.set()
        assert "Done: Delete group billers" in (await confirmed).text
        assert "billers" not in await admin.list_groups()
    log = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [line["outcome"] for line in log if line["event"] == "outcome"] == ["done"]


async def test_lists_are_explained_added_and_removed(
    secured: tuple[BrokerProcess, str], browser: Browser
) -> None:
    broker, _ = secured
    page = await browser.post("/login", user="alice", password="alice-secret")
    csrf = page.hidden["csrf"]
    question = "/access?who=bob&operation=read&resource=topic:wages"
    assert "Denied" in (await browser.get(question)).text
    assert "super user" in (await browser.get("/access?who=alice&operation=read&resource=topic:wages")).text
    acl = {"who": "bob", "operation": "read", "resource": "topic:wages", "permission": "allow"}
    proposed = await browser.post("/access/add", csrf=csrf, **acl)
    assert "User:bob may read topic:wages" in proposed.text
    assert "Denied" in (await browser.get(question)).text
    assert (await browser.post("/confirm", **proposed.hidden)).status == 200
    allowed = await browser.get(question)
    assert "Allowed" in allowed.text
    assert "User:bob may read topic:wages" in allowed.text
    proposed = await browser.post("/access/remove", csrf=csrf, **acl)
    assert (await browser.post("/confirm", **proposed.hidden)).status == 200
    again = await browser.post("/access/remove", csrf=csrf, **acl)
    assert (await browser.post("/confirm", **again.hidden)).status == 400
    async with Admin(broker.bootstrap) as admin:
        assert not await admin.describe_acls()
    for wrong in ({"operation": "fly"}, {"resource": "cloud:nine"}, {"who": ""}, {"resource": "group:"}):
        assert (await browser.post("/access/add", csrf=csrf, **{**acl, **wrong})).status == 400
    assert (await browser.get("/access?who=bob&operation=fly&resource=topic:wages")).status == 400
