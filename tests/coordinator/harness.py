"""A group coordinator with a clock that tests move, and a log in memory that they can delay or break."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from tests.support.clock import FakeClock

from ottla_broker.coordinator.group.coordinator import GroupCoordinator, GroupListing
from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.membership import JoinRequest, LeaveRequest
from ottla_broker.coordinator.group.modern.settings import GroupTimes
from ottla_broker.coordinator.group.modern.topics import SubscribedTopic
from ottla_broker.coordinator.group.offsets import Committed
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.log.heard_connections import Arrival, ConnectionAge
from ottla_broker.log.verification import VerificationGuard
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_broker.replica.offset_waiters import OffsetWaiter, OffsetWaiters, Reached
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.join_group import JoinGroupResponse
from ottla_protocol.messages.sync_group import SyncGroupResponse
from ottla_protocol.records.batch import assign_offset, read_header
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import Record, decode_records

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000

_seeds = count()


class FakePartition:
    """A leader's partition, in memory.

    ``hold`` keeps writes uncommitted, ``refuse`` makes appends fail, ``most_bytes`` those of larger batches.
    """

    is_led_here = True

    def __init__(self, partition: int = 0, topic: str = OFFSETS_TOPIC) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = bytes(16)
        self.leader_epoch = 0
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.hold = False
        self.refuse: ErrorCode | None = None
        self.most_bytes = 1 << 20
        self.unreadable = False
        self.guard: VerificationGuard | None = None
        self.guards: list[VerificationGuard | None] = []
        self.waiters = OffsetWaiters()
        self.clock: FakeClock | None = None

    def hear(self, producer_id: int, epoch: int, connection: ConnectionAge, request: Hashable) -> Arrival:
        return Arrival.TIMELY

    def hear_from_now(self) -> None:
        pass

    def begin_verification(
        self, producer_id: int, sequence: int, epoch: int, now_ms: int
    ) -> VerificationGuard | None:
        return self.guard

    def append_internal(self, records: bytearray, now_ms: int, guard: VerificationGuard | None = None) -> int:
        self.guards.append(guard)
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        if len(records) > self.most_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        header = read_header(records)
        assign_offset(records, 0, self.end_offset, 0)
        self.batches.append(bytes(records))
        self.end_offset += header.last_offset_delta + 1
        return self.end_offset

    def is_committed(self, end_offset: int) -> bool:
        return not self.hold

    def when_committed(self, end_offset: int, callback: Reached) -> OffsetWaiter | None:
        return self.waiters.wait(end_offset, callback)

    def release(self, error: ErrorCode | None = None) -> None:
        """Commit what was held up, or fail it."""
        if error is None:
            self.waiters.reach(self.end_offset)
        else:
            self.waiters.fail(error)
        if self.clock is not None:
            self.clock.run_due()

    def scan(self, start_offset: int) -> Iterator[memoryview]:
        if self.unreadable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        for batch in self.batches:
            yield memoryview(batch)

    def records(self) -> list[Record]:
        """All records of the log."""
        return [
            record
            for batch in self.batches
            for position, header in iter_headers(batch)
            for record in decode_records(batch, position, header)
        ]


class Waiting:
    """A request's answer, once it has one. A second answer fails the test."""

    def __init__(self) -> None:
        self.answer: Any = None

    def __call__(self, answer: Any) -> None:
        assert self.answer is None, "answered twice"
        self.answer = answer

    @property
    def done(self) -> bool:
        return self.answer is not None

    @property
    def code(self) -> ErrorCode:
        assert self.answer is not None, "not answered"
        return ErrorCode(self.answer.error_code)

    @property
    def joined(self) -> JoinGroupResponse:
        assert isinstance(self.answer, JoinGroupResponse), self.answer
        assert self.answer.error_code == 0, ErrorCode(self.answer.error_code)
        return self.answer

    @property
    def synced(self) -> SyncGroupResponse:
        assert isinstance(self.answer, SyncGroupResponse), self.answer
        assert self.answer.error_code == 0, ErrorCode(self.answer.error_code)
        return self.answer


class SlowClock(FakeClock):
    """Reading this clock takes a millisecond."""

    def monotonic(self) -> float:
        self.time += 0.001
        return self.time


class NoTopics:
    """A cluster without topics."""

    version = 0

    def find(self, name: str) -> SubscribedTopic | None:
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


def usual_times(group_id: str) -> GroupTimes:
    """Kafka's defaults."""
    return GroupTimes(45_000, 5_000)


