"""Arrow tables as columns of records. Needs the extra ``arrow``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from .bulk import Columns

if TYPE_CHECKING:
    import pyarrow

_COLUMNS = ("value", "key", "partition", "timestamp", "headers")


def columns_of(table: pyarrow.Table | pyarrow.RecordBatch) -> Iterator[tuple[int | None, Columns]]:
    """The records of ``table`` by their column ``partition``; None leaves the choice to the partitioner.

    Raises ConfigurationError unless the columns are those of ``Producer.send_arrow``.
    """
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
    except ImportError as error:
        raise ConfigurationError("send_arrow needs pyarrow: pip install 'ottla[arrow]'") from error
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise ConfigurationError(
            f"send_arrow takes a pyarrow Table or RecordBatch, not a {type(table).__name__}"
        )
    unknown = [name for name in table.column_names if name not in _COLUMNS]
    if unknown or "value" not in table.column_names:
        raise ConfigurationError(
            f"the table has the columns {', '.join(table.column_names)}; value is required, allowed are "
            + ", ".join(_COLUMNS)
        )
    if "partition" not in table.column_names:
        yield None, _columns(pa, table, None)
        return
    partitions = table.column("partition")
    if not pa.types.is_integer(partitions.type):
        raise ConfigurationError(
            f"the column partition has the type {partitions.type}; it must be an integer"
        )
    for partition in pc.unique(partitions).to_pylist():
        mask = (
            pc.is_null(partitions)
            if partition is None
            else pc.fill_null(pc.equal(partitions, partition), False)
        )
        yield partition, _columns(pa, table.filter(mask), pc.indices_nonzero(mask).to_pylist())


def _columns(pa: Any, table: Any, places: list[int] | None) -> Columns:
    names = table.column_names
    return Columns(
        values=_binary(pa, table, "value"),
        keys=_binary(pa, table, "key") if "key" in names else None,
        timestamps=_timestamps(pa, table) if "timestamp" in names else None,
        headers=_headers(table) if "headers" in names else None,
        places=places,
    )


def _binary(pa: Any, table: Any, name: str) -> list[bytes | None]:
    column = table.column(name)
    kind = column.type
    if pa.types.is_string(kind):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    elif not (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    ):
        raise ConfigurationError(f"the column {name} has the type {kind}; it must be binary or string")
    values: list[bytes | None] = column.to_pylist()
    return values


def _timestamps(pa: Any, table: Any) -> list[int]:
    column = table.column("timestamp")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise ConfigurationError(
            f"the column timestamp has the type {column.type}; it must be a timestamp or an integer"
        )
    if column.null_count:
        raise ConfigurationError(
            "the column timestamp has nulls; give every record a timestamp, or leave the column out"
        )
    timestamps: list[int] = column.cast(pa.int64()).to_pylist()
    return timestamps


def _headers(table: Any) -> list[Any]:
    column = table.column("headers").to_pylist()
    return [
        () if row is None else [tuple(each.values()) if isinstance(each, dict) else each for each in row]
        for row in column
    ]
