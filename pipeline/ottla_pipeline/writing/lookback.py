"""Finds out, before the first row for a topic is sent, what earlier tries of the batch have written there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla_client import TopicPartition
from ottla_pipeline.source import kafka

from .errors import WriteError
from .identity import Identity, Kind
from .marks import BEGUN, DONE, Mark, Marks
from .replay import WrittenRecords, find

if TYPE_CHECKING:
    from .options import WriteOptions


@dataclass
class TopicState:
    """A topic's state, known before its first row is sent."""

    already: WrittenRecords
    finished: bool = False
    """The topic has the whole batch: it finished, and only Spark doesn't know."""
    passed: bool = False
    """The topic has a later batch as well, whose marks stay."""


class LookBack:
    """Searches the topics of one task's rows, or of a whole batch."""

    def __init__(
        self, options: WriteOptions, identity: Identity, *, whole_batch: bool, set_marks: bool
    ) -> None:
        """``whole_batch``: search for records of all tasks. ``set_marks``: mark where the batch begins."""
        self._options = options
        self._client = kafka.client_options(options.client)
        self._identity = identity
        self._whole_batch = whole_batch
        self._set_marks = set_marks

    def marks(self) -> Marks:
        """The writer's marks, to be entered."""
        timeout = kafka.call_timeout(self._options.client)
        return Marks(self._options.bootstrap_servers, self._client, self._identity.group, timeout)

    def topic(self, marks: Marks, topic: str, numbers: Iterable[int]) -> TopicState:
        """Mark where the batch begins in ``topic``, or find the records that the batch has written there.

        ``numbers``: the topic's partitions.
        """
        identity = self._identity
        partitions = [TopicPartition(topic, number) for number in numbers]
        # Ends before marks: a task sets its mark before it writes, so without a mark none of the batch is written yet.
        ends = marks.ends(partitions)
        every = marks.read()
        mine = {partition: every[partition] for partition in partitions if partition in every}
        self._check_marks(topic, mine)
        done = max((mark.batch for mark in mine.values() if mark.state == DONE), default=-1)
        if done >= identity.batch:
            return TopicState(WrittenRecords(), finished=True, passed=done > identity.batch)
        if not mine and (every or identity.first):
            self._begin(marks, ends, identity.run)
            return TopicState(WrittenRecords())
        if identity.attempt == 0 and self._has_nothing(marks, every, mine):
            return TopicState(WrittenRecords())
        spans = self._spans(marks, ends, mine)
        found = find(
            {"bootstrap_servers": self._options.bootstrap_servers, **self._client},
            spans,
            identity,
            self._whole_batch,
        )
        if not mine:
            # No run: other tasks have to search as well.
            self._begin(marks, {partition: start for partition, (start, _) in spans.items()}, "-")
        return TopicState(found)

    def _begin(self, marks: Marks, offsets: dict[TopicPartition, int], run: str) -> None:
        if self._set_marks:
            batch = self._identity.batch
            marks.set({partition: Mark(at, BEGUN, batch, run) for partition, at in offsets.items()})

    def _check_marks(self, topic: str, mine: dict[TopicPartition, Mark]) -> None:
        """Raise WriteError if earlier records can't be distinguished from those to write."""
        identity = self._identity
        for mark in mine.values():
            if mark.batch == identity.batch and identity.is_sibling(mark.run):
                raise WriteError(
                    f"batch {identity.batch} is written to topic {topic} by two writes inside foreachBatch, or by one "
                    "that is tried again there, and they can't be distinguished: set txnAppId (another one for each) "
                    "and txnVersion (the batch's number)"
                )
            if identity.kind is Kind.NAMED and mark.state == BEGUN and mark.batch > identity.batch:
                raise WriteError(
                    f"txnVersion is {identity.batch}, and {mark.batch} has begun in topic {topic} and is not done: "
                    "write that to its end first"
                )

    def _has_nothing(
        self, marks: Marks, every: dict[TopicPartition, Mark], mine: dict[TopicPartition, Mark]
    ) -> bool:
        """Whether a topic with the marks ``mine`` can't have anything of the batch from before this run."""
        identity = self._identity
        if any(mark.state == BEGUN and mark.run == identity.run for mark in mine.values()):
            return True
        if identity.kind is Kind.STREAM:
            # Within a run, a batch comes once, after the previous one has finished.
            return any(mark.state == DONE and mark.run == identity.run for mark in every.values())
        # An earlier try would have set its mark first.
        if not mine or any(mark.batch >= identity.batch for mark in mine.values()):
            return False
        self._begin(marks, {partition: mark.offset for partition, mark in mine.items()}, identity.run)
        return True

    def _spans(
        self, marks: Marks, ends: dict[TopicPartition, int], mine: dict[TopicPartition, Mark]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The ranges to search: after the mark, or the tail if there is no valid mark.

        A broker drops marks when a stream pauses for longer than the broker keeps a group's offsets, and recreating the
        topic makes them invalid. A partition without a mark is new if other partitions have marks.
        """
        most = self._options.look_back
        starts = marks.starts(list(ends))
        spans = {}
        for partition, end in ends.items():
            first = starts[partition]
            mark = mine.get(partition)
            if not mine or (mark is not None and mark.offset > end):
                spans[partition] = (max(first, end - most), end)
            else:
                start = max(first, 0 if mark is None else mark.offset)
                spans[partition] = (start, min(end, start + most))
        return spans
