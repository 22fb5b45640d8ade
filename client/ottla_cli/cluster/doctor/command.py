"""``ottla cluster doctor``: everything that somebody who knows Kafka would check, and what to do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import click

from ottla_client.errors import BrokerError, ClientError
from ottla_client.types import IN_ZOOKEEPER, OffsetSpec, TopicPartition
from ottla_protocol.errors import ErrorCode
from ottla_protocol.printable import shown_name

from ...groups.places import (
    Kept,
    as_description,
    kept,
    lag_in_zookeeper,
    lag_of,
    registry_of,
    zookeeper_option,
)
from ...shared.admin import admin_of, plural
from ...shared.findings import report
from ...shared.terminal import Console, one_line, options
from ...shared.timefmt import now_ms
from ..state import look
from . import broker_pages
from .checks import DEAD_LETTERS, findings_of
from .descriptors import DESCRIPTORS, Descriptors
from .gathered import BROKER_KEYS, TOPIC_KEYS, Gathered
from .share_deliveries import DELIVERIES, Deliveries

if TYPE_CHECKING:
    from ottla_client.admin import (
        Admin,
        ConfigResource,
        GroupDescription,
        PartitionLag,
        TransactionDescription,
    )
    from ottla_client.types import TopicMetadata
    from ottla_client.zookeeper_consumer.groups import GroupInZooKeeper
    from ottla_client.zookeeper_consumer.registry import Registry

    from ...security.certificates import Validity

T = TypeVar("T")

_AT_ONCE: Final = 8
_LONG_OPEN_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_HANDSHAKE_SECONDS: Final = 5.0
_SETTINGS: Final = "settings of brokers"
_BLIND: Final = (
    "no broker's settings could be looked at; this user needs the permissions describe and describe-configs on the"
    " cluster and on topics, and describe on groups and transactional ids"
)


@click.command(short_help="Check everything, and say what to do.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="Look at groups twice, this long apart, to find those that don't get on. 0 looks once.",
)
@click.option(
    "--group",
    "only_groups",
    multiple=True,
    metavar="GROUP",
    help="Check only this group, instead of all. Repeat it for several.",
)
@zookeeper_option
@options
async def doctor(
    console: Console, interval: float, only_groups: tuple[str, ...], zookeeper: str | None
) -> None:
    """Check brokers, partitions, disks, settings, groups, transactions, clocks and certificates, and say what to do.

    It finds partitions that are offline, below min.insync.replicas or under-replicated; leaders in the wrong
    places; disks that fail or fill up; brokers that run out of file descriptors; settings that contradict each
    other or differ between brokers; groups of every generation that rebalance in circles, are stuck on a record,
    drop records, or have lost some; transactions that hang; dead letters that grow; clocks that are wrong;
    certificates that expire; and in-sync replicas that come and go. It changes nothing, and works with Apache Kafka
    too.

    The exit code is 1 if there is a critical finding or a warning, or if this user may not read the brokers' settings,
    otherwise 0. Seeing everything needs the permissions describe and describe-configs on the cluster and on topics, and
    describe on groups and transactional ids.

    \b
    ottla cluster doctor
    ottla cluster doctor -b kafka-1:9092 --json
    ottla cluster doctor --interval 30 --group billing
    ottla cluster doctor --zookeeper 127.0.0.1:2181
    """
    async with admin_of(console) as admin, registry_of(console, zookeeper) as registry:
        seen = await gather(admin, interval, only_groups, registry)
    report(
        console,
        findings_of(seen),
        seen.unchecked,
        verdict="healthy",
        looked={
            "brokers": len(seen.state.description.nodes),
            "partitions": seen.state.partitions,
            "groups": len(seen.groups),
        },
        nothing="nothing is wrong in what could be checked" if seen.unchecked else "nothing is wrong",
        blind=_BLIND if _SETTINGS in seen.refused else None,
    )


async def gather(
    admin: Admin, interval: float, only_groups: Collection[str] = (), registry: Registry | None = None
) -> Gathered:
    """Find out everything that can be. What a user may not see, or a broker doesn't know, is noted as unchecked."""
    state = await look(admin)
    seen = Gathered(state, now_ms(), unchecked=list(state.remarks))
    names = list(state.topics)
    seen.topic_configs = await attempt(seen, "settings of topics", topic_configs(admin, names), {})
    # Without rights, no broker says how large its logs are.
    if state.folders:
        seen.silent = [node.id for node in state.description.nodes if node.id not in state.folders]
    running = [node.id for node in state.description.nodes if node.id not in seen.silent]
    seen.broker_configs = await attempt(seen, _SETTINGS, broker_configs(admin, running), {})
    seen.descriptors = await descriptors(seen)
    leaders = led(state.topics)
    seen.latest = await attempt(seen, "timestamps", latest(admin, leaders), {})
    seen.hanging = await attempt(seen, "hanging transactions", admin.find_hanging_transactions(leaders), [])
    seen.open_transactions = await attempt(seen, "open transactions", long_open(admin), {})
    letters = [partition for partition in leaders if DEAD_LETTERS.search(partition.topic)]
    seen.dead_letters = await attempt(seen, "dead letters", last_hour(admin, letters, seen.now_ms), {})
    seen.certificates = await certificates_of(seen)
    await _gather_groups(admin, seen, interval, only_groups, registry)
    again = admin.list_topics(include_internal=True)
    seen.later_topics = await attempt(seen, "in-sync replicas", again, {})
    return seen


