"""The console's pages over a real broker: what they show, what they refuse, and what they change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from tests.console.browsing import Browser, browsing
from tests.support.processes import BrokerProcess

from ottla_cli.groups.lag import Look
from ottla_client import Admin, Producer, TopicPartition
from ottla_client.admin import NewTopic
from ottla_client.errors import BootstrapError, ConfigurationError
from ottla_console.rendering import spark
from ottla_console.search import Found, Progress
from ottla_console.server import serving
from ottla_console.settings import WebSettings
from ottla_console.watch import Trace

Topic = Callable[..., str]
Name = Callable[..., str]


@pytest.fixture
async def browser(broker: BrokerProcess, tmp_path: Path) -> AsyncIterator[Browser]:
    async with browsing(broker.bootstrap, audit_log=str(tmp_path / "audit")) as opened:
        yield opened


@pytest.fixture
async def admin(broker: BrokerProcess) -> AsyncIterator[Admin]:
    async with Admin(broker.bootstrap) as opened:
        yield opened


async def fill(broker: BrokerProcess, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    async with Producer(broker.bootstrap) as producer:
        for key, value in records:
            await producer.send_and_wait(topic, value, key=key, partition=0)


async def test_every_page_is_there(
    browser: Browser, broker: BrokerProcess, admin: Admin, new_topic: Topic, new_name: Name
) -> None:
    topic, group = new_topic(3), new_name("group <b>")
    await fill(broker, topic, (b"k", b"v"))
    await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    node = (await admin.describe_cluster()).nodes[0].id
    for path in (
        "/",
        "/topics",
        f"/topics?q={topic}",
        f"/topics/{topic}",
        f"/topics/{topic}/messages",
        f"/topics/{topic}/0/0",
        f"/groups?q={group}",
        "/groups?state=Empty",
        f"/group?id={group}",
        f"/group/history?id={group}&hours=168",
        "/brokers",
        "/transactions",
        "/transactions?state=Ongoing&q=a",
        "/moves",
        "/access",
        "/quotas",
        "/quotas?type=user&q=default",
        "/access?who=bob&operation=read&resource=topic:wages",
        "/landing",
        f"/brokers/{node}",
    ):
        page = await browser.get(path)
        assert page.status == 200, page.text
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert page.headers["Cache-Control"] == "no-store"
        assert "<b>" not in page.text
    listed = await browser.get(f"/groups?q={group}")
    assert "group &lt;b&gt;" in listed.text
    for path in ("/static/console.css", "/static/console.js", "/static/console.svg"):
        assert (await browser.get(path)).status == 200


async def test_one_line_says_what_is_wrong(browser: Browser, new_topic: Topic) -> None:
    topic = new_topic()
    for path, status, text in (
        ("/nothing", 404, "There is no such page."),
        ("/topics/nothing", 404, "nothing"),
        ("/topics/%3Cscript%3E", 404, "&lt;script&gt;"),
        ("/topics/a%2F..%2Fb", 404, ""),
        ("/group?id=nothing", 404, "unknown group"),
        ("/group?id=", 404, ""),
        ("/group", 400, "which group"),
        ("/group/history", 400, "which group"),
        ("/group/history?id=g&hours=169", 400, "from 1 to 168"),
        ("/group/history?id=nothing", 200, "have kept nothing"),
        ("/quotas?type=cloud", 400, "user, client-id, ip"),
        ("/login/provider", 404, "There is no such page."),
        ("/brokers/999", 404, "There is no such page."),
        ("/topics?page=many", 400, "a number"),
        (f"/topics/{topic}/messages?from=somewhere", 400, "latest, earliest, offset, time"),
        (f"/topics/{topic}/messages?from=time&time=noon", 400, "is not a time"),
        (f"/topics/{topic}/messages?partition=7", 400, "no 7"),
        (f"/topics/{topic}/messages?contains=(&regex=1", 400, "the regular expression is wrong"),
        (f"/topics/{topic}/messages?limit=100000", 400, "from 1 to 500"),
        (f"/topics/{topic}/0/99999999999999999999999", 400, "a number"),
        (f"/topics/{topic}/0/5", 404, "There is no record here yet"),
        ("/static/../site.py", 404, ""),
    ):
        page = await browser.get(path)
        assert page.status == status, (path, page.text)
        assert text in page.text, (path, page.text)


async def test_a_message_is_found_shown_and_downloaded(
    browser: Browser, broker: BrokerProcess, new_topic: Topic
) -> None:
    topic = new_topic()
    large = b"x" * 300_000
    await fill(
        broker,
        topic,
        (b"a", b'{"n": 1}'),
        (b"<i>", b"<script>alert(1)</script>"),
        (None, None),
        (b"\xff", large),
    )
    page = await browser.get(f"/topics/{topic}/messages")
    assert page.text.count('<th scope="row"') == 4
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert" in page.text
    assert len(page.text) < 20_000
    shown = await browser.get(f"/topics/{topic}/0/0")
    assert "&#34;n&#34;: 1" in shown.text
    cut = await browser.get(f"/topics/{topic}/0/3")
    assert "the first 65,536 of 300,000 bytes" in cut.text
    assert len(cut.text) < 80_000
    value = await browser.get(f"/topics/{topic}/0/3/value")
    assert value.text == large.decode()
    assert value.headers["Content-Type"] == "application/octet-stream"
    assert value.headers["Content-Disposition"].startswith("attachment")
    tombstone = await browser.get(f"/topics/{topic}/0/2")
    assert "shown as null" in tombstone.text
    later = await browser.get(f"/topics/{topic}/messages?from=offset&offset=2&partition=0")
    assert later.text.count('<th scope="row"') == 2
    hexed = await browser.get(f"/topics/{topic}/0/0?format=hex")
    assert "7b 22 6e 22" in hexed.text


async def test_a_value_of_ten_megabytes_and_odd_names(
    browser: Browser, broker: BrokerProcess, admin: Admin, new_topic: Topic
) -> None:
    topic, size = new_topic(max_message_bytes=20_000_000), 10_000_000
    async with Producer(broker.bootstrap, max_request_size=20_000_000) as producer:
        await producer.send_and_wait(topic, b"x" * size)
    for path in (f"/topics/{topic}/messages", f"/topics/{topic}/0/0"):
        page = await browser.get(path)
        assert (page.status, len(page.text) < 80_000) == (200, True)
    assert len((await browser.get(f"/topics/{topic}/0/0/value")).text) == size
    odd = ["...", "-", "_", "messages", "t" * 249]
    await admin.create_topics([NewTopic(name, 1) for name in odd])
    try:
        for name in odd:
            for path in (f"/topics/{name}", f"/topics/{name}/messages", f"/topics/{name}/0/0"):
                page = await browser.get(path)
                assert (page.status in (200, 404), name in page.text) == (True, True), (path, page.text)
    finally:
        await admin.delete_topics(odd)


async def test_a_filter_sends_what_it_finds(
    browser: Browser, broker: BrokerProcess, new_topic: Topic
) -> None:
    topic = new_topic()
    await fill(broker, topic, *((b"k%d" % (n % 3), b"value %d" % n) for n in range(30)))

    async def found(query: str) -> tuple[int, str]:
        rows = 0
        async with browser.events(f"/topics/{topic}/found?from=earliest&{query}") as events:
            async for name, data in events:
                if name == "hits":
                    rows = data["html"].count("<tr>") if "html" in data else rows
                else:
                    return rows, data
        raise AssertionError("the stream has no end")

    await browser.get("/")
    assert await found("contains=value+2") == (11, "11 found in 30 records, all searched")
    assert (await found("key=k1"))[0] == 10
    assert (await found("key=k1&contains=value+2"))[0] == 3
    assert (await found(r"contains=value+2\d&regex=1"))[0] == 10
    rows, text = await found("contains=value&limit=5")
    assert (rows, text) == (5, "30 found in 30 records, all searched; the first 5 are shown")
    asked = await browser.get(f"/topics/{topic}/messages?contains=value+2")
    assert "data-stream" in asked.text


async def test_a_filter_ends_when_the_page_goes(
    browser: Browser, new_topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def endless(*_: object) -> AsyncIterator[tuple[list[Found], Progress]]:
        try:
            while True:
                yield [], Progress()
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr("ottla_console.pages.messages.search", endless)
    await browser.get("/")
    async with browser.events(f"/topics/{new_topic()}/found?contains=x") as events:
        assert (await anext(events))[0] == "hits"
        assert not ended.is_set()
    async with asyncio.timeout(60):
        await ended.wait()


@pytest.mark.parametrize("unnamed", [False, True], ids=["a blank at its end", "the empty name"])
async def test_offsets_are_reset_after_a_look(
    browser: Browser,
    broker: BrokerProcess,
    admin: Admin,
    new_topic: Topic,
    new_name: Name,
    tmp_path: Path,
    unnamed: bool,
) -> None:
    topic, group = new_topic(), "" if unnamed else new_name("group") + " "
    name = quote_plus(group)
    await fill(broker, topic, *((None, b"v") for _ in range(5)))
    place = TopicPartition(topic, 0)
    await admin.alter_group_offsets(group, {place: 1})
    assert (await browser.get(f"/group/history?id={name}")).status == 200
    listed = "(empty name)" if unnamed else f"&#39;{group}&#39;"
    assert f'"/group?id={name}">{listed}</a>' in (await browser.get("/groups?state=Empty")).text
    form = (await browser.get(f"/group?id={name}")).hidden
    shown = await browser.post("/group/reset", **form, to="shift", value="2")
    assert f"{place}: 1 → 3 (lag then 2)" in shown.text
    assert (await admin.list_group_offsets(group))[place].offset == 1
    done = await browser.post("/confirm", **shown.hidden)
    assert (done.status, "Done: " in done.text) == (200, True)
    assert (await admin.list_group_offsets(group))[place].offset == 3
    again = await browser.post("/confirm", **shown.hidden)
    assert again.status == 409
    log = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [line["event"] for line in log] == ["change", "outcome"]
    assert log[0]["change"]["offsets"] == {str(place): 3}
    assert log[0]["change"]["before"] == {str(place): 1}
    assert log[1]["outcome"] == "done"
    wrong = await browser.post("/group/reset", **form, to="offset", value="many")
    assert wrong.status == 400
    removed = await browser.post("/group/delete", **form)
    assert (await browser.post("/confirm", **removed.hidden)).status == 200
    assert group not in await admin.list_groups()


async def test_forms_of_others_change_nothing(
    browser: Browser, admin: Admin, new_topic: Topic, new_name: Name
) -> None:
    topic, group = new_topic(), new_name("group")
    await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    form = (await browser.get(f"/group?id={group}")).hidden
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert (await browser.post("/group/delete", headers, **form)).status == 403
    assert (await browser.post("/group/delete", id=group)).status == 403
    assert (await browser.post("/group/delete", id=group, csrf="é")).status == 403
    assert (await browser.post("/confirm", csrf=form["csrf"], token="x")).status == 409
    assert (await browser.post("/group/delete", **{**form, "pad": "x" * 300_000})).status == 413
    assert (await browser.get("/", headers={"Host": "evil.example"})).status == 421
    shown = await browser.post("/group/delete", **form)
    browser.forget()
    ended = await browser.post("/confirm", **shown.hidden)
    assert (ended.status, "Nothing was changed" in ended.text) == (401, True)
    assert "session has ended" not in ended.text
    assert "Log in" not in ended.text
    assert group in await admin.list_groups()


async def test_quotas_are_set_and_removed_after_a_look(
    browser: Browser, admin: Admin, new_name: Name, tmp_path: Path
) -> None:
    user = new_name("user <i>")
    csrf = (await browser.get("/quotas")).hidden["csrf"]
    quota = {"user": user, "client_id": "<default>", "key": "producer_byte_rate"}
    proposed = await browser.post("/quotas/set", csrf=csrf, value="1.5KiB", **quota)
    assert "none → 1,536 bytes per second" in proposed.text

    async def become(*wanted: dict[str, float]) -> None:
        """Kafka's brokers learn of a quota a moment after it is set."""
        async with asyncio.timeout(60):
            while True:
                found = await admin.describe_client_quotas()
                entity = {"user": user, "client-id": None}
                if [dict(each.values) for each in found if each.entity == entity] == list(wanted):
                    return
                await asyncio.sleep(0.02)

    await become()
    assert (await browser.post("/confirm", **proposed.hidden)).status == 200
    await become({"producer_byte_rate": 1536.0})
    listed = await browser.get("/quotas?type=user&q=user+%3Ci")
    assert "user &lt;i&gt;" in listed.text
    assert listed.hidden["client_id"] == "<default>"
    proposed = await browser.post("/quotas/remove", csrf=csrf, **quota)
    assert "1,536 bytes per second → none" in proposed.text
    assert (await browser.post("/confirm", **proposed.hidden)).status == 200
    await become()
    log = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [line["change"]["value"] for line in log if line["event"] == "change"] == [1536.0, None]
    for wrong, text in (
        ({}, "has no quota"),
        ({"user": "", "client_id": ""}, "name a user"),
        ({"ip": "10.0.0.7"}, "without the others"),
        ({"user": "", "client_id": "", "ip": "10.0.0.7"}, "addresses have"),
        ({"key": "speed"}, "no quota"),
    ):
        page = await browser.post("/quotas/remove", csrf=csrf, **{**quota, **wrong})
        assert (page.status, text in page.text) == (400, True), page.text
    page = await browser.post("/quotas/set", csrf=csrf, value="much", **quota)
    assert (page.status, "write a number" in page.text) == (400, True)


