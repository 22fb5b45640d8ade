"""Kafka's small text files: offset checkpoints of a data folder, and the id of a partition's topic.

An offset checkpoint (``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint``,
``replication-offset-checkpoint``)::

    0                            version
    2                            number of entries
    flights 0 336776             topic partition offset
    flights 1 0

``partition.metadata``, without a final line end::

    version: 0
    topic_id: QHPLfHZyTm-jEqK4CA3cTg        16 bytes in URL-safe base64 without padding
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Final

from ottla_broker.log.files import CorruptFileError, Files

_VERSION: Final = "0"
_UUID_BYTES: Final = 16


def encode_lines(lines: list[str]) -> bytes:
    """Version, count and lines."""
    return "\n".join((_VERSION, str(len(lines)), *lines, "")).encode()


def decode_lines(data: bytes, path: str, fields: int) -> list[list[str]]:
    """The entries, split into ``fields`` each; an empty file has none. Raises CorruptFileError."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptFileError(f"{path} is not text") from None
    if len(lines) < 2:
        return []
    if lines[0] != _VERSION:
        raise CorruptFileError(f"{path} has version {lines[0][:20]!r}, expected {_VERSION}")
    entries = [line.split(" ") for line in lines[2:]]
    if lines[1] != str(len(entries)):
        raise CorruptFileError(f"{path} announces {lines[1][:20]!r} entries and has {len(entries)}")
    for entry in entries:
        if len(entry) != fields:
            raise CorruptFileError(f"{path} has a line of {len(entry)} fields, expected {fields}")
    return entries


def encode_offsets(offsets: Mapping[tuple[str, int], int] | Iterable[tuple[tuple[str, int], int]]) -> bytes:
    items = offsets.items() if isinstance(offsets, Mapping) else offsets
    return encode_lines([f"{topic} {partition} {offset}" for (topic, partition), offset in items])


def decode_offsets(data: bytes, path: str) -> dict[tuple[str, int], int]:
    """The offsets of a checkpoint. Raises CorruptFileError."""
    try:
        return {
            (topic, int(number)): int(offset) for topic, number, offset in decode_lines(data, path, fields=3)
        }
    except ValueError:
        raise CorruptFileError(f"{path} has a line that is not topic, partition and offset") from None


def encode_topic_id(topic_id: bytes) -> bytes:
    """The bytes of ``partition.metadata``."""
    return b"version: 0\ntopic_id: " + urlsafe_b64encode(topic_id).rstrip(b"=")


def decode_topic_id(data: bytes, path: str) -> bytes:
    """The topic id in ``partition.metadata``. Raises CorruptFileError."""
    values = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, colon, value = line.partition(": ")
        if colon:
            values[key] = value.strip()
    text = values.get("topic_id", "")
    try:
        topic_id = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        topic_id = b""
    if values.get("version") != _VERSION or len(topic_id) != _UUID_BYTES:
        raise CorruptFileError(f"{path} does not hold a topic id in version {_VERSION}")
    return topic_id


def read_topic_id(files: Files, path: str) -> bytes:
    """The topic id of a folder; zeros without a file, or with one that a power failure emptied.

    Raises CorruptFileError, OSError.
    """
    try:
        data = files.read_all(path)
    except FileNotFoundError:
        return bytes(_UUID_BYTES)
    return decode_topic_id(data, path) if data.strip(b"\0") else bytes(_UUID_BYTES)
