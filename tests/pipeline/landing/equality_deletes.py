"""Writes deletes to Iceberg tables as Flink and Java do: pyiceberg, which can't, only writes the files around them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _dataframe_to_data_files, schema_to_pyarrow
from pyiceberg.manifest import (
    POSITIONAL_DELETE_SCHEMA,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from ottla_pipeline.landing.tables.iceberg_rewrite import DeletesManifest


def delete_equal(
    table: Any,
    columns: Sequence[str],
    keys: Sequence[dict[str, Any]],
    spec_id: int | None = None,
    partition: Sequence[Any] = (),
    new: Sequence[dict[str, Any]] = (),
    **metadata: Any,
) -> None:
    """Commit an equality delete: of all rows so far that have one of the keys in these columns.

    ``keys``: rows as Arrow takes them, of a struct's field with the struct around it. ``spec_id`` and ``partition``:
    where it applies, by default by the table's current spec. ``new``: rows to add in the same commit,
    to which it doesn't apply. ``metadata``: of the file, if they are to be others.
    """
    ids = [table.schema().find_field(name).field_id for name in columns]
    metadata = {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": ids, **metadata}
    _commit(table, prune_columns(table.schema(), set(ids)), keys, spec_id, partition, metadata, new)


def delete_at(table: Any, path: str, positions: Sequence[int], partition: Sequence[Any] = ()) -> None:
    """Commit a position delete."""
    rows = [{"file_path": path, "pos": one} for one in positions]
    _commit(
        table, POSITIONAL_DELETE_SCHEMA, rows, None, partition, {"content": DataFileContent.POSITION_DELETES}
    )


def _commit(
    table: Any,
    schema: Schema,
    rows: Sequence[dict[str, Any]],
    spec_id: int | None,
    partition: Sequence[Any],
    metadata: dict[str, Any],
    new: Sequence[dict[str, Any]] = (),
) -> None:
    path = f"{table.location()}/data/delete-{uuid.uuid4()}.parquet"
    with table.io.new_output(path).create() as out:
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(schema)), out)
    file = DataFile.from_args(
        **{
            "file_path": path,
            "file_format": FileFormat.PARQUET,
            "partition": Record(*partition),
            "record_count": len(rows),
            "file_size_in_bytes": len(table.io.new_input(path)),
            **metadata,
        }
    )
    file.spec_id = table.metadata.default_spec_id if spec_id is None else spec_id
    with (
        table.transaction() as transaction,
        _Deletes(operation=Operation.DELETE, transaction=transaction, io=table.io) as snapshot,
    ):
        snapshot.deletes = file
        added = pa.Table.from_pylist(list(new), schema=table.schema().as_arrow())
        for one in _dataframe_to_data_files(table.metadata, added, table.io) if new else ():
            snapshot.append_data_file(one)


class _Deletes(_FastAppendFiles):
    """A snapshot that adds a file of deletes, too."""

    deletes: DataFile

    def _manifests(self) -> list[ManifestFile]:
        spec, out = self.spec(self.deletes.spec_id), self.new_manifest_output()
        with DeletesManifest(spec, self.schema(), out, self._snapshot_id, self._compression) as writer:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=self.deletes
                )
            )
        return [writer.to_manifest_file(), *super()._manifests()]
