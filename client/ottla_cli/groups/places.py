"""Where groups of every generation are: offsets in Kafka, starts of share groups, offsets in ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from ottla_client.errors import BrokerError, ClientError, UnsupportedApiError
from ottla_client.types import COORDINATED, IN_ZOOKEEPER, OffsetAndMetadata, TopicPartition
from ottla_protocol.errors import ErrorCode
from ottla_protocol.printable import shown_name

from ..shared.admin import plural

if TYPE_CHECKING:
    from ottla_client.admin import Admin, GroupDescription, GroupListing, PartitionLag, ShareGroupOffset
    from ottla_client.zookeeper_consumer.groups import GroupInZooKeeper
    from ottla_client.zookeeper_consumer.registry import Registry

    from ..shared.terminal import Console

_SHARE: Final = "share"
_MOST_ASKED: Final = 5_000
"""Partitions of which brokers are asked for an offset in ZooKeeper, which they read one by one."""


class Kept(Enum):
    """The stores of a group's place in its partitions."""

    OFFSETS = "in the topic of offsets"
    STARTS = "with the share groups' state"
    ZOOKEEPER = "in ZooKeeper"
    EITHER = "in ZooKeeper or the topic of offsets"
    """By ``offsets.storage`` of consumers that coordinate in ZooKeeper, which no one else knows."""


def kept(group: GroupListing | GroupDescription) -> Kept:
    """The store of a group's place, by what brokers say of the group."""
    if group.type == _SHARE:
        return Kept.STARTS
    if group.protocol_type == IN_ZOOKEEPER:
        return Kept.EITHER
    return Kept.ZOOKEEPER if group.protocol_type == COORDINATED else Kept.OFFSETS


_ELSEWHERE: Final = {
    COORDINATED: " at the coordinator of 2012",
    IN_ZOOKEEPER: " in ZooKeeper",
}


def check_stopped(group: GroupDescription, then: str) -> None:
    """Raises click.ClickException for a group with members, which says where they are.

    ``then`` is what they would undo, or what would take the ground from under them.
    """
    if group.members:
        where = _ELSEWHERE.get(group.protocol_type, "")
        raise click.ClickException(
            f"group {shown_name(group.group_id)} has {plural(len(group.members), 'member')}{where}:"
            f" stop its consumers, then {then}"
        )


zookeeper_option = click.option(
    "--zookeeper",
    metavar="HOST:PORT/CHROOT",
    help="Also look for groups that coordinate in this ZooKeeper, which Kafka's brokers don't know.",
)


@asynccontextmanager
async def registry_of(console: Console, address: str | None) -> AsyncIterator[Registry | None]:
    """The ZooKeeper of ``--zookeeper``; None without the option. Raises ClientError."""
    if address is None:
        yield None
        return
    from ottla_client.zookeeper_consumer.groups import connected

    async with connected(address, console.timeout) as registry:
        yield registry


async def groups_in_zookeeper(
    registry: Registry, listed: Collection[str], wanted: Callable[[str], bool] = lambda _: True
) -> dict[str, GroupInZooKeeper]:
    """The wanted groups that have consumers in ZooKeeper, and those that brokers don't list. Raises ClientError.

    A listed group without consumers there is what brokers say of it: its nodes may be what an earlier generation left.
    """
    from ottla_client.zookeeper_consumer.groups import read_groups

    found = await read_groups(registry, wanted)
    return {name: group for name, group in found.items() if group.members or name not in listed}


def as_description(name: str, group: GroupInZooKeeper) -> GroupDescription:
    """A group in ZooKeeper, as brokers describe others."""
    from ottla_client.admin import GroupDescription, MemberDescription

    members = tuple(MemberDescription(each, None, each, "", group.of(each)) for each in group.members)
    return GroupDescription(name, group.state, IN_ZOOKEEPER, "", -1, members, "")


async def lag_in_zookeeper(
    admin: Admin, name: str, group: GroupInZooKeeper
) -> dict[TopicPartition, PartitionLag]:
    """The lag of a group in ZooKeeper, in partitions that it reads or has read. Raises ClientError."""
    return await admin.group_lag(
        name, group.owners, offsets=await offsets_in_use(admin, name, in_zookeeper=group.offsets)
    )


