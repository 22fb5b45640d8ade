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
from tests.client.admin.records import put
from tests.client.commands.ottla_command import Ottla
from tests.client.web.browsing import browsing
from tests.support.metrics import LISTENER, address_of, get
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

from ottla_client import Admin, TopicPartition
from ottla_client.admin import GroupListing, PartitionLag
from ottla_client.commands.group_lag import History, Look, _look, _watch
from ottla_client.commands.sparklines import SPARKS, sparkline
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
    monkeypatch.setattr("ottla_client.commands.group_lag.live_view", lambda _: None if as_json else view)

    def printed(line: str) -> None:
        lines.append(line)
        if len(lines) == 5:
            raise Done

    console: Any = SimpleNamespace(as_json=as_json, is_terminal=not as_json, print=printed)
    with pytest.raises(Done):
        await _watch(console, lambda: _look(admin, None, ("g",), histories), 0, histories)
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
