"""Throttles of moves (KIP-73): a rate for each broker, and the throttled replicas of each topic."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from ..errors import ClientError

if TYPE_CHECKING:
    from ..admin import Admin, AlterConfig, ConfigResource
    from .reassignment_plan import Move

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"


async def throttle(admin: Admin, moves: Iterable[Move], rate: int) -> None:
    """Limit moves to ``rate`` bytes per second from and to each broker; replicas in sync aren't throttled.

    Current replicas are throttled as leaders, new ones as followers. Brokers that aren't running are left out.
    """
    from ..admin import AlterConfig, ConfigResource

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


async def lift(admin: Admin, topics: Collection[str]) -> bool:
    """Remove the throttles of these topics and the rates of all brokers. Returns whether there were any.

    Does nothing while anything is moving, because all moves share the rates.
    """
    from ..admin import AlterConfig, AlterOperation, ConfigResource, ConfigSource

    if await admin.list_partition_reassignments():
        return False
    resources = [ConfigResource.broker(node.id) for node in (await admin.describe_cluster()).nodes]
    resources += [ConfigResource.topic(topic) for topic in sorted(topics)]
    found = await admin.describe_configs(resources, keys=[*_RATES, _LEADERS, _FOLLOWERS])
    changes = {
        resource: [
            AlterConfig(name, operation=AlterOperation.DELETE)
            for name, entry in entries.items()
            if entry.source in (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER)
        ]
        for resource, entries in found.items()
    }
    changes = {resource: some for resource, some in changes.items() if some}
    if changes:
        await admin.alter_configs(changes)
    return bool(changes)


async def lift_if_possible(admin: Admin, topics: Collection[str]) -> str | None:
    """As `lift`, but a failure is returned as a line to print, so that it doesn't hide the command's result."""
    try:
        lifted = await lift(admin, topics)
    except ClientError as error:
        return f"throttles may be left over; remove them with ottla configs: {error}"
    return "throttles removed" if lifted else None
