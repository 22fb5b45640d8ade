"""A data file's statistics, from the bounds in its Parquet footer.

Bounds are taken as Parquet stores them: Python's dates end with the year 9999, and a column may have later ones.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MOST = 32
"""Most columns whose minimum and maximum go into the table's statistics."""
_LONGEST = 64
"""Most characters of a text in the statistics."""
_EPOCH = dt.datetime(1970, 1, 1)


def statistics(metadata: pq.FileMetaData, schema: pa.Schema, nan: Collection[str] = ()) -> str:
    """A file's statistics as Delta Lake writes them: JSON of numRecords, minValues, maxValues, nullCount.

    ``nan`` names the columns that have a NaN. Parquet leaves it out of the bounds, but Spark sorts it after all
    numbers: such a column has no maximum. A bound that can't be shown is left out, which is always valid.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    leaf = 0
    for one in list(schema)[:MOST]:
        at, leaf = leaf, leaf + _leaves(one.type)
        if pa.types.is_nested(one.type):
            continue
        groups = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[one.name] = sum(group.null_count for group in groups)
        bounds = [(group.min_raw, group.max_raw) for group in groups if group.has_min_max]
        if not bounds or len(bounds) < sum(group.num_values > 0 for group in groups):
            continue
        low, high = _shown(min(b[0] for b in bounds), one.type), _shown(max(b[1] for b in bounds), one.type)
        if low is not None:
            least[one.name] = low
        if high is not None and one.name not in nan:
            greatest[one.name] = high
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls},
        separators=(",", ":"),
    )


def _leaves(kind: pa.DataType) -> int:
    """The columns that Parquet stores a column of this type in."""
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _leaves(kind.value_type)
    return sum(_leaves(one.type) for one in kind) if pa.types.is_struct(kind) else 1


_SHOWN: Mapping[Callable[[pa.DataType], bool], Callable[[Any], Any]] = {
    pa.types.is_integer: int,
    pa.types.is_floating: lambda value: float(value) if math.isfinite(value) else None,
    pa.types.is_date: lambda days: None if (day := _moment(days, dt.timedelta(1))) is None else day[:10],
    pa.types.is_string: lambda value: text if len(text := value.decode()) <= _LONGEST else None,
}


def _shown(value: Any, kind: pa.DataType) -> Any:
    """A bound as JSON; None to leave it out."""
    if pa.types.is_timestamp(kind):
        text = _moment(value, dt.timedelta(microseconds=1))
        return None if text is None else text + ("Z" if kind.tz else "")
    for test, show in _SHOWN.items():
        if test(kind):
            return show(value)
    return None


def _moment(number: int, unit: dt.timedelta) -> str | None:
    try:
        return (_EPOCH + number * unit).isoformat(timespec="microseconds")
    except OverflowError:
        return None
