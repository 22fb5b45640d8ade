"""Random values: of every type at its bounds, of other types, and of bytes that mean nothing."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import fastavro
from tests.pipeline.values.oracle import Columns, Kind

FLAT = (
    "t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, b BOOLEAN, x STRING, ts TIMESTAMP, "
    "ntz TIMESTAMP_NTZ, day DATE"
)
FLAT_COLUMNS: Columns = {
    "t": ("int", 8),
    "s": ("int", 16),
    "i": ("int", 32),
    "l": ("int", 64),
    "f": ("float", 32),
    "d": ("float", 64),
    "b": ("flag", None),
    "x": ("text", None),
    "ts": ("utc", None),
    "ntz": ("local", None),
    "day": ("date", None),
}
NESTED = (
    "id BIGINT, m DECIMAL(20,4), p STRUCT<a: INT, n: DECIMAL(38,0), q: ARRAY<STRUCT<z: FLOAT, w: STRING>>>, "
    "v ARRAY<BIGINT>, u ARRAY<TIMESTAMP>"
)
_INNER: Columns = {"z": ("float", 32), "w": ("text", None)}
_P: Columns = {"a": ("int", 32), "n": ("decimal", (38, 0)), "q": ("list", ("struct", _INNER))}
NESTED_COLUMNS: Columns = {
    "id": ("int", 64),
    "m": ("decimal", (20, 4)),
    "p": ("struct", _P),
    "v": ("list", ("int", 64)),
    "u": ("list", ("utc", None)),
}
CSV = FLAT + ", m DECIMAL(20,4)"
CSV_COLUMNS: Columns = {**FLAT_COLUMNS, "m": ("decimal", (20, 4))}
AVRO = {
    "type": "record",
    "name": "r",
    "namespace": "of.values",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "l", "type": ["null", "long"]},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "b", "type": "boolean"},
        {"name": "x", "type": ["string", "null"]},
        {"name": "y", "type": "bytes"},
        {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "m", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}},
        {"name": "two", "type": ["null", "string", "long"]},
        {"name": "v", "type": {"type": "array", "items": "long"}},
        {"name": "g", "type": {"type": "map", "values": "double"}},
    ],
}
_WORDS = [
    "",
    "a",
    "NULL",
    "null",
    "nan",
    "0",
    "1",
    "-1",
    "true",
    "é",
    "😀",
    "\u0000",
    "\ufeff",
    "a,b",
    'a"b',
    '"',
    "a\nb",
    "\r",
    "\\",
    "\u2028",
    "x" * 300,
    "0x10",
    "2013-01-01",
    "__HIVE_DEFAULT_PARTITION__",
    " x ",
]


def whole(rng: random.Random, size: int = 64) -> str:
    """An integer near a bound, or any."""
    way = rng.random()
    if way < 0.35:
        return str(
            rng.choice([1, -1]) * 2 ** rng.choice([0, 7, 8, 15, 31, 32, 53, 63, 64, 66, 127])
            + rng.randint(-2, 2)
        )
    if way < 0.4:
        return str(
            rng.choice([10**18, 10**19, 10**20, 10**37, 10**38, 10**39, 10**400]) * rng.choice([1, -1])
        )
    return str(rng.randint(-(2 ** (size - 1)), 2 ** (size - 1) - 1))


def real(rng: random.Random, size: int = 64) -> str:
    way = rng.random() ** 0.3 if rng.random() < 0.05 else 0.2 + 0.5 * rng.random()
    if way < 0.2:
        return whole(rng)
    if way < 0.3:
        found = struct.unpack("<d", rng.randbytes(8))[0]
        most = 3e38 if size == 32 and rng.random() < 0.95 else 1e308
        return repr(found) if abs(found) < most else "1.5"
    if way < 0.7:
        single = struct.unpack("<f", rng.randbytes(4))[0]
        return repr(single) if abs(single) < 3e38 else "2.5"
    if way < 0.85:
        digits = "".join(rng.choices("0123456789", k=rng.randint(1, 40)))
        return f"{rng.choice(['', '-'])}{rng.randint(0, 9)}.{digits}{rng.choice(['', 'e5', 'E-7', 'e+300', 'e-320'])}"
    return rng.choice(
        [
            "0",
            "-0",
            "0.0",
            "-0.0",
            "1e400",
            "-1e400",
            "3.4e39",
            "3.4028235e38",
            "3.4028236e38",
            "1e-400",
            "5e-324",
            "1e-46",
            "16777217",
            "9007199254740993",
            "0.1",
            "1.00000017881393432617187499",
            "1E5",
            "NaN",
            "Infinity",
            "-Infinity",
        ]
    )


def decimal(rng: random.Random, scale: int = 4) -> str:
    way = rng.random() ** 10
    if way < 0.6:
        digits = f"{rng.choice(['', '-'])}{rng.randint(0, 10 ** rng.randint(1, 16 if scale else 37))}"
        return f"{digits}.{rng.randint(0, 9999):04}" if scale else digits
    return (
        real(rng)
        if way < 0.8
        else rng.choice(["1e2", "1.50000", "1.00001", "9" * 16 + ".9999", "1" + "0" * 16])
    )


def day(rng: random.Random) -> str:
    if rng.random() < 0.02:
        return rng.choice(
            [
                "0000-01-01",
                "0000-02-29",
                "9999-12-31",
                "2100-02-29",
                "2000-02-29",
                "2013-13-01",
                "10000-01-01",
                "2013-1-1",
                "",
                "-2013-01-01",
            ]
        )
    return f"{rng.randint(0, 9999):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def moment(rng: random.Random, zone: str) -> str:
    clock = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"
    if rng.random() < 0.01:
        clock = rng.choice(
            ["24:00:00", "05", "05:06", "05:06:60", "5:06:07", "0506", "05:06:07.", "05:06:07,5"]
        )
    elif rng.random() < 0.6:
        clock += "." + "".join(rng.choices("0123456789", k=rng.randint(1, 10 if rng.random() < 0.02 else 9)))
    if rng.random() < 0.02:
        zone = rng.choice(["", "Z", "+02:00", "-11:30", "+0200", "+02", "+24:00", "z", " "])
    return f"{day(rng)}{rng.choice(['T', 'T', 'T', ' ', 't'] if rng.random() < 0.02 else ['T'])}{clock}{zone}"


def words(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(_WORDS)
    ranges = [(32, 126), (0x80, 0x2FF), (0x1F300, 0x1F6FF)]
    return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(0, 12)))


def quoted(rng: random.Random, text: str) -> str:
    made = json.dumps(text, ensure_ascii=rng.random() < 0.5)
    return (
        made[:-1] + rng.choice([r"\ud800", r"\u0041", r"\/", r"\udc00\ud800"]) + '"'
        if rng.random() < 0.03
        else made
    )


def in_json(rng: random.Random, kind: Kind) -> str:
    """A value as JSON, mostly of the kind."""
    name, of = kind
    if rng.random() < 0.03:
        return "null"
    if rng.random() < 0.004:
        return rng.choice(
            ["1", '"1"', "true", "[]", "{}", "[1]", '{"a":1}', "1.5", '"x"', "nul", "01", "1.", "-", '"\x01"']
        )
    if name == "struct":
        return in_object(rng, of)
    if name == "list":
        return f"[{','.join(in_json(rng, of) for _ in range(rng.randint(0, 3)))}]"
    if name == "int":
        return (
            whole(rng, of) if rng.random() < 0.04 else str(rng.randint(-(2 ** (of - 1)), 2 ** (of - 1) - 1))
        )
    if name == "float":
        return real(rng, of)
    if name == "decimal":
        made = decimal(rng, of[1])
        return made if rng.random() < 0.7 else f'"{made}"'
    if name == "flag":
        return rng.choice(["true", "false"])
    texts: dict[str, Callable[[], str]] = {
        "text": lambda: words(rng),
        "date": lambda: day(rng),
        "utc": lambda: moment(rng, "Z"),
        "local": lambda: moment(rng, ""),
    }
    return quoted(rng, texts[name]())


def in_object(rng: random.Random, columns: Columns) -> str:
    names = [name for name in columns if rng.random() < 0.85]
    if rng.random() < 0.2:
        rng.shuffle(names)
    fields = [f"{json.dumps(name)}:{in_json(rng, columns[name])}" for name in names]
    if rng.random() < 0.1:
        fields.append(f'"other":{in_json(rng, rng.choice([*columns.values()]))}')
    if rng.random() < 0.01 and fields:
        fields.append(rng.choice(fields))
    return "{" + rng.choice([",", ", "]).join(fields) + "}"


def spoiled(rng: random.Random, value: bytes) -> bytes:
    """The value with a byte changed, left out or put in."""
    at, way = rng.randint(0, max(0, len(value) - 1)), rng.random()
    other = rng.choice(
        [
            b'"',
            b"\\",
            b"{",
            b"}",
            b",",
            b":",
            b"\xff",
            b"\xc3",
            b"\x00",
            b"\n",
            b"\r",
            bytes([rng.randint(0, 255)]),
        ]
    )
    return value[:at] + (other if way < 0.7 else b"") + value[at + (way > 0.3) :]


def json_value(rng: random.Random, columns: Columns) -> bytes:
    return in_object(rng, columns).encode("utf-8", "surrogatepass")


def csv_value(rng: random.Random, columns: Columns) -> bytes:
    fields = []
    for name, of in columns.values():
        if rng.random() < 0.01:
            fields.append(rng.choice(["", '""', "x", "0x1F", " 1", "+1", "inf", "NaN"]))
            continue
        made = in_json(rng, (name, of)) if name in ("int", "float", "flag") else None
        if made == "null":
            made = ""
        if made is None:
            makers: dict[str, Callable[[random.Random], str]] = {
                "text": words,
                "date": day,
                "decimal": decimal,
            }
            zone = "Z" if name == "utc" else ""
            made = makers[name](rng) if name in makers else moment(rng, zone)
        if any(one in made for one in ',"\r\n') or rng.random() < 0.05:
            made = '"' + made.replace('"', '""') + '"'
        fields.append(made)
    return (",".join(fields) + rng.choice(["", "", "", "\n", "\r\n"])).encode("utf-8", "surrogatepass")


_PARSED = fastavro.parse_schema(json.loads(json.dumps(AVRO).replace('"logicalType"', '"l"')))


def avro_value(rng: random.Random) -> bytes:
    def number(size: int) -> Any:
        bound = 1 << (size - 1)
        return rng.choice(
            [0, 1, -1, bound - 1, -bound, rng.randint(-bound, bound - 1), rng.randint(-(2**20), 2**20)]
        )

    record: dict[str, Any] = {
        "i": number(32),
        "l": rng.choice([None, number(64)]),
        "f": struct.unpack("<f", rng.randbytes(4))[0],
        "d": struct.unpack("<d", rng.randbytes(8))[0],
        "b": rng.random() < 0.5,
        "x": rng.choice([None, words(rng)]),
        "y": rng.randbytes(rng.randint(0, 9)),
        "e": rng.choice("ABC"),
        "ms": number(64 if rng.random() < 0.1 else 50),
        "us": number(64),
        "day": number(32),
        "two": rng.choice([None, words(rng), number(64)]),
        "m": number(rng.choice([8, 64, 64, 64, 64, 72, 128])).to_bytes(
            rng.choice([17, 20]), "big", signed=True
        ),
        "v": [number(64) for _ in range(rng.randint(0, 3))],
        "g": {words(rng): rng.random() for _ in range(rng.randint(0, 2))},
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, record)
    return out.getvalue()
