"""A member of a group, and a member id that is not in use yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, Protocol

from ottla_broker.coordinator.deadlines import Deadline
from ottla_protocol.messages.join_group import JoinGroupResponse
from ottla_protocol.messages.sync_group import SyncGroupResponse

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]
Protocols = tuple[tuple[str, bytes], ...]
"""The assignors that a member supports, by preference, each with the member's metadata for it."""


class Sender(NamedTuple):
    """The member that a request claims to be from. ``generation``: for the consumer protocol its epoch; -1: none."""

    member_id: str
    instance_id: str | None
    generation: int

    @property
    def is_member(self) -> bool:
        """Whether it claims to be a member: consumers that assign their partitions themselves and tools don't."""
        return self.generation >= 0 or bool(self.member_id) or self.instance_id is not None


class DescribedMember(Protocol):
    """A member as DescribeGroups shows it, without its metadata and assignment."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...


@dataclass(eq=False, slots=True)
class PendingMember(Deadline):
    """A member id that was given out with MEMBER_ID_REQUIRED (KIP-394). Its deadline is the session timeout."""

    group_id: str
    member_id: str


@dataclass(eq=False, slots=True)
class Member(Deadline):
    """One member. Its deadline is the end of its session; times are in milliseconds.

    Only ``Group`` changes it. ``join_reply`` and ``sync_reply`` are set while a request of the member waits. Each is
    called once: by ``Group``, or by the caller of the method that takes it out.

    Attributes:
        is_new: the member waits in its first join. It has no id to send heartbeats with, so its deadline counts
            although it waits.
        counted: the bytes that its group counts for it.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    _: KW_ONLY
    is_new: bool = False
    join_reply: JoinReply | None = field(default=None, init=False)
    sync_reply: SyncReply | None = field(default=None, init=False)
    counted: int = field(default=0, init=False)

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
