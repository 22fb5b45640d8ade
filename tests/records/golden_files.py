"""Batches of other implementations, in golden/ with the programs that captured them."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ottla_protocol.records.record import Record


class Golden(NamedTuple):
    name: str
    batch: bytes
    records: list[list[Any]]
    """Offset (java alone), timestamp, key, value and headers, the bytes in hexadecimal."""
    original: bytes | None = None
    """What Kafka's cleaner made the batch from."""
    horizon: int | None = None


def load(name: str) -> list[Golden]:
    content = json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())
    cases = content if isinstance(content, list) else content["batches"]
    return [
        Golden(
            case["name"],
            bytes.fromhex(case["bytes"]),
            case["records"],
            bytes.fromhex(case["from"]) if "from" in case else None,
            case.get("horizon"),
        )
        for case in cases
    ]


def hexed(value: bytes | None) -> str | None:
    if value is None or len(value) < 2000:
        return None if value is None else value.hex()
    return "sha256:" + sha256(value).hexdigest()


def as_golden(record: Record) -> list[Any]:
    """The record as the files hold it, offset first."""
    headers = [[name.encode().hex(), hexed(value)] for name, value in record.headers]
    return [record.offset, record.timestamp, hexed(record.key), hexed(record.value), headers]


class GoldenMessages(NamedTuple):
    """A message set, or a conversion: ``kind`` is built, down, up or cleaned."""

    kind: str
    name: str
    magic: int
    data: bytes
    records: list[list[Any]]
    original: bytes = b""
    first_offset: int = 0
    codec: int = 0
    append_time: bool = False


def load_messages() -> list[GoldenMessages]:
    return [
        GoldenMessages(
            case["kind"],
            case["name"],
            case["magic"],
            bytes.fromhex(case["bytes"]),
            case["records"],
            bytes.fromhex(case.get("from", "")),
            case.get("first_offset", 0),
            case.get("codec", 0),
            case.get("append_time", False),
        )
        for case in json.loads((Path(__file__).parent / "golden" / "messages.json").read_text())
    ]
