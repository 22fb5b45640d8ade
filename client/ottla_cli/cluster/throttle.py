"""Throttles of moves (KIP-73): a rate for each broker, and the throttled replicas of each topic."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla_client.errors import ClientError

if TYPE_CHECKING:
    from ottla_client.admin import Admin, AlterConfig, ConfigEntry, ConfigResource

    from .reassignment_plan import Move

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"
_MARKS: Final = (_LEADERS, _FOLLOWERS)
_PATIENCE: Final = 5.0
"""Seconds that a broker gets to report its configs: one that is frozen must not hold up a command."""


async def throttle(admin: Admin, moves: Iterable[Move], rate: int) -> None:
    """Limit moves to ``rate`` bytes per second from and to each broker; replicas in sync aren't throttled.

    Current replicas are throttled as leaders, new ones as followers. Brokers that aren't running are left out.
    """
    from ottla_client.admin import AlterConfig, ConfigResource

    sources: dict[str, list[str]] = {}
    targets: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for move in moves:
        if not move.adding:
            continue
        topic, partition = move.partition
        sources.setdefault(topic, []).extend(f"{partition}:{broker}" for broker in move.old)
        targets.setdefault(topic, []).extend(f"{partition}:{broker}" for broker in sorted(move.adding))
        brokers |= {*move.old, *move.adding}
    there = {node.id for node in (await admin.describe_cluster()).nodes}
    changes: dict[ConfigResource, list[AlterConfig]] = {}
    for broker in sorted(brokers & there):
        changes[ConfigResource.broker(broker)] = [AlterConfig(name, rate) for name in _RATES]
    for topic in sources:
        changes[ConfigResource.topic(topic)] = [
            AlterConfig(_LEADERS, ",".join(sources[topic])),
            AlterConfig(_FOLLOWERS, ",".join(targets[topic])),
        ]
    if changes:
        await admin.alter_configs(changes)


async def lift(admin: Admin, topics: Collection[str]) -> tuple[bool, ClientError | None]:
    """Remove the throttles of these topics and the rates of all brokers.

    Returns whether there were any, and the first error. A broker that doesn't answer keeps its rates; the others are
    asked at the same time, so it costs `_PATIENCE` once. Does nothing while anything is moving, because all moves share
    the rates. Raises ClientError if nothing can be done.
    """
    from ottla_client.admin import AlterConfig, AlterOperation, ConfigResource, ConfigSource

    if await admin.list_partition_reassignments():
        return False, None
    brokers = [ConfigResource.broker(node.id) for node in (await admin.describe_cluster()).nodes]
    marked = [ConfigResource.topic(topic) for topic in sorted(topics)]
    answers = await asyncio.gather(_describe(admin, brokers, _RATES), _describe(admin, marked, _MARKS))
    changes: dict[ConfigResource, list[AlterConfig]] = {}
    for found, _ in answers:
        for resource, entries in found.items():
            there = [
                AlterConfig(name, operation=AlterOperation.DELETE)
                for name, entry in entries.items()
                if entry.source in (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER)
            ]
            if there:
                changes[resource] = there
    if changes:
        await admin.alter_configs(changes)
    return bool(changes), next((error for _, error in answers if error is not None), None)


async def _describe(
    admin: Admin, resources: Sequence[ConfigResource], keys: Sequence[str]
) -> tuple[Mapping[ConfigResource, Mapping[str, ConfigEntry]], ClientError | None]:
    """The configs of the resources whose brokers answer in time, and the first error."""
    from ottla_client.admin import PartialError

    try:
        return await admin.describe_configs(resources, keys=keys, timeout=_PATIENCE), None
    except PartialError as error:
        return error.results, next(iter(error.errors.values()))
    except ClientError as error:
        return {}, error


async def lift_if_possible(admin: Admin, topics: Collection[str]) -> str | None:
    """As `lift`, but a failure is returned as a line to print, so that it doesn't hide the command's result."""
    try:
        lifted, error = await lift(admin, topics)
    except ClientError as failure:
        lifted, error = False, failure
    if error is not None:
        what = "some throttles removed; others" if lifted else "throttles"
        return f"{what} may be left over; remove them with ottla configs: {error}"
    return "throttles removed" if lifted else None
