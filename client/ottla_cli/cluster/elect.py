"""``ottla cluster elect``: preferred leader elections, and unclean ones."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import click

from ottla_client.errors import BrokerError, ClientError
from ottla_client.types import TopicPartition

from ..shared.admin import (
    admin_of,
    known_partitions,
    partitions_option,
    plural,
    topics_of,
    wanted_partitions,
    without_repeats,
)
from ..shared.tables import Column
from ..shared.terminal import Console, one_line, options

if TYPE_CHECKING:
    from ottla_client.admin import Admin, ElectionType
    from ottla_client.types import TopicMetadata

# Brokers learn of new leaders a moment later: how many times they are asked, and the seconds in between.
_LOOKS: Final = 15
_PAUSE: Final = 0.2


@click.command(short_help="Elect preferred leaders, or any replica.")
@partitions_option(
    help="Elect leaders of these partitions, by default all. Repeat it for several topics.",
)
@click.option(
    "--unclean", is_flag=True, help="Elect any live replica of partitions without a leader. Loses records."
)
@click.option("-y", "--yes", is_flag=True, help="Skip the confirmation of --unclean.")
@options
async def elect(console: Console, topics: tuple[str, ...], unclean: bool, yes: bool) -> None:
    """Make each partition's preferred replica, the first one, its leader if it is in sync.

    After a restart a broker leads nothing until an election: by this command, or by the cluster within
    leader.imbalance.check.interval.seconds.

    With --unclean, partitions whose in-sync replicas are all gone get any live replica as their leader. Records that
    this replica lacks are lost for good, including acknowledged ones, so the command asks first. If an in-sync replica
    may come back, wait for it instead.

    \b
    ottla cluster elect
    ottla cluster elect --topic orders:0-3
    ottla cluster elect --unclean --topic orders:7
    """
    from ottla_client.admin import ElectionType

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
                    "an unclean election loses records that the new leader lacks, including acknowledged ones"
                )
                console.confirm(f"Elect unclean leaders of {plural(len(partitions), 'partition')}?", yes=yes)
        elected, failed = await _ask(admin, election, partitions)
        after = await _leaders_after(admin, elected, before, unclean)
    _show(console, before, after, elected, failed)
    if failed:
        raise click.ClickException(f"{plural(len(failed), 'partition')} of {len(partitions)} got no leader")


async def _ask(
    admin: Admin, election: ElectionType, partitions: Collection[TopicPartition]
) -> tuple[list[TopicPartition], dict[TopicPartition, ClientError]]:
    """The partitions that got another leader, and the errors of the others."""
    from ottla_client.admin import PartialError

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
    """The current leaders. Brokers learn of them a moment later, so they are asked up to _LOOKS times."""
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
    columns: list[Column | str] = [
        "Topic",
        "Partition",
        Column("Before", "leader_before", right=True),
        Column("Now", "leader", right=True),
        Column("Problem", style="red"),
    ]
    shown = len(columns) if failed or console.as_json else len(columns) - 1
    console.table(
        columns[:shown],
        without_repeats(console, [row[:shown] for row in rows]),
        empty="no partition needs another leader",
    )
