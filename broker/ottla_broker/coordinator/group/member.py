"""A member of a group, and a member id that is not in use yet."""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.coordinator.deadlines import Deadline
from ottla_protocol.messages.join_group import JoinGroupResponse
from ottla_protocol.messages.sync_group import SyncGroupResponse

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]
Protocols = tuple[tuple[str, bytes], ...]
"""The assignors that a member supports, by preference, each with the member's metadata for it."""


class PendingMember(Deadline):
    """A member id that was given out with MEMBER_ID_REQUIRED (KIP-394). Its deadline is the session timeout."""

    __slots__ = ("group_id", "member_id")

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__()
        self.group_id = group_id
        self.member_id = member_id


class Member(Deadline):
    """One member. Its deadline is the end of its session; times are in milliseconds.

    Only ``Group`` changes it. ``join_reply`` and ``sync_reply`` are set while a request of the member waits. Each is
    called once: by ``Group``, or by the caller of the method that takes it out.

    Attributes:
        is_new: the member waits in its first join. It has no id to send heartbeats with, so its deadline counts
            although it waits.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_id",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
        *,
        is_new: bool = False,
    ) -> None:
        super().__init__()
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None
        self.is_new = is_new

    @property
    def is_waiting(self) -> bool:
        """Whether a request of the member waits here: as good as a heartbeat, except for a new member."""
        return self.join_reply is not None or self.sync_reply is not None

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for ``protocol``; empty where it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str | None:
        """The protocol that the member prefers among ``candidates``."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        return None
