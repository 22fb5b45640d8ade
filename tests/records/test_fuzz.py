"""A hundred thousand record batches, most of them nearly right: each is read or is a CorruptRecordError."""

from __future__ import annotations

import random
import resource
from collections import Counter

from tests.support.depth import inputs

from ottla_protocol.records.batch import CorruptRecordError, crc_is_valid, read_header
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import Record, decode_records, encode_batch, rebuild_batch

INPUTS = inputs()
MAX_BYTES = 1 << 20
TIME = 1_700_000_000_000
ROWS = [
    (TIME, b"key", b"value", ()),
    (TIME + 1, None, b"fox jumps " * 9, ()),
    (TIME - 70, b"gone", None, ()),
    (TIME + 100_000, b"", b"", ()),
    (TIME, b"h", b"x", (("trace", b"abc"), ("null", None), ("é漢", b""))),
]
COUNTS = (0, 1, 2, 14, 15, 16, 1000, 2**31 - 1, 2**31, 2**32 - 1)
BYTES = (0, 1, 2, 3, 126, 127, 128, 129, 255)


def seeds() -> list[bytes]:
    return [bytes(encode_batch(ROWS * times, codec=codec)) for codec in range(5) for times in (1, 3)]


def damaged(batch: bytes, chance: random.Random) -> bytearray:
    """``batch`` cut, with bits or bytes changed, pieces put in or taken out, or another count."""
    data = bytearray(batch)
    kind = chance.randrange(7)
    if kind == 0:
        del data[chance.randrange(len(data)) :]
    elif kind == 1:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == 2:
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 3:
        data[chance.randrange(61, len(data))] = chance.choice(BYTES)
    elif kind == 4:
        data[57:61] = chance.choice(COUNTS).to_bytes(4, "big")
        data[chance.randrange(61, len(data))] = chance.randrange(256)
    else:  # the length is put right, so that the damage lies inside
        at = chance.randrange(61, len(data))
        data[at : at + chance.randint(0, 6)] = chance.randbytes(chance.randint(0, 6))
        if kind == 6:
            del data[chance.randrange(61, len(data) + 1) :]
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
    return data


def check(data: bytearray) -> str:
    """Read ``data`` in every way there is; what has been read can be written again."""
    try:
        found = list(iter_headers(data))
        header = read_header(data)
        crc_is_valid(data, 0, header)
        records = decode_records(data, 0, header, max_bytes=MAX_BYTES)
    except CorruptRecordError:
        return "corrupt"
    assert found[0] == (0, header)
    assert len(records) == header.record_count
    for record in records:
        assert type(record) is Record
        assert record.key is None or type(record.key) is bytes
        assert record.value is None or type(record.value) is bytes
    if records and not header.has_delete_horizon and records[-1].offset <= header.last_offset:
        last = records[-1:]
        assert decode_records(rebuild_batch(header, last)) == last
    return "read"


def test_many_damaged_batches() -> None:
    chance = random.Random(20_240_229)
    batches = seeds()
    results: Counter[str] = Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(INPUTS):
        results[check(damaged(chance.choice(batches), chance))] += 1
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 100 * 1024
    assert results.total() == INPUTS
    # The damage is of the kind that teaches something: much of it is refused, and much gets through.
    assert results["corrupt"] > INPUTS // 2
    assert results["read"] > INPUTS // 10


def test_noise() -> None:
    chance = random.Random(7)
    header = encode_batch(ROWS)[:61]
    for _ in range(5000):
        data = header + chance.randbytes(chance.randrange(200))
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[22] = chance.randrange(8)
        data[57:61] = chance.randrange(12).to_bytes(4, "big")
        check(data)
        check(bytearray(chance.randbytes(chance.randrange(200))))
