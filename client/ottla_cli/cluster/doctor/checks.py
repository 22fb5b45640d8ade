"""The checks of `ottla cluster doctor`: pure functions from what was gathered to findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from ottla_protocol.printable import shown_name

from ...security.certificates import certificate_findings
from ...shared.admin import plural, ranges_of, show_seconds
from ...shared.findings import CRITICAL, NOTE, WARNING, Finding, brokers_named, some_of, worst_first
from ...shared.progress import amount_of_bytes
from .gathered import BROKER_KEYS, Gathered, number_in
from .group_checks import groups, groups_in_zookeeper, share_deliveries

INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__ottla_group_lag")

DEAD_LETTERS: Final = re.compile(r"dead[-_.]?letters?|(^|[-_.])(dlq|dlt)($|[-_.])", re.IGNORECASE)
"""Names of topics that take records which couldn't be processed."""

_LOG_OVERHEAD: Final = 12
"""By so many bytes Kafka's default of max.message.bytes exceeds that of replica.fetch.max.bytes."""
_FEW_PERCENT: Final = 0.05
_SOME_PERCENT: Final = 0.10
_MANY_DESCRIPTORS: Final = 0.8
_ALL_DESCRIPTORS: Final = 0.95
_FUTURE_SECONDS: Final = 60.0
_LEAST_SKEW: Final = 5


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
            f"Start it, or move its replicas: ottla cluster drain {broker}"
            if _can_be_drained(seen, broker)
            else "Start it. Too few brokers are left to take its replicas.",
        )
    for broker in seen.silent:
        yield Finding(
            CRITICAL,
            "broker-silent",
            f"broker {broker}",
            "It is registered, but doesn't answer.",
            "It has just ended, hangs, or can't be reached from here: look at its process and its log.",
        )


def _can_be_drained(seen: Gathered, broker: int) -> bool:
    left = len({node.id for node in seen.state.description.nodes} - {*seen.silent, broker})
    return all(
        len(partition.replicas) <= left
        for topic in seen.state.topics.values()
        for partition in topic.partitions.values()
        if broker in partition.replicas
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
        minimum = number_in(seen.topic_configs.get(name, {}), "min.insync.replicas")
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
        if (value := number_in(configs, "replica.fetch.max.bytes")) is not None
    ]
    for name, configs in seen.topic_configs.items():
        if configs.get("unclean.leader.election.enable") == "true":
            unclean.append(name)
        if "delete" in configs.get("cleanup.policy", ""):
            for what, unit in (("ms", "ms"), ("bytes", "bytes")):
                keep, segment = number_in(configs, f"retention.{what}"), number_in(configs, f"segment.{what}")
                if keep is not None and segment is not None and 0 <= keep < segment:
                    yield Finding(
                        NOTE,
                        "retention",
                        name,
                        f"retention.{what} ({keep:,} {unit}) is less than segment.{what} ({segment:,}):"
                        " records stay until their segment is full or old.",
                        f"Set segment.{what} to a fraction of retention.{what}.",
                    )
        largest = number_in(configs, "max.message.bytes")
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
            f"transaction {shown_name(name)}",
            f"It has been open for {show_seconds(seconds)} in {where}: read_committed"
            " consumers wait behind it. Perhaps its producer is gone.",
            f"It is aborted {show_seconds(open_one.timeout_ms / 1000)} after it began. To abort it now, and stop that"
            f" producer: ottla transactions fence {shown_name(name)}",
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
