"""The demo on a part of its data, without the kill: its result equals pandas' on the CSV files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench.pipeline import data, driver, picture
from bench.pipeline.__main__ import BATCH, QUICK, produce
from bench.pipeline.story import Story, audits, delays
from rich.console import Console
from tests.support.processes import BrokerProcess

from ottla_pipeline.audit import audit
from ottla_pipeline.landing.tables import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1500


@pytest.fixture(scope="module")
def all_frames() -> dict[str, Any]:
    return {source.topic: data.frame(source) for source in data.SOURCES}


@pytest.fixture(scope="module")
def frames(all_frames: dict[str, Any]) -> dict[str, Any]:
    """The first rows of each table; all planes, so that some flights have theirs."""
    return {name: frame if name == "planes" else frame.head(ROWS) for name, frame in all_frames.items()}


@pytest.fixture(scope="module")
def expected(all_frames: dict[str, Any]) -> Any:
    """The whole year's."""
    return data.expected(all_frames["flights"], all_frames["weather"], all_frames["planes"])


def terminal() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=False)


def text_of(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_messages_are_the_rows(frames: dict[str, Any]) -> None:
    keys, values = zip(*data.messages(data.FLIGHTS, frames["flights"]), strict=True)
    assert len(values) == ROWS
    first = json.loads(values[0])
    assert (keys[0], first["carrier"], first["arr_delay"], first["time_hour"]) == (
        b"N14228",
        "UA",
        11,
        "2013-01-01T10:00:00Z",
    )
    cancelled = next(json.loads(value) for value in values if b'"arr_time":null' in value)
    assert cancelled["arr_delay"] is None


def test_topics_to_tables_to_an_answer(
    spark: SparkSession,
    own_broker: Callable[..., BrokerProcess],
    frames: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import pandas

    broker = own_broker()
    counts = produce(broker.bootstrap, frames, Story(terminal()))
    assert counts == {"planes": 3322, "weather": ROWS, "flights": ROWS}
    driver.land_all(spark, broker.bootstrap, tmp_path, BATCH)
    driver.ask(spark, tmp_path, tmp_path / "result.json")
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["batch", "batch", "batch", "asked"]
    result = data.in_order(pandas.read_json(tmp_path / "result.json", orient="records"))
    assert result.equals(data.expected(frames["flights"], frames["weather"], frames["planes"]))
    found = [
        audit(broker.bootstrap, open_table("delta", str(tmp_path / name)), whole=True) for name in counts
    ]
    assert all(each.clean for each in found)
    console = terminal()
    console.print(audits(found))
    assert "weather-1" in text_of(console)


def test_the_table_fits_into_a_terminal(expected: Any) -> None:
    console = terminal()
    console.print(delays(expected))
    lines = text_of(console).splitlines()
    assert lines[0].startswith("Mean arrival delay in minutes")
    assert lines[1].split() == [str(hour) for hour in range(5, 24)]
    assert lines[3].split()[:4] == ["UA", "-5", "-8", "-6"]
    assert len(lines) == 3 + 16


@pytest.mark.parametrize("every", [1, QUICK])
def test_the_table_shows_each_carrier_in_80_columns(all_frames: dict[str, Any], every: int) -> None:
    found = data.expected(all_frames["flights"][::every], all_frames["weather"], all_frames["planes"])
    console = terminal()
    console.print(delays(found))
    _, hours, _, *rows = text_of(console).splitlines()
    assert {row[:2] for row in rows} == set(found["carrier"])
    assert hours.split() == [str(hour) for hour in range(5, 24)]
    assert "…" not in text_of(console)


def test_the_picture(expected: Any, tmp_path: Path) -> None:
    picture.draw(expected, data.airlines(), tmp_path / "delays.png")
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
