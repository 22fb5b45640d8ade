"""A member of a consumer group: joins, gets its partitions, stays in, and leaves.

A member has two tasks. One joins when there is a reason to, and awaits the callbacks. The other sends heartbeats, also
while callbacks run, and leaves the group when the application has stopped polling. ``member_state`` says what each
response means. Like Java's ConsumerCoordinator, except that rebalances don't wait for poll() here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, ProtocolError, error_code
from ottla_protocol.messages.heartbeat import HeartbeatRequest
from ottla_protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla_protocol.messages.sync_group import SyncGroupRequest

from ..cluster.tasks import background
from ..deadline import Deadline
from ..errors import (
    ClientError,
    CommitFailedError,
    GroupError,
    is_retriable,
)
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .assignors import Assignor, RebalanceProtocol, Subscription, common_protocol
from .base_member import BaseMember
from .consumer_protocol import PROTOCOL_TYPE, read_assignment, subscription_bytes
from .leader import Leader
from .member_state import Generation, MemberState, MemberStateMachine, Reaction, Step
from .offsets import KICKED_OUT, OffsetsClient
from .settings import MemberCallbacks, MemberSettings

if TYPE_CHECKING:
    from ..cluster import Cluster

_log = logging.getLogger("ottla_client")

JOIN_LAPSE = 5.0
"""Seconds for the response to JoinGroup, on top of the time that the group waits for its members."""
LEAVE_SECONDS = 5.0
"""The longest wait of a member that left after max_poll_interval_ms for the response to LeaveGroup."""
LONGEST_REASON = 255
"""The most characters of a reason that brokers accept (KIP-800)."""
_LEAVES_SEVERAL = 3
"""The first version of LeaveGroup with a list of members."""


class GroupMember(BaseMember):
    """Made by a consumer that subscribes. Belongs to one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        settings: MemberSettings,
        assignors: Sequence[Assignor],
        callbacks: MemberCallbacks,
        offsets: OffsetsClient | None = None,
    ) -> None:
        """``assignors`` in order of preference, used by this member only (see ``assignors_named``).

        Raises ConfigurationError for an empty group id, and for assignors that share no rebalance protocol.
        """
        super().__init__(cluster, group_id, settings, callbacks)
        self._offsets = offsets or OffsetsClient(cluster, group_id)
        self.protocol = common_protocol(assignors)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._leader = Leader(cluster, self._wake_join_task)
        self._machine = MemberStateMachine()
        self._joined_topics: frozenset[str] | None = None
        self._waits_for_poll = False  # joins again after the next poll
        self._join_wanted = asyncio.Event()

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics; a change makes the member join again."""
        self._topics = frozenset(topics)
        self._wake_join_task()

    def start(self) -> None:
        """Join as soon as there is a subscription. Call it in the event loop; a second call does nothing."""
        if self._join_task is not None or self._closed:
            return
        self._polled_at = monotonic()
        self._join_task = background(self._join_forever(), f"a member of {self.group_id}")
        self._heartbeat_task = background(self._heartbeat_forever(), f"heartbeats in {self.group_id}")

    def _try_again(self) -> None:
        self._waits_for_poll = False
        self._wake_join_task()

    @property
    def group_metadata(self) -> ConsumerGroupMetadata | None:
        """The member's id and generation; None while it is not joined."""
        if self._machine.state is not MemberState.STABLE:
            return None
        generation = self._machine.generation
        instance = self._settings.group_instance_id
        return ConsumerGroupMetadata(self.group_id, generation.id, generation.member_id, instance)

    def joined_metadata(self) -> ConsumerGroupMetadata:
        """``group_metadata``. Raises CommitFailedError or GroupError, as ``commit`` does, while it is not joined."""
        member = self.group_metadata
        if member is None:
            raise self._not_a_member()
        return member

    @property
    def state(self) -> MemberState:
        return self._machine.state

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline) -> None:
        """Commit as a member.

        Raises the errors of ``OffsetsClient.commit``: CommitFailedError if the member isn't in the group any more,
        GroupError with REBALANCE_IN_PROGRESS while it joins again.
        """
        if not offsets:
            return
        member = self.joined_metadata()
        sent = self._machine.generation
        try:
            await self._offsets.commit(offsets, deadline, member=member)
        except GroupError as error:
            reaction = self._machine.react(Step.COMMIT, error.code, sent)
            if reaction is Reaction.FENCED:
                self._fail(error)
            self._wake_join_task()
            if reaction is Reaction.GO_ON and not self._machine.lost:
                # The response was for an earlier generation; the member is in, or joining, a new one.
                raise GroupError(
                    ErrorCode.REBALANCE_IN_PROGRESS,
                    f"group {self.group_id!r}: the group rebalanced during the commit; commit again for"
                    " the partitions that are still assigned",
                ) from error
            raise

    async def committed(
        self,
        partitions: Collection[TopicPartition] | None,
        deadline: Deadline,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's offsets; see ``OffsetsClient.fetch``."""
        return await self._offsets.fetch(partitions, deadline, require_stable=require_stable)

    async def close(self, deadline: Deadline) -> None:
        """Give up the assignment, with its callback, and leave the group, by the deadline.

        Static members don't leave: the group waits for them to come back (KIP-345). A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._stop_joining(deadline)
            lost = self._machine.lost or self._machine.state is not MemberState.STABLE
            await self._give_up_all(deadline, lost=lost)
            await self._leave("the consumer is being closed", deadline)
        finally:
            self._machine.lose("closed")
            self._leader.resign()
            await self._cancel_tasks()

    async def _join_forever(self) -> None:
        """Join whenever there is a reason."""
        failures = 0
        while not self._closed:
            await self._until_due()
            try:
                reaction = await self._join()
            except ProtocolError as error:
                self._fail(ClientError(f"group {self.group_id!r}: a member's metadata is invalid: {error}"))
                continue
            except ClientError as error:
                self._machine.ask_to_rejoin(f"rebalance failed due to {type(error).__name__}")
                if not is_retriable(error):
                    self._fail(error)
                    continue
                _log.info("group %s: joining failed, trying again: %s", self.group_id, error)
                reaction = Reaction.WAIT
            if reaction in (Reaction.GO_ON, Reaction.TAKE_ID):
                failures = 0
                continue
            failures += 1
            # After an immediate response, retry the first time without a back-off.
            backs_off = reaction in (Reaction.WAIT, Reaction.FIND_COORDINATOR)
            await asyncio.sleep(self._cluster.backoff.after(failures if backs_off else failures - 1))

    async def _until_due(self) -> None:
        while True:
            self._join_wanted.clear()
            if self._machine.lost and self.assignment:
                # Give up at once, even if the member joins again only after the next poll.
                await self._give_up(self.assignment, lost=True)
                continue
            reason = self._reason_to_join()
            if reason is not None and not self._waits_for_poll and self._topics is not None:
                self._machine.ask_to_rejoin(reason)
                return
            await self._join_wanted.wait()

    def _reason_to_join(self) -> str | None:
        if self._joined_topics is not None and self._joined_topics != self._topics:
            return "subscription has changed"
        if self._leader.outdated():
            return "cached metadata has changed"
        return self._machine.rejoin

    async def _join(self) -> Reaction:
        """One attempt of JoinGroup and SyncGroup. Raises ClientError, ProtocolError."""
        machine = self._machine
        if machine.unprepared:
            machine.unprepared = False
            await self._on_join_prepare()
        connection = await self._coordinator.connection(self._short())
        topics = self._joined_topics = self._topics or frozenset()
        request = self._join_request(topics)
        sent = machine.begin_join()
        rebalance = self._settings.max_poll_interval_ms / 1000
        timeout = max(self._cluster.request_timeout, rebalance + JOIN_LAPSE)
        answer = await self._coordinator.submit(connection, request, Deadline(None), timeout)
        code = error_code(answer.error_code)
        reaction = self._react(Step.JOIN, code, sent)
        if reaction is Reaction.TAKE_ID:
            machine.take_id(answer.member_id)
        if reaction is not Reaction.GO_ON:
            return reaction
        self._check_protocol(answer.protocol_type, answer.protocol_name)
        sent = Generation(answer.generation_id, answer.member_id, answer.protocol_name)
        if not machine.complete_join(sent):
            return Reaction.JOIN_AGAIN
        self._polled_at = monotonic()  # the poll interval starts here, as in Java
        self._heartbeat_wanted.set()
        return await self._sync(sent, answer)

    def _join_request(self, topics: frozenset[str]) -> JoinGroupRequest:
        settings = self._settings
        generation = self._machine.generation
        protocols = []
        for name, assignor in self._assignors.items():
            subscription = Subscription(
                topics,
                assignor.user_data(topics),
                tuple(sorted(self.assignment)),
                generation.id,
                settings.client_rack or None,
            )
            protocols.append(JoinGroupRequestProtocol(name=name, metadata=subscription_bytes(subscription)))
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=generation.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=(self._machine.rejoin or "")[:LONGEST_REASON],
        )

    def _check_protocol(self, protocol_type: str | None, protocol: str | None) -> None:
        """Raise GroupError for another protocol type, or an assignor that this member doesn't have."""
        if protocol_type not in (None, PROTOCOL_TYPE) or protocol not in self._assignors:
            raise GroupError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id!r} uses {protocol_type or PROTOCOL_TYPE!r} and {protocol!r};"
                f" this member has {PROTOCOL_TYPE!r} and {', '.join(map(repr, self._assignors))}",
            )

    async def _sync(self, sent: Generation, joined: JoinGroupResponse) -> Reaction:
        """Send SyncGroup, as leader with all assignments, and take the member's own from the response."""
        assert sent.protocol is not None
        assignor = self._assignors[sent.protocol]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=sent.id,
            member_id=sent.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=sent.protocol,
        )
        if joined.leader == sent.member_id:
            request.assignments = await self._leader.assign(
                assignor, joined.members, self._short(), skip=joined.skip_assignment
            )
        else:
            self._leader.resign()
        rebalance = self._settings.max_poll_interval_ms / 1000
        timeout = max(self._cluster.request_timeout, rebalance + JOIN_LAPSE)
        answer = await self._coordinator.ask(request, Deadline(None), timeout=timeout)
        reaction = self._react(Step.SYNC, error_code(answer.error_code), sent)
        if reaction is not Reaction.GO_ON:
            return reaction
        self._check_protocol(answer.protocol_type, answer.protocol_name or sent.protocol)
        partitions = read_assignment(answer.assignment) if answer.assignment else ()
        if not self._machine.complete_sync(sent):
            return Reaction.JOIN_AGAIN
        await self._on_join_complete(assignor, partitions, sent.id)
        return Reaction.GO_ON

    def _react(self, step: Step, code: ErrorCode, sent: Generation) -> Reaction:
        """Handle a response; failures are raised by :meth:`BaseMember.polled`."""
        reaction = self._machine.react(step, code, sent)
        if reaction is not Reaction.GO_ON:
            # Each new member is first given its id.
            level = logging.DEBUG if reaction is Reaction.TAKE_ID else logging.INFO
            _log.log(level, "group %s: %s answered with %s", self.group_id, step.name.lower(), code.name)
        if reaction is Reaction.FIND_COORDINATOR:
            self._coordinator.moved()
        elif reaction is Reaction.FENCED:
            self._fail(self._instance_fenced(code))
        elif reaction is Reaction.GIVE_UP:
            self._fail(GroupError(code, f"group {self.group_id!r}: {_REFUSED.get(code, code.name)}"))
        return reaction

    async def _on_join_prepare(self) -> None:
        """Before JoinGroup, give up partitions as the protocol says. Java's onJoinPrepare."""
        self._leader.resign()
        if self._machine.lost:
            await self._give_up(self.assignment, lost=True)
        elif self.protocol is RebalanceProtocol.EAGER:
            await self._give_up(self.assignment)
        else:
            await self._give_up({each for each in self.assignment if each.topic not in (self._topics or ())})

    async def _on_join_complete(
        self, assignor: Assignor, partitions: Collection[TopicPartition], generation: int
    ) -> None:
        """Apply a new assignment. Java's onJoinComplete."""
        assigned = frozenset(partitions)
        topics = self._topics or frozenset()
        if any(each.topic not in topics for each in assigned):
            self._machine.ask_to_rejoin("received assignment does not match the current subscription")
            return
        gone = self.assignment - assigned
        if gone:
            await self._give_up(gone)
            self._machine.ask_to_rejoin("need to revoke partitions and re-join")
        assignor.on_assignment(tuple(partitions), generation)
        new = assigned - self.assignment
        if self._machine.lost:
            return  # lost during the callback; the rest is given up before the next join
        self.assignment = assigned
        await self._call(self._callbacks.on_assigned, new)

    def _fail(self, failure: ClientError) -> None:
        """Have the next poll raise ``failure``, and do nothing before."""
        if self.failure is None:
            _log.error("%s", failure)
        self.failure = failure
        self._waits_for_poll = True
        self._wake_join_task()

    def _wake_join_task(self) -> None:
        self._join_wanted.set()

    def _short(self) -> Deadline:
        """The deadline of requests that are answered at once."""
        return Deadline(self._cluster.request_timeout)

    def _not_a_member(self) -> GroupError:
        """The reason why commits fail now."""
        start = f"group {self.group_id!r}: nothing was committed: "
        if self._machine.state in (MemberState.PREPARING, MemberState.COMPLETING):
            return GroupError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"{start}the member is joining a rebalance; commit again after it",
            )
        why = KICKED_OUT if self._joined_topics is not None else "the member has not joined the group yet"
        return CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, start + why)

    async def _heartbeat_forever(self) -> None:
        """Send heartbeats while the member is in a generation; leave when the application stops polling."""
        interval = self._settings.heartbeat_interval_ms / 1000
        poll_interval = self._settings.max_poll_interval_ms / 1000
        next_heartbeat = 0.0
        while True:
            self._heartbeat_wanted.clear()
            if not self._machine.joined:
                await self._heartbeat_wanted.wait()
                next_heartbeat = monotonic() + interval
                continue
            now = monotonic()
            stalls_at = self._polled_at + poll_interval
            if now >= stalls_at:
                await self._stall()
            elif now < next_heartbeat:
                await self._pause(min(next_heartbeat, stalls_at) - now)
            elif await self._heartbeat():
                next_heartbeat = now + interval
            else:
                await self._pause(self._cluster.backoff.initial)

    async def _heartbeat(self) -> bool:
        """Send one heartbeat; False asks for a retry soon."""
        sent = self._machine.generation
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=sent.id,
            member_id=sent.member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        # Without a response for a session timeout, look up the coordinator again, as Java does.
        timeout = min(self._settings.session_timeout_ms / 1000, self._cluster.request_timeout)
        try:
            answer = await self._coordinator.ask(request, Deadline(timeout), timeout=timeout)
        except ClientError as error:
            if not is_retriable(error):
                self._fail(error)
            _log.info("group %s: a heartbeat failed: %s", self.group_id, error)
            return False
        reaction = self._react(Step.HEARTBEAT, error_code(answer.error_code), sent)
        self._wake_join_task()
        return reaction not in (Reaction.FIND_COORDINATOR, Reaction.WAIT)

    async def _stall(self) -> None:
        """The application doesn't poll: leave, so that others get the partitions."""
        self._fail(self._poll_interval_exceeded())
        await self._leave("consumer poll timeout has expired.", Deadline(LEAVE_SECONDS))

    async def _leave(self, reason: str, deadline: Deadline) -> None:
        """Leave the group; static members only stop. Errors are logged: the session will time out."""
        machine = self._machine
        member_id = machine.generation.member_id
        static = self._settings.group_instance_id is not None
        leaves = not static and bool(member_id) and machine.state is not MemberState.UNJOINED
        joining = machine.state in (MemberState.PREPARING, MemberState.COMPLETING)
        machine.lose(reason)
        if not leaves:
            return
        try:
            connection = await self._coordinator.connection(deadline, aside=joining)
            member = MemberIdentity(member_id=member_id, reason=reason[:LONGEST_REASON])
            request = LeaveGroupRequest(group_id=self.group_id, members=[member])
            if connection.version_of(ApiKey.LEAVE_GROUP) < _LEAVES_SEVERAL:
                request = LeaveGroupRequest(group_id=self.group_id, member_id=member_id)
            answer = await self._coordinator.submit(connection, request, deadline)
        except ClientError as error:
            _log.warning("group %s: LeaveGroup failed: %s", self.group_id, error)
            return
        codes = [answer.error_code, *(each.error_code for each in answer.members)]
        failed = [error_code(code).name for code in codes if code]
        if failed:
            _log.info("group %s: LeaveGroup failed with %s", self.group_id, ", ".join(failed))


_REFUSED = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members share no assignment strategy with this one, or it is a share group"
        " (INCONSISTENT_GROUP_PROTOCOL); add one of theirs to partition_assignment_strategy, or name another group"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker refuses this session_timeout_ms (INVALID_SESSION_TIMEOUT); it must be within the broker's"
        " group.min.session.timeout.ms and group.max.session.timeout.ms"
    ),
    ErrorCode.INVALID_GROUP_ID: "the broker refuses this group_id (INVALID_GROUP_ID)",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "this user is not allowed to join the group (GROUP_AUTHORIZATION_FAILED)"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group has the most members that the broker allows, group.max.size (GROUP_MAX_SIZE_REACHED)"
    ),
}
"""The meanings of refusals' codes, and what to do."""
