"""Decodes a batch into a list of records, encodes a list as a batch, and rebuilds a batch.

Two loops here run in pure Python once per record that a client produces or consumes, and are written for speed:
hardly any function calls, tables for numbers of one and two bytes (nearly all of them), and a fully checked parser
for everything that the fast loop leaves. Source: Kafka's ``DefaultRecord``, ``DefaultRecordBatch``,
``MemoryRecords.filterTo`` (KIP-82, KIP-98, KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    read_header,
    write_crc,
    write_header,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

# A record. Every length and delta is a zigzag varint, as in Protocol Buffers: 7 bits a byte, lowest first,
# the top bit set in all but the last byte; 0, -1, 1, -2 … are written as 0, 1, 2, 3 …
#
#   length           varint    bytes of the record after this field
#   attributes       int8      unused
#   timestamp_delta  varlong   ms since the batch's base_timestamp
#   offset_delta     varint    offset - base_offset
#   key_length       varint    -1: no key
#   key
#   value_length     varint    -1: no value, a tombstone
#   value
#   header_count     varint
#   and for each header:
#     key_length     varint
#     key                      UTF-8
#     value_length   varint    -1: no value
#     value
#
# A varint has at most 5 bytes, a varlong at most 10.
MIN_RECORD_SIZE = 7

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"


class Record(NamedTuple):
    """A record as consumers see it. ``timestamp`` is in milliseconds; ``value`` is None in a tombstone.

    Header names are decoded with ``surrogateescape``, so that compaction keeps bytes that are not UTF-8.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Row: TypeAlias = "tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]"
"""Timestamp, key, value and headers of a record without an offset."""

# Decoding one or two bytes at a time: the number of a single byte, the share of a first byte when a second follows, and
# the second's share. None for an invalid byte, or a number that the fast loop doesn't handle: the sum then raises
# TypeError, and the record goes to the careful parser.
_LOW: list[Any] = [None if byte & 1 else (byte & 127) >> 1 for byte in range(256)]
_HIGH: list[Any] = [byte << 6 if byte < 128 else None for byte in range(256)]
_SIGNED: list[int] = [(byte >> 1) ^ -(byte & 1) for byte in range(128)]
_MAGNITUDE: list[int] = [(byte & 127) >> 1 for byte in range(256)]

_eight_bytes = Struct("8B").unpack_from
_new_tuple = tuple.__new__

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
_INT32_MAX = 2**31 - 1
ANY_HEADERS = _INT32_MAX
"""No limit of a record's headers: the format has none below this."""
# With a base timestamp this far from the ends of int64, no delta of up to nine bytes overflows.
_SAFE_BASE_TIMESTAMP = 2**62


def decode_records(
    buf: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    max_bytes: int | None = None,
    max_headers: int = ANY_HEADERS,
) -> list[Record]:
    """Decode the records of the batch at ``position``, with their offsets and timestamps.

    ``header`` saves reading it again. ``max_bytes`` limits the decompressed size (256 MiB by default), ``max_headers``
    the headers of each record. This doesn't check the CRC; use ``crc_is_valid``.

    Raises CorruptRecordError for a batch that is incomplete or breaks the format.
    """
    if header is None:
        header = read_header(buf, position)
    return decode_data(bytes(record_data(buf, position, header, max_bytes)), header, max_headers)


def record_data(buf: Buffer, position: int, header: BatchHeader, max_bytes: int | None) -> bytes | memoryview:
    """Return the bytes after ``header``, decompressed, or in place if they aren't compressed.

    Raises CorruptRecordError for a truncated batch or an impossible claim.
    """
    count = header.record_count
    end = position + header.batch_length + LOG_OVERHEAD
    view = memoryview(buf)
    if view.nbytes < end:
        raise CorruptRecordError(
            f"record batch of {header.size} bytes is cut off after {view.nbytes - position}"
        )
    if count == 0:
        return b""
    if count < 0:
        raise CorruptRecordError(f"record batch claims {count} records")
    if header.base_offset > _INT64_MAX - _INT32_MAX:
        raise CorruptRecordError(
            f"record batch starts at offset {header.base_offset}: its records cannot be numbered"
        )
    if header.attributes & CODEC_MASK:
        from ottla_protocol.records.compression import decompress

        data: bytes | memoryview = decompress(
            header.attributes & CODEC_MASK, view[position + HEADER_SIZE : end], max_bytes
        )
    else:
        data = view[position + HEADER_SIZE : end]
    if count * MIN_RECORD_SIZE > len(data):
        raise CorruptRecordError(f"record batch claims {count} records in {len(data)} bytes")
    return data


