"""A data folder that an older version left (tests/server/data) is opened with nothing lost, and goes on."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.server.old_files import SETTINGS, describe
from tests.support.commands import ottla
from tests.support.processes import BrokerProcess

OwnBroker = Callable[..., BrokerProcess]
DATA = Path(__file__).parent / "data"

pytestmark = pytest.mark.ottla_only


def produce_one(broker: BrokerProcess, topics: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for topic in topics:
        producer.produce(topic, "new", "new", 0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("archive", ["stopped", "killed"])
def test_nothing_is_lost(own_broker: OwnBroker, tmp_path: Path, archive: str) -> None:
    with tarfile.open(DATA / f"{archive}.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    expected: dict[str, Any] = json.loads((tmp_path / "expected.json").read_text())
    broker = own_broker(folder=tmp_path / "data", settings={**SETTINGS, "log.cleaner.enable": False})
    assert describe(broker.bootstrap) == expected

    produce_one(broker, list(expected["topics"]))
    broker.stop()
    verified = ottla("", "log", "verify", str(broker.folder))
    assert (verified.code, verified.out) == (0, b""), verified
    broker.start()
    found = describe(broker.bootstrap)
    for topic, facts in expected["topics"].items():
        records = found["topics"][topic]["records"]["0"]
        assert records["end"] == facts["records"]["0"]["end"] + 1
        assert records["count"] == facts["records"]["0"]["count"] + 1
        records |= facts["records"]["0"]
    assert found == expected
