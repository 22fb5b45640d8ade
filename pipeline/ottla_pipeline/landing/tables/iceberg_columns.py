"""Columns of Iceberg tables as Arrow has them, and as data files have them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ottla_pipeline.landing.tables.layout import FIELD_ID


def types_in(kind: Any) -> Iterator[Any]:
    """The type and all in it."""
    yield kind
    for name in ("fields", "element_type", "key_type", "value_type"):
        inner = getattr(kind, name, None)
        for one in inner if isinstance(inner, tuple) else [inner] if inner is not None else []:
            yield from types_in(getattr(one, "field_type", one))


def physical(fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Names as Iceberg's own writers have them in files: letters, digits and underscores, each once."""
    names: set[str] = set()
    found = []
    for one in fields:
        name = re.sub(r"[^A-Za-z0-9_]", lambda each: f"_x{ord(each[0]):X}", one.name)
        name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
        if name in names:
            name += f"_{one.metadata[b'PARQUET:field_id'].decode()}"
        names.add(name)
        found.append(one.with_name(name).with_type(_physical_type(one.type)))
    return found


def _physical_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(physical(list(kind)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_physical_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_physical_type(kind.key_type)),
            kind.item_field.with_type(_physical_type(kind.item_type)),
        )
    return kind


def small(field: pa.Field) -> pa.Field:
    """Without Arrow's large types, and of metadata with the field id alone."""
    kept = {key: value for key, value in (field.metadata or {}).items() if key == FIELD_ID}
    return field.with_type(_small_type(field.type)).with_metadata(kept)


def _small_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([small(one) for one in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(small(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(small(kind.key_field), small(kind.item_field))
    return kind


def cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def kept_mapping(before: list[Any], after: list[Any]) -> str:
    """The name mapping after new columns were added: a name stays with the column that had it.

    Files without field ids were written before: what they have by this name is the old column's.
    """
    taken = {name for one in before for name in one["names"]}
    old = {one.get("field-id") for one in before}
    new = [one for one in after if one.get("field-id") not in old and not taken & set(one["names"])]
    return json.dumps([*before, *new])
