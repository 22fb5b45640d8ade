"""Column types, and DDL as Spark writes it.

``flight INT NOT NULL, tailnum STRING, delays ARRAY<DOUBLE>, plane STRUCT<year: INT, model: STRING>``
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pyarrow as pa

from ottla_pipeline.landing.errors import SchemaRefused

TIMESTAMP = pa.timestamp("us", "UTC")
_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_TOKENS = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_]\w*|\d+)|('(?:[^'\\]|\\.)*')|([<>(),:]))")


def from_ddl(text: str) -> pa.Schema:
    """The columns that ``text`` declares. Raises SchemaRefused if it is no DDL; the line says where."""
    reader = _Reader(text)
    fields = reader.columns("")
    reader.end()
    return checked(pa.schema(fields), text)


def to_ddl(schema: pa.Schema) -> str:
    """DDL that :func:`from_ddl` reads back."""
    return ", ".join(
        f"{_quoted(one.name)} {type_name(one.type)}{'' if one.nullable else ' NOT NULL'}" for one in schema
    )


def type_name(kind: pa.DataType) -> str:
    """A type's name in DDL. Raises SchemaRefused if tables have no such type."""
    for name, one in _SIMPLE.items():
        if one == kind:
            return name.upper()
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        inner = (
            f"{_quoted(one.name)}: {type_name(one.type)}{'' if one.nullable else ' NOT NULL'}" for one in kind
        )
        return f"STRUCT<{', '.join(inner)}>"
    raise SchemaRefused(f"a column can't be of the type {kind}")


def mapped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type, with ``leaf`` of each type in it that isn't nested."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", mapped(kind.value_type, leaf)))
    if pa.types.is_map(kind):
        return pa.map_(mapped(kind.key_type, leaf), mapped(kind.item_type, leaf))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(mapped(one.type, leaf)) for one in kind])
    return leaf(kind)


def nullable(fields: Iterable[pa.Field]) -> pa.Schema:
    """The columns without NOT NULL, at any depth."""
    return pa.schema([_nullable(one) for one in fields])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(one) for one in kind])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, _nullable(kind.item_field))
    return field.with_type(kind).with_nullable(True)


Widens = Callable[[pa.DataType, pa.DataType], bool]
"""Whether a type, not nested, can become the second, wider one."""


def digits(kind: pa.DataType) -> int:
    """Of a decimal, before the point."""
    return int(kind.precision - kind.scale)


def widened(has: pa.DataType, wanted: pa.DataType, widens: Widens = lambda has, wanted: False) -> pa.DataType:
    """``has`` with the fields of STRUCTs that only ``wanted`` has behind its own, and wider types where they can be."""
    if pa.types.is_struct(has) and pa.types.is_struct(wanted):
        inner = {field.name: field for field in has}
        seen = {name.lower() for name in inner}
        for field in wanted:
            known = inner.get(field.name)
            if known is not None:
                inner[field.name] = known.with_type(widened(known.type, field.type, widens))
            elif field.name.lower() not in seen:
                inner[field.name] = field.with_nullable(True)
        return pa.struct(list(inner.values()))
    if pa.types.is_list(has) and pa.types.is_list(wanted):
        return pa.list_(has.value_field.with_type(widened(has.value_type, wanted.value_type, widens)))
    return wanted if widens(has, wanted) else has


def normalised(kind: pa.DataType) -> pa.DataType:
    """The type of a table's column for ``kind``: a type without a name in DDL becomes the next wider one."""
    return mapped(kind, _named)


def _named(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz is not None else pa.timestamp("us")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_decimal256(kind):
        return pa.decimal128(min(kind.precision, 38), kind.scale)
    if pa.types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32()}.get(kind.bit_width, pa.int64())
    return kind


def checked(schema: pa.Schema, where: str) -> pa.Schema:
    """The schema, unchanged.

    Raises SchemaRefused if it has no column, one without a name, or two with the same name (case-insensitive, as in
    Spark), at the top or in a STRUCT.
    """
    if not len(schema):
        raise SchemaRefused(f"the schema {where!r} has no columns")
    _check_names(schema, "the schema")
    return schema


