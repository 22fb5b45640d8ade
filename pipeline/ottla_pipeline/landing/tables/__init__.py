"""Tables that records are landed in: Delta Lake, Apache Iceberg, plain Parquet.

``base.py`` is what a format has to do: files in, one commit with offsets and checksums, and read back.
``Table.commit`` accepts a batch only if it starts exactly where the table ends; otherwise another job has landed
there. The table is the only checkpoint.

To change

- what is said of an error of a table's library or catalogue, and whether it is tried again:
  ``landing/tables/outside.py`` ``one_line``, ``patiently``
- how a table's files hold its columns and partitions: ``landing/tables/layout.py`` ``Layout``,
  ``landing/tables/transforms.py`` ``transformed``; read back by ``landing/tables/reading.py`` ``batches_of``;
  Iceberg's equality deletes: ``landing/tables/iceberg_deletes.py`` ``Plan``
- which Delta tables are landed in, and how a commit is written: ``landing/tables/delta_protocol.py`` ``Definition``,
  ``landing/tables/delta_log.py`` ``DeltaLog``; why: ``docs/decisions/0031``
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_pipeline.landing.errors import BadSetting
from ottla_pipeline.landing.tables.base import Commit, DataFile, Names, Stale, State, Table

FORMATS = ("delta", "iceberg", "parquet")

__all__ = ["FORMATS", "Commit", "DataFile", "Names", "Stale", "State", "Table", "open_table"]


def open_table(
    format: str,
    uri: str,
    *,
    catalog: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
) -> Table:
    """A table by its format and place, whether it exists or not.

    ``catalog``: properties of an Iceberg catalogue; ``storage``: options of an object store, for Delta. Raises
    BadSetting for an unknown format, or an argument that the format doesn't take.
    """
    if catalog is not None and format != "iceberg":
        raise BadSetting(f"a catalogue is for Iceberg tables, not for {format}")
    if storage and format != "delta":
        raise BadSetting(f"storage options are for Delta tables, not for {format}")
    if format == "delta":
        from ottla_pipeline.landing.tables.delta import DeltaTable

        return DeltaTable(uri, dict(storage) if storage else None)
    if format == "iceberg":
        from ottla_pipeline.landing.tables.iceberg import IcebergTable

        return IcebergTable(uri, catalog)
    if format == "parquet":
        from ottla_pipeline.landing.tables.parquet import ParquetTable

        return ParquetTable(uri)
    raise BadSetting(f"the format {format!r} is none of {', '.join(FORMATS)}")
