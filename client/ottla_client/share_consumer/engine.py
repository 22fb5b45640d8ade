"""The share consumer's parts put together: its member, a session with each broker, and what has arrived.

The public class holds the engine. The engine doesn't hold the public class, so that a consumer that is never closed is
noticed. Belongs to the thread of its event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Set

from ..cluster import Cluster
from ..consumer.records import RecordReader
from ..consumer.rows import Rows
from ..deadline import Deadline, wait_at_most
from ..errors import ClientError, ClosedError, ConfigurationError, CorruptBatchError, DeserializationError
from ..group import ShareMember
from ..group.share_member import new_member_id
from ..meters import Meters
from ..requests.driver import together
from ..types import TopicPartition
from .acknowledgements import AcknowledgeType, HeldRecords
from .acquisition import Acquisition, Outgoing
from .node_session import NodeSession
from .requests import SessionPartition
from .settings import ShareConsumerSettings

TICK = 0.1
"""Seconds after which a poll that waits looks for what is reported nowhere else: a failure of the member."""

Taken = list[tuple[Acquisition, Rows]]
"""Records to hand out, and where they were acquired."""


class ShareEngine:
    """A consumer's parts and its lifecycle.

    Attributes:
        held: the records that the application has.
        hungry: whether the application waits for records, and nothing was acquired since.
        lock_ms: how long acquired records are locked, in milliseconds; None before the first ones.
        closed: whether a close has begun.
    """

    def __init__(self, settings: ShareConsumerSettings, cluster: Cluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.meters = Meters()
        self.member_id = new_member_id()
        self.held: HeldRecords[Acquisition] = HeldRecords()
        self.hungry = False
        self.lock_ms: int | None = None
        self.topics: frozenset[str] = frozenset()
        self.started = False
        self.closed = False
        self._reader = RecordReader(settings)
        self._member: ShareMember | None = None
        self._sessions: dict[int, NodeSession] = {}
        self._arrived: deque[Acquisition] = deque()
        self._unreadable: tuple[Acquisition, CorruptBatchError | DeserializationError] | None = None
        self._outgoing: list[Outgoing] = []
        self._problems: deque[ClientError] = deque()
        self._news = asyncio.Event()
        self._polling = False
        self._unlisten: Callable[[], None] | None = None

    async def start(self, deadline: Deadline) -> None:
        """Connect, and join the group if topics are subscribed. Raises BootstrapError."""
        await self.cluster.start(deadline)
        self.started = True
        self._unlisten = self.cluster.on_change(self.wake)
        topics, self.topics = self.topics, frozenset()
        if topics:
            self.subscribe(topics)

    async def close(self, deadline: Deadline) -> None:
        """Send acknowledgements, release the other records, leave the group, disconnect. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        self._news.set()
        if not self.started:
            return
        try:
            if self._unlisten is not None:
                self._unlisten()
            self.send(deadline)
            await together([session.close(deadline) for session in self._sessions.values()])
            if self._member is not None:
                await self._member.close(deadline)
        finally:
            # The close may have been cancelled, or have failed: stop everything.
            for session in self._sessions.values():
                await session.close(Deadline(0.0))
            if self._member is not None:
                await self._member.close(Deadline(0.0))
            await self.cluster.close()

    def check(self) -> None:
        """Raise ClosedError unless the consumer is started and open."""
        if self.closed:
            raise ClosedError("the consumer is closed")
        if not self.started:
            raise ClosedError("the consumer is not started: await start(), or use `async with`")

    # The group

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics; joins the group once the consumer is started."""
        before, self.topics = self.topics, frozenset(topics)
        if not self.started:
            return
        self.cluster.interest(self.topics - before)
        self.cluster.disinterest(before - self.topics)
        if self._member is None:
            self._member = ShareMember(
                self.cluster,
                self.settings.group_id,
                self.member_id,
                settings=self.settings.of_member(),
                callbacks=self,
            )
        self._member.subscribe(self.topics)
        self._member.start()

    async def unsubscribe(self, deadline: Deadline) -> None:
        """Leave the group. Records that the application holds may still be acknowledged."""
        if self.started:
            self.cluster.disinterest(self.topics)
        self.topics = frozenset()
        member, self._member = self._member, None
        if member is not None:
            await member.close(deadline)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset() if self._member is None else self._member.assignment

    async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        self.wake()

    async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        """Others may read them; records that were acquired stay this member's."""

    async def on_lost(self, partitions: Set[TopicPartition]) -> None:
        """As ``on_revoked``."""

    # Sessions

    def wanted(self, node: int) -> Mapping[TopicPartition, SessionPartition]:
        """The partitions to read from a broker."""
        found = {}
        for partition in self.assignment:
            if self.cluster.leader(*partition) == node:
                topic = self.cluster.topic(partition.topic)
                if topic is not None and topic.id is not None:
                    found[partition] = SessionPartition(topic.id)
        return found

    def wake(self) -> None:
        """Have each broker asked for records, if the application waits for some."""
        if self.hungry and not self.closed:
            for partition in self.assignment:
                leader = self.cluster.leader(*partition)
                if leader is None:
                    self.cluster.stale(partition.topic)
                elif leader not in self._sessions:
                    self._sessions[leader] = NodeSession(leader, self.cluster, self.settings, self)
        for session in self._sessions.values():
            session.wake()

    def arrived(self, acquisition: Acquisition, lock_ms: int) -> None:
        """Records have come. Nothing more is fetched until the application has taken them, as their locks run out."""
        self._arrived.append(acquisition)
        self.hungry = False
        self.lock_ms = lock_ms
        self._news.set()

    def report(self, error: ClientError) -> None:
        """Raise an error in the next poll."""
        if not self._problems or str(self._problems[-1]) != str(error):
            self._problems.append(error)
        self._news.set()

    # Records

    async def poll(self, count: int, deadline: Deadline) -> Taken:
        """Up to ``count`` records as soon as there are some; none at the deadline.

        No await follows the taking, so a cancelled call loses nothing. Raises errors of the group, of partitions and of
        records; and ClientError while another task polls.
        """
        self.check()
        if self._polling:
            raise ClientError("another task takes records from this consumer: one at a time may")
        self._polling = True
        try:
            await asyncio.sleep(0)
            while True:
                self._raise_problems()
                taken = self._take(count)
                if taken:
                    return taken
                if self._member is None:
                    raise ConfigurationError("there is nothing to read: subscribe to topics first")
                # The gaps that were all there was.
                self.send(self.api_deadline())
                self.hungry = True
                self.wake()
                if deadline.passed():
                    return []
                self._news.clear()
                await wait_at_most(self._news, deadline.left(TICK))
        finally:
            self._polling = False

    def _raise_problems(self) -> None:
        if self.closed:
            raise ClosedError("the consumer is closed")
        if self._member is not None:
            self._member.polled()
        if self._problems:
            raise self._problems.popleft()
        if self._unreadable is not None:
            (acquisition, error), self._unreadable = self._unreadable, None
            if isinstance(error, DeserializationError):
                # Released, as Java does, unless the application decides otherwise.
                self.held.hand_out(acquisition, error.partition, error.offset)
                self.held.acknowledge(error.partition, error.offset, AcknowledgeType.RELEASE)
            raise error

    def _take(self, count: int) -> Taken:
        """Raises DeserializationError, CorruptBatchError; one behind good records is left for the next call."""
        taken: Taken = []
        while self._arrived and count:
            acquisition = self._arrived[0]
            rows = None
            if acquisition.valid:
                try:
                    rows = acquisition.take(count, self._reader, self.held.note)
                except (CorruptBatchError, DeserializationError) as error:
                    self._unreadable = acquisition, error
                    if not taken:
                        self._raise_problems()
                    break
            if rows is None:
                self._arrived.popleft()
            else:
                count -= rows.count
                self.meters.add("records-consumed-total", rows.count)
                taken.append((acquisition, rows))
        return taken

    # Acknowledgements

    def api_deadline(self, timeout: float | None = None) -> Deadline:
        return Deadline(self.settings.default_api_timeout_ms / 1000 if timeout is None else timeout)

    def send(self, deadline: Deadline) -> list[Outgoing]:
        sent = []
        for acquisition, acknowledgements in self.held.take():
            outgoing = Outgoing(acquisition, acknowledgements, deadline)
            self.meters.add("acknowledgements-send-total", acknowledgements.count)
            acquisition.source.acknowledge(outgoing)
            sent.append(outgoing)
        self._outgoing += sent
        return sent

    def outcomes(self) -> list[Outgoing]:
        """The acknowledgements that have got an outcome since the last call."""
        done = [each for each in self._outgoing if each.outcome.done()]
        if done:
            self._outgoing = [each for each in self._outgoing if not each.outcome.done()]
        for each in done:
            if each.outcome.result() is not None:
                self.meters.add("acknowledgements-error-total", each.acknowledgements.count)
        return done
