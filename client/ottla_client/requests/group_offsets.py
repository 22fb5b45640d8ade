"""OffsetCommit and OffsetFetch: the offsets that a group commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla_protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .driver import by_topic

Row = TypeVar("Row")

ALL_SINCE: Final = 2
"""The first version of OffsetFetch that asks for all partitions and has an error for the group."""
_STABLE_SINCE: Final = 7
"""The first version of OffsetFetch that waits for transactions (KIP-447)."""
_GROUPS_SINCE: Final = 8
"""The first version of OffsetFetch that asks for several groups (KIP-709)."""


class FetchedOffsets(NamedTuple):
    """A response to OffsetFetch: the group's error code, codes of failed partitions, and the committed offsets."""

    error_code: int
    codes: dict[TopicPartition, int]
    offsets: dict[TopicPartition, OffsetAndMetadata]


def committed_by_topic(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], row: Callable[..., Row]
) -> dict[str, list[Row]]:
    """The partitions of a request that commits ``offsets``; ``row`` is their class in that request."""
    topics: dict[str, list[Row]] = {}
    for (topic, partition), each in offsets.items():
        topics.setdefault(topic, []).append(
            row(
                partition_index=partition,
                committed_offset=each.offset,
                committed_leader_epoch=-1 if each.leader_epoch is None else each.leader_epoch,
                committed_metadata=each.metadata,
            )
        )
    return topics


def commit_request(
    group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    """``group`` with an id alone commits from outside, to a group without members."""
    topics = committed_by_topic(offsets, OffsetCommitRequestPartition)
    return OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def commit_codes(answer: OffsetCommitResponse | TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error code of each partition, 0 for success."""
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


def fetch_request(
    group_id: str, partitions: Collection[TopicPartition] | None, version: int, *, require_stable: bool
) -> OffsetFetchRequest:
    """``partitions`` None asks for all of the group, from version ALL_SINCE on."""
    topics = None
    if partitions is not None:
        by_name = by_topic(sorted(partitions)).items()
        topics = {name: [each.partition for each in its] for name, its in by_name}
    stable = require_stable and version >= _STABLE_SINCE
    if version < _GROUPS_SINCE:
        asked = None
        if topics is not None:
            asked = [
                OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in topics.items()
            ]
        return OffsetFetchRequest(group_id=group_id, topics=asked, require_stable=stable)
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    if topics is not None:
        group.topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics.items()
        ]
    return OffsetFetchRequest(groups=[group], require_stable=stable)


def fetched_offsets(answer: OffsetFetchResponse, group_id: str, version: int) -> FetchedOffsets | None:
    """The group's part of the response; None if it is missing."""
    group: Any = answer
    if version >= _GROUPS_SINCE:
        group = next((each for each in answer.groups if each.group_id == group_id), None)
        if group is None:
            return None
    found = FetchedOffsets(group.error_code, {}, {})
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                found.codes[partition] = each.error_code
            elif each.committed_offset >= 0:
                epoch = each.committed_leader_epoch
                found.offsets[partition] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", epoch if epoch >= 0 else None
                )
    return found
