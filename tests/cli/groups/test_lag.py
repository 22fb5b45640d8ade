"""`ottla groups lag`."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from rich.console import Console as RichConsole
from tests.cli.ottla_command import Ottla
from tests.client.admin.records import put
from tests.console.browsing import browsing
from tests.support.commands import finish, spawn
from tests.support.metrics import LISTENER, Scraped, address_of, get
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

from ottla_cli.groups.lag import History, Look, _look, _watch
from ottla_cli.groups.sparklines import SPARKS, sparkline
from ottla_client import Admin, TopicPartition, sync
from ottla_client.admin import GroupListing, PartitionLag
from ottla_client.errors import ConnectError
from ottla_client.types import OffsetAndMetadata


def test_lag_of_a_group(
    broker: BrokerProcess, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    ottla = Ottla(broker.bootstrap)
    topic, group = new_topic(), new_name("group")
    now = int(time.time() * 1000)
    for ago in range(5, 0, -1):
        put(broker, topic, 0, now - ago * 60_000)
    ottla("groups", "reset-offsets", group, "--topic", f"{topic}:0", "--to-offset", "2", "--execute")
    (found,) = ottla.json("groups", "lag", group, "--once")
    assert (found["group"], found["lag_records"]) == (group, 3)
    assert 180 <= found["lag_seconds"] < 3600
    assert found["trend_records_per_second"] is None
    (partition,) = found["partitions"]
    assert (partition["topic"], partition["committed"], partition["end"]) == (topic, 2, 5)
    (found,) = ottla.json("groups", "lag", f"{group[:-1]}*{group[-1]}", "--interval", "0.1")
    assert (found["trend_records_per_second"], found["catch_up_seconds"]) == (0.0, None)
    assert group in ottla("groups", "lag", group, "--once")
    for patterns in ([group, "no-such-*"], ["no-such-*"]):
        said = ottla.run("groups", "lag", *patterns, "--once").stderr
        assert said == "no group that matches no-such-* has committed offsets\n"
    assert "unknown group" in ottla.fails("groups", "lag", new_name("missing"), "--once")
    ottla.fails("groups", "lag", "--watch", "--once", code=2)


def test_trends() -> None:
    history = History()
    history.add(Look(0.0, 100, 10.0))
    assert (history.trend, history.catch_up) == (None, None)
    history.add(Look(10.0, 50, 5.0))
    assert (history.trend, history.catch_up) == (-5.0, 10.0)
    history.add(Look(20.0, 200, 5.0))
    assert (history.trend, history.catch_up) == (5.0, None)
    history.add(Look(310.0, 0, 0.0))
    assert [look.at for look in history.looks] == [10.0, 20.0, 310.0]
    assert history.catch_up == 0.0


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([0, 0], "▁▁"), ([0, 7, 14], "▁▄█"), ([5] * 2 * SPARKS, "█" * SPARKS)],
)
def test_sparklines(values: list[int], bars: str) -> None:
    assert sparkline(values) == bars


async def page_of(broker: BrokerProcess, path: str) -> str:
    async with browsing(broker.bootstrap) as browser:
        return (await browser.get(path)).text


@pytest.mark.ottla_only
def test_the_history_of_a_group(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(
        settings={"ottla.lag.history.enable": "true", "ottla.lag.history.interval.ms": 1000, **LISTENER}
    )
    ottla = Ottla(broker.bootstrap)
    assert "no lag of group" in ottla.fails("groups", "lag", "g", "--history")
    ottla("topics", "create", "t")
    put(broker, "t", 0, int(time.time() * 1000) - 60_000)
    ottla("groups", "reset-offsets", "g", "--topic", "t:0", "--to-offset", "0", "--execute")
    found = wait_for(
        lambda: ottla.json("groups", "lag", "g", "--history")["samples"], "the first sample", timeout=60
    )
    assert (found[0]["lag_records"], found[0]["kind"], found[0]["partitions"]) == (1, "classic", 1)
    assert 60 <= found[0]["lag_seconds"] < 3600
    status, text, _ = get(address_of(broker), "/lag?group=g&hours=1")
    assert (status, json.loads(text)["samples"][0]) == (200, found[0])
    shown = ottla("groups", "lag", "g", "--history", "--hours", "1")
    assert "1 record" in shown
    assert "█" in shown
    page = asyncio.run(page_of(broker, "/group/history?id=g&hours=1"))
    assert "of a classic group" in page
    assert re.search(r'</th><td class="num">1</td><td class="num">1</td>\n<td class="num">1m\d\ds</td>', page)
    ottla.fails("groups", "lag", "g", "--history", "--once", code=2)
    ottla.fails("groups", "lag", "--history", code=2)


@pytest.mark.ottla_only
def test_what_is_lag_is_the_same_everywhere(own_broker: Callable[..., BrokerProcess]) -> None:
    """Markers, aborted records, what was removed, and offsets beyond the end are none, in a partition or in a sum."""
    history = {"ottla.lag.history.enable": "true", "ottla.lag.history.interval.ms": 1000}
    broker = own_broker(settings={**history, **LISTENER, "transaction.state.log.num.partitions": 1})
    ottla = Ottla(broker.bootstrap)
    ottla("topics", "create", "t", "--partitions", "5")
    now = int(time.time() * 1000)
    with sync.Producer(broker.bootstrap, transactional_id="x") as producer:
        for value, is_kept in ((b"kept", True), (b"aborted", False), (b"last", True)):
            producer.begin_transaction()
            for partition in (0, 4):
                producer.send("t", value, partition=partition)
            producer.flush()
            producer.commit_transaction() if is_kept else producer.abort_transaction()
    put(broker, "t", 1, *[now] * 10)
    put(broker, "t", 2, *[now - 60_000] * 10)
    put(broker, "t", 3, *[now] * 10)
    ends = {0: 6, 1: 10, 2: 10, 3: 10, 4: 6}
    offsets = {0: 5, 1: 1000, 2: 3, 3: 2, 4: 1}
    with sync.Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition("t", 3): 10})
        admin.alter_group_offsets("g", {TopicPartition("t", p): offset for p, offset in offsets.items()})
    lags = {0: 0, 1: 0, 2: 7, 3: 0, 4: 1}
    found = ottla.json("groups", "describe", "g")
    assert {each["partition"]: each["lag_records"] for each in found["partitions"]} == lags
    assert {each["partition"]: each["end"] for each in found["partitions"]} == ends
    assert {each["partition"]: each["beyond_end"] for each in found["partitions"]} == {
        **dict.fromkeys(lags, 0),
        1: 990,
    }
    assert found["lag_records"] == 8
    assert 60 <= found["lag_seconds"] < 3600
    (once,) = ottla.json("groups", "lag", "g", "--once")
    assert {each["partition"]: each["lag_records"] for each in once["partitions"]} == lags
    assert once["lag_records"] == 8
    assert "beyond the end: t-1 by 990" in ottla.run("groups", "lag", "g", "--once").stderr
    scraped = Scraped(get(address_of(broker), "/metrics")[1])
    at = {"consumergroup": "g", "topic": "t"}
    assert {p: scraped("kafka_consumergroup_lag", partition=p, **at) for p in lags} == lags
    assert scraped("kafka_consumergroup_lag_sum", consumergroup="g") == 8
    assert scraped("ottla_group_beyond_end", group="g", topic="t", partition=1) == 990
    samples = wait_for(
        lambda: ottla.json("groups", "lag", "g", "--history")["samples"], "the first sample", timeout=60
    )
    assert samples[-1]["lag_records"] == 8
    doctor = ottla.run("cluster", "doctor").stdout
    assert "It has no members, and 8 records to read" in doctor
    assert "t-1 by 990" in doctor
    page = asyncio.run(page_of(broker, "/group?id=g"))
    assert "committed 990 beyond the end" in page
    assert "<dt>Lag</dt><dd>8</dd>" in page


@pytest.mark.ottla_only
def test_share_groups_and_new_offsets_count_records(own_broker: Callable[..., BrokerProcess]) -> None:
    """What a share group has left, and what a reset leaves, are no markers or aborted records either."""
    history = {"ottla.lag.history.enable": "true", "ottla.lag.history.interval.ms": 1000}
    broker = own_broker(settings={**history, **LISTENER, "transaction.state.log.num.partitions": 1})
    ottla = Ottla(broker.bootstrap)
    ottla("topics", "create", "t", "--partitions", "1")
    ottla("configs", "alter", "--group", "s", "--set", "share.auto.offset.reset=earliest")
    with sync.Producer(broker.bootstrap, transactional_id="x") as producer:
        for is_kept in (True, False, True):
            producer.begin_transaction()
            producer.send("t", b"value")
            producer.flush()
            producer.commit_transaction() if is_kept else producer.abort_transaction()
    consume = spawn(broker.bootstrap, "consume", "t", "-g", "s", "--share", "-n", "1")
    assert finish(consume).lines == [b"value"]
    (partition,) = ottla.json("groups", "describe", "s")["partitions"]
    assert (partition["start_offset"], partition["lag_records"]) == (1, 1)
    (found,) = ottla.json("groups", "lag", "s", "--once")
    assert found["lag_records"] == 1
    page = asyncio.run(page_of(broker, "/group?id=s"))
    assert "<dt>Lag</dt><dd>1</dd>" in page

    def sampled() -> bool:
        scraped = Scraped(get(address_of(broker), "/metrics")[1])
        return scraped("kafka_consumergroup_lag_sum", consumergroup="s") == 1

    wait_for(sampled, "a sample of the share group", timeout=60)
    for group in ("s", "new"):
        (row,) = ottla.json("groups", "reset-offsets", group, "--topic", "t", "--to-earliest", "--execute")
        assert row["lag_records"] == 2
    with sync.Admin(broker.bootstrap) as admin:
        assert admin.group_lag("new")[TopicPartition("t", 0)].records == 2


def test_a_record_without_a_timestamp_has_no_age(
    broker: BrokerProcess, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    ottla, topic, group = Ottla(broker.bootstrap), new_topic(), new_name("group")
    put(broker, topic, 0, -1)
    ottla("groups", "reset-offsets", group, "--topic", f"{topic}:0", "--to-earliest", "--execute")
    found = ottla.json("groups", "describe", group)
    assert (found["lag_records"], found["lag_seconds"]) == (1, None)
    assert "Lag          1 record\n" in ottla("groups", "describe", group)
    (once,) = ottla.json("groups", "lag", group, "--once")
    assert (once["lag_records"], once["lag_seconds"]) == (1, None)


class Done(Exception):
    pass


class View:
    """A terminal of 120 columns that sees five looks."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, parts: list[Any]) -> None:
        terminal = RichConsole(width=120, file=io.StringIO(), record=True)
        terminal.print(*parts)
        self.shown.append(terminal.export_text())
        if len(self.shown) == 5:
            raise Done