def decode_data(data: bytes, header: BatchHeader, max_headers: int = ANY_HEADERS) -> list[Record]:
    """Decode the records that fill ``data``, the decompressed batch of ``header`` (see ``record_data``)."""
    if header.record_count == 0:
        return []
    records = _decode(data, header.record_count, header.base_offset, header.base_timestamp, max_headers)
    if header.attributes & LOG_APPEND_TIME:
        append_time = header.max_timestamp
        return [
            Record(offset, append_time, key, value, headers) for offset, _, key, value, headers in records
        ]
    if not has_safe_timestamps(header):
        for record in records:
            if not _INT64_MIN <= record.timestamp <= _INT64_MAX:
                raise CorruptRecordError(f"record {record.offset} has a timestamp beyond 64 bits")
    return records


def has_safe_timestamps(header: BatchHeader) -> bool:
    """Whether no delta of 63 bits or fewer makes a timestamp exceed 64 bits."""
    return -_SAFE_BASE_TIMESTAMP < header.base_timestamp < _SAFE_BASE_TIMESTAMP


def _decode(data: bytes, count: int, base_offset: int, base_timestamp: int, max_headers: int) -> list[Record]:
    """Decode ``count`` records, which must fill ``data`` exactly.

    The loop reads the first eight bytes of a record at once. It finds length, timestamp and offset in them if each
    takes one or two bytes. Otherwise, and for anything irregular, ``_decode_one`` reads the record and raises the
    errors. Slices need no check of their end, because the byte after the value is read and its position compared with
    the record's length.
    """
    records: list[Record] = []
    append = records.append
    new_tuple = _new_tuple
    record_class = Record
    eight_bytes = _eight_bytes
    low = _LOW
    high = _HIGH
    signed = _SIGNED
    magnitude = _MAGNITUDE
    no_headers: Headers = ()
    headers: Headers
    position = 0
    for _ in range(count):
        start = position
        try:
            a, b, c, d, e, f, g, h = eight_bytes(data, position)
            if a > 127:
                end = position + 2 + low[a] + high[b]
            else:
                # A length of one byte: continue as if the record had begun a byte earlier.
                end = position + 1 + low[a]
                d, e, f, g, h = c, d, e, f, g
                position -= 1
            if d < 128:
                timestamp = base_timestamp + signed[d]
                if e < 128:
                    offset = base_offset + low[e]
                    n = f
                    position += 6
                else:
                    offset = base_offset + low[e] + high[f]
                    n = g
                    position += 7
            else:
                timestamp = magnitude[d] + high[e]
                timestamp = base_timestamp + (~timestamp if d & 1 else timestamp)
                if f < 128:
                    offset = base_offset + low[f]
                    n = g
                    position += 7
                else:
                    offset = base_offset + low[f] + high[g]
                    n = h
                    position += 8
            # n is the first byte of the key's length; position is after it.
            if n == 1:
                key = None
            elif n < 128:
                at = position
                position += low[n]
                key = data[at:position]
            else:
                at = position + 1
                position = at + low[n] + high[data[position]]
                key = data[at:position]
            n = data[position]
            if n > 127:
                at = position + 2
                position = at + low[n] + high[data[position + 1]]
                value = data[at:position]
            elif n == 1:
                position += 1
                value = None
            else:
                at = position + 1
                position = at + low[n]
                value = data[at:position]
            if data[position]:
                headers, position = decode_headers(data, position, end, max_headers)
            else:
                headers = no_headers
                position += 1
            if position == end:
                append(new_tuple(record_class, (offset, timestamp, key, value, headers)))
                continue
        except (IndexError, TypeError, StructError):
            pass  # a longer number, the last few bytes, or corrupt data: the careful parser distinguishes them
        record, position = _decode_one(data, start, base_offset, base_timestamp, max_headers)
        append(record)
    if position != len(data):
        raise CorruptRecordError(f"{len(data) - position} bytes are left behind the batch's {count} records")
    return records


def _decode_one(
    data: bytes, position: int, base_offset: int, base_timestamp: int, max_headers: int
) -> tuple[Record, int]:
    """Decode any record, and return it with the position after it. Raises CorruptRecordError."""
    length, position = _varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptRecordError(f"a record claims {length} bytes, {len(data) - position} are left")
    timestamp_delta, position = _varint(data, position + 1, max_size=10)
    offset_delta, position = _varint(data, position)
    if offset_delta < 0:
        raise CorruptRecordError(f"a record has the offset delta {offset_delta}")
    key, position = _nullable_bytes(data, position, end)
    value, position = _nullable_bytes(data, position, end)
    headers, position = decode_headers(data, position, end, max_headers)
    if position != end:
        raise CorruptRecordError(f"a record of {length} bytes ends {end - position} bytes off its mark")
    timestamp = base_timestamp + timestamp_delta
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise CorruptRecordError("a record has a timestamp beyond 64 bits")
    return Record(base_offset + offset_delta, timestamp, key, value, headers), position


