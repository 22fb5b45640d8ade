"""The cluster's access control lists: kept in the store, compiled in memory, changed by any broker.

A change writes the pattern's node, if it still is as it was read, and then a notification; every broker that sees one
reads the node again. Kafka: ``AclAuthorizer``, ``ZkNodeChangeNotificationListener``.

A node that can't be read denies everything on its resources to everyone but super users, until it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.controller.acl_filters import FoundEntries, ManyFilters
from ottla_broker.controller.api import Outcome
from ottla_broker.controller.bootstrap import ensure_paths
from ottla_broker.events import get_logger
from ottla_broker.store.acl_nodes import CONCRETE, PATHS, AclChangeNode, AclNode
from ottla_broker.store.api import BadVersionError, NodeExistsError, NoNodeError, Store, StoreError
from ottla_broker.store.keys import BadNodeError
from ottla_broker.store.notifications import NotificationListener, Notifications
from ottla_broker.tasks import YieldEvery, unhurried
from ottla_protocol.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclRules,
    ResourcePattern,
)
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

Node = tuple[bytes, int] | None
"""A node's data and version."""

_TRIES: Final = 11
_RETRY_SECONDS: Final = 0.1
_SLICE: Final = 256
"""How many patterns to compile before the event loop gets its turn."""
_COMPARED: Final = 4_000
"""How often a pattern may be compared with a filter before the event loop gets its turn, and what changes cost."""
_CHANGED: Final = 400
_OF_ENTRY: Final = 20
_LONGEST: Final = 1 << 19
"""The most bytes of a pattern's node; ZooKeeper takes 1 MiB."""

_UNREADABLE: Final = frozenset({AclEntry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, AclPermission.DENY)})


