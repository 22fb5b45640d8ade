"""Tables accept only commits that continue where they end, in every format."""

from __future__ import annotations

import datetime as dt
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from ottla_client.types import TopicPartition
from ottla_pipeline.landing.errors import BadSetting, Collision, DataGone, LandingError
from ottla_pipeline.landing.files import FileSettings, FileWriter
from ottla_pipeline.landing.ledger import LandedRange
from ottla_pipeline.landing.tables import FORMATS, Commit, DataFile, Names, Table, open_table

FLIGHTS, OTHER = TopicPartition("flights", 0), TopicPartition("other", 0)
SCHEMA = pa.schema([("carrier", pa.string()), ("delay", pa.int32()), *Names().fields()])
WHEN = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


def rows(start: int, end: int, carrier: str | None = "UA", topic: str = "flights") -> pa.Table:
    n = end - start
    return pa.table(
        [[carrier] * n, list(range(n)), [topic] * n, [0] * n, list(range(start, end)), [WHEN] * n],
        schema=SCHEMA,
    )


def write(table: Table, data: pa.Table) -> list[DataFile]:
    writer = FileWriter(*table.staging.open(), table.layout(), FileSettings(), "part")
    writer.write(data)
    return writer.close()


def batch(table: Table, start: int, end: int, number: int = 0, run: str = "run", **changes: object) -> Commit:
    span = LandedRange(start, end, end - start, 7 * (end - start))
    files = changes.pop("files", None)
    return Commit(
        files=write(table, rows(start, end)) if files is None else files,  # type: ignore[arg-type]
        landed={FLIGHTS: (span,)},
        topic_ids={"flights": "id-1"},
        batch_id=number,
        run_id=run,
        **changes,  # type: ignore[arg-type]
    )


def offsets_in(table: Table, topic: str = "flights") -> list[int]:
    table.refresh()
    rows = table.dataset().to_table(filter=pa.dataset.field("_topic") == topic)
    return sorted(rows.column("_offset").to_pylist())


@pytest.fixture(params=FORMATS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Table]:
    """Opens the test's table, each time as another process would."""
    return lambda: open_table(request.param, str(tmp_path / "lake" / "flights"))


@pytest.fixture
def table(make: Callable[[], Table]) -> Table:
    made = make()
    assert not made.exists()
    made.create(SCHEMA, [])
    assert made.exists()
    return made


def test_a_new_table_is_empty(table: Table) -> None:
    assert table.schema().equals(SCHEMA)
    assert table.offsets() == {}
    assert table.data_files() == []
    assert offsets_in(table) == []


def test_columns_of_bytes_are_no_reason_for_a_warning(
    make: Callable[[], Table], caplog: pytest.LogCaptureFixture
) -> None:
    data = rows(0, 2).append_column("value", pa.array([b"a", b"b"]))
    table = make()
    table.create(data.schema, [])
    table.commit(batch(table, 0, 2, files=write(table, data)))
    assert offsets_in(table) == [0, 1]
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == []


def test_commits_go_on_where_the_table_ends(table: Table, make: Callable[[], Table]) -> None:
    table.commit(batch(table, 0, 10))
    state = make().commit(batch(table, 10, 25, 1))
    assert state.ledger.offsets() == {FLIGHTS: 25}
    again = make()
    assert again.state() == state
    assert (again.state().run_id, again.state().batch_id) == ("run", 1)
    assert again.state().ledger.landed[FLIGHTS] == (LandedRange(0, 10, 10, 70), LandedRange(10, 25, 15, 105))
    assert offsets_in(again) == list(range(25))
    assert sum(one.rows for one in again.data_files()) == 25
    assert all(os.path.getsize(path) for path in again.files())


def test_what_is_in_the_table_does_not_get_in_again(table: Table, make: Callable[[], Table]) -> None:
    other = make()
    other.refresh()
    table.commit(batch(table, 0, 10))
    with pytest.raises(Collision, match="up to offset 10, and offsets 0 to 10 were to be added: another job"):
        other.commit(batch(other, 0, 10, run="other"))
    with pytest.raises(DataGone, match="up to offset 10, and the next records begin at 12"):
        other.commit(batch(other, 12, 14, run="other"))
    other.commit(batch(other, 12, 14, run="other", gaps=True))
    assert offsets_in(make()) == [*range(10), 12, 13]
    assert make().state().ledger.landed[FLIGHTS][-1] == LandedRange(12, 14, 2, 14)


