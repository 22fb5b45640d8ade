"""Damage that a crash may leave at the end of a file, written while the broker is down.

Only behind the last byte: nothing acknowledged may be touched, as the file system keeps what was written before.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from ottla_protocol.records.record import encode_batch


def active_segments(folder: Path, topic: str) -> list[Path]:
    """The last segment of each of the topic's partitions."""
    return [
        max(one.glob("*.log")) for one in folder.glob(f"{topic}-[0-9]*") if not one.name.endswith("-delete")
    ]


def batch(chance: random.Random) -> bytes:
    values = [
        (int(time.time() * 1000), b"never", b"acknowledged" * 5, ()) for _ in range(chance.randrange(1, 9))
    ]
    return bytes(encode_batch(values, base_offset=chance.choice([0, 10**6, 2**40])))


def append_damage(path: Path, chance: random.Random) -> str:
    """Append one kind of damage, and return its name."""
    kind = chance.choice(["torn batch", "garbage", "zeros", "batch with a wrong checksum", "a few bytes"])
    whole = batch(chance)
    if kind == "torn batch":
        data = whole[: chance.randrange(1, len(whole))]
    elif kind == "garbage":
        data = chance.randbytes(chance.randrange(1, 20_000))
    elif kind == "zeros":
        data = bytes(chance.choice([1, 12, 61, 4096, 100_000]))
    elif kind == "batch with a wrong checksum":
        data = whole[:17] + bytes(4) + whole[21:]
    else:
        data = whole[: chance.randrange(1, 12)]
    with path.open("ab") as file:
        file.write(data)
    return kind
