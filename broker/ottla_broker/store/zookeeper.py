"""The coordination store of a cluster: ZooKeeper, through kazoo.

What a lost connection leaves open is settled here, as far as it can be: a read is asked again; after a change the
node is looked at, whether the change was made. In doubt (:class:`~ottla_broker.store.api.UnknownOutcomeError`) stay
a transaction of several operations, and any change when the connection doesn't come back in time. A session that
ZooKeeper has ended is final: whoever wants another opens another store.
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
    check_path,
)
from ottla_broker.store.zookeeper_link import LOSSES, Link, ReadMany
from ottla_broker.store.zookeeper_settings import Tls, ZooKeeperSettings, parse_connect
from ottla_broker.store.zookeeper_watches import Watch, Watches, tell

__all__ = ["Tls", "ZooKeeperSettings", "ZooKeeperStore"]

T = TypeVar("T")


class _Lost(Exception):
    """The connection broke with this request under way; ``zxid`` is what was known when it was sent."""

    def __init__(self, zxid: int) -> None:
        super().__init__("the connection broke")
        self.zxid = zxid


class _Unimplemented(StoreFailedError):
    """ZooKeeper is too old for this request."""


class _Unreachable(StoreFailedError):
    """The request was never sent, as there was no connection for too long."""


_ERRORS: Final[tuple[tuple[type[Exception], type[StoreError], str], ...]] = (
    (kazoo_errors.NoNodeError, NoNodeError, "is not there"),
    (kazoo_errors.NodeExistsError, NodeExistsError, "is there already"),
    (kazoo_errors.BadVersionError, BadVersionError, "has another version"),
    (kazoo_errors.NotEmptyError, NotEmptyError, "has children"),
    (kazoo_errors.NoChildrenForEphemeralsError, NoChildrenForEphemeralsError, "is ephemeral: no children"),
    (kazoo_errors.NoAuthError, StoreFailedError, "may not be touched by this user: see its ACL in ZooKeeper"),
    (kazoo_errors.AuthFailedError, StoreFailedError, "ZooKeeper refused the user or password"),
    (
        kazoo_errors.InvalidACLError,
        StoreFailedError,
        "ZooKeeper knows no user of this broker, whom zookeeper.set.acl could make its owner",
    ),
    (kazoo_errors.UnimplementedError, _Unimplemented, "can't be read with others"),
)
"""What ZooKeeper says, what a store says, and in which words."""

_MOST_BYTES: Final = 0xFFFFF
"""The largest request that ZooKeeper reads unless told otherwise (its ``jute.maxbuffer``); it hangs up at more."""

_OVERHEAD_BYTES: Final = 256  # of one change beside path and data: header, ACL, flags

_SEQUENCE_DIGITS: Final = 10

_READ_AT_ONCE: Final = 100
_READS_IN_FLIGHT: Final = 2
"""Of many nodes that are read, how many with one request, and how many such requests at a time."""

_MOST_LOSSES: Final = 10
"""How many connections one call may lose: what breaks each of them is not chance."""

_OPEN_PATH: Final = "/consumers"
_SECRET_PATHS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Kafka's ``ZkData``: what anybody may write, and what nobody else may even read, whatever is below."""


