"""Whatever is wrong with a table's files or its catalogue, a command ends in one line, and never in a traceback."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.pipeline.landing.rounds import Run, offsets, produce, run
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

from ottla_pipeline.commands import pipeline
from ottla_pipeline.landing import Landing, compact
from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.tables import FORMATS, outside

NewTopic = Callable[..., str]
DAMAGE: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "other bytes": lambda path: path.write_bytes(bytes(range(256)) * 8),
    "other JSON": lambda path: path.write_text('{"add": {"path": 1}, "metadata": []}'),
}


def landed(broker: BrokerProcess, new_topic: NewTopic, folder: Path, form: str) -> Landing:
    """A table with two small files, and dead letters in another."""
    topic = new_topic(1, prefix="damaged")
    here, dead = (
        (f"{folder}/lake/default.t", f"{folder}/lake/default.d")
        if form == "iceberg"
        else (
            f"{folder}/lake/t",
            f"{folder}/lake/d",
        )
    )
    (folder / "lake").mkdir()
    job = Landing(
        broker.bootstrap,
        here,
        (topic,),
        format=form,
        values="json",
        schema="a INT",
        dead_letters=f"table:{dead}",
    )
    for _ in range(2):
        produce(broker.bootstrap, topic, [{"a": 1}, b"no JSON"])
        run(job)
    return job


@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_file_ends_in_one_line(
    form: str, broker: BrokerProcess, new_topic: NewTopic, tmp_path: Path
) -> None:
    job = landed(broker, new_topic, tmp_path, form)
    lake, whole = tmp_path / "lake", tmp_path / "whole"
    shutil.copytree(lake, whole)
    table = ["--table", job.table, "--format", form]
    letters = ["--dead-letters", f"{job.dead_letters}", "-b", broker.bootstrap]
    commands = [
        ["compact", *table],
        ["audit", *table, *letters],
        ["replay", *table, "--values", "json", *letters],
        ["rename-column", *table, "--from", "a", "--to", "b"],
    ]
    files = [one.relative_to(whole) for one in sorted(whole.rglob("*")) if one.is_file()]
    one_of_each_kind = {(one.parent, one.suffix, one.name[:4] == "snap"): one for one in files}.values()
    damages = itertools.cycle(DAMAGE.items())
    for name in one_of_each_kind:
        for command in commands:
            damage, make = next(damages)
            shutil.rmtree(lake)
            shutil.copytree(whole, lake)
            make(lake / name)
            done = CliRunner().invoke(pipeline, command)
            what = (str(name), damage, command[0], done.output, done.exception)
            assert done.exception is None or isinstance(done.exception, SystemExit), what
            assert done.exit_code in (0, 1, 2), what
            if done.exit_code and "Error: " in done.output:
                assert len(done.output.splitlines()) == 1, what
        # Their numbers have no common divisor, so every command meets every damage.
        next(damages)


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """The catalogue, as a program holds it that writes and doesn't come to an end."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield connection


@pytest.fixture
def iceberg(broker: BrokerProcess, new_topic: NewTopic, tmp_path: Path) -> Landing:
    """With SQLite's own patience shortened."""
    job = landed(broker, new_topic, tmp_path, "iceberg")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake/catalog.db?timeout=0.05"}
    return replace(job, table="default.t", dead_letters=None, catalog=catalog)


def test_a_catalogue_that_stays_locked_ends_in_one_line(
    iceberg: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "PATIENCE", 0.1)
    command = ["compact", "--table", iceberg.table, "--format", "iceberg"]
    for key, value in (iceberg.catalog or {}).items():
        command += ["--catalog", f"{key}={value}"]
    with locked(tmp_path / "lake" / "catalog.db"):
        done = CliRunner().invoke(pipeline, command)
        with pytest.raises(LandingError, match="SQLite database is locked: end the program"):
            compact(iceberg.table, "iceberg", catalog=iceberg.catalog)
    assert done.exit_code == 1
    assert done.output.startswith(
        "Error: default.t: the catalogue's SQLite database is locked: end the program"
    )
    assert len(done.output.splitlines()) == 1


def test_a_catalogue_that_is_locked_for_a_while_is_waited_for(
    iceberg: Landing, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    produce(iceberg.bootstrap_servers, iceberg.topics[0], [{"a": 2}])
    with Run(iceberg) as one:
        reports = one.read(one.plan())
        with locked(tmp_path / "lake" / "catalog.db") as held, ThreadPoolExecutor() as pool:
            committed = pool.submit(one.commit, reports)
            wait_for(lambda: "locked" in caplog.text, "a word about the lock")
            held.execute("ROLLBACK")
            assert committed.result(60) is not None
    assert offsets(iceberg, iceberg.topics[0])[0][-1] == 4
