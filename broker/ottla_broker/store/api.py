"""The coordination store: a tree of small nodes, as ZooKeeper has it, behind an interface of ours.

Paths are absolute (``/brokers/ids/1``); a node has data and a version that counts its changes. Ephemeral
nodes go with the session that made them. Everything that changes the tree is durable before the call
returns.

Implementations: :class:`ottla_broker.store.embedded.EmbeddedStore`; the behaviour tests in ``tests/store``
are written against this interface and hold for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from math import inf
from typing import Final, NamedTuple, Protocol

ANY_VERSION: Final = -1


class StoreError(Exception):
    """Something the store refused or could not do; the message names the path."""


class NoNodeError(StoreError):
    """The node, or the parent of a node to be created, isn't there."""


class NodeExistsError(StoreError):
    """The node to be created is there already."""


class BadVersionError(StoreError):
    """The node has changed since the version that was named."""


class NotEmptyError(StoreError):
    """The node to be deleted has children."""


class NoChildrenForEphemeralsError(StoreError):
    """An ephemeral node can have no children."""


class SessionLostError(StoreError):
    """The session is over; its ephemeral nodes are gone and nothing more can be asked of it."""


class StoreFailedError(StoreError):
    """The change could not be made durable (full disk, I/O error) and did not happen."""


class UnknownOutcomeError(StoreError):
    """The connection broke while several changes were under way together: made or not, all or none. Read anew."""


class Create(NamedTuple):
    """Make a node. ``sequence`` appends a ten-digit number that its parent never gives twice."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """Replace a node's data, if it has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a node, if it has this version and no children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Demand that a node is there, with this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check


# What ZooKeeper has in no path: control characters, what isn't text, and all beyond the basic plane.
_NOT_IN_PATHS: Final = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]|/[.]{1,2}(?:/|$)|//")


def is_path(path: str) -> bool:
    """Whether this can be the path of a node."""
    return path == "/" or (
        path.startswith("/") and not path.endswith("/") and _NOT_IN_PATHS.search(path) is None
    )


def check_path(operation: Operation) -> None:
    """Raise ValueError for what is no path of a node, or none that can be made."""
    path = operation.path
    if type(operation) is Create:
        # The number of a sequence may be all that there is of a name.
        named = f"{path}0" if operation.sequence else path
        if path == "/" and not operation.sequence:
            named = ""
    else:
        named = path
    if not is_path(named):
        raise ValueError(f"{path!r} is not a path of the store")


class EventKind(Enum):
    """What happened to a watched path."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class StoreEvent(NamedTuple):
    """News of a path. Several changes may come as one event: who is told reads anew."""

    kind: EventKind
    path: str


class SessionState(Enum):
    """What the session with the store is like. LOST is final."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Lease:
    """Until when a session can't have been ended by the store, whatever has become of the way there.

    Counted from when the last request that was answered was sent: the store heard of this broker later than that.

    Attributes:
        until: on the monotonic clock, in seconds. May be read from any thread.
    """

    __slots__ = ("until",)

    def __init__(self, until: float = -inf) -> None:
        self.until = until


class Watch(Protocol):
    """A standing order for news."""

    def cancel(self) -> None:
        """No more calls from now on. Cancelling twice does nothing."""
        ...


class Store(Protocol):
    """What the broker keeps its cluster's state in. Owned by the loop thread; callbacks run on it.

    Every method raises :class:`SessionLostError` once the session is over.
    """

    @property
    def state(self) -> SessionState: ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        """Make a node and return its path, which with ``sequence`` has a number at its end.

        ``parents`` makes the missing nodes above it too, empty.

        Raises:
            NodeExistsError, NoNodeError (the parent), NoChildrenForEphemeralsError, StoreFailedError.
        """
        ...

    async def get(self, path: str) -> tuple[bytes, int]:
        """A node's data and version. Raises NoNodeError."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace a node's data; returns its new version.

        Raises:
            NoNodeError, BadVersionError, StoreFailedError.
        """
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node. Raises NoNodeError, BadVersionError, NotEmptyError, StoreFailedError."""
        ...

    async def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted. Raises NoNodeError."""
        ...

    async def exists(self, path: str) -> bool: ...

    async def transaction(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """Do all of these or none, in order, durable together.

        Returns for each what its own method would: a path for Create, a version for Set, ``None`` otherwise.

        Raises:
            The first operation's error that can't be done; nothing has changed then.
        """
        ...

    def watch(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        """Have news of a node (there or not) and of its children told, once durable, until cancelled."""
        ...

    def watch_session(self, callback: Callable[[SessionState], None]) -> Watch:
        """Have changes of the session's state told until cancelled."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes go."""
        ...
