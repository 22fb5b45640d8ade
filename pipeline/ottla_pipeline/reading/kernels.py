"""The loops per batch and per record, compiled by numba; they run without the interpreter and its lock.

Imported only if worth it (see ``engines``); ``compiling`` says how they are compiled.

The loops accept only valid input: they compare every length with its record's end before they follow it. Anything
unusual, including a broken batch, is left to ``ottla_protocol``, which accepts it or raises. The format is described in
``ottla_protocol.records.batch`` and ``ottla_protocol.records.record``.
"""

from __future__ import annotations

from typing import Any

from .compiling import DATA, EDGES, INT32S, INT64S, OCTETS, TABLE, UINT64S, compiled, copy, inlined, types

_MAX_MILLIS = (2**63 - 1) // 1000
_MAX_HEADERS = 100_000
"""The client's ``MAX_HEADERS``, here because a cached loop is renewed when this file changes."""
_GOOD, _BROKEN, _DISORDER = 0, 1, 2


@inlined
def _int32(data: Any, at: int) -> Any:
    number = (
        (types.int64(data[at]) << 24)
        | (types.int64(data[at + 1]) << 16)
        | (types.int64(data[at + 2]) << 8)
        | types.int64(data[at + 3])
    )
    return number - ((number & 0x80000000) << 1)


@inlined
def _int64(data: Any, at: int) -> Any:
    return (_int32(data, at) << 32) | (_int32(data, at + 4) & 0xFFFFFFFF)


@compiled(DATA, types.int64, types.int64, types.int64, types.int64, TABLE)
def walk(data: Any, at: int, stop: int, expected: int, end: int, table: Any) -> tuple[int, int, int, int]:
    """Write the headers of batches from ``at`` on to ``table``, one per row, up to the batch that reaches ``end``.

    ``expected`` is the least offset that the next batch may begin with. Returns the number of rows, the place and the
    expected offset after them, and 0 if a batch is cut off or the table is full, 1 for bytes that can't be a batch, 2
    for offsets that go back. Columns as in ``batches``.
    """
    row = 0
    while row < table.shape[0] and expected < end and stop - at >= 61:
        length = _int32(data, at + 8)
        if data[at + 16] != 2 or length < 49:
            return row, at, expected, _BROKEN
        if length + 12 > stop - at:
            break
        base = _int64(data, at)
        last = base + _int32(data, at + 23)
        if base < expected or last < base:
            return row, at, expected, _DISORDER
        table[row, 0] = at
        table[row, 1] = length + 12
        table[row, 2] = base
        table[row, 3] = last
        table[row, 4] = _int32(data, at + 12)
        table[row, 5] = (types.int64(data[at + 21]) << 8) | types.int64(data[at + 22])
        table[row, 6] = _int32(data, at + 57)
        table[row, 7] = _int64(data, at + 27)
        table[row, 8] = _int64(data, at + 35)
        table[row, 9] = _int64(data, at + 43)
        table[row, 10] = _int32(data, at + 17) & 0xFFFFFFFF
        row += 1
        at += length + 12
        expected = last + 1
    return row, at, expected, _GOOD


@inlined
def _varint(data: Any, at: int, end: int, most: int) -> Any:
    """A zigzag varint of at most ``most`` bytes, and the place after it: -1 if there is none."""
    number = types.uint64(0)
    shift = types.uint64(0)
    for _ in range(most):
        if at >= end:
            return number, types.int64(-1)
        byte = types.uint64(data[at])
        at += 1
        number |= (byte & types.uint64(127)) << shift
        if byte < types.uint64(128):
            return number, types.int64(at)
        shift += types.uint64(7)
    return number, types.int64(-1)


@inlined
def _size(data: Any, at: int, end: int) -> Any:
    """The size of a field, -1 for null, and the place after it: -1 if it is no size, or exceeds ``end``."""
    number, at = _varint(data, at, end, 5)
    if at < 0 or number > types.uint64(0xFFFFFFFF):
        return types.int64(0), types.int64(-1)
    if number & types.uint64(1):
        if number == types.uint64(1):
            return types.int64(-1), at
        return types.int64(0), types.int64(-1)
    size = types.int64(number >> types.uint64(1))
    if at + size > end:
        return types.int64(0), types.int64(-1)
    return size, at


