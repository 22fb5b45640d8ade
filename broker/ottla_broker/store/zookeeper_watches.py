"""Standing watches, made of ZooKeeper's, each of which tells of one change and is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, WatchedEvent

from ottla_broker.events import get_logger
from ottla_broker.store.api import EventKind, SessionLostError, StoreEvent
from ottla_broker.store.zookeeper_link import LOSSES, Link, Request

log = get_logger()

_KINDS: Final = {
    EventType.CREATED: EventKind.CREATED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHILD: EventKind.CHILDREN,
}


class Watch:
    """See :class:`ottla_broker.store.api.Watch`."""

    __slots__ = ("_remove",)

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove = remove

    def cancel(self) -> None:
        self._remove()


class _OneShot:
    """One of ZooKeeper's watches on a path: how it is set, whether it is, and what may have changed when it is lost."""

    __slots__ = ("changed", "is_set", "start")

    def __init__(self, changed: EventKind, start: Callable[[KazooClient], Any]) -> None:
        self.changed = changed
        self.start = start
        self.is_set = False


class _WatchedPath:
    """One path's callbacks and ZooKeeper's watches under them.

    ``fired`` is whether a watch has fired since the requests that set them went out; ``news`` is what is to be told
    once they are set again, so that who reads then misses nothing.
    """

    __slots__ = ("callbacks", "fired", "news", "path", "setting", "watches")

    def __init__(self, path: str) -> None:
        self.path = path
        self.callbacks: dict[object, Callable[[StoreEvent], None]] = {}
        self.watches: list[_OneShot] = []
        self.fired = False
        self.news: dict[EventKind, None] = {}
        self.setting: asyncio.Task[None] | None = None


class Watches:
    """Owned by the loop thread. A path's watches are set anew whenever they have fired or been lost."""

    def __init__(self, link: Link, chroot: str) -> None:
        self._link = link
        self._chroot = chroot
        self._watched: dict[str, _WatchedPath] = {}

    def add(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        """Have news of a path told; the watches are set before anything that is asked after this call."""
        watched = self._watched.get(path)
        if watched is None:
            watched = self._watched[path] = self._new(path)
        key = object()
        watched.callbacks[key] = callback
        self._set(watched)

        def remove() -> None:
            watched.callbacks.pop(key, None)
            self._forget(watched)

        return Watch(remove)

    def clear(self) -> None:
        """Nothing more is told."""
        self._watched.clear()

    def _new(self, path: str) -> _WatchedPath:
        watched = _WatchedPath(path)
        where = self._chroot + path if path != "/" else self._chroot or "/"

        def add(
            changed: EventKind, request: Callable[[KazooClient, Callable[[WatchedEvent], None]], Any]
        ) -> None:
            # The same callable each time: kazoo keeps one of each, however often the watch is set.
            def fired(event: WatchedEvent) -> None:
                self._link.hand_over(self._on_event, watched, watch, event)

            watch = _OneShot(changed, lambda client: request(client, fired))
            watched.watches.append(watch)

        # Asking whether the node is there watches its data, too.
        add(EventKind.CHANGED, lambda client, fired: client.exists_async(where, watch=fired))
        add(EventKind.CHILDREN, lambda client, fired: client.get_children_async(where, watch=fired))
        return watched

    def _forget(self, watched: _WatchedPath) -> None:
        """Drop a path that nobody watches; ZooKeeper's watches stay until they fire, to be used again till then."""
        if not watched.callbacks and not any(watch.is_set for watch in watched.watches):
            self._watched.pop(watched.path, None)

    def _set(self, watched: _WatchedPath) -> None:
        """Have ZooKeeper's watches set, and then the news told."""
        if watched.setting is None and not all(watch.is_set for watch in watched.watches):
            started = self._start(watched)
            watched.setting = asyncio.get_running_loop().create_task(self._finish(watched, started))

    def _start(self, watched: _WatchedPath) -> list[tuple[_OneShot, Request]]:
        """Send the requests that set what isn't set."""
        watched.fired = False
        started = []
        for watch in watched.watches:
            if not watch.is_set:
                started.append((watch, self._link.ask(watch.start)))
                watch.is_set = True
        return started

    async def _finish(self, watched: _WatchedPath, started: list[tuple[_OneShot, Request]]) -> None:
        try:
            while True:
                lost = False
                results = await asyncio.gather(
                    *(request.future for _, request in started), return_exceptions=True
                )
                for (watch, _), result in zip(started, results, strict=True):
                    if isinstance(result, SessionLostError | kazoo_errors.SessionExpiredError):
                        return
                    if isinstance(result, BaseException):
                        watch.is_set = False
                    if isinstance(result, LOSSES):
                        lost = True
                    elif isinstance(result, BaseException) and not isinstance(
                        # No children to be told of. When the node is made, the other watch says so.
                        result,
                        kazoo_errors.NoNodeError,
                    ):
                        log.warning("watch not set", path=watched.path, reason=repr(result))
                if not lost:
                    # Told even if one has fired meanwhile, lest a node that changes without end were never told of;
                    # what has fired is told once more when it is set again.
                    self._tell(watched)
                    if not watched.fired or not watched.callbacks:
                        return
                started = self._start(watched)
        except SessionLostError:
            return
        finally:
            watched.setting = None
            self._forget(watched)

    @staticmethod
    def _tell(watched: _WatchedPath) -> None:
        news = list(watched.news)
        if not watched.fired:
            watched.news.clear()
        for kind in news:
            for callback in list(watched.callbacks.values()):
                tell(callback, StoreEvent(kind, watched.path))

    def _on_event(self, watched: _WatchedPath, watch: _OneShot, event: WatchedEvent) -> None:
        """One of ZooKeeper's watches has fired."""
        watch.is_set = False
        if self._watched.get(watched.path) is not watched:
            return
        if not watched.callbacks:
            self._forget(watched)
            return
        # Of no kind when the connection broke, and the watch with it: anything may happen until it is back.
        watched.news[_KINDS.get(event.type, watch.changed)] = None
        watched.fired = True
        try:
            self._set(watched)
        except SessionLostError:
            return


def tell(callback: Callable[[Any], None], news: object) -> None:
    """Call a watcher; one that fails harms nobody else."""
    try:
        callback(news)
    except Exception as error:
        log.error("a watcher failed", news=str(news), exc_info=error)
