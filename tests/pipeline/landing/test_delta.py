"""Delta tables as Spark leaves them: what it has changed and deleted is honoured, by landing, compaction and audit."""

from __future__ import annotations

import datetime as dt
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.landing.rounds import produce, run
from tests.pipeline.landing.rounds import rows as landed
from tests.support.processes import BrokerProcess

from ottla_client.types import TopicPartition
from ottla_pipeline.landing import Landing, Replayed, compact, replay
from ottla_pipeline.landing.constraints import Constraints
from ottla_pipeline.landing.errors import LandingError, NotLanded, SchemaRefused
from ottla_pipeline.landing.files import FileSettings, FileWriter
from ottla_pipeline.landing.job_plan import check_recorded
from ottla_pipeline.landing.ledger import LandedRange
from ottla_pipeline.landing.tables import Commit, DataFile, Names, Table, open_table
from ottla_pipeline.landing.tables.deletion_vectors import Descriptor

DATA = Path(__file__).parent.parent / "data" / "delta_tables.tar.xz"
FLIGHTS = TopicPartition("flights", 1)
WHEN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

Open = Callable[[str], Table]


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("delta_tables")
    with tarfile.open(DATA) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def opened(tables: Path, tmp_path: Path) -> Open:
    """Opens a copy of one of Spark's tables."""

    def open_copy(name: str) -> Table:
        place = tmp_path / name
        if not place.exists():
            place.mkdir()
            for path in sorted((tables / name).rglob("*")):
                copy = place / path.relative_to(tables / name)
                if path.is_dir():
                    copy.mkdir()
                else:
                    copy.hardlink_to(path)
        table = open_table("delta", str(place))
        table.refresh()
        return table

    return open_copy


def rows(table: Table) -> list[dict[str, Any]]:
    table.refresh()
    return in_order(table.scan().read_all())


def in_order(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: (row["_topic_partition"] or 0, row["_offset"] or 0))


def land(table: Table, start: int, **values: Any) -> DataFile:
    """One row, as a job would land it."""
    layout = table.layout()
    writer = FileWriter(
        *table.staging.open(), layout, FileSettings.of(table, Names(), "zstd", 1 << 20), "part"
    )
    own = {"_topic": "flights", "_topic_partition": 1, "_offset": start, "_timestamp": WHEN}
    writer.write(pa.Table.from_pylist([values | own], schema=layout.schema))
    files = writer.close()
    table.commit(
        Commit(
            files=files,
            layout=layout.version,
            landed={FLIGHTS: (LandedRange(start, start + 1, 1),)},
            topic_ids={"flights": "id"},
            batch_id=start,
            run_id="run",
        )
    )
    return files[0]


def with_deltalake(table: Table) -> list[dict[str, Any]]:
    return in_order(pa.table(deltalake.DeltaTable(table.name).scan()))


def stats_of(table: Table) -> list[dict[str, Any]]:
    version = deltalake.DeltaTable(table.name).version()
    lines = (Path(table.name) / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [json.loads(action["add"]["stats"]) for action in map(json.loads, lines) if "add" in action]


def test_columns_that_were_renamed_dropped_and_came_back_are_read_by_their_physical_names(
    opened: Open,
) -> None:
    table = opened("mapped")
    assert table.schema().names[:5] == ["id", "full_name", "plane", "legs", "date"]
    found = [[row[name] for name in ("id", "full_name", "plane", "legs", "date")] for row in rows(table)]
    assert found == [
        [None, "Ada", {"built": 1990, "a.b": "x"}, [{"to": "JFK"}], "d 1"],
        [None, "Bob", {"built": 1991, "a.b": "y"}, [], None],
        ["three", "Cy", None, None, "d/2"],
    ]
    assert [row["full_name"] for row in rows(opened("by_id"))] == ["Ada"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "mapped",
            {
                "id": "4",
                "full_name": "Di",
                "plane": {"built": 1, "a.b": "q"},
                "legs": [{"to": "x"}],
                "date": "d 1",
            },
        ),
        ("by_id", {"id": 4, "full_name": "Di"}),
    ],
)
def test_what_is_landed_has_physical_names_and_field_ids_and_so_have_new_columns(
    opened: Open, name: str, values: dict[str, Any]
) -> None:
    table = opened(name)
    before = rows(table)
    new = pa.field("extra", pa.struct([("u", pa.list_(pa.int32()))]))
    table.add_columns([new])
    opened(name).add_columns([new])
    file = land(table, 0, extra={"u": [5]}, **values)
    assert rows(table)[-1] | values | {"extra": {"u": [5]}} == rows(table)[-1]
    assert with_deltalake(table) == rows(table)
    schema = pq.read_schema(f"{table.name}/{file.path}")
    assert all(one.name.startswith("col-") and one.metadata[b"PARQUET:field_id"] for one in schema)
    ids = [int(one.metadata[b"PARQUET:field_id"]) for one in (*schema, *schema.field(-1).type)]
    assert len(set(ids)) == len(ids)
    [stats] = stats_of(table)
    assert set(stats["minValues"]) < set(schema.names), "statistics are by physical names"
    assert [row["full_name"] for row in rows(table)] == [*(row["full_name"] for row in before), "Di"]


