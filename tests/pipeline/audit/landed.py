"""Tables that were landed by hand, a commit at a time, so that each can be spoiled in its own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from tests.support.processes import BrokerProcess

from ottla_client.sync import Producer
from ottla_client.types import TopicPartition
from ottla_pipeline.landing.files import FileSettings, FileWriter
from ottla_pipeline.landing.ledger import LandedRange
from ottla_pipeline.landing.tables import Commit, DataFile, Names, Table, open_table
from ottla_pipeline.reading import OffsetRange, ReadSettings, read
from ottla_pipeline.reading.checksum import Checksum
from ottla_pipeline.source.cluster_queries import ClusterQueries

Change = Callable[[pa.Table], pa.Table]
SCHEMA = pa.schema([*Names().fields(), pa.field("value", pa.binary())])


def produce(broker: BrokerProcess, topic: str, partition: int, values: Sequence[bytes | None]) -> None:
    """The values to one partition, with keys, in order."""
    with Producer(broker.bootstrap) as producer:
        keys = [f"key {number}".encode() for number in range(len(values))]
        producer.send_batch(topic, values, keys=keys, partition=partition).result()


class Landing:
    """Lands ranges of a broker's topics in a table of three columns and the values."""

    def __init__(self, broker: BrokerProcess, folder: Path, form: str = "delta") -> None:
        self.broker = broker
        name = "lake/default.flights" if form == "iceberg" else "lake/flights"
        self.place = str(folder / name)
        self.form = form
        self.table: Table = open_table(form, self.place)
        self._files = 0

    def land(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        change: Change = lambda rows: rows,
        dead: int = 0,
    ) -> None:
        """One commit; ``change`` changes the rows on their way into the file, and nothing of what the commit says."""
        if not self.table.exists():
            self.table.create(SCHEMA, [])
        settings = ReadSettings(self.broker.bootstrap, segments="never")
        batches = list(read(OffsetRange(topic, "", partition, start, end), settings))
        rows = pa.Table.from_batches(batches)
        checksum = Checksum.of(rows.combine_chunks())
        columns = ["topic", "partition", "offset", "timestamp", "value"]
        kept = change(rows.select(columns).rename_columns(SCHEMA.names))
        with ClusterQueries(self.broker.bootstrap) as broker:
            ids = broker.topic_ids([topic])
        self.table.commit(
            Commit(
                files=[self.write(kept)],
                landed={
                    TopicPartition(topic, partition): (
                        LandedRange(start, end, checksum.count, checksum.total, dead),
                    )
                },
                topic_ids=ids,
                run_id="by hand",
                batch_id=self._files,
            )
        )

    def write(self, rows: pa.Table) -> DataFile:
        """A file in the table's folder, which is in the table only once it is committed."""
        self._files += 1
        self.table.refresh()
        writer = FileWriter(*self.table.staging.open(), self.table.layout(), FileSettings(), "part")
        writer.write(rows.cast(SCHEMA))
        (file,) = writer.close()
        return file
