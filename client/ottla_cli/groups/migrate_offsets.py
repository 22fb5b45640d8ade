"""``ottla groups migrate-offsets``: copy a group's offsets from ZooKeeper to Kafka, or back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla_client.errors import ClientError
from ottla_client.types import IN_ZOOKEEPER, OffsetAndMetadata, TopicPartition
from ottla_protocol.printable import shown_name

from ..shared.admin import admin_of, count_of, plural, without_repeats
from ..shared.completion import complete_groups
from ..shared.tables import Column
from ..shared.terminal import Console, options

if TYPE_CHECKING:
    from ottla_client.admin import Admin


@click.command("migrate-offsets", short_help="Copy a group's offsets from ZooKeeper to Kafka, or back.")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--to",
    "target",
    type=click.Choice(["kafka", "zookeeper"]),
    required=True,
    help="Copy the offsets from the other place to this one.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT/CHROOT",
    help="Check for members there, instead of where the broker's zookeeper.connect says.",
)
@click.option("--execute", is_flag=True, help="Copy the offsets. Without it, they are only shown.")
@options
async def migrate_offsets(
    console: Console, name: str, target: str, zookeeper: str | None, execute: bool
) -> None:
    """Copy the offsets of a group without members. They are only shown unless --execute is given.

    Consumers of Kafka 0.8 keep offsets in ZooKeeper, newer ones in Kafka. Stop the group's consumers, copy the offsets,
    and start consumers of the other kind. The offsets stay in the first place, too. A broker without ZooKeeper keeps
    such offsets in its own store.

    \b
    ottla groups migrate-offsets billing --to kafka
    ottla groups migrate-offsets billing --to kafka --execute
    ottla groups migrate-offsets billing --to zookeeper --execute
    """
    if not name:
        raise click.UsageError("name a group: the one without a name can't be in ZooKeeper")
    async with admin_of(console) as admin:
        there = {
            TopicPartition(topic, number)
            for topic, known in (await admin.list_topics(include_internal=True)).items()
            for number in known.partitions
        }
        members, kept = await _in_zookeeper(console, admin, name, zookeeper)
        members += await _in_kafka(admin, name)
        if members and execute:
            raise click.ClickException(
                f"group {shown_name(name)} has {plural(len(members), 'member')} ({', '.join(members[:3])}):"
                " stop its consumers, then migrate its offsets"
            )
        committed = await admin.list_group_offsets(name)
        in_kafka = {partition: each.offset for partition, each in committed.items()}
        candidates = there if kept is None else kept & there
        in_zookeeper = await admin.list_zookeeper_offsets(name, candidates | (in_kafka.keys() & there))
        old, new = (in_kafka, in_zookeeper) if target == "kafka" else (in_zookeeper, in_kafka)
        gone = sorted(new.keys() - there)
        new = {partition: offset for partition, offset in sorted(new.items()) if partition in there}
        if not new:
            source = "ZooKeeper" if target == "kafka" else "Kafka"
            raise click.ClickException(f"group {shown_name(name)} has no offsets in {source}")
        if execute:
            if target == "kafka":
                exact = {partition: OffsetAndMetadata(offset) for partition, offset in new.items()}
                await admin.alter_group_offsets(name, exact)
            else:
                await admin.alter_zookeeper_offsets(name, new)
    _show(console, name, target, old, new, gone)
    if execute:
        console.note(f"offsets of group {shown_name(name)} are in {_PLACES[target]}")
    elif members:
        console.note(
            f"nothing was changed; group {shown_name(name)} has {plural(len(members), 'member')},"
            " which must be stopped first"
        )
    else:
        console.note("nothing was changed; add --execute to copy them")


_PLACES = {"kafka": "Kafka", "zookeeper": "ZooKeeper"}


def _show(
    console: Console,
    name: str,
    target: str,
    old: dict[TopicPartition, int],
    new: dict[TopicPartition, int],
    gone: list[TopicPartition],
) -> None:
    number = count_of(console)
    rows = [(each.topic, each.partition, old.get(each), offset) for each, offset in new.items()]
    console.table(
        [
            "Topic",
            "Partition",
            Column(f"Now in {_PLACES[target]}", "old_offset", right=True, show=number),
            Column("New", "new_offset", right=True, show=number),
        ],
        without_repeats(console, rows),
    )
    if console.is_terminal and not console.as_json:
        console.print()
    for each in gone:
        console.note(f"{each} no longer exists; its offset is left out")
    back = [each for each, offset in new.items() if old.get(each, -1) > offset]
    if back:
        console.note(
            f"{plural(len(back), 'partition')} of group {shown_name(name)} would go back:"
            f" {_PLACES[target]} has a larger offset for {', '.join(map(str, back[:3]))}"
        )


async def _in_kafka(admin: Admin, name: str) -> list[str]:
    """The members that coordinate through the brokers."""
    from ottla_client.admin import is_unknown_group

    try:
        group = (await admin.describe_groups([name]))[name]
        return [] if group.protocol_type == IN_ZOOKEEPER else [each.client_id for each in group.members]
    except ClientError as error:
        if not is_unknown_group(error):
            raise
    return []


async def _in_zookeeper(
    console: Console, admin: Admin, name: str, address: str | None
) -> tuple[list[str], set[TopicPartition] | None]:
    """The members that coordinate in ZooKeeper, and the partitions with offsets there.

    Without ZooKeeper, a group can't have such members, and any partition may have an offset (None).
    """
    from ottla_client.zookeeper_consumer.groups import connected, members_of, partitions_of

    if address is None:
        address = await zookeeper_of(admin)
    if address is None:
        return [], None
    async with connected(address, console.timeout) as registry:
        return await members_of(registry, name), set(await partitions_of(registry, name))


async def zookeeper_of(admin: Admin) -> str | None:
    """The broker's ``zookeeper.connect``; None if it has no ZooKeeper."""
    from ottla_client.admin import ConfigResource, ResourceType

    brokers = (await admin.describe_cluster()).nodes
    for broker in brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker.id))
        entry = (await admin.describe_configs([resource], keys=["zookeeper.connect"]))[resource].get(
            "zookeeper.connect"
        )
        return None if entry is None else entry.value or None
    return None