def test_columns_become_wider_where_the_table_has_type_widening(opened: Open) -> None:
    table = opened("many")
    narrow = pa.schema(
        [
            ("d", pa.decimal128(5, 2)),
            ("f", pa.float32()),
            ("s", pa.struct([("x", pa.int8()), ("l", pa.list_(pa.list_(pa.int32())))])),
        ]
    )
    wide = pa.schema(
        [
            ("d", pa.decimal128(12, 4)),
            ("f", pa.float64()),
            (
                "s",
                pa.struct(
                    [("x", pa.int64()), ("l", pa.list_(pa.list_(pa.int64()))), ("y", pa.list_(pa.string()))]
                ),
            ),
        ]
    )
    assert all(table.widens(narrow.field(at).type, wide.field(at).type) for at in (0, 1))
    table.add_columns(list(narrow))
    small = {"d": Decimal("1.25"), "f": 0.5, "s": {"x": 1, "l": [[2, None], None]}}
    land(table, 0, day="0", **small)
    table.add_columns(list(wide))
    table.add_columns(list(narrow))  # Nothing to do.
    large = {"d": Decimal("12345678.1234"), "f": 1e300, "s": {"x": 1 << 40, "l": [[1 << 41]], "y": ["z"]}}
    land(table, 1, day="0", **large)
    small["s"] = {"x": 1, "l": [[2, None], None], "y": None}
    for _ in range(2):
        assert [{name: row[name] for name in wide.names} for row in rows(table)[-2:]] == [small, large]
        compact(table.name)
    assert table.schema().names[-3:] == wide.names
    fields = {one["name"]: one for one in table._definition().fields}  # type: ignore[attr-defined]
    inner = {one["name"]: one for one in fields["s"]["type"]["fields"]}
    assert inner["x"]["metadata"]["delta.typeChanges"] == [{"fromType": "byte", "toType": "long"}]
    assert inner["l"]["metadata"]["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long", "fieldPath": "element.element"}
    ]
    ids = [one["metadata"]["delta.columnMapping.id"] for one in (*fields.values(), *inner.values())]
    assert len(set(ids)) == len(ids), "the new field has one, too"


def test_a_wider_type_is_refused_with_what_to_do_without_type_widening(
    broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(prefix="wider")
    job = Landing(broker.bootstrap, str(tmp_path / "t"), (topic,), values="json", schema="id INT")
    produce(broker.bootstrap, topic, [{"id": 1}])
    run(job)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        SchemaRefused, match=r"id as INT, the schema as BIGINT.*delta\.enableTypeWidening to true"
    ):
        run(replace(job, schema="id BIGINT"))
    with pytest.raises(SchemaRefused, match=r"id as INT, the schema as STRING(?!.*enableTypeWidening)"):
        run(replace(job, schema="id STRING"))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["mapped", "by_id", "vectors", "many", "clustered", "foreign"])
