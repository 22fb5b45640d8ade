"""The requests of share groups: ShareGroupHeartbeat, ShareGroupDescribe, deletion. Kafka: ``GroupMetadataManager``.

A heartbeat that finds partitions without state has the share coordinator initialize it, and is answered afterwards:
members get only partitions that have state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.group.errors import max_size_reached, refused, unknown_member
from ottla_broker.coordinator.group.metadata_limit import MetadataLimit
from ottla_broker.coordinator.group.modern.heartbeats import HeartbeatAnswer, HeartbeatReply
from ottla_broker.coordinator.group.modern.membership import MOST_NAMES
from ottla_broker.coordinator.group.modern.settings import GroupTimes, TimesOf
from ottla_broker.coordinator.group.modern.topics import SubscribedTopic, TopicsView
from ottla_broker.coordinator.group.share import records
from ottla_broker.coordinator.group.share.assignor import Topic, assign
from ottla_broker.coordinator.group.share.group import (
    InitializedTopic,
    Partitions,
    SessionTimer,
    ShareGroup,
    ShareMember,
)
from ottla_broker.coordinator.group.share.records import Row
from ottla_broker.coordinator.shard import Shard
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.state_batches import UNINITIALIZED, ShareKey
from ottla_broker.coordinator.share.state_coordinator import Settled
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.record import Record

_log = get_logger()

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
_A_FEW: Final = 32
"""How many states are initialized or deleted in one turn of the event loop: some milliseconds of work."""
_EPOCH_ZERO_SECONDS: Final = 1_577_836_800
"""2020-01-01: state epochs count seconds from here, so that a group made again fences leaders of the deleted one."""


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat request without its group. ``topics`` None: as before."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: Sequence[str] | None = None
    client_id: str = ""
    client_host: str = ""


class _Plan(NamedTuple):
    """The state that a group gets when ``rows`` are written."""

    rows: list[Row]
    epoch: int
    topics_hash: int
    target: Mapping[str, Partitions]
    assignment_epoch: int


def check(group_id: str, request: ShareHeartbeat) -> None:
    """Check what needs no group. Raises KafkaError, with Kafka's messages."""
    if not group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.epoch == JOIN_EPOCH:
        if not request.topics:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.epoch < LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch is invalid: {request.epoch}.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


