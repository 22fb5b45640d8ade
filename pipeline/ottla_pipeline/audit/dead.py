"""The dead letters of a table: records that are not in it for a reason."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from ottla_client import TopicPartition
from ottla_pipeline.landing import deadletters
from ottla_pipeline.landing.dead_letter_sink import NOTE
from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.tables import DataFile, Table
from ottla_pipeline.landing.tables.base import DEAD
from ottla_pipeline.reading import OffsetRange, ReadSettings, read
from ottla_pipeline.source.cluster_queries import ClusterQueries

from .runs import NOTHING, Numbers, OffsetCounts, Runs

_COLUMNS = ["topic", "partition", "offset", "last_offset"]


@dataclass(frozen=True)
class Dead:
    """By partition, the offsets of records that could not be parsed, and those in batches that could not be decoded."""

    records: Mapping[TopicPartition, Runs] = field(default_factory=dict)
    batches: Mapping[TopicPartition, Runs] = field(default_factory=dict)

    def of(self, at: TopicPartition) -> tuple[Runs, Runs]:
        """The offsets of a partition: records and batches."""
        return self.records.get(at, NOTHING), self.batches.get(at, NOTHING)


def in_table(sink: Table, table: Table) -> Dead:
    """Read a table of dead letters. Raises LandingError if it doesn't exist."""
    if not sink.exists():
        raise LandingError(f"the {sink.format} table of dead letters {sink.name} doesn't exist")
    sink.refresh()
    return _gathered([*_pending(table), *_rows_of(sink)])


def in_topic(topic: str, table: Table, servers: str, client: Mapping[str, str]) -> Dead:
    """Read a topic of dead letters. Raises LandingError if ``table`` doesn't exist; ReadError, ClientError."""
    if not table.exists():
        raise LandingError(f"the {table.format} table {table.name} doesn't exist")
    with ClusterQueries(servers, client) as cluster:
        partitions = cluster.partitions([topic])
        starts, ends = cluster.earliest(partitions), cluster.ends(partitions)
    settings = ReadSettings(
        servers, client, ("key", "value", "offset", "timestamp", "headers"), segments="never"
    )

    def letters() -> Iterator[pa.Table]:
        for at in partitions:
            for batch in read(OffsetRange(topic, "", at.partition, starts[at], ends[at].offset), settings):
                yield deadletters.from_records(batch, topic, at.partition)

    return _gathered([*_pending(table), *letters()])


def _rows_of(table: Table) -> Iterator[pa.Table]:
    for batch in table.scan(_COLUMNS):
        yield pa.Table.from_batches([batch])


def _pending(table: Table) -> Iterator[pa.Table]:
    """Undelivered dead letters of the table's last commit; the next run of the job delivers them."""
    noted = table.state().notes.get(NOTE)
    for one in map(DataFile.from_json, noted["files"] if noted else ()):
        path = posixpath.join(table.root, DEAD, one.path)
        if table.fs.get_file_info(path).type is pafs.FileType.File:
            with table.fs.open_input_file(path) as source:
                yield pq.read_table(source, columns=_COLUMNS)


def _gathered(tables: Iterable[pa.Table]) -> Dead:
    records: dict[TopicPartition, OffsetCounts] = {}
    batches: dict[TopicPartition, OffsetCounts] = {}
    for rows in tables:
        whole = pc.is_valid(rows.column("last_offset"))
        for row in rows.filter(whole).to_pylist():
            at = TopicPartition(row["topic"], row["partition"])
            batches.setdefault(at, OffsetCounts()).add_run(row["offset"], row["last_offset"] + 1)
        for at, offsets in by_partition(rows.filter(pc.invert(whole)).select(_COLUMNS[:3])):
            records.setdefault(at, OffsetCounts()).add(offsets)
    return Dead(
        {at: counts.offsets() for at, counts in records.items()},
        {at: counts.offsets() for at, counts in batches.items()},
    )


def by_partition(rows: pa.RecordBatch | pa.Table) -> Iterator[tuple[TopicPartition, Numbers]]:
    """Offsets by partition, from the columns topic, partition and offset. Mostly they are of one partition.

    Rows without any of these are another program's, and no record's.
    """
    if any(column.null_count for column in rows.columns):
        rows = rows.drop_null()
    if not len(rows):
        return
    topics, partitions, offsets = (
        column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in rows.columns
    )
    coded = topics.dictionary_encode()
    codes, numbers, parts = coded.indices.to_numpy(), offsets.to_numpy(), partitions.to_numpy()
    pairs = codes.astype("int64") << 32 | parts
    if (pairs == pairs[0]).all():
        yield TopicPartition(topics[0].as_py(), partitions[0].as_py()), numbers
        return
    for pair in pc.unique(pa.array(pairs)).to_pylist():
        yield TopicPartition(coded.dictionary[pair >> 32].as_py(), pair & 0xFFFFFFFF), numbers[pairs == pair]