def _check_names(fields: Iterable[pa.Field], where: str) -> None:
    seen: set[str] = set()
    for one in fields:
        if not one.name:
            raise SchemaRefused(f"{where} has a column without a name: give a schema that leaves it out")
        if one.name.lower() in seen:
            raise SchemaRefused(
                f"{where} has two columns named {one.name!r}; case makes no difference: give a schema with one of"
                " them, or rename Ottla's own columns"
            )
        seen.add(one.name.lower())
        kind = one.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            _check_names(kind, one.name)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


class _Reader:
    """Tokens of a DDL text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            found = _TOKENS.match(text, at)
            if found is None:
                raise SchemaRefused(f"the schema can't be read at {text[at:].strip()[:30]!r}: {text!r}")
            quoted, word, literal, mark = found.groups()
            kind = "name" if quoted else "word" if word else "text" if literal else "mark"
            value = quoted[1:-1].replace("``", "`") if quoted else word or literal or mark
            self._tokens.append((kind, value, found.start(found.lastindex or 0)))
            at = found.end()
        self._at = 0

    def columns(self, closing: str) -> list[pa.Field]:
        """Declarations up to ``closing``; inside STRUCT<> a colon may follow the name."""
        fields = []
        while True:
            name = self._take(("name", "word"), "a column's name")
            if closing:
                self._skip(":")
            kind = self.type()
            nullable = True
            if self._word("not"):
                if not self._word("null"):
                    self._fail("NULL")
                nullable = False
            if self._word("comment"):
                self._take(("text",), "a comment in quotes")
            fields.append(pa.field(name, kind, nullable))
            if not self._skip(","):
                break
        return fields

    def type(self) -> pa.DataType:
        at = self._at
        name = self._take(("word",), "a type").lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        known: dict[str, Callable[[], pa.DataType]] = {
            **dict.fromkeys(("decimal", "dec", "numeric"), self._decimal),
            **dict.fromkeys(("char", "varchar"), self._sized),
            "array": self._array,
            "map": self._map,
            "struct": self._struct,
        }
        if name not in known:
            self._at = at
            self._fail(f"a type ({', '.join(sorted({*_SIMPLE, *known}))})")
        return known[name]()

    def end(self) -> None:
        """Raises SchemaRefused if something is left."""
        if self._at < len(self._tokens):
            self._fail("a comma or the end")

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._skip("("):
            precision = self._number()
            if self._skip(","):
                scale = self._number()
            self._expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise SchemaRefused(
                f"DECIMAL({precision},{scale}): 1 to 38 digits, not more of them after the point"
            )
        return pa.decimal128(precision, scale)

    def _sized(self) -> pa.DataType:
        self._expect("(")
        self._number()
        self._expect(")")
        return pa.string()

    def _array(self) -> pa.DataType:
        self._expect("<")
        inner = self.type()
        self._expect(">")
        return pa.list_(pa.field("element", inner))

    def _map(self) -> pa.DataType:
        self._expect("<")
        key = self.type()
        self._expect(",")
        value = self.type()
        self._expect(">")
        return pa.map_(key, value)

    def _struct(self) -> pa.DataType:
        self._expect("<")
        fields = self.columns(">")
        self._expect(">")
        return pa.struct(fields)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at][:2] if self._at < len(self._tokens) else ("", "")

    def _take(self, kinds: tuple[str, ...], what: str) -> str:
        kind, value = self._peek()
        if kind not in kinds:
            self._fail(what)
        self._at += 1
        return value

    def _number(self) -> int:
        value = self._take(("word",), "a number")
        if not value.isdigit():
            self._at -= 1
            self._fail("a number")
        return int(value)

    def _word(self, wanted: str) -> bool:
        kind, value = self._peek()
        if kind == "word" and value.lower() == wanted:
            self._at += 1
            return True
        return False

    def _skip(self, mark: str) -> bool:
        if self._peek() == ("mark", mark):
            self._at += 1
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            self._fail(repr(mark))

    def _fail(self, wanted: str) -> None:
        rest = (
            "its end" if self._at >= len(self._tokens) else repr(self._text[self._tokens[self._at][2] :][:30])
        )
        raise SchemaRefused(f"the schema can't be read at {rest}: {wanted} was expected in {self._text!r}")