@inlined
def _pass_headers(data: Any, at: int, end: int) -> Any:
    """The number of headers at ``at``, the place after them (-1 if they are unusual), bytes of names and of values."""
    count, at = _size(data, at, end)
    names = types.int64(0)
    values = types.int64(0)
    if at < 0 or count <= 0 or count > (end - at) // 2 or count > _MAX_HEADERS:
        return count, types.int64(-1), names, values
    for _ in range(count):
        size, at = _size(data, at, end)
        if at < 0 or size < 0 or at + size >= end:
            return count, types.int64(-1), names, values
        names += size
        size, at = _size(data, at + size, end)
        if at < 0:
            return count, types.int64(-1), names, values
        if size > 0:
            values += size
            at += size
    return count, at, names, values


@compiled(
    *(DATA, TABLE, types.int64, types.int64, types.boolean, types.boolean),
    *(INT64S, INT64S, OCTETS, INT32S, OCTETS, OCTETS, INT32S, OCTETS, OCTETS, INT64S, INT64S),
)
def decode(
    data: Any,
    pieces: Any,
    first: int,
    end: int,
    want_keys: bool,
    want_values: bool,
    offsets: Any,
    stamps: Any,
    stamp_valid: Any,
    key_edges: Any,
    keys: Any,
    key_valid: Any,
    value_edges: Any,
    values: Any,
    value_valid: Any,
    headers_at: Any,
    totals: Any,
) -> bool:
    """Decode the records from offset ``first`` to ``end`` (exclusive) of all pieces into Arrow's buffers.

    A piece is a batch's uncompressed records: from, to, their number, base offset, base timestamp, and whether that is
    the append time of all of them. Columns without room (size 0) aren't filled. Timestamps become microseconds, null if
    they don't fit into 64 bits. The columns ``…_valid`` are 1, and become 0 for nulls: writing single bits would mean
    reading them, which is slow. ``headers_at`` is where a row's headers begin, -1 for none.

    Returns False if something is unusual: the buffers are then invalid. ``totals``: rows, bytes of keys, of values,
    nulls among timestamps, keys, values, then headers, bytes of their names, of their values.
    """
    row = key_size = value_size = types.int64(0)
    stamp_nulls = key_nulls = value_nulls = types.int64(0)
    header_count = name_bytes = header_bytes = types.int64(0)
    want_offsets = offsets.shape[0] > 0
    want_stamps = stamps.shape[0] > 0
    want_headers = headers_at.shape[0] > 0
    if want_keys:
        key_edges[0] = 0
    if want_values:
        value_edges[0] = 0
    for piece in range(pieces.shape[0]):
        at = pieces[piece, 0]
        stop = pieces[piece, 1]
        base = pieces[piece, 3]
        stamp_base = pieces[piece, 4]
        append_time = pieces[piece, 5] != 0
        good = True
        for _ in range(pieces[piece, 2]):
            good = False
            number, at = _varint(data, at, stop, 5)
            if at < 0 or (number & types.uint64(1)) != 0 or number > types.uint64(0xFFFFFFFF):
                break
            behind = at + types.int64(number >> types.uint64(1))
            # A byte of attributes follows the length; it has no meaning.
            if behind > stop:
                break
            number, at = _varint(data, at + 1, behind, 9)
            if at < 0:
                break
            stamp = stamp_base
            if not append_time:
                stamp += types.int64(number >> types.uint64(1)) ^ -types.int64(number & types.uint64(1))
            number, at = _varint(data, at, behind, 5)
            if at < 0 or (number & types.uint64(1)) != 0 or number > types.uint64(0xFFFFFFFF):
                break
            delta = types.int64(number >> types.uint64(1))
            key, at = _size(data, at, behind)
            if at < 0:
                break
            key_at = at
            if key > 0:
                at += key
            value, at = _size(data, at, behind)
            if at < 0:
                break
            value_at = at
            if value > 0:
                at += value
            if at >= behind:
                break
            header_at = types.int64(-1)
            count = names = others = types.int64(0)
            if data[at] == 0:
                at += 1
            else:
                header_at = at
                count, at, names, others = _pass_headers(data, at, behind)
            if at != behind:
                break
            good = True
            offset = base + delta
            if offset < first or offset >= end:
                continue
            if want_offsets:
                offsets[row] = offset
            if want_stamps:
                if -_MAX_MILLIS <= stamp <= _MAX_MILLIS:
                    stamps[row] = stamp * 1000
                else:
                    stamps[row] = 0
                    stamp_valid[row] = 0
                    stamp_nulls += 1
            if want_keys:
                if key > 0:
                    copy(keys, key_size, data, key_at, key)
                    key_size += key
                elif key < 0:
                    key_valid[row] = 0
                    key_nulls += 1
                key_edges[row + 1] = key_size
            if want_values:
                if value > 0:
                    copy(values, value_size, data, value_at, value)
                    value_size += value
                elif value < 0:
                    value_valid[row] = 0
                    value_nulls += 1
                value_edges[row + 1] = value_size
            if want_headers:
                headers_at[row] = header_at
                if header_at >= 0:
                    header_count += count
                    name_bytes += names
                    header_bytes += others
            row += 1
        if not good or at != stop:
            return False
    totals[0] = row
    totals[1] = key_size
    totals[2] = value_size
    totals[3] = stamp_nulls
    totals[4] = key_nulls
    totals[5] = value_nulls
    totals[6] = header_count
    totals[7] = name_bytes
    totals[8] = header_bytes
    return True


