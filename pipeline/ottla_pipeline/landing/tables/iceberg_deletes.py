"""Iceberg's equality deletes, which pyiceberg refuses: files of keys, as Flink's and Java's writers leave them.

A row is gone if a later commit deleted its key: if the data sequence number of the delete is above that of the row's
data file. Most deletes are for the rows of one partition; those of an unpartitioned spec are for the whole table. The
format: Iceberg's specification, "Equality Delete Files" and "Scan Planning".

In memory are the keys that are deleted in the whole table, those of one partition at a time, and up to as many keys of
a data file.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ottla_pipeline.landing.errors import LandingError

Scope = tuple[int, tuple[str, ...]]
"""A spec, and the values of one of its partitions."""
EVERYWHERE: Scope = (-1, ())
_SEQUENCE = "sequence"
_AT_ONCE = 1 << 20
"""Keys that are looked up at once, at least: each time, Arrow makes a hash table of all deleted keys."""


@dataclass
class _Deletes:
    """The equality deletes of a scope, oldest first."""

    found: list[tuple[int, str, Any]] = field(default_factory=list)
    """Sequence number, path and pyiceberg's DataFile of each."""
    sums: list[int] = field(default_factory=lambda: [0])
    """Of the digests of all before each, so that any range has one."""

    def finish(self) -> None:
        self.found.sort(key=lambda one: one[:2])
        for _, path, _ in self.found:
            digest = hashlib.sha256(path.encode()).digest()[:16]
            self.sums.append(self.sums[-1] + int.from_bytes(digest))

    def between(self, after: int, until: int | None = None) -> range:
        """Those with a higher sequence number than ``after``, and none above ``until``."""
        first, last = (bisect_right(self.found, at, key=lambda one: one[0]) for at in (after, until or after))
        return range(first, len(self.found) if until is None else last)

    def digest(self, of: range) -> str:
        return f"{(self.sums[of.stop] - self.sums[of.start]) % (1 << 128):032x}"


