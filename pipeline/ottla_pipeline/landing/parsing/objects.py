"""Reads JSON objects one by one, exactly: the definition that the faster readers of ``json`` are held to."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

import pyarrow as pa

from ottla_pipeline.landing.parsing import texts
from ottla_pipeline.landing.parsing.base import Failure, one_by_one
from ottla_pipeline.landing.parsing.malformed import Malformed, short
from ottla_pipeline.landing.parsing.shapes import Fields, Number, Shape, check_name, fits_real
from ottla_pipeline.landing.schema import type_name

_CONSTANTS: Final = {"NaN": Number("nan"), "Infinity": Number("inf"), "-Infinity": Number("-inf")}
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=Fields, parse_int=Number, parse_float=Number, parse_constant=_CONSTANTS.__getitem__
)


def fields_of(value: bytes) -> Fields:
    """The object in a record's value. Raises Malformed if it is none."""
    try:
        found = _DECODER.decode(value.decode())
    except UnicodeDecodeError:
        raise Malformed("the value is not UTF-8 text") from None
    except RecursionError:
        raise Malformed("the value is nested too deep to be read") from None
    except (KeyError, ValueError) as error:
        if not value.lstrip().startswith(b"{"):
            raise Malformed("the value is not a JSON object") from None
        raise Malformed(f"the value is not one JSON object: {error}") from None
    if not isinstance(found, Fields):
        raise Malformed("the value is not a JSON object")
    return found


class ObjectReader:
    """Reads objects into the columns of ``schema``.

    ``grow``: fields without a column are noted in :attr:`unknown`, whole numbers aren't rounded, and no new field may
    be named as a column of ``reserved``.
    """

    def __init__(self, schema: pa.Schema, *, grow: bool, reserved: Collection[str] = ()) -> None:
        self._schema = schema
        self._grow = grow
        self._reserved = {name.lower() for name in reserved}
        self._news = Shape()
        self.unknown = Shape()
        self.noted = 0
        """Objects with fields in ``unknown``."""

    def rows(self, values: Sequence[bytes], failures: list[Failure]) -> tuple[pa.Table, list[int]]:
        """The rows of the objects that fit, and their places; the others go to ``failures``."""
        rows, places = one_by_one(values, self._row, failures)
        return pa.Table.from_pylist(rows, schema=self._schema), places

    def _row(self, value: bytes) -> dict[str, Any]:
        self._news = Shape()
        row = self._fields(fields_of(value), self._schema, (), "")
        if self._news.fields:
            self.unknown.merge(self._news)
            self.noted += 1
        return row

    def _fields(
        self, found: Fields, columns: Any, path: tuple[str | None, ...], where: str
    ) -> dict[str, Any]:
        row: dict[str, Any] = {}
        kinds = {one.name: one.type for one in columns}
        for name, value in found:
            kind = kinds.get(name)
            if kind is None:
                if self._grow:
                    self._note(name, value, kinds, path)
                continue
            if name in row:
                raise Malformed(f"{where}{name} occurs twice")
            row[name] = None if value is None else self._value(value, kind, (*path, name), where + name)
        return row

    def _value(self, value: Any, kind: pa.DataType, path: tuple[str | None, ...], where: str) -> Any:
        try:
            if pa.types.is_struct(kind) and isinstance(value, Fields):
                return self._fields(value, kind, path, f"{where}.")
            if pa.types.is_list(kind) and isinstance(value, list) and not isinstance(value, Fields):
                return [
                    None if one is None else self._value(one, kind.value_type, (*path, None), where)
                    for one in value
                ]
            if isinstance(value, bool):
                if pa.types.is_boolean(kind):
                    return value
            elif isinstance(value, Number):
                return self._number(value, kind)
            elif isinstance(value, str):
                return _text(value, kind)
        except Malformed as error:
            raise error if error.placed else Malformed(f"{where}: {error}", placed=True) from None
        raise Malformed(f"{where}: {_named(value)} is no {type_name(kind)}", placed=True)

    def _number(self, value: Number, kind: pa.DataType) -> Any:
        if pa.types.is_integer(kind):
            return texts.whole(value, kind)
        if pa.types.is_decimal(kind):
            return texts.number(value, kind)
        if not pa.types.is_floating(kind):
            raise Malformed(f"the number {short(value)} is no {type_name(kind)}")
        found = texts.real(value, kind)
        if self._grow and not fits_real(value, found):
            raise Malformed(
                f"a {type_name(kind)} does not hold all digits of {short(value)}: give a schema with DECIMAL, or one"
                " that says DOUBLE to round it"
            )
        return found

    def _note(self, name: str, value: Any, siblings: Collection[str], path: tuple[str | None, ...]) -> None:
        """Note a field without a column. Raises Malformed if it can't become one."""
        check_name(name)
        for other in siblings:
            if other.lower() == name.lower():
                raise Malformed(
                    f"the field {name} differs from the column {other} in case alone: give a schema that leaves one out"
                )
        if not path and name.lower() in self._reserved:
            raise Malformed(
                f"the field {name} is named as a column of Ottla's own: rename that one, or give a schema"
            )
        shape = new = Shape()
        for step in path:
            shape.kinds["list" if step is None else "object"] += 1
            shape = shape.item() if step is None else shape.of(step)
        shape.kinds["object"] += 1
        shape.of(name).add(value, len(path) + 1)
        self._news.merge(new)


def _text(value: str, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Malformed("the text has half of a surrogate pair") from None
        return value
    if pa.types.is_decimal(kind):
        return texts.number(value, kind)
    if pa.types.is_date(kind):
        return texts.day(value)
    if pa.types.is_timestamp(kind):
        return texts.instant(value, kind, offset=None if kind.tz else False)
    raise Malformed(f"the text {short(value)} is no {type_name(kind)}")


def _named(value: Any) -> str:
    """The value's kind, in words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "an object" if isinstance(value, Fields) else "an array"
