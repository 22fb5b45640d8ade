"""Apache Iceberg, by pyiceberg; without a named catalogue, it uses one in SQLite beside the tables.

The state is in the table's properties, under ``ottla``, and changes in the commit that adds the files. Each snapshot's
summary also says where every partition ends, under ``ottla``: if the table was rolled back, its current snapshot is
older than the properties, and overrides them. A commit asserts that its base snapshot is still the current one;
pyiceberg doesn't retry: Table.commit decides.

Data files have the field ids of their columns, so other programs may rename, drop and add columns as they like. Files
of earlier versions have none: for these the table's name mapping tells which column has which id.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from ottla_client import TopicPartition
from ottla_pipeline.landing.errors import BadSetting, LandingError, SchemaRefused
from ottla_pipeline.landing.ledger import by_topic
from ottla_pipeline.landing.schema import mapped, normalised
from ottla_pipeline.landing.tables.base import VERSIONS, Busy, Commit, DataFile, Removal, Stale, State, Table
from ottla_pipeline.landing.tables.iceberg_columns import cast, kept_mapping, physical, small, types_in
from ottla_pipeline.landing.tables.iceberg_deletes import Plan, readable
from ottla_pipeline.landing.tables.iceberg_metrics import metrics
from ottla_pipeline.landing.tables.iceberg_removals import Files, has_expired_parent, steps
from ottla_pipeline.landing.tables.layout import Layout, PartitionField
from ottla_pipeline.landing.tables.outside import passes, patiently, said
from ottla_pipeline.landing.tables.storage import Place, unneeded
from ottla_pipeline.landing.tables.transforms import from_text, is_writable

log = logging.getLogger("ottla_pipeline")

_KEY = "ottla"
CATALOG = "ottla"
"""The catalogue's name if its properties have none; an SQL catalogue stores it with each table."""
_RETRIES = "commit.retry.num-retries"
_NEWEST = 2
"""The newest version of the format that pyiceberg writes."""
_MAPPING = "schema.name-mapping.default"
_RESERVED = {
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
}
"""Iceberg's own columns: a table that has one of its own by such a name can't be read whole by Spark."""
_STORAGE = ("s3.", "client.", "gcs.", "adls.", "hdfs.", "oss.")
"""How properties begin that say how files are read and written."""
_PROPERTIES = {
    # Each commit writes the whole metadata again; old files become useless after a while.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergTable(Table):
    """``folder/namespace.name`` with a catalogue in that folder, or ``namespace.name`` in the one that is given."""

    format = "iceberg"

    def __init__(self, uri: str, catalog: Mapping[str, str] | None = None) -> None:
        self.name = uri
        folder, _, name = uri.rpartition("/")
        if catalog is None and not folder:
            raise BadSetting(
                f"the Iceberg table {uri!r} needs a folder (folder/namespace.name), or a catalogue's properties"
            )
        namespace, _, short = (name if catalog is None else uri).rpartition(".")
        self._identifier = (namespace or "default", short)
        self._beside = catalog is None
        self._properties = {"name": CATALOG, **(catalog if catalog is not None else _beside(folder))}
        self._catalog: Any = None
        self._table: Any = None
        self._planned: tuple[Any, Plan] | None = None

    @property
    def place(self) -> Place:  # type: ignore[override]
        """With the properties that the catalogue gives for the table's files, such as an object store's keys."""
        return _place(self._data(), self._open().io)

    @property
    def root(self) -> str:  # type: ignore[override]
        return self.place.open()[1]

    @property
    def fs(self) -> Any:
        return self.place.open()[0]

    def exists(self) -> bool:
        return patiently(self.name, lambda: bool(self._catalogue().table_exists(self._identifier)))

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError

        _check_names(self.name, schema)

        def make() -> None:
            catalog = self._catalogue()
            catalog.create_namespace_if_not_exists(self._identifier[0])
            with catalog.create_table_transaction(
                self._identifier, schema=_iceberg(schema), properties=_PROPERTIES
            ) as made:
                self._check_free(made.table_metadata.location, made._table.io)
                if partition_by:
                    with made.update_spec() as spec:
                        for name in partition_by:
                            spec.add_identity(name)

        # Another job may just have made it, with what the refresh finds.
        with suppress(TableAlreadyExistsError):
            patiently(self.name, make)
        self.refresh()

    def _check_free(self, location: str, io: Any) -> None:
        """Raises LandingError if the place of a new table is that of one which another program has renamed.

        All its records would be landed again, and its files would be orphans of the new table.
        """
        files, path = _place(f"{location}/metadata", io).open()
        if files.get_file_info(pafs.FileSelector(path, allow_not_found=True)) and (
            now := self._now(location)
        ):
            raise LandingError(
                f"{self.name} doesn't exist, and its files are those of {now}: another program has renamed it; land in "
                f"{now}"
            )

    def _now(self, location: str) -> str | None:
        """The table that has its files there, as users name it."""
        from pyiceberg.exceptions import NoSuchTableError

        catalog = self._catalogue()
        folder = self.name.removesuffix(self.name.rpartition("/")[2]) if self._beside else ""
        waiting = catalog.list_namespaces()
        while waiting:
            namespace = waiting.pop()
            waiting += catalog.list_namespaces(namespace)
            for one in catalog.list_tables(namespace):
                with suppress(NoSuchTableError):
                    if _path_of(catalog.load_table(one).location()) == _path_of(location):
                        return folder + ".".join(one)
        return None

    def refresh(self) -> None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            if self._table is None:
                self._table = patiently(self.name, lambda: self._catalogue().load_table(self._identifier))
            else:
                patiently(self.name, self._table.refresh)
        except NoSuchTableError as error:
            now = self._now(self._table.location()) if self._table is not None else None
            raise LandingError(
                f"{self.name} doesn't exist any more: another program has "
                + (f"renamed it; land in {now}" if now else "dropped it")
            ) from error
        except (NotImplementedError, ValueError) as error:
            what = (
                "is another table now" if "UUID" in str(error) else "is of a kind that pyiceberg can't read"
            )
            raise LandingError(f"{self.name} {what}: {str(error).splitlines()[0]}") from error

    def check(self) -> None:
        """Refuses versions, types and transforms that pyiceberg can't write or read."""
        table = self._open()
        if table.metadata.format_version > _NEWEST:
            raise LandingError(
                f"{self.name} has Iceberg's format version {table.metadata.format_version}, and pyiceberg writes up to "
                f"{_NEWEST}: can't be landed in"
            )
        for field in table.schema().fields:
            for one in types_in(field.field_type):
                if str(one).startswith(("timestamp_ns", "timestamptz_ns", "unknown", "geo", "variant")):
                    raise LandingError(
                        f"{self.name} has the column {field.name} of type {one}: can't be landed in"
                    )
        for one in self.layout().partitions:
            at = self.layout().schema.get_field_index(one.source)
            if at < 0 or not is_writable(one.transform, self.layout().schema.field(at).type):
                raise LandingError(
                    f"{self.name} is partitioned by {one.transform}({one.source}): can't be landed in"
                )

    def schema(self) -> pa.Schema:
        return pa.schema(
            [one.with_type(normalised(one.type)).remove_metadata() for one in self.layout().schema]
        )

    def layout(self) -> Layout:
        table = self._open()
        schema = table.schema()
        columns = pa.schema([small(one) for one in schema.as_arrow()])
        partitions = tuple(
            PartitionField(one.name, schema.find_column_name(one.source_id) or "", str(one.transform))
            for one in table.spec().fields
        )
        return Layout(
            pa.schema([one.remove_metadata() for one in columns]),
            pa.schema(physical(columns)),
            partitions,
            keeps_partition_columns=True,
            version=f"{schema.model_dump_json()} {table.spec().model_dump_json()}",
        )

    def called_now(self, name: str) -> str | None:
        for schema in reversed(self._open().metadata.schemas):
            ids = [one.field_id for one in schema.fields if one.name == name]
            if ids and (found := self._open().schema().find_column_name(ids[0])) is not None:
                return str(found)
        return None

    def data_files(self) -> list[DataFile]:
        plan = self._plan()
        return [self._file(one, plan) for one in plan.tasks]

    def _deletes(self, commit: Commit) -> dict[str, str]:
        """Without equality deletes that apply to rewritten files, too: see :meth:`_rewrite`."""
        plan, version = self._plan(), self._version(commit)
        found = [self._file(one, plan, version) for one in plan.tasks]
        return {one.path: one.deletes for one in found}

    def _version(self, commit: Commit) -> int | None:
        """The sequence number that its files may have, since they hold what those had that they replace.

        None if files get into other partitions: deletes may apply to some of both, and not to others.
        """
        spec = self._open().metadata.default_spec_id
        if not commit.rewrite or any(one.spec != spec for one in commit.removed):
            return None
        return min((one.version for one in commit.removed), default=None)

    def batches(self, columns: Sequence[str], files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        chosen = {one.path for one in files}
        plan = self._plan()
        # Of the whole table, so that nothing has been done when a compaction ends.
        plan.check_formats(self.name)
        tasks = [one for one in plan.tasks if self._relative(one.file.file_path) in chosen]
        return self._rows(Files(tasks, plan), columns)

    def removals(self) -> Iterator[Removal]:
        """As long as the table has the snapshots, and of deletes as long as it has their files."""
        with self._planning():
            for one in steps(self._open(), _KEY):
                if one.files is None:
                    yield Removal(one.commits)
                else:
                    before, after = (partial(self._rows, files) for files in one.files)
                    yield Removal(one.commits, (before, after))

    def _rows(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
        from pyiceberg.schema import prune_columns

        table = self._open()
        schema = self.layout().schema
        wanted = pa.schema([schema.field(name) for name in columns])
        ids = {one.field_id for one in table.schema().fields if one.name in columns}
        scan = ArrowScan(table.metadata, table.io, prune_columns(table.schema(), ids), AlwaysTrue())
        positions = _read_all_delete_files(table.io, files.tasks)
        each = ((one, None) for one in files.tasks)
        for task, remain in files.plan.remaining(self.name, files.tasks, positions) if files.plan else each:
            done = 0
            with readable(self.name, task.file.file_path):
                # One file after the other, and batch by batch: the public methods read whole files, and many at once.
                for batch in scan._record_batches_from_scan_tasks_and_deletes([task], positions):
                    arrays = [cast(batch.column(one.name), one.type) for one in wanted]
                    found = pa.RecordBatch.from_arrays(arrays, schema=wanted)
                    done += len(found)
                    yield (
                        found if remain is None else found.filter(pa.array(remain[done - len(found) : done]))
                    )

    def state(self, topics: Sequence[str] = ()) -> State:
        """From the properties if our newest snapshot agrees; otherwise from that snapshot."""
        from pyiceberg.table.snapshots import ancestors_of

        metadata = self._open().metadata
        text = metadata.properties.get(_KEY)
        state = State.from_json(text) if text else State()
        current = self._open().current_snapshot()
        lineage = list(ancestors_of(current, metadata)) if current is not None else []
        for snapshot in lineage:
            says = snapshot.summary.get(_KEY) if snapshot.summary is not None else None
            if says is None:
                continue
            if says == _summary(state):
                return state
            offsets = json.loads(says)
            ends = {
                TopicPartition(topic, int(at)): end
                for topic, one in offsets.items()
                for at, end in one.items()
            }
            return State(state.ledger.rolled_back(ends), notes=state.notes)
        if lineage and has_expired_parent(lineage[-1]):
            return state  # Our snapshots have expired; those of other programs came later.
        # Rolled back, or replaced, to before anything was landed.
        return State(notes=state.notes)

    def widens(self, has: pa.DataType, wanted: pa.DataType) -> bool:
        """Iceberg's specification, "Schema Evolution"."""
        if pa.types.is_decimal(has) and pa.types.is_decimal(wanted):
            return bool(has.scale == wanted.scale and has.precision < wanted.precision)
        return (has, wanted) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))

    def _add_columns(self, new: pa.Schema) -> None:
        _check_names(self.name, new)
        table = self._open()
        before = table.metadata.properties.get(_MAPPING)
        try:
            with self._committing(), table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(_iceberg(new))
                after = transaction.table_metadata.properties.get(_MAPPING)
                if before is not None and after is not None:
                    transaction.set_properties(
                        {_MAPPING: kept_mapping(json.loads(before), json.loads(after))}
                    )
        except ValueError as error:
            raise SchemaRefused(
                f"{self.name} can't get the columns {', '.join(new.names)}: {error}"
            ) from error

    def rename(self, old: str, new: str) -> None:
        _check_names(self.name, pa.schema([pa.field(new, pa.string())]))
        with self._open().update_schema() as update:
            update.rename_column((old,), new)
        self.refresh()

    def _write(self, commit: Commit, state: State) -> None:
        from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

        table = self._open()
        # Only in this process's copy of the metadata: Table.commit decides whether to try again.
        table.metadata.properties[_RETRIES] = "0"
        schema_id, spec_id = table.metadata.current_schema_id, table.metadata.default_spec_id
        try:
            with self._committing(), table.transaction() as transaction:
                transaction.set_properties({_KEY: state.to_json()})
                # A snapshot's own requirement is its parent alone.
                unchanged = (
                    AssertCurrentSchemaId.model_validate({"current-schema-id": schema_id}),
                    AssertDefaultSpecId.model_validate({"default-spec-id": spec_id}),
                )
                transaction._apply((), unchanged)
                properties = {_KEY: _summary(state)}
                producer: Any = (
                    self._rewrite(commit, transaction, properties)
                    if commit.removed
                    else transaction.update_snapshot(snapshot_properties=properties).fast_append()
                )
                for one in commit.files:
                    producer.append_data_file(self._added(one))
                producer.commit()
        except TypeError as error:
            raise LandingError(
                f"{self.name}: files in it are partitioned by a column that was dropped since, and pyiceberg can't "
                "replace these: rewrite them by Spark first"
            ) from error

    def _rewrite(self, commit: Commit, transaction: Any, properties: dict[str, str]) -> Any:
        """If keys were deleted since the files were read, new ones are dated back, so that this applies to them."""
        from ottla_pipeline.landing.tables.iceberg_rewrite import Rewrite

        producer = Rewrite(transaction, self._open().io, properties)
        plan, version = self._plan(), self._version(commit)
        removed = {one.path for one in commit.removed}
        tasks: list[Any] = []
        left: list[Any] = []
        for one in plan.tasks:
            (tasks if self._relative(one.file.file_path) in removed else left).append(one)
        for one in tasks:
            producer.delete_data_file(one.file)
        if version is not None and any(plan.marks(one) != plan.marks(one, version) for one in tasks):
            producer.dated, left = version, plan.tasks
        producer.needed = plan.deletes_of(left)
        return producer

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Raises Stale if another writer was faster, Busy if the catalogue can't be asked now."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        try:
            yield
        except (CommitFailedException, ValidationException) as error:
            raise Stale(str(error)) from error
        except Exception as error:
            if not passes(error):
                raise
            log.warning("%s: %s; trying again", self.name, said(error))
            raise Busy(said(error)) from error

    def _added(self, one: DataFile) -> Any:
        """A new file as a manifest has it: its partition, and statistics by field id."""
        from pyiceberg.io.pyarrow import compute_statistics_plan, schema_to_pyarrow
        from pyiceberg.manifest import DataFile as Entry
        from pyiceberg.manifest import DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        table = self._open()
        path = posixpath.join(self._data(), one.path)
        with table.io.new_input(path).open() as source:
            metadata = pq.read_metadata(source)
        values = []
        for field in table.spec().fields:
            kind = field.transform.result_type(table.schema().find_type(field.source_id))
            values.append(from_text(one.partition[field.name], schema_to_pyarrow(kind)))
        return Entry.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            file_size_in_bytes=one.size,
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **metrics(metadata, compute_statistics_plan(table.schema(), table.metadata.properties)),
        )

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

    def _plan(self) -> Plan:
        """Data files and their deletes, at the version read last, of which all manifests are read once."""
        metadata = self._open().metadata
        if self._planned is None or self._planned[0] is not metadata:
            with self._planning():
                self._planned = metadata, Plan(self._open())
        return self._planned[1]

    @contextmanager
    def _planning(self) -> Iterator[None]:
        try:
            yield
        except (NotImplementedError, ValueError) as error:
            raise LandingError(f"{self.name} can't be read: {str(error).splitlines()[0]}") from error

    def _file(self, task: Any, plan: Plan, until: int | None = None) -> DataFile:
        file = task.file
        fields = self._open().specs()[file.spec_id].fields
        values = {
            one.name: None if file.partition[i] is None else str(file.partition[i])
            for i, one in enumerate(fields)
        }
        deletes = sorted(
            f"{one.file_path}@{getattr(one, 'content_offset', None)}" for one in task.delete_files
        )
        return DataFile(
            self._relative(file.file_path),
            file.file_size_in_bytes,
            file.record_count,
            values,
            deletes=" ".join([*deletes, *plan.marks(task, until)]),
            spec=file.spec_id,
            version=plan.version,
        )

    def _relative(self, uri: str) -> str:
        """A file's path below the root; the whole URI if it is elsewhere, where another program has put it."""
        path, root = _path_of(uri), _path_of(self._data())
        return path[len(root) + 1 :] if path.startswith(root + "/") else uri

    def _data(self) -> str:
        return str(self._open().location()).rstrip("/") + "/data"

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


def _place(uri: str, io: Any) -> Place:
    known = io.properties
    options = {key: str(known[key]) for key in known if key.startswith(_STORAGE)}
    return Place(uri, "pyiceberg", options)


def _beside(folder: str) -> dict[str, str]:
    """Properties of a catalogue in ``folder``."""
    filesystem, path = Place(folder).open()
    filesystem.create_dir(path, recursive=True)
    return {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}"}


def _path_of(uri: str) -> str:
    """Without the scheme, of which one store may have several, and Java writes one slash after ``file:``."""
    return re.sub(r"^[a-z][a-z0-9+.-]*:(//)?", "", uri).rstrip("/")


def _check_names(table: str, schema: pa.Schema) -> None:
    for name in schema.names:
        if name.lower() in _RESERVED:
            raise SchemaRefused(
                f"{table} can't have a column {name}: Iceberg reserves the name; give a schema or columns with another"
            )


def _iceberg(schema: pa.Schema) -> pa.Schema:
    """Iceberg has no integers below 32 bits."""
    return pa.schema([one.with_type(mapped(one.type, _wide)) for one in schema])


def _wide(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind in (pa.int8(), pa.int16()) else kind
