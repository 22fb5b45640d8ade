"""The settings of a landing job, checked before any broker is asked, and its results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ottla_pipeline.landing.errors import BadSetting
from ottla_pipeline.landing.files import COMPRESSIONS
from ottla_pipeline.landing.ledger import OffsetsByTopic
from ottla_pipeline.landing.parsing import FORMATS as VALUES
from ottla_pipeline.landing.tables import FORMATS, Names
from ottla_pipeline.metrics.server import check_listener

AVAILABLE_NOW = "available-now"
_FLAGS = re.compile(r"\A\(\?[aiLmsux]+\)")
"""Flags, which are allowed only at the start of a regular expression."""
_DATE = re.compile(r"date\((\w+)\)")


@dataclass(frozen=True)
class Landing:
    """A job that lands topics in one table. docs/landing.md explains every field.

    Raises BadSetting if a value is invalid, or two conflict.
    """

    bootstrap_servers: str
    table: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression for whole names of topics, instead of :attr:`topics`."""
    format: str = "delta"
    values: str = "raw"
    schema: str | None = None
    """DDL, a JSON Schema, an Avro schema, or the name of a file with one. None: the table's, or inferred."""
    checkpoint: str | None = None
    """No effect; earlier versions kept Spark's checkpoint there. The table says where to go on."""
    group: str | None = None
    partition_by: tuple[str, ...] = ()
    """Columns, or ``date(column)`` for the day of a timestamp."""
    target_file_size: int = 128 << 20
    task_bytes: int = 64 << 20
    """About how many bytes of the log one task reads."""
    compression: str = "zstd"
    dead_letters: str | None = None
    """``topic:NAME`` or ``table:PATH``. None: a record that can't be parsed ends the job."""
    trigger: str | float = AVAILABLE_NOW
    """``available-now``, or seconds between batches."""
    starting_offsets: str = "earliest"
    """For partitions of which the table has nothing yet: earliest, latest, group, or offsets as JSON."""
    max_records: int | None = None
    max_bytes: int | None = None
    """Most offsets, and about the most bytes, of a batch."""
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of Kafka clients, without ``kafka.``."""
    segments: Literal["auto", "always", "never"] = "auto"
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    on_corrupt: Literal["fail", "deadletter"] = "fail"
    fail_on_data_loss: bool = True
    names: Names = field(default_factory=Names)
    catalog: Mapping[str, str] | None = None
    """Properties of an Iceberg catalogue. None: one in SQLite beside the table."""
    storage: Mapping[str, str] | None = None
    """deltalake's options of the object store that a Delta table is in."""
    delimiter: str = ","
    """The separator of CSV fields."""
    confluent: bool = False
    """Whether Avro values begin with the five bytes of Confluent's framing."""
    schema_ids: tuple[int, ...] = ()
    """The ids in that framing whose schema is :attr:`schema`; a record with another one is a dead letter."""
    new_partitions: Literal["earliest", "latest"] = "earliest"
    """Where partitions and topics start that appear after the first run."""
    restarts: int = 5
    """The most times in a row that a batch is tried again after Spark crashed."""
    metrics_listener: str | None = None
    """Where the job serves metrics while it runs: ``HOST:PORT``, or a port of 127.0.0.1."""

    def __post_init__(self) -> None:
        for name in ("topics", "partition_by"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        ids: Any = self.schema_ids
        object.__setattr__(self, "schema_ids", (ids,) if isinstance(ids, int) else tuple(ids))
        if not self.bootstrap_servers.strip():
            raise BadSetting("bootstrap_servers is empty: host:port of one broker or several")
        if not self.table.strip():
            raise BadSetting("table is empty: the folder of a table, or folder/namespace.name for Iceberg")
        if bool(self.topics) == (self.pattern is not None):
            raise BadSetting("set either topics or pattern, to say what to land")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise BadSetting(
                    f"pattern is {self.pattern!r}, which is no regular expression: {error}"
                ) from None
        self._choices()
        self._numbers()
        self._partitions()
        if self.dead_letters is not None:
            kind, colon, where = self.dead_letters.partition(":")
            if kind not in ("topic", "table") or not colon or not where:
                raise BadSetting(f"dead_letters is {self.dead_letters!r}: topic:NAME or table:PATH")
            if self.dead_letters == f"table:{self.table}" or (kind == "topic" and where in self.topics):
                raise BadSetting(
                    f"dead_letters is {self.dead_letters!r}, which is what is landed: name another"
                )
        if self.on_corrupt == "deadletter" and self.dead_letters is None:
            raise BadSetting("on_corrupt is deadletter, and dead_letters does not say where they go")
        if self.starting_offsets == "group" and self.group is None:
            raise BadSetting("starting_offsets is group: set group as well")
        if self.metrics_listener is not None and (why := check_listener(self.metrics_listener)):
            raise BadSetting(why)
        if self.names.key is not None and self.names.key in {"value"}:
            raise BadSetting("the column of keys can't be called value")

    def _choices(self) -> None:
        choices = {
            "format": FORMATS,
            "values": VALUES,
            "compression": COMPRESSIONS,
            "segments": ("auto", "always", "never"),
            "isolation": ("read_uncommitted", "read_committed"),
            "on_corrupt": ("fail", "deadletter"),
            "new_partitions": ("earliest", "latest"),
        }
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known:
                raise BadSetting(f"{name} is {value!r}: {nearest(value, known)}")
        if self.catalog is not None and self.format != "iceberg":
            raise BadSetting(f"a catalog is for Iceberg tables, not for {self.format}")
        if self.storage and self.format != "delta":
            raise BadSetting(f"storage is for Delta tables, not for {self.format}")
        if self.confluent and self.values != "avro":
            raise BadSetting(f"confluent is for Avro values, not for {self.values}")
        if self.schema_ids and not self.confluent:
            raise BadSetting("schema_ids are ids in Confluent's framing: set confluent as well")
        if any(not 0 <= one < 1 << 32 for one in self.schema_ids):
            raise BadSetting(f"schema_ids are {self.schema_ids}: numbers from 0 to {2**32 - 1}")
        if self.schema is not None and self.values == "raw":
            raise BadSetting("raw values have no schema: leave it out, or say values=json, csv or avro")
        if self.schema is None and self.values == "avro":
            raise BadSetting("Avro values need an Avro schema, as JSON or as the name of a file")
        if self.delimiter != "," and self.values != "csv":
            raise BadSetting(f"delimiter is for CSV, not for {self.values}")
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0':
            raise BadSetting(f"delimiter is {self.delimiter!r}: one character of ASCII")

    def _numbers(self) -> None:
        for name in ("target_file_size", "task_bytes", "max_records", "max_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadSetting(f"{name} is {value}: a number above 0")
        if self.restarts < 0:
            raise BadSetting(f"restarts is {self.restarts}: 0 or more")
        if self.trigger != AVAILABLE_NOW:
            try:
                seconds = float(self.trigger)
            except ValueError:
                seconds = -1.0
            if not 0 <= seconds < float("inf"):
                raise BadSetting(f"trigger is {self.trigger!r}: {AVAILABLE_NOW}, or seconds between batches")

    def _partitions(self) -> None:
        seen: set[str] = set()
        for one in self.partition_by:
            if not re.fullmatch(r"\w+|date\(\w+\)", one):
                raise BadSetting(f"partition_by has {one!r}: a column, or date(column)")
            column, _ = date_column(one, self.names)
            if column in seen:
                raise BadSetting(f"partition_by names {column} twice")
            seen.add(column)

    @property
    def available_now(self) -> bool:
        """Whether the job ends with what exists when it starts."""
        return self.trigger == AVAILABLE_NOW

    @property
    def dates(self) -> dict[str, str]:
        """Columns of days, and the timestamps that they come from."""
        columns = (date_column(one, self.names) for one in self.partition_by)
        return {column: source for column, source in columns if source is not None}

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(date_column(one, self.names)[0] for one in self.partition_by)


def date_column(spec: str, names: Names) -> tuple[str, str | None]:
    """A column to partition by; for ``date(column)``, the column of days, and the one it comes from."""
    found = _DATE.fullmatch(spec)
    if found is None:
        return spec, None
    source = found.group(1)
    return ("_date" if source == names.timestamp else f"{source}_date"), source


def whole_name(pattern: str) -> str:
    """A pattern that matches only a whole name: the source looks for a pattern anywhere in a topic's name."""
    rest = _FLAGS.sub("", pattern)
    return rf"{pattern.removesuffix(rest)}\A(?:{rest})\Z"


def nearest(value: object, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(str(value), known, n=1)
    return f"is it {near[0]}?" if near else f"it can be {', '.join(known)}"


@dataclass(frozen=True)
class BatchDone:
    """A batch that is in the table."""

    batch_id: int
    rows: int
    bytes: int
    """Of keys and values, as they were read."""
    files: int
    dead_letters: int
    start: OffsetsByTopic
    end: OffsetsByTopic
    latest: OffsetsByTopic
    """The ends of the logs after the batch."""
    seconds: float
    durations: Mapping[str, float]
    """Seconds: ``read`` for Spark's job with all tasks; ``dead_letters``, ``commit``, ``group`` on the driver."""
    skipped: bool = False
    """Always false, for readers of the JSON: a batch follows on what the table has."""
    lag: int | None = None
    """The records that are left to land (:mod:`ottla_protocol.lag`); None if no broker says it."""

    def to_json(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class Landed:
    """The result of a run."""

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0
    dead_letters: int = 0
    offsets: OffsetsByTopic = field(default_factory=dict)
    """The end of the table now."""
    seconds: float = 0.0
    skipped: int = 0
    """Always 0, as in :class:`BatchDone`."""
