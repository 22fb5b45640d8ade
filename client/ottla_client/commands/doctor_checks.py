"""What `ottla cluster doctor` looks at: pure functions from what was gathered to findings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from ..types import IN_ZOOKEEPER, TopicPartition
from .admin_common import plural, ranges_of, show_seconds
from .cluster_state import ClusterState
from .findings import CRITICAL, NOTE, WARNING, Finding, brokers_named, some_of, worst_first
from .progress import amount_of_bytes

if TYPE_CHECKING:
    from ..admin import GroupDescription, HangingTransaction, PartitionLag, TransactionDescription
    from ..types import TopicMetadata
    from ..zookeeper_consumer.groups import GroupInZooKeeper
    from .certificate_dates import Validity
    from .descriptors import Descriptors
    from .share_deliveries import Deliveries

TOPIC_KEYS: Final = (
    "cleanup.policy",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
    "unclean.leader.election.enable",
)
BROKER_KEYS: Final = (
    "auto.create.topics.enable",
    "default.replication.factor",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "replica.fetch.max.bytes",
    "replica.lag.time.max.ms",
    "unclean.leader.election.enable",
)
"""Also compared between brokers."""
INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__ottla_group_lag")

DEAD_LETTERS: Final = re.compile(r"dead[-_.]?letters?|(^|[-_.])(dlq|dlt)($|[-_.])", re.IGNORECASE)
"""Names of topics that take records which couldn't be processed."""

_LOG_OVERHEAD: Final = 12
"""By so many bytes Kafka's default of max.message.bytes exceeds that of replica.fetch.max.bytes."""
_FEW_PERCENT: Final = 0.05
_SOME_PERCENT: Final = 0.10
_MANY_DESCRIPTORS: Final = 0.8
_ALL_DESCRIPTORS: Final = 0.95
_STUCK_SECONDS: Final = 60.0
_FUTURE_SECONDS: Final = 60.0
_NEAR_RETENTION: Final = 0.8
_LEAST_SKEW: Final = 5
SOON: Final = timedelta(days=30)
"""A certificate that ends within this time is a finding."""
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


Configs = Mapping[str, Mapping[str, str]]
"""Values of configs by the name of a topic or broker."""
Lags = Mapping[TopicPartition, "PartitionLag"]


@dataclass(slots=True)
class Gathered:
    """All that was found out. Times are in milliseconds.

    Attributes:
        groups, lags: described groups, and their lags by group.
        later: the groups that had a lag and members, and their lags some seconds later.
        later_groups: the states of groups at that time.
        open_transactions: those that have been open for longer than a minute.
        latest: the largest timestamp in each partition.
        dead_letters: how many records such topics got in the last hour.
        certificates: when those of brokers' listeners with TLS are valid, by broker and listener.
        descriptors: open file descriptors of brokers, and their limits.
        deliveries: what brokers say of share groups' records.
        in_zookeeper, later_in_zookeeper: groups that coordinate in ZooKeeper, at both looks.
        later_topics: the topics at the end, as ``state`` has them at the beginning.
        silent: brokers that are registered, and didn't answer while others did.
        unchecked: what couldn't be found out, and why.
    """

    state: ClusterState
    now_ms: int
    topic_configs: Configs = field(default_factory=dict)
    broker_configs: Configs = field(default_factory=dict)
    groups: Mapping[str, GroupDescription] = field(default_factory=dict)
    lags: Mapping[str, Lags] = field(default_factory=dict)
    later: Mapping[str, Lags] = field(default_factory=dict)
    later_groups: Mapping[str, GroupDescription] = field(default_factory=dict)
    open_transactions: Mapping[str, TransactionDescription] = field(default_factory=dict)
    hanging: Sequence[HangingTransaction] = ()
    latest: Mapping[TopicPartition, int] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    certificates: Mapping[str, Validity] = field(default_factory=dict)
    descriptors: Mapping[int, Descriptors] = field(default_factory=dict)
    deliveries: Mapping[int, Deliveries] = field(default_factory=dict)
    in_zookeeper: Mapping[str, GroupInZooKeeper] = field(default_factory=dict)
    later_in_zookeeper: Mapping[str, GroupInZooKeeper] = field(default_factory=dict)
    later_topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    silent: Collection[int] = ()
    unchecked: list[str] = field(default_factory=list)


def controller(seen: Gathered) -> Iterator[Finding]:
    if seen.state.description.controller_id is None:
        yield Finding(
            CRITICAL,
            "controller",
            "cluster",
            "The cluster has no controller: no leader is elected, and topics can't be changed.",
            "Check that brokers reach ZooKeeper (or the KRaft quorum), and look into their logs.",
        )