@pytest.mark.parametrize("as_json", [False, True])
async def test_watching(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparkline grows; a cluster that doesn't answer is shown, and asked again."""
    admin, view, lines = AsyncMock(Admin), View(), list[str]()
    histories: dict[str, History] = {}
    admin.list_groups.return_value = {"g": GroupListing("g", "consumer", "Stable", "classic", 1)}
    place = TopicPartition("t", 0)
    admin.group_lag.side_effect = [
        {place: PartitionLag(OffsetAndMetadata(20 - records), 0, 20, records, seconds)}
        if seconds is not None
        else ConnectError("broker 1 refused")
        for records, seconds in ((0, 0.0), (7, 3.0), (0, None), (14, 90.0), (0, 0.0))
    ]
    monkeypatch.setattr("ottla_cli.groups.lag.live_view", lambda _: None if as_json else view)

    def printed(line: str) -> None:
        lines.append(line)
        if len(lines) == 5:
            raise Done

    console: Any = SimpleNamespace(as_json=as_json, is_terminal=not as_json, print=printed)
    with pytest.raises(Done):
        await _watch(console, lambda: _look(admin, None, ("g",), histories), 0, histories, ("g", "x*"))
    if as_json:
        documents = [json.loads(line) for line in lines]
        assert [each["groups"][0]["lag_records"] for each in documents if "groups" in each] == [0, 7, 14, 0]
        assert "broker 1 refused" in documents[2]["error"]
        return
    assert ["▁█" in each for each in view.shown] == [False, True, False, False, False]
    assert "no answer" in view.shown[2]
    assert "▁▄█ " in view.shown[3]
    assert "1m30s" in view.shown[3]
    assert "▁▄█▁" in view.shown[4]
    assert "no group that matches x* has committed offsets" in view.shown[4]
