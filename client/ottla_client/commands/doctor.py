"""``ottla cluster doctor``: everything that somebody who knows Kafka would check, and what to do about it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ..errors import ClientError
from ..types import OffsetSpec, TopicPartition
from . import descriptors
from .admin_common import admin_of, plural
from .cluster_state import look
from .console import Console, one_line, options
from .doctor_checks import (
    BROKER_KEYS,
    DEAD_LETTERS,
    NOTE,
    TOPIC_KEYS,
    Finding,
    Gathered,
    findings_of,
)
from .findings import counts_of, show_findings
from .timefmt import now_ms

if TYPE_CHECKING:
    from ..admin import Admin, ConfigResource, GroupDescription, PartitionLag
    from ..types import TopicMetadata
    from .certificate_dates import Validity

T = TypeVar("T")

_AT_ONCE: Final = 8
_HOUR_MS: Final = 3_600_000
_HANDSHAKE_SECONDS: Final = 5.0


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
@options
async def doctor(console: Console, interval: float, only_groups: tuple[str, ...]) -> None:
    """Check brokers, partitions, disks, settings, groups, transactions, clocks and certificates, and say what to do.

    It finds partitions that are offline, below min.insync.replicas or under-replicated; leaders in the wrong
    places; disks that fail or fill up; brokers that run out of file descriptors; settings that contradict each
    other or differ between brokers; groups that rebalance in circles, are stuck on a record, or have lost records;
    transactions that hang; dead letters that grow; clocks that are wrong; certificates that expire; and in-sync
    replicas that come and go. It changes nothing, and works with Apache Kafka too.

    The exit code is 1 if there is a critical finding or a warning, otherwise 0.

    \b
    ottla cluster doctor
    ottla cluster doctor -b kafka-1:9092 --json
    ottla cluster doctor --interval 30 --group billing
    """
    async with admin_of(console) as admin:
        seen = await gather(admin, interval, only_groups)
    found = findings_of(seen)
    bad = [each for each in found if each.severity != NOTE]
    if console.as_json:
        console.emit(
            {
                "healthy": not bad,
                "findings": [each._asdict() for each in found],
                "unchecked": seen.unchecked,
                "brokers": len(seen.state.description.nodes),
                "partitions": seen.state.partitions,
                "groups": len(seen.groups),
            }
        )
    else:
        _show(console, seen, found)
    if bad:
        sys.exit(1)


def _show(console: Console, seen: Gathered, found: list[Finding]) -> None:
    show_findings(console, found, seen.unchecked)
    looked = ", ".join(
        (
            plural(len(seen.state.description.nodes), "broker"),
            plural(seen.state.partitions, "partition"),
            plural(len(seen.groups), "group"),
        )
    )
    nothing = "nothing is wrong in what could be checked" if seen.unchecked else "nothing is wrong"
    console.print(f"{counts_of(found) or nothing} ({looked})")


async def gather(admin: Admin, interval: float, only_groups: Collection[str] = ()) -> Gathered:
    """Find out everything that can be. What a user may not see, or a broker doesn't know, is noted as unchecked."""
    state = await look(admin)
    seen = Gathered(state, now_ms(), unchecked=list(state.remarks))
    names = list(state.topics)
    seen.topic_configs = await attempt(seen, "settings of topics", topic_configs(admin, names), {})
    running = [node.id for node in state.description.nodes]
    seen.broker_configs = await attempt(seen, "settings of brokers", broker_configs(admin, running), {})
    await gather_descriptors(seen)
    leaders = led(state.topics)
    seen.latest = await attempt(seen, "timestamps", latest(admin, leaders), {})
    seen.hanging = await attempt(seen, "hanging transactions", admin.find_hanging_transactions(leaders), [])
    letters = [partition for partition in leaders if DEAD_LETTERS.search(partition.topic)]
    seen.dead_letters = await attempt(seen, "dead letters", last_hour(admin, letters, seen.now_ms), {})
    seen.certificates = await certificates_of(seen)
    await _gather_groups(admin, seen, interval, only_groups)
    again = admin.list_topics(include_internal=True)
    seen.later_topics = await attempt(seen, "in-sync replicas", again, {})
    return seen


async def attempt(seen: Gathered, what: str, work: Awaitable[T], otherwise: T) -> T:
    """The result of a check; if it fails, that is noted once, and the others go on."""
    try:
        return await work
    except ClientError as error:
        failed = f"{what} couldn't be checked: "
        if not any(each.startswith(failed) for each in seen.unchecked):
            seen.unchecked.append(failed + one_line(error))
        return otherwise


