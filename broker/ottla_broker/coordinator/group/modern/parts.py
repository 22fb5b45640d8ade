"""What the modules that serve these groups share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla_broker.coordinator.group.modern.change import Change
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_broker.coordinator.group.modern.settings import ConsumerGroupSettings, TimesOf
from ottla_broker.coordinator.group.modern.timers import MemberTimers
from ottla_broker.coordinator.group.modern.topics import TopicsView
from ottla_broker.coordinator.group.modern.writer import Adopt, write


@dataclass(eq=False, slots=True)
class Parts:
    """Owned by the loop thread. ``adopt`` adds a group to the coordinator's index."""

    settings: ConsumerGroupSettings
    times_of: TimesOf
    topics: TopicsView
    timers: MemberTimers
    now_ms: Callable[[], int]
    adopt: Adopt

    def write(self, group: ConsumerGroup, change: Change) -> None:
        """Append a change and put it in force. Raises KafkaError; then nothing has changed."""
        write(self.adopt, group, change)
