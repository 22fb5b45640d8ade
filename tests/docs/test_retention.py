"""The page on retention: its package is installed as written, and its policy removes segments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.docs.pages import ROOT, marked
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

PAGE = ROOT / "docs/retention.md"

pytestmark = pytest.mark.ottla_only


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the page's package is installed."""
    folder = tmp_path_factory.mktemp("package")
    source, target = folder / "source", folder / "site"
    source.mkdir()
    files = marked(PAGE, "file")
    for name in ("pyproject.toml", "keep_segments.py"):
        (source / name).write_text(files[name])
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*command, "--target", str(target), str(source)], check=True)
    return target


@pytest.fixture
def installed(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers of this test find the page's package."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(package), os.environ.get("PYTHONPATH", ""))))


def settings() -> dict[str, object]:
    lines = marked(PAGE, "file")["server.properties"].splitlines()
    return dict(line.split("=", 1) for line in lines)


def fill(broker: BrokerProcess, topic: str) -> None:
    """Produce a record for each of six segments, which retention.ms and retention.bytes don't keep."""
    create_topic(broker, topic, 1, segment_bytes=1000, retention_bytes=1, retention_ms=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(6):
        producer.produce(topic, b"%d" % number + bytes(900), partition=0)
        assert producer.flush(30) == 0


def bases(broker: BrokerProcess, topic: str) -> list[int]:
    return sorted(int(path.stem) for path in (broker.folder / f"{topic}-0").glob("*.log"))


@pytest.mark.usefixtures("installed")
def test_the_policy_decides_for_its_topics_alone(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(settings=settings())
    fill(broker, "clicks")
    fill(broker, "metrics-cpu")
    fill(broker, "other")
    wait_for(lambda: bases(broker, "clicks") == [3, 4, 5], "the newest segments of clicks")
    wait_for(lambda: bases(broker, "metrics-cpu") == [3, 4, 5], "the newest segments of metrics-cpu")
    wait_for(lambda: bases(broker, "other") == [6], "the other topic to go by time")
    assert bases(broker, "clicks") == [3, 4, 5]
    reasons = wait_for(lambda: removals(broker, "clicks"), "the removals in the log of events")
    assert reasons == {"keep-segments"}


def removals(broker: BrokerProcess, topic: str) -> set[object]:
    events = (each for each in broker.events() if each["event"] == "segments deleted")
    return {each["reason"] for each in events if each["topic"] == topic}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"ottla.retention.policy.keep-segments.count": "many"},
            "ottla.retention.policy.keep-segments.topics: the policy of 'keep_segments:KeepSegments' can't be made: "
            "ValueError: invalid literal for int() with base 10: 'many'",
        ),
        (
            {"ottla.retention.policy.keep-all.topics": ".*"},
            "ottla.retention.policy.keep-all.topics: no installed package offers a retention policy 'keep-all' "
            "(installed: keep-segments)",
        ),
    ],
)
def test_a_policy_that_cannot_be_had_stops_the_start(
    tmp_path: Path, changes: dict[str, str], problem: str
) -> None:
    broker = BrokerProcess(tmp_path / "broker", {**settings(), **changes})
    with pytest.raises(RuntimeError, match=re.escape(problem)):
        broker.start()
