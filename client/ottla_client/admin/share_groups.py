"""Admin's calls for share groups (KIP-932): where they are in their partitions, and other places to begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ottla_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla_protocol.printable import shown_name

from ..deadline import Deadline
from ..errors import ClientError
from ..requests.driver import Node, by_topic
from ..requests.outcomes import error_of, outcome_of
from ..types import TopicPartition
from .base import AdminBase

V = TypeVar("V")


class ShareGroupOffset(NamedTuple):
    """A share group's place in a partition.

    Attributes:
        start: everything before this offset is done with; None if no consumer has asked for records yet.
        lag: the records that are left; None if the broker doesn't say.
    """

    start: int | None
    lag: int | None


class ShareGroupCalls(AdminBase):
    async def share_group_offsets(
        self, group_id: str, *, timeout: float | None = None
    ) -> dict[TopicPartition, ShareGroupOffset]:
        """A share group's places in all partitions that it has read or was assigned.

        Raises GroupError, with GROUP_ID_NOT_FOUND for a group that isn't a share group; PartialError for several
        partitions; UnsupportedApiError for brokers that don't serve share groups.
        """

        async def ask(node: Node, deadline: Deadline) -> dict[TopicPartition, ShareGroupOffset | ClientError]:
            wanted = [DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
            answer = await self._call(node, DescribeShareGroupOffsetsRequest(groups=wanted), deadline)
            found: dict[TopicPartition, ShareGroupOffset | ClientError] = {}
            for group in answer.groups:
                _check(group, group_id)
                for topic in group.topics:
                    for each in topic.partitions:
                        start = each.start_offset if each.start_offset >= 0 else None
                        offset = ShareGroupOffset(start, each.lag if each.lag >= 0 else None)
                        partition = TopicPartition(topic.topic_name, each.partition_index)
                        found[partition] = _outcome(each, offset, group_id, f"partition {partition}")
            return found

        return await self._ask_coordinator("describe share group offsets", group_id, ask, timeout)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Have a share group without members begin at these offsets.

        Raises GroupError with NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND; PartialError for several partitions.
        """
        if not offsets:
            return

        async def ask(node: Node, deadline: Deadline) -> dict[TopicPartition, ClientError | None]:
            request = AlterShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[
                    AlterShareGroupOffsetsRequestTopic(
                        topic_name=topic,
                        partitions=[
                            AlterShareGroupOffsetsRequestPartition(
                                partition_index=each.partition, start_offset=offsets[each]
                            )
                            for each in its
                        ],
                    )
                    for topic, its in by_topic(offsets).items()
                ],
            )
            answer = await self._call(node, request, deadline)
            _check(answer, group_id)
            return {
                partition: _outcome(each, None, group_id, f"partition {partition}")
                for topic in answer.responses
                for each in topic.partitions
                for partition in (TopicPartition(topic.topic_name, each.partition_index),)
            }

        await self._ask_coordinator("alter share group offsets", group_id, ask, timeout)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Have a share group without members forget where it is in topics: it begins there as a new group does.

        Raises GroupError with NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND, UnknownTopicError for a topic without offsets;
        PartialError for several topics.
        """
        wanted = list(dict.fromkeys(topics))
        if not wanted:
            return

        async def ask(node: Node, deadline: Deadline) -> dict[str, ClientError | None]:
            request = DeleteShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in wanted],
            )
            answer = await self._call(node, request, deadline)
            _check(answer, group_id)
            return {
                topic.topic_name: _outcome(topic, None, group_id, f"topic {topic.topic_name}")
                for topic in answer.responses
            }

        await self._ask_coordinator("delete share group offsets", group_id, ask, timeout)


def _check(answer: Any, group_id: str) -> None:
    """Raises the group's error."""
    if answer.error_code:
        raise error_of(answer.error_code, f"group {shown_name(group_id)}", answer.error_message or None)


def _outcome(answer: Any, value: V, group_id: str, what: str) -> V | ClientError:
    return outcome_of(
        answer.error_code, value, f"group {shown_name(group_id)}, {what}", answer.error_message or None
    )
