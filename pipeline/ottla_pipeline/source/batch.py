"""The batch reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .cluster_queries import ClusterQueries, ids_of, select
from .errors import OptionError, one_line_errors
from .offsets import Offsets
from .options import SourceOptions
from .planning import Plan, plan
from .positions import Kind
from .resolving import end_of, start_of
from .tasks import RangePartition, batches

if TYPE_CHECKING:
    import pyarrow as pa


class OttlaReader(DataSourceReader):
    """Made in the planning process and pickled to the tasks: holds options, no connections.

    It has no ``pushFilters``: with that, every query would fail unless spark.sql.python.filterPushdown.enabled is set.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    @one_line_errors()
    def partitions(self) -> Sequence[InputPartition]:
        return [RangePartition(ranges) for ranges in planned(self.options).tasks] or [RangePartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition, self.options, self.columns)


@one_line_errors()
def planned(options: SourceOptions) -> Plan:
    """Plan what a batch reads now. Raises SourceError, DataLoss, ClientError."""
    with ClusterQueries(options.bootstrap_servers, options.client) as cluster:
        topics = cluster.topics(options.topics)
        for name in {*options.topics.names, *(each.topic for each in options.topics.assigned)}:
            if name not in topics:
                raise cluster.missing(name)
        partitions = select(options.topics, topics)
        ids = ids_of(topics)
        start = start_of(cluster, options, partitions)
        end = end_of(cluster, options, partitions)
        for partition in partitions:
            if start[partition] > end[partition] and options.ending.kind is not Kind.LATEST:
                raise OptionError(
                    f"{options.starting.option} is at offset {start[partition]} of {partition}, behind"
                    f" {options.ending.option} at {end[partition]}"
                )
        return plan(cluster, options, Offsets(start, ids), Offsets(end, ids))
