"""Committing a group's offsets and reading them back, with or without being a member."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, error_code
from ottla_protocol.messages.offset_commit import OffsetCommitResponse

from ..cluster import retrying
from ..deadline import Deadline
from ..errors import (
    CommitFailedError,
    ConfigurationError,
    FencedInstanceError,
    GroupError,
    UnsupportedApiError,
)
from ..requests.group_offsets import (
    ALL_SINCE,
    ConsumerGroupMetadata,
    commit_codes,
    commit_request,
    fetch_request,
    fetched_offsets,
)
from ..types import OffsetAndMetadata, TopicPartition
from .coordinator import Coordinator

if TYPE_CHECKING:
    from ..cluster import Cluster

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
        member: ConsumerGroupMetadata | None = None,
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
        request = commit_request(self.group_id, offsets, member)

        async def attempt() -> None:
            answer = await self._coordinator.ask(request, deadline)
            self._check_commit(answer, offsets, member)

        await retrying(
            attempt,
            deadline,
            backoff=self._cluster.backoff,
            what=f"group {self.group_id!r}: offsets are not committed",
        )

    def _check_commit(
        self,
        answer: OffsetCommitResponse,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: ConsumerGroupMetadata | None,
    ) -> None:
        """Raises the error of the first partition that has one."""
        for partition, number in commit_codes(answer).items():
            if number:
                code = error_code(number)
                if code in _MOVED:
                    self._coordinator.moved()
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
        if partitions is None and version < ALL_SINCE:
            raise UnsupportedApiError(
                f"{connection.host}:{connection.port} is older than Kafka 0.10.2, and can't tell all offsets of a group"
            )
        request = fetch_request(self.group_id, partitions, version, require_stable=require_stable)
        answer = await self._coordinator.submit(connection, request, deadline)
        found = fetched_offsets(answer, self.group_id, version)
        if found is None:
            raise GroupError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"group {self.group_id!r}: the answer has no offsets of it"
            )
        self._check_fetch(found.error_code, "")
        for partition, code in found.codes.items():
            self._check_fetch(code, f" of {partition}")
        return found.offsets

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


def commit_error(
    group_id: str, code: ErrorCode, what: str, member: ConsumerGroupMetadata | None
) -> GroupError:
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
