"""The coordination store of a cluster: ZooKeeper, through kazoo.

After a lost connection, reads are repeated, and for a change the node shows whether the change was made. Two cases stay
unknown (:class:`~ottla_broker.store.api.UnknownOutcomeError`): a transaction of several operations, and any change if
the connection doesn't come back in time. A session that ZooKeeper has ended is final; open another store then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla_broker.clock import Clock, SystemClock
from ottla_broker.counters import Timings
from ottla_broker.store.api import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    Lease,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionLostError,
    SessionState,
    Set,
    StoreError,
    StoreEvent,
    StoreFailedError,
    UnknownOutcomeError,
    Watch,
    check_path,
)
from ottla_broker.store.zookeeper_link import LOSSES, Link, ReadMany
from ottla_broker.store.zookeeper_settings import SaslUser, Tls, ZooKeeperSettings, parse_connect
from ottla_broker.store.zookeeper_watches import Watches, notify

__all__ = ["SaslUser", "Tls", "ZooKeeperSettings", "ZooKeeperStore"]

T = TypeVar("T")


class _Lost(Exception):
    """The connection broke during this request; ``zxid`` is the last one known when it was sent."""

    def __init__(self, zxid: int) -> None:
        super().__init__("the connection broke")
        self.zxid = zxid


class _Unimplemented(StoreFailedError):
    """ZooKeeper is too old for this request."""


class _Unreachable(StoreFailedError):
    """The request was never sent, because there was no connection for too long."""


_ERRORS: Final[tuple[tuple[type[Exception], type[StoreError], str], ...]] = (
    (kazoo_errors.NoNodeError, NoNodeError, "does not exist"),
    (kazoo_errors.NodeExistsError, NodeExistsError, "exists already"),
    (kazoo_errors.BadVersionError, BadVersionError, "has another version"),
    (kazoo_errors.NotEmptyError, NotEmptyError, "has children"),
    (kazoo_errors.NoChildrenForEphemeralsError, NoChildrenForEphemeralsError, "is ephemeral: no children"),
    (kazoo_errors.NoAuthError, StoreFailedError, "can't be accessed by this user: see its ACL in ZooKeeper"),
    (kazoo_errors.AuthFailedError, StoreFailedError, "ZooKeeper refused the user or password"),
    (
        kazoo_errors.InvalidACLError,
        StoreFailedError,
        "can't be owned by this broker, which has no user in ZooKeeper: see zookeeper.set.acl",
    ),
    (kazoo_errors.UnimplementedError, _Unimplemented, "can't be read with others"),
)
"""Kazoo's errors, the store's, and the words after the path."""

_MOST_BYTES: Final = 0xFFFFF
"""The largest request that ZooKeeper accepts by default (``jute.maxbuffer``); it closes the connection at more."""

_OVERHEAD_BYTES: Final = 256  # per change besides path and data: header, ACL, flags

_SEQUENCE_DIGITS: Final = 10

_READ_AT_ONCE: Final = 100
_READS_IN_FLIGHT: Final = 2
"""Nodes per read request, and concurrent read requests."""

_MOST_LOSSES: Final = 10
"""How many lost connections one call survives; more of them have a cause."""

_OPEN_PATH: Final = "/consumers"
_SECRET_PATHS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Kafka's ``ZkData``: paths that anyone may write, and paths that only the owner may read."""


