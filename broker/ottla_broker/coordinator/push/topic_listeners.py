"""The topic listeners of the 2012 coordinator: which groups need a rebalance when topics come or grow.

"TopicChangeListener" watches ``/brokers/topics``, "TopicPartitionChangeListener" the node of each topic that a group
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla_broker.coordinator.push.nodes import GroupNodes
from ottla_broker.store.api import EventKind, StoreEvent, Watch
from ottla_broker.store.keys import TopicNode
from ottla_broker.store.rereading import Rereading
from ottla_broker.tasks import Tasks

if TYPE_CHECKING:
    from ottla_broker.clock import Clock
    from ottla_broker.store.api import Store


class TopicListeners:
    """Owned by the loop thread.

    Attributes:
        wildcard_groups: groups with patterns; new topics matter to them.
    """

    def __init__(
        self, store: Store, clock: Clock, nodes: GroupNodes, changed: Callable[[Mapping[str, bool]], None]
    ) -> None:
        """``changed`` takes topics, and whether they are new."""
        self._store = store
        self._nodes = nodes
        self._changed = changed
        self.wildcard_groups: set[str] = set()
        self._groups: dict[str, set[str]] = {}
        self._topics_of: dict[str, frozenset[str]] = {}
        self._watches: dict[str, Watch] = {}
        self._known: frozenset[str] | None = None
        self._top: Watch | None = None
        self._rereading = Rereading(clock, self._find_new, "topics can't be listed now")
        self._tasks = Tasks()

    def start(self) -> None:
        self._top = self._store.watch(TopicNode.PARENT, self._topics_changed)
        self._rereading.wake()
        self._tasks.start(self._rereading.run())

    async def close(self) -> None:
        await self._tasks.close()
        if self._top is not None:
            self._top.cancel()
            self._top = None
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        self._groups.clear()
        self._topics_of.clear()
        self.wildcard_groups.clear()

    def follow(self, group_id: str, topics: Collection[str]) -> None:
        """Watch the topics of a group, and no longer those that it had before."""
        wanted = frozenset(topics)
        before = self._topics_of.get(group_id, frozenset())
        if wanted == before:
            return
        if wanted:
            self._topics_of[group_id] = wanted
        else:
            self._topics_of.pop(group_id, None)
        for topic in before - wanted:
            groups = self._groups[topic]
            groups.discard(group_id)
            if not groups:
                del self._groups[topic]
                self._watches.pop(topic).cancel()
        for topic in wanted - before:
            if topic not in self._groups:
                self._groups[topic] = set()
                self._watches[topic] = self._store.watch(
                    TopicNode.path(topic), partial(self._topic_changed, topic)
                )
            self._groups[topic].add(group_id)

    def _topic_changed(self, topic: str, event: StoreEvent) -> None:
        if event.kind is not EventKind.CHILDREN:
            self._changed({topic: False})

    def _topics_changed(self, event: StoreEvent) -> None:
        if event.kind is EventKind.CHILDREN:
            self._rereading.wake()

    async def _find_new(self) -> None:
        topics = frozenset(await self._nodes.topics())
        new = topics - self._known if self._known is not None else frozenset()
        self._known = topics
        if new and self.wildcard_groups:
            self._changed(dict.fromkeys(new, True))
