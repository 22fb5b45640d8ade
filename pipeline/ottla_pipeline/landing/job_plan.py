"""Prepares a job for its first batch: its table, its columns, and where every partition goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from ottla_client import TopicPartition
from ottla_pipeline.landing.errors import LandingError, SchemaRefused
from ottla_pipeline.landing.evolution import check_filled, check_partitioning, grown
from ottla_pipeline.landing.files import FileSettings
from ottla_pipeline.landing.ledger import LandedRange, check_id
from ottla_pipeline.landing.parsing import ParserSettings, formats
from ottla_pipeline.landing.parsing.formats import packed
from ottla_pipeline.landing.schema import checked, nullable, widened
from ottla_pipeline.landing.settings import Landing, whole_name
from ottla_pipeline.landing.tables import Commit, Names, Table, open_table
from ottla_pipeline.landing.task import TaskSettings
from ottla_pipeline.reading import OffsetRange, read
from ottla_pipeline.source.cluster_queries import ClusterQueries, ids_of, select
from ottla_pipeline.source.options import Limits, SourceOptions, Splits, Topics, client_settings
from ottla_pipeline.source.positions import EARLIEST, LATEST, Kind, starting
from ottla_pipeline.source.resolving import start_of

_SAMPLE = 1000
"""Most records of a partition to infer a schema from."""
_FILES = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_boolean)
"""Types that a table can be partitioned by."""


@dataclass
class JobPlan:
    """A job that is ready for its first batch."""

    table: Table
    values: ParserSettings
    ids: Mapping[str, str]
    offsets: dict[TopicPartition, int]
    """The next offset to land, for every partition."""


def plan_job(landing: Landing, cluster: ClusterQueries, run_id: str) -> JobPlan:
    """Open or create the table, and resolve where new partitions start.

    The table keeps these offsets: if a run that starts at ``latest`` is killed before its first batch, the next run
    starts at the same offsets. Raises LandingError if the table or the schema can't be used. Also raises SourceError
    and ClientError.
    """
    options = source_options(landing)
    topics = cluster.topics(options.topics)
    for name in landing.topics:
        if name not in topics:
            raise cluster.missing(name)
    partitions = select(options.topics, topics)
    ids = ids_of(topics)
    table = table_of(landing)
    exists = table.exists()
    if exists:
        table.refresh()
        table.check()
        table.check_rows()
    state = table.state(sorted(topics)) if exists else None
    known: dict[TopicPartition, int] = {}
    for at in partitions:
        if state is not None:
            check_id(table.name, at.topic, state.ledger.ids.get(at.topic, ""), ids.get(at.topic, ""))
            next_offset = state.ledger.next(at)
            if next_offset is not None:
                known[at] = next_offset
    missing = [at for at in partitions if at not in known]
    if state is not None:
        check_recorded(
            table, landing.names, {at.topic for at in missing} - {at.topic for at in state.ledger.landed}
        )
    first = state is None or not state.ledger.landed
    starts = _starts(cluster, options, partitions if first else missing, landing, first) if missing else {}
    offsets = {at: known.get(at, starts.get(at, 0)) for at in partitions}
    values = values_of(landing, table if exists else None, lambda: _sample(options, cluster, offsets, ids))
    columns(landing, table, formats.columns(values), exists)
    if missing:
        landed = {at: (LandedRange(offsets[at], offsets[at]),) for at in missing}
        table.commit(Commit(landed=landed, topic_ids=ids, run_id=run_id))
    return JobPlan(table, values, ids, offsets)


def check_recorded(table: Table, names: Names, topics: Collection[str]) -> None:
    """Raises LandingError if the table has rows of topics of which it doesn't say that anything was landed."""
    topic = names.of_table(table).topic
    if not topics or topic not in table.schema().names:
        return
    for batch in table.scan([topic]):
        for found in pc.unique(batch.column(0)).to_pylist():
            if found in topics:
                raise LandingError(
                    f"{table.name} has rows of {found}, and no record of what was landed, as a copy or a clone of a "
                    "landed table has none: their records would be landed again; land in a new table"
                )


def _starts(
    cluster: ClusterQueries,
    options: SourceOptions,
    partitions: Sequence[TopicPartition],
    landing: Landing,
    first: bool,
) -> dict[TopicPartition, int]:
    """Where partitions start of which the table has nothing.

    Those that appear after the first run start at their beginning, unless the group or the user names an offset for
    them, or :attr:`Landing.new_partitions` says otherwise: what they got before they were found would be skipped.
    """
    position = options.starting
    if not first and position.kind is Kind.LATEST:
        position = replace(position, kind=Kind(landing.new_partitions))
    elif not first and position.kind is Kind.OFFSETS:
        given = position.of or {}
        beginning = EARLIEST if landing.new_partitions == "earliest" else LATEST
        position = replace(position, of={at: given.get(at, beginning) for at in partitions})
    return start_of(cluster, replace(options, starting=position), partitions)


def source_options(landing: Landing) -> SourceOptions:
    """The options for reading, as of ``format("ottla")``.

    Raises OptionError if a setting of the client, or the starting offsets, are invalid.
    """
    client, group, servers = client_settings(landing.client), landing.group, landing.bootstrap_servers.strip()
    return SourceOptions(
        servers,
        Topics(landing.topics) if landing.pattern is None else Topics(pattern=whole_name(landing.pattern)),
        starting({"startingoffsets": landing.starting_offsets}, "earliest"),
        client=client,
        group=group,
        isolation=landing.isolation,
        fail_on_data_loss=landing.fail_on_data_loss,
        limits=Limits(landing.max_records, landing.max_bytes),
        splits=Splits(max_bytes=landing.task_bytes, bytes_by_default=False),
        segments=landing.segments,
        on_corrupt=landing.on_corrupt,
    )


