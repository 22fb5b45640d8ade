"""A table's place: a folder that all of Spark's machines see, or an object store that Arrow supports."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyarrow import fs as pafs

from ottla_pipeline.landing.errors import BadSetting

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose partition column is null, as in Hive, Spark and Arrow."""


def place(uri: str, options: Mapping[str, str] | None = None) -> tuple[pafs.FileSystem, str]:
    """The file system and the path on it. With ``options`` of an object store, deltalake provides it.

    Raises BadSetting if Arrow doesn't support the place.
    """
    if options:
        from deltalake.fs import DeltaStorageHandler

        return pafs.PyFileSystem(DeltaStorageHandler(uri, dict(options))), ""
    if "://" not in uri:
        return pafs.LocalFileSystem(), str(Path(uri).expanduser().absolute())
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
    except (ValueError, OSError) as error:
        raise BadSetting(f"the table's place {uri!r} can't be used: {str(error).splitlines()[0]}") from error
    return filesystem, path.rstrip("/")


def folder_of(partition: Iterable[tuple[str, str | None]]) -> str:
    """``day=2013-01-01/carrier=UA``, as Hive names folders; empty without partition columns."""
    return "/".join(
        f"{quote(name, safe='')}={NULL if value is None else quote(value, safe=' ')}"
        for name, value in partition
    )


def partition_text(value: Any) -> str | None:
    """A partition column's value as text; None for null."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def unneeded(
    filesystem: pafs.FileSystem, folder: str, needed: set[str], older_than: float
) -> list[tuple[str, int]]:
    """Paths and sizes of Parquet files below ``folder`` that are old enough and not ``needed``."""
    selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
    oldest = time.time() - older_than
    found = []
    for info in filesystem.get_file_info(selector):
        if info.type is not pafs.FileType.File or not info.path.endswith(".parquet"):
            continue
        path = posixpath.relpath(info.path, folder)
        if path not in needed and not path.startswith("_delta_log/") and (info.mtime_ns or 0) / 1e9 <= oldest:
            found.append((path, info.size))
    return found
