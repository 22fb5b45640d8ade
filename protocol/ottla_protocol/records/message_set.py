"""Message sets: records as they were before record batches, in the formats 0 and 1.

``read_message`` gives a message the same header as a batch, so that code which only looks at headers handles all
formats alike; ``ottla_protocol.records.formats`` chooses by the magic byte. Source: Kafka's ``LegacyRecord``,
``AbstractLegacyRecordBatch`` and ``MemoryRecordsBuilder`` (KIP-31 for relative offsets, KIP-32 for timestamps).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecordError,
)
from ottla_protocol.records.compression import (
    LZ4,
    NONE,
    ZSTD,
    DecompressedTooLargeError,
    compress,
    decompress,
)
from ottla_protocol.records.record import Record
from ottla_protocol.records.xxh32 import xxh32

if TYPE_CHECKING:
    from typing_extensions import Buffer

# A message set is messages, one after the other, and nothing else. A message, all numbers big-endian:
#
#   at     size  field
#    0        8  offset      int64
#    8        4  size        int32   bytes after this field
#   12        4  crc         uint32  CRC-32 of everything behind it
#   16        1  magic       int8    0 or 1
#   17        1  attributes  int8    bits 0-2 codec (0 none, 1 gzip, 2 snappy, 3 lz4), 3 log append time (format 1)
#   18        8  timestamp   int64   ms; only in format 1
#   18|26     4  key_size    int32   -1: no key
#                key
#             4  value_size  int32   -1: no value
#                value
#
# Compression: the value of a message with a codec, the wrapper, is a message set of the same format, compressed as one.
# Its messages aren't compressed themselves. The wrapper has no key, and the offset of the last message within.
#
#   format 0  messages in a wrapper have their own offsets
#   format 1  their offsets count from the first one's, so that a broker can assign offsets without compressing again:
#             an offset is the wrapper's - the last one within + its own. The wrapper's timestamp is the greatest one
#             within; or, with bit 3, the time of the append, which holds for all of them
#
# A wrapper of format 1 with offset 0 comes from librdkafka, and its messages count from 0.
#
# lz4: Kafka's clients and brokers of format 0 computed the checksum of the frame's header over its four magic bytes as
# well. So frames in format 0 are written that way, and read with any checksum. Format 1 has correct frames.
FORMATS: Final = (0, 1)
MIN_SIZE_FIELD: Final = 14
"""The size of an empty message of format 0, without offset and size."""
OVERHEAD: Final = (26, 34)
"""The bytes of a message without key and value, by format."""

_MIN_SIZES: Final = tuple(overhead - LOG_OVERHEAD for overhead in OVERHEAD)
_CRC_AT: Final = 12
_MAGIC_AT: Final = 16
_HEADER = Struct(">qiIbB")
_HEADERS: Final = (Struct(">qiIbBi"), Struct(">qiIbBqi"))
"""Everything up to the key's size."""
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_UINT32 = Struct(">I")
_TIMESTAMP_AT: Final = 18

UNKNOWN_COUNT: Final = -1
"""The record count of a wrapper, which only decompressing it would tell."""


class InvalidMessageError(CorruptRecordError):
    """A message is undamaged, but breaks a rule of its format; Kafka answers such ones with INVALID_RECORD."""


