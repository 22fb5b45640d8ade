"""Where a batch began and ended in its topics, kept as offsets that a group has committed.

The group has no members; it is called after its writer. For each partition its offset lies where the last finished
batch had ended, or where the first batch that writes to the topic began, and the note with it says which:
``done|begun <batch> <run>``. Any Kafka broker keeps such offsets. What a batch that is tried again has written lies
behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla_client import OffsetAndMetadata, TopicPartition
from ottla_client.admin import OffsetSpec
from ottla_client.sync import Admin

if TYPE_CHECKING:
    from types import TracebackType

DONE = "done"
BEGUN = "begun"


@dataclass(frozen=True, slots=True)
class Mark:
    """One partition's. ``run`` is the start of the query that set it."""

    offset: int
    state: str
    batch: int
    run: str

    @property
    def committed(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.offset, f"{self.state} {self.batch} {self.run}")

    @classmethod
    def of(cls, committed: OffsetAndMetadata) -> Mark | None:
        """None for what is not a mark: somebody else has committed with this group's name."""
        words = committed.metadata.split(" ")
        if len(words) != 3 or words[0] not in (DONE, BEGUN) or not words[1].lstrip("-").isdigit():
            return None
        return cls(committed.offset, words[0], int(words[1]), words[2])


class Marks:
    """A writer's marks. Connects when it is entered; every question has ``timeout`` seconds."""

    def __init__(self, servers: str, client: dict[str, Any], group: str, timeout: float) -> None:
        self._admin = Admin(servers, **client)
        self._group = group
        self._timeout = timeout

    def __enter__(self) -> Marks:
        self._admin.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._admin.close()

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets of the next records."""
        return self._offsets(partitions, OffsetSpec.LATEST)

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets that there still are."""
        return self._offsets(partitions, OffsetSpec.EARLIEST)

    def _offsets(
        self, partitions: Collection[TopicPartition], which: OffsetSpec
    ) -> dict[TopicPartition, int]:
        found = self._admin.list_offsets(dict.fromkeys(partitions, which), timeout=self._timeout)
        return {partition: listed.offset for partition, listed in found.items()}

    def read(self) -> dict[TopicPartition, Mark]:
        """All that there are."""
        committed = self._admin.list_group_offsets(self._group, timeout=self._timeout)
        marks = {partition: Mark.of(each) for partition, each in committed.items()}
        return {partition: mark for partition, mark in marks.items() if mark is not None}

    def set(self, marks: Mapping[TopicPartition, Mark]) -> None:
        """Put these marks in the place of those before them."""
        offsets = {partition: mark.committed for partition, mark in marks.items()}
        self._admin.alter_group_offsets(self._group, offsets, timeout=self._timeout)

    def done(self, topics: Collection[str], batch: int, run: str) -> None:
        """Batch ``batch`` has been written to ``topics``, and all of it is acknowledged."""
        described = self._admin.describe_topics(list(topics), timeout=self._timeout)
        every = [
            TopicPartition(name, number) for name, topic in described.items() for number in topic.partitions
        ]
        self.set({partition: Mark(end, DONE, batch, run) for partition, end in self.ends(every).items()})

    def forget(self) -> None:
        """Delete the group. Raises GroupError where there is none."""
        self._admin.delete_groups([self._group], timeout=self._timeout)
