"""``ottla cluster elect``: let preferred replicas lead, or any replica at the price of records."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import click

from ..errors import BrokerError, ClientError
from ..types import TopicPartition
from .admin_common import admin_of, known_partitions, partitions_in, plural, topics_of, without_repeats
from .completion import complete_topics
from .console import Console, one_line, options, run
from .tables import Column

if TYPE_CHECKING:
    from ..admin import Admin, ElectionType
    from ..types import TopicMetadata

# How often, and in seconds how far apart, brokers are asked for the new leaders, of which they learn a moment later.
_LOOKS: Final = 15
_PAUSE: Final = 0.2


@click.command(short_help="Let preferred replicas lead, or any at all.")
@click.option(
    "--topic",
    "--topics",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,2,4-7]",
    shell_complete=complete_topics,
    help="Which partitions, by default all; may be repeated.",
)
@click.option(
    "--unclean", is_flag=True, help="Any live replica of partitions without a leader. Loses records."
)
@click.option("-y", "--yes", is_flag=True, help="Don't ask before --unclean.")
@options
def elect(console: Console, topics: tuple[str, ...], unclean: bool, yes: bool) -> None:
    """Elect leaders anew: for each partition its preferred replica, the first one, if that is in sync.

    After a broker has come back, it leads nothing until it is elected: by this, or by the cluster itself within
    leader.imbalance.check.interval.seconds.

    With --unclean, a partition whose in-sync replicas are all gone gets any live replica for its leader. Records
    that this replica hasn't got are lost for good, acknowledged ones too; so it asks first. Wait for a replica that
    was in sync, if there is hope for it.

    \b
    ottla cluster elect
    ottla cluster elect --topic orders:0-3
    ottla cluster elect --unclean --topic orders:7
    """
    run(_elect(console, topics, unclean, yes))


async def _elect(console: Console, topics: tuple[str, ...], unclean: bool, yes: bool) -> None:
    from ..admin import ElectionType

    wanted = wanted_partitions(topics)
    async with admin_of(console) as admin:
        before = await topics_of(admin, wanted) if wanted else await admin.list_topics(include_internal=True)
        partitions = known_partitions(wanted or dict.fromkeys(before), before)
        election = ElectionType.PREFERRED
        if unclean:
            election = ElectionType.UNCLEAN
            partitions = [p for p in partitions if before[p.topic].partitions[p.partition].leader is None]
            if partitions:
                console.note(
                    "an unclean election loses the records that the new leader hasn't got, acknowledged ones too"
                )
                console.confirm(f"Elect leaders of {plural(len(partitions), 'partition')} so?", yes=yes)
        elected, failed = await _ask(admin, election, partitions)
        after = await _leaders_after(admin, elected, before, unclean)
    _show(console, before, after, elected, failed)
    if failed:
        raise click.ClickException(
            f"{plural(len(failed), 'partition')} of {len(partitions)} could not be given a leader"
        )


def wanted_partitions(topics: Collection[str]) -> dict[str, Collection[int] | None]:
    """What ``--topic`` says, may be several times of the same topic."""
    wanted: dict[str, Collection[int] | None] = {}
    for text in topics:
        topic, numbers = partitions_in(text, "--topic")
        before = wanted.get(topic, ())
        wanted[topic] = None if numbers is None or before is None else [*before, *numbers]
    return wanted


async def _ask(
    admin: Admin, election: ElectionType, partitions: Collection[TopicPartition]
) -> tuple[list[TopicPartition], dict[TopicPartition, ClientError]]:
    """The partitions that got another leader, and those for which there is none."""
    from ..admin import PartialError

    try:
        results = await admin.elect_leaders(election, partitions)
        failed: Mapping[TopicPartition, ClientError] = {}
    except PartialError as error:
        results, failed = error.results, error.errors
    except BrokerError as error:
        if len(partitions) != 1:
            raise
        results, failed = {}, dict.fromkeys(partitions, error)
    return sorted(tp for tp, is_new in results.items() if is_new), dict(sorted(failed.items()))


async def _leaders_after(
    admin: Admin, elected: Collection[TopicPartition], before: Mapping[str, TopicMetadata], unclean: bool
) -> dict[TopicPartition, int | None]:
    """Who leads now; as the brokers learn of it a moment later, they are asked until they know, or several times."""
    leaders: dict[TopicPartition, int | None] = {}
    for look in range(_LOOKS):
        if not elected:
            break
        if look:
            await asyncio.sleep(_PAUSE)
        topics = await admin.describe_topics({tp.topic for tp in elected})
        leaders = {tp: topics[tp.topic].partitions[tp.partition].leader for tp in elected}
        if all(
            leader is not None
            and (unclean or leader == before[tp.topic].partitions[tp.partition].replicas[0])
            for tp, leader in leaders.items()
        ):
            break
    return leaders


def _show(
    console: Console,
    before: Mapping[str, TopicMetadata],
    after: Mapping[TopicPartition, int | None],
    elected: Collection[TopicPartition],
    failed: Mapping[TopicPartition, ClientError],
) -> None:
    rows = [
        (
            tp.topic,
            tp.partition,
            before[tp.topic].partitions[tp.partition].leader,
            after.get(tp),
            one_line(failed[tp]) if tp in failed else None,
        )
        for tp in sorted({*elected, *failed})
    ]
    columns = [
        Column("Topic"),
        Column("Partition"),
        Column("Before", "leader_before", right=True),
        Column("Now", "leader", right=True),
    ]
    if failed or console.as_json:
        columns.append(Column("Problem", style="red"))
    else:
        rows = [row[:-1] for row in rows]  # type: ignore[misc]
    console.table(columns, without_repeats(console, rows), empty="no partition needs another leader")