def led(topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
    """The partitions that can be asked."""
    return [
        TopicPartition(name, number)
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
        if partition.leader is not None
    ]


async def topic_configs(admin: Admin, names: Collection[str]) -> dict[str, dict[str, str]]:
    from ..admin import ConfigResource

    return await _configs(admin, [ConfigResource.topic(name) for name in names], TOPIC_KEYS)


async def broker_configs(admin: Admin, numbers: Collection[int]) -> dict[str, dict[str, str]]:
    from ..admin import ConfigResource
    from .security_checks import LISTENER_KEYS

    keys = (*BROKER_KEYS, *LISTENER_KEYS, descriptors.LISTENER)
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


async def gather_descriptors(seen: Gathered, *, is_page: bool = False) -> None:
    """How many file descriptors brokers have open, where they serve metrics.

    A page has no room for a note that stays, of brokers that don't serve any.
    """
    listeners = {
        int(broker): its[descriptors.LISTENER]
        for broker, its in seen.broker_configs.items()
        if descriptors.LISTENER in its
    }
    description = seen.state.description
    asked = await descriptors.ask(description.nodes, listeners, description.cluster_id)
    seen.descriptors = asked.found
    if is_page:
        return
    strangers = [int(each) for each in seen.broker_configs if int(each) not in listeners]
    why = descriptors.why_not(asked.without, strangers)
    seen.unchecked += asked.remarks if why is None else [*asked.remarks, why]


async def certificates_of(seen: Gathered) -> dict[str, Validity]:
    """When the certificates of listeners with TLS are valid, by handshakes with those that answer."""
    from .security_checks import listeners_of

    settings = seen.broker_configs
    listeners = [each for broker, its in settings.items() for each in listeners_of(broker, its) if each.tls]
    if not listeners:
        return {}
    from .security_probe import Prober

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


async def latest(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    listed = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.MAX_TIMESTAMP))
    return {partition: found.timestamp for partition, found in listed.items() if found.timestamp is not None}


async def last_hour(admin: Admin, partitions: Collection[TopicPartition], now: int) -> dict[str, int]:
    """How many records these topics got in the last hour."""
    if not partitions:
        return {}
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    since = await admin.list_offsets(dict.fromkeys(partitions, now - _HOUR_MS))
    counts: dict[str, int] = {}
    for partition, end in ends.items():
        first = since[partition].offset
        counts[partition.topic] = counts.get(partition.topic, 0) + (end.offset - first if first >= 0 else 0)
    return counts


async def _gather_groups(admin: Admin, seen: Gathered, interval: float, only: Collection[str]) -> None:
    listed = await attempt(seen, "groups", admin.list_groups(), {})
    names = [name for name in listed if not only or name in only]
    seen.groups = await described(admin, seen, names)
    seen.lags = await lags_of(admin, seen, seen.groups)
    again = watched(seen.groups, seen.lags)
    if again and interval > 0:
        await asyncio.sleep(interval)
        seen.later_groups = await described(admin, seen, again)
        seen.later = await lags_of(admin, seen, again)


def watched(
    groups: Mapping[str, GroupDescription], lags: Mapping[str, Mapping[TopicPartition, PartitionLag]]
) -> list[str]:
    """The groups that a second look says more about: they have members, and rebalance or are behind."""
    return [
        name
        for name, group in groups.items()
        if group.members
        and (group.state != "Stable" or any(lag.records for lag in lags.get(name, {}).values()))
    ]


async def described(admin: Admin, seen: Gathered, names: Collection[str]) -> dict[str, GroupDescription]:
    from ..admin import PartialError

    if not names:
        return {}
    try:
        return await admin.describe_groups(names)
    except PartialError as error:
        # Groups that are gone meanwhile, or that this user may not see.
        return error.results
    except ClientError as error:
        seen.unchecked.append(f"groups couldn't be described: {one_line(error)}")
        return {}


async def lags_of(
    admin: Admin, seen: Gathered, names: Collection[str]
) -> dict[str, dict[TopicPartition, PartitionLag]]:
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> dict[TopicPartition, Any]:
        async with free:
            return await attempt(seen, f"lag of group {name}", admin.group_lag(name), {})

    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