async def offsets_in_use(
    admin: Admin,
    name: str,
    owned: Collection[TopicPartition] = (),
    in_zookeeper: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Where consumers that coordinate in ZooKeeper read on: the larger offset of both places, as dual commit does it.

    ``in_zookeeper`` None asks brokers for the ``owned`` partitions and those committed in Kafka. Raises ClientError.
    """
    in_kafka = {p: each.offset for p, each in (await admin.list_group_offsets(name)).items()}
    if in_zookeeper is None:
        in_zookeeper = await admin.list_zookeeper_offsets(name, {*owned, *in_kafka})
    return {
        p: max(in_kafka.get(p, -1), in_zookeeper.get(p, -1)) for p in in_kafka.keys() | in_zookeeper.keys()
    }


async def places_of(admin: Admin, name: str, where: Kept) -> dict[TopicPartition, OffsetAndMetadata]:
    """Where a group reads on; a share group, where its first record is that isn't done with. Raises ClientError."""
    if where is Kept.OFFSETS:
        return await admin.list_group_offsets(name)
    if where is Kept.STARTS:
        shared = await admin.share_group_offsets(name)
        return {p: OffsetAndMetadata(each.start) for p, each in shared.items() if each.start is not None}
    offsets = (
        await in_zookeeper(admin, name)
        if where is Kept.ZOOKEEPER
        else await offsets_in_use(admin, name, await _owned(admin, name))
    )
    return {p: OffsetAndMetadata(offset) for p, offset in offsets.items()}


async def _owned(admin: Admin, name: str) -> set[TopicPartition]:
    """The partitions that members read: it is quicker than to ask for the offsets of all that there are."""
    members = (await admin.describe_groups([name]))[name].members
    return {p for each in members for p in each.assignment}


async def lag_of(admin: Admin, name: str, where: Kept) -> Mapping[TopicPartition, PartitionLag]:
    """A group's lag in records and time. Empty for share groups of brokers that don't say it. Raises ClientError."""
    if where is Kept.OFFSETS:
        return await admin.group_lag(name)
    if where is not Kept.STARTS:
        owned = await _owned(admin, name)
        offsets = (
            await admin.list_zookeeper_offsets(name, owned)
            if where is Kept.ZOOKEEPER
            else await offsets_in_use(admin, name, owned)
        )
        return await admin.group_lag(name, owned, offsets=offsets)
    try:
        shared = await admin.share_group_offsets(name)
    except UnsupportedApiError:  # Kafka 4.0
        return {}
    return await lag_in_share_group(admin, name, shared)


async def lag_in_share_group(
    admin: Admin, name: str, shared: Mapping[TopicPartition, ShareGroupOffset]
) -> dict[TopicPartition, PartitionLag]:
    """The lag of a share group that is at these places, where it has begun. Raises ClientError."""
    starts = {p: each.start for p, each in shared.items() if each.start is not None}
    lags = await admin.group_lag(name, offsets=starts)
    return {p: _without_done(lag, shared[p].lag) for p, lag in lags.items()}


def _without_done(lag: PartitionLag, left: int | None) -> PartitionLag:
    """Of the records after a share group's start, those that are left: others are done with already.

    Brokers count offsets, with those of markers: both numbers are bounds.
    """
    if left is None or lag.records is None:
        return lag
    records = min(left, lag.records)
    return replace(lag, records=records, seconds=lag.seconds if records else 0.0)


async def set_places(admin: Admin, name: str, where: Kept, offsets: Mapping[TopicPartition, int]) -> None:
    """Have a group without members read on from these offsets. Raises ClientError."""
    if where is Kept.STARTS:
        await admin.alter_share_group_offsets(name, offsets)
    elif where is Kept.ZOOKEEPER:
        await admin.alter_zookeeper_offsets(name, offsets)
    else:
        await admin.alter_group_offsets(name, offsets)


async def in_zookeeper(admin: Admin, name: str) -> dict[TopicPartition, int]:
    """A group's offsets in ZooKeeper, in the partitions that there are; empty where brokers have no ZooKeeper.

    Brokers can't list a group's partitions, so they are asked for each one, of up to 5,000. Raises ClientError.
    """
    topics = await admin.list_topics()
    every = (TopicPartition(each, number) for each, topic in topics.items() for number in topic.partitions)
    try:
        return await admin.list_zookeeper_offsets(name, list(islice(every, _MOST_ASKED)))
    except ClientError as error:
        if _has_none(error):
            return {}
        raise


def _has_none(error: ClientError) -> bool:
    """Whether the cluster has no offsets in ZooKeeper, as Kafka without it, or can't have them under such a name."""
    from ottla_client.admin import PartialError

    if isinstance(error, PartialError):
        return not error.results and all(map(_has_none, error.errors.values()))
    return isinstance(error, UnsupportedApiError) or (
        isinstance(error, BrokerError)
        and error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID)
    )
