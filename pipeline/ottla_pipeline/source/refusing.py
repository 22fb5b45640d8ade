"""A stream reader that raises the error in a query's options when Spark first calls it.

Raised where Spark has a reader made, the error would be hidden: PySpark then fails on the missing reader and reports
that instead (``python_streaming_source_runner.main``, "cannot access local variable 'reader'").
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from .errors import SourceError, one_line_errors


class RefusingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error from every method."""

    def __init__(self, error: SourceError) -> None:
        self._error = error

    @one_line_errors()
    def _refuse(self, *_: Any) -> NoReturn:
        raise self._error

    prepareForTriggerAvailableNow = getDefaultReadLimit = initialOffset = _refuse
    latestOffset = partitions = read = _refuse  # type: ignore[assignment]