def test_compaction_keeps_every_row_and_no_deleted_one(opened: Open, name: str) -> None:
    table = opened(name)
    first = {"foreign": {"p": "x y"}, "many": {"day": "0"}, "mapped": {"date": "d 1"}}.get(name, {})
    land(table, 0, **first)
    land(table, 1, **first)
    before = rows(table)
    files = len(table.data_files())
    done = compact(table.name)
    assert (done.before, done.after) == (
        files,
        len({tuple(one.partition.values()) for one in table.data_files()}),
    )
    assert rows(table) == before
    assert not any(one.deletes for one in table.data_files())
    assert table.offsets(["flights"]) == {"flights": {1: 2}}
    if name != "many":  # deltalake can't read what has wider types.
        assert with_deltalake(table) == before


def test_rows_deleted_by_vectors_are_in_no_answer(opened: Open) -> None:
    """In one vector, Roaring's arrays, bitmaps and runs; in a checkpoint, after it, and in one of version 2."""
    gone = {*range(0, 60_000, 3), *range(70_000, 140_001), 150_001, 199_999, 200_003}
    table = opened("vectors")
    assert [row["_offset"] for row in rows(table)] == [at for at in range(200_010) if at not in gone]
    assert sum(one.rows for one in table.data_files()) == 200_010 - len(gone)
    assert [row["_offset"] for row in rows(opened("many"))] == [0, 1, 2, *range(6, 30)]
    assert [row["id"] for row in rows(opened("many"))][-1] == 10_000_000_029, "read as the wider type"


def test_a_row_deleted_while_it_is_compacted_does_not_return(opened: Open) -> None:
    table = opened("vectors")
    files = table.data_files()
    layout = table.layout()
    writer = FileWriter(*table.staging.open(), layout, FileSettings(), "compact")
    for batch in table.scan(files=files):
        writer.write(pa.Table.from_batches([batch]))
    other = deltalake.DeltaTable(table.name)
    other.delete("_offset = 200001")
    with pytest.raises(LandingError, match="another program has changed it; run it again"):
        table.commit(Commit(files=writer.close(), removed=files, layout=layout.version, rewrite=True))
    assert 200_001 not in {row["_offset"] for row in rows(table)}


def test_what_other_programs_removed_is_known_by_their_commits(opened: Open) -> None:
    table = opened("vectors")
    found = list(table.removals())
    assert [each.commits for each in found] == [["DELETE in version 4"], ["DELETE in version 3"]]
    count = [sum(map(len, rows(["_offset"]))) for each in found for rows in each.rows or ()]
    assert count == [109_998, 109_997, 200_010, 110_007]
    compact(table.name)
    assert [each.commits for each in opened("vectors").removals()] == [each.commits for each in found]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("row_tracking", "uses Delta's feature rowTracking, which Ottla can't write: drop the feature"),
        ("iceberg_compat", "feature icebergCompatV2"),
        ("variant", "feature variantType, which Ottla can't read"),
    ],
)
def test_tables_with_features_that_would_be_broken_are_refused_by_name(
    opened: Open, name: str, reason: str
) -> None:
    with pytest.raises(LandingError, match=reason):
        opened(name).check()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "generated",
            r"the column d GENERATED ALWAYS AS \(CAST\(ts AS DATE\)\), which only Spark can compute",
        ),
        ("identity", "the column i GENERATED AS IDENTITY"),
        ("defaults", "the column a DEFAULT 5"),
        ("odd_check", r"the CHECK constraint rounded \(round \( amount \) = amount\), and round\(\) in it"),
    ],
)
def test_columns_and_conditions_that_only_spark_can_compute_are_refused_by_name(
    opened: Open, name: str, reason: str
) -> None:
    table = opened(name)
    table.check()
    with pytest.raises(SchemaRefused, match=reason):
        table.check_rows()


def test_constraints_of_a_table_are_known(opened: Open) -> None:
    table = opened("checked")
    table.check_rows()
    layout = table.layout()
    constraints = Constraints(table.name, layout.schema, layout.checks)
    good: dict[str, Any] = {"amount": 1.0, "n": 1, "code": "abc", "st": {"a": 1}}
    bad: list[dict[str, Any]] = [
        {"amount": -1.0},
        {"n": None},
        {"code": "abcd"},
        {"st": {"a": None}},
        {"amount": None},
    ]
    loose = [
        ("amount", pa.float64()),
        ("n", pa.int32()),
        ("code", pa.string()),
        ("st", pa.struct([("a", pa.int32())])),
    ]
    schema = pa.schema([*loose, *Names().fields()])
    found = constraints.broken(pa.Table.from_pylist([good, *({**good, **one} for one in bad)], schema=schema))
    assert sorted(found) == [1, 2, 3, 4, 5]
    assert found[1] == "the CHECK constraint positive of the table isn't met: amount > 0 AND n < 100"
    assert found[3].startswith("the type VARCHAR(3) of code of the table isn't met")