class Plan:
    """The data files of a table at one version, and which deletes apply to each."""

    def __init__(self, table: Any, snapshot: Any = None) -> None:
        """``snapshot``: another one than the current one."""
        from pyiceberg.manifest import DataFileContent
        from pyiceberg.table import ManifestGroupPlanner

        self._metadata, self._io = table.metadata, table.io
        self._sequences: dict[str, int] = {}
        self._deletes: dict[Scope, _Deletes] = {}
        self._origins: dict[str, int] = {}
        """The snapshots that added the files of deletes, by their paths."""

        def by_pyiceberg(entry: Any) -> bool:
            file, sequence = entry.data_file, entry.sequence_number or 0
            if file.content != DataFileContent.DATA:
                self._origins[file.file_path] = entry.snapshot_id
            if file.content == DataFileContent.EQUALITY_DELETES:
                scope = self.scope(file) if self._is_partitioned(file.spec_id) else EVERYWHERE
                self._deletes.setdefault(scope, _Deletes()).found.append((sequence, file.file_path, file))
                return False
            if file.content == DataFileContent.DATA:
                self._sequences[file.file_path] = sequence
            return True

        snapshot = snapshot or table.current_snapshot()
        self.version = int(snapshot.sequence_number or 0) if snapshot is not None else 0
        """The version's sequence number."""
        planner = ManifestGroupPlanner(table.metadata, table.io)
        manifests = snapshot.manifests(table.io) if snapshot is not None else []
        self.tasks: list[Any] = list(planner.plan_files(manifests, by_pyiceberg))
        """pyiceberg's: data files with their position deletes."""
        for one in self._deletes.values():
            one.finish()

    @staticmethod
    def scope(file: Any) -> Scope:
        return file.spec_id, tuple(map(repr, file.partition))

    def _is_partitioned(self, spec_id: int) -> bool:
        """A field that was removed from a spec of format version 1 is void in the later ones."""
        return any(str(one.transform) != "void" for one in self._metadata.specs()[spec_id].fields)

    def marks(self, task: Any, until: int | None = None) -> list[str]:
        """Identify the equality deletes that apply to a data file, up to a sequence number."""
        found = []
        for scope in (EVERYWHERE, self.scope(task.file)):
            deletes = self._deletes.get(scope, _Deletes())
            if of := deletes.between(self._sequences[task.file.file_path], until):
                found.append(f"equality@{deletes.digest(of)}")
        return found

    def check_formats(self, name: str) -> None:
        """Raises LandingError, which names the table, for the first file in Avro, which pyiceberg can't read."""
        deletes = [file for one in self._deletes.values() for _, _, file in one.found]
        for file in (*deletes, *(file for one in self.tasks for file in (one.file, *one.delete_files))):
            if file.file_format == "AVRO":
                raise LandingError(
                    f"{name}: {file.file_path} can't be read, as it is in Avro: let Spark "
                    "rewrite the table's files as Parquet (rewrite_data_files with 'rewrite-all')"
                )

    def deletes_of(self, tasks: Sequence[Any]) -> list[str]:
        """The paths of the deletes that apply to some of these files."""
        paths = [one.file_path for task in tasks for one in task.delete_files]
        oldest: dict[Scope, int] = {}
        for task in tasks:
            sequence = self._sequences[task.file.file_path]
            for scope in (EVERYWHERE, self.scope(task.file)):
                oldest[scope] = min(oldest.get(scope, sequence), sequence)
        for scope, sequence in oldest.items():
            deletes = self._deletes.get(scope, _Deletes())
            paths += [path for _, path, _ in deletes.found[deletes.between(sequence).start :]]
        return paths

    def deleted_by(self, tasks: Sequence[Any]) -> list[int]:
        """The snapshots that added these deletes."""
        return list(dict.fromkeys(self._origins[one] for one in self.deletes_of(tasks)))

    def remaining(
        self, name: str, tasks: Sequence[Any], positions: dict[str, Any]
    ) -> Iterator[tuple[Any, NDArray[np.bool_] | None]]:
        """Data files, and which of the rows that position deletes leave aren't gone; None if all remain.

        ``positions``: position deletes as pyiceberg has read them. Those of a partition come together. Raises
        LandingError, which names the table, if something can't be read.
        """
        if not self._deletes or not tasks:
            yield from ((one, None) for one in tasks)
            return
        by_scope: dict[Scope, list[Any]] = {}
        for one in tasks:
            by_scope.setdefault(self.scope(one.file), []).append(one)
        everywhere = self._keys(name, EVERYWHERE, tasks)
        for scope, some in by_scope.items():
            keys: list[_Keys] = []  # Not those of two partitions at once.
            keys = [*everywhere, *self._keys(name, scope, some)]
            for task in some:
                yield task, self._remaining(name, task, positions, keys)

    def _remaining(
        self, name: str, task: Any, positions: dict[str, Any], keys: Sequence[_Keys]
    ) -> NDArray[np.bool_] | None:
        sequence = self._sequences[task.file.file_path]
        remain = None
        with readable(name, task.file.file_path):
            for one in keys:
                if one.newest > sequence:
                    kept = one.remaining(one.columns.read(task, positions, required=False), sequence)
                    remain = kept if remain is None else remain & kept
        return remain

    def _keys(self, name: str, scope: Scope, tasks: Sequence[Any]) -> list[_Keys]:
        """The keys that are deleted in a scope, as far as that may concern these files; by columns."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.table import FileScanTask

        deletes = self._deletes.get(scope, _Deletes())
        newer = deletes.between(min(self._sequences[one.file.file_path] for one in tasks))
        by_columns: dict[frozenset[int], list[tuple[int, str, Any]]] = {}
        for one in deletes.found[newer.start :]:
            by_columns.setdefault(frozenset(one[2].equality_ids or ()), []).append(one)

        def batches(columns: _Columns, of: list[tuple[int, str, Any]]) -> Iterator[pa.Table]:
            for sequence, path, file in of:
                task = FileScanTask(file, delete_files=set(), residual=AlwaysTrue())
                with readable(name, path):
                    for batch in columns.read(task, {}, required=True):
                        yield batch.append_column(_SEQUENCE, pa.repeat(sequence, len(batch)))

        found = []
        for ids, of in by_columns.items():
            with readable(name, of[0][1]):
                columns = _Columns(self._metadata, self._io, ids)
            keys = _unique(batches(columns, of))
            if len(keys):
                found.append(_Keys(columns, keys))
        return found


@contextmanager
def readable(name: str, path: str) -> Iterator[None]:
    """Raises LandingError for what pyiceberg raises if it can't read a file of the table."""
    from pyiceberg.exceptions import ResolveError

    try:
        yield
    except (ResolveError, NotImplementedError, ValueError) as error:
        raise LandingError(f"{name}: {path} can't be read: {str(error).splitlines()[0]}") from error


