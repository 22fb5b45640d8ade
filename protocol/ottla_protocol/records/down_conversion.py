"""Converts batches to an older format, for clients that know no newer one.

Kafka's ``RecordsUtil.downConvert``: control batches and headers are left out, offsets and codec stay. What is in the
older format already stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ottla_protocol.errors import ProtocolError
from ottla_protocol.records.batch import NO_TIMESTAMP, BatchHeader, CorruptRecordError
from ottla_protocol.records.columns.decode import decode_batches, decode_columns
from ottla_protocol.records.columns.messages import encode_message_columns
from ottla_protocol.records.compression import ZSTD
from ottla_protocol.records.formats import CURRENT_MAGIC
from ottla_protocol.records.message_set import decode_message_records, encode_messages, wrap_messages

_TOGETHER_RECORDS: Final = 4096


class UnconvertibleError(ProtocolError):
    """Batches compressed with zstd have no counterpart in older formats."""


def down_convert(
    data: memoryview,
    batches: Sequence[tuple[int, BatchHeader]],
    magic: int,
    first_offset: int,
    *,
    max_bytes: int | None = None,
    pause: Callable[[], object] | None = None,
) -> Iterator[bytes]:
    """Yield batches and messages of any format as message sets of format ``magic``, 0 or 1, in pieces of any size.

    ``batches`` are whole, with their positions in ``data``. Records below ``first_offset`` are left out where each is a
    message of its own: some librdkafka versions rely on that. ``max_bytes`` limits each batch's decompressed size.
    ``pause`` is called after every few records.

    Raises, after the pieces before it:
        UnconvertibleError: A batch is compressed with zstd.
        CorruptRecordError: A batch can't be decoded.
    """
    together: list[tuple[int, BatchHeader]] = []
    records = 0
    for position, header in batches:
        is_plain = header.magic == CURRENT_MAGIC and not header.codec and not header.is_control
        if together and (
            not is_plain
            or header.is_log_append_time != together[0][1].is_log_append_time
            or records + header.record_count > _TOGETHER_RECORDS
        ):
            yield from _plain(data, together, magic, first_offset, max_bytes, pause)
            together.clear()
            records = 0
        if is_plain:
            together.append((position, header))
            records += header.record_count
        elif not header.is_control:
            if header.codec == ZSTD:
                raise UnconvertibleError("batches compressed with zstd have no counterpart in older formats")
            if header.magic <= magic:
                yield bytes(data[position : position + header.size])
            elif header.magic == CURRENT_MAGIC:
                yield from _compressed(data, position, header, magic, max_bytes, pause)
            else:
                yield from _older(data, position, header, magic, first_offset, max_bytes)
    if together:
        yield from _plain(data, together, magic, first_offset, max_bytes, pause)


def _plain(
    data: memoryview,
    batches: Sequence[tuple[int, BatchHeader]],
    magic: int,
    first_offset: int,
    max_bytes: int | None,
    pause: Callable[[], object] | None,
) -> Iterator[bytes]:
    """Batches of format 2 without codec, with the same timestamp type."""
    try:
        columns = decode_batches(data, batches, max_bytes=max_bytes)
    except CorruptRecordError:
        if len(batches) == 1:
            raise
        # One at a time, as those before the corrupt one count.
        for each in batches:
            yield from _plain(data, [each], magic, first_offset, max_bytes, pause)
        return
    for piece in encode_message_columns(
        columns, magic, first_offset=first_offset, log_append_time=columns.header.is_log_append_time
    ):
        yield piece
        if pause is not None:
            pause()


def _compressed(
    data: memoryview,
    position: int,
    header: BatchHeader,
    magic: int,
    max_bytes: int | None,
    pause: Callable[[], object] | None,
) -> Iterator[bytes]:
    """A batch of format 2 with a codec."""
    columns = decode_columns(data, position, header, max_bytes=max_bytes)
    if not columns.count:
        return
    offsets = columns.offsets
    pieces = []
    for piece in encode_message_columns(
        columns,
        magic,
        base_offset=offsets[0] if magic else 0,
        log_append_time=header.is_log_append_time,
    ):
        pieces.append(piece)
        if pause is not None:
            pause()
    yield wrap_messages(
        b"".join(pieces),
        magic,
        codec=header.codec,
        last_offset=offsets[-1],
        timestamp=max(NO_TIMESTAMP, max(columns.timestamps)),
        log_append_time=header.is_log_append_time,
    )


def _older(
    data: memoryview,
    position: int,
    header: BatchHeader,
    magic: int,
    first_offset: int,
    max_bytes: int | None,
) -> Iterator[bytes]:
    """A message of format 1, for format 0."""
    records = decode_message_records(data, position, header, max_bytes=max_bytes)
    if header.codec or records[0].offset >= first_offset:
        yield encode_messages(records, magic, codec=header.codec)
