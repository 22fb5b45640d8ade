"""Record batches of which most are nearly right: every field of header and records wrong, one at a time and several."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import cache

from ottla_protocol.records.batch import write_crc
from ottla_protocol.records.compression import compress
from ottla_protocol.records.record import encode_batch, encode_varint

TIME = 1_700_000_000_000
HEADER_SIZE = 61
# Position and format of each field of a header after the offset, and values that it shouldn't have.
FIELDS: dict[str, tuple[int, str, tuple[int, ...]]] = {
    "base_offset": (0, ">q", (1, -1, 2**63 - 1, -(2**63))),
    "batch_length": (8, ">i", (0, 48, 49, 50, -1, 2**31 - 1, -(2**31))),
    "leader_epoch": (12, ">i", (0, -1, 2**31 - 1)),
    "magic": (16, ">b", (0, 1, 3, -1)),
    "crc": (17, ">I", (0, 1, 2**32 - 1)),
    "attributes": (21, ">h", (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, -1)),
    "last_offset_delta": (23, ">i", (0, 1, -1, 2**31 - 1, -(2**31))),
    "base_timestamp": (27, ">q", (0, -1, 2**63 - 1, -(2**63), 2**63 - 1000)),
    "max_timestamp": (35, ">q", (0, -1, 2**63 - 1, -(2**63), TIME)),
    "producer_id": (43, ">q", (0, 7, -2, 2**63 - 1)),
    "producer_epoch": (51, ">h", (0, 3, -2, 2**15 - 1)),
    "base_sequence": (53, ">i", (0, 5, -2, 2**31 - 1)),
    "record_count": (57, ">i", (0, 1, 2, -1, 2**31 - 1, -(2**31))),
}
_NAMES = tuple(FIELDS)
NUMBERS = (-(2**31), -3, -2, -1, 0, 1, 2, 6, 7, 63, 64, 8191, 8192, 2**31 - 1)
_HEADER = bytes(encode_batch([(TIME, None, None, ())])[:HEADER_SIZE])
OVERLONG = (b"\x80\x00", b"\xff" * 4 + b"\x7f", b"\x80" * 5, b"\x80" * 9 + b"\x02", b"\xff" * 11)

varint = cache(encode_varint)
_KEYS = (None, b"", b"k", b"key" * 30)
_VALUES = (None, b"", b"value", b"v" * 70, b"v" * 300)
_HEADERS: tuple[tuple[tuple[bytes, bytes | None], ...], ...] = (
    (),
    (),
    (),
    ((b"name", b"header"),),
    ((b"", None), (b"name", b"")),
)
_STAMPS = (0, 0, 1, -1, 70, 100_000, 5, 5)
_WILD_STAMPS = (*_STAMPS, 2**62, -(2**63))


def number(chance: random.Random, right: int, wrong: float) -> bytes:
    """The varint of ``right``, or with the probability ``wrong`` another one."""
    if not wrong or chance.random() >= wrong:
        return varint(right)
    if chance.random() < 0.2:
        return chance.choice(OVERLONG)
    return varint(chance.choice((*NUMBERS, right - 1, right + 1)))


def record(chance: random.Random, index: int, wrong: float) -> bytes:
    """A record in which each number is wrong with the probability ``wrong``."""
    draw = chance.random

    def field(data: bytes | None) -> bytes:
        return number(chance, -1 if data is None else len(data), wrong) + (data or b"")

    headers = _HEADERS[int(draw() * len(_HEADERS))]
    stamps = _WILD_STAMPS if wrong else _STAMPS
    body = b"".join(
        (
            b"\0" if draw() < 0.8 else b"\xff",
            number(chance, stamps[int(draw() * len(stamps))], wrong / 4),
            number(chance, index, wrong),
            field(_KEYS[int(draw() * len(_KEYS))]),
            field(_VALUES[int(draw() * len(_VALUES))]),
            number(chance, len(headers), wrong),
            *(field(name) + field(content) for name, content in headers),
        )
    )
    return number(chance, len(body), wrong) + body


def batch(chance: random.Random) -> bytearray:
    """A batch with a good checksum, unless that is what is wrong with it."""
    count = chance.choice((1, 1, 1, 2, 2, 3, 9))
    wrong = chance.choice((0, 0, 0.01, 0.05, 0.3))
    body = b"".join(record(chance, index, wrong) for index in range(count))
    if chance.random() < 0.1:
        at = chance.randrange(len(body) + 1)
        body = body[:at] + chance.choice((b"", b"\0", b"\xff", chance.randbytes(3), body[at + 1 :]))
    codec = chance.choice((0, 0, 1, 2, 3, 4))
    data = bytearray(_HEADER)
    packed = bytearray(compress(codec, body) if codec else body)
    if codec and chance.random() < 0.1:
        packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
    data += packed
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">hi", data, 21, codec, count - 1)
    struct.pack_into(">i", data, 57, count)
    if chance.random() < 0.2:
        struct.pack_into(
            ">qhi", data, 43, chance.choice((0, 9)), chance.choice((0, 1)), chance.choice((0, 4))
        )
    names: list[str] = []
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
        name = chance.choice(_NAMES)
        at, form, values = FIELDS[name]
        struct.pack_into(form, data, at, chance.choice(values))
        names.append(name)
    if "crc" not in names:
        write_crc(data, 0, len(data))
    if chance.random() < 0.02:
        del data[chance.randrange(len(data)) :]
    return data


def batches(seed: int, count: int) -> Iterator[bytearray]:
    chance = random.Random(seed)
    for _ in range(count):
        yield batch(chance)


def one_field_at_a_time() -> Iterator[tuple[str, bytearray]]:
    """Good batches in which a single field of the header has a wrong value; the name and the batch."""
    for name, (at, form, values) in FIELDS.items():
        for value in values:
            data = encode_batch([(TIME + n, b"k", b"v%d" % n, ()) for n in range(3)])
            struct.pack_into(form, data, at, value)
            if name != "crc":
                write_crc(data, 0, len(data))
            yield f"{name}={value}", data
