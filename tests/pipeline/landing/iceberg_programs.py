"""Programs that change Iceberg tables: pyiceberg, and Spark with Iceberg's own runtime."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from harness.lakehouse import LakehouseSpark
from tests.pipeline.landing.changes import Program, Row, value_of
from tests.pipeline.landing.equality_deletes import delete_equal

from ottla_pipeline.landing import Landing
from ottla_pipeline.landing.job_plan import table_of


class PyIceberg(Program):
    """Copy-on-write, as pyiceberg does all of it."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing

    def _table(self) -> Any:
        table: Any = table_of(self._landing)
        table.refresh()
        return table._table

    def rename(self, old: str, new: str) -> None:
        with self._table().update_schema() as update:
            update.rename_column(tuple(old.split(".")), new.rpartition(".")[2])

    def may_drop(self, name: str) -> bool:
        """pyiceberg writes no manifest of files that were partitioned by a column that is gone."""
        table = self._table()
        field_id = table.schema().find_field(name).field_id
        return all(one.source_id != field_id for spec in table.specs().values() for one in spec.fields)

    def drop(self, name: str) -> None:
        with self._table().update_schema() as update:
            update.delete_column(tuple(name.split(".")))

    def add(self, name: str, kind: str) -> None:
        with self._table().update_schema() as update:
            update.add_column(tuple(name.split(".")), _type(kind))

    def widen(self, name: str, kind: str) -> None:
        with self._table().update_schema() as update:
            update.update_column(tuple(name.split(".")), field_type=_type(kind))

    def _writable(self) -> Any:
        """Without another package, pyiceberg writes rows by no transform but the identity."""
        table = self._table()
        if any(str(one.transform) != "identity" for one in table.spec().fields):
            self._unpartition(table)
        return self._table()

    def delete(self, offsets: list[int]) -> None:
        self._writable().delete(f"_offset in ({', '.join(map(str, offsets))})")

    def update(self, offsets: list[int], name: str, value: Any) -> None:
        from pyiceberg.expressions import In

        table = self._writable()
        rows = table.scan(row_filter=In("_offset", set(offsets))).to_arrow()
        at = rows.schema.get_field_index(name)
        changed = rows.set_column(
            at, rows.schema.field(at), pa.array([value] * len(rows), rows.schema.field(at).type)
        )
        table.overwrite(changed, In("_offset", set(offsets)))

    def version(self) -> Any:
        return self._table().current_snapshot().snapshot_id

    def rollback(self, version: Any) -> None:
        self._table().manage_snapshots().set_current_snapshot(version).commit()

    def insert(self) -> None:
        table = self._writable()
        table.append(pa.Table.from_pylist([{}], schema=table.schema().as_arrow()))

    def rewrite(self) -> None:
        table = self._writable()
        rows = table.scan().to_arrow()
        if len(rows):
            table.overwrite(rows)

    def spec(self, rng: random.Random, names: list[str]) -> None:
        table = self._table()
        self._unpartition(table)
        kind = rng.choice(("none", "identity", "bucket[3]", "truncate[2]", "day"))
        if kind == "none" or not names:
            return
        source = "_timestamp" if kind == "day" else rng.choice(names)
        with self._table().update_spec() as update:
            update.add_field(source, kind, f"p{rng.randrange(1 << 30)}")

    @staticmethod
    def _unpartition(table: Any) -> None:
        with table.update_spec() as update:
            for one in table.spec().fields:
                update.remove_field(one.name)

    def read(self, names: list[str]) -> list[Row]:
        rows = self._table().scan().to_arrow().to_pylist()
        return [{"_offset": row["_offset"], **{name: value_of(row, name) for name in names}} for row in rows]


class SparkSQL(PyIceberg):
    """Merge-on-read or copy-on-write, by the seed. It leaves specs and roll-backs to pyiceberg."""

    def __init__(self, landing: Landing, spark: LakehouseSpark, rng: random.Random) -> None:
        super().__init__(landing)
        self._spark = spark
        self._rng = rng
        self._short = landing.table.rpartition(".")[2]
        self._name = f"ottla.default.{self._short}"
        mode = rng.choice(("merge-on-read", "copy-on-write"))
        for one in ("delete", "update", "merge"):
            self._sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ('write.{one}.mode'='{mode}')")

    def _sql(self, query: str) -> list[list[Any]]:
        return self._spark.sql(query)

    def rename(self, old: str, new: str) -> None:
        self._sql(f"ALTER TABLE {self._name} RENAME COLUMN {old} TO {new.rpartition('.')[2]}")

    def drop(self, name: str) -> None:
        self._sql(f"ALTER TABLE {self._name} DROP COLUMN {name}")

    def add(self, name: str, kind: str) -> None:
        self._sql(f"ALTER TABLE {self._name} ADD COLUMN {name} {kind}")

    def widen(self, name: str, kind: str) -> None:
        self._sql(f"ALTER TABLE {self._name} ALTER COLUMN {name} TYPE {kind}")

    def delete(self, offsets: list[int]) -> None:
        if self._rng.random() < 0.5:
            # For the whole table: its first spec has no partitions.
            delete_equal(self._table(), ["_offset"], [{"_offset": one} for one in offsets], spec_id=0)
            return
        self._sql(f"DELETE FROM {self._name} WHERE _offset IN ({', '.join(map(str, offsets))})")

    def update(self, offsets: list[int], name: str, value: Any) -> None:
        text = "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
        where = ", ".join(f"({offset})" for offset in offsets)
        self._sql(
            f"MERGE INTO {self._name} t USING (SELECT col1 AS o FROM VALUES {where}) s ON t._offset = s.o "
            f"WHEN MATCHED THEN UPDATE SET {name} = {text}"
        )

    def insert(self) -> None:
        columns = ", ".join(["null"] * len(self._table().schema().fields))
        self._sql(f"INSERT INTO {self._name} SELECT {columns}")

    def rewrite(self) -> None:
        self._sql(
            f"CALL ottla.system.rewrite_data_files(table => 'default.{self._short}', "
            "options => map('rewrite-all', 'true'))"
        )

    def read(self, names: list[str]) -> list[Row]:
        columns = ["_offset", *names]
        return [
            dict(zip(columns, row, strict=True))
            for row in self._sql(f"SELECT {', '.join(columns)} FROM {self._name}")
        ]


def _type(kind: str) -> Any:
    from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, StringType

    return {
        "INT": IntegerType,
        "BIGINT": LongType,
        "FLOAT": FloatType,
        "DOUBLE": DoubleType,
        "STRING": StringType,
    }[kind]()
