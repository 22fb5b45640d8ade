"""The coordination store: a tree of small nodes like ZooKeeper's.

Paths are absolute (``/brokers/ids/1``). A node has data and a version that counts its changes. Ephemeral nodes
disappear with the session that created them. A change is durable before the call returns.

The implementations are :class:`~ottla_broker.store.embedded.EmbeddedStore` and
:class:`~ottla_broker.store.zookeeper.ZooKeeperStore`; the same behaviour tests in ``tests/store`` cover both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from math import inf
from typing import Final, NamedTuple, Protocol

ANY_VERSION: Final = -1


class StoreError(Exception):
    """The store refused a request or could not carry it out; the message names the path."""


class NoNodeError(StoreError):
    """The node, or the parent of a node to create, doesn't exist."""


class NodeExistsError(StoreError):
    """The node to create exists already."""


class BadVersionError(StoreError):
    """The node doesn't have the given version."""


class NotEmptyError(StoreError):
    """The node to delete has children."""


class NoChildrenForEphemeralsError(StoreError):
    """An ephemeral node can have no children."""


class SessionLostError(StoreError):
    """The session has ended, and its ephemeral nodes are gone."""


class StoreFailedError(StoreError):
    """The change could not be made durable (full disk, I/O error) and did not happen."""


class UnknownOutcomeError(StoreError):
    """The connection broke during a transaction: either all or none of it was done. Read the nodes again."""


class Create(NamedTuple):
    """Create a node. ``sequence`` appends a ten-digit number that is unique under its parent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """Replace a node's data if it has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a node if it has this version and no children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Require that a node exists with this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check


# Characters that ZooKeeper refuses in paths: control characters, surrogates, and all beyond the basic plane.
_NOT_IN_PATHS: Final = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]|/[.]{1,2}(?:/|$)|//")


def is_path(path: str) -> bool:
    return path == "/" or (
        path.startswith("/") and not path.endswith("/") and _NOT_IN_PATHS.search(path) is None
    )


def check_path(operation: Operation) -> None:
    """Raise ValueError for a path that no node can have, or that can't be created."""
    path = operation.path
    if type(operation) is Create:
        # A name may consist of the sequence number alone.
        named = f"{path}0" if operation.sequence else path
        if path == "/" and not operation.sequence:
            named = ""
    else:
        named = path
    if not is_path(named):
        raise ValueError(f"{path!r} is not a path of the store")


class EventKind(Enum):
    """An event of a watched path."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class StoreEvent(NamedTuple):
    """A change at a path. Several changes may come as one event, so read the node again."""

    kind: EventKind
    path: str


class SessionState(Enum):
    """The state of the session with the store. LOST is final."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Lease:
    """The time until which the store can't have ended a session, even if it is unreachable now.

    It counts from when the last answered request was sent; the store received that request later.

    Attributes:
        until: on the monotonic clock, in seconds. May be read from any thread.
    """

    __slots__ = ("until",)

    def __init__(self, until: float = -inf) -> None:
        self.until = until


class Watch(NamedTuple):
    """A subscription; ``cancel`` stops the callbacks. Cancelling twice does nothing."""

    cancel: Callable[[], None]


class Store(Protocol):
    """Keeps the cluster's state. Owned by the loop thread; callbacks run on it.

    Every method raises :class:`SessionLostError` once the session has ended.
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
        """Create a node and return its path, which with ``sequence`` ends in a number.

        ``parents`` also creates the missing nodes above it, without data.

        Raises NodeExistsError, NoNodeError (the parent), NoChildrenForEphemeralsError, StoreFailedError.
        """

    async def get(self, path: str) -> tuple[bytes, int]:
        """A node's data and version. Raises NoNodeError."""

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """Nodes' data and versions; None for a missing node."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace a node's data; returns its new version. Raises NoNodeError, BadVersionError, StoreFailedError."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node. Raises NoNodeError, BadVersionError, NotEmptyError, StoreFailedError."""

    async def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted. Raises NoNodeError."""

    async def exists(self, path: str) -> bool: ...

    async def transaction(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """Do all operations, in order and durably, or none.

        Returns each operation's result: a path for Create, a version for Set, otherwise ``None``.

        Raises:
            The error of the first operation that fails; nothing has changed then.
        """

    def watch(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        """Call back for each durable change of a node, which need not exist, and of its children, until cancelled."""

    def watch_session(self, callback: Callable[[SessionState], None]) -> Watch:
        """Call back for changes of the session's state until cancelled."""

    async def close(self) -> None:
        """End the session and remove its ephemeral nodes."""


async def children_of(store: Store, path: str) -> list[str]:
    """The names of a node's children, sorted; none if there is no node. Raises StoreError."""
    try:
        return await store.children(path)
    except NoNodeError:
        return []