def brokers(seen: Gathered) -> Iterator[Finding]:
    for broker in seen.state.down:
        yield Finding(
            CRITICAL,
            "broker-down",
            f"broker {broker}",
            "It has replicas, but isn't running.",
            f"Start it, or move its replicas: ottla cluster drain {broker}",
        )
    for broker in seen.silent:
        yield Finding(
            CRITICAL,
            "broker-silent",
            f"broker {broker}",
            "It is registered, but doesn't answer.",
            "It has just ended, hangs, or can't be reached from here: look at its process and its log.",
        )


_PARTITIONS: Final = {
    "offline": (
        CRITICAL,
        "{} no leader: writing and reading fail.",
        "Start the brokers that have its replicas. Only if they are lost: ottla cluster elect --unclean",
    ),
    "below-min-isr": (
        CRITICAL,
        "{} fewer replicas in sync than min.insync.replicas: acks=all fails.",
        "Start the missing brokers, or lower min.insync.replicas until they are back.",
    ),
    "under-replicated": (
        WARNING,
        "{} replicas out of sync.",
        "A broker is down, slow or out of disk: see the other findings and ottla cluster describe.",
    ),
}


def partitions(seen: Gathered) -> Iterator[Finding]:
    by_kind: dict[str, dict[str, list[int]]] = {}
    explained: dict[str, int] = {}
    down = set(seen.state.down)
    for problem in seen.state.problems:
        if problem.problem == "under-replicated":
            its = seen.state.topics[problem.topic].partitions[problem.partition]
            if down.issuperset(set(its.replicas) - set(its.isr)):
                explained[problem.topic] = explained.get(problem.topic, 0) + 1
                continue
        by_kind.setdefault(problem.problem, {}).setdefault(problem.topic, []).append(problem.partition)
    for kind, topics in by_kind.items():
        severity, what, action = _PARTITIONS[kind]
        for topic, numbers in topics.items():
            text = what.format(
                "A partition has" if len(numbers) == 1 else f"{len(numbers):,} partitions have"
            )
            yield Finding(severity, kind, f"{topic}:{ranges_of(numbers)}", text, action)
    if explained:
        who = brokers_named(len(down), ranges_of(sorted(down)))
        severity = _PARTITIONS["under-replicated"][0]
        what = f"{plural(sum(explained.values()), 'partition')} lack only the replicas of {who}."
        yield Finding(severity, "under-replicated", some_of(sorted(explained)), what, f"Start {who}.")


def leaders(seen: Gathered) -> Iterator[Finding]:
    state = seen.state
    down = state.down
    # A preferred replica that is down can't lead.
    electable = sum(
        partition.leader is not None
        and partition.leader != partition.replicas[0]
        and partition.replicas[0] not in down
        for topic in state.topics.values()
        for partition in topic.partitions.values()
    )
    if state.partitions and electable > _SOME_PERCENT * state.partitions:
        yield Finding(
            WARNING,
            "preferred-leaders",
            "cluster",
            f"{electable:,} of {state.partitions:,} partitions aren't led by their preferred replica.",
            "ottla cluster elect",
        )
    running = [row for row in state.brokers if row["address"] is not None]
    if len(running) < 2:
        return
    average = sum(row["leads"] for row in running) / len(running)
    for row in running:
        if row["leads"] - average >= _LEAST_SKEW and row["leads"] > 1.5 * average:
            yield Finding(
                WARNING,
                "leader-skew",
                f"broker {row['broker']}",
                f"It leads {row['leads']:,} partitions; the average is {average:,.0f}.",
                "ottla cluster elect; if that isn't enough: ottla cluster reassign",
            )


def racks(seen: Gathered) -> Iterator[Finding]:
    known = {node.id: node.rack for node in seen.state.description.nodes}
    if not any(known.values()):
        return
    without = sorted(broker for broker, rack in known.items() if rack is None)
    if without:
        yield Finding(
            WARNING,
            "racks",
            brokers_named(len(without), ranges_of(without)),
            "They name no rack, others do: replicas aren't spread over racks then.",
            "Set broker.rack on all brokers.",
        )
    elif len(set(known.values())) > 1:
        alone = [
            f"{name}:{partition.partition}"
            for name, topic in seen.state.topics.items()
            for partition in topic.partitions.values()
            if len(partition.replicas) > 1 and len({known.get(each) for each in partition.replicas}) == 1
        ]
        if alone:
            yield Finding(
                WARNING,
                "racks",
                some_of(alone),
                "All replicas are in one rack.",
                "ottla cluster reassign spreads them over racks.",
            )


