"""Statistics of a new data file as Iceberg's manifests have them, by field id, from the file's Parquet footer.

Bounds are taken as Parquet stores them: pyiceberg's own function makes Python's dates of them, which end with the year
9999.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq

from ottla_pipeline.landing.tables.layout import field_ids
from ottla_pipeline.landing.tables.transforms import EXACT


def metrics(metadata: pq.FileMetaData, plan: Mapping[int, Any]) -> dict[str, Any]:
    """What :class:`pyiceberg.manifest.DataFile` takes. ``plan``: for each field id, how much of it to keep."""
    found: dict[str, Any] = {
        "record_count": metadata.num_rows,
        "column_sizes": {},
        "value_counts": {},
        "null_value_counts": {},
        "nan_value_counts": {},
        "lower_bounds": {},
        "upper_bounds": {},
        "split_offsets": [_start(metadata.row_group(at)) for at in range(metadata.num_row_groups)],
    }
    for leaf, field_id in enumerate(field_ids(metadata.schema.to_arrow_schema())):
        chunks = [metadata.row_group(at).column(leaf) for at in range(metadata.num_row_groups)]
        found["column_sizes"][field_id] = sum(one.total_compressed_size for one in chunks)
        mode = plan[field_id].mode.type.value
        if mode == "none":
            continue
        found["value_counts"][field_id] = sum(one.num_values for one in chunks)
        statistics = [one.statistics for one in chunks]
        if any(one is None or not one.has_null_count for one in statistics):
            continue
        found["null_value_counts"][field_id] = sum(one.null_count for one in statistics)
        full = [one for one in statistics if one.num_values]
        if mode != "counts" and full and all(one.has_min_max for one in full) and _ordered(plan[field_id]):
            _bounds(found, field_id, full, plan[field_id])
    return found


def _ordered(planned: Any) -> bool:
    """Whether bounds of the type are of use."""
    return not str(planned.iceberg_type).startswith(("binary", "fixed", "uuid"))


def _bounds(found: dict[str, Any], field_id: int, statistics: list[Any], planned: Any) -> None:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.utils.truncate import truncate_upper_bound_text_string

    kind, length = planned.iceberg_type, planned.mode.length
    low = min(_value(one.min_raw, kind) for one in statistics)
    high: Any = max(_value(one.max_raw, kind) for one in statistics)
    if isinstance(low, str):
        low = low[:length]
        high = truncate_upper_bound_text_string(high, length)
    if low != low or high != high:
        return  # NaN is no bound.
    found["lower_bounds"][field_id] = to_bytes(kind, low)
    if high is not None:
        found["upper_bounds"][field_id] = to_bytes(kind, high)


def _value(raw: Any, kind: Any) -> Any:
    """The value as pyiceberg has it: dates and times are numbers."""
    name = str(kind)
    if name.startswith("decimal"):
        unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
        return Decimal(unscaled).scaleb(-kind.scale, EXACT)
    return raw.decode() if name == "string" else raw


def _start(group: Any) -> int:
    first = group.column(0)
    dictionary = first.dictionary_page_offset if first.has_dictionary_page else None
    offsets = [one for one in (first.data_page_offset, dictionary) if one is not None]
    return int(min(offsets))