@compiled(
    DATA, INT64S, INT32S, OCTETS, INT32S, OCTETS, INT32S, OCTETS, OCTETS,
)  # fmt: skip
def decode_headers(
    data: Any,
    headers_at: Any,
    list_edges: Any,
    list_valid: Any,
    name_edges: Any,
    names: Any,
    value_edges: Any,
    values: Any,
    value_valid: Any,
) -> bool:
    """Decode the headers at the places that ``decode`` has found; returns whether all names are ASCII."""
    pair = types.int64(0)
    name_size = types.int64(0)
    value_size = types.int64(0)
    high = types.uint8(0)
    list_edges[0] = name_edges[0] = value_edges[0] = 0
    for row in range(headers_at.shape[0]):
        at = headers_at[row]
        if at < 0:
            list_valid[row] = 0
        else:
            end = types.int64(data.shape[0])
            count, at = _size(data, at, end)
            for _ in range(count):
                size, at = _size(data, at, end)
                for place in range(at, at + size):
                    high |= data[place]
                copy(names, name_size, data, at, size)
                name_size += size
                size, at = _size(data, at + size, end)
                if size < 0:
                    value_valid[pair] = 0
                else:
                    copy(values, value_size, data, at, size)
                    value_size += size
                    at += size
                pair += 1
                name_edges[pair] = name_size
                value_edges[pair] = value_size
        list_edges[row + 1] = pair
    return bool(high < 128)


@inlined
def _mix(number: Any) -> Any:
    number = (number ^ (number >> types.uint64(30))) * types.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> types.uint64(27))) * types.uint64(0x94D049BB133111EB)
    return number ^ (number >> types.uint64(31))


@compiled(DATA, EDGES, UINT64S)
def hash_fields(data: Any, edges: Any, hashes: Any) -> None:
    """The hash of each field between two edges, as in ``hashing``."""
    for row in range(hashes.shape[0]):
        start = types.int64(edges[row])
        size = types.int64(edges[row + 1]) - start
        total = types.uint64(size) + types.uint64(0xD1B54A32D192ED03)
        place = types.uint64(0)
        whole = start + (size & ~7)
        for at in range(start, whole, 8):
            place += types.uint64(0x9E3779B97F4A7C15)
            word = types.uint64(0)
            for byte in range(8):
                word |= types.uint64(data[at + byte]) << types.uint64(8 * byte)
            total += _mix(word + place)
        if size & 7:
            place += types.uint64(0x9E3779B97F4A7C15)
            word = types.uint64(0)
            for byte in range(size & 7):
                word |= types.uint64(data[whole + byte]) << types.uint64(8 * byte)
            total += _mix(word + place)
        hashes[row] = _mix(total)
