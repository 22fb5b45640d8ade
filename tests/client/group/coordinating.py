"""A coordinator for one member, on a fake broker: it answers as a test wants, otherwise correctly."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.client.base.fake import FakeBroker, Partition, Topic

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import RequestHeader
from ottla_protocol.messages.heartbeat import HeartbeatResponse
from ottla_protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla_protocol.messages.leave_group import LeaveGroupResponse
from ottla_protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla_protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla_protocol.messages.sync_group import SyncGroupResponse
from ottla_protocol.schema import Message

VERSIONS = {
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.OFFSET_COMMIT: (0, 9),
    ApiKey.OFFSET_FETCH: (0, 9),
}
# What Kafka 0.11 has.
OLD_VERSIONS = {
    ApiKey.JOIN_GROUP: (0, 2),
    ApiKey.SYNC_GROUP: (0, 1),
    ApiKey.HEARTBEAT: (0, 1),
    ApiKey.LEAVE_GROUP: (0, 1),
    ApiKey.OFFSET_COMMIT: (0, 3),
    ApiKey.OFFSET_FETCH: (0, 3),
    ApiKey.METADATA: (0, 4),
    ApiKey.FIND_COORDINATOR: (0, 1),
    ApiKey.API_VERSIONS: (0, 1),
}


class FakeCoordinator(FakeBroker):
    """``refuse[api]`` are codes to answer with, one each; ``silent`` are APIs that get no answer at all.

    The member leads its group of one. Topic ``t`` has four partitions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.versions.update(VERSIONS)
        self.topics["t"] = Topic(partitions={number: Partition() for number in range(4)})
        self.refuse: defaultdict[ApiKey, list[ErrorCode]] = defaultdict(list)
        self.silent: set[ApiKey] = set()
        self.generation = 0
        self.skip_assignment = False
        self.kept_assignment = b""
        self.committed: dict[tuple[str, int], Any] = {}
        for key, answer in {
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: self._sync,
            ApiKey.HEARTBEAT: self._heartbeat,
            ApiKey.LEAVE_GROUP: lambda header, request: LeaveGroupResponse(error_code=self._code(header)),
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.OFFSET_FETCH: self._fetch,
        }.items():
            self.answers[key] = lambda header, request, answer=answer: (
                None if header.api_key in self.silent else answer(header, request)
            )

    def of(self, kind: type[Message]) -> list[Any]:
        """The requests of a kind that have come."""
        return [request for request in self.requests if isinstance(request, kind)]

    def _code(self, header: RequestHeader) -> ErrorCode:
        waiting = self.refuse[ApiKey(header.api_key)]
        return waiting.pop(0) if waiting else ErrorCode.NONE

    def _join(self, header: RequestHeader, request: Any) -> Message:
        code = self._code(header)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            return JoinGroupResponse(error_code=code, member_id="given")
        if code:
            return JoinGroupResponse(error_code=code)
        self.generation += 1
        member_id = request.member_id or f"member-{self.generation}"
        protocol = request.protocols[0]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=request.protocol_type,
            protocol_name=protocol.name,
            leader=member_id,
            member_id=member_id,
            skip_assignment=self.skip_assignment,
            members=[JoinGroupResponseMember(member_id=member_id, metadata=protocol.metadata)],
        )

    def _heartbeat(self, header: RequestHeader, request: Any) -> Message:
        return HeartbeatResponse(error_code=self._code(header))

    def _sync(self, header: RequestHeader, request: Any) -> Message:
        code = self._code(header)
        if code:
            return SyncGroupResponse(error_code=code)
        mine = request.assignments[0].assignment if request.assignments else self.kept_assignment
        return SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=mine
        )

    def _commit(self, header: RequestHeader, request: Any) -> Message:
        code = self._code(header)
        topics = []
        for topic in request.topics:
            for each in topic.partitions:
                if not code:
                    self.committed[topic.name, each.partition_index] = each
            codes = [
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ]
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=codes))
        return OffsetCommitResponse(topics=topics)

    def _fetch(self, header: RequestHeader, request: Any) -> Message:
        code = self._code(header)
        batched = header.api_version >= 8
        of_group = code not in (ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if header.api_version < 2:
            of_group = False
        asked = request.groups[0].topics if batched else request.topics
        if asked is None:
            wanted = list(self.committed)
        else:
            wanted = [(each.name, number) for each in asked for number in each.partition_indexes]
        one = OffsetFetchResponsePartitions if batched else OffsetFetchResponsePartition
        many = OffsetFetchResponseTopics if batched else OffsetFetchResponseTopic
        topics: list[Any] = []
        for topic, number in wanted:
            known = self.committed.get((topic, number))
            topics.append(
                many(
                    name=topic,
                    partitions=[
                        one(
                            partition_index=number,
                            committed_offset=-1 if known is None else known.committed_offset,
                            metadata="" if known is None else known.committed_metadata,
                            committed_leader_epoch=-1 if known is None else known.committed_leader_epoch,
                            error_code=0 if of_group else code,
                        )
                    ],
                )
            )
        group_code = code if of_group else 0
        if batched:
            group = OffsetFetchResponseGroup(
                group_id=request.groups[0].group_id, topics=topics, error_code=group_code
            )
            return OffsetFetchResponse(groups=[group])
        return OffsetFetchResponse(topics=topics, error_code=group_code)
