"""Apache Iceberg, by pyiceberg; without a named catalogue, it uses one in SQLite beside the tables.

The state is in the table's properties, under ``ottla``, and changes in the commit that adds the files. Each snapshot's
summary also says where every partition ends, under ``ottla``: if the table was rolled back, its current snapshot is
older than the properties, and overrides them. A commit asserts that its base snapshot is still the current one;
pyiceberg doesn't retry: Table.commit decides.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import pyarrow as pa

from ottla_client import TopicPartition
from ottla_pipeline.landing.errors import BadSetting, LandingError
from ottla_pipeline.landing.ledger import LandedRange, Ledger, by_topic
from ottla_pipeline.landing.schema import mapped, normalised
from ottla_pipeline.landing.tables.base import VERSIONS, Commit, DataFile, Stale, State, Table
from ottla_pipeline.landing.tables.storage import partition_text, place, unneeded

_KEY = "ottla"
CATALOG = "ottla"
"""The catalogue's name if its properties have none; an SQL catalogue stores it with each table."""
_RETRIES = "commit.retry.num-retries"
_PROPERTIES = {
    # Each commit writes the whole metadata again; old files become useless after a while.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergTable(Table):
    """``folder/namespace.name`` with a catalogue in that folder, or ``namespace.name`` in the one that is given."""

    format = "iceberg"
    keeps_partition_columns = True

    def __init__(self, uri: str, catalog: Mapping[str, str] | None = None) -> None:
        self.name = uri
        folder, _, name = uri.rpartition("/")
        if catalog is None and not folder:
            raise BadSetting(
                f"the Iceberg table {uri!r} needs a folder (folder/namespace.name), or a catalogue's properties"
            )
        namespace, _, short = (name if catalog is None else uri).rpartition(".")
        self._identifier = (namespace or "default", short)
        self._properties = {"name": CATALOG, **(catalog if catalog is not None else _beside(folder))}
        self._catalog: Any = None
        self._table: Any = None

    @property
    def root(self) -> str:  # type: ignore[override]
        return place(self._data())[1]

    @property
    def fs(self) -> Any:
        return place(self._data())[0]

    @property
    def root_uri(self) -> str:  # type: ignore[override]
        return self._data()

    def exists(self) -> bool:
        return bool(self._catalogue().table_exists(self._identifier))

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError

        catalog = self._catalogue()
        catalog.create_namespace_if_not_exists(self._identifier[0])
        try:
            with catalog.create_table_transaction(
                self._identifier, schema=_iceberg(schema), properties=_PROPERTIES
            ) as made:
                if partition_by:
                    with made.update_spec() as spec:
                        for name in partition_by:
                            spec.add_identity(name)
        except TableAlreadyExistsError:
            pass  # another job has just made it, with what the refresh finds
        self.refresh()

    def refresh(self) -> None:
        if self._table is None:
            self._table = self._catalogue().load_table(self._identifier)
        else:
            self._table.refresh()

    def schema(self) -> pa.Schema:
        found = self._open().schema().as_arrow()
        return pa.schema([one.with_type(normalised(one.type)).remove_metadata() for one in found])

    def partition_by(self) -> list[str]:
        table = self._open()
        return [table.schema().find_column_name(one.source_id) for one in table.spec().fields]

    def data_files(self) -> list[DataFile]:
        return [self._file(one.file) for one in self._open().scan().plan_files()]

    def state(self, topics: Sequence[str] = ()) -> State:
        """From the properties if our newest snapshot agrees; otherwise from that snapshot."""
        from pyiceberg.table.snapshots import ancestors_of

        metadata = self._open().metadata
        text = metadata.properties.get(_KEY)
        state = State.from_json(text) if text else State()
        current = self._open().current_snapshot()
        for snapshot in ancestors_of(current, metadata) if current is not None else ():
            says = snapshot.summary.get(_KEY) if snapshot.summary is not None else None
            if says is None:
                continue
            if says != _summary(state):
                offsets = json.loads(says)
                landed = {
                    TopicPartition(topic, int(at)): (LandedRange(end, end),)
                    for topic, one in offsets.items()
                    for at, end in one.items()
                }
                return State(Ledger(landed, state.ledger.ids), notes=state.notes)
            break
        return state

    def _add_columns(self, new: pa.Schema) -> None:
        with self._open().update_schema() as update:
            update.union_by_name(_iceberg(new))

    def _write(self, commit: Commit, state: State) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        logging.getLogger("pyiceberg.io.pyarrow").addFilter(_is_news)
        table = self._open()
        # Only in this process's copy of the metadata: Table.commit decides whether to try again.
        table.metadata.properties[_RETRIES] = "0"
        files = [posixpath.join(self._data(), one.path) for one in commit.files]
        try:
            with table.transaction() as transaction:
                transaction.set_properties({_KEY: state.to_json()})
                if commit.removed:
                    self._replace(transaction, commit.removed, files, state)
                else:
                    # Paths are new: each has a random name.
                    transaction.add_files(files, {_KEY: _summary(state)}, check_duplicate_files=False)
        except (CommitFailedException, ValidationException) as error:
            raise Stale(str(error)) from error

    def _replace(self, transaction: Any, removed: Sequence[str], files: Sequence[str], state: State) -> None:
        """Add and remove files in one snapshot, for which pyiceberg has no call of its own."""
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        table = self._open()
        known = {self._relative(one.file.file_path): one.file for one in table.scan().plan_files()}
        if not known.keys() >= set(removed):
            raise LandingError(
                f"{self.name}: a file that was to be replaced is not in the table any more; run it again"
            )
        update = transaction.update_snapshot(snapshot_properties={_KEY: _summary(state)})
        with update.overwrite() as snapshot:
            for path in files:
                snapshot.append_data_file(
                    parquet_file_to_data_file(table.io, transaction.table_metadata, path)
                )
            for path in removed:
                snapshot.delete_data_file(known[path])

    def clean(self, older_than: float) -> tuple[int, int]:
        """Files in the data folder that no snapshot has; expires snapshots older than a week."""
        self.refresh()
        table = self._open()
        long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=VERSIONS)
        if any(one.timestamp_ms < long_ago.timestamp() * 1000 for one in table.metadata.snapshots):
            table.maintenance.expire_snapshots().older_than(long_ago).commit()
            self.refresh()
        needed: set[str] = self.waiting()
        for snapshot in table.metadata.snapshots:
            for manifest in snapshot.manifests(table.io):
                needed.update(
                    self._relative(e.data_file.file_path) for e in manifest.fetch_manifest_entry(table.io)
                )
        found = unneeded(self.fs, self.root, needed, older_than)
        return self.delete([path for path, _ in found]), sum(size for _, size in found)

    def _file(self, file: Any) -> DataFile:
        names = self.partition_by()
        values = {name: partition_text(file.partition[i]) for i, name in enumerate(names)}
        return DataFile(self._relative(file.file_path), file.file_size_in_bytes, file.record_count, values)

    def _relative(self, path: str) -> str:
        root = self._data()
        return (
            path[len(root) + 1 :]
            if path.startswith(root + "/")
            else posixpath.relpath(urlsplit(path).path, self.root)
        )

    def _data(self) -> str:
        return cast(str, self._open().location().rstrip("/")) + "/data"

    def _catalogue(self) -> Any:
        if self._catalog is None:
            from pyiceberg.catalog import load_catalog

            self._catalog = load_catalog(**self._properties)
        return self._catalog

    def _open(self) -> Any:
        if self._table is None:
            self.refresh()
        return self._table


def _summary(state: State) -> str:
    """The end of every partition, for a snapshot's summary: short, since every snapshot has one."""
    offsets = by_topic(state.ledger.offsets())
    return json.dumps(
        {topic: {str(at): end for at, end in one.items()} for topic, one in offsets.items()},
        sort_keys=True,
        separators=(",", ":"),
    )


def _beside(folder: str) -> dict[str, str]:
    """Properties of a catalogue in ``folder``."""
    filesystem, path = place(folder)
    filesystem.create_dir(path, recursive=True)
    return {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}"}


def _iceberg(schema: pa.Schema) -> pa.Schema:
    """Iceberg has no integers below 32 bits."""
    return pa.schema([one.with_type(mapped(one.type, _wide)) for one in schema])


def _wide(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind in (pa.int8(), pa.int16()) else kind


def _is_news(record: logging.LogRecord) -> bool:
    """Not a warning for each file that its columns of bytes have no statistics: landing writes none for them."""
    return not str(record.msg).startswith("PyArrow statistics missing")
