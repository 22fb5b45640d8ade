"""A Delta table's log as files: what deltalake doesn't tell, and commits of what it can't write."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.tables.deletion_vectors import BadVector, Descriptor, Rows
from ottla_pipeline.landing.tables.storage import create_file

LOG = "_delta_log"
Action = dict[str, Any]
"""One action of a commit: ``{"add": {…}}``."""


class DeltaLog:
    """The folder ``_delta_log`` of one table. Belongs to the thread of its :class:`.DeltaTable`."""

    def __init__(self, name: str, filesystem: pafs.FileSystem, root: str) -> None:
        self._name = name
        self._fs = filesystem
        self._root = root

    def actions(self, version: int) -> list[Action] | None:
        """A commit's actions; None if the log doesn't have it, or has it no longer. Raises LandingError."""
        text = self._read(f"{version:020d}.json")
        return None if text is None else self._parsed(text, f"commit {version}")

    def info(self, version: int) -> dict[str, Any] | None:
        """A commit's information about itself, empty if it has none; None if the log no longer has the commit."""
        text = self._read(f"{version:020d}.json")
        if text is None:
            return None
        lines = b"\n".join(line for line in text.splitlines() if line.startswith(b'{"commitInfo"'))
        for action in self._parsed(lines or text, f"commit {version}"):
            if isinstance(info := action.get("commitInfo"), dict):
                return info
        return {}

    def put(self, version: int, actions: list[Action]) -> bool:
        """Write a commit, completely or not at all; False if there is one of this number. For local tables alone."""
        text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in actions)
        return create_file(posixpath.join(self._root, LOG, f"{version:020d}.json"), text)

    def deletion_vectors(self, version: int) -> dict[str, Descriptor]:
        """The deletion vectors of the table's files at a version, by the files' paths as the log has them."""
        found: dict[str, Descriptor] = {}
        start, checkpoint = self._checkpoint(version)
        if checkpoint is not None:
            found.update(self._in_checkpoint(checkpoint))
        for number in range(start, version + 1):
            actions = self.actions(number)
            if actions is None:
                raise LandingError(f"{self._name}: commit {number} is not in {LOG}/")
            for one in actions:
                if "remove" in one:
                    _forget(found, one["remove"])
            for one in actions:
                if "add" in one and one["add"].get("deletionVector"):
                    found[one["add"]["path"]] = Descriptor.from_json(one["add"]["deletionVector"])
                elif "add" in one:
                    found.pop(one["add"]["path"], None)
        return found

    def deleted(self, vector: Descriptor, of: int) -> Rows:
        """The rows that a vector deletes of a file with so many, read from its own file if it has one.

        Raises LandingError.
        """
        path = None
        try:
            path = vector.path
            if path is None:
                return vector.rows(of)
            with self._fs.open_input_file(posixpath.join(self._root, local(path))) as file:
                file.seek(vector.offset or 0)
                return vector.rows(of, file.read(vector.bytes_in_file))
        except (BadVector, OSError) as error:
            raise LandingError(
                f"{self._name}: the deletion vector {path or 'in its log'} can't be read: {error}"
            ) from error

    def versions(self) -> list[int]:
        """Of the commits that it has, oldest first."""
        parts = [one.split(".") for one in self._names()]
        return sorted(int(one[0]) for one in parts if one[0].isdigit() and one[1:] == ["json"])

    def _names(self) -> list[str]:
        folder = pafs.FileSelector(posixpath.join(self._root, LOG), allow_not_found=True)
        return [posixpath.basename(one.path) for one in self._fs.get_file_info(folder)]

    def _checkpoint(self, version: int) -> tuple[int, str | None]:
        """The commit after the newest checkpoint up to a version, and the name that its files begin with."""
        known: dict[int, list[str]] = {}
        for name in self._names():
            number, _, kind = name.partition(".")
            if kind.startswith("checkpoint.") and number.isdigit() and int(number) <= version:
                known.setdefault(int(number), []).append(name)
        for newest in sorted(known, reverse=True):
            for name in sorted(known[newest]):
                parts = name.split(".")
                if len(parts) != 5 or sum(one.startswith(f"{newest:020d}.") for one in known[newest]) >= int(
                    parts[3]
                ):
                    return newest + 1, name
        return 0, None

    def _in_checkpoint(self, name: str) -> dict[str, Descriptor]:
        parts = name.split(".")
        if len(parts) == 5:
            files = [".".join([*parts[:2], f"{i:010d}", *parts[3:]]) for i in range(1, int(parts[3]) + 1)]
        else:
            files = [name]
        found: dict[str, Descriptor] = {}
        for one in files:
            if one.endswith(".json"):
                actions = self._parsed(self._read(one) or b"", one)
                sidecars = [action["sidecar"]["path"] for action in actions if "sidecar" in action]
                found |= _vectors(action["add"] for action in actions if "add" in action)
            else:
                adds, sidecars = self._in_parquet(one)
                found |= _vectors(adds)
            for path in sidecars:
                adds, _ = self._in_parquet(posixpath.join("_sidecars", path))
                found |= _vectors(adds)
        return found

    def _in_parquet(self, name: str) -> tuple[list[Action], list[str]]:
        """The files with deletion vectors in a checkpoint's file, and its sidecars."""
        with self._fs.open_input_file(posixpath.join(self._root, LOG, name)) as source:
            file = pq.ParquetFile(source)
            names = file.schema_arrow.names
            wanted = [one for one in ("add", "sidecar") if one in names]
            adds: list[Action] = []
            sidecars: list[str] = []
            for batch in file.iter_batches(columns=wanted):
                if "add" in wanted:
                    adds += _with_vectors(batch.column("add"))
                if "sidecar" in wanted:
                    sidecars += pc.struct_field(batch.column("sidecar"), "path").drop_null().to_pylist()
        return adds, sidecars

    def _read(self, name: str) -> bytes | None:
        try:
            with self._fs.open_input_stream(posixpath.join(self._root, LOG, name)) as file:
                found: bytes = file.read()
                return found
        except FileNotFoundError:
            return None

    def _parsed(self, text: bytes, what: str) -> list[Action]:
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise LandingError(f"{self._name}: {what} in {LOG}/ can't be read: {error}") from error


def local(path: str) -> str:
    """A path of the log as a file system has it: ``file:/lake/x`` is ``/lake/x``."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path


def _with_vectors(adds: pa.Array) -> list[Action]:
    names = [one.name for one in adds.type]
    if "deletionVector" not in names:
        return []
    vectors = pc.struct_field(adds, "deletionVector")
    some = pc.and_(pc.is_valid(adds), pc.is_valid(pc.struct_field(vectors, "storageType")))
    paths = pc.struct_field(adds, "path").filter(some).to_pylist()
    return [
        {"path": path, "deletionVector": vector}
        for path, vector in zip(paths, vectors.filter(some).to_pylist(), strict=True)
    ]


def _vectors(adds: Any) -> Iterator[tuple[str, Descriptor]]:
    for one in adds:
        if one.get("deletionVector"):
            yield one["path"], Descriptor.from_json(one["deletionVector"])


def _forget(found: dict[str, Descriptor], removed: Action) -> None:
    vector = removed.get("deletionVector")
    has = found.get(removed["path"])
    if has is not None and vector is not None and Descriptor.from_json(vector) == has:
        del found[removed["path"]]
