"""The registry in ZooKeeper: kazoo's client, and the exchange between the event loop and kazoo's threads.

kazoo keeps the session; when ZooKeeper has ended it, kazoo begins another one by itself. This module repeats requests
whose connection broke, which is safe because each of them may be done twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..deadline import Deadline
from ..errors import ClosedError, ConfigurationError, ConnectError, ZooKeeperError
from .registry import OnChange

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_log = logging.getLogger("ottla_client")

_STOP_SECONDS: Final = 10.0


def _nothing() -> None:
    """Replaced by the consumer."""


class ZooKeeper:
    """A connection to ZooKeeper. Owned by the event loop's thread; kazoo's threads only pass results to it."""

    def __init__(self, connect: str, session_timeout_ms: int, connection_timeout_ms: int) -> None:
        """``connect`` is ``HOST:PORT,HOST:PORT/chroot``. Raises ConfigurationError if it isn't, and without kazoo."""
        try:
            from kazoo import exceptions
            from kazoo.client import KazooClient
            from kazoo.protocol.states import KazooState
        except ImportError as error:
            raise ConfigurationError(
                "ZooKeeper needs the package kazoo: pip install 'ottla[zookeeper]'"
            ) from error
        if not connect or not connect.strip():
            raise ConfigurationError("zookeeper_connect is empty; give HOST:PORT,HOST:PORT/chroot")
        self.connect = connect
        self.on_lost: Callable[[], None] = _nothing
        self.on_session: Callable[[], None] = _nothing
        self._session_seconds = session_timeout_ms / 1000
        self._patience = connection_timeout_ms / 1000
        self._errors = exceptions
        self._states = KazooState
        self._repeatable = (
            exceptions.ConnectionLoss,
            exceptions.ConnectionClosedError,
            exceptions.OperationTimeoutError,
            exceptions.SessionExpiredError,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connected = asyncio.Event()
        self._closed = False
        self._expiry: asyncio.TimerHandle | None = None
        # kazoo logs what it does; the connection's state says what matters.
        logger = logging.Logger("kazoo", logging.CRITICAL)
        try:
            self._client: KazooClient = KazooClient(
                hosts=connect.strip(),
                timeout=self._session_seconds,
                connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0, "backoff": 2},
                logger=logger,
            )
        except (ValueError, TypeError, exceptions.ConfigurationError) as error:
            raise ConfigurationError(
                f"zookeeper_connect is {connect!r}; give HOST:PORT,HOST:PORT/chroot: {error}"
            ) from error

    async def open(self) -> None:
        """Begin the session. Raises ConnectError if no server answers within the connection's timeout."""
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._on_kazoo_state)
        self._client.start_async()
        try:
            async with asyncio.timeout(self._patience):
                await self._connected.wait()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise ConnectError(
                    f"no ZooKeeper answers at {self.connect} within {self._patience:g} s"
                    " (zookeeper_connection_timeout_ms)"
                ) from None
            raise

    async def close(self) -> None:
        """End the session, and with it its ephemeral nodes. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        loop = asyncio.get_running_loop()
        ended = loop.run_in_executor(None, self._end)
        await asyncio.wait([ended], timeout=_STOP_SECONDS)

    def _end(self) -> None:
        self._client.stop()
        self._client.close()

    @property
    def session(self) -> int:
        client_id = self._client.client_id
        return 0 if client_id is None else int(client_id[0])

    def _hand_over(self, function: Callable[..., None], *args: Any) -> None:
        """Run a function on the loop, from one of kazoo's threads."""
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return  # the loop is closed: there is nothing left to report to

    def _on_kazoo_state(self, state: str) -> None:
        self._hand_over(self._become, state)

    def _become(self, state: str) -> None:
        if self._closed:
            return
        if state == self._states.CONNECTED:
            if self._expiry is not None:
                self._expiry.cancel()
                self._expiry = None
            self._connected.set()
            self.on_session()
            return
        self._connected.clear()
        if state == self._states.LOST:
            self.on_lost()
        elif self._expiry is None and self._loop is not None:
            # ZooKeeper ends the session when it hears nothing, and then others may own the partitions.
            self._expiry = self._loop.call_later(self._session_seconds, self._silent_too_long)

    def _silent_too_long(self) -> None:
        self._expiry = None
        _log.warning("ZooKeeper at %s doesn't answer; the session may have ended", self.connect)
        self.on_lost()

    async def _ask(self, path: str, start: Callable[[KazooClient], Any]) -> Any:
        """Send a request and wait for its result; repeat it when the connection broke. Raises kazoo's errors."""
        deadline = Deadline(self._patience + self._session_seconds)
        while True:
            if self._closed:
                raise ClosedError("the connection to ZooKeeper is closed")
            try:
                async with deadline.timeout():
                    await self._connected.wait()
                    return await self._once(start)
            except TimeoutError:
                raise ZooKeeperError(f"ZooKeeper at {self.connect} doesn't answer ({path})") from None
            except self._repeatable as error:
                if deadline.passed():
                    raise ZooKeeperError(f"ZooKeeper at {self.connect}: {path}: {_name(error)}") from error
                await asyncio.sleep(0.05)
            except (
                self._errors.NoNodeError,
                self._errors.NodeExistsError,
                self._errors.NotEmptyError,
                self._errors.BadVersionError,
            ):
                raise
            except self._errors.KazooException as error:
                raise ZooKeeperError(f"ZooKeeper at {self.connect}: {path}: {_name(error)}") from error

    async def _once(self, start: Callable[[KazooClient], Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def settle(result: Any) -> None:
            if future.done():
                return
            if result.exception is None:
                future.set_result(result.value)
            else:
                future.set_exception(result.exception)

        start(self._client).rawlink(partial(self._hand_over, settle))
        return await future

    def _watcher(self, watch: OnChange | None) -> Callable[[Any], None] | None:
        """A watch for kazoo; equal ones are kept once for each path."""
        return None if watch is None else _Watcher(self, watch)

    async def read(self, path: str, watch: OnChange | None = None) -> bytes | None:
        watcher = self._watcher(watch)
        while True:
            try:
                data, _ = await self._ask(path, lambda client: client.get_async(path, watch=watcher))
                return data or b""
            except self._errors.NoNodeError:
                if not await self._appeared(path, watcher):
                    return None

    async def children(self, path: str, watch: OnChange | None = None) -> list[str]:
        watcher = self._watcher(watch)
        while True:
            try:
                found: list[str] = await self._ask(
                    path, lambda client: client.get_children_async(path, watch=watcher)
                )
                return sorted(found)
            except self._errors.NoNodeError:
                if not await self._appeared(path, watcher):
                    return []

    async def _appeared(self, path: str, watcher: Callable[[Any], None] | None) -> bool:
        """Watch for a missing node; True if it exists by now."""
        if watcher is None:
            return False
        return await self._ask(path, lambda client: client.exists_async(path, watch=watcher)) is not None

    async def claim(self, path: str, data: bytes) -> bool:
        while True:
            try:
                await self._ask(
                    path, lambda client: client.create_async(path, data, ephemeral=True, makepath=True)
                )
                return True
            except self._errors.NodeExistsError:
                pass
            try:
                found, stat = await self._ask(path, lambda client: client.get_async(path))
                if stat.ephemeralOwner != self.session:
                    return False
                if found != data:
                    await self._ask(path, lambda client: client.set_async(path, data))
                return True
            except self._errors.NoNodeError:
                continue  # its owner has just released it

    async def release(self, path: str) -> None:
        try:
            _, stat = await self._ask(path, lambda client: client.get_async(path))
            if stat.ephemeralOwner == self.session:
                await self._ask(path, lambda client: client.delete_async(path, version=stat.version))
        except (self._errors.NoNodeError, self._errors.BadVersionError):
            return

    async def remove_persistent(self, path: str) -> bool:
        try:
            _, stat = await self._ask(path, lambda client: client.get_async(path))
            if stat.ephemeralOwner:
                return False
            await self._ask(path, lambda client: client.delete_async(path, version=stat.version))
        except (self._errors.NoNodeError, self._errors.BadVersionError):
            return False
        return True

    async def write(self, path: str, data: bytes) -> None:
        while True:
            try:
                await self._ask(path, lambda client: client.set_async(path, data))
                return
            except self._errors.NoNodeError:
                pass
            try:
                await self._ask(path, lambda client: client.create_async(path, data, makepath=True))
                return
            except self._errors.NodeExistsError:
                continue

    async def remove_tree(self, path: str) -> None:
        for name in await self.children(path):
            await self.remove_tree(f"{path}/{name}")
        try:
            await self._ask(path, lambda client: client.delete_async(path))
        except self._errors.NoNodeError:
            return
        except self._errors.NotEmptyError as error:
            raise ZooKeeperError(f"{path} was changed while it was being removed; try again") from error


class _Watcher:
    """Passes an event of kazoo to the loop. Equal for the same callback, so that kazoo keeps one of them."""

    __slots__ = ("_registry", "_watch")

    def __init__(self, registry: ZooKeeper, watch: OnChange) -> None:
        self._registry = registry
        self._watch = watch

    def __call__(self, event: Any) -> None:
        self._registry._hand_over(self._watch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Watcher) and self._watch == other._watch

    def __hash__(self) -> int:
        return hash(self._watch)


def _name(error: BaseException) -> str:
    return str(error) or type(error).__name__
