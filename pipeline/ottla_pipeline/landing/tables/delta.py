"""Delta Lake, read by deltalake; commits to local folders are our own.

A commit has the state in its commitInfo, under ``ottla``, and for each partition an application transaction
``ottla/<topic>/<partition>`` whose version is the next offset. Delta deletes log files, with the state, after thirty
days; transactions stay in checkpoints. So even years later a table says where to go on, though without checksums.
Commits aren't retried here: Table.commit decides.

deltalake can neither remove a file that has a deletion vector, nor commit to tables with some newer features. So
commits to local folders are written here; in object stores, where only deltalake can create a file exclusively, what it
can't write is refused by name.
"""

from __future__ import annotations

import json
import logging
import posixpath
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from ottla_client import TopicPartition
from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.ledger import LandedRange, Ledger
from ottla_pipeline.landing.tables.base import Commit, DataFile, Removal, Stale, State, Table
from ottla_pipeline.landing.tables.deletion_vectors import Descriptor
from ottla_pipeline.landing.tables.delta_log import Action, DeltaLog, local
from ottla_pipeline.landing.tables.delta_protocol import BY_DELTALAKE, BY_US, Definition
from ottla_pipeline.landing.tables.layout import Layout
from ottla_pipeline.landing.tables.outside import one_line
from ottla_pipeline.landing.tables.reading import batches_of
from ottla_pipeline.landing.tables.storage import Place, unneeded
from ottla_pipeline.landing.tables.transforms import texts

log = logging.getLogger("ottla_pipeline")

_KEY = "ottla"
_CHECKPOINT_EVERY = 100
"""Commits between checkpoints, if the table has no ``delta.checkpointInterval``."""
_IN_PATHS = "/=+,;:@!$&'()*~"
"""Characters that paths in the log have as they are; others are escaped."""
_BY_DELTALAKE = "/=+,;:@!$&'()~"
"""The same, as deltalake has it. It finds a file to remove by its escaped path."""
_REPLACED = ("CREATE OR REPLACE TABLE", "REPLACE TABLE")
"""Operations after which a table is a new one. ``… AS SELECT`` isn't among them: it may keep the rows."""