def table_of(landing: Landing) -> Table:
    return open_table(landing.format, landing.table, catalog=landing.catalog, storage=landing.storage)


def values_of(landing: Landing, table: Table | None, sample: Callable[[], pa.Array]) -> ParserSettings:
    """How values are parsed: by the given schema, the table's, or one inferred from ``sample()``."""
    known = None
    names = landing.names if table is None else landing.names.of_table(table)
    beside = {one.name for one in names.fields()} | set(landing.dates)
    if table is not None and landing.schema is None:
        known = pa.schema([one for one in table.schema() if one.name not in beside]) or None
    return formats.settings(
        landing.values,
        landing.schema,
        sample,
        known=known,
        delimiter=landing.delimiter,
        confluent=landing.confluent,
        schema_ids=landing.schema_ids,
        reserved=sorted(beside),
    )


def with_new(landing: Landing, table: Table, values: ParserSettings, new: pa.Schema) -> ParserSettings:
    """Add columns, or fields of them, that records have and the table lacks; returns how values are parsed then."""
    known = formats.columns(values)
    others = [one for one in new if one.name not in known.names]
    grown_ones = [
        one.with_type(widened(one.type, new.field(one.name).type)) if one.name in new.names else one
        for one in known
    ]
    columns(landing, table, pa.schema([*grown_ones, *others]), exists=True)
    return values_of(landing, table, lambda: pa.array([], pa.binary()))


def columns(landing: Landing, table: Table, data: pa.Schema, exists: bool) -> None:
    """Create the table, or add missing columns.

    Raises SchemaRefused if two columns have the same name, or the table's columns don't fit.
    """
    names = landing.names.of_table(table) if exists else landing.names
    own = names.fields()
    if exists:
        _check_names(landing, table, names)
    wanted = checked(
        pa.schema([*data, *own, *(pa.field(name, pa.date32()) for name in landing.dates)]),
        "with Ottla's columns",
    )
    for name, source in landing.dates.items():
        kind = wanted.field(source).type if source in wanted.names else None
        if kind is None or not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise SchemaRefused(
                f"partition_by has date({source}): {source} is no column of times (for {name})"
            )
    for name in landing.partition_columns:
        if name not in wanted.names:
            raise SchemaRefused(
                f"partition_by names {name}, which is no column; there are {', '.join(wanted.names)}"
            )
        if not any(test(wanted.field(name).type) for test in _FILES):
            raise SchemaRefused(
                f"partition_by names {name}, of type {wanted.field(name).type}: no folder can be of it"
            )
    if not exists:
        table.create(wanted, landing.partition_columns)
    if exists:
        check_filled(table.name, table.schema(), wanted)
    check_partitioning(table.name, table.layout(), landing.partition_columns, wanted)
    _, new = grown(table.name, table.schema(), wanted, table.widens, table.to_widen)
    if new:
        table.add_columns(new)


def _check_names(landing: Landing, table: Table, names: Names) -> None:
    """Raises LandingError if rows were landed, and a column is gone that says where they come from."""
    has = table.schema().names
    for kind in ("topic", "partition", "offset", "timestamp"):
        if getattr(names, kind) not in has and table.state(landing.topics).ledger.landed:
            raise LandingError(
                f"{table.name} has landed rows, and no column {getattr(names, kind)} any more, which says where they "
                f"come from: if another program has renamed it, give its name with --column {kind}=NAME (in Python: "
                f"names=Names({kind}=...)); if it was dropped, land in a new table"
            )


def task_of(landing: Landing, table: Table, values: ParserSettings) -> TaskSettings:
    schema = table.schema()
    return TaskSettings(
        table=table.name,
        staging=table.staging,
        # What is NOT NULL in the table has been checked by the parser.
        schema=packed(nullable(schema)),
        layout=table.layout(),
        names=landing.names.of_table(table),
        values=values,
        files=FileSettings.of(table, landing.names, landing.compression, landing.target_file_size),
        dates=landing.dates,
        dead=table.dead if landing.dead_letters is not None else None,
    )


def _sample(
    options: SourceOptions,
    cluster: ClusterQueries,
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
) -> pa.Array:
    """Values of the first records to land."""
    earliest = cluster.earliest(list(offsets))
    ends = cluster.latest(list(offsets), options.isolation)
    settings = options.read_settings(("value",))
    found: list[pa.Array] = []
    for at, offset in offsets.items():
        start = max(offset, earliest[at])
        end = min(start + _SAMPLE, ends[at])
        if start < end:
            span = OffsetRange(at.topic, ids.get(at.topic, ""), at.partition, start, end)
            # A batch that can't be decoded doesn't help to infer a schema.
            found += [batch.column("value") for batch in read(span, settings, lambda _: None)]
    values = pa.chunked_array(found, pa.binary()).combine_chunks()
    if not len(values):
        names = Topics(tuple(sorted({at.topic for at in offsets})))
        raise LandingError(
            f"there are no records in {names} to infer a schema from: give one, or wait for some"
        )
    return values
