"""A member of a group of the consumer protocol (KIP-848), where the broker assigns partitions, and commits offsets.

Each heartbeat after an assignment confirms what the member has. Java's ``ConsumerMembershipManager`` and
``ConsumerHeartbeatRequestManager``.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)

from ..deadline import Deadline
from ..errors import CommitFailedError, GroupError
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .consumer_member_state import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMemberState
from .heartbeat_member import HeartbeatMember
from .offsets import KICKED_OUT, OffsetsClient
from .settings import MemberCallbacks, MemberSettings

if TYPE_CHECKING:
    from ..cluster import Cluster


class ConsumerProtocolMember(HeartbeatMember):
    """Made by a consumer that subscribes. Belongs to one event loop."""

    unsupported = "the broker has no consumer protocol (KIP-848); use group_protocol='classic'"

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        settings: MemberSettings,
        assignor: str | None,
        callbacks: MemberCallbacks,
        offsets: OffsetsClient | None = None,
    ) -> None:
        """``assignor`` is one of the broker's; None leaves the choice to the broker.

        Raises ConfigurationError for an empty group id.
        """
        super().__init__(cluster, group_id, settings, callbacks)
        self._assignor = assignor
        self._offsets = offsets or OffsetsClient(cluster, group_id)
        self._confirms = False  # the next heartbeat names the partitions that the member has

    @property
    def group_metadata(self) -> ConsumerGroupMetadata | None:
        """The member's id and epoch; None while it is not joined."""
        if self.state is not ConsumerMemberState.JOINED:
            return None
        instance = self._settings.group_instance_id
        return ConsumerGroupMetadata(self.group_id, self.epoch, self.member_id, instance)

    def joined_metadata(self) -> ConsumerGroupMetadata:
        """``group_metadata``. Raises CommitFailedError or GroupError, as ``commit`` does, while it is not joined."""
        member = self.group_metadata
        if member is not None:
            return member
        start = f"group {self.group_id!r}: nothing was committed: "
        if self.state is ConsumerMemberState.UNJOINED and self._sent_topics is not None:
            raise GroupError(
                ErrorCode.REBALANCE_IN_PROGRESS, f"{start}the member is joining; commit again when it has"
            )
        why = KICKED_OUT if self._sent_topics is not None else "the member has not joined the group yet"
        raise CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, start + why)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline) -> None:
        """Commit as a member; with an epoch that a heartbeat has changed meanwhile, again.

        Raises the errors of ``OffsetsClient.commit``: CommitFailedError if the member isn't in the group any more.
        """
        if not offsets:
            return
        while True:
            member = self.joined_metadata()
            try:
                await self._offsets.commit(offsets, deadline, member=member)
                return
            except GroupError as error:
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                    if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                        self._send_now()  # the answer says what has become of this member
                    raise
                if self.epoch == member.generation_id and self.state is ConsumerMemberState.JOINED:
                    await self._until_heard(deadline, error)

    async def _until_heard(self, deadline: Deadline, error: GroupError) -> None:
        """Wait for the answer to another heartbeat. Raises ``error`` at the deadline."""
        self._send_now()
        try:
            async with deadline.timeout() as limit, self._heard:
                await self._heard.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            raise error from None

    def _request(self, topics: frozenset[str]) -> ConsumerGroupHeartbeatRequest:
        settings = self._settings
        confirms, self._confirms = self._confirms, False
        joins = self.epoch == JOIN_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=settings.group_instance_id,
        )
        if joins or self._sent_topics is None:
            request.rack_id = settings.client_rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = self._assignor
        if joins or topics != self._sent_topics:
            request.subscribed_topic_names = sorted(topics)
        if joins:
            request.topic_partitions = []
        elif confirms:
            request.topic_partitions = self._named(self.assignment)
        return request

    def _named(self, partitions: Set[TopicPartition]) -> list[HeartbeatTopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._ids.items()}
        by_topic: dict[bytes, list[int]] = {}
        for topic, partition in sorted(partitions):
            by_topic.setdefault(ids[topic], []).append(partition)
        return [
            HeartbeatTopicPartitions(topic_id=topic_id, partitions=each)
            for topic_id, each in by_topic.items()
        ]

    def _leave_request(self) -> ConsumerGroupHeartbeatRequest:
        """Static members leave for a while: the group waits for them to come back (KIP-345)."""
        instance = self._settings.group_instance_id
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_EPOCH if instance is None else LEAVE_STATIC_EPOCH,
            instance_id=instance,
        )

    def _repeat_all(self) -> None:
        super()._repeat_all()
        self._confirms = True

    def _taken(self) -> None:
        self._confirms = True
        self._send_now()