class ZooKeeperStore:
    """A :class:`ottla_broker.store.api.Store`. Owned by the loop thread.

    Attributes:
        timings: how long requests took that ZooKeeper answered.
    """

    def __init__(self, settings: ZooKeeperSettings, clock: Clock) -> None:
        """Use :meth:`open`."""
        self._settings = settings
        self._session_callbacks: dict[object, Callable[[SessionState], None]] = {}
        self._monotonic = clock.monotonic
        self._link = Link(settings, self._on_state, clock.monotonic)
        self.timings = Timings()
        self._chroot = parse_connect(settings.connect).chroot
        self._watches = Watches(self._link, self._chroot)
        self._reads_many: bool | None = None
        """Whether ZooKeeper knows ReadMany; None before the first one."""

    @classmethod
    async def open(cls, settings: ZooKeeperSettings, clock: Clock | None = None) -> ZooKeeperStore:
        """Connect and begin a session; creates the chroot if it doesn't exist.

        Raises:
            StoreFailedError: no server answers in time, the address or a file of TLS can't be read, or the chroot
                can't be created.
        """
        store = cls(settings, clock or SystemClock(asyncio.get_running_loop()))
        try:
            await store._link.open()
            if store._chroot:
                await store._make_chroot()
        except BaseException:
            # Attempts that are still running end by themselves soon.
            await store._link.close(wait=0.5)
            raise
        return store

    async def _make_chroot(self) -> None:
        if await self._read("/", lambda client: client.exists_async(self._chroot)) is None:
            chroot, self._chroot = self._chroot, ""
            try:
                await self._ensure(chroot)
            finally:
                self._chroot = chroot

    @property
    def state(self) -> SessionState:
        return self._link.state

    @property
    def lease(self) -> Lease:
        """The time until which ZooKeeper can't have ended this session."""
        return self._link.lease

    def abandon(self) -> None:
        """End the session while the event loop stands still; see :meth:`.Link.abandon`."""
        self._link.abandon()

    @property
    def session_id(self) -> int:
        """ZooKeeper's id of this session, which its ephemeral nodes name."""
        return self._link.session_id

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        """See the store's API. Without data the node has none, as in Kafka, whose controller can't parse empty text.

        When the outcome is unknown, a node with this data that was created since the request and never changed counts
        as created by it; with ``sequence``, so does one whose name ends in a number. Callers that compete for a node
        must write distinct data.
        """
        check_path(Create(path, data, ephemeral, sequence))
        _check_size(path, _size(path, data))

        async def attempt(lost: int | None) -> str:
            if lost is not None and sequence:
                made = await self._sequence_made(path, data, ephemeral, lost)
                if made is not None:
                    return made
            try:
                return self._ours(
                    await self._once(
                        path,
                        lambda client: client.create_async(
                            self._theirs(path),
                            data or None,
                            acl=self._acl(path),
                            ephemeral=ephemeral,
                            sequence=sequence,
                        ),
                    )
                )
            except NodeExistsError:
                # This call's own, if the answer to an earlier attempt was lost.
                if lost is not None and await self._was_made(path, data, ephemeral, lost):
                    return path
                raise

        try:
            return await self._settled(path, attempt)
        except NoNodeError:
            parent = path.rpartition("/")[0]
            if not parents or not parent:
                raise
            await self._ensure(parent)
            return await self._settled(path, attempt)

    async def _ensure(self, path: str) -> None:
        try:
            await self.create(path, parents=True)
        except NodeExistsError:
            return

    async def _was_made(self, path: str, data: bytes, ephemeral: bool, since: int) -> bool:
        try:
            found, stat = await self._stat(path)
        except NoNodeError:
            return False
        return bool(
            found == data
            and stat.version == 0
            and stat.czxid > since
            and stat.ephemeralOwner == (self.session_id if ephemeral else 0)
        )

    async def _sequence_made(self, path: str, data: bytes, ephemeral: bool, since: int) -> str | None:
        """The sequence node that a lost request created, if it did."""
        parent, _, prefix = path.rpartition("/")
        await self.sync(path)
        numbered = [
            name
            for name in await self.children(parent or "/")
            if name.startswith(prefix)
            and len(name) == len(prefix) + _SEQUENCE_DIGITS
            and name[len(prefix) :].isdigit()
        ]
        # Later nodes have higher numbers: search from the end to the first that is older than the request.
        for name in reversed(numbered):
            try:
                found, stat = await self._stat(f"{parent}/{name}")
            except NoNodeError:
                continue
            if stat.czxid <= since:
                return None
            if found == data and stat.ephemeralOwner == (self.session_id if ephemeral else 0):
                return f"{parent}/{name}"
        return None

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """See the store's API.

        When the outcome is unknown, a node with this data and the next version counts as changed by this call. A change
        of any version is repeated: the data is the same, the version higher.
        """
        _check_size(path, _size(path, data))

        async def attempt(lost: int | None) -> int:
            try:
                stat = await self._once(
                    path, lambda client: client.set_async(self._theirs(path), data, version)
                )
            except BadVersionError:
                if lost is not None and await self.get(path) == (data, version + 1):
                    return version + 1
                raise
            return int(stat.version)

        return await self._settled(path, attempt)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See the store's API. When the outcome is unknown, a node created since the request is left alone."""
        if path == "/":
            raise NotEmptyError("/ can't be deleted")

        async def attempt(lost: int | None) -> None:
            if lost is not None:
                await self.sync(path)
                made = await self.created_at(path)
                if made is None or made > lost:
                    return
            await self._once(path, lambda client: client.delete_async(self._theirs(path), version))

        await self._settled(path, attempt)

    async def transaction(self, operations: Sequence[Operation]) -> list[str | int | None]:
        if not operations:
            return []
        for operation in operations:
            check_path(operation)
        path = operations[0].path
        requests = [self._request(operation) for operation in operations]
        size = sum(len(request.serialize()) + _OVERHEAD_BYTES // 16 for request in requests)
        _check_size(f"{path} and {len(operations) - 1} more changes", size + _OVERHEAD_BYTES)

        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            transaction.operations.extend(requests)
            return transaction.commit_async()

        try:
            results = await self._once(path, start)
        except _Lost as error:
            # A read from here on shows the outcome.
            await self._sync_after_loss(path)
            raise UnknownOutcomeError(
                f"{path}: the connection to ZooKeeper broke during {len(operations)} changes;"
                " it is unknown whether they were made"
            ) from error
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(
                result, kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency
            ):
                raise _translated(operation.path, result)
        return [
            self._ours(result)
            if isinstance(operation, Create)
            else result.version
            if isinstance(operation, Set)
            else None
            for operation, result in zip(operations, results, strict=True)
        ]

    def _request(self, operation: Operation) -> Any:
        path = self._theirs(operation.path)
        match operation:
            case Create(_, data, ephemeral, sequence):
                flags = ephemeral | sequence << 1
                return serialization.Create(path, data or None, self._acl(operation.path), flags)
            case Set(_, data, version):
                return serialization.SetData(path, data, version)
            case Delete(_, version):
                return serialization.Delete(path, version)
            case Check(_, version):
                # ZooKeeper's check also takes -1 for any version.
                return serialization.CheckVersion(path, version)

    async def get(self, path: str) -> tuple[bytes, int]:
        data, stat = await self._stat(path)
        return data, stat.version

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """Several nodes, some at a time; None for a missing node."""
        found: list[tuple[bytes, int] | None] = [None] * len(paths)

        async def some(starts: Iterable[int]) -> None:
            for start in starts:
                chosen = paths[start : start + _READ_AT_ONCE]
                found[start : start + len(chosen)] = await self._get_some(chosen)

        starts = iter(range(0, len(paths), _READ_AT_ONCE))
        tasks = [asyncio.ensure_future(some(starts)) for _ in range(_READS_IN_FLIGHT)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return found

    async def _get_some(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        request = ReadMany([self._theirs(path) for path in paths])
        if self._reads_many is not False:
            try:
                found = await self._read(paths[0], request.start, is_alone=self._reads_many is None)
            except _Unimplemented:
                self._reads_many = False
            else:
                self._reads_many = True
                for path, node in zip(paths, found, strict=True):
                    if isinstance(node, Exception):
                        raise _translated(path, node)
                return list(found)
        one_by_one: list[tuple[bytes, int] | None] = []
        for path in paths:
            try:
                one_by_one.append(await self.get(path))
            except NoNodeError:
                one_by_one.append(None)
        return one_by_one

    async def children(self, path: str) -> list[str]:
        return sorted(await self._read(path, lambda client: client.get_children_async(self._theirs(path))))

    async def exists(self, path: str) -> bool:
        return await self._exists(path) is not None

    async def created_at(self, path: str) -> int | None:
        """The transaction that created a node (``czxid``), or None if it doesn't exist.

        Kafka uses it as the epoch of a broker's registration (KIP-380).
        """
        stat = await self._exists(path)
        return None if stat is None else int(stat.czxid)

    async def ephemeral_owner(self, path: str) -> int | None:
        """The session that a node belongs to, 0 for none; None if the node doesn't exist."""
        stat = await self._exists(path)
        return None if stat is None else int(stat.ephemeralOwner)

    async def _exists(self, path: str) -> ZnodeStat | None:
        return await self._read(path, lambda client: client.exists_async(self._theirs(path)))

    async def _stat(self, path: str) -> tuple[bytes, ZnodeStat]:
        data, stat = await self._read(path, lambda client: client.get_async(self._theirs(path)))
        return data or b"", stat

    def watch(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        return self._watches.add(path, callback)

    def watch_session(self, callback: Callable[[SessionState], None]) -> Watch:
        key = object()
        self._session_callbacks[key] = callback
        return Watch(lambda: self._session_callbacks.pop(key, None) and None)

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._watches.clear()
        for callback in list(self._session_callbacks.values()):
            notify(callback, state)

    async def close(self) -> None:
        await self._link.close()

    def _theirs(self, path: str) -> str:
        """A path in ZooKeeper, below the chroot."""
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _ours(self, path: str) -> str:
        return path[len(self._chroot) :]

    def _acl(self, path: str) -> list[ACL]:
        if not self._settings.set_acl or path == _OPEN_PATH:
            return list(OPEN_ACL_UNSAFE)
        if path.startswith(_SECRET_PATHS):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    async def _settled(self, path: str, attempt: Callable[[int | None], Awaitable[T]]) -> T:
        """Repeat a change until its outcome is known.

        ``attempt`` is called with the last zxid known when the first lost request was sent; ``None`` if none was lost.
        """
        lost: int | None = None
        for _ in range(_MOST_LOSSES):
            try:
                return await attempt(lost)
            except _Lost as error:
                lost = error.zxid if lost is None else lost
            except _Unreachable as error:
                if lost is None:
                    raise
                raise UnknownOutcomeError(f"{error}; it is unknown whether the change was made") from error
        raise UnknownOutcomeError(
            f"{path}: the connection to ZooKeeper keeps breaking; it is unknown whether the change was made"
        )

    async def _read(self, path: str, start: Callable[[KazooClient], Any], *, is_alone: bool = False) -> Any:
        """A request that may be repeated."""
        for _ in range(_MOST_LOSSES):
            try:
                return await self._once(path, start, is_alone=is_alone)
            except _Lost:
                continue  # repeat when the connection is back
        raise _Unreachable(f"{path}: the connection to ZooKeeper keeps breaking")

    async def sync(self, path: str) -> None:
        """Let the connected server catch up with all earlier changes."""
        await self._read(path, lambda client: client.sync_async(self._theirs(path)))

    async def _sync_after_loss(self, path: str) -> None:
        try:
            await self.sync(path)
        except SessionLostError:
            raise
        except StoreError:
            return  # the caller raises the first error

    async def _once(self, path: str, start: Callable[[KazooClient], Any], *, is_alone: bool = False) -> Any:
        """One request and its answer.

        Raises:
            _Lost: it was sent, and the connection broke or no answer came in time.
            _Unreachable: it was not sent.
        """
        request, since = self._link.request(start, is_alone=is_alone), self._monotonic()
        try:
            async with asyncio.timeout(self._settings.connection_timeout_ms / 1000):
                answer = await request.future
            self.timings.add(self._monotonic() - since)
            return answer
        except TimeoutError as error:
            if request.sent:
                raise _Lost(request.zxid) from error
            raise _Unreachable(self._link.unreachable(path)) from error
        except LOSSES as error:
            raise _Lost(request.zxid) from error
        except kazoo_errors.SessionExpiredError as error:
            raise SessionLostError("the session with ZooKeeper has ended") from error
        except kazoo_errors.KazooException as error:
            raise _translated(path, error) from error


def _size(path: str, data: bytes) -> int:
    return len(path.encode()) + len(data) + _OVERHEAD_BYTES


def _check_size(what: str, size: int) -> None:
    """Raises StoreFailedError for a request at which ZooKeeper would close the connection."""
    if size > _MOST_BYTES:
        raise StoreFailedError(
            f"{what}: {size} bytes are more than ZooKeeper accepts at once ({_MOST_BYTES}, its jute.maxbuffer)"
        )


def _translated(path: str, error: Exception) -> StoreError:
    for theirs, ours, words in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{path} {words}")
    return StoreFailedError(f"{path}: ZooKeeper answered {type(error).__name__} {error}".rstrip())
