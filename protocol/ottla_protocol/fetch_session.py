"""The client side of a fetch session (KIP-227): the broker remembers the partitions, the client sends changes.

No I/O: ``request`` returns the content of the next fetch, and ``answered`` or ``failed`` takes its outcome.
Source: Java's ``FetchSessionHandler``, ``FetchMetadata``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from .errors import ErrorCode

K = TypeVar("K", bound=tuple[str, int])
"""A topic's name and a partition's number."""

NO_SESSION = 0
INITIAL_EPOCH = 0
"""Opens a session; with the id of an existing one, closes that first."""
_LAST_EPOCH = 2**31 - 1

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Want(Protocol):
    """The session's memory of a partition, compared as a whole."""

    @property
    def topic_id(self) -> bytes | None: ...


W = TypeVar("W", bound=Want)


class SessionRequest(NamedTuple, Generic[K, W]):
    """The content of a fetch. ``forgotten`` includes topic ids, because an id may be what changed."""

    session_id: int
    epoch: int
    fetch: Mapping[K, W]
    forgotten: list[tuple[K, bytes | None]]


class FetchSession(Generic[K, W]):
    """The session with one broker. One request at a time."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._by_id = False
        self._known: dict[K, W] = {}
        self._sent_full = True

    @property
    def partitions(self) -> Collection[K]:
        """Everything that the last request asked for."""
        return self._known.keys()

    @property
    def is_open(self) -> bool:
        """Whether the broker has the session, as far as the client knows."""
        return self._epoch != INITIAL_EPOCH

    def topic_id(self, partition: K) -> bytes | None:
        """Return the topic id in the last request."""
        return self._known[partition].topic_id

    def request(self, wanted: Mapping[K, W], *, by_id: bool) -> SessionRequest[K, W]:
        """Return what to send so that the broker reads exactly ``wanted``.

        ``by_id`` means that topics go by id (since version 13). A session can't mix ids and names, so a change starts a
        new one.
        """
        if self._epoch == INITIAL_EPOCH or by_id != self._by_id:
            self._by_id = by_id
            self._known = dict(wanted)
            self._sent_full = True
            return SessionRequest(self._id, INITIAL_EPOCH, self._known, [])
        self._sent_full = False
        forgotten = []
        for partition, before in self._known.items():
            now = wanted.get(partition)
            if now is None or (by_id and now.topic_id != before.topic_id):
                forgotten.append((partition, before.topic_id))
        known = self._known
        fetch = {
            partition: now
            for partition, now in wanted.items()
            # Mostly the same object.
            if (asked := known.get(partition)) is not now and asked != now
        }
        self._known = dict(wanted)
        return SessionRequest(self._id, self._epoch, fetch, forgotten)

    def unchanged(self) -> SessionRequest[K, W]:
        """Return what to send in an open session with the partitions as they are."""
        self._sent_full = False
        return SessionRequest(self._id, self._epoch, {}, [])

    def answered(self, error: int, session_id: int, partitions: Collection[K]) -> bool:
        """Process a response. Returns False if it is useless because broker and client disagree."""
        if error:
            if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
            return False
        if not all(partition in self._known for partition in partitions):
            self._epoch = INITIAL_EPOCH
            return False
        if self._sent_full:
            self._id = session_id
            self._epoch = INITIAL_EPOCH if session_id == NO_SESSION else 1
        elif session_id != self._id:
            # The broker closed the session with this response.
            self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def failed(self) -> None:
        """Start over with the next request, because this one may or may not have arrived."""
        self._epoch = INITIAL_EPOCH
