"""The interface that the group's algorithms need of ZooKeeper; `zookeeper` provides it, tests have one in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

OnChange: TypeAlias = Callable[[], None]
"""Called once when what was read has changed, and also when the connection was lost, because changes may be missed."""


class Registry(Protocol):
    """A session's view of ZooKeeper. Owned by the event loop's thread. Every call raises ZooKeeperError."""

    on_lost: Callable[[], None]
    """Called when the session may have ended, so that its ephemeral nodes may be gone and owned by others."""
    on_session: Callable[[], None]
    """Called when there is a connection again, of the same session or of a new one."""

    @property
    def session(self) -> int:
        """The session's number; a new session has another one."""

    async def read(self, path: str, watch: OnChange | None = None) -> bytes | None:
        """A node's data, None if there is no node. ``watch`` also waits for its creation."""

    async def children(self, path: str, watch: OnChange | None = None) -> list[str]:
        """The names of a node's children, none if there is no node. ``watch`` also waits for its creation."""

    async def claim(self, path: str, data: bytes) -> bool:
        """Create an ephemeral node, and the nodes above it; False if another session has it.

        A node of this session keeps its place and gets the data.
        """

    async def release(self, path: str) -> None:
        """Delete an ephemeral node if this session has created it; otherwise do nothing."""

    async def remove_persistent(self, path: str) -> bool:
        """Delete a node that no session has created; False if there is none."""

    async def write(self, path: str, data: bytes) -> None:
        """Set a persistent node's data; creates it, and the nodes above it, if necessary."""

    async def remove_tree(self, path: str) -> None:
        """Delete a node with everything below it, if it exists."""
