"""`ottla groups lag`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from tests.client.admin.records import put
from tests.client.commands.ottla_command import Ottla
from tests.support.metrics import LISTENER, address_of, get
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

from ottla_client.commands.group_lag import History, Look
from ottla_client.commands.sparklines import SPARKS, sparkline


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
    ottla.fails("groups", "lag", "g", "--history", "--once", code=2)
    ottla.fails("groups", "lag", "--history", code=2)