def test_another_topic_of_the_same_name_is_refused(table: Table) -> None:
    table.commit(batch(table, 0, 10))
    with pytest.raises(Collision, match="deleted and made again"):
        table.commit(Commit(landed={FLIGHTS: (LandedRange(10, 11),)}, topic_ids={"flights": "id-2"}))


def test_who_was_faster_with_something_else_is_no_obstacle(table: Table, make: Callable[[], Table]) -> None:
    """Between looking and writing another writer commits, as compaction does."""
    write_once = table._write
    raced = []

    def slow(commit: Commit, state: object) -> None:
        if not raced:
            raced.append(True)
            other = make()
            files = write(other, rows(0, 5, topic="other"))
            other.commit(Commit(files=files, landed={OTHER: (LandedRange(0, 5, 5),)}, notes={"by": "other"}))
        write_once(commit, state)  # type: ignore[arg-type]

    table._write = slow  # type: ignore[method-assign]
    state = table.commit(batch(table, 0, 10))
    assert state.ledger.offsets() == {FLIGHTS: 10, OTHER: 5}
    assert state.notes == {"by": "other"}
    assert offsets_in(make()) == list(range(10))
    assert offsets_in(make(), "other") == list(range(5))


def test_files_are_replaced_in_one_step(table: Table, make: Callable[[], Table]) -> None:
    for number in range(4):
        table.commit(batch(table, number * 5, number * 5 + 5, number))
    before = table.state()
    small = table.data_files()
    assert len(small) == 4
    state = table.commit(Commit(files=write(table, rows(0, 20)), removed=small, rewrite=True))
    assert state == before, "landing goes on where it was"
    assert len(make().data_files()) == 1
    assert offsets_in(make()) == list(range(20))
    with pytest.raises(LandingError, match="not in the table any more"):
        make().commit(Commit(removed=small[:1]))
    table.commit(batch(table, 20, 22, 4))
    assert offsets_in(make()) == list(range(22))


def test_new_columns_are_null_in_old_rows(table: Table, make: Callable[[], Table]) -> None:
    table.commit(batch(table, 0, 2))
    table.add_columns([pa.field("distance", pa.float64())])
    make().add_columns([pa.field("distance", pa.float64())])
    wide = rows(2, 4).append_column("distance", pa.array([1.5, 2.5]))
    table.commit(batch(table, 2, 4, 1, files=write(table, wide)))
    found = make().dataset().to_table().sort_by("_offset")
    assert found.schema.names == [*SCHEMA.names, "distance"]
    assert found.column("distance").to_pylist() == [None, None, 1.5, 2.5]


@pytest.mark.parametrize("values", [["UA", None, "a/b c%=d", "é"]])
def test_partitions_by_column(make: Callable[[], Table], values: list[str | None]) -> None:
    table = make()
    table.create(SCHEMA, ["carrier"])
    assert [one.name for one in table.layout().partitions] == ["carrier"]
    data = pa.concat_tables([rows(3 * i, 3 * i + 3, value) for i, value in enumerate(values)])
    files = write(table, data.take([0, 5, 1, 2, 3, 4, 11, 10, 9, 8, 7, 6]))
    table.commit(batch(table, 0, 12, files=files))
    again = make()
    again.refresh()
    assert {tuple(one.partition.values()) for one in again.data_files()} == {(value,) for value in values}
    found = again.dataset().to_table(columns=SCHEMA.names).sort_by("_offset")
    assert found.cast(SCHEMA).equals(data)


