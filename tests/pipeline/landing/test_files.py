"""Files of a batch: rows in, files of about the wanted size out, a bounded number of bytes and files in between."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs as pafs

from ottla_pipeline.landing import files
from ottla_pipeline.landing.files import FileSettings, FileWriter, with_columns
from ottla_pipeline.landing.tables.layout import Layout

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string()), ("data", pa.binary())])


def writer(folder: Path, schema: pa.Schema = SCHEMA, **settings: Any) -> FileWriter:
    partition_by = settings.pop("partition_by", ())
    layout = Layout.plain(schema, partition_by)
    return FileWriter(pafs.LocalFileSystem(), str(folder), layout, FileSettings(**settings), "part")


def some(start: int, end: int, parts: int = 1, size: int = 10) -> pa.Table:
    rng = random.Random(start)
    numbers = range(start, end)
    return pa.table(
        [list(numbers), [f"p{n % parts}" for n in numbers], [rng.randbytes(size) for _ in numbers]],
        schema=SCHEMA,
    )


def test_files_of_about_the_wanted_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_GROUP", 20_000)
    one = writer(tmp_path, target_size=100_000, compression="none")
    for start in range(0, 5000, 100):
        one.write(some(start, start + 100, size=100))
    made = one.close()
    assert 5 <= len(made) <= 7
    assert all(file.size < 150_000 for file in made)
    assert [file.size for file in made] == [(tmp_path / file.path).stat().st_size for file in made]
    numbers = [n for file in made for n in pq.read_table(tmp_path / file.path).column("n").to_pylist()]
    assert numbers == list(range(5000)), "in order, file by file"


def test_many_partitions_bound_memory_and_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAITING", 20_000)
    monkeypatch.setattr(files, "OPEN", 5)
    one = writer(tmp_path, partition_by=("part",))
    for start in range(0, 4000, 400):
        one.write(some(start, start + 400, parts=20, size=50))
        assert one._waiting <= 20_000
        assert sum(each.writer is not None for each in one._open.values()) <= 5
    made = one.close()
    assert {file.partition["part"] for file in made} == {f"p{n}" for n in range(20)}
    assert len(made) > 20, "a file that was closed to open another is followed by a new one"
    assert sum(file.rows for file in made) == 4000
    table = pq.read_table(tmp_path)
    assert sorted(table.column("n").to_pylist()) == list(range(4000))
    parts = zip(table.column("n").to_pylist(), table.column("part").to_pylist(), strict=True)
    assert all(f"p{n % 20}" == part for n, part in parts)


def test_what_was_written_goes_with_the_task(tmp_path: Path) -> None:
    one = writer(tmp_path, partition_by=("part",), target_size=1)
    one.write(some(0, 1000, parts=3))
    one._flush(next(iter(one._open.values())))
    assert list(tmp_path.rglob("*.parquet"))
    one.abort()
    assert not list(tmp_path.rglob("*.parquet"))


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write(SCHEMA.empty_table())
    assert one.close() == []
    assert not list(tmp_path.iterdir())


def test_partitions_of_several_columns_and_types(tmp_path: Path) -> None:
    schema = pa.schema([("d", pa.date32()), ("b", pa.bool_()), ("i", pa.int32()), ("n", pa.int64())])
    day = dt.date(2013, 1, 1)
    data = [(day, True, 1), (None, False, -2), (day, None, 1), (day, True, 1)]
    table = pa.table([*map(list, zip(*data, strict=True)), [0, 1, 2, 3]], schema=schema)
    one = writer(tmp_path, schema, partition_by=("d", "b", "i"))
    one.write(table)
    found = {
        tuple(file.partition.values()): pq.read_table(tmp_path / file.path, partitioning=None)
        for file in one.close()
    }
    assert {key: rows.column("n").to_pylist() for key, rows in found.items()} == {
        ("2013-01-01", "true", "1"): [0, 3],
        (None, "false", "-2"): [1],
        ("2013-01-01", None, "1"): [2],
    }
    assert all(rows.column_names == ["n"] for rows in found.values())


def test_statistics_as_delta_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_GROUP", 1)
    schema = pa.schema(
        [
            ("i", pa.int32()), ("f", pa.float64()), ("s", pa.string()), ("long", pa.string()), ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")), ("empty", pa.int32()), ("x", pa.binary()), ("l", pa.list_(pa.int32())),
        ]
    )  # fmt: skip
    one = writer(tmp_path, schema, dictionaries=("s",), rising=("i",))
    noon = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
    for row in (
        [3, 1.5, "b", "x" * 100, dt.date(2013, 1, 2), noon, None, b"x", [1]],
        [1, float("nan"), "a", "y", dt.date(2013, 1, 1), None, None, None, None],
    ):
        one.write(pa.table([[value] for value in row], schema=schema))
    (file,) = one.close()
    found = json.loads(file.stats)
    assert found["numRecords"] == 2
    assert found["minValues"]["i"] == 1
    assert found["maxValues"]["i"] == 3
    assert (found["minValues"]["s"], found["maxValues"]["s"]) == ("a", "b")
    assert found["maxValues"]["d"] == "2013-01-02"
    assert found["minValues"]["t"] == found["maxValues"]["t"] == "2013-01-01T12:00:00.000000Z"
    assert found["nullCount"] == {"i": 0, "f": 0, "s": 0, "long": 0, "d": 0, "t": 1, "empty": 2}
    assert not {"long", "empty", "x", "l"} & found["minValues"].keys()
    assert "f" not in found["maxValues"], "Spark has NaN behind all numbers"


def test_statistics_of_values_beyond_python_and_of_names_with_dots(tmp_path: Path) -> None:
    """One record of a clock in microseconds ended the job at every run."""
    stamps, days = pa.timestamp("us", "UTC"), pa.date32()
    inner = pa.struct([("b", pa.int64()), ("c", pa.list_(pa.int64()))])
    schema = pa.schema(
        [("a", inner), ("a.b", pa.int64()), ("t", stamps), ("d", days), ("e", stamps), ("m", days)]
    )
    columns = [
        pa.array([{"b": 7, "c": [1]}, {"b": 8, "c": []}], inner),
        pa.array([100, 200]),
        pa.array([-(2**63), 2**63 - 1], stamps),
        pa.array([-(2**31), 2**31 - 1], days),
        pa.array([0, 1], stamps),
        pa.array([-719_162, 2_932_896], days),
    ]
    one = writer(tmp_path, schema)
    one.write(pa.table(columns, schema=schema))
    found = json.loads(one.close()[0].stats)
    last = "1970-01-01T00:00:00.000001Z"
    assert found["minValues"] == {"a.b": 100, "e": "1970-01-01T00:00:00.000000Z", "m": "0001-01-01"}
    assert found["maxValues"] == {"a.b": 200, "e": last, "m": "9999-12-31"}
    assert found["nullCount"] == dict.fromkeys(("a.b", "t", "d", "e", "m"), 0)


def test_columns_that_are_missing_or_narrower() -> None:
    table = pa.table({"n": pa.array([1], pa.int8())})
    found = with_columns(table, pa.schema([("n", pa.int64()), ("s", pa.string())]))
    assert found.to_pylist() == [{"n": 1, "s": None}]
