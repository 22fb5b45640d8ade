"""Plain Parquet files in folders, with a log of commits beside them in ``_ottla/``.

``_ottla/00000000000000000007.json`` is commit 7: files added and removed, the schema, the state after it. A commit
creates its file, which must not exist: of two writers only one succeeds. Every fiftieth commit lists all files of the
table (``checkpoint``), so that no reader needs all commits.

Tasks write to ``_staging/``, which Spark, Arrow and others skip. After the commit, files are moved to their place. So a
reader that only lists the folder sees no uncommitted row, though it may see a batch file by file. If a writer is killed
between commit and move, the next one that opens the table moves the files.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs

from ottla_pipeline.landing.errors import BadSetting, LandingError
from ottla_pipeline.landing.schema import from_ddl, to_ddl
from ottla_pipeline.landing.tables.base import Commit, DataFile, Stale, State, Table
from ottla_pipeline.landing.tables.layout import Layout
from ottla_pipeline.landing.tables.outside import one_line
from ottla_pipeline.landing.tables.reading import batches_of
from ottla_pipeline.landing.tables.storage import Place, create_file, unneeded

LOG = "_ottla"
STAGING = "_staging"
CHECKPOINT_EVERY = 50
_KEPT = 2 * CHECKPOINT_EVERY
"""Commits kept when it is cleaned: a reader may be in the middle of them."""


class ParquetTable(Table):
    """A folder of Parquet files with a log."""

    format = "parquet"

    def __init__(self, uri: str) -> None:
        self.name = uri
        self.fs, self.root = Place(uri).open()
        self.place = Place(self.root)
        if not isinstance(self.fs, pafs.LocalFileSystem):
            raise BadSetting(
                f"{uri}: a Parquet table needs a file system on which a file can be created only once; "
                "land in a Delta or Iceberg table there"
            )
        self._log = Path(self.root) / LOG
        self._version = -1
        self._files: dict[str, DataFile] = {}
        self._last: dict[str, Any] = {}

    @property
    def staging(self) -> Place:
        return self.place.below(STAGING)

    def exists(self) -> bool:
        """Whether it has a log. Raises LandingError if it has files but no log, so another program wrote them."""
        if self._newest() >= 0:
            return True
        root = Path(self.root)
        if root.is_dir() and any(not entry.name.startswith(("_", ".")) for entry in root.iterdir()):
            raise LandingError(
                f"{self.name} has files, but no Ottla log in {LOG}/: land in a folder of its own"
            )
        return False

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self._log.mkdir(parents=True, exist_ok=True)
        first = {
            "schema": to_ddl(schema),
            "partition_by": list(partition_by),
            "add": [],
            "remove": [],
            "state": json.loads(State().to_json()),
        }
        if create_file(self._path(0), json.dumps(first)):
            _sync(self._log)
        self.refresh()

    def refresh(self) -> None:
        """Read the commits since the last one read, and finish moves that a killed writer left."""
        newest = self._newest()
        if newest < 0:
            raise LandingError(f"{self.name} is no table: {LOG}/ has no log")
        start = self._version
        if start < newest - CHECKPOINT_EVERY:
            start = newest - newest % CHECKPOINT_EVERY - 1
        for version in range(start + 1, newest + 1):
            commit = self._read(version)
            if "checkpoint" in commit:
                self._files = {one["path"]: DataFile.from_json(one) for one in commit["checkpoint"]}
            else:
                for path in commit["remove"]:
                    self._files.pop(path, None)
                for one in commit["add"]:
                    self._files[one["path"]] = DataFile.from_json(one)
            self._last = commit
        self._version = newest
        # Only the last commit's moves can be missing: a writer finishes them before it commits again.
        self._move([one["path"] for one in self._last["add"]], self._last["remove"])

    def schema(self) -> pa.Schema:
        return from_ddl(self._opened()["schema"])

    def layout(self) -> Layout:
        return Layout.plain(self.schema(), self._opened()["partition_by"])

    def data_files(self) -> list[DataFile]:
        self._opened()
        return list(self._files.values())

    def batches(self, columns: Sequence[str], files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        layout = self.layout()
        for one in files:
            path = posixpath.join(self.root, one.path)
            with one_line(path), self.fs.open_input_file(path) as source:
                yield from batches_of(source, layout, columns, one.partition)

    def state(self, topics: Sequence[str] = ()) -> State:
        return State.from_json(json.dumps(self._opened()["state"]))

    def _add_columns(self, new: pa.Schema) -> None:
        columns = {one.name: one for one in [*self.schema(), *new]}
        self._append({"schema": to_ddl(pa.schema(list(columns.values()))), "add": [], "remove": []})

    def _write(self, commit: Commit, state: State) -> None:
        self._append(
            {
                "add": [one.to_json() for one in commit.files],
                "remove": [one.path for one in commit.removed],
                "state": json.loads(state.to_json()),
            }
        )

    def _append(self, change: dict[str, Any]) -> None:
        kept = {name: self._last[name] for name in ("schema", "partition_by", "state")}
        version = self._version + 1
        entry = {**kept, **change}
        if version % CHECKPOINT_EVERY == 0:
            files = {path: one for path, one in self._files.items() if path not in set(entry["remove"])}
            entry["checkpoint"] = [one.to_json() for one in files.values()] + entry["add"]
        for one in entry["add"]:
            _sync(Path(self.root) / STAGING / one["path"])
        if not create_file(self._path(version), json.dumps(entry)):
            raise Stale(f"commit {version} is another's")
        _sync(self._log)

    def _move(self, added: Sequence[str], removed: Sequence[str]) -> None:
        moved = set()
        for path in added:
            staged, final = Path(self.root) / STAGING / path, Path(self.root) / path
            if not staged.exists():
                continue
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.replace(staged, final)
            except FileNotFoundError:
                # Another process that opened the table was faster.
                continue
            moved.add(final.parent)
        for folder in moved:
            _sync(folder)
        # Readers that list the folder must not see rows twice, so compacted files are deleted at once.
        self.delete(removed)

    def clean(self, older_than: float) -> tuple[int, int]:
        """Files that killed tasks left in staging, files of no commit, and commits from before the last checkpoints."""
        self.refresh()
        staging = posixpath.join(self.root, STAGING)
        staged = unneeded(self.fs, staging, set(), older_than)
        count = self.delete([path for path, _ in staged], staging)
        others = [
            (path, size)
            for path, size in unneeded(self.fs, self.root, set(self._files) | self.waiting(), older_than)
            if not path.startswith((STAGING, LOG))
        ]
        count += self.delete([path for path, _ in others])
        needless = self._version - self._version % CHECKPOINT_EVERY - _KEPT
        for version in sorted(version for version in self._versions() if version < needless):
            self._path(version).unlink(missing_ok=True)
        return count, sum(size for _, size in staged + others)

    def _newest(self) -> int:
        """The number of the last commit; -1 for none."""
        return max(self._versions(), default=-1)

    def _versions(self) -> list[int]:
        """Numbers of the commits; early ones may have been deleted."""
        names = [entry.name for entry in self._log.glob("*.json")] if self._log.is_dir() else []
        return [int(name.removesuffix(".json")) for name in names if name[:1].isdigit()]

    def _path(self, version: int) -> Path:
        return self._log / f"{version:020d}.json"

    def _read(self, version: int) -> dict[str, Any]:
        try:
            found = json.loads(self._path(version).read_bytes())
        except (OSError, ValueError) as error:
            raise LandingError(f"{self.name}: commit {version} in {LOG}/ can't be read: {error}") from error
        if not isinstance(found, dict) or not found.keys() >= {
            "schema",
            "partition_by",
            "add",
            "remove",
            "state",
        }:
            raise LandingError(f"{self.name}: commit {version} in {LOG}/ is no commit")
        return found

    def _opened(self) -> dict[str, Any]:
        if not self._last:
            self.refresh()
        return self._last


def _sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # The previous attempt has moved it.
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
