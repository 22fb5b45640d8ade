"""Converts batches to an older format, for clients that know no newer one.

Kafka's ``RecordsUtil.downConvert``: control batches and headers are left out, offsets and codec stay. What is in the
older format already stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from ottla_protocol.errors import ProtocolError
from ottla_protocol.records.batch import MAGIC, NO_TIMESTAMP, BatchHeader, CorruptRecordError
from ottla_protocol.records.columns.decode import RecordColumns, decode_batches, decode_columns
from ottla_protocol.records.columns.messages import encode_message_columns
from ottla_protocol.records.compiled_messages import IS_COMPILED, body_as_messages, plain_batches
from ottla_protocol.records.compression import ZSTD
from ottla_protocol.records.message_set import decode_message_records, encode_messages, wrap_messages
from ottla_protocol.records.record import record_data

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

    ``batches`` are whole, with their positions in ``data``, one after the other. Records below ``first_offset`` are
    left out where each is a message of its own: some librdkafka versions rely on that. ``max_bytes`` limits each
    batch's decompressed size. ``pause`` is called after every thousand records that Python converts.

    Raises, after the pieces before it:
        UnconvertibleError: A batch is compressed with zstd.
        CorruptRecordError: A batch can't be decoded.
    """
    convert = _Conversion(data, magic, first_offset, max_bytes, pause)
    numbers = {position: number for number, (position, _) in enumerate(batches)}
    end = batches[-1][0] + batches[-1][1].size if batches else 0
    at = 0
    while at < len(batches):
        position, header = batches[at]
        at += 1
        if header.is_control:
            continue
        if header.codec == ZSTD:
            raise UnconvertibleError("batches compressed with zstd have no counterpart in older formats")
        if header.magic <= magic:
            yield bytes(data[position : position + header.size])
        elif header.magic != MAGIC:
            yield from convert.older(position, header)
        elif header.codec:
            yield from convert.compressed(position, header)
        else:
            converted, stop = plain_batches(data[:end], position, magic, first_offset)
            if stop != position:
                at = numbers.get(stop, len(batches))
                if converted:
                    yield converted
                continue
            # Irregular, or there is no compiled module.
            together = convert.alike(batches, at - 1)
            at += len(together) - 1
            yield from convert.plain(together)


@dataclass(eq=False, slots=True)
class _Conversion:
    """One conversion's data and options; see :func:`down_convert`."""

    _data: memoryview
    _magic: int
    _first_offset: int
    _max_bytes: int | None
    _pause: Callable[[], object] | None

    def alike(self, batches: Sequence[tuple[int, BatchHeader]], at: int) -> Sequence[tuple[int, BatchHeader]]:
        """The plain batches from number ``at`` on that can be decoded as one; at least the first of them."""
        first = batches[at][1]
        records = first.record_count
        for number in count(at + 1):
            if number == len(batches):
                return batches[at:]
            header = batches[number][1]
            records += header.record_count
            if (
                header.magic != MAGIC
                or header.codec
                or header.is_control
                or header.is_log_append_time != first.is_log_append_time
                or header.base_offset
                <= batches[number - 1][1].last_offset  # damaged: a search needs an order
                or records > _TOGETHER_RECORDS
            ):
                return batches[at:number]
        raise AssertionError

    def plain(self, batches: Sequence[tuple[int, BatchHeader]]) -> Iterator[bytes]:
        """Batches of format 2 without codec, with the same timestamp type."""
        try:
            columns = decode_batches(self._data, batches, max_bytes=self._max_bytes)
        except CorruptRecordError:
            if len(batches) == 1:
                raise
            # One at a time, as those before the corrupt one count.
            for each in batches:
                yield from self.plain([each])
            return
        yield from self._messages(columns, first_offset=self._first_offset)

    def compressed(self, position: int, header: BatchHeader) -> Iterator[bytes]:
        """A batch of format 2 with a codec becomes a wrapper."""
        found = None
        if IS_COMPILED:
            body = record_data(self._data, position, header, self._max_bytes)
            found = body_as_messages(body, header, self._magic)
        if found is None:
            columns = decode_columns(self._data, position, header, max_bytes=self._max_bytes)
            if not columns.count:
                return
            base = columns.offsets[0] if self._magic else 0
            messages = b"".join(self._messages(columns, base_offset=base))
            found = messages, columns.offsets[-1], max(NO_TIMESTAMP, max(columns.timestamps))
        if not found[0]:
            return
        yield wrap_messages(
            found[0],
            self._magic,
            codec=header.codec,
            last_offset=found[1],
            timestamp=found[2],
            log_append_time=header.is_log_append_time,
        )

    def older(self, position: int, header: BatchHeader) -> Iterator[bytes]:
        """A message of format 1, for format 0."""
        records = decode_message_records(self._data, position, header, max_bytes=self._max_bytes)
        if header.codec or records[0].offset >= self._first_offset:
            yield encode_messages(records, self._magic, codec=header.codec)

    def _messages(
        self, columns: RecordColumns, *, first_offset: int | None = None, base_offset: int = 0
    ) -> Iterator[bytes]:
        for piece in encode_message_columns(
            columns,
            self._magic,
            first_offset=first_offset,
            base_offset=base_offset,
            log_append_time=columns.header.is_log_append_time,
        ):
            yield piece
            if self._pause is not None:
                self._pause()
