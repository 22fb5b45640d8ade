"""The stream that a landing job runs: the source's own planning, and tasks that land what they read.

A row of it is a report on a range that a task has landed. Nothing else goes through Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ottla_pipeline.source.errors import spoken
from ottla_pipeline.source.options import SourceOptions
from ottla_pipeline.source.stream import OttlaStreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

OPTION = "landing"
"""The option that carries a job's settings to its tasks."""


class LandingReader(OttlaStreamReader):
    """Plans as ``format("ottla")`` does, and lands in its tasks."""

    def __init__(self, options: SourceOptions, task: str) -> None:
        super().__init__(options, ())
        self._task = task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: a report for each of its ranges."""
        import pyarrow as pa

        from ottla_pipeline.landing.task import COLUMNS, TaskSettings, land_ranges

        task, reading = TaskSettings.from_text(self._task), self.options.read_settings(COLUMNS)
        reports = land_ranges(task, partition.value, reading)
        yield pa.RecordBatch.from_pydict({"report": pa.array(reports, pa.string())})


class LandingSource(DataSource):
    """Registered by the job for itself."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return "ottla-landing"

    def schema(self) -> str:
        """One line a range."""
        return "report string"

    @spoken
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a query."""
        from ottla_pipeline.source.options import resolve

        return LandingReader(resolve(self.options, stream=True, beside=(OPTION,)), self.options[OPTION])
