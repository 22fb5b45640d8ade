"""One change of a group: records, and the group as it will be once they are in the log."""

from __future__ import annotations

from collections.abc import Iterable

from ottla_broker.coordinator.group.modern import records
from ottla_broker.coordinator.group.modern.member import ConsumerMember
from ottla_broker.coordinator.group.modern.membership import Membership
from ottla_broker.coordinator.group.modern.records import Record


class Change:
    """Collects records, and applies each to a copy of the group. Nothing else changes until the copy is adopted.

    Attributes:
        before: the group as it is.
        after: the group with the records so far.
        rows: records of other kinds, as bytes, that come first: tombstones of a classic group.
        metadata_version: set where the group's topics have been looked up.
    """

    def __init__(self, group_id: str, before: Membership) -> None:
        self.group_id = group_id
        self.before = before
        self.after = before.copy()
        self.records: list[Record] = []
        self.rows: list[tuple[bytes, bytes | None]] = []
        self.metadata_version: int | None = None

    def add(self, *added: Record) -> None:
        for record in added:
            self.records.append(record)
            self.after.apply(record)

    def encoded(self) -> list[tuple[bytes, bytes | None]]:
        return [*self.rows, *map(records.encode, self.records)]

    # What requests have in common

    def bump_epoch(self) -> None:
        self.add(records.epoch(self.group_id, self.after.epoch + 1))

    def put_member(self, member: ConsumerMember) -> bool:
        """Write a member's metadata if it has changed; returns whether its subscription has."""
        before = self.after.members.get(member.member_id)
        if before == member:
            return False
        self.add(records.member(self.group_id, member))
        return before is None or not before.has_same_subscription(member)

    def move_member(self, member: ConsumerMember) -> None:
        """Write a member's epoch, state and partitions if they have changed."""
        if self.after.members.get(member.member_id) != member:
            self.add(records.current(self.group_id, member))

    def remove_members(self, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self.add(*records.without_member(self.group_id, member_id))

    def replace_static(self, old: ConsumerMember, new_id: str) -> ConsumerMember:
        """Give a static member's place, and its part of the target, to a new member id that has no partitions."""
        target = self.after.target.get(old.member_id, {})
        new = old.without_partitions(new_id)
        self.remove_members([old.member_id])
        self.add(
            records.member(self.group_id, new),
            records.target(self.group_id, new_id, target),
            records.current(self.group_id, new),
        )
        return new
