"""Where a batch began and ended in its topics, kept as a group's committed offsets.

The group has no members, and its writer's name. A partition's offset is where the last finished batch ended, or where
the first batch that writes to the topic began; its metadata says which: ``done|begun <batch> <run>``. Any Kafka broker
keeps such offsets. Records that an earlier try of a batch has written come after them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ottla_client import OffsetAndMetadata, TopicPartition
from ottla_client.admin import OffsetSpec
from ottla_client.sync import Admin

DONE = "done"
BEGUN = "begun"


@dataclass(frozen=True, slots=True)
class Mark:
    """A partition's mark. ``run`` is the run of the query that set it."""

    offset: int
    state: str
    batch: int
    run: str

    @property
    def committed(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.offset, f"{self.state} {self.batch} {self.run}")

    @classmethod
    def of(cls, committed: OffsetAndMetadata) -> Mark | None:
        """None if it is no mark: another program has committed to this group."""
        words = committed.metadata.split(" ")
        if len(words) != 3 or words[0] not in (DONE, BEGUN) or not words[1].lstrip("-").isdigit():
            return None
        return cls(committed.offset, words[0], int(words[1]), words[2])


class Marks:
    """A writer's marks. Connects when it is entered; every call may take ``timeout`` seconds."""

    def __init__(self, servers: str, client: dict[str, Any], group: str, timeout: float) -> None:
        self._admin = Admin(servers, **client)
        self._group = group
        self._timeout = timeout

    def __enter__(self) -> Marks:
        self._admin.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(partitions, OffsetSpec.LATEST)

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(partitions, OffsetSpec.EARLIEST)

    def _offsets(
        self, partitions: Collection[TopicPartition], which: OffsetSpec
    ) -> dict[TopicPartition, int]:
        found = self._admin.list_offsets(dict.fromkeys(partitions, which), timeout=self._timeout)
        return {partition: listed.offset for partition, listed in found.items()}

    def read(self) -> dict[TopicPartition, Mark]:
        """All marks. Waits for a transaction that is about to set some (KIP-447)."""
        committed = self._admin.list_group_offsets(self._group, require_stable=True, timeout=self._timeout)
        marks = {partition: Mark.of(each) for partition, each in committed.items()}
        return {partition: mark for partition, mark in marks.items() if mark is not None}

    def set(self, marks: Mapping[TopicPartition, Mark]) -> None:
        """Set these marks, replacing earlier ones."""
        offsets = {partition: mark.committed for partition, mark in marks.items()}
        self._admin.alter_group_offsets(self._group, offsets, timeout=self._timeout)

    def done(self, topics: Collection[str], batch: int, run: str) -> None:
        """Mark batch ``batch`` as written to ``topics`` and acknowledged."""
        self.set(self.when_done(topics, batch, run))

    def when_done(self, topics: Collection[str], batch: int, run: str) -> dict[TopicPartition, Mark]:
        """The marks for a batch whose records are all acknowledged."""
        described = self._admin.describe_topics(list(topics), timeout=self._timeout)
        every = [
            TopicPartition(name, number) for name, topic in described.items() for number in topic.partitions
        ]
        return {partition: Mark(end, DONE, batch, run) for partition, end in self.ends(every).items()}

    def forget(self) -> None:
        """Delete the group. Raises GroupError if it doesn't exist."""
        self._admin.delete_groups([self._group], timeout=self._timeout)
