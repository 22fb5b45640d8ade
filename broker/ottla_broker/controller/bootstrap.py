"""Prepares the store when a broker starts: paths, cluster id, controller and registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ottla_broker.config import Endpoint
from ottla_broker.controller.features import SUPPORTED
from ottla_broker.events import get_logger
from ottla_broker.log.manager import LogManager
from ottla_broker.metadata.cache import BrokerInfo, MetadataCache
from ottla_broker.store.api import (
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    Store,
    StoreFailedError,
)
from ottla_broker.store.keys import (
    BrokerIdNode,
    BrokerRegistration,
    ClusterIdNode,
    ControllerEpochNode,
    ControllerNode,
)

_log = get_logger()

# Further stray logs are only counted.
_NAMED_STRAYS = 10


async def ensure_paths(store: Store, paths: Iterable[str]) -> None:
    """Create nodes that must exist, and their parents. Other brokers may be doing the same."""
    wanted: dict[str, None] = {}
    for path in paths:
        steps = path.split("/")
        wanted.update(dict.fromkeys("/".join(steps[:end]) for end in range(2, len(steps) + 1)))
    while missing := [Create(path) for path in wanted if not await store.exists(path)]:
        try:
            await store.transaction(missing)
        except NodeExistsError:
            continue


async def settle_cluster_id(store: Store, given: str | None, new_id: Callable[[], str], hint: str) -> str:
    """The cluster's id, which the first broker creates. ``given`` is the data folder's, if it has one.

    Raises StoreError: the data folder belongs to another cluster; ``hint`` says what to do then.
    """
    path = ClusterIdNode.PATH
    while True:
        try:
            data, _ = await store.get(path)
            break
        except NoNodeError:
            try:
                await store.create(path, ClusterIdNode.encode(new_id()), parents=True)
            except NodeExistsError:
                continue  # another broker was quicker
    known = ClusterIdNode.decode(data)
    if given not in (None, known):
        raise StoreFailedError(
            f"the data folder belongs to cluster {given} and its store to cluster {known}; {hint}"
        )
    return known


async def become_controller(store: Store, broker_id: int, now_ms: int) -> int:
    """Become the controller of a standalone broker's store. Returns the new controller epoch."""
    path = ControllerEpochNode.PATH
    epoch = 1
    change: Operation = Create(path, ControllerEpochNode.encode(epoch))
    if await store.exists(path):
        data, version = await store.get(path)
        epoch = ControllerEpochNode.decode(data) + 1
        change = Set(path, ControllerEpochNode.encode(epoch), version)
    node = ControllerNode.encode(broker_id, now_ms)
    await store.transaction([change, Create(ControllerNode.PATH, node, ephemeral=True)])
    return epoch


def registration_of(endpoints: Sequence[Endpoint], rack: str | None, now_ms: int) -> BrokerRegistration:
    return BrokerRegistration(
        endpoints[0].advertised_host,
        endpoints[0].advertised_port,
        [endpoint.advertised for endpoint in endpoints],
        {endpoint.name: endpoint.protocol for endpoint in endpoints},
        rack,
        now_ms,
        SUPPORTED,
    )


async def register_broker(
    store: Store, broker_id: int, rack: str | None, endpoints: Sequence[Endpoint], now_ms: int
) -> BrokerInfo:
    registration = BrokerIdNode.encode(registration_of(endpoints, rack, now_ms))
    await store.create(BrokerIdNode.path(broker_id), registration, ephemeral=True)
    listeners = {e.name: (e.advertised_host, e.advertised_port) for e in endpoints}
    return BrokerInfo(broker_id, *next(iter(listeners.values())), rack, listeners)


def warn_of_strays(logs: LogManager, metadata: MetadataCache) -> None:
    """Log a warning for each log whose partition doesn't exist."""
    strays = 0
    for found in logs.logs():
        topic = metadata.topic(found.topic)
        if topic is None or found.partition not in topic.partitions:
            strays += 1
            if strays <= _NAMED_STRAYS:
                _log.warning(
                    "stray log: its topic doesn't exist, so it is neither served nor deleted",
                    folder=str(found.path),
                    topic=found.topic,
                    partition=found.partition,
                    hint="to take over topics that Apache Kafka left: ottla log adopt",
                )
    if strays > _NAMED_STRAYS:
        _log.warning("more stray logs", count=strays - _NAMED_STRAYS)
