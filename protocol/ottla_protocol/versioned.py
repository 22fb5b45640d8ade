"""Data with its own version: an int16 version, then the body in that version.

Group records, transaction records and the metadata of classic consumers have this form.
"""

from __future__ import annotations

from typing import TypeVar

from .errors import ProtocolError
from .primitives import Buffer
from .schema import Message

_M = TypeVar("_M", bound=Message)


def encode_versioned(message: Message, version: int) -> bytes:
    """Encode ``version`` and the message; raises like ``Message.encode``."""
    body = message.encode(version)
    return version.to_bytes(2, "big") + body


def peek_version(data: Buffer) -> int:
    """Return the version at the start of ``data``. Raises ProtocolError for fewer than two bytes."""
    if len(data) < 2:
        raise ProtocolError(f"a version is two bytes, and there are {len(data)}")
    return int.from_bytes(data[:2], "big", signed=True)


def decode_versioned(cls: type[_M], data: Buffer, *, tolerate_newer: bool = False) -> _M:
    """Decode the message in ``data``.

    ``tolerate_newer`` reads a newer version as the newest known one, for formats that only grow at their end. Raises
    ProtocolError for other unknown versions, and for bytes that are not such a message.
    """
    version = peek_version(data)
    if tolerate_newer:
        version = min(version, cls.VERSIONS[1])
    return cls.decode(data, version, 2)
