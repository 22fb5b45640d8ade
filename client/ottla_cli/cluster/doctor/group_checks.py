"""The findings of ``ottla cluster doctor`` in groups of all generations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_client.types import IN_ZOOKEEPER, TopicPartition
from ottla_protocol.printable import shown_name

from ...shared.admin import plural
from ...shared.findings import CRITICAL, NOTE, WARNING, Finding, some_of
from .gathered import Gathered, number_in

if TYPE_CHECKING:
    from ottla_client.admin import GroupDescription

_STUCK_SECONDS: Final = 60.0
_NEAR_RETENTION: Final = 0.8
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def groups(seen: Gathered) -> Iterator[Finding]:
    for name, group in seen.groups.items():
        after = seen.later_groups.get(name)
        if group.state in _REBALANCING and after is not None and after.state in _REBALANCING:
            yield Finding(
                WARNING,
                "group-rebalances",
                f"group {shown_name(name)}",
                f"It was rebalancing at both looks ({group.state}, {after.state}).",
                "Members join again and again: they take longer than max.poll.interval.ms, or restart. See their logs.",
            )
        elif after is not None and group.members and _members(group).isdisjoint(_members(after)):
            yield Finding(
                WARNING,
                "group-rebalances",
                f"group {shown_name(name)}",
                "All of its members were replaced between two looks.",
                "Consumers restart, or time out: see their logs, session.timeout.ms and max.poll.interval.ms.",
            )
        yield from _group_lags(seen, name, group)


def _members(group: GroupDescription) -> set[str]:
    return {member.member_id for member in group.members}


class _Lags(NamedTuple):
    """A group's partitions that need attention, as they are shown.

    ``behind`` are the records that it has still to read, ``grown`` those that came while the command looked.
    """

    lost: list[str]
    beyond: list[str]
    near: list[str]
    stuck: list[tuple[TopicPartition, int]]
    behind: int
    grown: int


def _lags_of(seen: Gathered, name: str, group: GroupDescription) -> _Lags:
    lost: list[str] = []
    beyond: list[str] = []
    near: list[str] = []
    stuck: list[tuple[TopicPartition, int]] = []
    behind = grown = 0
    for partition, lag in seen.lags.get(name, {}).items():
        if lag.committed is None or lag.end is None:
            continue
        offset = lag.committed.offset
        if lag.start is not None and offset < lag.start and lag.end > lag.start:
            lost.append(str(partition))
        behind += lag.records or 0
        if lag.beyond_end:
            beyond.append(f"{partition} by {lag.beyond_end:,}")
        later = seen.later.get(name, {}).get(partition)
        if later is not None and later.end is not None:
            grown += max(0, later.end - lag.end)
        if (
            group.members
            and lag.records
            and (lag.seconds or 0) > _STUCK_SECONDS
            and later is not None
            and later.committed is not None
            and later.committed.offset == offset
        ):
            stuck.append((partition, offset))
        keep = number_in(seen.topic_configs.get(partition.topic, {}), "retention.ms")
        deletes = "delete" in seen.topic_configs.get(partition.topic, {}).get("cleanup.policy", "")
        if deletes and keep and keep > 0 and (lag.seconds or 0) * 1000 > _NEAR_RETENTION * keep:
            near.append(str(partition))
    return _Lags(lost, beyond, near, stuck, behind, grown)


def _group_lags(seen: Gathered, name: str, group: GroupDescription) -> Iterator[Finding]:
    lost, beyond, near, stuck, behind, grown = _lags_of(seen, name, group)
    if lost:
        yield Finding(
            CRITICAL,
            "group-lost-records",
            f"group {shown_name(name)}",
            f"Its committed offset is before the first record that is left: {some_of(lost)}.",
            "Records were removed unread. Read on with ottla groups reset-offsets, and lengthen retention.",
        )
    if beyond:
        yield Finding(
            WARNING,
            "group-beyond-end",
            f"group {shown_name(name)}",
            f"Its committed offset is beyond the last record: {some_of(beyond)}.",
            "The topic was made again or lost records. Read on with ottla groups reset-offsets.",
        )
    if near:
        yield Finding(
            CRITICAL,
            "group-near-retention",
            f"group {shown_name(name)}",
            f"Its next record is about to be removed by retention: {some_of(near)}.",
            "Start more consumers, or lengthen retention.ms until it has caught up.",
        )
    if stuck:
        yield _stuck(name, group, stuck)
    if not group.members and behind and group.state != "Dead":
        more = f", and {plural(grown, 'record')} more came meanwhile" if grown else ""
        yield Finding(
            WARNING if grown else NOTE,
            "group-without-members",
            f"group {shown_name(name)}",
            f"It has no members, and {plural(behind, 'record')} to read{more}.",
            "Start its consumers."
            if group.protocol_type == IN_ZOOKEEPER
            else "Start its consumers, or remove it: ottla groups delete",
        )


def _stuck(name: str, group: GroupDescription, stuck: Sequence[tuple[TopicPartition, int]]) -> Finding:
    where = some_of([f"{partition} at offset {offset}" for partition, offset in stuck])
    partition, offset = stuck[0]
    look = f"{_show(partition, offset)} shows it."
    if group.type == "share":
        return Finding(
            WARNING,
            "share-group-stuck",
            f"group {shown_name(name)}",
            f"Its start doesn't move: {where}.",
            f"That record fails again and again, or a member keeps it: {look} Fix the consumer, or have it reject the"
            " record.",
        )
    return Finding(
        WARNING,
        "group-stuck",
        f"group {shown_name(name)}",
        f"Its members don't get on: {where}.",
        f"Perhaps that record fails again and again: {look} Fix the consumer; or stop it, and skip the record: ottla"
        f" groups reset-offsets {shown_name(name)} --topic {partition.topic}:{partition.partition}"
        f" --to-offset {offset + 1} --execute",
    )


def share_deliveries(seen: Gathered) -> Iterator[Finding]:
    """Records of share groups that are dropped, or soon will be."""
    for found in seen.deliveries.values():
        for last in found.last:
            yield Finding(
                WARNING,
                "share-group-last-delivery",
                f"group {shown_name(last.group)}",
                f"{plural(last.records, 'record')} of {last.partition}, from offset {last.first} on, had nearly all of"
                f" {last.most} deliveries: the group drops what the last one doesn't process.",
                f"{_show(last.partition, last.first)} shows the first. Fix the consumer, or raise"
                " share.delivery.count.limit of the group until it is fixed.",
            )
        for lost in found.dropped:
            why = "Its consumers rejected" if lost.rejected else "After too many deliveries it dropped"
            yield Finding(
                NOTE if lost.rejected else WARNING,
                "share-group-dropped",
                f"group {shown_name(lost.group)}",
                f"{why} {plural(lost.records, 'record')} in the last hour: the last one is {lost.partition}, offset"
                f" {lost.last}.",
                f"{_show(lost.partition, lost.last)} shows it. No consumer gets it again: fix the consumer, then go"
                " back with ottla groups reset-offsets, or process it by hand.",
            )


def _show(partition: TopicPartition, offset: int) -> str:
    return f"ottla consume {partition.topic} -p {partition.partition} --from {offset} -n 1"


def groups_in_zookeeper(seen: Gathered) -> Iterator[Finding]:
    """Groups whose consumers share out partitions by nodes in ZooKeeper. A rebalance passes: it takes two looks."""
    if seen.in_zookeeper:
        from ottla_client.zookeeper_consumer.paths import consumer_of
    for name, group in seen.in_zookeeper.items():
        after = seen.later_in_zookeeper.get(name, group)
        if not group.members or not after.members:
            continue
        there = {
            TopicPartition(topic, number)
            for topic in group.topics & seen.state.topics.keys()
            for number in seen.state.topics[topic].partitions
        }
        unread = sorted(there - group.owners.keys() - after.owners.keys())
        if unread:
            yield Finding(
                WARNING,
                "zookeeper-group-unowned",
                f"group {shown_name(name)}",
                f"No consumer reads {some_of(list(map(str, unread)))}: the partitions have no owner in ZooKeeper.",
                "A rebalance has failed or goes round in circles: see the consumers' logs and rebalance.max.retries,"
                " and restart one of them.",
            )
        strangers = [
            str(partition)
            for partition, stream in sorted(after.owners.items())
            if group.owners.get(partition) == stream
            and consumer_of(stream) not in {*group.members, *after.members}
        ]
        if strangers:
            yield Finding(
                WARNING,
                "zookeeper-group-owner-gone",
                f"group {shown_name(name)}",
                f"Consumers that aren't in the group own {some_of(strangers)}: perhaps no consumer reads there.",
                "The owner's session may be ending: look again after zookeeper.session.timeout.ms. If it stays, restart"
                f" that consumer, or delete its nodes below /consumers/{name}/owners.",
            )
        # Those that are committed to Kafka have a committed offset here, too.
        lags = seen.lags.get(name, {})
        uncommitted = [
            str(partition)
            for partition in sorted(group.owners.keys() & after.owners.keys() & lags.keys())
            if partition not in after.offsets and lags[partition].committed is None and lags[partition].end
        ]
        if uncommitted:
            yield Finding(
                NOTE,
                "zookeeper-group-uncommitted",
                f"group {shown_name(name)}",
                f"It has committed no offset of {some_of(uncommitted)}: after a restart it begins there where"
                " auto.offset.reset says.",
                "Unless it has just started (auto.commit.interval.ms), set auto.commit.enable=true, or have the"
                " application call commitOffsets.",
            )
