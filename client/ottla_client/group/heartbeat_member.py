"""A member of a group whose partitions the broker assigns (KIP-848): it sends heartbeats, and does what they answer.

One task sends heartbeats, also while callbacks run. The other takes the assignment that an answer had: it gives up
partitions, with the callback, then takes new ones. Heartbeats name only what has changed, except after an error. Java's
``AbstractMembershipManager`` and ``AbstractHeartbeatRequestManager``.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Collection, Sequence
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, TypeAlias
from uuid import uuid4

from ottla_protocol.errors import ErrorCode, error_code
from ottla_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from ottla_protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from ..cluster.tasks import background
from ..deadline import Deadline
from ..errors import (
    ClientError,
    GroupError,
    UnsupportedApiError,
    is_retriable,
)
from ..types import TopicPartition
from .base_member import BaseMember
from .consumer_member_state import (
    JOIN_EPOCH,
    TRANSITIONS,
    ConsumerMemberState,
    HeartbeatReaction,
    reaction_to,
)
from .settings import MemberCallbacks, MemberSettings

if TYPE_CHECKING:
    from ..cluster import Cluster

_log = logging.getLogger("ottla_client")

LEAVE_SECONDS = 5.0
"""The longest wait of a member that left after max_poll_interval_ms for the answer."""
_STATE = ConsumerMemberState

Request: TypeAlias = ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest
Response: TypeAlias = ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse
Given: TypeAlias = Sequence[HeartbeatTopicPartitions]
"""An assignment, as an answer has it."""


class HeartbeatMember(BaseMember):
    """Subclasses make the requests. Belongs to one event loop."""

    unsupported: ClassVar[str]
    """The text of the error where the broker doesn't have the subclass's heartbeat."""

    def __init__(
        self, cluster: Cluster, group_id: str, settings: MemberSettings, callbacks: MemberCallbacks
    ) -> None:
        """Raises ConfigurationError for an empty group id."""
        super().__init__(cluster, group_id, settings, callbacks)
        self.state = _STATE.UNJOINED
        self.member_id = str(uuid4())
        self.epoch = JOIN_EPOCH
        self._sent_topics: frozenset[str] | None = None
        self._ids: dict[bytes, str] = {}
        # The last assignment that an answer had, until the member has it.
        self._given: Given | None = None
        self._next_heartbeat = 0.0
        self._interval = 1.0
        self._failures = 0
        self._assign_wanted = asyncio.Event()
        self._heard = asyncio.Condition()

    @abstractmethod
    def _request(self, topics: frozenset[str]) -> Request:
        """The next heartbeat of a member that subscribes to ``topics``.

        It repeats what doesn't change if the member joins, or if ``_sent_topics`` is None.
        """

    @abstractmethod
    def _leave_request(self) -> Request: ...

    def _repeat_all(self) -> None:
        """A heartbeat may have been lost: the next one repeats everything."""
        self._sent_topics = None

    def _taken(self) -> None:
        """The member has the partitions of an assignment."""

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics; a change is part of the next heartbeat, which is sent at once."""
        self._topics = frozenset(topics)
        self._send_now()

    def start(self) -> None:
        """Join as soon as there is a subscription. Call it in the event loop; a second call does nothing."""
        if self._heartbeat_task is not None or self._closed:
            return
        self._polled_at = monotonic()
        self._heartbeat_task = background(self._heartbeat_forever(), f"heartbeats in {self.group_id}")
        self._join_task = background(self._assign_forever(), f"a member of {self.group_id}")

    def _try_again(self) -> None:
        if self.state is _STATE.STOPPED:
            self.state = _STATE.LOST
            self._assign_wanted.set()

    async def close(self, deadline: Deadline) -> None:
        """Give up the assignment, with its callback, and leave the group, by the deadline.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._stop_joining(deadline)
            await self._give_up_all(deadline, lost=self.state is not _STATE.JOINED)
            await self._stop_heartbeats()
            await self._leave(deadline)
        finally:
            self.state = _STATE.STOPPED
            await self._cancel_tasks()

    async def _stop_heartbeats(self) -> None:
        task = self._heartbeat_task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait((task,))

    # Heartbeats

    def _send_now(self) -> None:
        self._next_heartbeat = 0.0
        self._heartbeat_wanted.set()

    @property
    def _may_send(self) -> bool:
        if self.state is _STATE.JOINED:
            return True
        return self.state is _STATE.UNJOINED and bool(self._topics)

    async def _heartbeat_forever(self) -> None:
        """Send heartbeats while the member may; leave when the application stops polling."""
        poll_interval = self._settings.max_poll_interval_ms / 1000
        while True:
            self._heartbeat_wanted.clear()
            if not self._may_send:
                await self._heartbeat_wanted.wait()
                continue
            now = monotonic()
            stalls_at = self._polled_at + poll_interval
            if now >= stalls_at:
                await self._stall()
            elif now < self._next_heartbeat:
                await self._pause(min(self._next_heartbeat, stalls_at) - now)
            else:
                # A wish that comes while this heartbeat is under way is for another one.
                self._next_heartbeat = now + self._interval
                pause = await self._heartbeat()
                if pause:
                    await asyncio.sleep(pause)
                    self._next_heartbeat = 0.0

    async def _heartbeat(self) -> float:
        """Send one heartbeat; returns the seconds until another attempt, 0 if it was answered."""
        state, epoch = self.state, self.epoch
        topics = self._topics or frozenset()
        request = self._request(topics)
        try:
            answer = await self._coordinator.ask(request, Deadline(self._cluster.request_timeout))
        except ClientError as error:
            # It may have arrived.
            self._repeat_all()
            self._failures += 1
            if isinstance(error, UnsupportedApiError):
                error = UnsupportedApiError(f"group {self.group_id!r}: {self.unsupported}")
            if not is_retriable(error):
                self._fail(error)
            _log.info("group %s: a heartbeat failed: %s", self.group_id, error)
            return self._cluster.backoff.after(self._failures)
        if (state, epoch) != (self.state, self.epoch):
            return 0.0  # the member has left meanwhile
        self._sent_topics = topics
        pause = self._react(answer)
        async with self._heard:
            self._heard.notify_all()
        return pause

    def _react(self, answer: Response) -> float:
        """Do what an answer says; returns the seconds until another attempt."""
        code = error_code(answer.error_code)
        reaction = reaction_to(code, self.epoch)
        if reaction is HeartbeatReaction.GO_ON:
            self._failures = 0
            self.member_id = answer.member_id or self.member_id
            if self.state is _STATE.UNJOINED:
                self._polled_at = monotonic()  # the poll interval starts here, as in Java
            self.epoch = answer.member_epoch
            self._interval = max(answer.heartbeat_interval_ms, 1) / 1000
            if self._next_heartbeat:
                self._next_heartbeat = monotonic() + self._interval
            if answer.assignment is not None:
                self._given = answer.assignment.topic_partitions
                self._assign_wanted.set()
        else:
            _log.info("group %s: a heartbeat was answered with %s", self.group_id, code.name)
            self._repeat_all()
        self.state = TRANSITIONS.get((self.state, reaction), self.state)
        if reaction is HeartbeatReaction.JOIN_AGAIN:
            self._lose()
            self._failures += 1
            return self._cluster.backoff.after(self._failures - 1)
        if reaction in (HeartbeatReaction.FIND_COORDINATOR, HeartbeatReaction.WAIT):
            if reaction is HeartbeatReaction.FIND_COORDINATOR:
                self._coordinator.moved()
            self._failures += 1
            return self._cluster.backoff.after(self._failures)
        if reaction is HeartbeatReaction.FENCED:
            self._lose()
            self._fail(self._instance_fenced(code))
        elif reaction is HeartbeatReaction.GIVE_UP:
            self._lose()
            why = answer.error_message or self._refused(code)
            self._fail(GroupError(code, f"group {self.group_id!r}: {why} ({code.name})"))
        return 0.0

    def _refused(self, code: ErrorCode) -> str:
        """The meaning of a refusal's code, where the broker's answer has no message."""
        return self.unsupported if code is ErrorCode.UNSUPPORTED_VERSION else _REFUSED.get(code, code.name)

    def _lose(self) -> None:
        """The group goes on without this member."""
        self.epoch = JOIN_EPOCH
        self._given = None
        self._assign_wanted.set()

    async def _stall(self) -> None:
        """The application doesn't poll: leave, so that others get the partitions."""
        await self._leave(Deadline(LEAVE_SECONDS))
        self.state = _STATE.STOPPED
        self._lose()
        self._fail(self._poll_interval_exceeded())

    async def _leave(self, deadline: Deadline) -> None:
        """Leave the group. Errors are logged: the session will time out."""
        if self.state is not _STATE.JOINED:
            return
        try:
            answer = await self._coordinator.ask(self._leave_request(), deadline)
        except ClientError as error:
            _log.warning("group %s: leaving failed: %s", self.group_id, error)
            return
        if answer.error_code:
            _log.info("group %s: leaving failed with %s", self.group_id, error_code(answer.error_code).name)

    def _fail(self, failure: ClientError) -> None:
        """Have the next poll raise ``failure``, and do nothing before."""
        if self.failure is None:
            _log.error("%s", failure)
        self.failure = failure
        if self.state is not _STATE.FENCED:
            self.state = _STATE.STOPPED
        self.epoch = JOIN_EPOCH
        self._assign_wanted.set()

    # Assignments

    async def _assign_forever(self) -> None:
        """Take each assignment that an answer had, and drop the partitions when the membership is lost."""
        while True:
            await self._assign_wanted.wait()
            self._assign_wanted.clear()
            if self.state is not _STATE.JOINED:
                await self._give_up(self.assignment, lost=True)
                if self.state is _STATE.LOST:
                    self.state = _STATE.UNJOINED
                    self._send_now()
            elif self._given is not None:
                await self._assign(self._given)

    async def _assign(self, given: Given) -> None:
        """Give up what the member may no longer have, then take what is new."""
        if not all(each.topic_id in self._ids for each in given):
            await self._look_up_topics()
        target = frozenset(
            TopicPartition(self._ids[each.topic_id], partition)
            for each in given
            if each.topic_id in self._ids
            for partition in each.partitions
        )
        is_complete = all(each.topic_id in self._ids for each in given)
        await self._give_up(self.assignment - target)
        if self.state is not _STATE.JOINED:
            self._assign_wanted.set()
            return
        if self._given is given and is_complete:
            self._given = None
        new = target - self.assignment
        self.assignment |= new
        await self._call(self._callbacks.on_assigned, new)
        self._taken()
        if self._given is not None:
            if not is_complete:
                await asyncio.sleep(self._cluster.backoff.maximum)
            self._assign_wanted.set()

    async def _look_up_topics(self) -> None:
        """Learn the ids of the subscribed topics."""
        names = self._topics or frozenset()
        for name in names:
            topic = self._cluster.topic(name)
            if topic is not None and topic.id is not None:
                self._ids[topic.id] = name
        if self._given is None or all(each.topic_id in self._ids for each in self._given):
            return
        try:
            found = await self._cluster.fetch_topics(names, Deadline(self._cluster.request_timeout))
        except ClientError as error:
            _log.info("group %s: looking up assigned topics failed: %s", self.group_id, error)
            return
        for name, topic in found.items():
            if topic.id is not None:
                self._ids[topic.id] = name


_REFUSED = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user is not allowed to join the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user is not allowed to see a topic that it subscribes to",
}
