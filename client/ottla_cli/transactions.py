"""``ottla transactions``: list, describe, describe-producers, find-hanging, abort, fence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from ottla_client.errors import BrokerError, ClientError
from ottla_client.types import TopicPartition
from ottla_protocol.printable import shown_name

from .shared.admin import (
    admin_of,
    count_of,
    known_partitions,
    matches,
    none_of,
    partitions_option,
    plural,
    show_partitions,
    show_seconds,
    topics_of,
    wanted_partitions,
    without_repeats,
)
from .shared.completion import complete_topics
from .shared.tables import Column
from .shared.terminal import YES, Console, options, unknown
from .shared.timefmt import now_ms, parse_duration, show_time
from .shared.topic_checks import TOPIC

if TYPE_CHECKING:
    from ottla_client.admin import Admin, ProducerState

_TOPIC = partitions_option(
    help="Search these partitions, by default all. Repeat it for several topics.",
)


def _duration(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Milliseconds."""
    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def transactions() -> None:
    """List transactions, show their state, and end those that hang.

    A transaction that hangs is open in a partition, but its coordinator doesn't know it. Consumers with read_committed
    wait for it forever, and compaction stops there.

    \b
    ottla transactions list --state Ongoing
    ottla transactions describe billing-1
    ottla transactions find-hanging
    """


@transactions.command("list", short_help="List transactional ids with their state.")
@click.argument("pattern", required=False)
@click.option(
    "--state",
    "states",
    multiple=True,
    help="List only ids in this state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort. "
    "Repeat it for several.",
)
@click.option(
    "--producer-id", "producer_ids", type=int, multiple=True, metavar="ID", help="List only these producers."
)
@click.option(
    "--open-for",
    callback=_duration,
    metavar="DURATION",
    help="List only transactions that have been open for longer, such as 10m. Needs Kafka 3.8.",
)
@options
async def list_transactions(
    console: Console,
    pattern: str | None,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    open_for: int | None,
) -> None:
    """List transactional ids, or those that match PATTERN (* and ? as in a shell), with their last transaction.

    \b
    ottla transactions list
    ottla transactions list 'billing-*' --state Ongoing --json
    ottla transactions list --open-for 10m
    """
    async with admin_of(console) as admin:
        listed = await admin.list_transactions(states=states, producer_ids=producer_ids, open_for_ms=open_for)
    rows = [
        (name, each.state, each.producer_id, each.coordinator)
        for name, each in listed.items()
        if pattern is None or matches(name, pattern)
    ]
    columns = ["Transactional id", "State", "Producer id", "Coordinator"]
    conditions = (
        f"in state {' or '.join(states)}" if states else "",
        f"of producer {' or '.join(map(str, producer_ids))}" if producer_ids else "",
        f"open for more than {show_seconds(open_for / 1000)}" if open_for is not None else "",
    )
    console.table(columns, rows, empty=none_of("transactional id", pattern, *conditions))


@transactions.command(short_help="Show a transaction with its partitions.")
@click.argument("name", metavar="TRANSACTIONAL_ID")
@options
async def describe(console: Console, name: str) -> None:
    """Show the state of a transactional id: its producer, timeout, open transaction and partitions.

    \b
    ottla transactions describe billing-1
    """
    async with admin_of(console) as admin:
        try:
            found = (await admin.describe_transactions([name]))[name]
        except BrokerError as error:
            raise await _unknown(admin, name, error) from error
    partitions = sorted(found.partitions)
    if console.as_json:
        console.emit(
            {
                "transactional_id": name,
                "state": found.state,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "timeout_ms": found.timeout_ms,
                "started": found.started_ms,
                "coordinator": found.coordinator,
                "partitions": [list(partition) for partition in partitions],
            }
        )
        return
    began = None
    if found.started_ms is not None:
        began = f"{show_time(found.started_ms)} ({show_seconds(max(0, now_ms() - found.started_ms) / 1000)})"
    console.details(
        {
            "Transactional id": name,
            "State": found.state,
            "Producer id": found.producer_id,
            "Producer epoch": found.producer_epoch,
            "Timeout": show_seconds(found.timeout_ms / 1000),
            **({} if found.is_open or began is None else {"Last one began": began}),
            "Open since": began if found.is_open else None,
            "Partitions": show_partitions(partitions) or None,
            "Coordinator": found.coordinator,
        }
    )


