"""Knows which groups have consumers of another generation: in ZooKeeper, or at the coordinator of 2012.

The group coordinator asks before a group's first member joins, and refuses it if other consumers read in the group:
neither would know of the other, and both would read every partition. Decision 23.

The names below ``/consumers`` and ``/ottla/coordinated`` are watched, so a group without nodes costs nothing. Of one
that has a node below ``/consumers``, ``ids`` is read when its first member comes, and watched from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.store.api import Store, StoreError, StoreEvent, Watch, children_of
from ottla_broker.store.keys import ConsumerIdsNode, CoordinatedGroupNode
from ottla_broker.store.rereading import Rereading
from ottla_broker.tasks import Tasks, unhurried

_log = get_logger()

Answered: TypeAlias = Callable[[str | None], None]
"""Gets what holds a group, for a message; None if nothing does."""

COORDINATED_TYPE: Final = "coordinated"
ZOOKEEPER_TYPE: Final = "zookeeper"
"""The protocol types by which ListGroups and DescribeGroups show such groups as classic ones."""
COORDINATED: Final = "consumers that registered with the coordinator of 2012"
MOST_WATCHED: Final = 1_000
"""Groups whose ids are watched. Beyond that, those that were asked about first are forgotten."""
_LOOK_SECONDS: Final = 5.0
"""How long a member's first join waits for ZooKeeper."""


class _Names:
    """A node's children. Watched, and read again after each change."""

    def __init__(self, store: Store, clock: Clock, path: str, appeared: Callable[[set[str]], None]) -> None:
        self.now: frozenset[str] = frozenset()
        self._store = store
        self._path = path
        self._appeared = appeared
        self._rereading = Rereading(store, clock, self._read, "names of groups can't be read now", path=path)

    async def start(self) -> None:
        """Read the names, and follow them. Raises StoreError."""
        await self._read()
        self._rereading.start(self._path)

    async def close(self) -> None:
        await self._rereading.close()

    async def _read(self) -> None:
        before, self.now = self.now, frozenset(await children_of(self._store, self._path))
        self._appeared(set(self.now - before))


@dataclass(eq=False, slots=True)
class _Ids:
    watch: Watch
    members: int | None = None
    """None: not known."""
    waiting: list[Answered] = field(default_factory=list)
    looking: bool = False
    changed: bool = False
    """Changed while they were read."""
    reported: bool = False


class OldConsumers:
    """Owned by the loop thread. :meth:`start` before groups are served, and :meth:`close` at the end."""

    def __init__(self, store: Store, clock: Clock, members_here: Callable[[str], str | None]) -> None:
        """``members_here``: the members of a group on this broker, for the log."""
        self.store = store
        self.clock = clock
        self._members_here = members_here
        self._in_zookeeper = _Names(store, clock, ConsumerIdsNode.PARENT, self._appeared_in_zookeeper)
        self._coordinated = _Names(store, clock, CoordinatedGroupNode.PARENT, self._appeared_at_coordinator)
        self._ids: dict[str, _Ids] = {}
        self._tasks = Tasks()
        self._closed = False

    async def start(self) -> None:
        """Read the names, and follow them. Raises StoreError."""
        for names in (self._in_zookeeper, self._coordinated):
            await names.start()

    @property
    def in_zookeeper(self) -> frozenset[str]:
        """The groups with a node below ``/consumers``, which may have no consumers."""
        return self._in_zookeeper.now

    @property
    def coordinated(self) -> frozenset[str]:
        """The groups of the coordinator of 2012, whichever broker that is."""
        return self._coordinated.now

    async def close(self) -> None:
        """Answer those who wait."""
        self._closed = True
        for names in (self._in_zookeeper, self._coordinated):
            await names.close()
        await self._tasks.close()
        ids, self._ids = self._ids, {}
        for each in ids.values():
            each.watch.cancel()
            for answered in each.waiting:
                answered(None)

    def ask(self, group_id: str, answered: Answered) -> None:
        """Call ``answered`` once: at once if the answer is known, else when ZooKeeper has answered.

        If it doesn't, the group counts as free: groups here work without ZooKeeper.
        """
        if group_id in self._coordinated.now:
            answered(COORDINATED)
            return
        if group_id not in self._in_zookeeper.now or self._closed:
            answered(None)
            return
        ids = self._ids.pop(group_id, None) or self._watch(group_id)
        # The last that was asked about is forgotten last.
        self._ids[group_id] = ids
        if ids.members is None:
            ids.waiting.append(answered)
            self._look(group_id, ids)
        else:
            answered(_holder(ids.members))

    def _watch(self, group_id: str) -> _Ids:
        while len(self._ids) >= MOST_WATCHED:
            oldest = next((name for name, ids in self._ids.items() if not ids.looking), None)
            if oldest is None:
                break
            self._ids.pop(oldest).watch.cancel()
        return _Ids(self.store.watch(ConsumerIdsNode.path(group_id), partial(self._ids_changed, group_id)))

    def _ids_changed(self, group_id: str, _: StoreEvent) -> None:
        ids = self._ids.get(group_id)
        if ids is not None:
            ids.members = None
            self._look(group_id, ids)

    def _look(self, group_id: str, ids: _Ids) -> None:
        ids.changed = True
        if not ids.looking:
            ids.looking = True
            self._tasks.start(self._read(group_id, ids))

    async def _read(self, group_id: str, ids: _Ids) -> None:
        try:
            while ids.changed:
                ids.changed = False
                async with self.clock.timeout(_LOOK_SECONDS):
                    members = len(await children_of(self.store, ConsumerIdsNode.path(group_id)))
                self._known(group_id, ids, members)
        except (StoreError, TimeoutError) as error:
            _log.warning(
                "a group is taken to have no ZooKeeper consumers: ZooKeeper can't say now",
                group=group_id,
                reason=str(error) or f"no answer within {_LOOK_SECONDS:g} s",
            )
            self._known(group_id, ids, None)
        finally:
            ids.looking = False

    def _known(self, group_id: str, ids: _Ids, members: int | None) -> None:
        ids.members = None if ids.changed else members
        holder = _holder(members or 0)
        waiting, ids.waiting = ids.waiting, []
        for answered in waiting:
            answered(holder)
        if holder is None:
            ids.reported = False
        elif not ids.reported:
            ids.reported = self._report(group_id, holder)

    # Consumers of another generation that come to a group with members here: refused where they ask, logged if not.

    def _appeared_in_zookeeper(self, names: Iterable[str]) -> None:
        self._tasks.start(self._look_at_shared(names))

    async def _look_at_shared(self, names: Iterable[str]) -> None:
        async for name in unhurried(names):
            if self._members_here(name) is not None:
                self.ask(name, lambda _: None)

    def _appeared_at_coordinator(self, names: Iterable[str]) -> None:
        for name in names:
            self._report(name, COORDINATED)

    def _report(self, group_id: str, holder: str | None) -> bool:
        here = self._members_here(group_id)
        if here is None:
            return False
        _log.error(
            "a group is used by two generations of consumers at once: both read all of its partitions; close one",
            group=group_id,
            here=here,
            also=holder,
        )
        return True


def _holder(members: int) -> str | None:
    return f"{members} consumers that coordinate in ZooKeeper" if members else None


def members_of(count: int, protocol: str) -> str:
    """Members that coordinate through the brokers, for a message."""
    return f"{count} members of the {protocol} protocol, which coordinate through the brokers"