class ShareGroups:
    """All share groups that this broker coordinates. Owned by the loop thread."""

    def __init__(
        self,
        persister: Persister,
        times_of: TimesOf,
        topics: TopicsView,
        most_members: Callable[[], int],
        clock: Clock,
    ) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self._persister = persister
        self._times_of = times_of
        self.topics = topics
        self._most_members = most_members
        self._clock = clock
        self._timers = Deadlines(clock, self._missed)
        self._closed = False
        # What members may state; the coordinator's.
        self.metadata_limit: MetadataLimit | None = None

    def close(self) -> None:
        self._closed = True
        self._timers.close()

    # Loading

    def resume(self, group: ShareGroup) -> None:
        self._list(group)
        for member_id in group.members:
            self._touch(group, member_id)

    def _list(self, group: ShareGroup) -> None:
        self.groups[group.group_id] = group
        if self.metadata_limit is not None:
            group.stated.count_in(self.metadata_limit)

    def unload(self, shard: Shard) -> None:
        for group in [each for each in self.groups.values() if each.shard is shard]:
            self._drop(group)

    def _drop(self, group: ShareGroup) -> None:
        group.is_dead = True
        for timer in group.timers.values():
            self._timers.clear(timer)
        group.timers.clear()
        self.groups.pop(group.group_id, None)
        group.stated.count_out()

    def make(self, group_id: str, shard: Shard) -> ShareGroup:
        """A group that isn't there yet, without members; only memory has it until something of it is written."""
        group = ShareGroup(group_id, shard)
        self._list(group)
        return group

    def discard_unwritten(self, group: ShareGroup) -> None:
        """Forget a group that was made, if nothing of it has been written."""
        if not (group.epoch or group.initialized or group.is_dead):
            self._drop(group)

    def takes_away(self, group_id: str, member_id: str, topic_id: bytes, partition: int) -> bool:
        """Whether the partition isn't the member's, or no longer will be after its next heartbeat.

        False for a group that another broker coordinates, and for an unknown member.
        """
        group = self.groups.get(group_id)
        if group is None or member_id not in group.members:
            return False
        return partition not in group.target.get(member_id, {}).get(topic_id, ())

    # ShareGroupHeartbeat

    def heartbeat(self, group_id: str, shard: Shard, request: ShareHeartbeat, reply: HeartbeatReply) -> None:
        """Serve a heartbeat: answered when the log has what it changed."""

        def refuse(error: KafkaError) -> None:
            reply(HeartbeatAnswer(request.member_id, request.epoch, error=error))

        try:
            group = self.groups.get(group_id)
            if request.epoch == LEAVE_EPOCH:
                self._leave(group_id, group, request.member_id)
                assert group is not None
                self._answer(group, HeartbeatAnswer(request.member_id, LEAVE_EPOCH), reply)
                return
            if group is None:
                if request.epoch != JOIN_EPOCH:
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
                group = ShareGroup(group_id, shard)
            self._accept(group, request)
        except KafkaError as error:
            refuse(error)
            return

        def proceed() -> None:
            try:
                self._answer(group, self._assigned(group, request), reply)
            except KafkaError as error:
                refuse(error)

        missing = self._without_state(group)
        if missing and not group.is_initializing:
            self._initialize(group, missing, proceed)
        else:
            proceed()

    def _accept(self, group: ShareGroup, request: ShareHeartbeat) -> None:
        """Check the member's epoch and take what it states. Raises KafkaError; then nothing has changed."""
        known = group.members.get(request.member_id)
        if known is None:
            if request.epoch != JOIN_EPOCH:
                raise unknown_member(group.group_id, request.member_id)
            most = self._most_members()
            if len(group.members) >= most:
                raise max_size_reached("share", most)
            _log.info("member joins", group=group.group_id, member=request.member_id, protocol="share")
            known = ShareMember(request.member_id)
        elif request.epoch > known.epoch:
            raise _fenced("greater", request.epoch, known.epoch)
        elif request.epoch not in (JOIN_EPOCH, known.epoch, known.previous_epoch):
            raise _fenced("smaller", request.epoch, known.epoch)
        updated = replace(
            known,
            rack_id=known.rack_id if request.rack_id is None else request.rack_id,
            topics=known.topics if request.topics is None else tuple(sorted(set(request.topics))),
            client_id=request.client_id,
            client_host=request.client_host,
        )
        if updated == group.members.get(request.member_id):
            return
        stated = known.stated_bytes if request.member_id in group.members else 0
        if self.metadata_limit is not None:
            self.metadata_limit.check(group.stated.bytes, stated, updated.stated_bytes)
        if not group.may_name(updated.topics):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The members of the group name more than {MOST_NAMES} topics, the most that are allowed.",
            )
        changes_topics = request.member_id not in group.members or updated.topics != known.topics
        epoch = group.epoch + 1 if changes_topics else group.epoch
        # Written now: another heartbeat may be served before state is initialized.
        self._write(
            group,
            [
                records.member(group.group_id, updated),
                records.epoch(group.group_id, epoch, group.topics_hash),
            ],
        )
        group.epoch = epoch
        group.put(updated)
        if group.group_id not in self.groups:
            self._list(group)
        self._touch(group, request.member_id)

    def _assigned(self, group: ShareGroup, request: ShareHeartbeat) -> HeartbeatAnswer:
        """Bring the target and the member up to date. Raises KafkaError."""
        if group.is_dead:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if request.member_id not in group.members:
            raise unknown_member(group.group_id, request.member_id)
        plan = self._plan(group)
        member = group.members[request.member_id]
        assigned = plan.target.get(member.member_id, {})
        changed = dict(assigned) != dict(member.assigned)
        rows = plan.rows
        if changed or member.epoch != plan.assignment_epoch:
            member = replace(
                member, epoch=plan.assignment_epoch, previous_epoch=member.epoch, assigned=assigned
            )
            rows.append(records.current(group.group_id, member))
        if rows:
            self._write(group, rows)
            group.epoch, group.topics_hash = plan.epoch, plan.topics_hash
            group.target, group.assignment_epoch = dict(plan.target), plan.assignment_epoch
            group.put(member)
        interval = self._touch(group, member.member_id)
        shows = changed or request.epoch == JOIN_EPOCH or request.epoch != member.epoch
        return HeartbeatAnswer(member.member_id, member.epoch, interval, member.assigned if shows else None)

    def _plan(self, group: ShareGroup) -> _Plan:
        """Compute the target again if members or topics have changed; this changes nothing."""
        rows: list[Row] = []
        epoch = group.epoch
        topics = self._assignable(group)
        topics_hash = _hash(topics)
        if topics_hash != group.topics_hash:
            epoch += 1
            rows.append(records.epoch(group.group_id, epoch, topics_hash))
        if group.assignment_epoch >= epoch:
            return _Plan(rows, epoch, topics_hash, group.target, group.assignment_epoch)
        target = assign(group.members, topics)
        for member_id, partitions in target.items():
            if dict(group.target.get(member_id, {})) != dict(partitions):
                rows.append(records.target(group.group_id, member_id, partitions))
        rows.append(records.target_epoch(group.group_id, epoch))
        return _Plan(rows, epoch, topics_hash, target, epoch)

    def _assignable(self, group: ShareGroup) -> list[Topic]:
        found = []
        for name, topic, ready in self._subscribed(group):
            partitions = tuple(index for index in range(topic.partitions) if index in ready)
            found.append(Topic(topic.topic_id, partitions, tuple(group.subscribers[name])))
        return found

    def _subscribed(self, group: ShareGroup) -> Iterator[tuple[str, SubscribedTopic, frozenset[int]]]:
        """The topics that exist, with the partitions that have state."""
        for name in sorted(group.subscribers):
            topic = self.topics.find(name)
            if topic is not None:
                known = group.initialized.get(topic.topic_id)
                yield name, topic, frozenset() if known is None else known.partitions

    # State of partitions

    def _without_state(self, group: ShareGroup) -> list[tuple[bytes, str, int]]:
        missing = []
        for name, topic, ready in self._subscribed(group):
            if len(ready) < topic.partitions:
                missing += [
                    (topic.topic_id, name, index) for index in range(topic.partitions) if index not in ready
                ]
        return missing

    def _initialize(
        self, group: ShareGroup, missing: Sequence[tuple[bytes, str, int]], done: Callable[[], None]
    ) -> None:
        """Have the share coordinator initialize partitions, note those for which it did, and then go on."""
        group.is_initializing = True
        names = {topic_id: name for topic_id, name, _ in missing}
        made: dict[bytes, set[int]] = {}
        epoch = state_epoch(self._clock)
        known = {topic_id: max(each.partitions, default=-1) for topic_id, each in group.initialized.items()}

        def begin(key: ShareKey, settled: Settled) -> None:
            # The first partitions begin where share.auto.offset.reset says. Those that a topic gets later begin at the
            # start: records may have come before the group noticed them (KAFKA-20742).
            added = key.partition > known.get(key.topic_id, key.partition)
            self._persister.initialize(key, epoch, 0 if added else UNINITIALIZED, settled)

        def settled(key: ShareKey, error: KafkaError | None) -> None:
            # Fenced: it has been initialized already, by a coordinator whose clock is ahead.
            if error is None or error.code is ErrorCode.FENCED_STATE_EPOCH:
                made.setdefault(key.topic_id, set()).add(key.partition)
            else:
                _log.warning(
                    "state of a share partition not initialized",
                    group=group.group_id,
                    topic=names[key.topic_id],
                    partition=key.partition,
                    error=error.code.name,
                )

        def finish() -> None:
            group.is_initializing = False
            if made and not group.is_dead:
                self.note_initialized(group, names, made)
            done()

        keys = [ShareKey(group.group_id, topic_id, index) for topic_id, _, index in missing]
        self.for_each(group, keys, begin, settled, finish)

    def note_initialized(
        self, group: ShareGroup, names: Mapping[bytes, str], made: Mapping[bytes, set[int]]
    ) -> None:
        """Write which partitions have state now; if the log refuses, the next heartbeat has it made again."""
        initialized = dict(group.initialized)
        for topic_id, indexes in made.items():
            before = initialized.get(topic_id)
            earlier = before.partitions if before is not None else frozenset()
            initialized[topic_id] = InitializedTopic(names[topic_id], earlier | indexes)
        try:
            self._write(group, [records.initialized(group.group_id, initialized)])
        except KafkaError as refused:
            _log.warning("share group not written", group=group.group_id, error=refused.code.name)
        else:
            group.initialized = initialized

    def note_deleted(self, group: ShareGroup, places: Iterable[tuple[bytes, int]]) -> None:
        """Write that partitions, by topic id and index, have no state any longer."""
        for topic_id, index in places:
            _forget_state(group, ShareKey(group.group_id, topic_id, index))
        self._keep(group)

    def for_each(
        self,
        group: ShareGroup,
        keys: Sequence[ShareKey],
        begin: Callable[[ShareKey, Settled], None],
        settled: Callable[[ShareKey, KafkaError | None], None],
        done: Callable[[], None],
    ) -> None:
        """Have the share coordinator do something for each key, a few at a time, and then call ``done``.

        Each few have a turn of the event loop of their own. Those that are left when the group is unloaded are skipped.
        """
        left = deque(keys)
        waiting = 0

        def few() -> None:
            nonlocal waiting
            if self._closed:
                return
            if not left or group.is_dead:
                done()
                return
            some = [left.popleft() for _ in range(min(_A_FEW, len(left)))]
            waiting = len(some)
            for key in some:
                begin(key, partial(each_settled, key))

        def each_settled(key: ShareKey, error: KafkaError | None) -> None:
            nonlocal waiting
            settled(key, error)
            waiting -= 1
            if waiting:
                return
            if left:
                self._clock.call_later(0, few)
            else:
                few()

        few()

    # Leaving, and timeouts

    def _leave(self, group_id: str, group: ShareGroup | None, member_id: str) -> None:
        """Raises KafkaError."""
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if member_id not in group.members:
            raise unknown_member(group_id, member_id)
        _log.info("member leaves", group=group_id, member=member_id, protocol="share")
        self._remove(group, member_id)

    def _remove(self, group: ShareGroup, member_id: str) -> None:
        """Raises KafkaError; then the member stays."""
        rows = records.without_member(group.group_id, member_id)
        rows.append(records.epoch(group.group_id, group.epoch + 1, group.topics_hash))
        self._write(group, rows)
        group.epoch += 1
        group.remove(member_id)
        group.target.pop(member_id, None)
        timer = group.timers.pop(member_id, None)
        if timer is not None:
            self._timers.clear(timer)

    def _touch(self, group: ShareGroup, member_id: str) -> int:
        """Extend a member's session; returns the heartbeat interval."""
        times: GroupTimes = self._times_of(group.group_id)
        timer = group.timers.get(member_id)
        if timer is None:
            timer = group.timers[member_id] = SessionTimer(group.group_id, member_id)
        self._timers.set(timer, times.session_timeout_ms / 1000)
        return times.heartbeat_interval_ms

    def _missed(self, timer: Deadline) -> None:
        assert isinstance(timer, SessionTimer)
        group = self.groups.get(timer.group_id)
        if group is None or group.timers.get(timer.member_id) is not timer:
            return
        _log.info(
            "member removed", group=group.group_id, member=timer.member_id, reason="the session timed out"
        )
        try:
            self._remove(group, timer.member_id)
        except KafkaError:
            self._timers.set(
                timer, 1.0
            )  # The log refuses for now; a broker that leads no longer drops the group.

    # Administration

    def delete(self, group: ShareGroup, reply: Callable[[int], None]) -> None:
        """Delete an empty group: first its state, then its records."""
        failure: KafkaError | None = None

        def finish() -> None:
            if group.is_dead:
                reply(codes.NOT_COORDINATOR)
                return
            if failure is not None or group.members:
                reply(codes.NON_EMPTY_GROUP if failure is None else int(failure.code))
                self._keep(group)
                return
            try:
                self._write(group, records.without_group(group.group_id))
            except KafkaError as error:
                reply(int(error.code))
                return
            end, shard = group.end_offset, group.shard
            self._drop(group)
            shard.when_committed(end, lambda code, _: reply(code))

        def settled(key: ShareKey, error: KafkaError | None) -> None:
            nonlocal failure
            failure = failure or error
            if error is None:
                _forget_state(group, key)

        self.for_each(group, self.state_keys(group), self._persister.delete, settled, finish)

    def _keep(self, group: ShareGroup) -> None:
        """Note which state a group still has that was not deleted after all: members need state made again."""
        try:
            self._write(group, [records.initialized(group.group_id, group.initialized)])
        except KafkaError as error:
            _log.warning("share group not written", group=group.group_id, error=error.code.name)

    @staticmethod
    def state_keys(group: ShareGroup) -> list[ShareKey]:
        return [
            ShareKey(group.group_id, topic_id, index)
            for topic_id, topic in group.initialized.items()
            for index in sorted(topic.partitions)
        ]

    # The log

    def _write(self, group: ShareGroup, rows: Sequence[Row]) -> None:
        """Raises KafkaError, as clients get it."""
        try:
            group.end_offset = group.shard.write(rows)
        except KafkaError as error:
            raise refused(group.group_id, int(error.code)) from error

    def _answer(self, group: ShareGroup, answer: HeartbeatAnswer, reply: HeartbeatReply) -> None:
        def committed(code: int, _: int) -> None:
            if code == codes.NONE:
                reply(answer)
            else:
                reply(answer._replace(error=refused(group.group_id, code), assignment=None))

        group.shard.when_committed(group.end_offset, committed)


