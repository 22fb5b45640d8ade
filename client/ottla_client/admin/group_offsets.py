"""Admin's calls for the offsets of groups: read, set and delete them, and compute lag."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from time import time
from typing import Final

from ottla_protocol.errors import ErrorCode
from ottla_protocol.lag import Look, unread
from ottla_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla_protocol.printable import shown_name

from ..deadline import Deadline
from ..errors import BrokerError, ClientError, CorruptBatchError
from ..requests.driver import Node, ToCoordinators, by_topic
from ..requests.group_offsets import commit_codes, commit_request
from ..requests.log_walk import LogWalk, walks
from ..requests.outcomes import error_of, outcome_of
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, OffsetSpec, TimedOffset, TopicPartition
from .offsets import OffsetCalls
from .values import PartitionLag

_HAS_MEMBERS: Final = "only the group's members may commit while it has some; stop them first"


class GroupOffsetCalls(OffsetCalls):
    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's committed offsets, of all partitions or of these; partitions without one are left out.

        ``require_stable`` waits for transactions that are about to commit offsets (KIP-447). The result for a group
        that doesn't exist is empty. Raises GroupError.
        """
        from ..group import OffsetsClient

        client = OffsetsClient(self._cluster, group_id)
        deadline = self._deadline(timeout)
        return await client.fetch(partitions, deadline, require_stable=require_stable)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets for a group without members. An unknown group is created.

        Raises GroupError with UNKNOWN_MEMBER_ID while the group has members, UnknownTopicError, …; PartialError for
        several partitions.
        """
        wanted = {
            partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }

        async def ask(node: Node, deadline: Deadline) -> dict[TopicPartition, ClientError | None]:
            answer = await self._call(node, commit_request(ConsumerGroupMetadata(group_id), wanted), deadline)
            return _outcomes(group_id, commit_codes(answer))

        if wanted:
            await self._ask_coordinator("alter offsets", group_id, ask, timeout)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> None:
        """Delete a group's committed offsets for topics that it isn't subscribed to (KIP-496, from Kafka 2.4 on).

        Raises GroupError with GROUP_SUBSCRIBED_TO_TOPIC, GROUP_ID_NOT_FOUND, …; PartialError for several partitions.
        """
        wanted = list(dict.fromkeys(partitions))

        async def ask(node: Node, deadline: Deadline) -> dict[TopicPartition, ClientError | None]:
            request = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[OffsetDeleteRequestPartition(partition_index=p.partition) for p in its],
                    )
                    for topic, its in by_topic(wanted).items()
                ],
            )
            answer = await self._call(node, request, deadline)
            if answer.error_code:
                raise error_of(answer.error_code, f"group {shown_name(group_id)}")
            codes = {
                TopicPartition(topic.name, result.partition_index): result.error_code
                for topic in answer.topics
                for result in topic.partitions
            }
            return _outcomes(group_id, codes)

        if wanted:
            await self._ask_coordinator("delete offsets", group_id, ask, timeout)

    async def group_lag(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] = (),
        *,
        offsets: Mapping[TopicPartition, int] | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, PartitionLag]:
        """A group's lag in records and seconds, for its committed partitions and for ``partitions``.

        The seconds are the age of the first unread record: some 64 KiB are read from each partition with a lag.
        ``offsets`` stand in for the committed ones, for a group that keeps them in ZooKeeper.
        """
        deadline = self._deadline(timeout)
        committed = (
            await self.list_group_offsets(group_id, timeout=deadline.left())
            if offsets is None
            else {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        )
        return await self._lags(committed, {*committed, *partitions}, deadline)

    async def lag_of(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionLag]:
        """The lag of a reader that is at these offsets, whether or not a group has committed them."""
        committed = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        return await self._lags(committed, committed, self._deadline(timeout))

    async def _lags(
        self,
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        partitions: Iterable[TopicPartition],
        deadline: Deadline,
    ) -> dict[TopicPartition, PartitionLag]:
        every = sorted(partitions)
        topics = await self._cluster.fetch_topics({p.topic for p in every}, deadline) if every else {}
        led = [
            p
            for p in every
            if (topic := topics.get(p.topic)) is not None
            and (found := topic.partitions.get(p.partition)) is not None
            and found.leader is not None
        ]
        ends = await self.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST), timeout=deadline.left())
        starts = await self.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST), timeout=deadline.left())
        behind = [
            p for p in led if p in committed and unread(committed[p].offset, starts[p].offset, ends[p].offset)
        ]

        async def look(walk: LogWalk, p: TopicPartition) -> tuple[Look, TimedOffset | None]:
            return await walk.look(max(committed[p].offset, starts[p].offset), ends[p].offset)

        looks = await walks(self._cluster, behind, look, deadline)
        now = time() * 1000

        def lag(p: TopicPartition) -> PartitionLag:
            at = committed.get(p)
            if p not in ends or at is None:
                start, end = (starts[p].offset, ends[p].offset) if p in ends else (None, None)
                return PartitionLag(at, start, end, None, None)
            start, end = starts[p].offset, ends[p].offset
            looked = looks.get(p)
            if isinstance(looked, (BrokerError, CorruptBatchError)):
                # The record was deleted meanwhile, is damaged, or this user may not read it: offsets count.
                return PartitionLag(at, start, end, unread(at.offset, start, end), None)
            if isinstance(looked, ClientError):
                raise looked
            records = 0 if looked is None else looked[0].unread(start, end)
            first = looked[1] if looked is not None and records else None
            return PartitionLag(at, start, end, records, 0.0 if first is None else _age(first, now))

        return {p: lag(p) for p in every}


def _age(first: TimedOffset, now: float) -> float | None:
    """The seconds since a record was written; None if it has no timestamp."""
    return None if first.timestamp < 0 else max(0.0, (now - first.timestamp) / 1000)


_GROUP_CODES: Final = ToCoordinators.again | {ErrorCode.REBALANCE_IN_PROGRESS}
"""Errors of the whole group, not of a partition: ask another coordinator, or later."""


def _outcomes(group_id: str, codes: Mapping[TopicPartition, int]) -> dict[TopicPartition, ClientError | None]:
    """Each partition's outcome. Raises the group's error."""
    for code in codes.values():
        if code in _GROUP_CODES:
            raise error_of(code, f"group {shown_name(group_id)}")
    return {
        partition: outcome_of(
            code,
            None,
            f"group {shown_name(group_id)}, partition {partition}",
            _HAS_MEMBERS if code == ErrorCode.UNKNOWN_MEMBER_ID else None,
        )
        for partition, code in codes.items()
    }
