"""Parts that the modules serving these groups share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla_broker.coordinator.group.metadata_limit import MetadataLimit
from ottla_broker.coordinator.group.modern.change import Change
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_broker.coordinator.group.modern.member import ConsumerMember
from ottla_broker.coordinator.group.modern.membership import MOST_NAMES
from ottla_broker.coordinator.group.modern.patterns import Matcher
from ottla_broker.coordinator.group.modern.settings import ConsumerGroupSettings, TimesOf
from ottla_broker.coordinator.group.modern.timers import MemberTimers
from ottla_broker.coordinator.group.modern.topics import TopicsView
from ottla_broker.coordinator.group.modern.writer import Adopt, write
from ottla_protocol.errors import ErrorCode, KafkaError


@dataclass(eq=False, slots=True)
class Parts:
    """Owned by the loop thread.

    Attributes:
        adopt: adds a group to the coordinator's index.
        metadata_limit: what members may state.
        matcher: finds the topics of regular expressions.
    """

    settings: ConsumerGroupSettings
    times_of: TimesOf
    topics: TopicsView
    timers: MemberTimers
    now_ms: Callable[[], int]
    adopt: Adopt
    metadata_limit: MetadataLimit
    matcher: Matcher

    def write(self, group: ConsumerGroup, change: Change) -> None:
        """Append a change and put it in force. Raises KafkaError; then nothing has changed."""
        write(self.adopt, group, change)

    def check_room(
        self, group: ConsumerGroup, change: Change, before: ConsumerMember | None, after: ConsumerMember
    ) -> None:
        """Check that what a member states has room. Raises KafkaError: GROUP_MAX_SIZE_REACHED."""
        stated = 0 if before is None else before.stated_bytes
        self.metadata_limit.check(group.stated.bytes, stated, after.stated_bytes)
        if not change.after.may_name(after.topics):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The members of the group name more than {MOST_NAMES} topics, the most that are allowed.",
            )
