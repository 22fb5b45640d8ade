"""Lasting watches, built on ZooKeeper's, which fire only once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, WatchedEvent

from ottla_broker.events import get_logger
from ottla_broker.store.api import EventKind, SessionLostError, StoreEvent, Watch
from ottla_broker.store.zookeeper_link import LOSSES, Link, Request

_log = get_logger()

_KINDS: Final = {
    EventType.CREATED: EventKind.CREATED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHILD: EventKind.CHILDREN,
}


@dataclass(eq=False, slots=True)
class _OneShot:
    """A ZooKeeper watch on a path: how to set it, whether it is set, and the change to report if it is lost."""

    changed: EventKind
    start: Callable[[KazooClient], Any]
    is_set: bool = field(default=False, init=False)


class _WatchedPath:
    """One path's callbacks and ZooKeeper's watches under them.

    ``fired``: whether a watch has fired since the requests that set them were sent. ``news``: the events to report once
    they are set again, so that a reader misses nothing.
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
    """Owned by the loop thread. A path's watches are set again whenever they have fired or been lost."""

    def __init__(self, link: Link, chroot: str) -> None:
        self._link = link
        self._chroot = chroot
        self._watched: dict[str, _WatchedPath] = {}

    def add(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        """Watch a path; the watches are set before any later request."""
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
        self._watched.clear()

    def _new(self, path: str) -> _WatchedPath:
        watched = _WatchedPath(path)
        where = self._chroot + path if path != "/" else self._chroot or "/"

        def add(
            changed: EventKind, request: Callable[[KazooClient, Callable[[WatchedEvent], None]], Any]
        ) -> None:
            # Always the same callable: kazoo keeps one of each, however often the watch is set.
            def fired(event: WatchedEvent) -> None:
                self._link.hand_over(self._on_event, watched, watch, event)

            watch = _OneShot(changed, lambda client: request(client, fired))
            watched.watches.append(watch)

        # The request whether the node exists watches its data, too.
        add(EventKind.CHANGED, lambda client, fired: client.exists_async(where, watch=fired))
        add(EventKind.CHILDREN, lambda client, fired: client.get_children_async(where, watch=fired))
        return watched

    def _forget(self, watched: _WatchedPath) -> None:
        """Drop a path without callbacks. ZooKeeper's watches stay, and are reused until they fire."""
        if not watched.callbacks and not any(watch.is_set for watch in watched.watches):
            self._watched.pop(watched.path, None)

    def _set(self, watched: _WatchedPath) -> None:
        """Set ZooKeeper's watches, and then report the events."""
        if watched.setting is None and not all(watch.is_set for watch in watched.watches):
            started = self._start(watched)
            watched.setting = asyncio.get_running_loop().create_task(self._finish(watched, started))

    def _start(self, watched: _WatchedPath) -> list[tuple[_OneShot, Request]]:
        """Send the requests that set the missing watches."""
        watched.fired = False
        started = []
        for watch in watched.watches:
            if not watch.is_set:
                started.append((watch, self._link.request(watch.start)))
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
                        # The node doesn't exist; the other watch reports its creation.
                        result,
                        kazoo_errors.NoNodeError,
                    ):
                        _log.warning("watch not set", path=watched.path, reason=repr(result))
                if not lost:
                    # Report even if a watch has fired meanwhile: otherwise a node that never stops changing would
                    # never be reported. That watch is reported again once it is set.
                    self._report(watched)
                    if not watched.fired or not watched.callbacks:
                        return
                started = self._start(watched)
        except SessionLostError:
            return  # watchers learn of that from the session
        finally:
            watched.setting = None
            self._forget(watched)

    @staticmethod
    def _report(watched: _WatchedPath) -> None:
        news = list(watched.news)
        if not watched.fired:
            watched.news.clear()
        for kind in news:
            for callback in list(watched.callbacks.values()):
                notify(callback, StoreEvent(kind, watched.path))

    def _on_event(self, watched: _WatchedPath, watch: _OneShot, event: WatchedEvent) -> None:
        watch.is_set = False
        if self._watched.get(watched.path) is not watched:
            return
        if not watched.callbacks:
            self._forget(watched)
            return
        # An event without a kind: the connection broke, and anything may change until it is back.
        watched.news[_KINDS.get(event.type, watch.changed)] = None
        watched.fired = True
        try:
            self._set(watched)
        except SessionLostError:
            return  # as above


def notify(callback: Callable[[Any], None], news: object) -> None:
    """Call a callback; an exception of it is only logged."""
    try:
        callback(news)
    except Exception as error:
        _log.error("a watch's callback failed", news=str(news), exc_info=error)
