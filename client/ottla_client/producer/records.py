"""Checks and converts a record's fields before it is buffered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import RecordTooLargeError, SerializationError
from .batch import BATCH_OVERHEAD, HEADER_OVERHEAD, KEY_OVERHEAD, MAX_RECORD_OVERHEAD, RECORD_OVERHEAD

if TYPE_CHECKING:
    from ottla_protocol.records.record import Headers

    from .settings import ProducerSettings, Serializer

HeadersLike: TypeAlias = "Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]"

_INT64 = 2**63


def to_bytes(what: str, given: object, serializer: Serializer | None) -> bytes | None:
    """A key or value as bytes; None stays None without a serializer. Raises SerializationError."""
    if given is None:
        return None
    if serializer is not None:
        try:
            given = serializer(given)
        except Exception as error:
            raise SerializationError(
                f"the {what}_serializer failed for {_short(given)}: {type(error).__name__}: {error}; nothing was sent"
            ) from error
    if given is None or given.__class__ is bytes:
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    made = "is" if serializer is None else "was made"
    raise SerializationError(
        f"the {what} {made} {_short(given)}, a {type(given).__name__}; it must be bytes"
        + (f": give a {what}_serializer, or encode it" if serializer is None else "")
    )


def to_headers(given: HeadersLike) -> Headers:
    """Headers as a tuple of pairs. Raises SerializationError unless names are str and values bytes or None."""
    pairs = given.items() if isinstance(given, Mapping) else given
    made = []
    try:
        for name, value in pairs:
            if not isinstance(name, str):
                raise TypeError(f"the name {name!r} is not a str")
            name.encode("utf-8", "surrogateescape")
            if value is not None and not isinstance(value, bytes | bytearray | memoryview):
                raise TypeError(f"the value of {name!r} is a {type(value).__name__}; bytes are needed")
            made.append((name, None if value is None else bytes(value)))
    except (TypeError, ValueError) as error:
        raise SerializationError(f"headers are pairs of a str and bytes (or None): {error}") from error
    return tuple(made)


def check_timestamp(timestamp_ms: object) -> int:
    """The timestamp in milliseconds. Raises SerializationError if it is invalid."""
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < _INT64 // 2:
        raise SerializationError(
            f"the timestamp is {timestamp_ms!r}; it must be a whole number of milliseconds since 1970"
        )
    return timestamp_ms


def record_size(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """About how many bytes a record takes in a batch."""
    size = RECORD_OVERHEAD
    if value is not None:
        size += len(value)
    if key is not None:
        size += KEY_OVERHEAD + len(key)
    for name, content in headers:
        size += HEADER_OVERHEAD + len(name) + (0 if content is None else len(content))
    return size


def check_size(size: int, settings: ProducerSettings) -> None:
    """Raise RecordTooLargeError if a record of ``size`` (from ``record_size``) can never be sent."""
    size += BATCH_OVERHEAD + MAX_RECORD_OVERHEAD - RECORD_OVERHEAD
    if size > settings.max_request_size:
        raise RecordTooLargeError(
            f"a record is {size} bytes, more than the {settings.max_request_size} of max_request_size: raise that (and "
            "the topic's max.message.bytes, if it is lower), or send less in a record; nothing was sent"
        )
    if size > settings.buffer_memory:
        raise RecordTooLargeError(
            f"a record is {size} bytes, more than the {settings.buffer_memory} of buffer_memory: raise that; nothing "
            "was sent"
        )


def column(what: str, given: Sequence[Any], serializer: Serializer | None) -> Sequence[bytes | None]:
    """``to_bytes`` for many values; in C if all are bytes."""
    if serializer is None and set(map(type, given)) <= _BYTES:
        return given
    return [to_bytes(what, each, serializer) for each in given]


_BYTES = {bytes}


class Sizes:
    """The sizes of many records, and how many fit into a number of bytes."""

    __slots__ = ("_ends", "_sizes", "_uniform", "largest")

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._uniform = 0
        """The size of each record if all are equal, which is usual and needs no sums."""
        self._ends: list[int] = []
        if not sizes:
            self.largest = 0
        elif sizes.count(sizes[0]) == len(sizes):
            self._uniform = self.largest = sizes[0]
        else:
            self.largest = max(sizes)
            self._ends = list(accumulate(sizes, initial=0))

    @classmethod
    def of_records(
        cls,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers] | None,
    ) -> Sizes:
        """The sizes of records in columns, as of ``record_size``."""
        lengths = _lengths(values)
        if keys is None and headers is None and lengths and lengths.count(lengths[0]) == len(lengths):
            return cls([lengths[0] + RECORD_OVERHEAD] * len(lengths))
        fixed = RECORD_OVERHEAD if keys is None else RECORD_OVERHEAD + KEY_OVERHEAD
        sizes: Iterable[int] = map(fixed.__add__, lengths)
        if keys is not None:
            sizes = map(add, sizes, _lengths(keys))
        if headers is not None:
            sizes = map(add, sizes, _header_sizes(headers))
        return cls(list(sizes))

    def pick(self, chosen: Callable[[Sequence[int]], Sequence[int]]) -> Sizes:
        """The sizes of the records that ``chosen`` selects."""
        return Sizes(chosen(self._sizes))

    def of(self, first: int, last: int) -> int:
        """Bytes of the records from ``first`` to before ``last``."""
        if self._uniform:
            return self._uniform * (last - first)
        return self._ends[last] - self._ends[first]

    def fitting(self, first: int, last: int, room: int) -> int:
        """The end, at most ``last``, of the records from ``first`` that fit into ``room`` bytes."""
        if self._uniform:
            return min(last, first + max(room, 0) // self._uniform)
        return min(last, bisect_right(self._ends, self._ends[first] + room, lo=first) - 1)


def _header_sizes(headers: Sequence[Headers]) -> list[int]:
    """Bytes of each record's headers; equal objects are measured once."""
    distinct = {id(each): each for each in headers}
    sizes = {key: record_size(None, None, each) - RECORD_OVERHEAD for key, each in distinct.items()}
    return [sizes[id(each)] for each in headers]


def _lengths(fields: Sequence[bytes | None]) -> list[int]:
    try:
        return list(map(len, fields))  # type: ignore[arg-type]
    except TypeError:
        return [0 if field is None else len(field) for field in fields]


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 60 else text[:57] + "..."
