"""The interface of every table format, and the one way into a table: :meth:`Table.commit`.

A commit is one step: files, and with them, in the table's own metadata, the :class:`State` after it. It builds on the
version that was read last. If another writer has committed since, it is :class:`Stale`: it reads the new version and
decides again. Another job's compaction is no obstacle; another job that landed the same offsets is a Collision. So no
offset gets in twice, and none is left out.
"""

from __future__ import annotations

import json
import posixpath
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs as pafs

from ottla_client import TopicPartition
from ottla_pipeline.landing.constraints import Constraints
from ottla_pipeline.landing.errors import Collision, DataGone, LandingError, TableChanged, Undecided
from ottla_pipeline.landing.ledger import LandedRanges, Ledger, OffsetsByTopic, by_topic
from ottla_pipeline.landing.schema import widened
from ottla_pipeline.landing.tables.layout import Layout
from ottla_pipeline.landing.tables.storage import Place

DEAD = "_dead"
"""The folder below a table's root for undelivered dead letters. Readers skip it for its leading underscore."""
VERSIONS = 7 * 86_400.0
"""Seconds for which old versions of a table are kept, if its format has versions."""
ATTEMPTS = 20
"""Commits that may lose to other writers before the job gives up."""
OLD_PARTITION = "_partition"
"""The column of partitions in tables of earlier versions. Iceberg reserves the name: Spark can't ``SELECT *``."""
RUNS = 20
"""Runs of jobs whose newest batch the state has."""