async def test_read_only(broker: BrokerProcess, admin: Admin, new_topic: Topic, new_name: Name) -> None:
    topic, group = new_topic(), new_name("group")
    await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    async with browsing(broker.bootstrap, read_only=True) as browser:
        page = await browser.get(f"/group?id={group}")
        assert "/group/delete" not in page.text
        csrf = page.hidden.get("csrf", "")
        assert (await browser.post("/group/delete", id=group, csrf=csrf)).status == 403


async def test_a_page_follows_the_cluster(
    broker: BrokerProcess, admin: Admin, new_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla_console.cached.SHARE", 0)  # however slow this machine is
    topic = new_name("made-later")
    async with browsing(broker.bootstrap, refresh=0.1) as browser:
        await browser.get("/topics")
        async with browser.events(f"/topics?q={topic}") as events:
            assert "No topic" in (await anext(events))[1]
            await admin.create_topics([NewTopic(topic, 1)])
            name, html = await anext(events)
            assert (name, f"/topics/{topic}" in html) == ("live", True)


async def test_with_a_wrong_address_it_does_not_start() -> None:
    settings = WebSettings(client={"bootstrap_servers": "no-such-host.invalid:9092"}, port=0, timeout=0.5)
    with pytest.raises(BootstrapError):
        async with serving(settings):
            pass


def test_options_that_contradict() -> None:
    login: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
    for options in (
        {"host": "0.0.0.0"},
        {"host": "console.example", "tls_cert": "cert.pem"},
        {"host": "0.0.0.0", "client": login},
        {"tls_key": "key.pem"},
    ):
        with pytest.raises(ConfigurationError):
            WebSettings(**options)
    assert WebSettings(host="0.0.0.0", client=login, tls_cert="cert.pem").logs_in
    assert not WebSettings(host="0.0.0.0", insecure=True).logs_in
    assert not WebSettings(client={**login, "sasl_plain_username": "alice"}).logs_in
    assert not WebSettings(client={**login, "sasl_mechanism": "OAUTHBEARER"}).logs_in


async def test_only_what_hangs_is_aborted(
    browser: Browser, new_topic: Topic, admin: Admin, new_name: Name
) -> None:
    topic, group = new_topic(), new_name("group")
    await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    csrf = (await browser.get(f"/group?id={group}")).hidden["csrf"]
    for fields, text in (
        ({"topic": topic, "partition": "0", "producer": "7"}, "no transaction of producer 7 hangs"),
        ({"topic": topic, "partition": "x", "producer": "7"}, "a number"),
        ({"topic": "nothing", "partition": "0", "producer": "7"}, "nothing"),
    ):
        page = await browser.post("/transactions/abort", csrf=csrf, **fields)
        assert (page.status, text in page.text) == (400, True), page.text


def test_a_group_is_traced_for_long_in_few_points() -> None:
    trace = Trace()
    for at in range(1000):
        trace.add(Look(float(at), at, None))
        assert len(trace.looks) <= 120
    times = [look.at for look in trace.looks]
    assert times == sorted(times)
    assert times[-30:] == [float(each) for each in range(970, 1000)]
    assert times[0] == 0
    assert "from 0 to 999" in spark(trace)
