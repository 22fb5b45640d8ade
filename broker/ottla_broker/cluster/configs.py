"""The settings of topics, groups and brokers in ZooKeeper, kept up to date.

A change writes the entity's node and then a notification, ``/config/changes/config_change_N``; every broker then reads
the node again. Groups and client metrics subscriptions have notifications of their own (:class:`.ConfigChangeNode`).
Kafka: ``ZkConfigManager``, ``DynamicConfigManager``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.controller.cluster.persistence import ClusterStore
from ottla_broker.controller.topic_store import usable
from ottla_broker.events import get_logger
from ottla_broker.metadata.scram_credentials import USERS, ScramCredentials
from ottla_broker.store.api import NodeExistsError, NoNodeError
from ottla_broker.store.keys import BadNodeError, ConfigChangeNode, ConfigNode
from ottla_broker.store.notifications import Notifications
from ottla_broker.store.rereading import Rereading

_log = get_logger()

Settings = Mapping[str, str]
Changed = Callable[[str, str, Settings], Awaitable[None]]
"""Called with one of :data:`_KINDS`, the name of the node, and the settings."""
_KINDS: Final = (ConfigNode.TOPICS, ConfigNode.BROKERS, ConfigNode.GROUPS, ConfigNode.CLIENT_METRICS)
Decrypt = Callable[[str, str, Settings], Awaitable[Settings]]
Check = Callable[[str, str, str], None]
"""Called with a kind, a setting's name and its value; raises ValueError if it can't come into force."""


class ClusterConfigs:
    """Owned by the loop thread. ``changed`` is called for every change, in order.

    ``on_others`` is called with the kind and name of any other entity that has changed, a user for example.

    ``decrypt`` returns the settings of an entity of a kind and name with readable passwords.

    Only settings that pass ``check`` come into force: a broker of any version may have written them, and Kafka's have
    settings that Ottla doesn't have, or can't change at runtime.

    Attributes:
        credentials: the users' credentials for SCRAM.
    """

    def __init__(self, store: ClusterStore, changed: Changed, check: Check, clock: Clock) -> None:
        self._store = store
        self._changed = changed
        self._check = check
        self.on_others: Callable[[str, str], Awaitable[None]] | None = None
        self.decrypt: Decrypt | None = None
        self.credentials = ScramCredentials(store, notifies=True)
        self._topics: dict[str, Settings] = {}
        self._notifications = [
            Notifications(store, parent, ConfigChangeNode.NAME, self._read_change)
            for parent in ConfigChangeNode.PARENTS
        ]
        self._rereading = Rereading(store, clock, self._read_changes, "changes of configs can't be read")

    async def load_topics(self) -> None:
        """Read the settings of all topics. Raises StoreError."""
        # Later notifications are about settings that may not be read here.
        for each in self._notifications:
            await each.skip()
        await self.credentials.load()
        names = await self._store.children("/config/topics")
        await self._read_topics(names)

    async def load(self, topics: Iterable[str]) -> None:
        """Read the settings of topics that aren't loaded. Raises StoreError."""
        missing = [name for name in topics if name not in self._topics]
        if missing:
            await self._read_topics(missing)

    async def named(self, kind: str) -> dict[str, Settings]:
        """The settings of all groups or client metrics subscriptions, by name. Raises StoreError."""
        return {
            ConfigNode.group_of(name): await self.in_force(kind, name)
            for name in await self._store.children(f"/config/{kind}")
        }

    async def _read_topics(self, names: Iterable[str]) -> None:
        wanted = list(names)
        paths = [ConfigNode.path(ConfigNode.TOPICS, name) for name in wanted]
        for name, path, node in zip(wanted, paths, await self._store.get_many(paths), strict=True):
            settings = {} if node is None else _decode(path, node[0])
            self._topics[name] = usable(path, settings, partial(self._check, ConfigNode.TOPICS))

    @property
    def has_topics(self) -> bool:
        return bool(self._topics)

    def topic(self, name: str) -> Settings:
        """A topic's settings; none for an unknown topic."""
        return self._topics.get(name, {})

    def forget(self, topic: str) -> None:
        """Drop a deleted topic, so that the settings of a new one of that name are read."""
        self._topics.pop(topic, None)

    async def read(self, kind: str, name: str) -> dict[str, str]:
        """An entity's settings as written. Raises StoreError."""
        path = ConfigNode.path(kind, name)
        try:
            data, _ = await self._store.get(path)
        except NoNodeError:
            return {}
        return _decode(path, data)

    async def in_force(self, kind: str, name: str) -> dict[str, str]:
        """An entity's settings that can come into force. Raises StoreError."""
        settings: Settings = await self.read(kind, name)
        if self.decrypt is not None:
            settings = await self.decrypt(kind, name, settings)
        return usable(ConfigNode.path(kind, name), settings, partial(self._check, kind))

    async def write(self, kind: str, name: str, settings: Settings) -> None:
        """Write an entity's settings and notify all brokers. Raises StoreError."""
        path, data = ConfigNode.path(kind, name), ConfigNode.encode(settings)
        while True:
            try:
                if await self._store.exists(path):
                    await self._store.set(path, data)
                else:
                    await self._store.create(path, data, parents=True)
                break
            except (NoNodeError, NodeExistsError):
                continue
        await self._store.create(
            ConfigChangeNode.prefix(kind), ConfigChangeNode.encode(kind, name), sequence=True
        )

    def start(self) -> None:
        self._rereading.start(*(each.parent for each in self._notifications))

    async def close(self) -> None:
        await self._rereading.close()

    async def _read_changes(self) -> None:
        for each in self._notifications:
            await each.read()

    async def _read_change(self, path: str, data: bytes) -> None:
        try:
            await self._apply(path, data)
        except ValueError as error:
            # The notification can't be read, or its entity can't be part of a path.
            _log.warning("a notification of changed configs was ignored", reason=str(error))

    async def _apply(self, path: str, data: bytes) -> None:
        kind, _, name = ConfigChangeNode.decode(path, data).partition("/")
        if kind == USERS and "/" not in name:
            await self.credentials.reload(name)
        if kind not in _KINDS:
            if self.on_others is not None:
                await self.on_others(kind, name)
            return
        settings = await self.in_force(kind, name)
        if kind == ConfigNode.TOPICS:
            self._topics[name] = settings
        await self._changed(kind, name, settings)


def _decode(path: str, data: bytes) -> dict[str, str]:
    try:
        return ConfigNode.decode(path, data)
    except BadNodeError as error:
        _log.error("settings can't be read and are ignored", reason=str(error))
        return {}
