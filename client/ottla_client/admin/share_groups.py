"""Admin's calls for share groups (KIP-932): where they are in their partitions, and other places to begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

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

from ..deadline import Deadline
from ..errors import ClientError
from ..requests.driver import Node, by_topic
from ..requests.outcomes import error_of, outcome_of
from ..types import TopicPartition
from .base import AdminBase


class ShareGroupOffset(NamedTuple):
    """Where a share group is in a partition.

    Attributes:
        start: everything before this offset is done with; None if no consumer has asked for records yet.
        lag: the records that are left; None if the broker doesn't say.
    """

    start: int | None
    lag: int | None


class ShareGroupCalls(AdminBase):
    """Admin's calls for share groups."""

    async def share_group_offsets(
        self, group_id: str, *, timeout: float | None = None
    ) -> dict[TopicPartition, ShareGroupOffset]:
        """Where a share group is, in all partitions that it has read or was assigned.

        Raises GroupError, with GROUP_ID_NOT_FOUND for a group that isn't a share group; PartialError for several
        partitions; UnsupportedApiError for brokers that don't serve share groups.
        """

        async def ask(
            node: Node, groups: list[str], deadline: Deadline
        ) -> Mapping[str, dict[TopicPartition, ShareGroupOffset | ClientError] | ClientError]:
            wanted = [DescribeShareGroupOffsetsRequestGroup(group_id=each, topics=None) for each in groups]
            answer = await self._call(node, DescribeShareGroupOffsetsRequest(groups=wanted), deadline)
            return {
                group.group_id: error_of(
                    group.error_code, f"group {group.group_id}", group.error_message or None
                )
                if group.error_code
                else {
                    TopicPartition(topic.topic_name, each.partition_index): outcome_of(
                        each.error_code,
                        ShareGroupOffset(
                            each.start_offset if each.start_offset >= 0 else None,
                            each.lag if each.lag >= 0 else None,
                        ),
                        f"group {group.group_id}, partition {topic.topic_name}-{each.partition_index}",
                        each.error_message or None,
                    )
                    for topic in group.topics
                    for each in topic.partitions
                }
                for group in answer.groups
            }

        return await self._of_group("describe share group offsets", group_id, ask, timeout)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Have a share group without members begin at these offsets.

        Raises GroupError with NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND; PartialError for several partitions.
        """
        if not offsets:
            return

        async def ask(
            node: Node, groups: list[str], deadline: Deadline
        ) -> Mapping[str, dict[TopicPartition, ClientError | None] | ClientError]:
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
            if answer.error_code:
                return {
                    group_id: error_of(answer.error_code, f"group {group_id}", answer.error_message or None)
                }
            return {
                group_id: {
                    TopicPartition(topic.topic_name, each.partition_index): outcome_of(
                        each.error_code,
                        None,
                        f"group {group_id}, partition {topic.topic_name}-{each.partition_index}",
                        each.error_message or None,
                    )
                    for topic in answer.responses
                    for each in topic.partitions
                }
            }

        await self._of_group("alter share group offsets", group_id, ask, timeout)

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

        async def ask(
            node: Node, groups: list[str], deadline: Deadline
        ) -> Mapping[str, dict[str, ClientError | None] | ClientError]:
            request = DeleteShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in wanted],
            )
            answer = await self._call(node, request, deadline)
            if answer.error_code:
                return {
                    group_id: error_of(answer.error_code, f"group {group_id}", answer.error_message or None)
                }
            return {
                group_id: {
                    topic.topic_name: outcome_of(
                        topic.error_code,
                        None,
                        f"group {group_id}, topic {topic.topic_name}",
                        topic.error_message or None,
                    )
                    for topic in answer.responses
                }
            }

        await self._of_group("delete share group offsets", group_id, ask, timeout)