class DeltaTable(Table):
    """A Delta table at a path or URI; ``options`` are deltalake's for object stores."""

    format = "delta"
    to_widen = "set the table's property delta.enableTypeWidening to true by Spark (in a local folder alone)"

    def __init__(self, uri: str, options: dict[str, str] | None = None) -> None:
        self.name = uri
        self.place = Place(uri, "deltalake", dict(options)) if options else Place(uri)
        self.fs, self.root = self.place.open()
        if not options and "://" not in uri:
            self.place = Place(self.root)
        self._options = options
        self._local = isinstance(self.fs, pafs.LocalFileSystem)
        self._log = DeltaLog(uri, self.fs, self.root)
        self._table: Any = None
        self._defined: tuple[int, Definition] | None = None
        self._vectors: tuple[int, dict[str, Descriptor]] = (-1, {})
        self._by_id: dict[str, Descriptor] = {}

    def exists(self) -> bool:
        import deltalake

        return bool(deltalake.DeltaTable.is_deltatable(self.place.uri, self._options))

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        import deltalake

        if self._local:
            self.fs.create_dir(self.root, recursive=True)
        deltalake.DeltaTable.create(
            self.place.uri,
            schema,
            mode="ignore",
            partition_by=list(partition_by),
            storage_options=self._options,
        )
        self.refresh()

    def refresh(self) -> None:
        import deltalake
        from deltalake.exceptions import DeltaError

        try:
            if self._table is None:
                self._table = deltalake.DeltaTable(self.place.uri, storage_options=self._options)
            else:
                self._table.update_incremental()
        except DeltaError as error:
            raise LandingError(f"{self.name} can't be read: {str(error).splitlines()[0]}") from error

    def check(self) -> None:
        self._definition().check_write(BY_US if self._local else BY_DELTALAKE)

    def check_rows(self) -> None:
        self._definition().check_rows()
        super().check_rows()

    def schema(self) -> pa.Schema:
        return self._definition().schema()

    def layout(self) -> Layout:
        return self._definition().layout()

    def called_now(self, name: str) -> str | None:
        """By the physical name that it had before it was renamed, as far back as the log goes."""
        from deltalake.exceptions import DeltaError

        now = super().called_now(name)
        definition, newest = self._definition(), self._open().version()
        if now is not None or not definition.mapped:
            return now

        def earlier(version: int) -> Definition:
            return Definition.of(self.name, self._at(version))

        versions = [one for one in self._log.versions() if one <= newest]
        try:
            at = bisect_left(versions, True, key=lambda one: not earlier(one).has(name))
            return definition.logical(earlier(versions[at - 1]).physical(name)) if at else None
        except (DeltaError, LandingError) as error:
            log.info("what %s of %s is called now is not known: %s", name, self.name, error)
            return None

    def data_files(self) -> list[DataFile]:
        definition = self._definition()
        vectors = self._deletion_vectors()
        actions = pa.table(self._open().get_add_actions(flatten=False))
        names = actions.column_names
        found = []
        for row in actions.select(
            [n for n in ("path", "size_bytes", "num_records", "partition") if n in names]
        ).to_pylist():
            partition = {
                definition.physical(name): None if value is None else texts(pa.array([value]))[0]
                for name, value in (row.get("partition") or {}).items()
            }
            vector = vectors.get(row["path"])
            rows = (row["num_records"] or 0) - (vector.cardinality if vector is not None else 0)
            found.append(
                DataFile(
                    local(unquote(row["path"])),
                    row["size_bytes"],
                    max(rows, 0),
                    partition,
                    deletes=self._known(vector),
                )
            )
        return found

    def batches(self, columns: Sequence[str], files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        definition = self._definition()
        definition.check_read()
        layout = definition.to_read()
        for one in files:
            deleted, at = None, 0
            path = posixpath.join(self.root, one.path)
            with one_line(path), self.fs.open_input_file(path) as source:
                if one.deletes:
                    rows = pq.read_metadata(source).num_rows
                    deleted = self._log.deleted(self._by_id[one.deletes], rows)
                for batch in batches_of(source, layout, columns, one.partition):
                    end = at + len(batch)
                    if deleted is not None:
                        kept = np.ones(len(batch), np.bool_)
                        first, last = np.searchsorted(deleted, (at, end))
                        kept[deleted[first:last] - at] = False
                        batch = batch.filter(pa.array(kept))
                    at = end
                    yield batch

    def state(self, topics: Sequence[str] = ()) -> State:
        """From our last commit; if the log no longer has it, from the application transactions.

        After a RESTORE it is the state at the version that was restored; a table that was replaced begins again. Raises
        LandingError if the log no longer has that version.
        """
        version = self._open().version()
        restored: int | None = None
        while version >= 0:
            info = self._log.info(version)
            if info is None:
                break
            if _KEY in info:
                return State.from_json(json.dumps(info[_KEY]))
            if info.get("operation") in _REPLACED:
                return State()
            if info.get("operation") == "RESTORE":
                restored = version = self._restored(version, info)
            else:
                version -= 1
        if restored is not None and version < 0:
            return State()  # Nothing had been landed. Application transactions outlive a RESTORE.
        if restored is not None:
            raise LandingError(
                f"{self.name} was restored to version {restored}, and its log doesn't say any more what had been "
                "landed then: land in a new table"
            )
        return self._from_transactions(topics)

    def removals(self) -> Iterator[Removal]:
        """As long as the log has the commits."""
        version = self._open().version()
        while version >= 0:
            try:
                actions = self._log.actions(version)
            except (LandingError, OSError) as error:
                log.info("what version %d of %s has removed is not known: %s", version, self.name, error)
                yield Removal([f"version {version}, which can't be read"])
                version -= 1
                continue
            if actions is None:
                yield Removal([f"version {version} and earlier ones, which the log no longer has"])
                return
            info: Action = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
            removed = [
                one["remove"] for one in actions if "remove" in one and one["remove"].get("dataChange", True)
            ]
            if removed and _KEY not in info:
                added = [one["add"] for one in actions if "add" in one]
                before, after = (
                    partial(self.batches, files=[self._data_file(one) for one in each])
                    for each in (removed, added)
                )
                yield Removal([f"{info.get('operation', 'a commit')} in version {version}"], (before, after))
            version -= 1

    def _data_file(self, action: Action) -> DataFile:
        vector = action.get("deletionVector")
        return DataFile(
            local(unquote(action["path"])),
            action.get("size") or 0,
            0,
            action.get("partitionValues") or {},
            deletes=self._known(Descriptor.from_json(vector) if vector else None),
        )

    def _known(self, vector: Descriptor | None) -> str:
        """A vector's id, by which :meth:`batches` finds it again."""
        if vector is None:
            return ""
        self._by_id[vector.unique_id] = vector
        return vector.unique_id

    def _restored(self, version: int, info: Action) -> int:
        """The version that a RESTORE went back to. Raises LandingError."""
        said = (info.get("operationParameters") or {}).get("version")
        if said is not None and 0 <= int(said) < version:
            return int(said)
        from deltalake.exceptions import DeltaError

        # Only a time was given: the newest version with the same files has the same rows.
        wanted = self._files_at(version)
        for earlier in range(version - 1, -1, -1):
            try:
                if self._files_at(earlier) == wanted:
                    return earlier
            except (DeltaError, LandingError, OSError) as error:
                raise LandingError(
                    f"{self.name} was restored, and its log doesn't say any more to which version: land in a new table"
                ) from error
        raise LandingError(
            f"{self.name} was restored to a version that its log doesn't have: land in a new table"
        )

    def _at(self, version: int) -> Any:
        import deltalake

        return deltalake.DeltaTable(self.place.uri, version=version, storage_options=self._options)

    def _files_at(self, version: int) -> set[tuple[str, str]]:
        vectors = self._log.deletion_vectors(version) if self._definition().has_vectors else {}
        paths = pa.table(self._at(version).get_add_actions()).column("path").to_pylist()
        return {(path, vectors[path].unique_id if path in vectors else "") for path in paths}

    def _from_transactions(self, topics: Sequence[str]) -> State:
        landed: dict[TopicPartition, tuple[LandedRange, ...]] = {}
        for topic in topics:
            partition = 0
            while (offset := self._open().transaction_version(_app_id(topic, partition))) is not None:
                landed[TopicPartition(topic, partition)] = (LandedRange(offset, offset),)
                partition += 1
        return State(Ledger(landed))

    def widens(self, has: pa.DataType, wanted: pa.DataType) -> bool:
        return self._local and self._definition().widens(has, wanted)

    def _add_columns(self, new: pa.Schema) -> None:
        import deltalake

        definition = self._definition()
        if not definition.mapped and definition.writer_features <= BY_DELTALAKE:
            self._open().alter.add_columns(list(deltalake.Schema.from_arrow(new).fields))
            return
        if not self._local:
            raise LandingError(
                f"{self.name} lacks the columns {', '.join(new.names)}, and has column mapping: add them with Spark"
            )
        if (
            any(one.type == pa.timestamp("us") for one in new)
            and "timestampNtz" not in definition.writer_features
        ):
            raise LandingError(
                f"{self.name} lacks the columns {', '.join(new.names)}, and Delta's feature timestampNtz: add them "
                "with Spark"
            )
        metadata = self._open().metadata()
        schema, properties = definition.extended(new)
        changed = {
            "id": str(metadata.id),
            "name": metadata.name,
            "description": metadata.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": list(definition.partition_by),
            "configuration": properties,
            "createdTime": metadata.created_time,
        }
        kept = {name: value for name, value in changed.items() if value is not None}
        added = json.dumps([one.name for one in new])
        try:
            self._put(
                [{"metaData": kept}], {"operation": "ADD COLUMNS", "operationParameters": {"columns": added}}
            )
        except Stale:
            self.add_columns(list(new))

    def _write(self, commit: Commit, state: State) -> None:
        if not self._local:
            self._write_by_deltalake(commit, state)
            return
        now, change = _now(), not commit.rewrite
        ends = [(at, end) for at, end in state.ledger.offsets().items() if at in commit.landed]
        actions: list[Action] = [
            {"txn": {"appId": _app_id(*at), "version": end, "lastUpdated": now}} for at, end in ends
        ]
        values = self._definition().partition_values
        raw = self._raw_paths() if commit.removed else {}
        for one in commit.removed:
            path = raw[one.path]
            vector = self._deletion_vectors().get(path)
            removed = {
                "path": path,
                "deletionTimestamp": now,
                "dataChange": change,
                "extendedFileMetadata": True,
                "partitionValues": values(one.partition),
                "size": one.size,
            }
            actions.append({"remove": removed | ({"deletionVector": vector.to_json()} if vector else {})})
        for one in commit.files:
            added = {
                "path": quote(one.path, safe=_IN_PATHS),
                "partitionValues": values(one.partition),
                "size": one.size,
                "modificationTime": now,
                "dataChange": change,
                "stats": one.stats,
            }
            actions.append({"add": added})
        how = ("OPTIMIZE", {}) if commit.rewrite else ("WRITE", {"mode": "Append"})
        info = {"operation": how[0], "operationParameters": how[1], "isBlindAppend": not commit.removed}
        self._put(actions, info | {_KEY: json.loads(state.to_json())})

    def _put(self, actions: list[Action], info: Action) -> None:
        """Commit to a local table, as the version after the one read last. Raises Stale."""
        version = self._open().version()
        head: Action = {"timestamp": _now(), "readVersion": version, "isolationLevel": "Serializable"}
        head |= info | {"engineInfo": "ottla"}
        if self._definition().properties.get("delta.enableInCommitTimestamps") == "true":
            before = (self._log.info(version) or {}).get("inCommitTimestamp", 0)
            head = {"inCommitTimestamp": max(_now(), before + 1)} | head
        if not self._log.put(version + 1, [{"commitInfo": head}, *actions]):
            raise Stale(f"version {version + 1} is another's")
        self._checkpoint(version + 1)

    def _checkpoint(self, version: int) -> None:
        """Write a checkpoint if it is time for one. The commit has been made, whatever becomes of it."""
        properties = self._definition().properties
        every = int(properties.get("delta.checkpointInterval", _CHECKPOINT_EVERY))
        if (version + 1) % max(every, 1):
            return
        try:
            self.refresh()
            self._table.create_checkpoint()
            if properties.get("delta.enableExpiredLogCleanup", "true") != "false":
                self._table.cleanup_metadata()
        except Exception as error:
            log.info("no checkpoint of %s at version %d: %s", self.name, version, error)

    def _write_by_deltalake(self, commit: Commit, state: State) -> None:
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

        table = self._open()
        now = _now()
        raw = self._raw_paths() if commit.removed else {}
        for one in commit.removed:
            if raw[one.path] != quote(one.path, safe=_BY_DELTALAKE):
                raise LandingError(
                    f"{self.name} is in an object store, and deltalake can't remove {raw[one.path]}, whose name "
                    "another program has escaped in its own way: OPTIMIZE it with Spark"
                )
            if one.deletes:
                raise LandingError(
                    f"{self.name} is in an object store, and {one.path} has deleted rows: REORG TABLE … APPLY (PURGE) "
                    "in Spark removes them; then compact it"
                )
        values = self._definition().partition_values
        actions: list[Any] = [
            AddAction(one.path, one.size, values(one.partition), now, not commit.rewrite, one.stats)
            for one in commit.files
        ]
        actions += [
            RemoveAction(one.path, not commit.rewrite, now, one.size, values(one.partition))
            for one in commit.removed
        ]
        properties = CommitProperties(
            custom_metadata={_KEY: json.loads(state.to_json())},
            max_commit_retries=0,
            app_transactions=[
                Transaction(_app_id(*at), end, now)
                for at, end in state.ledger.offsets().items()
                if at in commit.landed
            ],
        )
        partition_by = list(self._definition().partition_by)
        try:
            table.create_write_transaction(
                actions, "append", table.schema(), partition_by, commit_properties=properties
            )
        except CommitFailedError as error:
            raise Stale(str(error)) from error

    def clean(self, older_than: float) -> tuple[int, int]:
        """Ottla's files that no version has, and those of old versions beyond Delta's retention (a week)."""
        self.refresh()
        table = self._open()
        removed = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
        expired = set(table.vacuum(dry_run=True))
        kept = {path for each in removed if each not in expired for path in (each, unquote(each))}
        needed = {one.path for one in self.data_files()} | self.waiting() | kept
        found = unneeded(self.fs, self.root, needed, older_than)
        return self.delete([path for path, _ in found]), sum(size for _, size in found)

    def _raw_paths(self) -> dict[str, str]:
        """Paths of files as the log has them, by our paths."""
        paths = pa.table(self._open().get_add_actions()).column("path").to_pylist()
        return {local(unquote(one)): one for one in paths}

    def _deletion_vectors(self) -> dict[str, Descriptor]:
        """Of the version read last, by paths as the log has them."""
        if not self._definition().has_vectors:
            return {}
        version = self._open().version()
        if self._vectors[0] != version:
            self._vectors = (version, self._log.deletion_vectors(version))
        return self._vectors[1]

    def _definition(self) -> Definition:
        table = self._open()
        version = table.version()
        if self._defined is None or self._defined[0] != version:
            self._defined = (version, Definition.of(self.name, table))
        return self._defined[1]

    def _open(self) -> Any:
        if self._table is None:
            self.refresh()
        return self._table


def _app_id(topic: str, partition: int) -> str:
    return f"ottla/{topic}/{partition}"


def _now() -> int:
    return int(time.time() * 1000)
