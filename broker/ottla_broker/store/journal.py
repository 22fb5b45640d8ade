"""The file of the embedded store: a journal of all changes since the empty tree.

    file   = magic frame*
    magic  = "OTTLA-STORE-1\\n"
    frame  = length: uint32   of the payload
             crc: uint32      CRC-32C of number and payload
             number: uint64   1 for the first frame, then counting up
             payload: change*
    change = kind: uint8      1 put, 2 delete
             path: uint16 length, UTF-8
             put only: version: int32, sequence: uint32, data: uint32 length, bytes

All integers are big-endian. A *put* sets the whole node, so that replaying is the same for new and changed nodes. The
changes of a frame become durable together: one write and one fsync, and the next frame is written only after that. So
an unclean stop can damage only the last frame, which was never acknowledged and is cut off. A crash can't cause damage
before the last frame, so such a file is refused.

Compaction writes a new journal with one put per node next to the old one, flushes it and renames it over the old one.
It ends with an empty frame, so that none of its nodes is ever in the last frame.

These functions may run on any thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ottla_broker.store.api import StoreError
from ottla_protocol.records.crc import crc32c

MAGIC: Final = b"OTTLA-STORE-1\n"
FRAME: Final = Struct(">IIQ")
_NUMBER = Struct(">Q")
_PATH = Struct(">BH")
_VALUE = Struct(">iII")

PUT: Final = 1
DELETE: Final = 2

# Nodes per frame of a compacted journal.
_CHUNK = 1000


class Change(NamedTuple):
    """A node's new content; ``data`` is ``None`` for a deleted node."""

    path: str
    data: bytes | None
    version: int = 0
    sequence: int = 0


class StoreDamagedError(StoreError):
    """The journal is damaged in a way that a crash can't cause."""


def encode_changes(changes: Iterable[Change]) -> bytes:
    parts: list[bytes] = []
    for path, data, version, sequence in changes:
        name = path.encode()
        if data is None:
            parts += (_PATH.pack(DELETE, len(name)), name)
        else:
            parts += (_PATH.pack(PUT, len(name)), name, _VALUE.pack(version, sequence, len(data)), data)
    return b"".join(parts)


def encode_frame(number: int, payload: bytes) -> bytes:
    crc = crc32c(payload, crc32c(_NUMBER.pack(number)))
    return FRAME.pack(len(payload), crc, number) + payload


def decode_changes(payload: bytes) -> Iterator[Change]:
    """The changes in a frame whose CRC has been checked. Raises ValueError for an invalid change."""
    position = 0
    end = len(payload)
    try:
        while position < end:
            kind, size = _PATH.unpack_from(payload, position)
            position += _PATH.size
            path = payload[position : position + size].decode()
            position += size
            if kind == PUT:
                version, sequence, length = _VALUE.unpack_from(payload, position)
                position += _VALUE.size
                data = payload[position : position + length]
                position += length
                if position > end:
                    raise ValueError("a change extends past its frame")
                yield Change(path, data, version, sequence)
            elif kind == DELETE:
                yield Change(path, None)
            else:
                raise ValueError(f"unknown kind of change {kind}")
    except StructError as error:
        raise ValueError("a change extends past its frame") from error


class Loaded(NamedTuple):
    """A journal's content: payloads in order, the last frame's number, and the next frame's position."""

    payloads: list[bytes]
    number: int
    end: int
    cut: int


def load(path: Path) -> Loaded:
    """Read a journal without its torn last frame (``cut`` bytes), which :func:`open_for_append` truncates.

    Raises StoreDamagedError: not a journal, or damaged before its last frame.
    """
    data = path.read_bytes() if path.exists() else b""
    if len(data) <= len(MAGIC) and data != MAGIC and MAGIC.startswith(data.rstrip(b"\0")):
        # A power failure may keep a file's size and lose its bytes.
        return Loaded([], 0, 0, len(data))
    if not data.startswith(MAGIC):
        raise StoreDamagedError(f"{path}: is not a store's journal; move it away or restore it from a backup")
    payloads: list[bytes] = []
    number = 0
    position = len(MAGIC)
    while position < len(data):
        payload = _frame_at(data, position, number + 1)
        if payload is None:
            _check_torn(path, data, position, number + 1)
            break
        payloads.append(payload)
        number += 1
        position += FRAME.size + len(payload)
    return Loaded(payloads, number, position, len(data) - position)


def _frame_at(data: bytes, position: int, wanted: int) -> bytes | None:
    """The payload of the frame at ``position`` if it is complete, valid and has the number ``wanted``."""
    if len(data) - position < FRAME.size:
        return None
    length, crc, number = FRAME.unpack_from(data, position)
    start = position + FRAME.size
    payload = data[start : start + length]
    if len(payload) < length or number != wanted:
        return None
    if crc32c(payload, crc32c(_NUMBER.pack(number))) != crc:
        return None
    return payload


def _check_torn(path: Path, data: bytes, position: int, bad: int) -> None:
    """Distinguish the torn end after a crash from damage, which has an intact frame after it.

    Raises StoreDamagedError: one of the two frames after the one numbered ``bad`` is intact.
    """
    for number in (bad + 1, bad + 2):
        # Search for the number's eight bytes, because the bad frame's length can't be trusted.
        wanted = _NUMBER.pack(number)
        found = data.find(wanted, position + 8)
        while found >= 0:
            if _frame_at(data, found - 8, number) is not None:
                raise StoreDamagedError(
                    f"{path}: damaged at byte {position}, with intact entries after it; restore it"
                    " from a backup"
                )
            found = data.find(wanted, found + 1)


def open_for_append(path: Path, loaded: Loaded) -> int:
    """Open the journal, truncated to its last complete frame and durable. Returns the file descriptor."""
    new = loaded.end == 0
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if loaded.cut:
            os.ftruncate(fd, loaded.end)
        if new:
            os.pwrite(fd, MAGIC, 0)
        if new or loaded.cut:
            os.fsync(fd)
        if new:
            sync_folder(path.parent)
    except OSError:
        os.close(fd)
        raise
    return fd


def append(fd: int, position: int, frame: bytes) -> None:
    """Write a frame at the end and make it durable.

    Raises OSError: the write or the flush failed; :func:`cut` has to follow.
    """
    _write(fd, frame, position)
    os.fdatasync(fd)


def cut(fd: int, position: int) -> None:
    """Truncate the journal to ``position``. Raises OSError."""
    os.ftruncate(fd, position)
    os.fsync(fd)


def _write(fd: int, data: bytes, position: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, position)
        position += written
        rest = rest[written:]


def write_compacted(path: Path, nodes: Iterable[Change]) -> tuple[Path, int, int, int]:
    """Write a durable journal with only these nodes next to the one at ``path``.

    Returns its path, to be renamed to ``path``, its descriptor, its size and its last frame's number.

    Raises OSError: it could not be written.
    """
    parts = [MAGIC]
    number = 0
    rest = iter(nodes)
    while chunk := list(islice(rest, _CHUNK)):
        number += 1
        parts.append(encode_frame(number, encode_changes(chunk)))
    parts.append(encode_frame(number + 1, b""))
    data = b"".join(parts)
    beside = path.with_name(path.name + ".new")
    fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        _write(fd, data, 0)
        os.fsync(fd)
    except OSError:
        os.close(fd)
        raise
    return beside, fd, len(data), number + 1


def replace(beside: Path, path: Path) -> None:
    """Replace the old journal with a compacted one. Raises OSError."""
    os.rename(beside, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
