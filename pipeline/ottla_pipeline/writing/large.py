"""Records that are too large: which, and what is put into the dead-letter topic for them.

There a record's value lies whole, in as many parts as it takes, so that nothing is lost. Each part is a record with the
key of the original, if that is no larger than a part, and these headers before the original's own:

  ottla.dead.topic      where the record was to go
  ottla.dead.partition  the partition that its row named, if it did
  ottla.dead.error      why it could not be written, one line
  ottla.dead.part       which part it is, and of how many, from 1 on: ``2/3``
  ottla.dead.size       bytes of the value; ``null`` where there is none, and the key or the headers were too large
  ottla.dead.sha256     of the value whole, in hexadecimal digits: equal in parts that belong together
  ottla.dead.left-out   ``key``, ``headers`` or ``key,headers``: what is not carried because of its size
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import pyarrow as pa

from .rows import Header, Headers, Rows, header_size

PART: Final = 512 * 1024
"""Bytes of a value that a part has at most: what brokers take as they come (1 MiB), with much room for the rest."""
_ROOM: Final = 32 * 1024
"""Bytes for keys, and as many for headers of the original, that go along."""
_PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class TooLarge:
    """One record, and why it is not written."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    error: str


def records_of(rows: Rows, errors: list[str]) -> list[TooLarge]:
    """``rows`` one by one; they are few."""
    values = rows.value_list()
    keys = rows.key_list() or [None] * len(values)
    headers = rows.header_lists() or [()] * len(values)
    return [
        TooLarge(rows.topic, rows.partition, key, value, its, error)
        for key, value, its, error in zip(keys, values, headers, errors, strict=True)
    ]


def dead_letters(record: TooLarge, topic: str, part: int = PART) -> Rows:
    """The parts of a record as rows for ``topic``; each has ``part`` bytes of the value at most."""
    value = record.value or b""
    pieces = [value[at : at + part] for at in range(0, len(value), part)] or [value]
    left_out = []
    key, headers = record.key, record.headers
    if key is not None and len(key) > _ROOM:
        key = None
        left_out.append("key")
    if sum(map(header_size, headers)) > _ROOM:
        headers = ()
        left_out.append("headers")
    told: list[Header] = [("ottla.dead.topic", record.topic.encode())]
    if record.partition is not None:
        told.append(("ottla.dead.partition", str(record.partition).encode()))
    told += [
        ("ottla.dead.error", record.error.encode()),
        ("ottla.dead.size", b"null" if record.value is None else str(len(value)).encode()),
        ("ottla.dead.sha256", sha256(value).hexdigest().encode()),
    ]
    if left_out:
        told.append(("ottla.dead.left-out", ",".join(left_out).encode()))
    pairs = [
        [*told, ("ottla.dead.part", f"{number}/{len(pieces)}".encode()), *headers]
        for number, _ in enumerate(pieces, 1)
    ]
    return Rows(
        topic,
        None,
        pa.array([None] if record.value is None else pieces, pa.binary()),
        None if key is None else pa.array([key] * len(pieces), pa.binary()),
        pa.array([[{"key": name, "value": content} for name, content in each] for each in pairs], _PAIRS),
    )
