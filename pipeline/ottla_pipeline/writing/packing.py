"""Rows on their way from a task to the driver, as part of the task's report."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from .rows import Rows

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class PackedRows(NamedTuple):
    """Rows as an Arrow stream, compressed."""

    topic: str
    partition: int | None
    columns: bytes

    @classmethod
    def of(cls, rows: Rows) -> PackedRows:
        columns = {"values": rows.values, "keys": rows.keys, "headers": rows.headers}
        batch = pa.RecordBatch.from_pydict(
            {name: column for name, column in columns.items() if column is not None}
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as stream:
            stream.write_batch(batch)
        return cls(rows.topic, rows.partition, sink.getvalue().to_pybytes())

    def unpack(self) -> Rows:
        with pa.ipc.open_stream(self.columns) as stream:
            batch = stream.read_next_batch()
        names = batch.schema.names
        return Rows(
            self.topic,
            self.partition,
            batch.column("values"),
            batch.column("keys") if "keys" in names else None,
            batch.column("headers") if "headers" in names else None,
        )