def test_records_that_break_a_constraint_are_dead_letters_until_they_do_not(
    broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, place = new_topic(1, prefix="checked"), str(tmp_path / "t")
    columns = [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("amount", pa.float64()),
        *Names().fields(),
    ]
    made = deltalake.DeltaTable.create(place, pa.schema(columns))
    made.alter.add_constraint({"positive": "amount > 0"})
    job = Landing(broker.bootstrap, place, topics=(topic,), values="json", schema="id INT, amount DOUBLE")
    sent = [
        {"id": 0, "amount": 1},
        {"id": 1, "amount": -5},
        {"amount": 1},
        {"id": 3},
        {"id": 4, "amount": 0.5},
    ]
    produce(broker.bootstrap, topic, sent)
    with pytest.raises(
        NotLanded, match=rf"{topic}-0 offset 1: the CHECK constraint positive of the table isn't met"
    ):
        run(job)
    job = replace(job, dead_letters=f"table:{tmp_path}/dead")
    done = run(job)
    assert done is not None
    assert (done.rows, done.dead_letters) == (2, 3)
    assert landed(job, "id") == [(0,), (4,)]
    dead = open_table("delta", f"{tmp_path}/dead")
    check = "the CHECK constraint positive of the table isn't met: amount > 0"
    null = "id is null, and the table says NOT NULL"
    assert landed(dead, "offset", "error") == [(1, check), (2, null), (3, check)]
    made = deltalake.DeltaTable(place)
    made.alter.drop_constraint("positive")
    assert replay(job) == Replayed(landed=2, failed=1, files=1)
    assert landed(job, "id") == [(0,), (1,), (3,), (4,)]
    # A constraint that was added between two batches holds for the next one.
    deltalake.DeltaTable(place).alter.add_constraint({"small": "id < 1000"})
    produce(broker.bootstrap, topic, [{"id": 1000, "amount": 1}])
    again = run(job)
    assert again is not None
    assert (again.rows, again.dead_letters) == (0, 1)


def test_times_and_empty_partition_values_of_other_programs(opened: Open) -> None:
    table = opened("foreign")
    found = {row["a"]: (row["p"], row["_timestamp"] and row["_timestamp"].year) for row in rows(table)}
    assert found == {1: (None, 1), 2: ("x y", 9999), 3: (None, None)}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us", "UTC"), [WHEN.replace(microsecond=7), None]),
        (pa.timestamp("us"), [dt.datetime(1, 1, 1, 2, 3, 4), None]),
        (pa.date32(), [dt.date(9999, 12, 31), None]),
        (pa.decimal128(10, 2), [Decimal("1.50"), None]),
        (pa.bool_(), [True, False]),
        (pa.float64(), [1.5, None]),
        (pa.string(), ["a/b c%=é+:*", None]),
    ],
)
def test_partition_values_of_every_type_stay_the_same(
    tmp_path: Path, kind: pa.DataType, values: list[Any]
) -> None:
    place = str(tmp_path / "t")
    for number in range(2):
        more = pa.table({"p": pa.array(values, kind), "n": [number, number + 10]})
        deltalake.write_deltalake(place, more, partition_by=["p"], mode="append")

    def found() -> list[str]:
        return sorted(map(repr, pa.table(deltalake.DeltaTable(place).scan(columns=["p", "n"])).to_pylist()))

    before = found()
    assert sorted(map(repr, open_table("delta", place).scan(["p", "n"]).read_all().to_pylist())) == before
    assert compact(place).after == 2
    assert found() == before


def test_a_table_partitioned_by_bytes_is_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), pa.table({"p": [b"x"], "n": [1]}), partition_by=["p"])
    with pytest.raises(LandingError, match="partitioned by p, of type BINARY"):
        compact(str(tmp_path))