def read_message(buf: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the message at ``position``, without what a wrapper holds.

    ``base_offset`` and ``last_offset`` are both the message's own offset, which is a wrapper's last; ``record_count``
    is 1, or UNKNOWN_COUNT in a wrapper. Timestamps are -1 in format 0. Attributes without a meaning are left out.

    Raises CorruptRecordError if the bytes end within the header, or the size is impossible.
    """
    try:
        offset, size, crc, magic, attributes = _HEADER.unpack_from(buf, position)
        if magic not in FORMATS:
            raise CorruptRecordError(f"message at byte {position} has the format (magic) {magic}, not 0 or 1")
        timestamp = _INT64.unpack_from(buf, position + _TIMESTAMP_AT)[0] if magic else NO_TIMESTAMP
    except StructError:
        there = max(0, memoryview(buf).nbytes - position)
        raise CorruptRecordError(
            f"message at byte {position} is cut off in its header ({there} bytes)"
        ) from None
    if size < _MIN_SIZES[magic]:
        raise CorruptRecordError(
            f"message at byte {position} has a size of {size}, the least is {_MIN_SIZES[magic]}"
        )
    codec = attributes & CODEC_MASK
    return BatchHeader(
        base_offset=offset,
        batch_length=size,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes & (CODEC_MASK | LOG_APPEND_TIME) if magic else codec,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=UNKNOWN_COUNT if codec else 1,
    )


def message_crc_is_valid(buf: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the message is complete and matches its CRC-32."""
    end = position + header.batch_length + LOG_OVERHEAD
    view = memoryview(buf)
    return view.nbytes >= end and crc32(view[position + _MAGIC_AT : end]) == header.crc


class Messages(NamedTuple):
    """Messages as columns. Timestamps are -1 in format 0."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


STEP: Final = 256
"""Messages that are decoded between two calls of ``pause``."""


def decode_messages(
    buf: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    max_bytes: int | None = None,
    strict: bool = False,
    pause: Callable[[], object] | None = None,
) -> Messages:
    """Decode the message at ``position``, or those in it if it is a wrapper.

    Offsets are absolute, and timestamps are those that consumers see. ``header`` saves reading it again. ``max_bytes``
    limits the decompressed size (256 MiB by default). The message's own CRC isn't checked. ``strict`` checks what
    Kafka checks when a producer sends them: the CRC of each message in a wrapper, and that its format is the wrapper's.
    ``pause`` is called after every 256 messages, so that a thread can let others run.

    Raises:
        InvalidMessageError: The message breaks a rule of its format, or can't be decompressed.
        DecompressedTooLargeError: It exceeds ``max_bytes``.
        CorruptRecordError: It is cut off, or a size or a checksum is wrong.
    """
    if header is None:
        header = read_message(buf, position)
    end = position + header.size
    data = bytes(memoryview(buf)[position:end])
    if len(data) < header.size:
        raise CorruptRecordError(f"message of {header.size} bytes is cut off after {len(data)}")
    codec = header.codec
    outer = Messages([], [], [], [])
    deque(_decode(data, outer, None), maxlen=0)
    if codec == NONE:
        return outer
    if codec >= ZSTD:
        raise InvalidMessageError(f"a message of format {header.magic} is compressed with codec {codec}")
    value = outer.values[0]
    if value is None:
        raise InvalidMessageError("a wrapper has no value")
    inner = Messages([], [], [], [])
    try:
        messages = decompress_set(codec, value, header.magic, max_bytes)
    except DecompressedTooLargeError:
        raise
    except CorruptRecordError as error:
        raise InvalidMessageError(str(error)) from None
    for _ in _decode(messages, inner, header.magic, strict=strict):
        if pause is not None:
            pause()
    offsets = inner.offsets
    if not offsets:
        raise InvalidMessageError("a wrapper has no messages in it")
    if header.magic == 0:
        return inner
    last = header.base_offset
    if last:
        if last < offsets[-1]:
            raise InvalidMessageError(
                f"a wrapper has offset {last}, which is less than {offsets[-1]}, the last one in it"
            )
        base = last - offsets[-1]
        if base:
            inner = inner._replace(offsets=[base + offset for offset in offsets])
    if header.is_log_append_time:
        inner = inner._replace(timestamps=[header.max_timestamp] * len(offsets))
    return inner


def decode_message_records(
    buf: Buffer, position: int = 0, header: BatchHeader | None = None, *, max_bytes: int | None = None
) -> list[Record]:
    """Decode the message at ``position``, or those in it, as records; see ``decode_messages``."""
    messages = decode_messages(buf, position, header, max_bytes=max_bytes)
    return list(map(Record, *messages))


def decode_plain(data: bytes, magic: int, pause: Callable[[], object] | None = None) -> Messages:
    """Decode whole messages of one format, none of them a wrapper.

    CRCs and formats are checked. ``pause``: see ``decode_messages``. Raises as it does.
    """
    messages = Messages([], [], [], [])
    for _ in _decode(data, messages, magic, strict=True, whole=True):
        if pause is not None:
            pause()
    return messages


def _decode(
    data: bytes, into: Messages, outer_magic: int | None, *, strict: bool = False, whole: bool = False
) -> Iterator[None]:
    """Append the messages in ``data`` to columns, some in each step; a last one that is cut off is left out.

    ``outer_magic`` is the format of the wrapper or the set, None for a single message, which may be a wrapper. With
    ``strict`` each message has that format and a CRC that is right; with ``whole`` none is cut off.
    """
    offsets, timestamps, keys, values = into
    view = memoryview(data)
    unpack_0, unpack_1 = (each.unpack_from for each in _HEADERS)
    unpack_size = _INT32.unpack_from
    position = 0
    available = len(data)
    while available - position >= LOG_OVERHEAD:
        size = unpack_size(data, position + 8)[0]
        end = position + LOG_OVERHEAD + size
        if size < MIN_SIZE_FIELD:
            raise CorruptRecordError(
                f"a message in a set has a size of {size}, the least is {MIN_SIZE_FIELD}"
            )
        if end > available:
            break
        timestamp = NO_TIMESTAMP
        magic = data[position + _MAGIC_AT]
        try:
            if magic == 1:
                offset, _, crc, _, attributes, timestamp, key_size = unpack_1(data, position)
                at = position + 30
            elif magic == 0:
                offset, _, crc, _, attributes, key_size = unpack_0(data, position)
                at = position + 22
            else:
                raise InvalidMessageError(f"a message in a set has the format (magic) {magic}")
            if outer_magic is not None:
                if strict:
                    if magic != outer_magic:
                        raise InvalidMessageError(
                            f"a message of format {magic} is in a set of format {outer_magic}"
                        )
                    if crc32(view[position + _MAGIC_AT : end]) != crc:
                        raise CorruptRecordError("the CRC of a message in a set does not match")
                if attributes & CODEC_MASK:
                    raise InvalidMessageError("a message in a set is compressed itself")
            key: bytes | None = None
            if key_size >= 0:
                key = data[at : at + key_size]
                at += key_size
            value_size = unpack_size(data, at)[0]
            at += 4
            value: bytes | None = None
            if value_size >= 0:
                value = data[at : at + value_size]
                at += value_size
        except StructError:
            at = end + 1
        if at > end:
            raise InvalidMessageError("a message's key or value is larger than the message")
        offsets.append(offset)
        timestamps.append(timestamp)
        keys.append(key)
        values.append(value)
        position = end
        if not len(values) % STEP:
            yield
    if whole and position != available:
        raise CorruptRecordError("a message set ends in a part of a message")


def wrapper_value(buf: Buffer, header: BatchHeader) -> memoryview | None:
    """Return the value of the whole message in ``buf``, in place; None if it has none, or its sizes are wrong."""
    message = memoryview(buf)[: header.size]
    try:
        at = _HEADERS[header.magic].size
        at += max(_INT32.unpack_from(message, at - 4)[0], 0)
        size = _INT32.unpack_from(message, at)[0]
    except StructError:
        return None
    at += 4
    return message[at : at + size] if 0 <= size <= len(message) - at else None


def decompress_set(codec: int, data: Buffer, magic: int, max_bytes: int | None = None) -> bytes:
    """Decompress a wrapper's value. Raises as ``compression.decompress``."""
    if codec == LZ4 and magic == 0:
        data = _with_header_checksum(data, broken=False)
    return decompress(codec, data, max_bytes)


def compress_set(codec: int, data: Buffer, magic: int) -> bytes:
    """Compress a message set to a wrapper's value. Raises as ``compression.compress``."""
    compressed = compress(codec, data)
    if codec == LZ4 and magic == 0:
        return _with_header_checksum(compressed, broken=True)
    return compressed


# The header of an lz4 frame: magic 0x184D2204 uint32 (little-endian), flags, block size, content size uint64 if flags
# have bit 3, checksum. The checksum is the second byte of the XXH32 of what stands between magic and checksum.
_LZ4_FLAGS_AT: Final = 4
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_DICTIONARY_ID: Final = 0x01


def _with_header_checksum(frame: Buffer, *, broken: bool) -> bytes:
    """Return an lz4 frame with the correct checksum of its header, or with the old clients' one."""
    changed = bytearray(frame)
    if len(changed) > _LZ4_FLAGS_AT:
        flags = changed[_LZ4_FLAGS_AT]
        at = 6 + (8 if flags & _LZ4_HAS_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY_ID else 0)
        if at < len(changed):
            covered = changed[0 if broken else _LZ4_FLAGS_AT : at]
            changed[at] = xxh32(bytes(covered)) >> 8 & 0xFF
    return bytes(changed)


def encode_messages(
    records: Sequence[Record],
    magic: int,
    *,
    codec: int = NONE,
    append_time_ms: int | None = None,
) -> bytes:
    """Encode ``records``, with their offsets, as a message set: one message each, or one wrapper with a codec.

    Headers are left out, and so are timestamps in format 0. With ``append_time_ms`` format 1 says log append time, and
    all timestamps are that.

    Raises LocalProtocolError for no records, a codec that the formats don't have, and numbers that don't fit.
    """
    if not records:
        raise LocalProtocolError("a message set needs a record")
    if magic not in FORMATS:
        raise LocalProtocolError(f"message sets have the formats 0 and 1, {magic} was asked for")
    if codec >= ZSTD:
        raise LocalProtocolError(f"message sets of format {magic} have no codec {codec}")
    append_bit = LOG_APPEND_TIME if magic and append_time_ms is not None else 0
    base = records[0].offset if codec and magic else 0
    parts: list[bytes] = []
    newest = NO_TIMESTAMP
    for offset, timestamp, key, value, _ in records:
        if append_time_ms is not None:
            timestamp = append_time_ms
        if timestamp > newest:
            newest = timestamp
        parts.append(_message(offset - base, magic, append_bit, timestamp, key, value))
    messages = b"".join(parts)
    if not codec:
        return messages
    return wrap_messages(
        messages,
        magic,
        codec=codec,
        last_offset=records[-1].offset,
        timestamp=newest,
        log_append_time=append_time_ms is not None,
    )


def wrap_messages(
    messages: Buffer,
    magic: int,
    *,
    codec: int,
    last_offset: int,
    timestamp: int,
    log_append_time: bool = False,
) -> bytes:
    """Compress an encoded message set, whose offsets are as in a wrapper, into its wrapper."""
    return _message(
        last_offset,
        magic,
        codec | (LOG_APPEND_TIME if log_append_time and magic else 0),
        timestamp,
        None,
        compress_set(codec, messages, magic),
    )


def _message(
    offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    size = _MIN_SIZES[magic] + len(key or b"") + len(value or b"")
    key_size = -1 if key is None else len(key)
    try:
        if magic:
            head = _HEADERS[1].pack(offset, size, 0, 1, attributes, timestamp, key_size)
        else:
            head = _HEADERS[0].pack(offset, size, 0, 0, attributes, key_size)
    except StructError as error:
        raise LocalProtocolError(f"a number does not fit its field of a message: {error}") from None
    value_size = _INT32.pack(-1 if value is None else len(value))
    covered = b"%b%b%b%b" % (head[_MAGIC_AT:], key or b"", value_size, value or b"")
    return b"%b%b%b" % (head[:_CRC_AT], _UINT32.pack(crc32(covered)), covered)
