"""Conversions between message formats in C, without the interpreter's lock: about 0.1 µs for a record of 100 bytes.

The compiled module ``_records`` handles what is regular, and returns where it isn't. Then, and where the module is
missing, ``down_conversion`` and ``message_set`` do the same in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla_protocol.compiled import load_engine
from ottla_protocol.records.batch import BatchHeader

if TYPE_CHECKING:
    from typing_extensions import Buffer

_compiled: Any = load_engine()
IS_COMPILED: Final = _compiled is not None


def plain_batches(data: Buffer, start: int, magic: int, first_offset: int) -> tuple[bytes, int]:
    """The batches of format 2 without codec from ``start`` on as messages, and where another kind or the end is.

    Control batches are of another kind; so is a batch that is irregular. Records below ``first_offset`` are left out.
    """
    if _compiled is None:
        return b"", start
    converted: tuple[bytes, int] = _compiled.plain_batches(data, start, magic, first_offset)
    return converted


def body_as_messages(data: Buffer, header: BatchHeader, magic: int) -> tuple[bytes, int, int] | None:
    """A batch's records, decompressed, as the messages of a wrapper; None if irregular.

    Also returns the last offset, and the largest timestamp, at least -1.
    """
    if _compiled is None:
        return None
    converted: tuple[bytes, int, int] | None = _compiled.body_as_messages(
        data,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp,
        header.is_log_append_time,
        magic,
        magic > 0,
    )
    return converted


class MessagesAsRecords(NamedTuple):
    """A message set as the records of a batch.

    ``body`` has room for the batch's header. ``last_offset`` is what the last message says. ``end``: what follows is
    a part of a message, or nothing.
    """

    body: bytearray
    record_count: int
    base_timestamp: int
    max_timestamp: int
    last_offset: int
    end: int


def messages_as_records(data: Buffer, magic: int, refused: int) -> MessagesAsRecords | None:
    """The whole messages in ``data`` as records of format 2; None if any is damaged or irregular.

    None also for one of another format, with a negative timestamp, or with one of the attributes ``refused``.
    """
    if _compiled is None:
        return None
    found = _compiled.messages_as_records(data, magic, refused)
    return None if found is None else MessagesAsRecords._make(found)