class Acls:
    """Owned by the loop thread. :meth:`load` first; :meth:`start` follows changes of other brokers.

    Attributes:
        rules: the rules in force.
        on_change: called when they have changed.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.rules = AclRules()
        self.on_change: list[Callable[[], None]] = []
        self._lock = asyncio.Lock()
        self._notifications = [
            Notifications(store, parent, AclChangeNode.NAME, self._read_change)
            for parent in AclChangeNode.PARENTS.values()
        ]
        self._listener = NotificationListener(
            store,
            clock,
            self._notifications,
            self.load,
            self._lock,
            "changes of ACLs can't be read, trying again",
        )

    async def load(self) -> None:
        """Read all rules. Raises StoreError."""
        await ensure_paths(self._store, PATHS)
        for each in self._notifications:
            await each.skip()
        patterns: list[ResourcePattern] = []
        for kind in AclNode.PARENTS:
            for resource in CONCRETE:
                names = await self._store.children(AclNode.parent(kind, resource))
                patterns += [ResourcePattern(resource, name, kind) for name in names]
        nodes = await self._store.get_many([AclNode.path(pattern) for pattern in patterns])
        rules = AclRules()
        async for pattern, node in unhurried(zip(patterns, nodes, strict=True), _SLICE):
            if node is not None:
                rules.put(pattern, _decode(pattern, node[0]))
        self.rules = rules
        self._changed()

    def start(self) -> None:
        """Follow the changes that other brokers make."""
        self._listener.start()

    async def close(self) -> None:
        await self._listener.close()

    async def create(self, bindings: Sequence[AclBinding]) -> list[Outcome]:
        """Add rules; those of one pattern together. Outcomes come in the order of the rules."""
        outcomes = [Outcome() for _ in bindings]
        by_pattern: dict[ResourcePattern, list[int]] = {}
        for index, (pattern, _) in enumerate(bindings):
            if AclNode.can_have(pattern):
                by_pattern.setdefault(pattern, []).append(index)
            else:
                outcomes[index] = Outcome(ErrorCode.INVALID_REQUEST, "Failed to create ACL")
        async with self._lock:
            for pattern, indexes in by_pattern.items():
                added = frozenset(bindings[index].entry for index in indexes)
                try:
                    await self._change(pattern, lambda entries, added=added: entries | added)  # type: ignore[misc]
                except (KafkaError, StoreError) as error:
                    failed = _failure(error)
                    for index in indexes:
                        outcomes[index] = failed
        return outcomes

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[tuple[AclBinding, Outcome]]]:
        """Remove the rules that each filter finds; one that several find is the first's."""
        found: list[list[tuple[AclBinding, Outcome]]] = [[] for _ in filters]
        async with self._lock:
            # A rule that another broker has just added may not be known here: look for those that a filter names.
            patterns = dict.fromkeys(pattern for pattern, _ in self.rules)
            patterns.update(dict.fromkeys(pattern for each in filters for pattern in each.patterns))
            turn = YieldEvery(_COMPARED)
            many = ManyFilters(filters)
            for pattern in patterns:
                wanted = many.finding(pattern)
                await turn.worked(1 + many.searched)
                if wanted is not None and AclNode.can_have(pattern):
                    await turn.worked(_CHANGED + _OF_ENTRY * len(self.rules.entries(pattern)))
                    await self._delete_from(pattern, wanted, found)
        return found

    async def _delete_from(
        self,
        pattern: ResourcePattern,
        wanted: FoundEntries,
        found: list[list[tuple[AclBinding, Outcome]]],
    ) -> None:
        removed: dict[AclEntry, int] = {}

        def remaining(entries: frozenset[AclEntry]) -> frozenset[AclEntry]:
            removed.clear()
            for entry in entries:
                number = wanted.filter_of(entry)
                if number is not None:
                    removed[entry] = number
            return entries - removed.keys()

        outcome = Outcome()
        try:
            await self._change(pattern, remaining)
        except (KafkaError, StoreError) as error:
            outcome = _failure(error)
        for entry, index in removed.items():
            found[index].append((AclBinding(pattern, entry), outcome))

    async def _change(
        self, pattern: ResourcePattern, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
    ) -> None:
        """Change a pattern's entries in the store and here. Raises KafkaError, StoreError."""
        path = AclNode.path(pattern)
        for _ in range(_TRIES):
            node = await self._read(path)
            try:
                entries = frozenset() if node is None else AclNode.decode(path, node[0])
            except BadNodeError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{error}; remove the node") from error
            after = change(entries)
            if after == entries:
                self._put(pattern, entries)
                return
            data = AclNode.encode(after)
            if len(data) > _LONGEST:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, f"{pattern} has too many rules: use groups of resources"
                )
            try:
                if node is None:
                    await self._store.create(path, data)
                elif after:
                    await self._store.set(path, data, node[1])
                else:
                    await self._store.delete(path, node[1])
            except (NodeExistsError, NoNodeError, BadVersionError):
                # Another broker was quicker.
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            self._put(pattern, after)
            _log.info("ACLs changed", resource=str(pattern), rules=len(after))
            if self._listener.is_running:
                await self._store.create(
                    AclChangeNode.prefix(pattern.pattern), AclChangeNode.encode(pattern), sequence=True
                )
            return
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Failed to update ACLs for {pattern} after trying a maximum of {_TRIES - 1} times",
        )

    def _put(self, pattern: ResourcePattern, entries: frozenset[AclEntry]) -> None:
        if entries != self.rules.entries(pattern):
            self.rules.put(pattern, entries)
            self._changed()

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()

    async def _read(self, path: str) -> Node:
        try:
            return await self._store.get(path)
        except NoNodeError:
            return None

    async def _read_change(self, path: str, data: bytes) -> None:
        try:
            pattern = AclChangeNode.decode(path, data)
        except BadNodeError as error:
            _log.warning("a notification of changed ACLs was ignored", reason=str(error))
            return
        if AclNode.can_have(pattern):
            changed = await self._read(AclNode.path(pattern))
            self._put(pattern, frozenset() if changed is None else _decode(pattern, changed[0]))


def _decode(pattern: ResourcePattern, data: bytes) -> frozenset[AclEntry]:
    try:
        return AclNode.decode(AclNode.path(pattern), data)
    except BadNodeError as error:
        _log.error(
            "ACLs can't be read: only super users may use the resource",
            resource=str(pattern),
            reason=str(error),
        )
        return _UNREADABLE


def _failure(error: KafkaError | StoreError) -> Outcome:
    if isinstance(error, KafkaError):
        return Outcome(error.code, error.message)
    return Outcome(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
