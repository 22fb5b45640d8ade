"""Searches in a topic: the hits that come first, counts that are true, and a form that ignores nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from multidict import MultiDict
from tests.console.browsing import browsing
from tests.support.depth import examples
from tests.support.processes import BrokerProcess

from ottla_client import Admin, Producer
from ottla_console import search as searching
from ottla_console.message_form import form_in
from ottla_console.search import Found, Progress, Query, newest, search

Topic = Callable[..., str]


class Row(NamedTuple):
    time: int
    offset: int
    partition: int
    key: bytes
    value: bytes


async def fill(broker: BrokerProcess, topic: str, chance: Random) -> list[Row]:
    """Three partitions, of which the first has most records; about two in a hundred have one key."""
    rows: list[Row] = []
    offsets = [0, 0, 0]
    now = 1_700_000_000_000
    async with Producer(broker.bootstrap, linger_ms=0) as producer:
        for number in range(3_000):
            now += chance.choice((0, 1, 7, 1_000))
            partition = chance.choice((0, 0, 0, 0, 1, 2)) if number < 2_900 else 0
            key = b"rare" if chance.random() < 0.02 else b"often"
            value = b"value %d of %s" % (number, key)
            await producer.send(topic, value, key=key, partition=partition, timestamp_ms=now)
            rows.append(Row(now, offsets[partition], partition, key, value))
            offsets[partition] += 1
            if not number % 37:
                await producer.flush()
    return rows


async def test_the_hits_that_come_first_are_shown_and_counts_are_true(
    broker: BrokerProcess, new_topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, chance = new_topic(3, retention_ms=-1), Random(3)
    rows = await fill(broker, topic, chance)
    async with Admin(broker.bootstrap) as admin:
        session: Any = SimpleNamespace(admin=admin, client={"bootstrap_servers": broker.bootstrap})
        for _ in range(examples(40)):
            monkeypatch.setattr(searching, "_FIRST_PART", chance.choice((10, 100, 1_000)))
            start = chance.choice(("latest", "latest", "earliest", "time", "offset"))
            at = {"time": rows[chance.randrange(3_000)].time, "offset": chance.randrange(400)}.get(start, 0)
            query = Query(
                topic,
                chance.choice((None, 0, 1)),
                start,
                at,
                key=chance.choice(("", "rare", "never")),
                contains=chance.choice(("", "2", "of rare", "value 2999")),
                limit=chance.choice((1, 5, 50, 500)),
            )
            there = [
                row
                for row in rows
                if query.partition in (None, row.partition)
                and (start != "time" or row.time >= at)
                and (start != "offset" or row.offset >= at)
            ]
            matching = [
                row
                for row in there
                if (not query.key or row.key.decode() == query.key) and query.contains in row.value.decode()
            ]
            expected = sorted(matching, reverse=query.is_backwards)[: query.limit]
            found, progress = await newest(session, query)
            shown = [(each.timestamp, each.offset, each.partition) for each in found]
            assert shown == [row[:3] for row in expected], query
            assert progress.scanned + progress.left == len(there), query
            assert len(expected) <= progress.hits <= len(matching), query
            if not progress.left:
                assert progress.hits == len(matching), query


async def test_what_comes_last_is_found_without_reading_all(
    broker: BrokerProcess, new_topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(3, retention_ms=-1)
    rows = await fill(broker, topic, Random(4))
    monkeypatch.setattr(searching, "_FIRST_PART", 100)
    newest_hits = sorted((row for row in rows if row.key == b"rare"), reverse=True)[:3]
    async with browsing(broker.bootstrap) as browser:
        await browser.get("/")
        path = f"/topics/{topic}/found?from=latest&key=rare&limit=3"
        async with browser.events(path) as events:
            last, text = "", ""
            async for name, data in events:
                if name == "done":
                    text = data
                    break
                last = data.get("html", last)
        offsets = re.findall(r"/(\d)/(\d+)\"", last)
        assert offsets == [(str(row.partition), str(row.offset)) for row in newest_hits]
        found = re.fullmatch(
            r"(\d+) found in ([\d,]+) records, searched back to 2023-[\dT:.-]+Z;"
            r"( the newest 3 are shown;)? ([\d,]+) offsets not searched",
            text,
        )
        assert found is not None, text
        hits, scanned, left = (int(found[number].replace(",", "")) for number in (1, 2, 4))
        assert scanned + left == 3_000
        assert hits >= 3
        assert scanned < 2_500


async def test_the_last_ones_are_records_that_can_be_read(broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic()
    async with Producer(broker.bootstrap, transactional_id=topic) as producer:
        async with producer.transaction():
            for number in range(3):
                await producer.send(topic, b"kept %d" % number)
        await producer.begin_transaction()
        for _ in range(200):
            await producer.send(topic, b"dropped")
        await producer.flush()
        await producer.abort_transaction()
    async with browsing(broker.bootstrap) as browser:
        for query, values in (
            ("committed=1", ["kept 2", "kept 1", "kept 0"]),
            ("committed=yes&limit=2", ["kept 2", "kept 1"]),
            ("limit=1", ["dropped"]),
        ):
            page = await browser.get(f"/topics/{topic}/messages?{query}")
            assert re.findall(r'<td class="value">([^<]+)</td>', page.text) == values, query
        assert f"/{topic}/0/204" not in page.text


def test_an_outcome_says_what_was_searched() -> None:
    query = Query("t", key="k", limit=5)
    assert Progress(scanned=30, hits=1).ended(query) == "1 found in 30 records, all searched"
    assert Progress(scanned=30, hits=9).ended(query) == (
        "9 found in 30 records, all searched; the newest 5 are shown"
    )
    assert Progress(scanned=30, hits=5, left=7, reached=0).ended(query) == (
        "5 found in 30 records, searched back to 1970-01-01T00:00:00.000Z; 7 offsets not searched"
    )
    stopped = Progress(scanned=30, hits=0, left=7, why="stopped after 120 s")
    assert stopped.ended(query) == "0 found in 30 records; stopped after 120 s: 7 offsets not searched"
    first = Query("t", start="earliest", key="k", limit=5)
    assert Progress(scanned=30, hits=9, left=1, reached=0).ended(first) == (
        "9 found in 30 records, searched to 1970-01-01T00:00:00.000Z; the first 5 are shown; 1 offset not searched"
    )


def asked(text: str) -> MultiDict[str]:
    return MultiDict(part.split("=", 1) for part in text.split("&") if part)


@pytest.mark.parametrize(
    ("address", "start", "at"),
    [
        ("", "latest", 0),
        ("offset=7", "offset", 7),
        ("from=latest&offset=7", "offset", 7),
        ("from=time&offset=0", "offset", 0),
        ("time=2026-05-17T14:30Z", "time", 1_779_028_200_000),
        ("from=earliest&time=2026-05-17T14:30Z", "time", 1_779_028_200_000),
        ("from=earliest&offset=", "earliest", 0),
    ],
)
def test_a_filled_field_says_where_to_begin(address: str, start: str, at: int) -> None:
    form = form_in("t", asked(address))
    assert (form.query.start, form.query.at, form.wrong) == (start, at, {})


@pytest.mark.parametrize(
    ("address", "field", "why"),
    [
        ("offset=x", "offset", "a number from 0"),
        ("offset=1&time=2026-05-17", "time", "not both"),
        ("time=soon", "time", "'soon' is not a time"),
        ("from=time", "time", "at which time"),
        ("from=offset", "offset", "at which offset"),
        ("from=here", "from", "'here' is not one of latest"),
        ("contains=(&regex=1", "contains", "the regular expression is wrong"),
        (f"key={'k' * 1001}", "key", "1,000 characters"),
        ("committed=perhaps", "committed", "neither yes nor no"),
        ("regex=2", "regex", "neither yes nor no"),
        ("partition=7", "partition", "has 3, no 7"),
        ("partition=-1", "partition", "a number from 0"),
        ("limit=0", "limit", "a number from 1 to 500"),
        ("format=xml", "format", "'xml' is not one of auto"),
        ("key=a&key=b", "key", "twice"),
        ("keys=a", "", "no parameter 'keys'; did you mean key?"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(address: str, field: str, why: str) -> None:
    form = form_in("t", asked(address), [0, 1, 2])
    assert list(form.wrong) == [field]
    assert why in form.wrong[field]


async def test_a_wrong_field_leaves_the_form(broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic()
    async with browsing(broker.bootstrap) as browser:
        for query, line in (
            ("contains=(x&regex=1&key=k", 'id="wrong-contains">the regular expression is wrong'),
            ("time=soon&key=k", 'id="wrong-time">'),
            ("committed=perhaps&key=k", 'id="wrong-committed">'),
            ("colour=red&key=k", "no parameter &#39;colour&#39;"),
        ):
            page = await browser.get(f"/topics/{topic}/messages?{query}")
            assert page.status == 400
            assert line in page.text
            assert '<input name="key" size="12" value="k">' in page.text
            assert "data-stream" not in page.text
        async with browser.events(f"/topics/{topic}/found?contains=(&regex=1") as events:
            name, text = await anext(events)
        assert (name, "contains: the regular expression is wrong" in text) == ("failed", True)


async def test_a_search_ends_at_a_bound(
    broker: BrokerProcess, new_topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(3, retention_ms=-1)
    await fill(broker, topic, Random(5))
    monkeypatch.setattr(searching, "MOST_RECORDS", 100)
    monkeypatch.setattr(searching, "_FIRST_PART", 100)
    async with Admin(broker.bootstrap) as admin:
        session: Any = SimpleNamespace(admin=admin, client={"bootstrap_servers": broker.bootstrap})
        last: tuple[list[Found], Progress] | None = None
        async for each in search(session, Query(topic, contains="nothing has this")):
            last = each
        assert last is not None
        _, progress = last
        assert progress.why.startswith("stopped after")
        assert progress.scanned + progress.left == 3_000
