"""What a value has to become in a column, from the specifications of JSON, CSV and Avro: no code of Ottla's is used.

A kind is a pair: its name, and what it needs. Values are compared as plain ones: floating point by its bits, timestamps
as microseconds and dates as days since 1970.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import struct
from collections.abc import Mapping
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np

Kind = tuple[str, Any]
Columns = Mapping[str, Kind]
_NUMBER = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WIDE = Context(prec=200)


class Dead(Exception):
    """The record can't be a row; the text says why."""


class Number(str):
    pass


class Object(list[tuple[str, Any]]):
    pass


def bits(value: float, size: int = 64) -> Any:
    """Floating point, comparable to the last bit."""
    return "nan" if value != value else struct.pack("<d" if size == 64 else "<f", value)


def _constant(text: str) -> Number:
    return Number({"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[text])


def json_row(value: bytes | None, columns: Columns, *, grow: bool = False) -> dict[str, Any]:
    """The row of a JSON object. ``grow``: the columns were inferred, so each field has to have one."""
    if value is None:
        return dict.fromkeys(columns)
    try:
        found = json.loads(
            value.decode("utf-8"),
            object_pairs_hook=Object,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_constant,
        )
    except (ValueError, RecursionError) as error:
        raise Dead(f"no JSON: {error}") from None
    if not isinstance(found, Object):
        raise Dead("no object")
    return _object(found, columns, grow)


def _object(found: Object, columns: Columns, grow: bool) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(columns)
    seen: set[str] = set()
    for name, value in found:
        if name not in columns:
            if grow and not _empty(value):
                raise Dead(f"{name[:40]!r} has no column")
            if grow and any(name.lower() == one.lower() for one in columns):
                raise Dead("differs in case alone")
            if grow and (
                not name
                or re.search(r"[\x00-\x1f\x7f-\x9f]", name)
                or len(name.encode("utf-8", "replace")) > 255
            ):
                raise Dead("no name for a column")
            continue
        if name in seen:
            raise Dead(f"{name} twice")
        seen.add(name)
        row[name] = _json(value, columns[name], grow)
    return row


def _empty(value: Any) -> bool:
    if isinstance(value, Object):
        return all(_empty(inner) for _, inner in value)
    return value is None or (isinstance(value, list) and all(map(_empty, value)))


def _json(value: Any, kind: Kind, grow: bool) -> Any:
    name, of = kind
    if value is None:
        return None
    if name == "struct" and isinstance(value, Object):
        return _object(value, of, grow)
    if name == "list" and isinstance(value, list) and not isinstance(value, Object):
        return [_json(one, of, grow) for one in value]
    if name == "flag" and isinstance(value, bool):
        return value
    if isinstance(value, Number) and name in ("int", "float", "decimal"):
        if (
            grow
            and name == "float"
            and re.fullmatch(r"-?[0-9]+", value)
            and (len(value) > 320 or Fraction(_nearest(value, of)) != int(value))
        ):
            raise Dead("floating point would round it")
        return number(value, kind)
    if isinstance(value, str) and not isinstance(value, Number):
        if name == "text":
            return text(value)
        if name == "decimal":
            return number(value, kind)
        if name == "date":
            return date(value)
        if name in ("utc", "local"):
            return moment(value, None if name == "utc" else False)
    raise Dead(f"not of the kind {name}")


def text(value: str) -> str:
    if any(0xD800 <= ord(one) < 0xE000 for one in value):
        raise Dead("a surrogate")
    return value


def number(value: str, kind: Kind) -> Any:
    """A number's text."""
    name, of = kind
    if name == "int":
        if not re.fullmatch(r"-?[0-9]+", value) or len(value) > 4000:
            raise Dead("no integer")
        if not -(2 ** (of - 1)) <= int(value) < 2 ** (of - 1):
            raise Dead("too many bits")
        return int(value)
    if name == "float":
        return bits(_nearest(value, of), of)
    if not _NUMBER.fullmatch(value):
        raise Dead("no number")
    precision, scale = of
    try:
        exact = Decimal(value)
        if exact and exact.adjusted() > 100:
            raise Dead("too large")
        unscaled = exact.scaleb(scale, _WIDE) if exact else Decimal(0)
        if unscaled != unscaled.to_integral_value() or abs(unscaled) >= 10**precision:
            raise Dead("too many digits")
    except InvalidOperation:
        raise Dead("no decimal") from None
    return exact


def _nearest(value: str, size: int) -> float:
    if value.lstrip("+-").lower() in ("nan", "inf", "infinity"):
        return float(value)
    if not _NUMBER.fullmatch(value):
        raise Dead("no number")
    found = float(value)
    if size == 64:
        if abs(found) == float("inf"):
            raise Dead("beyond DOUBLE")
        return found
    if abs(found) >= 2.0**128:
        raise Dead("beyond FLOAT")
    if found == 0 or abs(found) < 1e-60:
        return float(value) * 0.0
    exact = Fraction(value)
    with np.errstate(over="ignore"):
        near = np.float32(found)
    with np.errstate(over="ignore"):
        around = [np.nextafter(near, np.float32(way), dtype=np.float32) for way in (-np.inf, np.inf)]
    whole = [one for one in (near, *around) if np.isfinite(one)]
    largest = Fraction(2**128 - 2**104)
    if abs(exact) >= largest + Fraction(2**103):
        raise Dead("beyond FLOAT")
    best = min(
        whole, key=lambda one: (abs(Fraction(float(one)) - exact), int(np.float32(one).view(np.uint32)) & 1)
    )
    return float(best) if best else found * 0.0


def date(value: str) -> int:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise Dead("no date")
    year, month, day = int(value[:4]), int(value[5:7]), int(value[8:])
    lengths = [
        31,
        29 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 28,
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ]
    if not (1 <= month <= 12 and 1 <= day <= lengths[month - 1]):
        raise Dead("no day of the calendar")
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 + sum(lengths[: month - 1]) + day - 1
    return days - 719_162


_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


def moment(value: str, zone: bool | None) -> int:
    """ISO 8601, as the page on landing says."""
    found = _MOMENT.fullmatch(value)
    if found is None:
        raise Dead("no time")
    day, hour, minute, second, fraction, offset = found.groups()
    if zone is not None and zone != (offset is not None):
        raise Dead("an offset, or none")
    if int(hour or 0) > 23 or int(minute or 0) > 59 or int(second or 0) > 59:
        raise Dead("no time of day")
    micros = ((date(day) * 24 + int(hour or 0)) * 60 + int(minute or 0)) * 60 + int(second or 0)
    if offset and offset != "Z":
        digits = offset[1:].replace(":", "").ljust(4, "0")
        if int(digits[:2]) > 23 or int(digits[2:]) > 59:
            raise Dead("no offset")
        ahead = (int(digits[:2]) * 60 + int(digits[2:])) * 60
        micros += ahead if offset[0] == "-" else -ahead
    return micros * 1_000_000 + int((fraction or "0").ljust(9, "0")) // 1000


def csv_row(value: bytes | None, columns: Columns, delimiter: str = ",") -> dict[str, Any]:
    """The row of a line of CSV (RFC 4180)."""
    if value is None:
        return dict.fromkeys(columns)
    try:
        line = value.decode("utf-8")
    except UnicodeDecodeError:
        raise Dead("no UTF-8") from None
    if not line:
        raise Dead("empty")
    line = line[:-2] if line.endswith("\r\n") else line[:-1] if line[-1] in "\r\n" else line
    fields = _fields(line, delimiter)
    if len(fields) != len(columns):
        raise Dead("another number of fields")
    return {name: _csv(field, kind) for field, (name, kind) in zip(fields, columns.items(), strict=True)}


def _fields(line: str, delimiter: str) -> list[tuple[str, bool]]:
    fields: list[tuple[str, bool]] = []
    at = 0
    while True:
        content, quoted = "", line[at : at + 1] == '"'
        if quoted:
            at += 1
            while True:
                if at >= len(line):
                    raise Dead("a quote isn't closed")
                if line[at] != '"':
                    content += line[at]
                    at += 1
                elif line[at + 1 : at + 2] == '"':
                    content += '"'
                    at += 2
                else:
                    at += 1
                    break
        else:
            while at < len(line) and line[at] != delimiter:
                if line[at] in "\r\n":
                    raise Dead("more than a row")
                content += line[at]
                at += 1
        fields.append((content, quoted))
        if at >= len(line):
            return fields
        if line[at] != delimiter:
            raise Dead("something behind a quote")
        at += 1


def _csv(field: tuple[str, bool], kind: Kind) -> Any:
    value, quoted = field
    name, _ = kind
    if not value and not quoted:
        return None
    if name == "text":
        return value
    value = value.strip(" \t")
    if name == "flag":
        if value not in ("1", "0", "true", "false", "True", "False", "TRUE", "FALSE"):
            raise Dead("no boolean")
        return value.lower() in ("1", "true")
    if name == "date":
        return date(value)
    if name in ("utc", "local"):
        return moment(value, name == "utc")
    return number(value, kind)


def avro_row(value: bytes | None, schema: Any) -> dict[str, Any] | None:
    """The row of a record in Avro's binary form; None for a null value."""
    if value is None:
        return None
    source = io.BytesIO(value)
    row = _avro(source, schema)
    if source.read(1):
        raise Dead("bytes are left")
    found: dict[str, Any] = row
    return found


def _take(source: io.BytesIO, size: int) -> bytes:
    data = source.read(size) if size >= 0 else b""
    if size < 0 or len(data) < size:
        raise Dead("too short")
    return data


def _long(source: io.BytesIO) -> int:
    number = shift = 0
    while True:
        (octet,) = _take(source, 1)
        number += (octet & 127) << shift
        shift += 7
        if octet < 128:
            break
        if shift == 70:
            raise Dead("too many bytes")
    if number >> 64:
        raise Dead("too many bits")
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def _avro(source: io.BytesIO, schema: Any) -> Any:
    if isinstance(schema, list):
        branch = _long(source)
        if not 0 <= branch < len(schema):
            raise Dead("no branch")
        member = _avro(source, schema[branch])
        others = [one for one in schema if one != "null"]
        if schema[branch] == "null" or len(others) == 1:
            return member
        made: dict[str, Any] = {f"member{place}": None for place in range(len(others))}
        return made | {f"member{others.index(schema[branch])}": member}
    kind = schema if isinstance(schema, str) else schema["type"]
    logical = None if isinstance(schema, str) else schema.get("logicalType")
    if kind == "record":
        return {one["name"]: _avro(source, one["type"]) for one in schema["fields"]}
    if kind in ("array", "map"):
        return _blocks(source, schema)
    if kind == "enum":
        place = _long(source)
        if not 0 <= place < len(schema["symbols"]):
            raise Dead("no symbol")
        return schema["symbols"][place]
    if kind in ("int", "long"):
        found = _long(source)
        if kind == "int" and not -(2**31) <= found < 2**31:
            raise Dead("no int")
        if logical in ("timestamp-millis", "local-timestamp-millis"):
            found *= 1000
            if not -(2**63) <= found < 2**63:
                raise Dead("no TIMESTAMP")
        return found
    if kind == "boolean":
        (octet,) = _take(source, 1)
        if octet > 1:
            raise Dead("no boolean")
        return octet == 1
    if kind == "float":
        return bits(struct.unpack("<f", _take(source, 4))[0], 32)
    if kind == "double":
        return bits(struct.unpack("<d", _take(source, 8))[0])
    if kind == "null":
        return None
    data = _take(source, schema["size"] if kind == "fixed" else _long(source))
    if logical == "decimal":
        unscaled = int.from_bytes(data, "big", signed=True)
        if abs(unscaled) >= 10 ** schema["precision"]:
            raise Dead("too many digits")
        return Decimal(unscaled).scaleb(-schema["scale"], _WIDE)
    if kind == "string":
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise Dead("no UTF-8") from None
    return data


def _blocks(source: io.BytesIO, schema: Any) -> Any:
    items: list[Any] = []
    while count := _long(source):
        if count < 0:
            _long(source)
        for _ in range(abs(count)):
            key = _avro(source, "string") if schema["type"] == "map" else None
            one = _avro(source, schema["values" if key is not None else "items"])
            items.append(one if key is None else (key, one))
    if schema["type"] == "map" and len({key for key, _ in items}) < len(items):
        raise Dead("a key twice")
    return items


def stamp(millis: int) -> int | None:
    """A record's own timestamp in a column of microseconds."""
    return millis * 1000 if millis != -1 and -(2**63) <= millis * 1000 < 2**63 else None


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
