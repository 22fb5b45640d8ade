"""Deletes what share groups have of deleted topics. Kafka: ``GroupMetadataManager.maybeCleanupShareGroupState``.

A group's coordinator knows which share partitions have state, as it had it made. When a topic is deleted, it has the
share coordinators delete the states, group after group, and then notes that the group has none. It hears of a deletion
from the controller; of one that it has missed, a look at all groups from time to time finds what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.coordinator.group.modern.topics import TopicsView
from ottla_broker.coordinator.group.share.group import ShareGroup
from ottla_broker.coordinator.group.share.groups import ShareGroups
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.state_batches import ShareKey
from ottla_broker.coordinator.time_sliced_task import Sweeps
from ottla_broker.events import get_logger
from ottla_protocol.errors import KafkaError

_log = get_logger()


class DeletedTopics:
    """Owned by the loop thread. ``knows_topics()``: whether this broker has heard of all topics of the cluster."""

    def __init__(
        self,
        groups: ShareGroups,
        persister: Persister,
        topics: TopicsView,
        knows_topics: Callable[[], bool],
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._groups = groups
        self._persister = persister
        self._topics = topics
        self._knows_topics = knows_topics
        self._clock = clock
        self._interval = interval_ms / 1000
        self._timer: TimerHandle | None = None
        self._sweeps = Sweeps(clock, "sweep over state of share groups failed")
        # A set that keeps its order.
        self._waiting: dict[tuple[ShareGroup, bytes], None] = {}
        self._busy = False
        # What the last look hasn't found: topics by id, of which groups have state.
        self._suspects: set[tuple[str, bytes]] = set()

    def start(self) -> None:
        self._timer = self._clock.call_later(self._interval, self._plan)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sweeps.close()
        self._waiting.clear()

    def on_partitions_deleted(self, topic: str, _: Sequence[int]) -> None:
        """The controller has deleted a topic."""
        self._sweeps.start(self._deleted(topic), "deleted topic")

    def _plan(self) -> None:
        self._sweeps.start(self._look(), "deletions that were missed")
        self.start()

    def _deleted(self, name: str) -> Iterator[None]:
        """One group a step."""
        for group in list(self._groups.groups.values()):
            for topic_id in self._without_topic(group):
                if group.initialized[topic_id].name == name:
                    self._delete(group, topic_id)
            yield

    def _look(self) -> Iterator[None]:
        """Find deletions that were missed, by a broker that was down or whose requests failed. One group a step.

        A topic is taken for deleted when two looks haven't found it: it may be so new that only another broker, which
        coordinated the group until now, has heard of it.
        """
        if not self._knows_topics():
            return
        found = set()
        for group in list(self._groups.groups.values()):
            for topic_id in self._without_topic(group):
                if (group.group_id, topic_id) in self._suspects:
                    self._delete(group, topic_id)
                found.add((group.group_id, topic_id))
            yield
        self._suspects = found

    def _without_topic(self, group: ShareGroup) -> list[bytes]:
        """Ids of topics that the group has state of, and that this broker doesn't know."""
        return [topic_id for topic_id in group.initialized if self._topics.name_of(topic_id) is None]

    def _delete(self, group: ShareGroup, topic_id: bytes) -> None:
        self._waiting[group, topic_id] = None
        self._next()

    def _next(self) -> None:
        """Work on one topic of one group at a time."""
        if self._busy or not self._waiting:
            return
        self._busy = True
        group, topic_id = next(iter(self._waiting))
        del self._waiting[group, topic_id]
        known = group.initialized.get(topic_id)
        partitions = () if known is None else sorted(known.partitions)
        named = {"group": group.group_id, "topic": "" if known is None else known.name}
        gone: list[tuple[bytes, int]] = []
        failures: list[KafkaError] = []

        def settled(key: ShareKey, error: KafkaError | None) -> None:
            if error is None:
                gone.append((key.topic_id, key.partition))
            else:
                failures.append(error)

        def finish() -> None:
            if gone and not group.is_dead:
                self._groups.note_deleted(group, gone)
            if failures:
                error = failures[0].code.name
                _log.warning("state of a deleted topic not deleted; it is tried again", **named, error=error)
            elif gone:
                _log.info("state of a deleted topic deleted", **named, partitions=len(gone))
            self._busy = False
            self._clock.call_later(0, self._next)

        keys = [ShareKey(group.group_id, topic_id, index) for index in partitions]
        self._groups.for_each(group, keys, self._persister.delete, settled, finish)
