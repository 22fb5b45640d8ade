"""Many records as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from .records import HeadersLike, Sizes, check_size, check_timestamp, column, to_headers

if TYPE_CHECKING:
    from ottla_protocol.records.record import Headers

    from .settings import ProducerSettings


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as the caller gives them. ``places`` are their indexes, if not 0, 1, 2 …"""

    values: Sequence[Any]
    keys: Sequence[Any] | None = None
    timestamps: Sequence[int] | int | None = None
    headers: Sequence[HeadersLike] | None = None
    places: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Bulk:
    """Checked records, ready to be appended."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    timestamps: Sequence[int] | int | None
    """None: the time of appending."""
    headers: Sequence[Headers] | None
    sizes: Sizes
    places: Sequence[int]

    @classmethod
    def checked(cls, given: Columns, settings: ProducerSettings) -> Bulk:
        """A serialised copy of ``given``.

        Raises ConfigurationError for columns of different lengths, and the errors of ``Producer.send``.
        """
        if isinstance(given.values, str | bytes | bytearray):
            raise ConfigurationError("values is a single value; send_batch takes a sequence of values")
        values = column("value", list(given.values), settings.value_serializer)
        count = len(values)
        others = {"keys": given.keys, "headers": given.headers, "timestamps_ms": given.timestamps}
        for name, other in others.items():
            if other is not None and not isinstance(other, int) and len(other) != count:
                raise ConfigurationError(f"there are {len(other)} {name} for {count} values")
        keys = None if given.keys is None else column("key", list(given.keys), settings.key_serializer)
        if keys is not None and keys.count(None) == count:
            keys = None
        headers = None if given.headers is None else _headers(given.headers)
        timestamps = given.timestamps
        if isinstance(timestamps, int):
            check_timestamp(timestamps)
        elif timestamps is not None:
            timestamps = [check_timestamp(each) for each in timestamps]
        sizes = Sizes.of_records(values, keys, headers)
        check_size(sizes.largest, settings)
        return cls(values, keys, timestamps, headers, sizes, given.places or range(count))

    def pick(self, at: Sequence[int]) -> Bulk:
        """The records at the indexes ``at``."""
        if len(at) == len(self.values):
            return self
        chosen = itemgetter(*at) if len(at) > 1 else lambda sequence: (sequence[at[0]],)
        values = chosen(self.values)
        keys = None if self.keys is None else chosen(self.keys)
        headers = None if self.headers is None else chosen(self.headers)
        timestamps = self.timestamps
        if timestamps is not None and not isinstance(timestamps, int):
            timestamps = chosen(timestamps)
        return Bulk(values, keys, timestamps, headers, self.sizes.pick(chosen), chosen(self.places))


def _headers(given: Sequence[HeadersLike]) -> list[Headers]:
    """Each record's headers. Equal objects are converted once, and then encoded once."""
    made: dict[int, Headers] = {}
    found: list[Headers] = []
    held = list(given)  # keeps the objects alive, so that ids stay unique
    for each in held:
        if not each:
            found.append(())
            continue
        known = made.get(id(each))
        if known is None:
            known = made[id(each)] = to_headers(each)
        found.append(known)
    return found