def restored(table: Table, target: dict[str, Any]) -> None:
    """Spark's RESTORE: deltalake's, with the target as Spark writes it."""
    other = deltalake.DeltaTable(table.name)
    other.restore(2)
    log = Path(table.name) / "_delta_log" / f"{other.version():020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for one in lines:
        if "commitInfo" in one:
            one["commitInfo"]["operationParameters"] = target
    log.unlink()
    log.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize(
    "target", [{"version": 2, "timestamp": None}, {"version": None, "timestamp": "2026-01-01"}]
)
def test_records_that_a_restore_took_back_are_landed_again(tmp_path: Path, target: dict[str, Any]) -> None:
    table = open_table("delta", str(tmp_path / "t"))
    table.create(pa.schema([("id", pa.int32()), *Names().fields()]), [])
    for start in range(4):
        land(table, start, id=start)
    restored(table, target)
    again = open_table("delta", table.name)
    assert again.offsets() == {"flights": {1: 2}}
    land(again, 2, id=20)
    land(again, 3, id=30)
    assert [row["id"] for row in rows(again)] == [0, 1, 20, 30]
    assert open_table("delta", table.name).offsets() == {"flights": {1: 4}}


def test_a_restore_to_before_the_job_began_takes_back_everything(tmp_path: Path) -> None:
    table = open_table("delta", str(tmp_path / "t"))
    table.create(pa.schema([("id", pa.int32()), *Names().fields()]), [])
    land(table, 0, id=0)
    deltalake.DeltaTable(table.name).restore(0)
    again = open_table("delta", table.name)
    assert again.offsets(["flights"]) == {}
    land(again, 0, id=10)
    assert [row["id"] for row in rows(again)] == [10]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"version": 2, "timestamp": None}, "was restored to version 2, and its log doesn't say any more"),
        (
            {"version": None, "timestamp": "2026-01-01"},
            "was restored, and its log doesn't say any more to which version",
        ),
    ],
)
def test_a_restore_to_what_the_log_has_no_more_is_refused(
    tmp_path: Path, target: dict[str, Any], said: str
) -> None:
    table = open_table("delta", str(tmp_path / "t"))
    table.create(pa.schema([("id", pa.int32()), *Names().fields()]), [])
    for start in range(4):
        land(table, start, id=start)
    restored(table, target)
    deltalake.DeltaTable(table.name).create_checkpoint()
    for log in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
        log.unlink()
    with pytest.raises(LandingError, match=said):
        open_table("delta", table.name).state(["flights"])


def test_a_clone_has_rows_and_no_record_of_them(opened: Open) -> None:
    """A shallow clone has the files of another table, by their whole paths."""
    source = opened("many")
    clone = Path(source.name).parent / "clone"
    (clone / "_delta_log").mkdir(parents=True)
    log = []
    for version in range(deltalake.DeltaTable(source.name).version() + 1):
        for line in (Path(source.name) / "_delta_log" / f"{version:020d}.json").read_text().splitlines():
            for name, action in json.loads(line).items():
                if name in ("add", "remove"):
                    action["path"] = f"file:{source.name}/{action['path']}"
                    vector = action.get("deletionVector")
                    if vector:
                        vector["pathOrInlineDv"] = f"file:{source.name}/{Descriptor.from_json(vector).path}"
                        vector["storageType"] = "p"
                if name != "commitInfo":
                    log.append(json.dumps({name: action}))
        (clone / "_delta_log" / f"{version:020d}.json").write_text("\n".join(log))
        log.clear()
    table = open_table("delta", str(clone))
    assert rows(table) == rows(source)
    assert table.offsets(["flights"]) == {}
    with pytest.raises(LandingError, match=r"clone has rows of flights, and no record of what was landed"):
        check_recorded(table, Names(), {"flights", "other"})
    check_recorded(table, Names(), {"other"})
    land(table, 0, day="0")
    assert len(rows(table)) == len(rows(source)) + 1