def disks(seen: Gathered) -> Iterator[Finding]:
    for broker, folders in sorted(seen.state.folders.items()):
        for folder in folders:
            subject = f"broker {broker}, {folder.path}"
            if folder.error:
                yield Finding(
                    CRITICAL,
                    "log-dir",
                    subject,
                    f"The data folder has failed (error {folder.error}).",
                    "Repair or replace the disk and restart the broker; replicas come back from their leaders.",
                )
            elif folder.usable_bytes is not None and folder.total_bytes:
                share = folder.usable_bytes / folder.total_bytes
                if share < _SOME_PERCENT:
                    yield Finding(
                        CRITICAL if share < _FEW_PERCENT else WARNING,
                        "disk",
                        subject,
                        f"{share:.0%} free: {amount_of_bytes(folder.usable_bytes)}"
                        f" of {amount_of_bytes(folder.total_bytes)}.",
                        "Shorten retention, move partitions (ottla cluster reassign), or add space.",
                    )


def file_descriptors(seen: Gathered) -> Iterator[Finding]:
    for broker, found in sorted(seen.descriptors.items()):
        if found.open > _MANY_DESCRIPTORS * found.most:
            yield Finding(
                CRITICAL if found.open > _ALL_DESCRIPTORS * found.most else WARNING,
                "descriptors",
                f"broker {broker}",
                f"{found.open:,} of {found.most:,} file descriptors are open; at the limit, clients are turned away.",
                "Raise the limit (LimitNOFILE= of the service, ulimit -n) and restart the broker, or lower"
                " max.connections.",
            )


def _number(configs: Mapping[str, str], key: str) -> int | None:
    try:
        return int(configs[key])
    except (KeyError, ValueError):
        return None


def replication(seen: Gathered) -> Iterator[Finding]:
    """Replication factors, and settings that contradict them."""
    running = sum(row["address"] is not None for row in seen.state.brokers)
    single: list[str] = []
    strict: list[str] = []
    pointless: list[str] = []
    for name, topic in seen.state.topics.items():
        factors = [len(partition.replicas) for partition in topic.partitions.values()]
        if not factors:
            continue
        least = min(factors)
        minimum = _number(seen.topic_configs.get(name, {}), "min.insync.replicas")
        if minimum is not None and minimum >= least > 1:
            strict.append(name)
        elif minimum is not None and minimum > least and name not in INTERNAL:
            pointless.append(name)
        if name in INTERNAL and least < min(3, running):
            yield Finding(
                WARNING,
                "internal-replication",
                name,
                f"It has {plural(least, 'replica')}: groups or transactions stop with one of {running} brokers.",
                f"Add replicas, up to {min(3, running)}: ottla cluster reassign --file PLAN --execute",
            )
        elif least == 1 and running > 1:
            single.append(name)
    if single:
        yield Finding(
            WARNING,
            "replication",
            some_of(single),
            "There is one replica: the records are gone if its disk fails, and out of reach while its broker is down.",
            "Add replicas: ottla cluster reassign --file PLAN --execute",
        )
    if strict:
        yield Finding(
            WARNING,
            "min-isr",
            some_of(strict),
            "min.insync.replicas takes all replicas: acks=all fails whenever one broker is down.",
            "Lower min.insync.replicas below the number of replicas, or add a replica.",
        )
    if pointless:
        yield Finding(
            NOTE,
            "min-isr",
            some_of(pointless),
            "min.insync.replicas is above 1 with one replica: brokers count with 1, so acks=all adds nothing.",
            "Add replicas: ottla cluster reassign --file PLAN --execute",
        )


