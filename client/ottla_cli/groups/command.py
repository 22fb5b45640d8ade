"""``ottla groups``: list, describe, delete, remove-member.

``reset-offsets`` and ``migrate-offsets`` have modules of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla_client.errors import ClientError, GroupError
from ottla_client.types import COORDINATED, IN_ZOOKEEPER, TopicPartition
from ottla_protocol.printable import shown_name

from ..shared.admin import (
    admin_of,
    count_of,
    matches,
    none_of,
    plural,
    show_partitions,
    show_seconds,
    unknown_group,
    without_repeats,
)
from ..shared.completion import complete_groups
from ..shared.tables import Column
from ..shared.terminal import YES, Console, options, unknown
from .lag import lag, rounded, total_lag
from .migrate_offsets import migrate_offsets
from .places import (
    Kept,
    as_description,
    check_stopped,
    groups_in_zookeeper,
    in_zookeeper,
    kept,
    lag_in_share_group,
    offsets_in_use,
    registry_of,
    zookeeper_option,
)
from .reset_offsets import reset_offsets

if TYPE_CHECKING:
    from ottla_client.admin import Admin, GroupDescription, GroupListing, PartitionLag, ShareGroupOffset
    from ottla_client.zookeeper_consumer.registry import Registry


@click.group()
def groups() -> None:
    """List consumer groups, show their lag, reset their offsets, and remove them or their members.

    \b
    ottla groups list
    ottla groups describe billing
    ottla groups lag --watch
    ottla groups reset-offsets billing --topic orders --by-duration 2h
    """


groups.add_command(reset_offsets)
groups.add_command(lag)
groups.add_command(migrate_offsets)


@groups.command("list", short_help="List groups with state and members.")
@click.argument("pattern", required=False)
@click.option(
    "--state",
    "states",
    multiple=True,
    help="List only groups in this state, such as Stable or Empty. Repeat it for several.",
)
@zookeeper_option
@options
async def list_groups(
    console: Console, pattern: str | None, states: tuple[str, ...], zookeeper: str | None
) -> None:
    """List groups, or those whose names match PATTERN (* and ? as in a shell).

    The generation says how a group coordinates: simple (offsets without members), zookeeper (Kafka 0.8's consumers),
    coordinated (the coordinator designed in 2012), classic (0.9 and later), consumer (the broker assigns, KIP-848),
    share (members share each partition's records, KIP-932). The protocol is the assignor in use. A group without
    members is Empty.

    \b
    ottla groups list
    ottla groups list 'billing-*' --state Stable --json
    ottla groups list --zookeeper 127.0.0.1:2181
    """

    def is_wanted(name: str) -> bool:
        return pattern is None or matches(name, pattern)

    async with admin_of(console) as admin, registry_of(console, zookeeper) as registry:
        listed = {
            name: group for name, group in (await admin.list_groups(states=states)).items() if is_wanted(name)
        }
        described = await _described(admin, listed)
        there = {}
        if registry is not None:
            every = await admin.list_groups() if states else listed
            there = await groups_in_zookeeper(registry, every, is_wanted)
    rows: list[tuple[Any, ...]] = []
    for name, group in listed.items():
        if name in there:
            continue
        known = described.get(name)
        rows.append(
            (
                name,
                group.state or (known.state if known else None),
                group.type or "classic",
                _generation(group),
                known.protocol or None if known else None,
                len(known.members) if known else None,
                group.coordinator,
            )
        )
    rows += [
        (name, group.state, None, IN_ZOOKEEPER, None, len(group.members), None)
        for name, group in there.items()
        if not states or group.state in states
    ]
    columns = ["Group", "State", "Type", "Generation", "Protocol", "Members", "Coordinator"]
    console.table(
        columns,
        sorted(rows, key=lambda row: row[0]),
        empty=none_of("group", pattern, f"in state {' or '.join(states)}" if states else ""),
    )


def _generation(group: GroupListing) -> str:
    """How the group coordinates; one that never had members only has offsets."""
    if group.protocol_type in (COORDINATED, IN_ZOOKEEPER):
        return group.protocol_type
    if group.type in ("", "classic"):
        return "classic" if group.protocol_type else "simple"
    return group.type


async def _described(admin: Admin, names: Collection[str]) -> dict[str, GroupDescription]:
    """Descriptions of these groups; groups deleted meanwhile and groups of other kinds are left out."""
    from ottla_client.admin import PartialError, is_unknown_group

    try:
        return await admin.describe_groups(names)
    except GroupError as error:
        if not is_unknown_group(error):
            raise
        return {}
    except PartialError as error:
        for why in error.errors.values():
            if not is_unknown_group(why):
                raise
        return error.results


async def _described_with_offsets(
    admin: Admin, name: str, registry: Registry | None
) -> tuple[GroupDescription, Mapping[TopicPartition, int] | None]:
    """A group, and its offsets unless they are where brokers keep them. One that isn't anywhere ends the command."""
    from ottla_client.admin import GroupDescription, is_unknown_group

    group: GroupDescription | None = None
    try:
        group = (await admin.describe_groups([name]))[name]
    except ClientError as error:
        if not is_unknown_group(error):
            raise
    if registry is not None:
        listed = () if group is None else (name,)
        there = (await groups_in_zookeeper(registry, listed, name.__eq__)).get(name)
        if there is not None:
            return as_description(name, there), await offsets_in_use(admin, name, in_zookeeper=there.offsets)
    if group is not None:
        owned = {partition for member in group.members for partition in member.assignment}
        where = kept(group)
        if where is Kept.ZOOKEEPER:
            return group, await admin.list_zookeeper_offsets(name, owned)
        return group, await offsets_in_use(admin, name, owned) if where is Kept.EITHER else None
    offsets = await in_zookeeper(admin, name)
    if not offsets:
        raise await unknown_group(admin, name)
    return GroupDescription(name, "", IN_ZOOKEEPER, "", -1, (), ""), offsets


async def _one(admin: Admin, group_id: str) -> GroupDescription:
    """A group; an unknown one ends the command, with a suggestion."""
    from ottla_client.admin import is_unknown_group

    try:
        return (await admin.describe_groups([group_id]))[group_id]
    except ClientError as error:
        if not is_unknown_group(error):
            raise
    raise await unknown_group(admin, group_id)


@groups.command(short_help="Show members, offsets and lag.")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@zookeeper_option
@options
async def describe(console: Console, name: str, zookeeper: str | None) -> None:
    """Show a group's members, and the committed offset, end and lag of each partition.

    The lag in records is what is left from the committed offset, or from the log's start, to the end. Markers of
    transactions, aborted records and gaps left by compaction don't count in the next 64 KiB of the log or, where there
    are some, in 1 MiB; behind that, offsets count. The lag in time is the age of the first of these records. It depends
    on the producers' clocks, unless the topic has message.timestamp.type=LogAppendTime. It is 0s where everything is
    read, and - where nothing is committed. An offset beyond the end is no lag: a column shows how far beyond it is.

    Of a share group it shows the start, before which every record is done with, and the number of records left. Of a
    group of the coordinator designed in 2012, which keeps offsets as Kafka 0.8 did, it shows the partitions that its
    members read. The offsets of a group that coordinates in ZooKeeper are the larger ones of ZooKeeper and Kafka, as
    consumers read them during a migration; Kafka's brokers don't know its members, which takes --zookeeper.

    \b
    ottla groups describe billing
    ottla groups describe old --zookeeper 127.0.0.1:2181
    ottla groups describe billing --json | jq .lag_seconds
    """
    async with admin_of(console) as admin, registry_of(console, zookeeper) as registry:
        group, offsets = await _described_with_offsets(admin, name, registry)
        if group.type == "share":
            shared = await admin.share_group_offsets(name)
            _show_share_group(console, group, shared, await lag_in_share_group(admin, name, shared))
            return
        owners = {partition: member.client_id for member in group.members for partition in member.assignment}
        lags = await admin.group_lag(name, owners, offsets=offsets)
    rows = [_row(partition, lag, owners.get(partition)) for partition, lag in lags.items()]
    total, longest = total_lag(lags.values())
    longest = rounded(longest)
    columns = _columns(console, any(lag.beyond_end for lag in lags.values()))
    if console.as_json:
        names = [column.name for column in columns]
        partitions = [dict(zip(names, row, strict=True)) for row in rows]
        console.emit(
            {**_document(group), "lag_records": total, "lag_seconds": longest, "partitions": partitions}
        )
        return
    _show_summary(console, group, total, longest)
    if group.members:
        console.print()
        _show_members(console, group)
    if rows:
        console.print()
        console.table(columns, without_repeats(console, [row[: len(columns)] for row in rows]))


def _columns(console: Console, are_beyond: bool) -> list[Column]:
    """``are_beyond``: whether some offsets are beyond the end, which tables show only then."""
    number = count_of(console)
    columns = [
        Column("Topic"),
        Column("Partition"),
        Column("Committed", right=True, show=number),
        Column("End", right=True, show=number),
        Column("Lag", "lag_records", right=True, show=number, style=_lag_style),
        Column("Behind", "lag_seconds", right=True, show=show_seconds, style=_lag_style),
        Column("Client"),
    ]
    if are_beyond or console.as_json:
        columns.append(Column("Beyond end", "beyond_end", right=True, show=number, style=_lag_style))
    return columns


def _show_summary(
    console: Console, group: GroupDescription, records: int | None, seconds: float | None
) -> None:
    lag = None if records is None else plural(records, "record")
    if lag is not None and seconds is not None:
        lag = f"{lag}, {show_seconds(seconds)} behind"
    console.details(
        {
            "Group": group.group_id,
            "State": group.state or None,
            "Protocol": group.protocol or (IN_ZOOKEEPER if group.protocol_type == IN_ZOOKEEPER else None),
            "Coordinator": group.coordinator if group.coordinator >= 0 else None,
            "Members": len(group.members) if group.state else None,
            "Lag": lag,
        }
    )


def _row(partition: TopicPartition, lag: PartitionLag, owner: str | None) -> tuple[Any, ...]:
    committed = None if lag.committed is None else lag.committed.offset
    seconds = rounded(lag.seconds)
    return (
        partition.topic,
        partition.partition,
        committed,
        lag.end,
        lag.records,
        seconds,
        owner,
        lag.beyond_end,
    )


def _lag_style(value: float) -> str:
    return "bold" if value else "dim"


def _document(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator,
        "members": [
            {
                "client": member.client_id,
                "host": member.host,
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "assignment": [list(partition) for partition in sorted(member.assignment)],
            }
            for member in group.members
        ],
    }


def _show_share_group(
    console: Console,
    group: GroupDescription,
    offsets: Mapping[TopicPartition, ShareGroupOffset],
    lags: Mapping[TopicPartition, PartitionLag],
) -> None:
    """Print a share group, and where it is in each partition."""
    total, _ = total_lag(lags.values())
    rows = [
        (
            partition.topic,
            partition.partition,
            offset.start,
            lags[partition].records if partition in lags else None,
        )
        for partition, offset in sorted(offsets.items())
    ]
    number = count_of(console)
    columns = [
        Column("Topic"),
        Column("Partition"),
        Column("Start", "start_offset", right=True, show=number),
        Column("Lag", "lag_records", right=True, show=number),
    ]
    if console.as_json:
        names = [column.name for column in columns]
        partitions = [dict(zip(names, row, strict=True)) for row in rows]
        console.emit({**_document(group), "lag_records": total, "partitions": partitions})
        return
    console.details(
        {
            "Group": group.group_id,
            "State": group.state,
            "Type": group.type,
            "Protocol": group.protocol or None,
            "Coordinator": group.coordinator,
            "Members": len(group.members),
            "Lag": None if total is None else plural(total, "record"),
        }
    )
    if rows:
        console.print()
        console.table(columns, without_repeats(console, rows))


def _show_members(console: Console, group: GroupDescription) -> None:
    columns: list[Column | str] = ["Client", "Host", "Member", Column("Assignment", show=show_partitions)]
    members = sorted(group.members, key=lambda member: (member.client_id, member.member_id))
    rows = [[m.client_id, m.host, m.member_id, m.assignment or None] for m in members]
    if any(member.instance_id for member in members):
        columns.insert(2, "Instance")
        for member, row in zip(members, rows, strict=True):
            row.insert(2, member.instance_id)
    console.table(columns, rows)


@groups.command(short_help="Delete groups without members.")
@click.argument("names", nargs=-1, required=True, metavar="GROUP…", shell_complete=complete_groups)
@YES
@options
async def delete(console: Console, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups that have no members, with their committed offsets. Without --yes, the command asks first.

    A group whose consumers coordinate in ZooKeeper, or at the coordinator designed in 2012, is refused, too.

    \b
    ottla groups delete billing
    """
    wanted = list(dict.fromkeys(names))
    async with admin_of(console) as admin:
        known = await admin.list_groups()
        for name in wanted:
            if name not in known:
                raise unknown("group", name, known)
        for group in (await _described(admin, wanted)).values():
            check_stopped(group, "delete it")
        console.confirm(f"Delete {', '.join(wanted)} with all committed offsets?", yes=yes)
        await admin.delete_groups(wanted)
    console.report({"deleted": wanted}, *(f"deleted group {shown_name(name)}" for name in wanted))


@groups.command("remove-member", short_help="Remove members from a group.")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.argument("members", nargs=-1, metavar="[MEMBER…]")
@click.option("--all", "everyone", is_flag=True, help="Remove every member.")
@YES
@options
async def remove_member(
    console: Console, name: str, members: tuple[str, ...], everyone: bool, yes: bool
) -> None:
    """Remove members from a group, by member id, or by instance id for static members.

    The group reassigns their partitions at once instead of waiting for the session timeout. A member that is still
    running joins again. Without --yes, the command asks first.

    \b
    ottla groups remove-member billing host-3
    ottla groups remove-member billing --all --yes
    """
    from ottla_client.admin import MemberToRemove

    if bool(members) is everyone:
        raise click.UsageError("name the members, or give --all")
    async with admin_of(console) as admin:
        group = await _one(admin, name)
        known: dict[str, MemberToRemove] = {}
        for member in group.members:
            if member.instance_id is not None:
                known[member.instance_id] = MemberToRemove(instance_id=member.instance_id)
            known[member.member_id] = MemberToRemove(member.member_id, member.instance_id)
        for each in members:
            if each not in known:
                raise unknown("member", each, known)
        chosen = members or tuple(member.instance_id or member.member_id for member in group.members)
        if chosen:
            console.confirm(f"Remove {plural(len(chosen), 'member')} from group {shown_name(name)}?", yes=yes)
            await admin.remove_members(name, [known[each] for each in chosen])
    console.report(
        {"group": name, "removed": list(chosen)},
        *(f"removed member {each} from group {shown_name(name)}" for each in chosen),
        empty=f"group {shown_name(name)} has no members",
    )
