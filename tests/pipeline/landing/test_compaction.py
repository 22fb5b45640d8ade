"""Compaction: the same rows in fewer files, and landing goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.landing.rounds import Run, offsets, produce, rows, run
from tests.support.processes import BrokerProcess

from ottla_pipeline.landing import Landing, LandingError, compact, compaction
from ottla_pipeline.landing.errors import BadSetting
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.tables import FORMATS

NewTopic = Callable[..., str]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(prefix="flights")


@pytest.fixture(params=FORMATS)
def landing(request: pytest.FixtureRequest, broker: BrokerProcess, topic: str, tmp_path: Path) -> Landing:
    return Landing(
        broker.bootstrap,
        str(tmp_path / "lake" / "flights"),
        topics=(topic,),
        format=request.param,
        values="json",
        schema="carrier STRING, n INT",
    )


def fill(landing: Landing, topic: str, batches: int) -> None:
    for number in range(batches):
        produce(landing.bootstrap_servers, topic, [{"carrier": c, "n": number} for c in ("UA", "AA", "B 6")])
        run(landing)


def test_small_files_become_one(landing: Landing, topic: str) -> None:
    fill(landing, topic, 4)
    before = rows(landing, "carrier", "n", "_offset")
    state = table_of(landing).state()
    done = compact(landing.table, landing.format)
    assert (done.before, done.after, done.rewritten, done.rows) == (4, 1, 1, 12)
    assert rows(landing, "carrier", "n", "_offset") == before
    assert table_of(landing).state() == state
    assert compact(landing.table, landing.format).rewritten == 0, "there is nothing to do twice"
    fill(landing, topic, 1)
    assert offsets(landing, topic) == [list(range(15))]


def test_partition_by_partition(landing: Landing, topic: str) -> None:
    job = replace(landing, partition_by=("carrier",))
    fill(job, topic, 3)
    before = rows(job, "carrier", "n", "_offset")
    done = compact(job.table, job.format)
    assert (done.before, done.after) == (9, 3)
    assert rows(job, "carrier", "n", "_offset") == before


def test_a_batch_is_landed_while_files_are_joined(
    landing: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(landing, topic, 3)
    rewrite = compaction._rewrite

    def slow(*args: object) -> object:
        made = rewrite(*args)  # type: ignore[arg-type]
        fill(landing, topic, 1)
        return made

    monkeypatch.setattr(compaction, "_rewrite", slow)
    done = compact(landing.table, landing.format)
    assert (done.before, done.after) == (3, 2)
    assert offsets(landing, topic) == [list(range(12))]


def test_two_compactions_at_once(landing: Landing, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(landing, topic, 3)
    rewrite = compaction._rewrite

    def slow(*args: object) -> object:
        monkeypatch.undo()
        made = rewrite(*args)  # type: ignore[arg-type]
        compact(landing.table, landing.format)
        return made

    monkeypatch.setattr(compaction, "_rewrite", slow)
    with pytest.raises(LandingError, match="not in the table any more"):
        compact(landing.table, landing.format)
    assert offsets(landing, topic) == [list(range(9))]


def test_orphans_go_and_batches_under_way_stay(landing: Landing, topic: str) -> None:
    fill(landing, topic, 1)
    produce(landing.bootstrap_servers, topic, [{"n": 1}])
    with Run(landing) as job:
        reports = job.read(job.plan())
        assert compact(landing.table, landing.format).orphans == 0, "they are young"
        job.commit(reports)
        job.read([*job.plan()])
        produce(landing.bootstrap_servers, topic, [{"n": 2}])
        job.read(job.plan())
    assert compact(landing.table, landing.format, older_than=0).orphans == 1
    assert offsets(landing, topic) == [list(range(4))]


def test_what_cannot_be_compacted(landing: Landing) -> None:
    with pytest.raises(LandingError, match=f"the {landing.format} table .* doesn't exist"):
        compact(landing.table, landing.format)
    with pytest.raises(BadSetting, match="compression is 'zip'"):
        compact(landing.table, landing.format, compression="zip")
    with pytest.raises(BadSetting, match="target_file_size"):
        compact(landing.table, landing.format, target_file_size=0)