class World:
    """A coordinator of group ``g`` on one partition of the offsets topic."""

    def __init__(
        self,
        partition: FakePartition | None = None,
        load: bool = True,
        clock: FakeClock | None = None,
        **settings: int,
    ) -> None:
        settings.setdefault("initial_rebalance_delay_ms", DELAY_MS)
        self.clock = FakeClock() if clock is None else clock
        self.partition = FakePartition() if partition is None else partition
        self.partition.clock = self.clock
        self.coordinator = GroupCoordinator(
            GroupSettings(**settings),
            self.clock,
            random.Random(next(_seeds)),
            lambda: 1,
            NoTopics(),
            usual_times,
        )
        self.coordinator.start()
        self.coordinator.on_leader(self.partition)
        if load:
            self.clock.run_due()

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 9,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"meta"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client: str = "client",
    ) -> Waiting:
        waiting = Waiting()
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance,
            client_id=client,
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            needs_known_id=version >= 4,
            can_skip_assignment=version >= 9,
            reason="test",
        )
        self.coordinator.join(group, request, waiting)
        return waiting

    def member_id(self, **options: Any) -> str:
        """An id for a new dynamic member."""
        waiting = self.join(**options)
        assert waiting.code is ErrorCode.MEMBER_ID_REQUIRED
        return str(waiting.answer.member_id)

    def new(self, **options: Any) -> Waiting:
        """Both joins of a new dynamic member."""
        return self.join(self.member_id(**options), **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Waiting:
        waiting = Waiting()
        self.coordinator.sync(
            group,
            Sender(member_id, instance, generation),
            protocol_type,
            protocol_name,
            assignments or {},
            waiting,
        )
        return waiting

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None
    ) -> ErrorCode:
        return ErrorCode(self.coordinator.heartbeat(group, Sender(member_id, instance, generation)))

    def leave(
        self, member_id: str = "", *, group: str = "g", instance: str | None = None
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        error, errors = self.coordinator.leave(group, [LeaveRequest(member_id, instance, "test")])
        return ErrorCode(error), [ErrorCode(code) for code in errors]

    def commit(
        self,
        offset: int = 42,
        *,
        group: str = "g",
        member_id: str = "",
        instance: str | None = None,
        generation: int = -1,
        topic: str = "t",
        partition: int = 0,
        metadata: str = "",
        leader_epoch: int = -1,
        commit_ms: int | None = None,
        expire_ms: int = -1,
    ) -> list[ErrorCode] | None:
        """The error codes; None while the log has not committed it (``last_commit`` gets them later)."""
        answer: list[ErrorCode] = []
        self.last_commit = answer
        now = self.clock.now_ms() if commit_ms is None else commit_ms
        self.coordinator.commit(
            group,
            Sender(member_id, instance, generation),
            [(topic, partition, Committed(offset, leader_epoch, metadata, now, expire_ms))],
            lambda codes: answer.extend(map(ErrorCode, codes)),
        )
        if not answer:
            # At the end of the event loop's turn all but the turn's first change are appended.
            self.clock.run_due()
        return answer or None

    def commit_transactional(
        self,
        producer: tuple[int, int],
        offset: int = 42,
        *,
        group: str = "g",
        member_id: str = "",
        instance: str | None = None,
        generation: int = -1,
        topic: str = "t",
        partitions: tuple[int, ...] = (0,),
        metadata: str = "",
    ) -> list[ErrorCode]:
        """The error codes, once they are there."""
        answer: list[ErrorCode] = []
        self.coordinator.commit_transactional(
            group,
            producer,
            Sender(member_id, instance, generation),
            [(topic, index, Committed(offset, -1, metadata, self.clock.now_ms())) for index in partitions],
            lambda codes: answer.extend(map(ErrorCode, codes)),
        )
        return answer

    def end_transaction(self, producer: tuple[int, int], commit: bool) -> None:
        """Write a marker, and have it known that it is committed."""
        self.partition.append_internal(
            encode_transaction_marker(
                commit=commit,
                coordinator_epoch=0,
                producer_id=producer[0],
                producer_epoch=producer[1],
                timestamp_ms=0,
            ),
            0,
        )
        self.coordinator.complete_transaction([self.partition.partition], producer[0], commit)

    def unstable(self, *, group: str = "g", topic: str = "t", partition: int = 0) -> bool:
        """Whether a consumer that wants stable offsets has to ask again."""
        _, found = self.coordinator.fetch(group, [(topic, [partition])], True)
        return found[0][1][0].error == ErrorCode.UNSTABLE_OFFSET_COMMIT

    def offset(
        self, *, group: str = "g", topic: str = "t", partition: int = 0, require_stable: bool = False
    ) -> int:
        error, found = self.coordinator.fetch(group, [(topic, [partition])], require_stable)
        assert error == 0, ErrorCode(error)
        one = found[0][1][0]
        assert one.error == 0, ErrorCode(one.error)
        return one.offset

    def state(self, group: str = "g") -> str:
        return self.coordinator.describe(group).state

    def listed(self, states: Sequence[str], types: Sequence[str]) -> tuple[int, list[GroupListing]]:
        """The error code, and the groups that are listed."""
        error, found = self.coordinator.list(states, types)
        return error, [each for each in found if each is not None]

    def stable(self, members: int = 1, **options: Any) -> tuple[list[str], int]:
        """A stable group: its members' ids, the leader first, and its generation."""
        joins = [self.new(**options) for _ in range(members)]
        self.wait_for_more(joins)
        return self.finish(joins, **options)

    def wait_for_more(self, joins: list[Waiting]) -> None:
        """Let the wait of a new group for more members pass, exactly."""
        while not joins[0].done:
            self.clock.advance(DELAY_MS / 30_000)

    def finish(self, joins: list[Waiting], group: str = "g", **_: Any) -> tuple[list[str], int]:
        """Sync members whose joins have been answered."""
        leader = joins[0].joined.leader
        generation = joins[0].joined.generation_id
        ids = [join.joined.member_id for join in joins]
        ids.sort(key=lambda member_id: member_id != leader)
        shares = {member_id: b"share of " + member_id.encode() for member_id in ids}
        syncs = [self.sync(member_id, generation, group=group) for member_id in ids if member_id != leader]
        syncs.append(self.sync(leader, generation, shares, group=group))
        self.clock.run_due()
        assert all(sync.synced for sync in syncs)
        assert self.state(group) == "Stable"
        return ids, generation

    def restart(self, **settings: int) -> World:
        """Another broker takes over with the same log."""
        partition = FakePartition(self.partition.partition)
        partition.batches, partition.end_offset = list(self.partition.batches), self.partition.end_offset
        world = World(partition, load=False, **settings)
        world.clock.time = self.clock.time
        world.clock.run_due()
        return world