def topic_settings(seen: Gathered) -> Iterator[Finding]:
    unclean: list[str] = []
    fetch = [
        value
        for configs in seen.broker_configs.values()
        if (value := _number(configs, "replica.fetch.max.bytes")) is not None
    ]
    for name, configs in seen.topic_configs.items():
        if configs.get("unclean.leader.election.enable") == "true":
            unclean.append(name)
        if "delete" in configs.get("cleanup.policy", ""):
            for what, unit in (("ms", "ms"), ("bytes", "bytes")):
                keep, segment = _number(configs, f"retention.{what}"), _number(configs, f"segment.{what}")
                if keep is not None and segment is not None and 0 <= keep < segment:
                    yield Finding(
                        NOTE,
                        "retention",
                        name,
                        f"retention.{what} ({keep:,} {unit}) is less than segment.{what} ({segment:,}):"
                        " records stay until their segment is full or old.",
                        f"Set segment.{what} to a fraction of retention.{what}.",
                    )
        largest = _number(configs, "max.message.bytes")
        if largest is not None and fetch and largest > min(fetch) + _LOG_OVERHEAD:
            yield Finding(
                NOTE,
                "message-size",
                name,
                f"max.message.bytes ({largest:,}) is more than replica.fetch.max.bytes ({min(fetch):,}):"
                " large batches are replicated one at a time.",
                "Raise replica.fetch.max.bytes on all brokers.",
            )
    if unclean:
        yield Finding(
            WARNING,
            "unclean-election",
            some_of(unclean),
            "unclean.leader.election.enable is true: a replica out of sync may lead, and committed records are lost.",
            "Set it to false unless availability matters more than records.",
        )


def broker_settings(seen: Gathered) -> Iterator[Finding]:
    """Settings that should be the same on all brokers."""
    for key in BROKER_KEYS:
        values: dict[str, list[int]] = {}
        for broker, configs in seen.broker_configs.items():
            if key in configs:
                values.setdefault(configs[key], []).append(int(broker))
        if len(values) > 1:
            shown = "; ".join(f"{value}: broker {ranges_of(numbers)}" for value, numbers in values.items())
            yield Finding(
                WARNING,
                "broker-configs",
                key,
                f"Brokers differ: {shown}.",
                "Give all brokers the same value.",
            )


def groups(seen: Gathered) -> Iterator[Finding]:
    for name, group in seen.groups.items():
        after = seen.later_groups.get(name)
        if group.state in _REBALANCING and after is not None and after.state in _REBALANCING:
            yield Finding(
                WARNING,
                "group-rebalances",
                f"group {name}",
                f"It was rebalancing at both looks ({group.state}, {after.state}).",
                "Members join again and again: they take longer than max.poll.interval.ms, or restart. See their logs.",
            )
        elif after is not None and group.members and _members(group).isdisjoint(_members(after)):
            yield Finding(
                WARNING,
                "group-rebalances",
                f"group {name}",
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
        behind += max(0, lag.records or 0)
        if lag.end < offset:
            beyond.append(str(partition))
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
        keep = _number(seen.topic_configs.get(partition.topic, {}), "retention.ms")
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
            f"group {name}",
            f"Its committed offset is before the first record that is left: {some_of(lost)}.",
            "Records were removed unread. Read on with ottla groups reset-offsets, and lengthen retention.",
        )
    if beyond:
        yield Finding(
            WARNING,
            "group-beyond-end",
            f"group {name}",
            f"Its committed offset is beyond the last record: {some_of(beyond)}.",
            "The topic was made again or lost records. Read on with ottla groups reset-offsets.",
        )
    if near:
        yield Finding(
            CRITICAL,
            "group-near-retention",
            f"group {name}",
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
            f"group {name}",
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
            f"group {name}",
            f"Its start doesn't move: {where}.",
            f"That record fails again and again, or a member keeps it: {look} Fix the consumer, or have it reject the"
            " record.",
        )
    return Finding(
        WARNING,
        "group-stuck",
        f"group {name}",
        f"Its members don't get on: {where}.",
        f"Perhaps that record fails again and again: {look} Fix the consumer; or stop it, and skip the record: ottla"
        f" groups reset-offsets {name} --topic {partition.topic}:{partition.partition} --to-offset {offset + 1}"
        " --execute",
    )


def share_deliveries(seen: Gathered) -> Iterator[Finding]:
    """Records of share groups that are dropped, or soon will be."""
    for found in seen.deliveries.values():
        for last in found.last:
            yield Finding(
                WARNING,
                "share-group-last-delivery",
                f"group {last.group}",
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
                f"group {lost.group}",
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
        from ..zookeeper_consumer.groups import consumer_of
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
                f"group {name}",
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
                f"group {name}",
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
                f"group {name}",
                f"It has committed no offset of {some_of(uncommitted)}: after a restart it begins there where"
                " auto.offset.reset says.",
                "Unless it has just started (auto.commit.interval.ms), set auto.commit.enable=true, or have the"
                " application call commitOffsets.",
            )


