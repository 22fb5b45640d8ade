"""Admin's calls for the offsets of groups in ZooKeeper, where consumers of Kafka 0.8 keep them.

They are OffsetCommit 0 and OffsetFetch 0, which any broker serves: it asks ZooKeeper, or its embedded store. Kafka 4
has neither.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.offset_commit import OffsetCommitRequest
from ottla_protocol.printable import shown_name

from ..deadline import Deadline
from ..errors import ConfigurationError
from ..requests.driver import Node, Outcomes
from ..requests.group_offsets import commit_codes, commit_request, fetch_request
from ..requests.outcomes import error_of, outcome_of
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .base import AdminBase
from .results import results_or_raise

_VERSION: Final = 0
_AT_ONCE: Final = 500
"""Partitions in a request: the broker asks ZooKeeper for each of them."""


class ZooKeeperOffsetCalls(AdminBase):
    async def list_zookeeper_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """A group's offsets in ZooKeeper, without partitions that have none.

        Raises GroupError, BrokerError; UnsupportedApiError with Kafka 4.
        """
        found: dict[TopicPartition, int] = {}

        async def ask(
            node: Node, some: list[TopicPartition], deadline: Deadline
        ) -> Outcomes[TopicPartition, int]:
            request = fetch_request(group_id, some, _VERSION, require_stable=False)
            answer = await self._call(node, request, deadline, _VERSION)
            return {
                TopicPartition(topic.name, each.partition_index): outcome_of(
                    0 if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else each.error_code,
                    each.committed_offset,
                    f"group {shown_name(group_id)}, partition {topic.name}-{each.partition_index}",
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        deadline = self._deadline(timeout)
        for some in _in_parts(sorted(partitions)):
            found |= await self._ask_each("list offsets", some, self._any_broker(), ask, deadline)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    async def alter_zookeeper_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Set a group's offsets in ZooKeeper. Nothing checks whether the group has members: see to that first.

        Raises UnknownTopicError, GroupError, BrokerError; PartialError for several partitions; UnsupportedApiError with
        Kafka 4.
        """
        for partition, offset in offsets.items():
            if offset < 0:
                raise ConfigurationError(f"the offset {offset} can't be committed for {partition}")

        async def ask(
            node: Node, some: list[TopicPartition], deadline: Deadline
        ) -> Outcomes[TopicPartition, None]:
            request: OffsetCommitRequest = commit_request(
                ConsumerGroupMetadata(group_id), {each: OffsetAndMetadata(offsets[each]) for each in some}
            )
            answer = await self._call(node, request, deadline, _VERSION)
            codes = commit_codes(answer)
            missing = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            return {
                each: None
                if (code := codes.get(each, missing)) == 0
                else error_of(code, f"group {shown_name(group_id)}, partition {each}")
                for each in some
            }

        deadline = self._deadline(timeout)
        outcomes: dict[TopicPartition, None] = {}
        for some in _in_parts(sorted(offsets)):
            outcomes |= await self._ask_each("alter offsets", some, self._any_broker(), ask, deadline)
        results_or_raise(f"alter offsets of group {shown_name(group_id)}", outcomes)


def _in_parts(partitions: Sequence[TopicPartition]) -> list[list[TopicPartition]]:
    rest = iter(partitions)
    return list(iter(lambda: list(islice(rest, _AT_ONCE)), []))
