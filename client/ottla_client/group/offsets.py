"""Commits and reads a group's offsets, as a member or from outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, error_code

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
    commit_codes,
    commit_request,
    fetch_request,
    fetched_offsets,
)
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .coordinator import Coordinator

if TYPE_CHECKING:
    from ..cluster import Cluster

_MOVED = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)

KICKED_OUT = (
    "the group removed this member and gave its partitions to others. This happens when the application does not poll"
    " for max_poll_interval_ms: raise that, or lower max_poll_records, so that the records of one poll are processed"
    " in time. It also happens when no heartbeat arrives for session_timeout_ms"
)


class OffsetsClient:
    """The offsets of one group. Any number of calls may run at once."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
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
        """Commit the offsets of the next records to read. ``member`` None commits to a group without members.

        Retries until the deadline, then raises RequestTimeoutError. Raises CommitFailedError if ``member`` isn't in the
        group any more; FencedInstanceError; GroupError with REBALANCE_IN_PROGRESS during a rebalance: commit again
        after the member has joined.
        """
        if not offsets:
            return
        for partition, each in offsets.items():
            if each.offset < 0:
                raise ConfigurationError(f"the offset {each.offset} can't be committed for {partition}")
        request = commit_request(member or ConsumerGroupMetadata(self.group_id), offsets)

        async def attempt() -> None:
            answer = await self._coordinator.ask(request, deadline)
            for partition, number in commit_codes(answer).items():
                if number:
                    code = error_code(number)
                    if code in _MOVED:
                        self._coordinator.moved()
                    what = f"offset {offsets[partition].offset} of {partition}"
                    raise commit_error(self.group_id, code, what, member)

        await retrying(
            attempt,
            deadline,
            backoff=self._cluster.backoff,
            what=f"group {self.group_id!r}: offsets are not committed",
        )

    async def fetch(
        self,
        partitions: Collection[TopicPartition] | None,
        deadline: Deadline,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of these partitions (None: all), without partitions that have none.

        With ``require_stable``, waits for open transactions; brokers before 2.5 return the last offset without waiting
        (as with Java's consumer). Retries until the deadline, then raises RequestTimeoutError. Raises GroupError for
        errors that retries don't solve.
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
                f"{connection.host}:{connection.port} is older than Kafka 0.10.2 and can't list all offsets of a group"
            )
        request = fetch_request(self.group_id, partitions, version, require_stable=require_stable)
        answer = await self._coordinator.submit(connection, request, deadline)
        found = fetched_offsets(answer, self.group_id, version)
        if found is None:
            raise GroupError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"group {self.group_id!r}: the response lacks its offsets"
            )
        self._check_fetch(found.error_code, "")
        for partition, code in found.codes.items():
            self._check_fetch(code, f" of {partition}")
        return found.offsets

    def _check_fetch(self, number: int, of: str) -> None:
        """Raise GroupError, which is retriable for UNSTABLE_OFFSET_COMMIT and others."""
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
    """The exception for a commit that failed with ``code``."""
    start = f"group {group_id!r}: {what} was not committed: "
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        if member is None:
            return CommitFailedError(
                code,
                f"{start}the group has members, and only members may commit ({code.name}); close them first",
            )
        return CommitFailedError(code, f"{start}{KICKED_OUT} ({code.name})")
    if code is ErrorCode.FENCED_INSTANCE_ID:
        instance = None if member is None else member.group_instance_id
        return FencedInstanceError(
            code, f"{start}another member uses the group_instance_id {instance!r} ({code.name})"
        )
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        return GroupError(
            code, f"{start}the group is rebalancing; commit again when the member has joined ({code.name})"
        )
    return GroupError(code, f"{start}{code.name}")