def transactions(seen: Gathered) -> Iterator[Finding]:
    for each in seen.hanging:
        yield Finding(
            CRITICAL,
            "hanging-transaction",
            str(each.partition),
            f"A transaction of producer {each.producer.producer_id} hangs: read_committed consumers wait behind it.",
            f"ottla transactions abort --topic {each.partition.topic} --partition {each.partition.partition}"
            f" --start-offset {each.producer.transaction_start_offset}",
        )
    for name, open_one in seen.open_transactions.items():
        if open_one.started_ms is None:
            continue
        seconds = (seen.now_ms - open_one.started_ms) / 1000
        where = some_of(sorted(map(str, open_one.partitions)))
        yield Finding(
            WARNING,
            "open-transaction",
            f"transaction {name}",
            f"It has been open for {show_seconds(seconds)} in {where}: read_committed"
            " consumers wait behind it. Perhaps its producer is gone.",
            f"It is aborted {show_seconds(open_one.timeout_ms / 1000)} after it began. To abort it now, and stop that"
            f" producer: ottla transactions fence {name}",
        )


def dead_letters(seen: Gathered) -> Iterator[Finding]:
    for topic, count in seen.dead_letters.items():
        if count:
            yield Finding(
                WARNING,
                "dead-letters",
                topic,
                f"It got {plural(count, 'record')} in the last hour.",
                f"ottla consume {topic} --from -5 -e shows the last of them.",
            )


def clocks(seen: Gathered) -> Iterator[Finding]:
    ahead = {
        partition: (latest - seen.now_ms) / 1000
        for partition, latest in seen.latest.items()
        if latest - seen.now_ms > _FUTURE_SECONDS * 1000
    }
    if ahead:
        names = [str(partition) for partition in sorted(ahead)]
        yield Finding(
            WARNING,
            "clocks",
            some_of(names),
            f"Records have timestamps up to {show_seconds(max(ahead.values()))} in the future:"
            " retention keeps them longer, and lag in time is wrong.",
            "Set the clocks of producers and brokers by NTP, or message.timestamp.type=LogAppendTime.",
        )


def certificates(seen: Gathered) -> Iterator[Finding]:
    now = datetime.fromtimestamp(seen.now_ms / 1000, UTC)
    for subject, valid in seen.certificates.items():
        yield from certificate_findings(subject, valid, now)


def certificate_findings(subject: str, valid: Validity, now: datetime) -> Iterator[Finding]:
    """What is wrong with the time in which a listener's certificate is valid."""
    renew = "Issue a new one, replace the file, and set ssl.keystore.location again by kafka-configs."
    if valid.ends < now:
        what = f"Its certificate has expired, at {valid.ends:%Y-%m-%d %H:%M} UTC."
        yield Finding(CRITICAL, "certificate-expired", subject, what, renew)
    elif valid.ends - now < SOON:
        days = (valid.ends - now).days
        what = f"Its certificate expires in {days} days, at {valid.ends:%Y-%m-%d %H:%M} UTC."
        yield Finding(WARNING, "certificate-expires-soon", subject, what, renew)
    if valid.begins > now:
        what = f"Its certificate is valid only from {valid.begins:%Y-%m-%d %H:%M} UTC on."
        yield Finding(CRITICAL, "certificate-not-yet-valid", subject, what, "Check the clocks.")


def in_sync_changes(seen: Gathered) -> Iterator[Finding]:
    """Replicas that left or joined the in-sync set while the command looked."""
    changed = [
        f"{name}:{number}"
        for name, topic in seen.later_topics.items()
        for number, partition in topic.partitions.items()
        if (before := _partition(seen, name, number)) is not None and set(before) != set(partition.isr)
    ]
    if changed:
        yield Finding(
            WARNING,
            "isr-churn",
            some_of(sorted(changed)),
            "The in-sync replicas changed between two looks.",
            "Unless a broker has just started or stopped, a follower is too slow: see its disk, its network and"
            " replica.lag.time.max.ms.",
        )


def _partition(seen: Gathered, name: str, number: int) -> tuple[int, ...] | None:
    """The in-sync replicas of a partition at the first look."""
    topic = seen.state.topics.get(name)
    found = None if topic is None else topic.partitions.get(number)
    return None if found is None else tuple(found.isr)


CHECKS: Final = (
    controller,
    brokers,
    partitions,
    leaders,
    racks,
    disks,
    file_descriptors,
    replication,
    topic_settings,
    broker_settings,
    transactions,
    groups,
    share_deliveries,
    groups_in_zookeeper,
    dead_letters,
    clocks,
    certificates,
    in_sync_changes,
)


def findings_of(seen: Gathered) -> list[Finding]:
    return worst_first(CHECKS, seen)
