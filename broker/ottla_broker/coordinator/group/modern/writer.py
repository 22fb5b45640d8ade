"""Writes a change of a group to the log, and makes it the group's state.

Memory follows the log at append: a later change builds on this one, and comes later in the log. Answers wait until the
log has committed the group's last record, also answers that change nothing: they may tell of an earlier change.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.coordinator.group.errors import refused
from ottla_broker.coordinator.group.modern.change import Change
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_protocol.errors import ErrorCode, KafkaError

Adopt = Callable[[ConsumerGroup], None]
"""Adds a group to the coordinator's index, perhaps in place of a classic one."""


def write(adopt: Adopt, group: ConsumerGroup, change: Change) -> None:
    """Append a change and put it in force. Raises KafkaError, as clients get it, if the log refuses it."""
    rows = change.encoded()
    if rows:
        try:
            group.end_offset = group.shard.write(rows)
        except KafkaError as error:
            raise refused(group.group_id, int(error.code)) from error
        if not group.is_listed:
            group.is_listed = True
            adopt(group)
    group.put(change.after)
    if change.metadata_version is not None:
        group.metadata_version = change.metadata_version


def when_written(group: ConsumerGroup, written: Callable[[KafkaError | None], None]) -> None:
    """Call ``written`` once the log has committed the group's last record, or has failed to."""

    def done(code: int, _: int) -> None:
        written(None if code == ErrorCode.NONE else refused(group.group_id, code))

    group.shard.when_committed(group.end_offset, done)
