"""``ottla groups lag GROUP --history``: what brokers have kept of a group's lag, up to a week."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ottla_client.errors import ConfigurationError, OffsetOutOfRangeError, UnknownTopicError
from ottla_client.types import TopicPartition
from ottla_protocol.errors import ProtocolError
from ottla_protocol.group_lag import IN_ZOOKEEPER, HistoryReader, LagSample
from ottla_protocol.partitioning import LAG_TOPIC, partition_for
from ottla_protocol.printable import shown_name

from ..shared.admin import count_of, plural, show_seconds
from ..shared.tables import Column
from ..shared.terminal import Console
from .sparklines import sparkline

if TYPE_CHECKING:
    from ottla_client.simple_consumer import SimpleConsumer

OFFSETS_TOPIC: Final = "__consumer_offsets"
BUCKETS: Final = 24
"""Rows of the table: each stands for a part of the time."""
_FETCH_BYTES: Final = 1 << 20


class Bucket(NamedTuple):
    """The samples of a part of the time: the last one, and the largest numbers."""

    start_ms: int
    samples: int
    last: LagSample
    most_records: int | None
    most_lag_ms: int | None


async def show_history(console: Console, group_id: str, hours: float) -> None:
    """Show the history of one group. Ends the command if there is none."""
    since_ms = int(time.time() * 1000) - round(hours * 3_600_000)
    samples = await read(console, group_id, since_ms)
    if console.as_json:
        console.emit({"group": group_id, "samples": [each.document() for each in samples]})
        return
    if not samples:
        raise click.ClickException(
            f"brokers have kept no lag of group {shown_name(group_id)} in the last {show_seconds(hours * 3600)}:"
            " they sample groups with committed offsets every minute (ottla.lag.history.enable)"
        )
    found = list(buckets(samples, since_ms, round(hours * 3_600_000)))
    last = samples[-1]
    number = count_of(console)
    lags = [each.most_records for each in found]
    times = [each.most_lag_ms for each in found]
    console.details(
        {
            "Group": group_id,
            "Kind": last.kind,
            "Samples": f"{len(samples)} in {show_seconds(hours * 3600)}",
            "Lag": _line(lags, "—" if last.records is None else plural(last.records, "record")),
            "Behind": _line(times, "—" if last.lag_ms is None else show_seconds(last.lag_ms / 1000)),
        }
    )
    console.print()
    console.table(
        [
            Column("Since"),
            Column("Samples", right=True),
            Column("Lag", "lag_records", right=True, show=number),
            Column("Most", "most_lag_records", right=True, show=number),
            Column("Behind", "lag_seconds", right=True, show=show_seconds),
            Column("Trend", "trend_records_per_second", right=True, show=lambda trend: f"{trend:+,.1f}/s"),
            Column("Catch-up", "catch_up_seconds", right=True, show=show_seconds),
            Column(
                "Committed", "commit_age_seconds", right=True, show=lambda age: f"{show_seconds(age)} ago"
            ),
        ],
        [_row(each) for each in found],
    )


async def read(console: Console, group_id: str, since_ms: int) -> list[LagSample]:
    """The samples of a group, read with the command's options."""
    from ottla_client.simple_consumer import SimpleConsumer, SimpleConsumerSettings

    try:
        consumer = SimpleConsumer(
            **console.settings.of(
                SimpleConsumerSettings, default_api_timeout_ms=max(1, round(console.timeout * 1000))
            )
        )
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    async with consumer:
        return await read_by(consumer, group_id, since_ms)


async def read_by(consumer: SimpleConsumer, group_id: str, since_ms: int) -> list[LagSample]:
    """The samples in the topic; none if there is no such topic, as in Apache Kafka. Raises ClientError."""
    try:
        count = len(await consumer.partitions_for(LAG_TOPIC))
        source = partition_for(group_id, len(await consumer.partitions_for(OFFSETS_TOPIC)))
    except UnknownTopicError:
        return []
    reader = HistoryReader(group_id, source, since_ms)
    for index in {source % count, IN_ZOOKEEPER % count}:
        await _read_partition(consumer, TopicPartition(LAG_TOPIC, index), reader, since_ms)
    return reader.samples()


async def _read_partition(
    consumer: SimpleConsumer, partition: TopicPartition, reader: HistoryReader, since_ms: int
) -> None:
    offset = await consumer.offset_at(partition, since_ms)
    end = await consumer.end_offset(partition)
    while offset < end:
        try:
            fetched = await consumer.fetch(partition, offset, max_bytes=_FETCH_BYTES)
        except OffsetOutOfRangeError:
            # Retention was quicker.
            offset = max(offset + 1, await consumer.beginning_offset(partition))
            continue
        for record in fetched.records:
            try:
                reader.add(record.key, record.value)
            except ProtocolError as error:
                raise click.ClickException(
                    f"{partition.topic}:{partition.partition} has a record at offset {record.offset} that no"
                    f" coordinator wrote: {error}"
                ) from None
        if fetched.next_offset <= offset:
            return  # Nothing but what was truncated meanwhile.
        offset = fetched.next_offset


def buckets(samples: Sequence[LagSample], since_ms: int, span_ms: int) -> Iterator[Bucket]:
    """The samples by parts of the time; parts without samples are left out."""
    width = max(1, span_ms // BUCKETS)
    parts: dict[int, list[LagSample]] = {}
    for each in samples:
        parts.setdefault(max(0, each.time_ms - since_ms) // width, []).append(each)
    for part, its in parts.items():
        yield Bucket(
            since_ms + part * width,
            len(its),
            its[-1],
            max((each.most_records for each in its if each.most_records is not None), default=None),
            max((each.lag_ms for each in its if each.lag_ms is not None), default=None),
        )


def _line(values: Sequence[int | None], now: str) -> str:
    known = [value or 0 for value in values]
    return f"{sparkline(known)}  now {now}"


def _row(bucket: Bucket) -> tuple[Any, ...]:
    last = bucket.last
    started = datetime.fromtimestamp(bucket.start_ms / 1000).astimezone()
    return (
        started.isoformat(sep=" ", timespec="minutes")[:16],
        bucket.samples,
        last.records,
        bucket.most_records,
        _seconds(bucket.most_lag_ms),
        last.slope,
        _seconds(last.catch_up_ms),
        _seconds(last.commit_age_ms),
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
