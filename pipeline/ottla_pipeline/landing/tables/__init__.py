"""Tables that records are landed in: Delta Lake, Apache Iceberg, plain Parquet."""

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
