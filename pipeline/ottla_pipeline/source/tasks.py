"""Shared by batch and stream readers: the requested columns, and a task's ranges as Spark carries them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql.datasource import InputPartition

from ottla_pipeline.reading.ranges import COLUMNS, HEADERS

from . import kafka
from .errors import OptionError, one_line_errors
from .options import SourceOptions
from .workers import in_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ottla_client.sync import Producer
    from ottla_pipeline.reading.errors import CorruptBatch
    from ottla_pipeline.reading.ranges import OffsetRange
log = logging.getLogger("ottla_pipeline")

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


class DeadLetters:
    """Sends a task's record batches that can't be decoded to a topic, with ``onCorrupt=deadletter``.

    The value is the batch's bytes. The headers are those of a landing job's dead letters: ``ottla.topic``,
    ``ottla.partition``, ``ottla.offset``, ``ottla.last_offset``, ``ottla.error``. Connects at the first batch, and
    waits for each acknowledgement before the task reads on.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._producer: Producer | None = None

    def put(self, batch: CorruptBatch) -> None:
        """Send a batch. Raises ClientError, for example if the batch is larger than the topic allows."""
        topic = self._options.dead_letter_topic
        assert topic is not None, "checked with the options"
        headers = {
            "ottla.topic": batch.topic,
            "ottla.partition": batch.partition,
            "ottla.offset": batch.first,
            "ottla.last_offset": batch.last,
            "ottla.error": f"the record batch can't be read: {batch.reason}",
        }
        encoded = [(name, str(value).encode()) for name, value in headers.items()]
        self._sender().send(topic, value=batch.data, headers=encoded).result()
        log.warning(
            "%s-%d: offsets %d to %d can't be decoded (%s); they go to topic %s",
            batch.topic,
            batch.partition,
            batch.first,
            batch.last,
            batch.reason,
            topic,
        )

    def _sender(self) -> Producer:
        from ottla_client.sync import Producer

        if self._producer is None:
            # No limit of our own: the topic's max.message.bytes decides.
            options = kafka.client_options(self._options.client)
            producer = Producer(self._options.bootstrap_servers, max_request_size=32 * 1024 * 1024, **options)
            producer.start()
            self._producer = producer
        return self._producer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._producer is not None:
            self._producer.close()
