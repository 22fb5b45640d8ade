"""Share sessions: which partitions a member fetches from this broker. Kafka: ``ShareSessionCache``, ``ShareSession``.

A session ends with the connection on which it began; then what the member has acquired is released. Requests of
the session may come by other connections too: franz-go's last acknowledgements do. Epochs::

    0               begins a session, in place of an earlier one of the member
    1, 2, ...       go up by one with each request; after the largest follows 1
    -1              ends the session
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ottla_broker.coordinator.share.share_partition import InTurns, SharePartition, Work, lock_numbers
from ottla_broker.coordinator.share.state_batches import TopicIdPartition
from ottla_protocol.errors import ErrorCode, KafkaError

INITIAL, FINAL = 0, -1
_LARGEST: Final = 0x7FFF_FFFF
MOST_PLACES: Final = 5_000
"""The most partitions of a session: a fetch tries all of them in one turn of the event loop."""
MOST_PLACES_OF_ALL: Final = 250_000
"""The most partitions of all sessions."""
MOST_OF_CONNECTION: Final = 100
"""The most sessions that may begin on one connection; clients have one."""

_MOST_LEFT: Final = 1_000
"""How many forgotten partitions a request looks at, which takes microseconds for each."""

_RELEASED_AT_ONCE: Final = 500
"""How much work the end of a session does before it takes turns."""


@dataclass(eq=False, slots=True)
class ShareSession:
    """Owned by the loop thread.

    Attributes:
        epoch: that the next request has to name.
        places: the partitions, in the order in which the next fetch tries them.
        shares: the share partitions that it uses: those of its partitions, and of forgotten ones of which the member
            still has records.
        ended: a fetch that still waits for it gets nothing.
        disown: called at its end, so that its connection forgets it.
        owner: what it began on: its connection.
    """

    group_id: str
    member_id: str
    owner: object = None
    disown: Callable[[], object] = field(default_factory=lambda: lambda: None, init=False)
    epoch: int = field(default=1, init=False)
    ended: bool = field(default=False, init=False)
    places: dict[TopicIdPartition, None] = field(default_factory=dict, init=False)
    shares: dict[TopicIdPartition, SharePartition] = field(default_factory=dict, init=False)
    _forgotten: dict[TopicIdPartition, None] = field(default_factory=dict, init=False)

    def change(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Raises KafkaError: INVALID_REQUEST, for too many partitions."""
        for place in added:
            self.places[place] = None
        if self._forgotten:
            self._leave_forgotten()
        for place in forgotten:
            self.places.pop(place, None)
            if place in self.shares:
                # Left with a later request: this one may acknowledge records of it.
                self._forgotten[place] = None
        if len(self.places) > MOST_PLACES:
            count = len(self.places)
            for place in tuple(self.places)[MOST_PLACES:]:
                del self.places[place]
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The share session would have {count} partitions; {MOST_PLACES} are allowed.",
            )

    def _leave_forgotten(self) -> None:
        """Use the forgotten partitions no longer, once the member has nothing of them; some with each request."""
        for place in tuple(islice(self._forgotten, _MOST_LEFT)):
            del self._forgotten[place]
            share = self.shares.get(place)
            if share is None or place in self.places:
                continue
            if share.holds_for(self.member_id):
                # Later ones are looked at first.
                self._forgotten[place] = None
            else:
                del self.shares[place]
                share.left_by(self)

    def rotate(self) -> None:
        """Begin with another partition next time, so that none is starved."""
        if len(self.places) > 1:
            first = next(iter(self.places))
            del self.places[first]
            self.places[first] = None

    def use(self, share: SharePartition) -> None:
        self.shares[share.key.topic_id, share.key.partition] = share
        share.users.add(self)

    def forget(self, share: SharePartition) -> None:
        """A share partition has closed."""
        place = share.key.topic_id, share.key.partition
        if self.shares.get(place) is share:
            del self.shares[place]

    def end(self) -> Work:
        """End, and then release what the member has: not what it acquires by another session meanwhile."""
        self.ended = True
        self.disown()
        shares, self.shares = self.shares, {}
        return self._release(shares.values(), next(lock_numbers))

    def _release(self, shares: Iterable[SharePartition], before: int) -> Work:
        for share in shares:
            work = share.release(self.member_id, before)
            share.left_by(self)
            yield 1 + work


class ShareSessions:
    """Owned by the loop thread. ``most()`` is the largest number of sessions; ``in_turns`` runs a generator."""

    def __init__(self, most: Callable[[], int], in_turns: InTurns) -> None:
        self._most = most
        self._in_turns = in_turns
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._places = 0
        self._owned: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, group_id: str, member_id: str, owner: object = None) -> ShareSession:
        """Begin a session on a connection. Raises KafkaError: SHARE_SESSION_LIMIT_REACHED."""
        self.end(group_id, member_id)
        most = self._most()
        if len(self._sessions) >= most:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"This broker has {most} share sessions, the most that group.share.max.share.sessions allows.",
            )
        owned = self._owned.get(owner, 0)
        if owner is not None and owned >= MOST_OF_CONNECTION:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"This connection has {owned} share sessions, the most that one may have.",
            )
        if owner is not None:
            self._owned[owner] = owned + 1
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id, owner)
        return session

    def change(
        self,
        session: ShareSession,
        added: Collection[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
    ) -> None:
        """Change a session's partitions.

        Raises KafkaError: INVALID_REQUEST, SHARE_SESSION_LIMIT_REACHED for too many partitions.
        """
        if added and self._places + len(added) > MOST_PLACES_OF_ALL:
            new = sum(place not in session.places for place in added)
            if self._places + new > MOST_PLACES_OF_ALL:
                raise KafkaError(
                    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                    f"The share sessions of this broker would have more than {MOST_PLACES_OF_ALL} partitions.",
                )
        before = len(session.places)
        try:
            session.change(added, forgotten)
        finally:
            if not session.ended:
                self._places += len(session.places) - before

    def find(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session, whose epoch goes up; ``epoch`` may be FINAL.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL:
            return session
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"The share session's next epoch is {session.epoch}, not {epoch}.",
            )
        session.epoch = 1 if epoch == _LARGEST else epoch + 1
        return session

    def end(self, group_id: str, member_id: str) -> None:
        session = self._sessions.pop((group_id, member_id), None)
        if session is None:
            return
        self._places -= len(session.places)
        owned = self._owned.pop(session.owner, 0)
        if owned > 1:
            self._owned[session.owner] = owned - 1
        releasing, done = session.end(), 0
        for work in releasing:
            done += work
            if done >= _RELEASED_AT_ONCE:
                self._in_turns(releasing)
                break

    def disconnected(self, session: ShareSession) -> None:
        """The session's connection has closed: it ends, if it hasn't yet."""
        if self._sessions.get((session.group_id, session.member_id)) is session:
            self.end(session.group_id, session.member_id)
