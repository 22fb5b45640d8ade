"""A member of a share group (KIP-932): it reports by heartbeats, and the broker answers which partitions to read.

Members of a share group may have the same partitions, so nothing waits for a member to give one up, and a member
confirms nothing. Java's ``ShareMembershipManager`` and ``ShareHeartbeatRequestManager``.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING
from uuid import uuid4

from ottla_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .consumer_member_state import JOIN_EPOCH, LEAVE_EPOCH
from .heartbeat_member import HeartbeatMember
from .settings import MemberCallbacks, MemberSettings

if TYPE_CHECKING:
    from ..cluster import Cluster


class ShareMember(HeartbeatMember):
    """Made by a share consumer that subscribes. Belongs to one event loop."""

    unsupported = "the broker serves no share groups (KIP-932); Kafka does from 4.1 on"

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        member_id: str,
        *,
        settings: MemberSettings,
        callbacks: MemberCallbacks,
    ) -> None:
        """``member_id`` is of ``new_member_id``. Raises ConfigurationError for an empty group id."""
        super().__init__(cluster, group_id, settings, callbacks)
        self.member_id = member_id

    def _request(self, topics: frozenset[str]) -> ShareGroupHeartbeatRequest:
        joins = self.epoch == JOIN_EPOCH
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if joins or self._sent_topics is None:
            request.rack_id = self._settings.client_rack or None
        if joins or topics != self._sent_topics:
            request.subscribed_topic_names = sorted(topics)
        return request

    def _leave_request(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )


def new_member_id() -> str:
    """A new id in the form of Kafka's Uuid, which Kafka 4 requires in ShareFetch: 22 characters of Base64."""
    while True:
        made = urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        if not made.startswith("-"):  # tools would take it for an option, so Kafka's Uuid avoids it, too
            return made
