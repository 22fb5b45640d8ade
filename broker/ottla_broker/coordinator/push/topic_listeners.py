"""The topic listeners of the 2012 coordinator: which groups need a rebalance when topics come or grow.

"TopicChangeListener" watches ``/brokers/topics``, "TopicPartitionChangeListener" the node of each topic that exists and
that a group reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from ottla_broker.clock import Clock
from ottla_broker.coordinator.push.nodes import GroupNodes
from ottla_broker.coordinator.push.subscription import PushSubscription
from ottla_broker.store.api import EventKind, Store, StoreEvent, Watch
from ottla_broker.store.keys import TopicNode
from ottla_broker.store.rereading import Rereading
from ottla_broker.tasks import Tasks


class TopicListeners:
    """Owned by the loop thread."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        nodes: GroupNodes,
        changed: Callable[[Mapping[str, bool]], Awaitable[None]],
    ) -> None:
        """``changed`` takes topics, and whether they are new."""
        self._store = store
        self._nodes = nodes
        self._changed = changed
        self._readers: dict[str, int] = {}
        self._watches: dict[str, Watch] = {}
        self._known: frozenset[str] = frozenset()
        self._rereading = Rereading(store, clock, self._find_new, "topics can't be listed now")
        self._pending: dict[str, bool] = {}
        self._some_pending = asyncio.Event()
        self._tasks = Tasks()

    def start(self) -> None:
        self._rereading.start(TopicNode.PARENT, changed=self._topics_changed)
        self._tasks.start(self._report())

    async def close(self) -> None:
        await self._rereading.close()
        await self._tasks.close()
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        self._readers.clear()
        self._pending.clear()
        self._known = frozenset()

    async def names(self) -> frozenset[str]:
        """All topics. Raises StoreError.

        Those that come later are reported, also if one of that name was there before.
        """
        names = frozenset(await self._nodes.topics())
        self._known &= names
        return names

    def follow(self, subscription: PushSubscription, topics: frozenset[str]) -> None:
        """Watch the topics that a subscription's consumers read, and no longer those that it had before."""
        before = subscription.found
        if topics == before:
            return
        subscription.found = topics
        for topic in before - topics:
            self._readers[topic] -= 1
            if not self._readers[topic]:
                del self._readers[topic]
                self._watches.pop(topic).cancel()
        for topic in topics - before:
            if topic not in self._readers:
                self._readers[topic] = 0
                self._watches[topic] = self._store.watch(
                    TopicNode.path(topic), partial(self._topic_changed, topic)
                )
            self._readers[topic] += 1

    def _topic_changed(self, topic: str, event: StoreEvent) -> None:
        if event.kind is not EventKind.CHILDREN:
            self._report_soon({topic: False})

    def _topics_changed(self, event: StoreEvent) -> None:
        if event.kind is EventKind.CHILDREN:
            self._rereading.wake()

    async def _find_new(self) -> None:
        topics = frozenset(await self._nodes.topics())
        new = topics - self._known
        self._known = topics
        if new:
            self._report_soon(dict.fromkeys(new, True))

    def _report_soon(self, topics: Mapping[str, bool]) -> None:
        """Report topics together with others that change now."""
        for topic, new in topics.items():
            self._pending[topic] = new or self._pending.get(topic, False)
        self._some_pending.set()

    async def _report(self) -> None:
        while True:
            await self._some_pending.wait()
            self._some_pending.clear()
            topics, self._pending = self._pending, {}
            await self._changed(topics)
