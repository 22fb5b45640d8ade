"""Maps the columns of a DataFrame to records, as lists for the producer.

The rules are those of Spark's Kafka sink: ``value`` and optionally ``key``, each string or binary; ``headers``, an
array of structs of key and value; ``partition``, an int; ``topic``, a string, which the option ``topic`` overrides.
Other columns are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .errors import WriteError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql.types import DataType, StructType

Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = tuple[Header, ...]

# A record's overhead as ottla_client estimates it; its limits apply to that.
_RECORD_OVERHEAD = 14
_KEY_OVERHEAD = 2
_HEADER_OVERHEAD = 6
BATCH_OVERHEAD = 61 + 32 - _RECORD_OVERHEAD
"""Most bytes of a batch with one record, beyond what ``Rows.sizes`` counts."""


@dataclass(frozen=True)
class Rows:
    """Rows for one topic and, if they name one, one partition, as Arrow columns."""

    topic: str
    partition: int | None
    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, mask: NDArray[np.bool_]) -> Rows:
        """The rows for which ``mask`` is true."""
        if mask.all():
            return self
        chosen = pa.array(mask)
        return Rows(
            self.topic,
            self.partition,
            self.values.filter(chosen),
            None if self.keys is None else self.keys.filter(chosen),
            None if self.headers is None else self.headers.filter(chosen),
        )

    def sizes(self, extra: int) -> NDArray[np.int64]:
        """Estimates each record's bytes, never too low; ``extra`` is for headers that all records get."""
        sizes = _lengths(self.values) + (_RECORD_OVERHEAD + extra)
        if self.keys is not None:
            sizes += _lengths(self.keys) + _KEY_OVERHEAD
        if self.headers is not None:
            pairs = pc.list_flatten(self.headers)
            each = _lengths(pairs.field("key")) + _lengths(pairs.field("value")) + _HEADER_OVERHEAD
            owners = pc.list_parent_indices(self.headers).to_numpy(zero_copy_only=False)
            sizes += np.bincount(owners, weights=each, minlength=len(self)).astype(np.int64)
        return sizes

    def value_list(self) -> list[bytes | None]:
        return _objects(self.values)

    def key_list(self) -> list[bytes | None] | None:
        """None: no row has a key."""
        return None if self.keys is None or self.keys.null_count == len(self) else _objects(self.keys)

    def header_lists(self) -> list[Headers] | None:
        """None: no row has headers. Raises WriteError for a header without a name."""
        if self.headers is None or self.headers.null_count == len(self):
            return None
        try:
            return [
                tuple((pair["key"], pair["value"]) for pair in row or ()) for row in self.headers.to_pylist()
            ]
        except TypeError:
            raise WriteError(
                f"a row for topic {self.topic} has a null among its headers; leave it out"
            ) from None


def header_size(header: Header) -> int:
    """Bytes that ``Rows.sizes`` counts for a header."""
    name, value = header
    return _HEADER_OVERHEAD + len(name.encode()) + len(value or b"")


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    lengths: NDArray[Any] = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)


def _objects(column: pa.Array) -> list[bytes | None]:
    """The list of values; numpy makes it several times as fast as ``to_pylist``."""
    found: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return found


@dataclass(frozen=True)
class Layout:
    """The index of each field in a row, None if missing; ``topic`` is set if all rows go to one."""

    value: int
    key: int | None
    headers: int | None
    partition: int | None
    topic_column: int | None
    topic: str | None

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> Layout:
        """From a DataFrame's schema. Raises WriteError naming a column that is missing or has a wrong type."""
        from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

        def is_text(kind: DataType) -> bool:
            return isinstance(kind, StringType | BinaryType)

        def are_headers(kind: DataType) -> bool:
            if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
                return False
            fields = [(each.name, type(each.dataType)) for each in kind.elementType.fields]
            return fields == [("key", StringType), ("value", BinaryType)]

        rules = {
            "value": (is_text, "string or binary"),
            "key": (is_text, "string or binary"),
            "headers": (are_headers, "array<struct<key: string, value: binary>>"),
            "partition": (lambda kind: isinstance(kind, IntegerType), "int"),
            "topic": (lambda kind: isinstance(kind, StringType), "string"),
        }
        places: dict[str, int] = {}
        for place, field in enumerate(schema.fields):
            if field.name not in rules:
                continue
            if field.name in places:
                raise WriteError(f"there are two columns {field.name}; one is needed")
            right, wanted = rules[field.name]
            if not right(field.dataType):
                raise WriteError(
                    f"the column {field.name} has the type {field.dataType.simpleString()}; {wanted} is needed"
                )
            places[field.name] = place
        if "value" not in places:
            raise WriteError(
                f"the column value, which is written, is missing; the columns are {', '.join(schema.fieldNames())}"
            )
        if topic is None and "topic" not in places:
            raise WriteError("no topic is named to write to: set the option topic, or add a column topic")
        return cls(
            places["value"],
            places.get("key"),
            places.get("headers"),
            places.get("partition"),
            None if topic is not None else places["topic"],
            topic,
        )

    def split(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        """The rows of a batch by topic and named partition, in order within each.

        Raises WriteError for a row without a topic.
        """
        whole = Rows(
            self.topic or "",
            None,
            _binary(batch.column(self.value)),
            None if self.key is None else _binary(batch.column(self.key)),
            None if self.headers is None else batch.column(self.headers),
        )
        if self.topic_column is None:
            yield from self._by_partition(
                whole, None if self.partition is None else batch.column(self.partition)
            )
            return
        topics = batch.column(self.topic_column)
        if topics.null_count:
            raise WriteError(
                "a row's topic is null; fill the column topic, or set the option topic for all rows"
            )
        partitions = None if self.partition is None else batch.column(self.partition)
        for topic in pc.unique(topics).to_pylist():
            mask = pc.equal(topics, topic)
            rows = whole.take(mask.to_numpy(zero_copy_only=False))
            yield from self._by_partition(
                Rows(topic, None, rows.values, rows.keys, rows.headers),
                None if partitions is None else partitions.filter(mask),
            )

    def _by_partition(self, rows: Rows, partitions: pa.Array | None) -> Iterator[Rows]:
        if partitions is None or partitions.null_count == len(partitions):
            yield rows
            return
        for partition in pc.unique(partitions).to_pylist():
            mask = (
                pc.is_null(partitions)
                if partition is None
                else pc.fill_null(pc.equal(partitions, partition), False)
            )
            some = rows.take(mask.to_numpy(zero_copy_only=False))
            yield Rows(some.topic, partition, some.values, some.keys, some.headers)


def _binary(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    return column


def joined(headers: list[Headers] | None, own: Header | None, count: int) -> Sequence[Headers] | None:
    """Headers of ``count`` records, each followed by ``own``; None for none.

    Records without other headers share one object, which the producer encodes once.
    """
    if own is None:
        return headers
    alone = (own,)
    if headers is None:
        return [alone] * count
    return [(*each, own) if each else alone for each in headers]
