"""``ottla pipeline`` from land to audit on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.pipeline.audit.landed import produce
from tests.support.processes import BrokerProcess

from ottla_client.sync import Admin
from ottla_pipeline.commands import land as land_module
from ottla_pipeline.commands import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = [b'{"flight": %d, "origin": "EWR"}' % number for number in range(100)]


@pytest.fixture
def run(broker: BrokerProcess, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command here, in the session of all tests."""

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(land_module, "session", session)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", broker.bootstrap)

    def run(*args: str) -> Any:
        return CliRunner().invoke(pipeline, list(args), prog_name="ottla pipeline", catch_exceptions=False)

    return run


def test_from_land_to_audit(
    run: Callable[..., Any],
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic, dead, group = new_topic(2), new_topic(1), new_name("group")
    table = str(tmp_path / "flights")
    produce(broker, topic, 0, GOOD)
    produce(broker, topic, 1, GOOD[:10])
    job = ["--table", table, "--values", "json", "--dead-letters", f"topic:{dead}"]

    landed = run("land", topic, *job, "-g", group, "--schema", "flight INT, origin STRING", "--json")
    assert landed.exit_code == 0, landed.output
    (batch,) = map(json.loads, landed.output.splitlines())
    assert (batch["rows"], batch["dead_letters"], batch["lag"]) == (110, 0, 0)
    assert batch["end"] == {topic: {"0": 100, "1": 10}}

    again = run("land", topic, *job, "-g", group)
    assert again.output.startswith(f"nothing new for {table}; Spark started in ")

    produce(broker, topic, 1, [b'{"flight": 7, "origin": "JFK"}', b'{"flight": "seven"}', b"\xff"])
    more = run("land", topic, *job, "-g", group)
    assert more.exit_code == 0, more.output
    first, last = more.output.splitlines()
    assert first.startswith("batch 0: 1 row (")
    assert first.endswith(", lag 0")
    assert ", 2 dead letters, 1 batch in " in last
    with Admin(broker.bootstrap) as admin:
        committed = admin.list_group_offsets(group)
    assert {at.partition: each.offset for at, each in committed.items()} == {0: 100, 1: 13}

    alone = run("audit", topic, "--table", table)
    assert alone.exit_code == 1
    assert f"{topic}-1: missing: offsets 11 to 12\n" in alone.output
    assert "2 of them may be dead letters: --dead-letters says where those are" in alone.output
    audit = run("audit", topic, "--table", table, "--dead-letters", f"topic:{dead}")
    assert audit.exit_code == 0, audit.output
    assert audit.output.endswith(f"{table}: clean, 111 records once each, 2 more among the dead letters\n")

    replayed = run("replay", *job, "--schema", "flight INT, origin STRING")
    assert replayed.exit_code == 1
    assert replayed.output == f"0 dead letters landed in {table}, 2 still fail\n"

    compacted = run("compact", "--table", table, "--older-than", "0s")
    assert compacted.exit_code == 0, compacted.output
    assert "111 rows rewritten" in compacted.output
    assert run("audit", topic, "--table", table, "--dead-letters", f"topic:{dead}").exit_code == 0


def test_one_line_for_what_ends_a_job(
    run: Callable[..., Any], broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1)
    produce(broker, topic, 0, [b"{}", b"oops"])
    done = run("land", topic, "--table", str(tmp_path / "t"), "--values", "json", "--schema", "flight INT")
    assert done.exit_code == 1
    (line,) = done.output.splitlines()
    assert line.startswith(f"Error: {topic}-0")
    assert "offset 1" in line