def decode_headers(data: bytes, position: int, end: int, most: int = ANY_HEADERS) -> tuple[Headers, int]:
    """Decode a record's headers from their count on, and return the position after them, at most ``end``."""
    count = data[position] if position < end else 128
    if count > 127 or count & 1:
        count, position = _varint(data, position)
    else:
        count >>= 1
        position += 1
    if count == 0:
        return (), position
    if not 0 < count <= (end - position) // 2:
        raise CorruptRecordError(f"a record claims {count} headers in {end - position} bytes")
    if count > most:
        raise CorruptRecordError(f"a record has {count} headers, at most {most} are read")
    headers: list[tuple[str, bytes | None]] = []
    value: bytes | None
    for _ in range(count):
        size = data[position] if position < end else 128
        if size > 127 or size & 1:
            size, at = _varint(data, position)
        else:
            size >>= 1
            at = position + 1
        position = at + size
        if size < 0 or position >= end:
            raise CorruptRecordError(f"a record header's name claims {size} bytes, {end - at} are left")
        encoded = data[at:position]
        try:
            name = encoded.decode()
        except UnicodeDecodeError:
            name = encoded.decode("utf-8", "surrogateescape")
        size = data[position]
        if size > 127 or size & 1:
            value, position = _nullable_bytes(data, position, end)
        else:
            at = position + 1
            position = at + (size >> 1)
            if position > end:
                raise CorruptRecordError(f"a record header claims {size >> 1} bytes, {end - at} are left")
            value = data[at:position]
        headers.append((name, value))
    return tuple(headers), position


def _nullable_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size == -1:
        return None, position
    stop = position + size
    if size < 0 or stop > end:
        raise CorruptRecordError(f"a record's field claims {size} bytes, {end - position} are left")
    return data[position:stop], stop


def _varint(data: bytes, position: int, max_size: int = 5) -> tuple[int, int]:
    """Read a zigzag number of up to ``max_size`` bytes (5: 32 bits, 10: 64 bits), and the position after it."""
    number = 0
    for shift in range(0, max_size * 7, 7):
        if position >= len(data):
            raise CorruptRecordError("a record is cut off in the middle of a number")
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> (32 if max_size == 5 else 64):
                break
            return (number >> 1) ^ -(number & 1), position
    raise CorruptRecordError(f"a record holds a number of more than {32 if max_size == 5 else 64} bits")


# Encoding: the zigzag varints of one and two bytes, by their unsigned number. Made on first use, because a broker that
# writes no records doesn't need the megabyte.
_TABLE_LIMIT = 8192
_encoded_numbers: list[bytes] = []


def _number_table() -> list[bytes]:
    if not _encoded_numbers:
        _encoded_numbers.extend(bytes((number,)) for number in range(128))
        _encoded_numbers.extend(
            bytes((number & 127 | 128, number >> 7)) for number in range(128, 2 * _TABLE_LIMIT)
        )
    return _encoded_numbers