async def _unknown(admin: Admin, name: str, error: BrokerError) -> ClientError | click.ClickException:
    """The error for an id that can't be described; a suggestion for an unknown one."""
    from ottla_protocol.errors import ErrorCode

    if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return error
    return unknown("transactional id", name, await admin.list_transactions())


def _producer_columns(console: Console) -> list[Column | str]:
    number = count_of(console)
    return [
        "Topic",
        "Partition",
        Column("Producer id", right=True),
        Column("Epoch", "producer_epoch", right=True),
        Column("Coordinator epoch", right=True),
        Column("Start offset", right=True, show=number),
        Column("Last timestamp", show=show_time),
    ]


def _producer_row(partition: TopicPartition, producer: ProducerState) -> tuple[Any, ...]:
    return (
        partition.topic,
        partition.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.transaction_start_offset,
        producer.last_timestamp,
    )


@transactions.command("describe-producers", short_help="Show the producers that partitions remember.")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:0,2,4-7]…", shell_complete=complete_topics)
@options
async def describe_producers(console: Console, topics: tuple[str, ...]) -> None:
    """Show the idempotent and transactional producers that the leaders of partitions remember.

    The start offset is that of an open transaction.

    \b
    ottla transactions describe-producers orders:0
    """
    async with admin_of(console) as admin:
        found = await admin.describe_producers(await _partitions(admin, topics))
    rows = [
        (*_producer_row(partition, each), each.last_sequence)
        for partition in sorted(found)
        for each in found[partition]
    ]
    columns = [*_producer_columns(console), Column("Last sequence", right=True)]
    console.table(columns, without_repeats(console, rows), empty="the partitions remember no producer")


async def _partitions(admin: Admin, topics: Iterable[str]) -> list[TopicPartition]:
    """The partitions that the command names; all of the cluster if it names none."""
    wanted = wanted_partitions(tuple(topics))
    known = await topics_of(admin, wanted) if wanted else await admin.list_topics(include_internal=True)
    return known_partitions(wanted or dict.fromkeys(known), known)


@transactions.command("find-hanging", short_help="Find transactions that no coordinator will end.")
@_TOPIC
@click.option(
    "--broker-id", type=int, metavar="ID", help="Search only partitions with a replica on this broker."
)
@click.option(
    "--max-transaction-timeout",
    callback=_duration,
    default="15m",
    show_default=True,
    metavar="DURATION",
    help="Count transactions whose producer has been silent for longer; at least the brokers' "
    "transaction.max.timeout.ms.",
)
@options
async def find_hanging(
    console: Console, topics: tuple[str, ...], broker_id: int | None, max_transaction_timeout: int
) -> None:
    """Find open transactions of silent producers that their coordinators don't know.

    A hanging transaction is left by a request that a broker got after the end of its transaction. Kafka brokers since
    3.6 and Ottla brokers refuse such requests. The numbers are what `ottla transactions abort` needs.

    \b
    ottla transactions find-hanging
    ottla transactions find-hanging --topic orders --json
    """
    async with admin_of(console) as admin:
        partitions = await _partitions(admin, topics)
        if broker_id is not None:
            described = await admin.describe_topics(sorted({each.topic for each in partitions}))
            partitions = [
                each
                for each in partitions
                if broker_id in described[each.topic].partitions[each.partition].replicas
            ]
        found = await admin.find_hanging_transactions(partitions, max_timeout_ms=max_transaction_timeout)
    now = now_ms()
    rows = [
        (
            *_producer_row(each.partition, each.producer),
            round(max(0, now - each.producer.last_timestamp) / 1000, 3),
            each.transactional_id,
        )
        for each in found
    ]
    columns = [
        *_producer_columns(console),
        Column("Silent for", "silent_seconds", right=True, show=show_seconds),
        "Transactional id",
    ]
    console.table(columns, without_repeats(console, rows), empty="no transaction hangs")


