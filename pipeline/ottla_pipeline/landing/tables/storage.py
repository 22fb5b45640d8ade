"""A table's place: a folder that all of Spark's machines see, or an object store that Arrow supports."""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pyarrow import fs as pafs

from ottla_pipeline.landing.errors import BadSetting

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose partition column is null, as in Hive, Spark and Arrow."""
_OURS = re.compile(r"(?:part|compact|replay|dead)-[0-9a-f]{32}\.parquet")
"""Names of files that a FileWriter made."""


@dataclass(frozen=True)
class Place:
    """A folder, and what opens it on any machine. Picklable: it travels to every task, with its options."""

    uri: str
    by: Literal["arrow", "deltalake", "pyiceberg"] = "arrow"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """deltalake's options of an object store, or pyiceberg's properties of a table's files."""

    def open(self) -> tuple[pafs.FileSystem, str]:
        """The file system, and the path on it. Raises BadSetting if Arrow doesn't support the place."""
        if self.by == "deltalake":
            from deltalake.fs import DeltaStorageHandler

            return pafs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options))), ""
        if "://" not in self.uri:
            return pafs.LocalFileSystem(), str(Path(self.uri).expanduser().absolute())
        try:
            if self.by == "pyiceberg" and not self.uri.startswith("file:"):
                return self._by_pyiceberg()
            filesystem, path = pafs.FileSystem.from_uri(self.uri)
        except (ValueError, OSError) as error:
            raise BadSetting(
                f"the table's place {self.uri!r} can't be used: {str(error).splitlines()[0]}"
            ) from error
        return filesystem, path.rstrip("/")

    def below(self, folder: str) -> Place:
        return replace(self, uri=f"{self.uri}/{folder}")

    def _by_pyiceberg(self) -> tuple[pafs.FileSystem, str]:
        """The catalogue's properties say where an object store is, and may have keys made for this table."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        io = PyArrowFileIO(dict(self.options))
        scheme, netloc, path = io.parse_location(self.uri, io.properties)
        return io.fs_by_scheme(scheme, netloc), path.rstrip("/")


def folder_of(partition: Iterable[tuple[str, str | None]]) -> str:
    """``day=2013-01-01/carrier=UA``, as Hive names folders; empty without partition columns."""
    return "/".join(
        f"{quote(name, safe='')}={quote(value, safe=' ') if value else NULL}" for name, value in partition
    )


def unneeded(
    filesystem: pafs.FileSystem, folder: str, needed: set[str], older_than: float
) -> list[tuple[str, int]]:
    """Paths and sizes of files that Ottla wrote below ``folder``, are old enough and not ``needed``.

    What other programs wrote is theirs to delete: they may keep files longer, or be about to commit them.
    """
    selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
    oldest = time.time() - older_than
    found = []
    for info in filesystem.get_file_info(selector):
        if info.type is not pafs.FileType.File or not _OURS.fullmatch(posixpath.basename(info.path)):
            continue
        path = posixpath.relpath(info.path, folder)
        if path not in needed and (info.mtime_ns or 0) / 1e9 <= oldest:
            found.append((path, info.size))
    return found


def create_file(place: Path | str, text: str) -> bool:
    """Create a local file with this text, completely or not at all; False if it exists."""
    path = Path(place)
    part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    with part.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink()
    return True
