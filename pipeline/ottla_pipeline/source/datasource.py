"""``format("ottla")``: the class that Spark finds. It imports nothing heavy before a query needs it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from .errors import SourceError, one_line_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class OttlaDataSource(DataSource):
    """Topics of Kafka-compatible brokers as tables and streams; options as in Spark's Kafka connector."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return "ottla"

    @one_line_errors()
    def schema(self) -> str:
        """The columns of Spark's Kafka connector. Checks the options, so that ``load()`` raises OptionError."""
        from ottla_pipeline.reading.ranges import COLUMNS, HEADERS

        from .options import check
        from .tasks import ddl
        from .units import truth

        check(self.options)
        with_headers = truth("includeHeaders", self.options.get("includeheaders", "false"))
        return ddl((*COLUMNS, HEADERS) if with_headers else COLUMNS)

    @one_line_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        from .batch import OttlaReader
        from .options import need_dead_letter_topic, resolve
        from .tasks import columns_of

        options = resolve(self.options, stream=False)
        need_dead_letter_topic(options)
        return OttlaReader(options, columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .options import need_dead_letter_topic, resolve
        from .refusing import RefusingReader
        from .stream import OttlaStreamReader
        from .tasks import columns_of

        try:
            options = resolve(self.options, stream=True)
            need_dead_letter_topic(options)
            return OttlaStreamReader(options, columns_of(schema))
        except SourceError as error:
            return RefusingReader(error)

    @one_line_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla_pipeline.writing import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    @one_line_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ottla_pipeline.writing import StreamWriter

        return StreamWriter(self.options, schema, overwrite)