def encode_varint(number: int) -> bytes:
    """Encode ``number`` as a zigzag varint: up to 5 bytes for 32 bits, up to 10 for 64."""
    number = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_batch(
    records: Sequence[Record] | Sequence[Row],
    *,
    base_offset: int = 0,
    codec: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
) -> bytearray:
    """Encode ``records`` as a batch, with consecutive offsets from ``base_offset``.

    The records are either all tuples of timestamp, key, value and headers, or all Records, whose own offsets are
    ignored (``rebuild_batch`` keeps them). Timestamps are in milliseconds.

    Raises LocalProtocolError for an empty batch, and for numbers, header names or a codec that the format doesn't
    have.
    """
    if not records:
        raise LocalProtocolError("a record batch needs a record")
    attributes = (
        codec
        | (LOG_APPEND_TIME if log_append_time else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
    )
    rows: Sequence[Row]
    if type(records[0]) is Record:
        rows = cast("list[Row]", [record[1:] for record in records])
    else:
        rows = cast("Sequence[Row]", records)
    base_timestamp = rows[0][0]
    body, max_timestamp = _encode(range(len(records)), rows, base_timestamp)
    # Coordinators write one record at a time, so the header is made once.
    header = BatchHeader(
        base_offset,
        len(body) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return finish_batch(header, body)


def rebuild_batch(header: BatchHeader, kept: Sequence[Record]) -> bytearray:
    """Encode the records ``kept``, in order, as the batch of ``header``, with their offsets; there may be none.

    First and last offset, sequences, producer, leader epoch, codec and flags stay. The base timestamp becomes that of
    the first record, unless it is a delete horizon; the maximum that of the records, unless it is a log append time. An
    empty batch is a bare header without codec or horizon, as Kafka writes it.

    Raises LocalProtocolError for a record whose offset is not one of the batch's.
    """
    if not kept:
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
        empty = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
        return finish_batch(empty, bytearray(HEADER_SIZE))
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp if header.has_delete_horizon else kept[0].timestamp
    deltas = [record.offset - base_offset for record in kept]
    if min(deltas) < 0 or max(deltas) > header.last_offset_delta:
        raise LocalProtocolError(
            f"records {kept[0].offset} to {kept[-1].offset} do not belong into the batch of the offsets "
            f"{base_offset} to {header.last_offset}"
        )
    body, max_timestamp = _encode(deltas, [record[1:] for record in kept], base_timestamp)
    if header.is_log_append_time and header.max_timestamp != NO_TIMESTAMP:
        max_timestamp = header.max_timestamp
    rebuilt = header._replace(
        base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=len(kept)
    )
    return finish_batch(rebuilt, body)


def finish_batch(header: BatchHeader, body: bytearray, level: int | None = None) -> bytearray:
    """Finish the batch in ``body``: room for a header, and encoded records after it.

    Compresses the records if the header's attributes say so, and fills in the header's length and CRC. Raises
    LocalProtocolError for an unknown codec or level, and for a number that its field can't hold.
    """
    codec = header.attributes & CODEC_MASK
    if codec:
        from ottla_protocol.records.compression import compress

        batch = bytearray(HEADER_SIZE)
        batch += compress(codec, memoryview(body)[HEADER_SIZE:], level)
    else:
        batch = body
    length = len(batch) - LOG_OVERHEAD
    try:
        write_header(
            batch, 0, header if length == header.batch_length else header._replace(batch_length=length)
        )
    except StructError as error:
        raise LocalProtocolError(f"a number does not fit its field of the record batch: {error}") from None
    write_crc(batch, 0, len(batch))
    return batch


def _encode(deltas: Iterable[int], rows: Iterable[Row], base_timestamp: int) -> tuple[bytearray, int]:
    """Encode the records after room for a header, and return the greatest timestamp."""
    table = _number_table()
    limit = _TABLE_LIMIT
    parts: list[bytes | bytearray] = [bytes(HEADER_SIZE)]
    append = parts.append
    max_timestamp = NO_TIMESTAMP
    last_timestamp: int | None = None
    stamp = b""
    for delta, (timestamp, key, value, headers) in zip(deltas, rows, strict=True):
        if timestamp != last_timestamp:
            last_timestamp = timestamp
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            n = timestamp - base_timestamp
            stamp = table[n + n] if 0 <= n < limit else encode_timestamp_delta(n)
        number = table[delta + delta] if delta < limit else encode_varint(delta)
        if value is None:
            value_size = b"\x01"
            value = b""
        else:
            n = len(value)
            value_size = table[n + n] if n < limit else encode_varint(n)
        tail = encode_headers(headers) if headers else b"\x00"
        if key is None:
            body = b"\x00%b%b\x01%b%b%b" % (stamp, number, value_size, value, tail)
        else:
            n = len(key)
            key_size = table[n + n] if n < limit else encode_varint(n)
            body = b"\x00%b%b%b%b%b%b%b" % (stamp, number, key_size, key, value_size, value, tail)
        n = len(body)
        append(table[n + n] if n < limit else encode_varint(n))
        append(body)
    return bytearray().join(parts), max_timestamp


def encode_timestamp_delta(delta: int) -> bytes:
    """Encode ``delta`` milliseconds as a varlong. Raises LocalProtocolError for more than 64 bits."""
    if not _INT64_MIN <= delta <= _INT64_MAX:
        raise LocalProtocolError(
            f"two timestamps of a record batch are {delta} ms apart, more than 64 bits hold"
        )
    return encode_varint(delta)


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Encode a record's headers from their count on. Raises LocalProtocolError for a name that UTF-8 lacks."""
    table = _number_table()
    limit = _TABLE_LIMIT
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        try:
            key = name.encode("utf-8", "surrogateescape")
        except (AttributeError, UnicodeEncodeError):
            raise LocalProtocolError(f"a record header cannot be named {name!r}") from None
        n = len(key)
        key_size = table[n + n] if n < limit else encode_varint(n)
        if value is None:
            parts.append(b"%b%b\x01" % (key_size, key))
        else:
            n = len(value)
            value_size = table[n + n] if n < limit else encode_varint(n)
            parts.append(b"%b%b%b%b" % (key_size, key, value_size, value))
    return b"".join(parts)
