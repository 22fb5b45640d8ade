"""What values the fields of JSON objects have had, and the columns that follow from that.

Shapes of several samples, or tasks, add up. A field with values of two kinds becomes a column of what it mostly was:
the other records don't fit, and are dead letters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa

from ottla_pipeline.landing.parsing import texts
from ottla_pipeline.landing.parsing.malformed import Malformed
from ottla_pipeline.landing.schema import TIMESTAMP

DEEPEST: Final = 32
"""Levels of objects and arrays in an inferred column. Delta Lake takes some 40."""
_LONGEST: Final = 255
"""Most bytes of an inferred column's name."""
_DIGITS: Final = 38
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Number(str):
    """A number in JSON, as it is written."""


class Fields(list[tuple[str, Any]]):
    """An object in JSON: its fields as they are written, in order."""


@dataclass
class Shape:
    kinds: Counter[str] = field(default_factory=Counter)
    """How many values were of each kind: see :func:`_kind`. Null is none."""
    digits: int = 0
    """Of the longest whole number."""
    fields: dict[str, Shape] = field(default_factory=dict)
    """Of objects."""
    items: list[Shape] = field(default_factory=list)
    """One, of all items of arrays, if there are any."""

    def add(self, value: Any, depth: int = 0) -> None:
        """Count a value. Raises Malformed if it is too deep, or an object in it has no name for a field."""
        if value is None:
            return
        if isinstance(value, Fields | list):
            if depth >= DEEPEST:
                raise Malformed(
                    f"the value is nested more than {DEEPEST} deep: give a schema that leaves that out"
                )
            if isinstance(value, Fields):
                self.kinds["object"] += 1
                for name, inner in value:
                    check_name(name)
                    self.of(name).add(inner, depth + 1)
            else:
                self.kinds["list"] += 1
                for inner in value:
                    self.item().add(inner, depth + 1)
            return
        kind = _kind(value)
        self.kinds[kind] += 1
        if kind in ("long", "wide", "small"):
            self.digits = max(self.digits, len(value.lstrip("-")))

    def of(self, name: str) -> Shape:
        """The shape of a field, which may be new."""
        return self.fields.setdefault(name, Shape())

    def item(self) -> Shape:
        """The shape of items."""
        if not self.items:
            self.items.append(Shape())
        return self.items[0]

    def merge(self, other: Shape) -> None:
        """Add what another sample had."""
        self.kinds.update(other.kinds)
        self.digits = max(self.digits, other.digits)
        for name, one in other.fields.items():
            self.of(name).merge(one)
        for one in other.items:
            self.item().merge(one)

    def columns(self) -> pa.Schema:
        """The columns of objects; a field that is null or empty everywhere has none yet."""
        return pa.schema(list(self._columns()))

    def _columns(self) -> Iterator[pa.Field]:
        seen: set[str] = set()
        for name, one in self.fields.items():
            kind = one._type()
            if kind is not None and name.lower() not in seen:
                seen.add(name.lower())
                yield pa.field(name, kind)

    def _type(self) -> pa.DataType | None:
        counts = Counter[str]()
        for kind, count in self.kinds.items():
            counts[_GROUPS.get(kind, kind)] += count
        group = max(counts, key=counts.__getitem__, default="")
        if group == "object":
            columns = list(self._columns())
            return pa.struct(columns) if columns else None
        if group == "list":
            inner = self.items[0]._type() if self.items else None
            return None if inner is None else pa.list_(pa.field("element", inner))
        if group == "text":
            return self._text()
        return self._number() if group == "number" else pa.bool_() if group == "flag" else None

    def _text(self) -> pa.DataType:
        others = self.kinds["text"]
        if others or (self.kinds["time"] and self.kinds["day"]):
            return pa.string()
        return TIMESTAMP if self.kinds["time"] else pa.date32()

    def _number(self) -> pa.DataType:
        of = self.kinds
        if of["real"] >= max(1, of["wide"] + of["long"]):
            return pa.float64()
        if not of["long"]:
            return pa.int64()
        return pa.decimal128(20 if self.digits <= 20 else _DIGITS, 0)

    def to_json(self) -> str:
        return json.dumps(self._document())

    def _document(self) -> Any:
        fields = {name: one._document() for name, one in self.fields.items()}
        return [self.kinds, self.digits, fields, [one._document() for one in self.items]]

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls._from(json.loads(text))

    @classmethod
    def _from(cls, document: Any) -> Self:
        kinds, digits, fields, items = document
        return cls(
            Counter(kinds),
            digits,
            {name: cls._from(one) for name, one in fields.items()},
            [cls._from(one) for one in items],
        )


_GROUPS: Final = {
    **dict.fromkeys(("text", "time", "day"), "text"),
    **dict.fromkeys(("small", "wide", "long", "real"), "number"),
}


def _kind(value: Any) -> str:
    """The kind of a value that isn't nested.

    ``time`` and ``day`` are texts that a TIMESTAMP or DATE holds in full. Whole numbers are ``small`` if a DOUBLE holds
    them, ``wide`` with 64 bits, and ``long`` with 38 digits; with more they count as ``real``.
    """
    if isinstance(value, bool):
        return "flag"
    if not isinstance(value, Number):
        return _text_kind(value)
    if value.lstrip("-").isdigit() and len(value) <= _DIGITS + 1:
        number = int(value)
        if fits_real(value, float(number)):
            return "small" if -(2**63) <= number < 2**63 else "long"
        if -(2**63) <= number < 2**63:
            return "wide"
        if len(value.lstrip("-")) <= _DIGITS:
            return "long"
    return "real"


def _text_kind(text: str) -> str:
    try:
        if len(text) == 10:
            texts.day(text)
            return "day"
        if 16 <= len(text) <= 35 and not text.partition(".")[2][6:].rstrip("Z0"):
            texts.instant(text, TIMESTAMP)
            return "time"
    except Malformed:
        pass
    return "text"


def fits_real(text: str, found: float) -> bool:
    """Whether floating point holds a number that is written without a fraction or an exponent."""
    return not text.lstrip("-").isdigit() or (abs(found) < 1e300 and int(found) == int(text))


def check_name(name: str) -> None:
    """Raises Malformed if no column can have this name."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise Malformed("the name of a field is no valid text") from None
    if not name or size > _LONGEST or _CONTROL.search(name):
        what = (
            "no name"
            if not name
            else f"a name of {size:,} bytes"
            if size > _LONGEST
            else f"the name {name!r}"
        )
        raise Malformed(f"a new field has {what}, which no column can have: give a schema that leaves it out")
