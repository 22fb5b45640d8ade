"""Committing a group's offsets and reading them back, with or without being a member."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, error_code
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
)

from ..cluster import retrying
from ..deadline import Deadline
from ..errors import (
    CommitFailedError,
    ConfigurationError,
    FencedInstanceError,
    GroupError,
    UnsupportedApiError,
)
from ..types import OffsetAndMetadata, TopicPartition
from .coordinator import Coordinator
from .embedded import grouped
from .settings import Membership

if TYPE_CHECKING:
    from ..cluster import Cluster

_BATCHED = 8
"""The first version of OffsetFetch that asks for several groups (KIP-709)."""
_STABLE = 7
"""The first version of OffsetFetch that can wait for transactions (KIP-447)."""
_ALL = 2
"""The first version of OffsetFetch that can ask for all partitions, and has an error for the group."""

_MOVED = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)

KICKED_OUT = (
    "the group has gone on without this member and given its partitions to others. That happens when the application"
    " does not poll for longer than max_poll_interval_ms: make that longer, or max_poll_records smaller, so that"
    " what one poll returns is done in time. It happens too when no heartbeat gets through for session_timeout_ms"
)


class OffsetsClient:
    """Offsets of one group. Any number of calls may be on their way at once."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        """Raises ConfigurationError for a group without a name."""
        if not group_id:
            raise ConfigurationError("offsets can't be committed or read without a group_id")
        self.group_id = group_id
        self._cluster = cluster
        self._coordinator = Coordinator(cluster, group_id)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
        *,
        member: Membership | None = None,
    ) -> None:
        """Commit the offsets of the next records to read; ``member`` None: from outside, to a group without members.

        Tries again while that may help, until the deadline: RequestTimeoutError. Raises CommitFailedError where the
        group has members, and ``member`` isn't one of them any more; FencedInstanceError; GroupError with the code
        REBALANCE_IN_PROGRESS where the group rebalances: commit again when the member has joined.
        """
        if not offsets:
            return
        for partition, each in offsets.items():
            if each.offset < 0:
                raise ConfigurationError(f"the offset {each.offset} can't be committed for {partition}")
        request = self._commit_request(offsets, member)

        async def attempt() -> None:
            answer = await self._coordinator.ask(request, deadline)
            self._check_commit(answer, offsets, member)

        await retrying(
            attempt,
            deadline,
            backoff=self._cluster.backoff,
            what=f"group {self.group_id!r}: offsets are not committed",
        )

    def _commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: Membership | None
    ) -> OffsetCommitRequest:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), each in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=-1 if each.leader_epoch is None else each.leader_epoch,
                    committed_metadata=each.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        if member is not None:
            request.member_id = member.member_id
            request.generation_id_or_member_epoch = member.generation
            request.group_instance_id = member.instance_id
        return request

    def _check_commit(
        self,
        answer: OffsetCommitResponse,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: Membership | None,
    ) -> None:
        """Raises the error of the first partition that has one."""
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    continue
                code = error_code(each.error_code)
                if code in _MOVED:
                    self._coordinator.moved()
                partition = TopicPartition(topic.name, each.partition_index)
                raise commit_error(
                    self.group_id, code, f"offset {offsets[partition].offset} of {partition}", member
                )

    async def fetch(
        self,
        partitions: Collection[TopicPartition] | None,
        deadline: Deadline,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of these partitions, None: of all; those without one are left out.

        With ``require_stable`` offsets that an open transaction may change are waited for; brokers before 2.5 can't
        do that, and tell what was committed last (as with Java's consumer). Tries again until the deadline:
        RequestTimeoutError. Raises GroupError for what doesn't pass by itself.
        """
        if partitions is not None and not partitions:
            return {}
        return await retrying(
            lambda: self._fetch_once(partitions, deadline, require_stable),
            deadline,
            backoff=self._cluster.backoff,
            what=f"group {self.group_id!r}: committed offsets can't be read",
        )

    async def _fetch_once(
        self, partitions: Collection[TopicPartition] | None, deadline: Deadline, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        connection = await self._coordinator.connection(deadline, aside=True)
        version = connection.version_of(ApiKey.OFFSET_FETCH)
        if partitions is None and version < _ALL:
            raise UnsupportedApiError(
                f"{connection.host}:{connection.port} is older than Kafka 0.10.2, and can't tell all offsets of a group"
            )
        request = self._fetch_request(partitions, version, require_stable)
        answer = await self._coordinator.submit(connection, request, deadline)
        group: Any = answer
        if version >= _BATCHED:
            group = next((each for each in answer.groups if each.group_id == self.group_id), None)
            if group is None:
                raise GroupError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"group {self.group_id!r}: the answer has no offsets of it",
                )
        self._check_fetch(group.error_code, "")
        found = {}
        for topic in group.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                self._check_fetch(each.error_code, f" of {partition}")
                if each.committed_offset >= 0:
                    epoch = each.committed_leader_epoch
                    found[partition] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", epoch if epoch >= 0 else None
                    )
        return found

    def _fetch_request(
        self, partitions: Collection[TopicPartition] | None, version: int, require_stable: bool
    ) -> OffsetFetchRequest:
        topics = None if partitions is None else grouped(sorted(partitions))
        stable = require_stable and version >= _STABLE
        if version < _BATCHED:
            asked = None
            if topics is not None:
                asked = [
                    OffsetFetchRequestTopic(name=each.topic, partition_indexes=each.partitions)
                    for each in topics
                ]
            return OffsetFetchRequest(group_id=self.group_id, topics=asked, require_stable=stable)
        group = OffsetFetchRequestGroup(group_id=self.group_id, topics=None)
        if topics is not None:
            group.topics = [
                OffsetFetchRequestTopics(name=each.topic, partition_indexes=each.partitions)
                for each in topics
            ]
        return OffsetFetchRequest(groups=[group], require_stable=stable)

    def _check_fetch(self, number: int, of: str) -> None:
        """Raises GroupError, retriable where Kafka says so: UNSTABLE_OFFSET_COMMIT is."""
        if not number:
            return
        code = error_code(number)
        if code in _MOVED:
            self._coordinator.moved()
        raise GroupError(
            code, f"group {self.group_id!r}: the committed offset{of or 's'} can't be read: {code.name}"
        )


def commit_error(group_id: str, code: ErrorCode, what: str, member: Membership | None) -> GroupError:
    """What a commit that was answered with ``code`` raises."""
    start = f"group {group_id!r}: {what} was not committed: "
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        if member is None:
            return CommitFailedError(
                code,
                f"{start}the group has members, and only they may commit ({code.name}); close them first",
            )
        return CommitFailedError(code, f"{start}{KICKED_OUT} ({code.name})")
    if code is ErrorCode.FENCED_INSTANCE_ID:
        instance = None if member is None else member.instance_id
        return FencedInstanceError(
            code, f"{start}another member uses the group_instance_id {instance!r} ({code.name})"
        )
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        return GroupError(
            code, f"{start}the group is rebalancing; commit again when the member has joined ({code.name})"
        )
    return GroupError(code, f"{start}{code.name}")
