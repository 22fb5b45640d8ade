"""Records that are too large, and how the dead-letter topic keeps them.

The topic keeps the whole value, split into parts, so that nothing is lost. Each part is a record with the original's
key, unless that is larger than a part, and these headers before the original's own:

  ottla.dead.topic      the topic that the record was for
  ottla.dead.partition  the partition that its row named, if any
  ottla.dead.error      why it could not be written, one line
  ottla.dead.part       the part's number, from 1, and how many there are: ``2/3``
  ottla.dead.size       bytes of the value; ``null`` for a null value, whose key or headers were too large
  ottla.dead.sha256     of the whole value, in hexadecimal digits: equal in parts that belong together
  ottla.dead.left-out   ``key``, ``headers`` or ``key,headers``: left out because of their size
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from .errors import RecordTooLarge
from .rows import BATCH_OVERHEAD, Header, Headers, Rows, header_size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .options import WriteOptions

PART: Final = 512 * 1024
"""Most bytes of a value in a part: below the brokers' default limit (1 MiB), with room for key and headers."""
_ROOM: Final = 32 * 1024
"""Most bytes of the original's key, and of its headers, that a part carries."""
_PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class TooLarge:
    """A record, and why it is not written."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    error: str


def records_of(rows: Rows, errors: list[str]) -> list[TooLarge]:
    """One TooLarge for each of ``rows``, which are few."""
    values = rows.value_list()
    keys = rows.key_list() or [None] * len(values)
    headers = rows.header_lists() or [()] * len(values)
    return [
        TooLarge(rows.topic, rows.partition, key, value, its, error)
        for key, value, its, error in zip(keys, values, headers, errors, strict=True)
    ]


def dead_letters(record: TooLarge, topic: str, part: int = PART) -> Rows:
    """The parts of a record as rows for ``topic``, each with at most ``part`` bytes of the value."""
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
    facts: list[Header] = [("ottla.dead.topic", record.topic.encode())]
    if record.partition is not None:
        facts.append(("ottla.dead.partition", str(record.partition).encode()))
    facts += [
        ("ottla.dead.error", record.error.encode()),
        ("ottla.dead.size", b"null" if record.value is None else str(len(value)).encode()),
        ("ottla.dead.sha256", sha256(value).hexdigest().encode()),
    ]
    if left_out:
        facts.append(("ottla.dead.left-out", ",".join(left_out).encode()))
    pairs = [
        [*facts, ("ottla.dead.part", f"{number}/{len(pieces)}".encode()), *headers]
        for number, _ in enumerate(pieces, 1)
    ]
    return Rows(
        topic,
        None,
        pa.array([None] if record.value is None else pieces, pa.binary()),
        None if key is None else pa.array([key] * len(pieces), pa.binary()),
        pa.array([[{"key": name, "value": content} for name, content in each] for each in pairs], _PAIRS),
    )


class LargeRecords:
    """Finds records that are too large for the producer, and handles them as ``onTooLarge`` says."""

    def __init__(self, options: WriteOptions) -> None:
        arguments = options.producer()
        buffer: int = arguments.get("buffer_memory", 33_554_432)
        self._limit: int = min(arguments.get("max_request_size", 1_048_576), buffer)
        self._setting = "kafka.max.request.size" if self._limit < buffer else "kafka.buffer.memory"
        self._on_too_large = options.on_too_large
        self._target = options.dead_letter_topic

    def among(self, rows: Rows, own: Header | None) -> NDArray[np.bool_]:
        """The rows that are too large; ``own`` is a header that all of them get."""
        large: NDArray[np.bool_] = rows.sizes(header_size(own) if own else 0) + BATCH_OVERHEAD > self._limit
        return large

    def set_aside(self, rows: Rows, errors: list[str] | None = None) -> list[Rows]:
        """The dead letters for ``rows``, which are too large: for the broker, with its errors, or for the producer.

        Returns none if such rows are skipped. Raises RecordTooLarge if that ends the write.
        """
        if errors is None:
            errors = [
                f"a record for topic {rows.topic} is about {size} bytes, more than {self._setting} ({self._limit}): "
                "raise that and, if it is lower, the topic's max.message.bytes"
                for size in rows.sizes(0).tolist()
            ]
        if self._on_too_large == "fail":
            raise RecordTooLarge(f"{errors[0]}; or set onTooLarge to skip or deadletter")
        if self._target is None:
            return []
        if rows.topic == self._target:
            raise RecordTooLarge(
                f"a part of a dead letter is too large for topic {self._target}: {errors[0]}"
            )
        part = max(1, min(PART, self._limit // 2))
        return [dead_letters(record, self._target, part) for record in records_of(rows, errors)]