def test_a_table_that_was_replaced_begins_anew_and_one_with_its_rows_goes_on(tmp_path: Path) -> None:
    table = open_table("delta", str(tmp_path / "t"))
    table.create(pa.schema([("id", pa.int32()), *Names().fields()]), [])
    land(table, 0, id=0)
    for operation, offsets in (
        ("CREATE OR REPLACE TABLE AS SELECT", {"flights": {1: 1}}),
        ("TRUNCATE", {"flights": {1: 1}}),
        ("CREATE OR REPLACE TABLE", {}),
    ):
        version = deltalake.DeltaTable(table.name).version() + 1
        info = {"commitInfo": {"operation": operation, "operationParameters": {}, "timestamp": 0}}
        log = tmp_path / "t" / "_delta_log" / f"{version:020d}.json"
        log.write_text(json.dumps(info))
        assert open_table("delta", table.name).offsets(["flights"]) == offsets


def test_what_other_programs_wrote_is_not_cleaned_up(tmp_path: Path) -> None:
    """Such as a file that Spark is about to commit, changes for readers of them, or another's old versions."""
    table = open_table("delta", str(tmp_path / "t"))
    table.create(pa.schema([("id", pa.int32()), *Names().fields()]), [])
    ours = tmp_path / "t" / land(table, 0, id=0).path
    theirs = [
        tmp_path / "t" / name
        for name in ("part-00000-5c1e.c000.snappy.parquet", "_change_data/cdc-00000.parquet")
    ]
    orphan = ours.with_name(f"part-{'0' * 32}.parquet")
    for one in (*theirs, orphan):
        one.parent.mkdir(exist_ok=True)
        one.write_bytes(ours.read_bytes())
    assert table.clean(older_than=-1) == (1, ours.stat().st_size)
    assert [one.exists() for one in (*theirs, ours, orphan)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ({"minReaderVersion": 4, "minWriterVersion": 9}, "can't be read: .*minimum reader version 4"),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["new"],
                "writerFeatures": ["new"],
            },
            "can't be read: .*'new' is not supported",
        ),
        ({"minReaderVersion": 1, "minWriterVersion": 8}, "uses Delta's protocol, writer version 8"),
    ],
)
def test_a_table_of_a_later_protocol_is_refused_in_one_line(
    tmp_path: Path, protocol: dict[str, Any], reason: str
) -> None:
    schema = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
    metadata = {
        "id": "x",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
    }
    actions = [{"protocol": protocol}, {"metaData": metadata | {"partitionColumns": [], "configuration": {}}}]
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    table = open_table("delta", str(tmp_path))
    with pytest.raises(LandingError, match=reason) as raised:
        table.check()
    assert "\n" not in str(raised.value)


def test_a_vector_that_can_not_be_read_is_an_error_in_one_line(opened: Open) -> None:
    table = opened("vectors")
    for file in Path(table.name).glob("*.bin"):
        data = bytearray(file.read_bytes())
        file.unlink()
        data[20] ^= 1
        file.write_bytes(data)
    with pytest.raises(
        LandingError, match=r"deletion vector deletion_vector_.*\.bin can't be read: its length or"
    ):
        table.scan().read_all()
    for file in Path(table.name).glob("*.bin"):
        file.unlink()
    with pytest.raises(LandingError, match="can't be read"):
        table.scan().read_all()


def test_in_an_object_store_only_what_deltalake_can_write_is_written(opened: Open) -> None:
    def stored(name: str) -> Table:
        table = open_table("delta", f"file://{opened(name).name}", storage={"allow_unsafe_rename": "false"})
        table.refresh()
        return table

    table = stored("mapped")
    table.check()
    land(table, 0, full_name="Di", date="d 1")
    assert rows(table)[-1]["full_name"] == "Di"
    assert table.offsets() == {"flights": {1: 1}}
    assert compact(table.name, storage={"allow_unsafe_rename": "false"}).rewritten == 1
    assert len(rows(table)) == 4
    with pytest.raises(
        LandingError, match="lacks the columns extra, and has column mapping: add them with Spark"
    ):
        table.add_columns([pa.field("extra", pa.int32())])
    table = stored("vectors")
    land(table, 0, id=0)
    with pytest.raises(
        LandingError, match=r"in an object store, and .*\.parquet has deleted rows: REORG TABLE"
    ):
        compact(table.name, storage={"allow_unsafe_rename": "false"})
    with pytest.raises(
        LandingError, match="feature inCommitTimestamp, which Ottla can't write in an object store"
    ):
        stored("many").check()
