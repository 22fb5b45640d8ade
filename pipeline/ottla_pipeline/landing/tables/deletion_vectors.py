"""Delta's deletion vectors: which rows of a data file other programs have deleted.

The format: Delta's protocol, "Deletion Vector Descriptor Schema" and "Deletion Vector Format", and Roaring's
specification. All integers of the bitmaps are little-endian; the length and checksum around a vector in a file are
big-endian.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottla_pipeline.landing.errors import LandingError

Rows = NDArray[np.int64]

_MAGIC = 1681511377
_NO_RUNS, _RUNS = 12346, 12347
_MOST_BYTES = 1 << 30
_MOST_KEY = (1 << 31) - 1
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
# The same alphabet in another order, with the characters that Python's base 85 has.
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = str.maketrans(_Z85, _B85)


class BadVector(LandingError):
    """A deletion vector can't be read."""


@dataclass(frozen=True)
class Descriptor:
    """Where a deletion vector is: in the log itself, or in a file."""

    storage: str
    where: str
    offset: int | None
    size: int
    cardinality: int

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Descriptor:
        """Raises BadVector."""
        names = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
        found: list[Any] = [data.get(name) for name in names]
        storage, where, offset, size, cardinality = found
        numbers = (0 if offset is None else offset, size, cardinality)
        is_sound = isinstance(storage, str) and isinstance(where, str)
        if not is_sound or not all(isinstance(one, int) and one >= 0 for one in numbers):
            raise BadVector(f"the log has a deletion vector that can't be read: {str(data)[:200]}")
        return cls(*found)

    def to_json(self) -> dict[str, Any]:
        found = {"storageType": self.storage, "pathOrInlineDv": self.where, "offset": self.offset}
        found |= {"sizeInBytes": self.size, "cardinality": self.cardinality}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def unique_id(self) -> str:
        """Tells the vectors of a file apart, as in Delta's protocol."""
        return f"{self.storage}{self.where}" + (f"@{self.offset}" if self.offset is not None else "")

    @property
    def path(self) -> str | None:
        """Its file, below the table's root or absolute; None if the vector is in the log itself."""
        if self.storage == "i":
            return None
        if self.storage == "p":
            return self.where
        if self.storage != "u" or len(self.where) < 20:
            raise BadVector(f"its place is {self.storage}{self.where}")
        folder, name = self.where[:-20], self.where[-20:]
        return f"{folder}/" * bool(folder) + f"deletion_vector_{uuid.UUID(bytes=_z85(name))}.bin"

    def rows(self, of: int, file: bytes | None = None) -> Rows:
        """The positions of the deleted rows, in order, of a data file with so many rows.

        ``file``: what :attr:`path` has from :attr:`offset` on. Raises BadVector.
        """
        if self.cardinality > of:
            raise BadVector(f"it deletes {self.cardinality} rows of a file with {of}")
        try:
            if file is None:
                found = _positions(_z85(self.where)[: self.size], self.cardinality)
            else:
                (size,) = struct.unpack_from(">I", file)
                data, crc = file[4 : 4 + size], struct.unpack_from(">I", file, 4 + size)
                if size != self.size or zlib.crc32(data) != crc[0]:
                    raise BadVector("its length or checksum is another")
                found = _positions(data, self.cardinality)
        except (struct.error, ValueError) as error:
            raise BadVector(f"it can't be decoded: {error}") from error
        if len(found) != self.cardinality:
            raise BadVector(f"it has {len(found)} rows, and the log says {self.cardinality}")
        if len(found) and (found[-1] >= of or not (found[1:] > found[:-1]).all()):
            raise BadVector(f"it deletes row {found.max()} of a file with {of}, or one twice")
        return found

    @property
    def bytes_in_file(self) -> int:
        """How much of its file to read from the offset on. Raises BadVector if that is too much."""
        if self.size > _MOST_BYTES:
            raise BadVector(f"it has {self.size} bytes")
        return self.size + 8


def _z85(text: str) -> bytes:
    """Decode ZeroMQ's base 85, which has another alphabet than Python's. Raises BadVector."""
    try:
        return base64.b85decode(text.translate(_TO_B85))
    except ValueError as error:
        raise BadVector(f"its place isn't in base 85: {text[:100]!r}") from error


def _positions(data: bytes, most: int) -> Rows:
    """Of a RoaringBitmapArray in its portable form: 32-bit bitmaps, each below its key.

    Runs make many rows of few bytes, so they are counted first, up to ``most``.
    """
    magic, count = struct.unpack_from("<iq", data)
    if magic != _MAGIC:
        raise BadVector(f"its magic number is {magic}")
    at = 12
    found: list[Rows] = []
    for _ in range(count):
        (key,) = struct.unpack_from("<I", data, at)
        if key > _MOST_KEY:
            raise BadVector(f"a bitmap has the key {key}")
        below, at = _bitmap(data, at + 4, most)
        found.append(below + (key << 32))
        most -= len(below)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _bitmap(data: bytes, at: int, most: int) -> tuple[Rows, int]:
    """A 32-bit Roaring bitmap at ``at``; returns its values, at most so many, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    with_runs = cookie & 0xFFFF == _RUNS
    if with_runs:
        count, at = (cookie >> 16) + 1, at + 4
        flags = np.unpackbits(
            np.frombuffer(data, np.uint8, (count + 7) // 8, at), bitorder="little", count=count
        )
        at += (count + 7) // 8
    elif cookie == _NO_RUNS:
        (count,), at = struct.unpack_from("<I", data, at + 4), at + 8
        if count > 1 << 16:
            raise BadVector(f"it has {count} containers")
        flags = np.zeros(count, np.uint8)
    else:
        raise BadVector(f"a bitmap begins with {cookie}")
    heads = np.frombuffer(data, "<u2", 2 * count, at).astype(np.int64).reshape(count, 2)
    at += 4 * count
    if int(heads[:, 1].sum()) + count > most:
        raise BadVector(f"it has more rows than the log says, {most} in a bitmap")
    if not with_runs or count >= 4:
        at += 4 * count  # The containers' offsets: they are read one after the other.
    found: list[Rows] = []
    for (key, fewer), run in zip(heads.tolist(), flags.tolist(), strict=True):
        values, at = _container(data, at, fewer + 1, bool(run))
        found.append(values + (key << 16))
    return np.concatenate(found) if found else np.empty(0, np.int64), at


def _container(data: bytes, at: int, cardinality: int, runs: bool) -> tuple[Rows, int]:
    if runs:
        (count,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * count, at + 2).astype(np.int64).reshape(count, 2)
        if int(pairs[:, 1].sum()) + count != cardinality:
            raise BadVector(f"runs don't have {cardinality} rows")
        pieces = [np.arange(start, start + more + 1) for start, more in pairs.tolist()]
        return np.concatenate(pieces) if pieces else np.empty(0, np.int64), at + 2 + 4 * count
    if cardinality > 4096:
        bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, at), bitorder="little")
        found = np.flatnonzero(bits).astype(np.int64)
        if len(found) != cardinality:
            raise BadVector(f"a bitmap has {len(found)} rows in place of {cardinality}")
        return found, at + 8192
    return np.frombuffer(data, "<u2", cardinality, at).astype(np.int64), at + 2 * cardinality
