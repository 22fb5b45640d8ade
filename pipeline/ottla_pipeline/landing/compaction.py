"""Joins a table's small files, and deletes orphans. A job may land in the table meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ottla_pipeline.landing.errors import BadSetting, LandingError, Undecided
from ottla_pipeline.landing.files import COMPRESSIONS, FileSettings, FileWriter
from ottla_pipeline.landing.tables import Commit, DataFile, Names, Table, open_table
from ottla_pipeline.landing.tables.layout import Layout
from ottla_pipeline.landing.tables.outside import one_line

SMALL = 0.75
"""Files smaller than this share of the wanted size are joined."""
AT_ONCE = 8
"""About how many files of the wanted size make one commit: the work that a crash can cost."""
DAY = 86_400.0


@dataclass(frozen=True)
class Compacted:
    before: int
    after: int
    """Files of the table, before and after."""
    rewritten: int = 0
    rows: int = 0
    """Files written, and the rows in them."""
    orphans: int = 0
    orphan_bytes: int = 0
    """Files that no version of the table needs, deleted."""


def compact(
    table: str,
    format: str = "delta",
    *,
    target_file_size: int = 128 << 20,
    compression: str = "zstd",
    older_than: float = DAY,
    catalog: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
    names: Names | None = None,
) -> Compacted:
    """Join a table's small files, and delete orphans older than ``older_than`` seconds.

    An orphan is a file that a task wrote and no job committed, because it was killed or ended late. A running job has
    such files for the length of a batch, so ``older_than`` has to be longer than any batch. Raises LandingError if the
    table doesn't exist, or another program rewrites it.
    """
    if compression not in COMPRESSIONS:
        raise BadSetting(f"compression is {compression!r}: it can be {', '.join(COMPRESSIONS)}")
    if target_file_size < 1 or older_than < 0:
        raise BadSetting("target_file_size must be above 0, and older_than not below")
    with one_line(table):
        found = open_table(format, table, catalog=catalog, storage=storage)
        return _compact(found, names or Names(), compression, target_file_size, older_than)


def _compact(
    found: Table, names: Names, compression: str, target_file_size: int, older_than: float
) -> Compacted:
    if not found.exists():
        raise LandingError(f"the {found.format} table {found.name} doesn't exist")
    found.refresh()
    found.check()
    settings = FileSettings.of(found, names, compression, target_file_size)
    before = len(found.data_files())
    rewritten = rows = 0
    for planned in _groups(found.data_files(), target_file_size):
        # While earlier groups were joined, other programs may have removed files, or deleted rows.
        now = {one.path: one for one in found.data_files()}
        group = [now[one.path] for one in planned if one.path in now]
        if len(group) < 2:
            continue
        layout = found.layout()
        files = _rewrite(found, group, layout, settings)
        try:
            found.commit(Commit(files=files, removed=group, layout=layout.version, rewrite=True))
        except Undecided:
            raise
        except LandingError:
            found.discard(files)
            raise
        rewritten += len(files)
        rows += sum(one.rows for one in files)
    found.refresh()
    orphans, size = found.clean(older_than)
    return Compacted(before, len(found.data_files()), rewritten, rows, orphans, size)


def _groups(files: Sequence[DataFile], target: int) -> Iterator[list[DataFile]]:
    """Groups of small files to join, each of one partition."""
    by_partition: dict[tuple[int, tuple[tuple[str, str | None], ...]], list[DataFile]] = {}
    for one in files:
        if one.size < target * SMALL:
            by_partition.setdefault((one.spec, tuple(sorted(one.partition.items()))), []).append(one)
    for small in by_partition.values():
        group: list[DataFile] = []
        size = 0
        for one in small:
            group.append(one)
            size += one.size
            if size >= target * AT_ONCE:
                yield group
                group, size = [], 0
        if len(group) > 1:
            yield group


def _rewrite(
    table: Table, group: Sequence[DataFile], layout: Layout, settings: FileSettings
) -> list[DataFile]:
    writer = FileWriter(*table.staging.open(), layout, settings, "compact")
    try:
        # One file at a time keeps the rows' order, and memory at one row group.
        for batch in table.scan(files=group):
            writer.write(pa.Table.from_batches([batch]))
        return writer.close()
    except BaseException:
        writer.abort()
        raise
