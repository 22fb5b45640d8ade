"""Writes a batch again, in pieces: with offset deltas 0, 1, 2 …, or in another compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_protocol.records.batch import CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD, write_crc, write_header
from ottla_protocol.records.compression import compressor
from ottla_protocol.records.walk import body_parts, renumbering, run_steps, steps_through

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from ottla_protocol.records.batch import BatchHeader


class RepackedTooLargeError(Exception):
    """The batch would exceed the caller's limit."""


def repack(
    batch: Buffer,
    header: BatchHeader,
    codec: int,
    level: int | None = None,
    *,
    renumber: bool,
    max_timestamp: int,
    max_bytes: int,
    max_body_bytes: int | None = None,
    charge: Callable[[int], object] | None = None,
    pause: Callable[[], object] | None = None,
) -> tuple[bytearray, BatchHeader]:
    """The batch in another compression, and its own header; with ``renumber``, its records get new offset deltas.

    A walk has found its records fine. ``pause`` is called now and then, and ``charge`` as by :func:`.body_parts`.
    Raises RepackedTooLargeError above ``max_bytes``, LocalProtocolError for an unknown codec or level,
    CorruptRecordError for data that can't be decompressed, DecompressedTooLargeError above ``max_body_bytes``.
    """
    begin, packer = compressor(codec, level)
    packed = bytearray(HEADER_SIZE) + begin
    rewritten = renumbering() if renumber else _as_it_is

    def add(data: Buffer, start: int, end: int) -> None:
        packed.extend(packer.compress(rewritten(data, start, end)))
        if len(packed) > max_bytes:
            raise RepackedTooLargeError

    run_steps(steps_through(body_parts(batch, header, max_body_bytes, charge=charge), add), pause)
    packed += packer.flush()
    if len(packed) > max_bytes:
        raise RepackedTooLargeError
    header = header._replace(
        batch_length=len(packed) - LOG_OVERHEAD,
        attributes=header.attributes & ~CODEC_MASK | codec,
        max_timestamp=max_timestamp,
    )
    write_header(packed, 0, header)
    return packed, header._replace(crc=write_crc(packed, 0, len(packed)))


def _as_it_is(data: Buffer, start: int, end: int) -> bytes:
    return bytes(memoryview(data)[start:end])