class _Columns:
    """The columns that some equality deletes compare, found by field id; they may have been dropped since."""

    def __init__(self, metadata: Any, io: Any, ids: frozenset[int]) -> None:
        """Raises ValueError if they can't be compared."""
        from pyiceberg.schema import prune_columns

        self._metadata, self._io = metadata, io
        schemas = [*metadata.schemas, metadata.schema()]
        whole = next((one for one in reversed(schemas) if ids <= one.field_ids), None)
        if whole is None or not ids:
            raise ValueError(f"it deletes rows by the fields {sorted(ids)}, which no schema of the table has")
        # Their types may have become wider after one of them was dropped.
        self._newest = {at: one.find_field(at) for one in schemas for at in ids & one.field_ids}
        self._fields = prune_columns(whole, set(ids)).fields

    def read(self, task: Any, positions: dict[str, Any], *, required: bool) -> Iterator[pa.Table]:
        """The columns of a file's rows, without those that position deletes remove, batch by batch.

        Columns that the file lacks are null, or raise ResolveError if they are ``required``.
        """
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.schema import Schema

        schema = Schema(*(self._as_read(one, str(at), required) for at, one in enumerate(self._fields)))
        scan = ArrowScan(self._metadata, self._io, schema, AlwaysTrue())
        for batch in scan._record_batches_from_scan_tasks_and_deletes([task], positions):
            arrays = [_comparable(leaf) for column in batch.columns for leaf in _leaves(column)]
            yield pa.table(arrays, [str(at) for at in range(len(arrays))])

    def _as_read(self, one: Any, name: str, required: bool) -> Any:
        """A field to read. A dropped column may have the name of a later one, so names are numbers."""
        from pyiceberg.types import NestedField, StructType

        one = self._newest.get(one.field_id, one)
        kind = one.field_type
        if kind.is_struct:
            kind = StructType(
                *(self._as_read(each, str(at), required) for at, each in enumerate(kind.fields))
            )
        elif not kind.is_primitive:
            raise ValueError(f"it deletes rows by {one.name}, a {kind}")
        given = None if required else one.initial_default
        return NestedField(one.field_id, name, kind, required=required, initial_default=given)


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """A column, or the fields of a struct; null where it is."""
    if not pa.types.is_struct(array.type):
        yield array
        return
    for at in range(array.type.num_fields):
        yield from _leaves(pc.struct_field(array, [at]))


def _comparable(array: pa.Array) -> pa.Array:
    """As a type of which Arrow compares values as Iceberg does, whatever its file has: NaN is NaN, -0.0 isn't 0.0."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_floating(kind):
        same = pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), kind), array)
        return same.view(pa.int64() if pa.types.is_float64(kind) else pa.int32())
    if pa.types.is_string(kind):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary(kind) else array


class _Keys:
    """Deleted keys, each with the newest sequence number of its deletes."""

    def __init__(self, columns: _Columns, table: pa.Table) -> None:
        self.columns = columns
        sequences = table.column(_SEQUENCE).to_numpy()
        self.newest = int(sequences.max())
        # Keys that aren't found are at -1.
        self._sequences = np.append(sequences, -1)
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        self._places(table.drop_columns([_SEQUENCE]), learn=True)

    def remaining(self, batches: Iterable[pa.Table], sequence: int) -> NDArray[np.bool_]:
        """Which rows of a data file with this sequence number remain."""
        found = [np.empty(0, np.bool_)]
        for some in _joined(batches, lambda: len(self._sequences)):
            at = self._places(some).fill_null(-1).to_numpy()
            found.append(self._sequences[at] <= sequence)
        return np.concatenate(found)

    def _places(self, keys: pa.Table, *, learn: bool = False) -> pa.ChunkedArray:
        """Where each of these keys is among the deleted ones; null if it isn't. Null equals null.

        Column by column: a place among the keys of the first columns and one among the values of the next make a pair,
        whose place among the pairs is the next place. With ``learn``, the keys are the deleted ones, each once, so that
        they get their own order.
        """
        places = None
        for at, column in enumerate(keys.columns):
            if learn:
                self._values.append(column.unique())
            found = pc.index_in(column, value_set=self._values[at]).cast(pa.int64())
            if places is None:
                places = found
                continue
            pairs = pc.add(pc.multiply(places, len(self._values[at])), found)
            if learn:
                self._pairs.append(pairs.unique())
            places = pc.index_in(pairs, value_set=self._pairs[at - 1]).cast(pa.int64())
        return places


def _unique(batches: Iterable[pa.Table]) -> pa.Table:
    """Each key once, with its newest sequence number."""
    found: list[pa.Table] = []
    for some in _joined(batches, lambda: sum(map(len, found))):
        names = [one for one in some.column_names if one != _SEQUENCE]
        grouped = pa.concat_tables([*found, some]).group_by(names).aggregate([(_SEQUENCE, "max")])
        found[:] = [grouped.rename_columns({f"{_SEQUENCE}_max": _SEQUENCE})]
    return found[0] if found else pa.table({_SEQUENCE: pa.array([], pa.int64())})


def _joined(batches: Iterable[pa.Table], rows: Callable[[], int]) -> Iterator[pa.Table]:
    """Batches, joined to at least :data:`_AT_ONCE` rows and as many as ``rows`` says at the time."""
    some: list[pa.Table] = []
    count = 0
    for one in batches:
        some.append(one)
        count += one.num_rows
        if count >= max(_AT_ONCE, rows()):
            yield pa.concat_tables(some)
            some, count = [], 0
    if some:
        yield pa.concat_tables(some)
