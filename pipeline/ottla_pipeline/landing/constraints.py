"""What a table demands of its rows: NOT NULL, at any depth, and conditions such as Delta's CHECK constraints.

A row that breaks one is a dead letter, as a value that doesn't fit its column is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.expressions import Unknown, compiled

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Check:
    """A condition that has to be true for every row: neither false nor null, as in Delta Lake."""

    name: str
    """Such as ``CHECK constraint positive``."""
    condition: str
    """In Spark's SQL."""


class Constraints:
    """The constraints of a table with certain columns."""

    def __init__(
        self, table: str, schema: pa.Schema, checks: Sequence[Check], *, who: str = "the table"
    ) -> None:
        """``who`` says NOT NULL. Raises SchemaRefused for a condition that can't be evaluated."""
        self._who = who
        self._required = [at for at, one in enumerate(schema) if _demands(one)]
        self._schema = schema
        self._checks = []
        for one in checks:
            try:
                self._checks.append((one, compiled(one.condition, schema)))
            except Unknown as error:
                raise SchemaRefused(
                    f"{table} has the {one.name} ({one.condition}), and {error} in it can't be evaluated outside "
                    "Spark: drop the constraint, or land in another table"
                ) from error

    def __bool__(self) -> bool:
        return bool(self._required or self._checks)

    def broken(self, rows: pa.Table) -> dict[int, str]:
        """By row, the first constraint that it breaks. The rows have the table's columns, all nullable, in order."""
        found: dict[int, str] = {}
        for at in self._required:
            one = self._schema.field(at)
            for row in np.flatnonzero(_nulls(rows.column(at).combine_chunks(), one)).tolist():
                what = "is null" if not one.nullable else "has null in it"
                found.setdefault(row, f"{one.name} {what}, and {self._who} says NOT NULL")
        for check, condition in self._checks:
            met = pc.fill_null(condition(rows), False)
            if isinstance(met, pa.Scalar):
                met = pa.array([met.as_py()] * len(rows))
            for row in np.flatnonzero(~_bits(met)).tolist():
                found.setdefault(row, f"the {check.name} of the table isn't met: {check.condition}")
        return found


def _demands(field: pa.Field) -> bool:
    return not field.nullable or any(_demands(one) for one in _inner(field.type))


def _inner(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.item_field]
    if pa.types.is_list(kind):
        return [kind.value_field]
    return []


def _nulls(array: Any, field: pa.Field) -> Mask:
    """Which values break NOT NULL of the field, or of one in it."""
    if isinstance(array, pa.ChunkedArray):  # More than fits into one array.
        return np.concatenate([_nulls(one, field) for one in array.chunks])
    valid = _bits(pc.is_valid(array))
    broken: Mask = np.zeros(len(array), np.bool_) if field.nullable else ~valid
    kind = field.type
    if not any(_demands(one) for one in _inner(kind)):
        return broken
    if pa.types.is_struct(kind):
        for at, one in enumerate(kind):
            if _demands(one):
                broken |= _nulls(pc.struct_field(array, [at]), one) & valid
        return broken
    parents = pc.list_parent_indices(array) if pa.types.is_list(kind) else _map_parents(array)
    inner = pc.list_flatten(array) if pa.types.is_list(kind) else pc.struct_field(_entries(array), [1])
    broken[np.asarray(parents)[_nulls(inner, _inner(kind)[0])]] = True
    return broken


def _entries(array: pa.MapArray) -> pa.Array:
    """A map's keys and values of all rows that aren't null, one after the other."""
    return pc.list_flatten(_as_list(array))


def _map_parents(array: pa.MapArray) -> pa.Array:
    return pc.list_parent_indices(_as_list(array))


def _as_list(array: pa.MapArray) -> pa.ListArray:
    return array.view(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def _bits(values: Any) -> Mask:
    return (
        np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
        if isinstance(values, pa.Array)
        else np.asarray(values.to_numpy(), np.bool_)
    )
