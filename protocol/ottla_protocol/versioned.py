"""Data that carries its own version: an int16 version, then the body in that version.

Group records, transaction records and the classic consumers' metadata are written so.
"""

from __future__ import annotations

from typing import TypeVar

from .errors import ProtocolError
from .primitives import Buffer
from .schema import Message

_M = TypeVar("_M", bound=Message)


def encode_versioned(message: Message, version: int) -> bytes:
    """``version`` and the message's bytes in it; errors as ``Message.encode``."""
    body = message.encode(version)
    return version.to_bytes(2, "big") + body


def peek_version(data: Buffer) -> int:
    """The version that ``data`` starts with. Raises ProtocolError where there are not even two bytes."""
    if len(data) < 2:
        raise ProtocolError(f"a version is two bytes, and there are {len(data)}")
    return int.from_bytes(data[:2], "big", signed=True)


def decode_versioned(cls: type[_M], data: Buffer, *, tolerate_newer: bool = False) -> _M:
    """The message in ``data``.

    ``tolerate_newer`` reads a version that is not known yet as the last one that is, for formats that only
    ever grow at their end. Raises ProtocolError for other unknown versions, and for bytes that are not such
    a message.
    """
    version = peek_version(data)
    if tolerate_newer:
        version = min(version, cls.VERSIONS[1])
    return cls.decode(data, version, 2)