async def attempt(seen: Gathered, what: str, work: Awaitable[T], otherwise: T) -> T:
    """The result of a check; if it fails, that is noted once, and the others go on."""
    try:
        return await work
    except ClientError as error:
        if was_refused(error):
            seen.refused.add(what)
        failed = f"{what} couldn't be checked: "
        if not any(each.startswith(failed) for each in seen.unchecked):
            seen.unchecked.append(failed + one_line(error))
        return otherwise


def was_refused(error: ClientError) -> bool:
    """Whether all that was asked for lacks a permission on the cluster."""
    from ottla_client.admin import PartialError

    if isinstance(error, PartialError):
        return not error.results and all(map(was_refused, error.errors.values()))
    return isinstance(error, BrokerError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def led(topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
    """The partitions that can be asked."""
    return [
        TopicPartition(name, number)
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
        if partition.leader is not None
    ]


async def topic_configs(admin: Admin, names: Collection[str]) -> dict[str, dict[str, str]]:
    from ottla_client.admin import ConfigResource

    return await _configs(admin, [ConfigResource.topic(name) for name in names], TOPIC_KEYS)


async def broker_configs(admin: Admin, numbers: Collection[int]) -> dict[str, dict[str, str]]:
    from ottla_client.admin import ConfigResource

    from ...security.checks import LISTENER_KEYS

    keys = (*BROKER_KEYS, *LISTENER_KEYS, broker_pages.LISTENER)
    return await _configs(admin, [ConfigResource.broker(number) for number in numbers], keys)


async def _configs(
    admin: Admin, resources: Collection[ConfigResource], keys: tuple[str, ...]
) -> dict[str, dict[str, str]]:
    if not resources:
        return {}
    found = await admin.describe_configs(resources, keys=keys)
    return {
        resource.name: {name: entry.value for name, entry in entries.items() if entry.value is not None}
        for resource, entries in found.items()
    }


async def ask_brokers(seen: Gathered, page: broker_pages.Page[T], *, stays: bool = False) -> dict[int, T]:
    """The answers of brokers that serve metrics, on a page there.

    A page of the console, which ``stays``, has no room for notes of brokers that serve none.
    """
    listeners = {
        int(broker): its[broker_pages.LISTENER]
        for broker, its in seen.broker_configs.items()
        if broker_pages.LISTENER in its
    }
    description = seen.state.description
    asked = await broker_pages.ask(page, description.nodes, listeners, description.cluster_id)
    if not stays:
        strangers = [int(each) for each in seen.broker_configs if int(each) not in listeners]
        why = broker_pages.why_not(page.what, asked.without, strangers)
        seen.unchecked += asked.remarks if why is None else [*asked.remarks, why]
    return asked.found


async def descriptors(seen: Gathered, *, stays: bool = False) -> dict[int, Descriptors]:
    """Open file descriptors, of the brokers that count and limit them."""
    asked = await ask_brokers(seen, DESCRIPTORS, stays=stays)
    return {broker: found for broker, found in asked.items() if found is not None}


async def deliveries(
    seen: Gathered, groups: Mapping[str, GroupDescription], *, stays: bool = False
) -> dict[int, Deliveries]:
    """The brokers' reports on deliveries, if there are share groups."""
    if not any(group.type == "share" for group in groups.values()):
        return {}
    return await ask_brokers(seen, DELIVERIES, stays=stays)


async def certificates_of(seen: Gathered) -> dict[str, Validity]:
    """The dates of the certificates of listeners with TLS, by handshakes with those that answer."""
    from ...security.checks import listeners_of

    settings = seen.broker_configs
    listeners = [each for broker, its in settings.items() for each in listeners_of(broker, its) if each.tls]
    if not listeners:
        return {}
    from ...security.probe import Prober

    prober = Prober(_HANDSHAKE_SECONDS, None, ())

    async def one(host: str, port: int) -> Validity | None:
        try:
            return await prober.certificate(host, port)
        except ClientError as error:
            seen.unchecked.append(f"the certificate of {host}:{port} couldn't be checked: {one_line(error)}")
            return None

    found = await asyncio.gather(*(one(each.host, each.port) for each in listeners))
    return {
        listener.subject: valid for listener, valid in zip(listeners, found, strict=True) if valid is not None
    }


async def long_open(admin: Admin) -> dict[str, TransactionDescription]:
    """The transactions that have been open for longer than producers have by default, which is a minute."""
    listed = await admin.list_transactions(states=["Ongoing"], open_for_ms=_LONG_OPEN_MS)
    return await admin.describe_transactions(listed) if listed else {}


async def latest(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    listed = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.MAX_TIMESTAMP))
    return {partition: found.timestamp for partition, found in listed.items() if found.timestamp is not None}


async def last_hour(admin: Admin, partitions: Collection[TopicPartition], now: int) -> dict[str, int]:
    """The number of records that these topics got in the last hour."""
    if not partitions:
        return {}
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    since = await admin.list_offsets(dict.fromkeys(partitions, now - _HOUR_MS))
    counts: dict[str, int] = {}
    for partition, end in ends.items():
        first = since[partition].offset
        counts[partition.topic] = counts.get(partition.topic, 0) + (end.offset - first if first >= 0 else 0)
    return counts


async def _gather_groups(
    admin: Admin, seen: Gathered, interval: float, only: Collection[str], registry: Registry | None
) -> None:
    listed = await attempt(seen, "groups", admin.list_groups(), {})
    names = [name for name in listed if not only or name in only]
    described_now = await described(admin, seen, names)
    seen.lags = await lags_of(admin, seen, described_now)
    seen.deliveries = await deliveries(seen, described_now)
    seen.groups = described_now
    if registry is not None:
        await _look_into_zookeeper(admin, seen, registry, only)
    again = watched(seen.groups, seen.lags)
    if again and interval > 0:
        await asyncio.sleep(interval)
        seen.later_groups = await described(admin, seen, [name for name in again if name in listed])
        seen.later = await lags_of(admin, seen, seen.later_groups)
        if registry is not None:
            its = [
                name
                for name in again
                if name not in listed or seen.groups[name].protocol_type == IN_ZOOKEEPER
            ]
            await _look_again(admin, seen, registry, its)


async def _look_into_zookeeper(
    admin: Admin, seen: Gathered, registry: Registry, only: Collection[str]
) -> None:
    """The groups in ZooKeeper, except those that a coordinator keeps there."""
    from ottla_client.zookeeper_consumer.groups import read_groups

    found = await attempt(
        seen, "groups in ZooKeeper", read_groups(registry, lambda name: not only or name in only), {}
    )
    seen.in_zookeeper = {
        name: group
        for name, group in found.items()
        if name not in seen.groups or kept(seen.groups[name]) in (Kept.OFFSETS, Kept.EITHER)
    }
    # Consumers may coordinate in ZooKeeper, and commit to Kafka: offsets.storage=kafka.
    alone = {
        name: group for name, group in seen.in_zookeeper.items() if group.members or name not in seen.groups
    }
    seen.groups = {**seen.groups, **{name: as_description(name, group) for name, group in alone.items()}}
    seen.lags = {**seen.lags, **await lags_in_zookeeper(admin, seen, alone)}


async def _look_again(admin: Admin, seen: Gathered, registry: Registry, again: Collection[str]) -> None:
    from ottla_client.zookeeper_consumer.groups import read_groups

    wanted = {*again, *seen.in_zookeeper}
    found = await attempt(seen, "groups in ZooKeeper", read_groups(registry, wanted.__contains__), {})
    seen.later_in_zookeeper = found
    alone = {name: group for name, group in found.items() if name in again}
    seen.later_groups = {
        **seen.later_groups,
        **{name: as_description(name, group) for name, group in alone.items()},
    }
    seen.later = {**seen.later, **await lags_in_zookeeper(admin, seen, alone)}


async def lags_in_zookeeper(
    admin: Admin, seen: Gathered, groups: Mapping[str, GroupInZooKeeper]
) -> dict[str, dict[TopicPartition, PartitionLag]]:
    return {
        name: await attempt(
            seen, f"lag of group {shown_name(name)}", lag_in_zookeeper(admin, name, group), {}
        )
        for name, group in groups.items()
    }


def watched(
    groups: Mapping[str, GroupDescription], lags: Mapping[str, Mapping[TopicPartition, PartitionLag]]
) -> list[str]:
    """The groups that a second look says more about: they rebalance, or are behind.

    Those in ZooKeeper rebalance without a state that says so.
    """
    return [
        name
        for name, group in groups.items()
        if any(lag.records for lag in lags.get(name, {}).values())
        or (group.members and (group.state != "Stable" or group.protocol_type == IN_ZOOKEEPER))
    ]


async def described(admin: Admin, seen: Gathered, names: Collection[str]) -> dict[str, GroupDescription]:
    from ottla_client.admin import PartialError, is_unknown_group

    if not names:
        return {}
    try:
        return await admin.describe_groups(names)
    except PartialError as error:
        # Groups that are gone meanwhile need no check.
        failed = [why for why in error.errors.values() if not is_unknown_group(why)]
        if failed:
            seen.unchecked.append(
                f"{plural(len(failed), 'group')} couldn't be described: {one_line(failed[0])}"
            )
        return error.results
    except ClientError as error:
        seen.unchecked.append(f"groups couldn't be described: {one_line(error)}")
        return {}


async def lags_of(
    admin: Admin, seen: Gathered, groups: Mapping[str, GroupDescription]
) -> dict[str, Mapping[TopicPartition, PartitionLag]]:
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str, group: GroupDescription) -> Mapping[TopicPartition, PartitionLag]:
        async with free:
            return await attempt(
                seen, f"lag of group {shown_name(name)}", lag_of(admin, name, kept(group)), {}
            )

    found = await asyncio.gather(*(one(name, group) for name, group in groups.items()))
    return dict(zip(groups, found, strict=True))
