"""Schema evolution: new columns are added; types that don't fit are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.schema import Widens, digits, type_name, widened
from ottla_pipeline.landing.tables.layout import Layout, PartitionField

_HOLDS: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int16(): (pa.int8(),),
    pa.int32(): (pa.int8(), pa.int16()),
    pa.int64(): (pa.int8(), pa.int16(), pa.int32()),
    pa.float64(): (pa.float32(), pa.int8(), pa.int16(), pa.int32()),
}
"""Types, and the narrower types whose values they hold."""


class NewColumns(Exception):
    """Records have fields that the table has no columns for: ``schema`` has them, those in a STRUCT in its column."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(", ".join(schema.names))
        self.schema = schema


def grown(
    table: str,
    has: pa.Schema,
    wanted: pa.Schema,
    widens: Widens = lambda has, wanted: False,
    to_widen: str = "",
) -> tuple[pa.Schema, list[pa.Field]]:
    """The table's columns followed by new ones of ``wanted``; and the new ones, and those that have changed, alone.

    A column keeps its type in the table if that holds all values of the wanted type, and becomes wider if the table
    ``widens`` it. Raises SchemaRefused for the first column that doesn't fit, with both types, and ``to_widen``, what
    to do, if the wanted one is wider.
    """
    columns = {field.name: field for field in has}
    by_name = {field.name.lower(): field for field in has}
    new = []
    for field in wanted:
        # Another program may have added one whose name differs in case alone.
        known = has.field(field.name) if field.name in has.names else by_name.get(field.name.lower())
        if known is None:
            made = field.with_nullable(True)
        elif known.name != field.name:
            raise SchemaRefused(
                f"{table} has a column {known.name}, the schema one {field.name}: Spark ignores the case of "
                "names; rename it in the schema"
            )
        else:
            made = known.with_type(widened(known.type, field.type, widens))
            if not fits(made.type, field.type):
                instead = f"{to_widen}, " if to_widen and fits(field.type, known.type) else ""
                raise SchemaRefused(
                    f"{table} has the column {field.name} as {type_name(known.type)}, the schema as "
                    f"{type_name(field.type)}: values of one do not fit into the other; {instead}change the schema, or "
                    "land in a new table"
                )
        if known is None or made != known:
            columns[made.name] = made
            new.append(made)
    return pa.schema(list(columns.values())), new


def fits(has: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of ``has`` holds every value of ``wanted``."""
    if has == wanted or wanted in _HOLDS.get(has, ()):
        return True
    if pa.types.is_decimal(has) and pa.types.is_decimal(wanted):
        return bool(has.scale >= wanted.scale) and digits(has) >= digits(wanted)
    if pa.types.is_struct(has) and pa.types.is_struct(wanted):
        inner = {field.name: field.type for field in has}
        return all(field.name in inner and fits(inner[field.name], field.type) for field in wanted)
    if pa.types.is_list(has) and pa.types.is_list(wanted):
        return fits(has.value_type, wanted.value_type)
    if pa.types.is_map(has) and pa.types.is_map(wanted):
        return fits(has.key_type, wanted.key_type) and fits(has.item_type, wanted.item_type)
    return False


def check_filled(table: str, has: pa.Schema, wanted: pa.Schema) -> None:
    """Raises SchemaRefused if the table has a column NOT NULL that no record fills."""
    for field in has:
        if not field.nullable and field.name not in wanted.names:
            raise SchemaRefused(
                f"{table} has the column {field.name} NOT NULL, and the schema has no such column: add it to the "
                "schema, or let the table's be null"
            )


def check_partitioning(table: str, layout: Layout, wanted: Sequence[str], filled: pa.Schema) -> None:
    """Raises SchemaRefused if the table is partitioned by other columns than wanted, or by one that no record fills.

    If nothing is ``wanted``, the table's own partitioning is right.
    """
    used = [one for one in layout.partitions if one.transform != "void"]
    has = [one.source if one.transform == "identity" else f"{one.transform}({one.source})" for one in used]
    ours = [one.source for one in used if one.source not in filled.names or _is_day(one, layout.schema)]
    if has != list(wanted) if wanted else ours:
        raise SchemaRefused(
            f"{table} is partitioned by {', '.join(has) or 'nothing'}, not by {', '.join(wanted) or 'nothing'}: "
            "give the same, or land in a new table"
        )


def _is_day(one: PartitionField, schema: pa.Schema) -> bool:
    """Whether a job has made this column from another one, as ``date(column)`` does, and has to go on doing so."""
    if not pa.types.is_date(schema.field(one.source).type) or not one.source.endswith("_date"):
        return False
    source = one.source.removesuffix("_date")
    return not source or source in schema.names
