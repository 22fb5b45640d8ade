"""The coordination store of a cluster: ZooKeeper, through kazoo.

kazoo runs threads of its own; everything that it says is handed to the event loop, which never waits for them.

What a lost connection leaves open is settled here, as far as it can be: a read is asked again; after a change the
node is looked at, whether the change was made. Only a transaction of several operations can stay in doubt
(:class:`~ottla_broker.store.api.UnknownOutcomeError`). A session that ZooKeeper has ended is final: whoever
wants another opens another store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla_broker.events import get_logger
from ottla_broker.store.api import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
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

log = get_logger()

_ERRORS: Final[tuple[tuple[type[Exception], type[StoreError], str], ...]] = (
    (kazoo_errors.NoNodeError, NoNodeError, "is not there"),
    (kazoo_errors.NodeExistsError, NodeExistsError, "is there already"),
    (kazoo_errors.BadVersionError, BadVersionError, "has another version"),
    (kazoo_errors.NotEmptyError, NotEmptyError, "has children"),
    (kazoo_errors.NoChildrenForEphemeralsError, NoChildrenForEphemeralsError, "is ephemeral: no children"),
    (kazoo_errors.NoAuthError, StoreFailedError, "may not be touched by this user: see its ACL in ZooKeeper"),
    (kazoo_errors.AuthFailedError, StoreFailedError, "ZooKeeper refused the user or password"),
)
"""What ZooKeeper says, what a store says, and in which words."""

_LOSSES: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.ConnectionClosedError,
)
"""The connection broke: whether a change that was under way has been made is not known."""

_KINDS: Final = {
    EventType.CREATED: EventKind.CREATED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHILD: EventKind.CHILDREN,
}

# A lost request is sent again at once when the connection is back; this keeps a flapping one from spinning.
_RETRY_SECONDS: Final = 0.05

# kazoo's own remarks: what matters of them is told by this module's events.
_silent = logging.getLogger("ottla.kazoo")
_silent.propagate = False
_silent.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS towards ZooKeeper: PEM files. Without ``ca_file`` no certificate would be trusted."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """Where ZooKeeper is, and how it is spoken to.

    Attributes:
        connect: ``HOST:PORT,HOST:PORT/chroot``, as in Kafka's ``zookeeper.connect``.
        session_timeout_ms: after how long without a sign of life ZooKeeper ends the session.
        connection_timeout_ms: how long the first connection, and any request, may take.
        set_acl: whether new nodes may be changed by this user alone (all may read them).
        digest: user and password for ZooKeeper's scheme ``digest``.
    """

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    set_acl: bool = False
    digest: tuple[str, str] | None = None
    tls: Tls | None = None


class _Lost(Exception):
    """The connection broke with this request under way."""


class _Watch:
    __slots__ = ("_remove",)

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove = remove

    def cancel(self) -> None:
        self._remove()


class _WatchedPath:
    """One path's callbacks and ZooKeeper's one-shot watches under them.

    ``data`` and ``children`` say whether ZooKeeper's watch is set; ``fired`` whether one has fired since the
    requests that set them went out; ``news`` is what is to be told once both are set again, so that who reads
    then misses nothing.
    """

    __slots__ = ("callbacks", "children", "data", "fired", "news", "setting")

    def __init__(self) -> None:
        self.callbacks: dict[object, Callable[[StoreEvent], None]] = {}
        self.data = False
        self.children = False
        self.fired = False
        self.news: dict[EventKind, None] = {}
        self.setting: asyncio.Task[None] | None = None


class ZooKeeperStore:
    """See :class:`ottla_broker.store.api.Store`. Owned by the loop thread."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        """Use :meth:`open`."""
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._state = SessionState.SUSPENDED
        self._connected = asyncio.Event()
        self._watched: dict[str, _WatchedPath] = {}
        self._session_callbacks: dict[object, Callable[[SessionState], None]] = {}
        self._stopped: asyncio.Future[None] | None = None
        tls = settings.tls
        self._client = KazooClient(
            hosts=settings.connect,
            timeout=settings.session_timeout_ms / 1000,
            default_acl=_acl(settings),
            auth_data=[("digest", ":".join(settings.digest))] if settings.digest else None,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0, "backoff": 2},
            logger=_silent,
            **(
                {}
                if tls is None
                else {
                    "use_ssl": True,
                    "ca": tls.ca_file,
                    "certfile": tls.cert_file,
                    "keyfile": tls.key_file,
                    "keyfile_password": tls.key_password,
                    "check_hostname": tls.verify_hostname,
                }
            ),
        )
        self._client.add_listener(self._on_kazoo_state)

    @classmethod
    async def open(cls, settings: ZooKeeperSettings) -> ZooKeeperStore:
        """Connect and begin a session; the chroot is made if it isn't there.

        Raises:
            StoreFailedError: no server answers in time, or the address can't be read.
        """
        try:
            store = cls(settings)
        except (ValueError, OSError) as error:
            raise StoreFailedError(f"zookeeper.connect={settings.connect}: {error}") from error
        try:
            store._client.start_async()
            try:
                async with asyncio.timeout(settings.connection_timeout_ms / 1000):
                    await store._connected.wait()
            except TimeoutError:
                raise StoreFailedError(
                    f"no ZooKeeper answers at zookeeper.connect={settings.connect} within"
                    f" {settings.connection_timeout_ms} ms (zookeeper.connection.timeout.ms)"
                ) from None
            if store._state is SessionState.LOST:
                raise StoreFailedError(f"ZooKeeper at {settings.connect} refused the session")
            await store._retried("/", lambda: store._client.ensure_path_async("/"))
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def session_id(self) -> int:
        """ZooKeeper's number of this session, which its ephemeral nodes carry."""
        found = self._client.client_id
        return 0 if found is None else int(found[0])

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
        check_path(Create(path, data, ephemeral, sequence))
        parent = path.rpartition("/")[0]
        if parents and parent:
            await self._retried(parent, lambda: self._client.ensure_path_async(parent))

        def start() -> Any:
            return self._client.create_async(path, data, ephemeral=ephemeral, sequence=sequence)

        tried = False
        while True:
            try:
                return str(await self._once(path, start))
            except _Lost:
                tried = True
                await self._reconnected(path)
            except NodeExistsError:
                # Ours, if the answer to an earlier attempt was lost.
                if tried and not sequence and await self._is_ours(path, data, ephemeral):
                    return path
                raise

    async def _is_ours(self, path: str, data: bytes, ephemeral: bool) -> bool:
        try:
            found, stat = await self._retried(path, lambda: self._client.get_async(path))
        except NoNodeError:
            return False
        return bool(
            found == data
            and stat.version == 0
            and stat.ephemeralOwner == (self.session_id if ephemeral else 0)
        )

    async def get(self, path: str) -> tuple[bytes, int]:
        data, stat = await self._retried(path, lambda: self._client.get_async(path))
        return data, stat.version

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """Several nodes, asked for all at once; None where a node isn't there."""

        async def one(path: str) -> tuple[bytes, int] | None:
            try:
                return await self.get(path)
            except NoNodeError:
                return None

        return list(await asyncio.gather(*map(one, paths)))

    async def created_at(self, path: str) -> int | None:
        """The transaction that made a node (``czxid``), None where it isn't there.

        Kafka takes it as the epoch of a broker's registration (KIP-380).
        """
        stat = await self._retried(path, lambda: self._client.exists_async(path))
        return None if stat is None else int(stat.czxid)

    async def ephemeral_owner(self, path: str) -> int | None:
        """The session that a node belongs to, 0 for none; None where there is no node."""
        stat = await self._retried(path, lambda: self._client.exists_async(path))
        return None if stat is None else int(stat.ephemeralOwner)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        tried = False
        while True:
            try:
                stat = await self._once(path, lambda: self._client.set_async(path, data, version))
                return int(stat.version)
            except _Lost:
                tried = True
                await self._reconnected(path)
            except BadVersionError:
                if tried and await self.get(path) == (data, version + 1):
                    return version + 1
                raise

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        if path == "/":
            raise NotEmptyError("/ can't be deleted")
        tried = False
        while True:
            try:
                await self._once(path, lambda: self._client.delete_async(path, version))
                return
            except _Lost:
                tried = True
                await self._reconnected(path)
            except NoNodeError:
                if tried:
                    return
                raise

    async def children(self, path: str) -> list[str]:
        return sorted(await self._retried(path, lambda: self._client.get_children_async(path)))

    async def exists(self, path: str) -> bool:
        return await self._retried(path, lambda: self._client.exists_async(path)) is not None

    async def transaction(self, operations: Sequence[Operation]) -> list[str | int | None]:
        if not operations:
            return []
        request = self._client.transaction()
        for operation in operations:
            check_path(operation)
            match operation:
                case Create(path, data, ephemeral, sequence):
                    request.create(path, data, ephemeral=ephemeral, sequence=sequence)
                case Set(path, data, version):
                    request.set_data(path, data, version)
                case Delete(path, version):
                    request.delete(path, version)
                case Check(path, version):
                    # ZooKeeper's check takes -1 for any version, as ours does.
                    request.check(path, version)
        path = operations[0].path
        try:
            results = await self._once(path, request.commit_async)
        except _Lost as error:
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
            result
            if isinstance(operation, Create)
            else result.version
            if isinstance(operation, Set)
            else None
            for operation, result in zip(operations, results, strict=True)
        ]

    # ---- news

    def watch(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        self._check_session()
        watched = self._watched.setdefault(path, _WatchedPath())
        key = object()
        watched.callbacks[key] = callback
        self._set_watches(path, watched)

        def remove() -> None:
            watched.callbacks.pop(key, None)
            if not watched.callbacks and self._watched.get(path) is watched:
                # ZooKeeper's own watches stay until they fire, and then find nobody.
                del self._watched[path]

        return _Watch(remove)

    def watch_session(self, callback: Callable[[SessionState], None]) -> Watch:
        key = object()
        self._session_callbacks[key] = callback
        return _Watch(lambda: self._session_callbacks.pop(key, None) and None)

    def _set_watches(self, path: str, watched: _WatchedPath) -> None:
        """Have ZooKeeper's watches of a path set, and then the news told.

        The requests go out at once, so that nothing asked for after this call comes before the watches.
        """
        if watched.setting is None and self._state is SessionState.CONNECTED:
            watched.setting = self._loop.create_task(
                self._finish_setting(path, watched, self._start_setting(path, watched))
            )

    def _start_setting(self, path: str, watched: _WatchedPath) -> list[tuple[str, Any]]:
        """Send the requests that set what isn't set; reading a node or its children is what does it."""
        started = []
        watched.fired = False
        for flag, request in (
            ("data", self._client.exists_async),
            ("children", self._client.get_children_async),
        ):
            if not getattr(watched, flag):
                setattr(watched, flag, True)
                fired = partial(self._loop_call, self._on_event, path, watched, flag)
                started.append((flag, request(path, watch=fired)))
        return started

    async def _finish_setting(self, path: str, watched: _WatchedPath, started: list[tuple[str, Any]]) -> None:
        try:
            while True:
                for flag, request in started:
                    try:
                        await self._once(path, partial(_itself, request))
                    except NoNodeError:
                        # No children to be told of. When the node is made, the other watch says so.
                        setattr(watched, flag, False)
                    except _Lost:
                        setattr(watched, flag, False)
                        return  # the connection's return begins anew
                fired, watched.fired = watched.fired, False
                news = list(watched.news)
                if not fired:
                    watched.news.clear()
                for kind in news:
                    for callback in list(watched.callbacks.values()):
                        _tell(callback, StoreEvent(kind, path))
                if not fired or not watched.callbacks:
                    return
                # Told all the same, lest a node that changes without end were never told of; and once more when
                # the watch is set again.
                started = self._start_setting(path, watched)
        except StoreError as error:
            log.warning("watch not set", path=path, reason=str(error))
        finally:
            watched.setting = None

    def _on_event(self, path: str, watched: _WatchedPath, flag: str, event: WatchedEvent) -> None:
        """One of ZooKeeper's watches has fired: on the loop, told by kazoo's thread."""
        setattr(watched, flag, False)
        kind = _KINDS.get(event.type)
        if kind is None:
            # The connection broke, and with it the watch: anything may have happened by the time it is back.
            kind = EventKind.CHANGED if flag == "data" else EventKind.CHILDREN
        watched.news[kind] = None
        watched.fired = True
        self._set_watches(path, watched)

    # ---- the session

    def _loop_call(self, function: Callable[..., None], *args: Any) -> None:
        """From kazoo's threads: have something done on the loop."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop has been closed: nobody is left to be told.
            return

    def _on_kazoo_state(self, state: str) -> None:
        self._loop_call(self._on_state, state)

    def _on_state(self, state: str) -> None:
        if self._state is SessionState.LOST:
            return
        if state == KazooState.CONNECTED:
            self._become(SessionState.CONNECTED)
            self._connected.set()
            for path, watched in list(self._watched.items()):
                self._set_watches(path, watched)
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
            self._become(SessionState.SUSPENDED)
        else:
            self._lose()

    def _lose(self) -> None:
        if self._state is SessionState.LOST:
            return
        self._become(SessionState.LOST)
        # Who waits for the connection goes on, and finds that the session is over.
        self._connected.set()
        self._watched.clear()
        self._stop()

    def _become(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        for callback in list(self._session_callbacks.values()):
            _tell(callback, state)

    def _stop(self) -> asyncio.Future[None]:
        """Have kazoo end the session and its threads, which may take it a while."""
        if self._stopped is None:

            def stop() -> None:
                self._client.stop()
                self._client.close()

            self._stopped = self._loop.run_in_executor(None, stop)
        return self._stopped

    async def close(self) -> None:
        self._lose()
        await self._stop()

    def _check_session(self) -> None:
        if self._state is SessionState.LOST:
            raise SessionLostError("the session with ZooKeeper is over")

    # ---- requests

    async def _retried(self, path: str, start: Callable[[], Any]) -> Any:
        """A request that may be asked any number of times."""
        while True:
            try:
                return await self._once(path, start)
            except _Lost:
                await self._reconnected(path)

    async def _reconnected(self, path: str) -> None:
        """Wait for the connection to come back, as long as a request may take."""
        await asyncio.sleep(_RETRY_SECONDS)
        try:
            async with asyncio.timeout(self._settings.connection_timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            raise StoreFailedError(
                f"{path}: no ZooKeeper answers at {self._settings.connect} since"
                f" {self._settings.connection_timeout_ms} ms"
            ) from None
        self._check_session()

    async def _once(self, path: str, start: Callable[[], Any]) -> Any:
        """One request and its answer. Raises _Lost where the connection broke."""
        self._check_session()
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle(result: Any) -> None:
            if future.done():
                return
            error = result.exception
            if error is None:
                future.set_result(result.value)
            else:
                future.set_exception(error)

        try:
            start().rawlink(partial(self._loop_call, settle))
            return await future
        except _LOSSES as error:
            self._check_session()
            raise _Lost from error
        except kazoo_errors.SessionExpiredError as error:
            self._lose()
            raise SessionLostError("the session with ZooKeeper is over") from error
        except kazoo_errors.KazooException as error:
            raise _translated(path, error) from error


def _itself(request: Any) -> Any:
    return request


def _acl(settings: ZooKeeperSettings) -> list[ACL]:
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if settings.set_acl else list(OPEN_ACL_UNSAFE)


def _translated(path: str, error: Exception) -> StoreError:
    for theirs, ours, words in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{path} {words}")
    return StoreFailedError(f"{path}: ZooKeeper answered {type(error).__name__} {error}".rstrip())


def _tell(callback: Callable[[Any], None], news: object) -> None:
    """A watcher that fails harms nobody else."""
    try:
        callback(news)
    except Exception as error:
        log.error("a watcher failed", news=str(news), exc_info=error)
