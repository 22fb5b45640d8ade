"""Shared by batch and stream readers: the requested columns, and a task's ranges as Spark carries them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from ottla_pipeline.reading.ranges import COLUMNS, HEADERS

from .deadletters import DeadLetters
from .errors import OptionError, one_line_errors
from .options import SourceOptions
from .workers import in_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ottla_pipeline.reading.ranges import OffsetRange

TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""All columns, with the types of Spark's Kafka connector."""


class RangePartition(InputPartition):
    """The ranges that a task reads, one after the other; pickled by Spark."""

    value: tuple[OffsetRange, ...]


def ddl(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a query's schema. Raises OptionError for an unknown column or a wrong type."""
    for field in schema.fields:
        if field.name not in TYPES:
            raise OptionError(
                f"unknown column {field.name!r}; the columns are {', '.join((*COLUMNS, HEADERS))}"
            )
        if field.dataType.simpleString() != TYPES[field.name]:
            raise OptionError(
                f"the column {field.name} is of type {TYPES[field.name]}, not {field.dataType.simpleString()}"
            )
    return tuple(schema.fieldNames())


def batches(
    partition: InputPartition, options: SourceOptions, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """In a task: the records of its ranges. Raises as ``reading.read``."""
    from ottla_pipeline.reading import read

    settings = options.read_settings(columns)
    with in_worker(), one_line_errors(), ExitStack() as stack:
        set_aside = None
        if options.on_corrupt == "deadletter":
            set_aside = stack.enter_context(DeadLetters(options)).put
        for range in partition.value:
            yield from read(range, settings, set_aside)
