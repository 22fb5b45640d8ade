"""A stream reader that raises the error in a query's options when Spark first calls it.

Raised where Spark has a reader made, the error would be hidden: PySpark then fails on the missing reader and reports
that instead (``python_streaming_source_runner.main``, "cannot access local variable 'reader'").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from .errors import SourceError, one_line_errors


class RefusingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error from every method."""

    def __init__(self, error: SourceError) -> None:
        self._error = error

    @one_line_errors()
    def _refuse(self) -> NoReturn:
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()
