"""Record batches built by hand from the format's description."""

from __future__ import annotations

from struct import Struct

import crc32c

_HEADER = Struct(">qiibIhiqqqhii")


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def record(delta: int, key: bytes | None, value: bytes | None, timestamp_delta: int = 0) -> bytes:
    body = b"\0" + zigzag(timestamp_delta) + zigzag(delta)
    for part in (key, value):
        body += zigzag(-1) if part is None else zigzag(len(part)) + part
    body += zigzag(0)
    return zigzag(len(body)) + body


def batch(
    values: list[bytes] | int = 1,
    *,
    base_offset: int = 0,
    timestamp: int = 1_700_000_000_000,
    key: bytes | None = b"k",
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    leader_epoch: int = -1,
    size: int | None = None,
    count: int | None = None,
    last_delta: int | None = None,
) -> bytearray:
    """A batch of values, or of that many, padded to ``size`` bytes in its last value if given."""
    if isinstance(values, int):
        values = [b"v%d" % number for number in range(values)]
    records = b"".join(record(number, key, value, number) for number, value in enumerate(values))
    if size is not None and len(values) == 1:
        short = size - 61 - len(records)
        values = [values[0] + b"x" * (short - 2)]
        while 61 + len(record(0, key, values[0])) < size:
            values = [values[0] + b"x"]
        records = record(0, key, values[0])
    real = len(values)
    body = bytearray(
        _HEADER.pack(
            base_offset,
            49 + len(records),
            leader_epoch,
            2,
            0,
            attributes,
            real - 1 if last_delta is None else last_delta,
            timestamp,
            timestamp + real - 1,
            producer_id,
            epoch,
            sequence,
            real if count is None else count,
        )
        + records
    )
    body[17:21] = crc32c.crc32c(body[21:]).to_bytes(4, "big")
    return body