class ShareGroupLoader:
    """Builds the share groups of a shard from its records. Owned by the loop thread."""

    def __init__(self, shard: Shard, groups: ShareGroups) -> None:
        self._shard = shard
        self._groups = groups
        self._found: dict[str, ShareGroup] = {}

    def replay(self, record: Record) -> None:
        """Raises ProtocolError."""
        assert record.key is not None
        key, value = records.decode(record.key, record.value)
        group = self._found.get(key.group_id)
        if group is None:
            group = self._found[key.group_id] = ShareGroup(key.group_id, self._shard)
        if not records.apply(group, key, value):
            del self._found[key.group_id]

    def publish(self) -> Iterator[None]:
        found, self._found = self._found, {}
        for group in found.values():
            if group.epoch or group.initialized:
                self._groups.resume(group)
            yield

    def unload(self) -> None:
        self._found = {}
        self._groups.unload(self._shard)


def _forget_state(group: ShareGroup, key: ShareKey) -> None:
    known = group.initialized.get(key.topic_id)
    if known is not None:
        group.initialized[key.topic_id] = known._replace(partitions=known.partitions - {key.partition})
        if not group.initialized[key.topic_id].partitions:
            del group.initialized[key.topic_id]


def state_epoch(clock: Clock) -> int:
    """The state epoch of share partitions that are initialized now."""
    return max(1, clock.now_ms() // 1000 - _EPOCH_ZERO_SECONDS)


def _fenced(relation: str, received: int, known: int) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {relation} member epoch ({received}) than the one known by the group"
        f" coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def _hash(topics: Iterable[Topic]) -> int:
    """Of the topics that members can get: a signed 64-bit number."""
    text = "|".join(f"{topic.topic_id.hex()}:{topic.partitions}" for topic in topics)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