@transactions.command(short_help="Abort a hanging transaction in a partition.")
@click.option("--topic", required=True, metavar="TOPIC", type=TOPIC, help="Name the topic.")
@click.option(
    "--partition", required=True, type=click.IntRange(min=0), metavar="N", help="Name the partition."
)
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Abort the transaction that starts at this offset.",
)
@click.option(
    "--producer-id",
    type=int,
    metavar="ID",
    help="Abort this producer's transaction; requires the two options below.",
)
@click.option("--producer-epoch", type=int, metavar="EPOCH", help="Give the producer's epoch.")
@click.option(
    "--coordinator-epoch", type=int, metavar="EPOCH", help="Give the epoch of the transaction's coordinator."
)
@YES
@options
async def abort(
    console: Console,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    yes: bool,
) -> None:
    """Write an abort marker for a hanging transaction, so that readers with read_committed can go on.

    Only for transactions that `ottla transactions find-hanging` shows: for any other, the records in this partition
    are dropped while the rest of the transaction may be committed. To end a running producer's transaction, use
    `ottla transactions fence`. Without --yes, the command asks first.

    \b
    ottla transactions abort --topic orders --partition 0 --start-offset 1042
    """
    where = TopicPartition(topic, partition)
    given = [each for each in (producer_id, producer_epoch, coordinator_epoch) if each is not None]
    if len(given) != (3 if start_offset is None else 0):
        raise click.UsageError(
            "give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch"
        )
    async with admin_of(console) as admin:
        known_partitions({topic: [partition]}, await topics_of(admin, [topic]))
        if start_offset is not None:
            producer = await _producer_at(admin, where, start_offset)
            given = [producer.producer_id, producer.producer_epoch, max(0, producer.coordinator_epoch)]
        its_id, its_epoch, its_coordinator = given
        console.confirm(
            f"Abort the transaction of producer {its_id} (epoch {its_epoch}) in {where} and drop its records?",
            yes=yes,
        )
        await admin.abort_transaction(
            where, producer_id=its_id, producer_epoch=its_epoch, coordinator_epoch=its_coordinator
        )
    console.report(
        {
            "topic": topic,
            "partition": partition,
            "producer_id": its_id,
            "producer_epoch": its_epoch,
            "coordinator_epoch": its_coordinator,
        },
        f"aborted the transaction of producer {its_id} (epoch {its_epoch}) in {where}",
    )


async def _producer_at(admin: Admin, partition: TopicPartition, offset: int) -> ProducerState:
    """The producer whose transaction starts at an offset. Raises click.ClickException if there is none."""
    producers = (await admin.describe_producers([partition]))[partition]
    for each in producers:
        if each.transaction_start_offset == offset:
            return each
    starts = [
        str(each.transaction_start_offset) for each in producers if each.transaction_start_offset is not None
    ]
    has = f"open ones start at {', '.join(starts)}" if starts else "it has no open transaction"
    raise click.ClickException(f"no transaction starts at offset {offset} of {partition}; {has}")


@transactions.command(short_help="Abort transactions of producers, and stop those producers.")
@click.argument("names", nargs=-1, required=True, metavar="TRANSACTIONAL_ID…")
@YES
@options
async def fence(console: Console, names: tuple[str, ...], yes: bool) -> None:
    """Abort what the producers with these transactional ids have open, and refuse their requests from now on.

    A producer that is still running fails with PRODUCER_FENCED; a new one can start. Without --yes, the command asks
    first.

    \b
    ottla transactions fence billing-1
    """
    wanted = list(dict.fromkeys(names))
    async with admin_of(console) as admin:
        known = await admin.list_transactions()
        for name in wanted:
            if name not in known:
                raise unknown("transactional id", name, known)
        console.confirm(
            f"Fence {plural(len(wanted), 'producer')}: {', '.join(map(shown_name, wanted))}?", yes=yes
        )
        fenced = await admin.fence_producers(wanted)
    console.report(
        [
            {"transactional_id": name, "producer_id": each.producer_id, "producer_epoch": each.epoch}
            for name, each in fenced.items()
        ],
        *(f"fenced the producers of {shown_name(name)}" for name in fenced),
    )