class ZooKeeperStore:
    """See :class:`ottla_broker.store.api.Store`. Owned by the loop thread."""

    def __init__(self, settings: ZooKeeperSettings, clock: Clock) -> None:
        """Use :meth:`open`."""
        self._settings = settings
        self._session_callbacks: dict[object, Callable[[SessionState], None]] = {}
        self._link = Link(settings, self._on_state, clock.monotonic)
        self._chroot = parse_connect(settings.connect).chroot
        self._watches = Watches(self._link, self._chroot)
        self._reads_many = True

    @classmethod
    async def open(cls, settings: ZooKeeperSettings, clock: Clock | None = None) -> ZooKeeperStore:
        """Connect and begin a session; the chroot is made if it isn't there.

        Raises:
            StoreFailedError: no server answers in time, the address or a file of TLS can't be read, or the chroot
                can't be made.
        """
        store = cls(settings, clock or SystemClock(asyncio.get_running_loop()))
        try:
            await store._link.open()
            if store._chroot:
                await store._make_chroot()
        except BaseException:
            # Whatever is still being tried ends by itself, soon.
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
        """Until when ZooKeeper can't have ended this session."""
        return self._link.lease

    @property
    def session_id(self) -> int:
        """ZooKeeper's number of this session, which its ephemeral nodes carry."""
        return self._link.session_id

    # ---- changes

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        """See the store's API. Without data a node is made as Kafka makes it: with none, not with an empty text,
        which its controller takes for JSON that is broken.

        A node in doubt that has this data, has never changed and was made since the request was sent counts as made
        by it, as does one that ends in a number for one with ``sequence``: who competes with others for a node
        writes into it what tells them apart.
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
                # Ours, if the answer to an earlier attempt was lost.
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
        """The node with a number that a lost request has made, if it did."""
        parent, _, prefix = path.rpartition("/")
        await self.sync(path)
        numbered = [
            name
            for name in await self.children(parent or "/")
            if name.startswith(prefix)
            and len(name) == len(prefix) + _SEQUENCE_DIGITS
            and name[len(prefix) :].isdigit()
        ]
        # Later ones have higher numbers: from the end to the first that is older than the request.
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

        In doubt, a node with this data and the version that follows counts as changed by it. A change of any version
        is made again then: the same data, but a higher version.
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
        """See the store's API. In doubt, a node that was made since the request was sent is left alone."""
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
            # Who reads now finds what has come of it.
            await self._sync_after_loss(path)
            raise UnknownOutcomeError(
                f"{path}: the connection to ZooKeeper broke while {len(operations)} changes were under way;"
                " whether they were made is not known"
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
                # ZooKeeper's check takes -1 for any version, as ours does.
                return serialization.CheckVersion(path, version)

    # ---- reading

    async def get(self, path: str) -> tuple[bytes, int]:
        data, stat = await self._stat(path)
        return data, stat.version

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """Several nodes, some at a time; None where a node isn't there."""
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
        if self._reads_many:
            try:
                found = await self._read(paths[0], request.start)
            except _Unimplemented:
                self._reads_many = False
            else:
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
        """The transaction that made a node (``czxid``), None where it isn't there.

        Kafka takes it as the epoch of a broker's registration (KIP-380).
        """
        stat = await self._exists(path)
        return None if stat is None else int(stat.czxid)

    async def ephemeral_owner(self, path: str) -> int | None:
        """The session that a node belongs to, 0 for none; None where there is no node."""
        stat = await self._exists(path)
        return None if stat is None else int(stat.ephemeralOwner)

    async def _exists(self, path: str) -> ZnodeStat | None:
        return await self._read(path, lambda client: client.exists_async(self._theirs(path)))

    async def _stat(self, path: str) -> tuple[bytes, ZnodeStat]:
        data, stat = await self._read(path, lambda client: client.get_async(self._theirs(path)))
        return data or b"", stat

    # ---- news

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
            tell(callback, state)

    async def close(self) -> None:
        await self._link.close()

    # ---- paths

    def _theirs(self, path: str) -> str:
        """A path of ours as ZooKeeper has it, below the chroot."""
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _ours(self, path: str) -> str:
        return path[len(self._chroot) :]

    def _acl(self, path: str) -> list[ACL]:
        if not self._settings.set_acl or path == _OPEN_PATH:
            return list(OPEN_ACL_UNSAFE)
        if path.startswith(_SECRET_PATHS):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    # ---- requests

    async def _settled(self, path: str, attempt: Callable[[int | None], Awaitable[T]]) -> T:
        """A change, made again until its outcome is known.

        ``attempt`` is called with what was known of ZooKeeper's transactions when the first request that was lost
        was sent; ``None`` if none was.
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
                raise UnknownOutcomeError(f"{error}; whether the change was made is not known") from error
        raise UnknownOutcomeError(
            f"{path}: the connection to ZooKeeper breaks again and again; whether the change was made is not known"
        )

    async def _read(self, path: str, start: Callable[[KazooClient], Any]) -> Any:
        """A request that may be asked any number of times."""
        for _ in range(_MOST_LOSSES):
            try:
                return await self._once(path, start)
            except _Lost:
                continue  # asked again when the connection is back
        raise _Unreachable(f"{path}: the connection to ZooKeeper breaks again and again")

    async def sync(self, path: str) -> None:
        """Have the server that we are connected to catch up with all that was done before."""
        await self._read(path, lambda client: client.sync_async(self._theirs(path)))

    async def _sync_after_loss(self, path: str) -> None:
        try:
            await self.sync(path)
        except SessionLostError:
            raise
        except StoreError:
            return  # there is an error to be raised, and this one tells nothing more

    async def _once(self, path: str, start: Callable[[KazooClient], Any]) -> Any:
        """One request and its answer.

        Raises:
            _Lost: it was sent, and the connection broke or no answer came in time.
            _Unreachable: it was not sent.
        """
        request = self._link.ask(start)
        try:
            async with asyncio.timeout(self._settings.connection_timeout_ms / 1000):
                return await request.future
        except TimeoutError as error:
            if request.sent:
                raise _Lost(request.zxid) from error
            raise _Unreachable(self._link.unreachable(path)) from error
        except LOSSES as error:
            raise _Lost(request.zxid) from error
        except kazoo_errors.SessionExpiredError as error:
            raise SessionLostError("the session with ZooKeeper is over") from error
        except kazoo_errors.KazooException as error:
            raise _translated(path, error) from error


def _size(path: str, data: bytes) -> int:
    return len(path.encode()) + len(data) + _OVERHEAD_BYTES


def _check_size(what: str, size: int) -> None:
    """Raises StoreFailedError for what ZooKeeper would hang up at."""
    if size > _MOST_BYTES:
        raise StoreFailedError(
            f"{what}: {size} bytes are more than ZooKeeper takes at once ({_MOST_BYTES}, its jute.maxbuffer)"
        )


def _translated(path: str, error: Exception) -> StoreError:
    for theirs, ours, words in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{path} {words}")
    return StoreFailedError(f"{path}: ZooKeeper answered {type(error).__name__} {error}".rstrip())
