"""Delta Lake, by deltalake.

A commit has the state in its commitInfo, under ``ottla``, and for each partition an application transaction
``ottla/<topic>/<partition>`` whose version is the next offset. Delta deletes log files, with the state, after thirty
days; transactions stay in checkpoints. So even years later a table says where to go on, though without checksums.
deltalake doesn't retry a commit: Table.commit decides.
"""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs as pafs

from ottla_client import TopicPartition
from ottla_pipeline.landing.ledger import LandedRange, Ledger
from ottla_pipeline.landing.schema import normalised
from ottla_pipeline.landing.tables.base import Commit, DataFile, Stale, State, Table
from ottla_pipeline.landing.tables.layout import Layout
from ottla_pipeline.landing.tables.reading import batches_of
from ottla_pipeline.landing.tables.storage import Place, unneeded
from ottla_pipeline.landing.tables.transforms import texts

_KEY = "ottla"
_LOOK_BACK = 1
"""Commits to search for our last one at first; then ten times as many."""


class DeltaTable(Table):
    """A Delta table at a path or URI; ``options`` are deltalake's for object stores."""

    format = "delta"

    def __init__(self, uri: str, options: dict[str, str] | None = None) -> None:
        self.name = uri
        self.place = Place(uri, "deltalake", dict(options)) if options else Place(uri)
        self.fs, self.root = self.place.open()
        if not options and "://" not in uri:
            self.place = Place(self.root)
        self._options = options
        self._table: Any = None

    def exists(self) -> bool:
        import deltalake

        return bool(deltalake.DeltaTable.is_deltatable(self.place.uri, self._options))

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        import deltalake

        if isinstance(self.fs, pafs.LocalFileSystem):
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

        if self._table is None:
            self._table = deltalake.DeltaTable(self.place.uri, storage_options=self._options)
        else:
            self._table.update_incremental()

    def schema(self) -> pa.Schema:
        found = pa.schema(self._open().schema().to_arrow())
        return pa.schema([one.with_type(normalised(one.type)).remove_metadata() for one in found])

    def layout(self) -> Layout:
        return Layout.plain(self.schema(), self._partition_by())

    def _partition_by(self) -> list[str]:
        return list(self._open().metadata().partition_columns)

    def data_files(self) -> list[DataFile]:
        actions = pa.table(self._open().get_add_actions(flatten=False))
        names = actions.column_names
        found = []
        for row in actions.select(
            [n for n in ("path", "size_bytes", "num_records", "partition") if n in names]
        ).to_pylist():
            partition = {
                name: None if value is None else texts(pa.array([value]))[0]
                for name, value in (row.get("partition") or {}).items()
            }
            found.append(
                DataFile(unquote(row["path"]), row["size_bytes"], row["num_records"] or 0, partition)
            )
        return found

    def batches(self, columns: Sequence[str], files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        layout = self.layout()
        for one in files:
            with self.fs.open_input_file(posixpath.join(self.root, one.path)) as source:
                yield from batches_of(source, layout, columns, one.partition)

    def state(self, topics: Sequence[str] = ()) -> State:
        """From our last commit; if the log no longer has it, from the application transactions."""
        table = self._open()
        limit = _LOOK_BACK
        while True:
            history = table.history(limit)
            for info in history:
                if _KEY in info:
                    return State.from_json(json.dumps(info[_KEY]))
            if len(history) < limit:
                return self._from_transactions(topics)
            limit *= 10

    def _from_transactions(self, topics: Sequence[str]) -> State:
        landed: dict[TopicPartition, tuple[LandedRange, ...]] = {}
        for topic in topics:
            partition = 0
            while (offset := self._open().transaction_version(_app_id(topic, partition))) is not None:
                landed[TopicPartition(topic, partition)] = (LandedRange(offset, offset),)
                partition += 1
        return State(Ledger(landed))

    def _add_columns(self, new: pa.Schema) -> None:
        import deltalake

        self._open().alter.add_columns(list(deltalake.Schema.from_arrow(new).fields))

    def _write(self, commit: Commit, state: State) -> None:
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

        table = self._open()
        now = int(time.time() * 1000)
        actions: list[Any] = [
            AddAction(one.path, one.size, dict(one.partition), now, not commit.rewrite, one.stats)
            for one in commit.files
        ]
        actions += [
            RemoveAction(one.path, not commit.rewrite, now, one.size, dict(one.partition))
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
        try:
            table.create_write_transaction(
                actions, "append", table.schema(), self._partition_by(), commit_properties=properties
            )
        except CommitFailedError as error:
            raise Stale(str(error)) from error

    def clean(self, older_than: float) -> tuple[int, int]:
        """Files that no version has, and files of old versions beyond Delta's retention (a week)."""
        self.refresh()
        table = self._open()
        removed = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
        expired = set(table.vacuum(dry_run=True))
        kept = {path for each in removed if each not in expired for path in (each, unquote(each))}
        needed = {one.path for one in self.data_files()} | self.waiting() | kept
        found = unneeded(self.fs, self.root, needed, older_than)
        return self.delete([path for path, _ in found]), sum(size for _, size in found)

    def _open(self) -> Any:
        if self._table is None:
            self.refresh()
        return self._table


def _app_id(topic: str, partition: int) -> str:
    return f"ottla/{topic}/{partition}"
