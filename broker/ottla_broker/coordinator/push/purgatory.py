"""Waits for the answers to requests that were pushed: one purgatory for each type of request.

A consumer answers in the order of the requests, and an answer names neither a request nor an attempt. So an answer that
comes after its watcher has expired is counted off as late, instead of being taken for the answer to the next request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla_broker.clock import Clock
from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.push.registry import Attempt, ConsumerRegistry


@dataclass(eq=False, slots=True)
class Watcher(Deadline):
    """Waits for one answer."""

    consumer: ConsumerRegistry
    attempt: Attempt | None


class RequestPurgatory:
    """The watchers of one type of request. Owned by the loop thread."""

    def __init__(self, clock: Clock, expired: Callable[[Watcher], None]) -> None:
        self._expired = expired
        self._deadlines = Deadlines(clock, self._missed)
        self._watchers: dict[ConsumerRegistry, Watcher] = {}
        self._late: dict[ConsumerRegistry, int] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def waits_for(self, consumer: ConsumerRegistry) -> bool:
        return consumer in self._watchers

    def owes(self, consumer: ConsumerRegistry) -> bool:
        """Whether an answer is to come, in time or late."""
        return consumer in self._watchers or bool(self._late.get(consumer))

    def watch(self, consumer: ConsumerRegistry, attempt: Attempt | None = None) -> None:
        """Wait for an answer, two thirds of the consumer's session timeout."""
        earlier = self._watchers.pop(consumer, None)
        if earlier is not None:
            # An attempt that has failed because of another consumer: its answer is still to come.
            self._deadlines.clear(earlier)
            self._late[consumer] = self._late.get(consumer, 0) + 1
        watcher = self._watchers[consumer] = Watcher(consumer, attempt)
        self._deadlines.set(watcher, consumer.response_seconds)

    def answered(self, consumer: ConsumerRegistry) -> Watcher | None:
        """Clear the watcher that an answer is for; None: no one waits for this answer."""
        late = self._late.get(consumer, 0)
        if late:
            self._late[consumer] = late - 1
            return None
        watcher = self._watchers.pop(consumer, None)
        if watcher is not None:
            self._deadlines.clear(watcher)
        return watcher

    def forget(self, consumer: ConsumerRegistry) -> None:
        """Drop what is known of a consumer that has gone."""
        watcher = self._watchers.pop(consumer, None)
        if watcher is not None:
            self._deadlines.clear(watcher)
        self._late.pop(consumer, None)

    def close(self) -> None:
        self._watchers.clear()
        self._late.clear()
        self._deadlines.close()

    def _missed(self, watcher: Deadline) -> None:
        assert isinstance(watcher, Watcher)
        self._watchers.pop(watcher.consumer, None)
        self._late[watcher.consumer] = self._late.get(watcher.consumer, 0) + 1
        self._expired(watcher)