Rows = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""Some columns of rows, which are read when it is called."""


class Stale(Exception):
    """Another writer has committed since the version was read."""


class Busy(Stale):
    """The catalogue doesn't answer, or is locked: the commit may have been made."""


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a table, as the table's metadata has it."""

    path: str
    """Below the table's root, with forward slashes."""
    size: int
    rows: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    """Partition values as text, by the names of the layout's partition fields."""
    stats: str = "{}"
    """numRecords, minValues, maxValues and nullCount, as Delta Lake writes them."""
    deletes: str = ""
    """Identifies what other programs have deleted of its rows, without rewriting the file."""
    spec: int = 0
    """The partitioning that it was written by, where a table has several."""
    version: int = 0
    """The table's when this was read, if its format lets deletes apply to rewritten files that are of an older one."""

    def to_json(self) -> dict[str, Any]:
        names = ("path", "size", "rows", "stats")
        return {**{name: getattr(self, name) for name in names}, "partition": dict(self.partition)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DataFile:
        return cls(data["path"], data["size"], data["rows"], data["partition"], data["stats"])


@dataclass(frozen=True)
class State:
    """The table's metadata about the jobs that filled it."""

    ledger: Ledger = field(default_factory=Ledger)
    batch_id: int = -1
    run_id: str = ""
    """Of the last commit that landed something: the run of the job, and the number of its batch."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """The state that a job needs after a crash: its undelivered dead letters, and which ones it has replayed."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """The newest batch of each of the last runs, oldest run first. A run finds its commits there, though the answer was
    lost and others have committed since."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": 1,
                # Spark's query before jobs planned their own batches; older versions require it.
                "query": self.run_id,
                "batch": self.batch_id,
                "run": self.run_id,
                "runs": dict(self.runs),
                "ledger": self.ledger.to_json(),
                "notes": dict(self.notes),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> State:
        """Raises LandingError if it is none, or of a later version."""
        try:
            data = json.loads(text)
            version = data["version"]
            ledger, notes = data["ledger"], data["notes"]
            batch, run = int(data["batch"]), str(data["run"])
            # Versions before this one kept the last commit alone.
            runs = {str(one): int(number) for one, number in data.get("runs", {}).items()} or (
                {run: batch} if run else {}
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LandingError(
                f"the table's own record of what was landed can't be read: {error!r}"
            ) from error
        if version != 1:
            raise LandingError(
                f"the table was filled by a later version of Ottla (its state is version {version})"
            )
        return cls(Ledger.from_json(ledger), batch, run, notes, runs)


@dataclass(frozen=True)
class Commit:
    """Changes of a table that are made in one step, or not at all."""

    files: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    """Files to remove; their rows are in ``files``, or are to go as well."""
    layout: str | None = None
    """The version of the layout that ``files`` were written by."""
    landed: LandedRanges = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    batch_id: int = -1
    run_id: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    gaps: bool = False
    """Whether offsets may be left out."""
    seen: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the table ended when the job last looked; if it doesn't now, another job has landed there."""
    expects: Mapping[str, Any] = field(default_factory=dict)
    """Notes as they were when this commit was prepared; if another job has changed them, it is a Collision."""
    unless: tuple[str, Any] | None = None
    """A note, and the value that means that this was done already."""
    rewrite: bool = False
    """The same rows in other files: readers of the table's changes can skip it."""


@dataclass(frozen=True)
class Removal:
    """Commits by which other programs removed rows, or rewrote them."""

    commits: Sequence[str]
    """Of each the operation, and the version that it made."""
    rows: tuple[Rows, Rows] | None = None
    """Those of the files concerned, before and after; None if the table doesn't know of these commits any more."""


@dataclass(frozen=True)
class Names:
    """The columns that say where a row comes from."""

    topic: str = "_topic"
    partition: str = "_topic_partition"
    offset: str = "_offset"
    timestamp: str = "_timestamp"
    key: str | None = None
    """The record's key is kept if this has a name."""

    def of_table(self, table: Table) -> Names:
        """The names in a table that exists.

        Another program may have renamed the columns, and the table may have the default of earlier versions
        (:data:`OLD_PARTITION`).
        """
        has = table.schema().names
        now: dict[str, str] = {}
        for one in fields(self):
            name = getattr(self, one.name)
            if name is None or name in has:
                continue
            before = [name, OLD_PARTITION] if name == Names.partition else [name]
            known = [each if each in has else table.called_now(each) for each in before]
            if found := [each for each in known if each is not None]:
                now[one.name] = found[0]
        return replace(self, **now)

    def fields(self) -> list[pa.Field]:
        kinds = [
            (self.topic, pa.string()),
            (self.partition, pa.int32()),
            (self.offset, pa.int64()),
            (self.timestamp, pa.timestamp("us", "UTC")),
        ]
        if self.key is not None:
            kinds.append((self.key, pa.binary()))
        return [pa.field(name, kind) for name, kind in kinds]


class Table(ABC):
    """A table on storage. One object is used by one thread; many may work on one table."""

    format: ClassVar[str]
    to_widen: ClassVar[str] = ""
    """What its users can do to let it widen types, if it can't as it is."""

    name: str
    """The user's name for it."""
    fs: pafs.FileSystem
    root: str
    """The table's folder on ``fs``."""
    place: Place
    """The same for a task on another machine."""

    @property
    def staging(self) -> Place:
        """The folder below which tasks write files, at their paths."""
        return self.place

    @property
    def dead(self) -> Place:
        """The folder where tasks write dead letters, for the driver to deliver."""
        return self.place.below(DEAD)

    @abstractmethod
    def exists(self) -> bool:
        """Whether the table exists."""

    @abstractmethod
    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Create it, empty, unless another job just has."""

    @abstractmethod
    def refresh(self) -> None:
        """Read its newest version."""

    def check(self) -> None:  # noqa: B027
        """Raises LandingError, naming the reason, if the table is of a kind that can't be read and written safely."""

    def check_rows(self) -> None:
        """Raises SchemaRefused if what the table demands of its rows can't be checked outside Spark."""
        layout = self.layout()
        Constraints(self.name, layout.schema, layout.checks)

    def removals(self) -> Iterator[Removal]:
        """What other programs have removed of its rows, newest first, as far as its metadata says."""
        return iter(())

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Its columns, at the version read last, in types that have a name in DDL."""

    @abstractmethod
    def layout(self) -> Layout:
        """Its columns as files hold them, at the version read last."""

    def called_now(self, name: str) -> str | None:
        """What a column is called that had this name before, as far as the table's metadata says."""
        layout = self.layout()
        at = layout.stored.get_field_index(name)
        return layout.schema.names[at] if at >= 0 else None

    @abstractmethod
    def data_files(self) -> list[DataFile]:
        """Its files, at the version read last."""

    @abstractmethod
    def batches(self, columns: Sequence[str], files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        """Rows of some of its files, without those that other programs have deleted; columns of the layout's schema."""

    @abstractmethod
    def state(self, topics: Sequence[str] = ()) -> State:
        """The state in its metadata. ``topics`` are looked up if the metadata doesn't list them."""

    def widens(self, has: pa.DataType, wanted: pa.DataType) -> bool:
        """Whether a column's type can become this wider one, in the table's metadata alone."""
        return False

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add those columns, and fields of columns, that it lacks, and widen others, in a commit of their own.

        New ones are null in existing rows. Raises Undecided if other writers were faster every time.
        """
        lost = Stale()
        for _ in range(ATTEMPTS):
            self.refresh()
            has = {one.name: one.type for one in self.schema()}
            new = [
                one
                for one in fields
                if one.name not in has or widened(has[one.name], one.type, self.widens) != has[one.name]
            ]
            if not new:
                return
            try:
                self._add_columns(pa.schema(new))
            except Stale as error:
                lost = error
                continue
        raise self._undecided(lost)

    def rename(self, old: str, new: str) -> None:
        """Rename a column, in the table's metadata alone. Raises LandingError if the format can't."""
        raise LandingError(
            f"{self.name}: a column of a {self.format} table can't be renamed without rewriting all files"
        )

    @abstractmethod
    def _add_columns(self, new: pa.Schema) -> None:
        """Raises Stale if another writer has committed meanwhile."""

    @abstractmethod
    def _write(self, commit: Commit, state: State) -> None:
        """Write the version after the one read last. Raises Stale if another writer has done so already."""

    @abstractmethod
    def clean(self, older_than: float) -> tuple[int, int]:
        """Delete files older than ``older_than`` seconds that no version needs; returns their number and bytes.

        Files of older versions stay for :data:`VERSIONS` seconds, for readers that still use them.
        """

    def commit(self, commit: Commit) -> State:
        """Make a commit, or find that it was made already; returns the state after it.

        The first attempt builds on the version read last. If another writer has committed since, or that version seems
        to forbid the commit, the next attempt reads the newest version. So Collision and DataGone are raised from the
        second attempt on.

        Raises Collision if another job has landed the same, DataGone if offsets would be left out, Undecided if the
        commit may have been made and its answer lost, or if other writers were faster every time.
        """
        written = False
        lost = Stale()
        for attempt in range(ATTEMPTS):
            if attempt:
                self.refresh()
            old = self.state(sorted({at.topic for at in commit.landed}))
            if written and (_was_made(old, commit) or self._has(commit.files)):
                return old
            try:
                state = self._after(old, commit)
            except (Collision, DataGone) as error:
                if written and not commit.files and _may_be_made(old, commit):
                    raise Undecided(str(error)) from error
                if attempt:
                    raise
                continue  # This version may be old: the newest one decides.
            if state is None:
                return old
            self._check_unchanged(commit)
            written = True
            try:
                self._write(commit, state)
            except Stale as error:
                lost = error
                time.sleep(min(0.02 * 2**attempt, 1.0))
                continue
            self.refresh()
            return state
        raise self._undecided(lost)

    def _undecided(self, lost: Stale) -> Undecided:
        why = (
            str(lost)
            if isinstance(lost, Busy)
            else f"{ATTEMPTS} commits in a row lost to another writer's; stop one of them"
        )
        return Undecided(f"{self.name}: {why}")

    def check_seen(self, seen: Mapping[TopicPartition, int], state: State | None = None) -> None:
        """Raises TableChanged if the table ends before ``seen`` now, because another program has rolled it back."""
        ledger = (state or self.state(sorted({at.topic for at in seen}))).ledger
        for at, end in seen.items():
            now = ledger.next(at) or 0
            if now < end:
                raise TableChanged(
                    f"{self.name} was rolled back: it had {at} up to offset {end}, and has it up to {now} now"
                )

    def _check_unchanged(self, commit: Commit) -> None:
        """Raises LandingError if what the commit was made from isn't in the table any more, so that nothing returns."""
        if commit.layout is not None and self.layout().version != commit.layout:
            raise TableChanged(
                f"{self.name}: another program has changed its columns or partitioning meanwhile; run it again"
            )
        now = self._deletes(commit) if commit.removed else {}
        for one in commit.removed:
            if now.get(one.path) != one.deletes:
                raise LandingError(
                    f"{self.name}: {one.path} is not in the table any more, or has fewer rows now: another program has "
                    "changed it; run it again"
                )

    def _deletes(self, commit: Commit) -> dict[str, str]:
        """What has been deleted of each file that new files of this commit would bring back."""
        return {one.path: one.deletes for one in self.data_files()}

    def _has(self, files: Sequence[DataFile]) -> bool:
        """Whether the newest version has these files, so that a commit that seemed to lose was made before others."""
        return bool(files) and {one.path for one in files} <= {one.path for one in self.data_files()}

    def _after(self, old: State, commit: Commit) -> State | None:
        """The state after a commit on ``old``; None if its note says that it was made. Raises as :meth:`commit`."""
        for key, value in commit.expects.items():
            if old.notes.get(key) != value:
                raise Collision(f"{self.name}: another job has done the same meanwhile; run it again")
        if commit.unless is not None and old.notes.get(commit.unless[0]) == commit.unless[1]:
            return None
        notes = {**old.notes, **commit.notes}
        if not commit.landed:
            return replace(old, notes=notes)
        self.check_seen({at: end for at, end in commit.seen.items() if at in commit.landed}, old)
        for at, ranges in commit.landed.items():
            now = old.ledger.next(at)
            if at in commit.seen and now != commit.seen[at]:
                raise Collision(
                    f"{self.name} has {at} up to offset {now} now, and this job did not land that (it has offsets "
                    f"{ranges[0].start} to {ranges[-1].end} to add): another job lands in it; stop one of the two, and "
                    "start the other again"
                )
        ledger = old.ledger.extended(self.name, commit.landed, commit.topic_ids, gaps=commit.gaps)
        runs = {run: batch for run, batch in old.runs.items() if run != commit.run_id}
        if commit.run_id:
            runs[commit.run_id] = commit.batch_id
        return State(ledger, commit.batch_id, commit.run_id, notes, dict([*runs.items()][-RUNS:]))

    def offsets(self, topics: Sequence[str] = ()) -> OffsetsByTopic:
        return by_topic(self.state(topics).ledger.offsets())

    def files(self) -> list[str]:
        return [posixpath.join(self.root, one.path) for one in self.data_files()]

    def scan(
        self, columns: Sequence[str] | None = None, files: Sequence[DataFile] | None = None
    ) -> pa.RecordBatchReader:
        """Its rows, or those of some of its files, at the version read last."""
        has = self.layout().schema
        schema = has if columns is None else pa.schema([has.field(name) for name in columns])
        chosen = self.data_files() if files is None else files
        return pa.RecordBatchReader.from_batches(schema, self.batches(schema.names, chosen))

    def dataset(self) -> ds.Dataset:
        """Its rows as an Arrow dataset, all in memory."""
        return ds.dataset(self.scan().read_all())

    def waiting(self) -> set[str]:
        """Files of dead letters that may be undelivered: paths below the root."""
        notes = self.state().notes
        found = [one["path"] for one in (notes.get("dead") or {}).get("files", ())]
        found += [one["path"] for one in (notes.get("replayed") or {}).get("kept", ())]
        return {f"{DEAD}/{path}" for path in found}

    def discard(self, files: Iterable[DataFile]) -> int:
        """Delete files that won't be committed; returns how many."""
        filesystem, root = self.staging.open()
        return self._deleted(filesystem, [posixpath.join(root, one.path) for one in files])

    def delete(self, paths: Sequence[str], below: str | None = None) -> int:
        """Delete files below the root, or another folder; returns how many existed."""
        return self._deleted(self.fs, [posixpath.join(below or self.root, path) for path in paths])

    @staticmethod
    def _deleted(filesystem: pafs.FileSystem, paths: Iterable[str]) -> int:
        gone = 0
        for path in paths:
            try:
                filesystem.delete_file(path)
            except FileNotFoundError:
                continue
            gone += 1
        return gone


def _was_made(state: State, commit: Commit) -> bool:
    """Whether a commit that seemed to lose was made after all, and only its answer was lost."""
    if not commit.run_id or not commit.landed:
        return False
    newest = state.runs.get(commit.run_id)
    return newest is not None and newest >= commit.batch_id and _may_be_made(state, commit)


def _may_be_made(state: State, commit: Commit) -> bool:
    """Whether the table has the commit's offsets, be it by this commit or by another one."""
    return all((state.ledger.next(at) or 0) >= ranges[-1].end for at, ranges in commit.landed.items())