def test_orphans_are_cleaned_and_nothing_else(table: Table, make: Callable[[], Table]) -> None:
    table.commit(batch(table, 0, 10))
    orphans = write(table, rows(10, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert make().clean(older_than=3600) == (0, 0)
        count, size = make().clean(older_than=-1)
    assert (count, size) == (1, orphans[0].size)
    assert offsets_in(make()) == list(range(10))


def test_a_state_of_a_later_version_is_refused(table: Table) -> None:
    from ottla_pipeline.landing.tables import State

    with pytest.raises(LandingError, match="later version"):
        State.from_json(State().to_json().replace('"version":1', '"version":2'))
    with pytest.raises(LandingError, match="can't be read"):
        State.from_json("{}")


def test_what_a_format_has_no_use_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="catalogue is for Iceberg"):
        open_table("delta", str(tmp_path), catalog={})
    with pytest.raises(BadSetting, match="storage options are for Delta"):
        open_table("parquet", str(tmp_path), storage={"a": "b"})
    with pytest.raises(BadSetting, match="none of delta, iceberg, parquet"):
        open_table("orc", str(tmp_path))
    with pytest.raises(BadSetting, match="needs a folder"):
        open_table("iceberg", "flights")
    with pytest.raises(BadSetting, match="can't be used"):
        open_table("parquet", "nowhere://x/y")


def test_delta_says_where_to_go_on_after_its_log_was_cleaned(tmp_path: Path) -> None:
    """After thirty days without us, others' commits and a checkpoint are all that is left of the log."""
    import deltalake

    def open_it() -> Table:
        return open_table("delta", str(tmp_path / "flights"))

    table = open_it()
    table.create(SCHEMA, [])
    table.commit(batch(table, 0, 10))
    other = deltalake.DeltaTable(str(tmp_path / "flights"))
    deltalake.write_deltalake(other, rows(0, 2, topic="other"), mode="append")
    other.create_checkpoint()
    for commit in sorted((tmp_path / "flights" / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert open_it().offsets(["flights", "unknown"]) == {"flights": {0: 10}}
    with pytest.raises(Collision):
        open_it().commit(batch(table, 5, 15))
    open_it().commit(batch(table, 10, 15))
    assert offsets_in(open_it()) == list(range(15))


def test_iceberg_goes_on_where_it_was_rolled_back_to(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    table = open_table("iceberg", str(tmp_path / "lake.flights"))
    table.create(SCHEMA, [])
    table.commit(batch(table, 0, 10))
    table.commit(batch(table, 10, 20, 1))
    uri = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    plain = load_catalog("ottla", **uri).load_table("lake.flights")
    first = plain.snapshots()[0].snapshot_id
    plain.manage_snapshots().rollback_to_snapshot(first).commit()
    again = open_table("iceberg", str(tmp_path / "lake.flights"))
    assert again.offsets() == {"flights": {0: 10}}
    again.commit(batch(again, 10, 12, 1))
    assert offsets_in(again) == list(range(12))
    plain.refresh()
    assert len(str(plain.snapshots()[-1].summary)) < 1000, "what is kept with every snapshot is short"


def test_a_delta_table_in_what_deltalake_takes_for_an_object_store(tmp_path: Path) -> None:
    (tmp_path / "flights").mkdir()
    table = open_table("delta", f"file://{tmp_path}/flights", storage={"allow_unsafe_rename": "false"})
    table.create(SCHEMA, ["carrier"])
    table.commit(batch(table, 0, 5, files=write(table, rows(0, 5, "a/b c%"))))
    write(table, rows(5, 10))
    assert offsets_in(table) == list(range(5))
    assert table.clean(older_than=-1)[0] == 1
    assert offsets_in(open_table("delta", str(tmp_path / "flights"))) == list(range(5))


def test_parquets_log_has_checkpoints_and_is_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla_pipeline.landing.tables import parquet

    monkeypatch.setattr(parquet, "CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(parquet, "_KEPT", 5)
    table = open_table("parquet", str(tmp_path / "flights"))
    table.create(SCHEMA, [])
    early = open_table("parquet", str(tmp_path / "flights"))
    early.refresh()
    for number in range(23):
        table.commit(batch(table, number, number + 1, number))
    table.clean(older_than=3600)
    left = sorted(int(path.stem) for path in (tmp_path / "flights" / "_ottla").glob("*.json"))
    assert left[-1] == 23
    assert left[0] > 5
    for one in (open_table("parquet", str(tmp_path / "flights")), early):
        assert offsets_in(one) == list(range(23))
    (tmp_path / "flights" / "_ottla" / f"{23:020d}.json").write_text("{")
    with pytest.raises(LandingError, match="commit 23 in _ottla/ can't be read"):
        open_table("parquet", str(tmp_path / "flights")).refresh()


def test_a_parquet_writer_that_dies_between_commit_and_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla_pipeline.landing.tables.parquet import ParquetTable

    table = open_table("parquet", str(tmp_path / "flights"))
    table.create(SCHEMA, [])
    table.commit(batch(table, 0, 5))
    prepared = batch(table, 5, 10, 1)
    monkeypatch.setattr(ParquetTable, "_move", lambda *_: None)
    table.commit(prepared)
    monkeypatch.undo()
    assert len(list((tmp_path / "flights" / "_staging").glob("*.parquet"))) == 1
    assert len(list((tmp_path / "flights").glob("*.parquet"))) == 1, "who lists the folder sees it later"
    assert offsets_in(open_table("parquet", str(tmp_path / "flights"))) == list(range(10))
    assert not list((tmp_path / "flights" / "_staging").glob("*.parquet"))
