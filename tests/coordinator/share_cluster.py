"""A share partition in a cluster of three on virtual time: leaders and share coordinators move, requests are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from tests.coordinator.harness import FakePartition
from tests.coordinator.share_world import AnyUser, MemoryLog
from tests.support.clock import FakeClock

from ottla_broker.config.group_configs import ShareSettings
from ottla_broker.coordinator.share.in_flight import Acknowledgement
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.share_partition import SharePartition
from ottla_broker.coordinator.share.share_partitions import SharePartitions
from ottla_broker.coordinator.share.state_batches import UNINITIALIZED, ShareKey, ShareState, StateChange
from ottla_broker.coordinator.share.state_coordinator import (
    Read,
    Settled,
    ShareStateCoordinator,
    StateSettings,
)
from ottla_broker.log.verification import VerificationGuard
from ottla_broker.metadata.internal_topics import SHARE_STATE_TOPIC
from ottla_broker.tasks import run_whole
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import read_header

KEY: Final = ShareKey("g", b"t" * 16, 0)
BROKERS: Final = range(3)
GIVES_UP_SECONDS: Final = 1.0
"""How long a broker waits for another's answer."""


class StateReplica(FakePartition):
    """One broker's leadership of the partition of ``__share_group_state``.

    Attributes:
        committed: what any later leader has.
        commits: whether what is appended is committed at once.
    """

    def __init__(self, epoch: int, batches: Sequence[bytes] = (), committed: int = 0) -> None:
        super().__init__(0, SHARE_STATE_TOPIC)
        self.leader_epoch = epoch
        self.batches = list(batches)
        self.end_offset = _end(self.batches[-1]) if batches else 0
        self.committed = committed
        self.commits = True
        self.is_led_here = True

    def append_internal(self, records: bytearray, now_ms: int, guard: VerificationGuard | None = None) -> int:
        if not self.is_led_here:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        end = super().append_internal(records, now_ms, guard)
        if self.commits:
            self.committed = end
        return end

    def is_committed(self, end_offset: int) -> bool:
        return end_offset <= self.committed

    def commit(self) -> None:
        self.committed = self.end_offset
        self.waiters.reach(self.committed)


def _end(batch: bytes) -> int:
    return read_header(bytearray(batch)).last_offset + 1


class DataPartition:
    """One broker's leadership of the topic's partition."""

    topic, partition = "t", 0

    def __init__(self, epoch: int, log: MemoryLog) -> None:
        self.leader_epoch = epoch
        self.log = log
        self.is_led_here = self.is_open = True

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    last_stable_offset = high_watermark

    def check_leader(self) -> None:
        if not self.is_led_here:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Network:
    """What one broker asks of the share coordinators, each of which it reaches by one connection at a time.

    Attributes:
        coordinator: the broker that it takes for the coordinator.
        fates: what becomes of the next requests to others: "lost", "unanswered", "late" or "served".
        late: requests that may still arrive, by a connection that was given up.
    """

    def __init__(self, brokers: list[Broker], number: int, clock: FakeClock) -> None:
        self.coordinator = 0
        self.fates: list[str] = []
        self.late: list[Callable[[], None]] = []
        self._brokers = brokers
        self._number = number
        self._clock = clock
        self._connected_at: dict[int, float] = {}

    def initialize(self, key: ShareKey, epoch: int, start: int, settled: Settled) -> None:
        self._send(None, settled, lambda to, answer: to.initialize(key, epoch, start, answer))

    def read(self, key: ShareKey, leader_epoch: int, read: Read) -> None:
        self._send(leader_epoch, read, lambda to, answer: to.read(key, leader_epoch, answer))

    def write(self, key: ShareKey, change: StateChange, settled: Settled) -> None:
        self._send(change.leader_epoch, settled, lambda to, answer: to.write(key, change, answer))

    def delete(self, key: ShareKey, settled: Settled) -> None:
        self._send(None, settled, lambda to, answer: to.delete(key, answer))

    def summary(self, key: ShareKey, read: Read) -> None:
        self._send(None, read, lambda to, answer: to.summary(key, answer))

    def _send(
        self,
        leader_epoch: int | None,
        answered: Callable[[Any], None],
        request: Callable[[ShareStateCoordinator, Callable[[Any], None]], None],
    ) -> None:
        number = self.coordinator
        to = self._brokers[number].coordinator
        if number == self._number:
            request(to, answered)
            return
        connected_at = self._connected_at.setdefault(number, self._clock.monotonic())
        is_answered = False

        def answer(what: object) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                answered(what)

        def give_up() -> None:
            if not is_answered:
                if self._connected_at.get(number) == connected_at:
                    del self._connected_at[number]
                answer(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        def serve(answer: Callable[[Any], None]) -> None:
            if to.is_late(KEY, leader_epoch, connected_at):
                give_up()
            else:
                request(to, answer)

        fate = self.fates.pop() if self.fates else "served"
        if fate == "served":
            serve(answer)
        elif fate == "unanswered":
            serve(lambda _: None)
        elif fate == "late":
            self.late.append(lambda: serve(lambda _: None))
        self._clock.call_later(GIVES_UP_SECONDS, give_up)


class Broker:
    """What one of the brokers has for share groups."""

    def __init__(self, brokers: list[Broker], clock: FakeClock, settings: ShareSettings) -> None:
        self.coordinator = ShareStateCoordinator(
            StateSettings(topic_partitions=1, updates_per_snapshot=4, prune_interval_ms=10**9),
            clock,
            lambda: 1,
            lambda index, offset: None,
        )
        self.coordinator.start()
        self.network = Network(brokers, len(brokers), clock)
        self.persister = Persister(self.network, _nothing, clock)
        self.shares = SharePartitions(self.persister, lambda _: settings, clock, cast(Any, None), run_whole)


_USERS = AnyUser(), AnyUser()


async def _nothing() -> None:
    """The topic exists."""


class ShareCluster:
    """Within an event loop: :meth:`open` makes it.

    Attributes:
        leader: the broker that leads the topic's partition by ``data``.
        state: the leadership of the partition of ``__share_group_state``, by the broker ``coordinator``.
    """

    def __init__(self, settings: ShareSettings) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.brokers: list[Broker] = []
        for _ in BROKERS:
            self.brokers.append(Broker(self.brokers, self.clock, settings))
        self.leader, self.coordinator = 0, 1
        self.data = DataPartition(0, self.log)
        self.state = StateReplica(0)
        # What every later leader of the state has, whether the present one knows or not.
        self._certain = 0
        self._earlier_data: list[DataPartition] = []
        self._earlier_states: list[tuple[int, StateReplica]] = []

    @classmethod
    async def open(cls, settings: ShareSettings) -> ShareCluster:
        cluster = cls(settings)
        cluster.brokers[cluster.coordinator].coordinator.on_leader(cast(Any, cluster.state))
        cluster.settle()
        cluster.tell_all()
        made: list[KafkaError | None] = []
        cluster.brokers[2].persister.initialize(KEY, 1, UNINITIALIZED, made.append)
        for broker in cluster.brokers:
            # The first request of each finds the topic.
            broker.persister.summary(KEY, lambda _: None)
            for _ in range(3):
                await asyncio.sleep(0)
        cluster.settle()
        assert made == [None]
        return cluster

    def settle(self) -> None:
        self.clock.run_due()

    # The controller

    def move_leader(self, to: int) -> None:
        """Have another broker lead the topic's partition; the earlier leader doesn't know."""
        self._earlier_data.append(self.data)
        self.leader = to
        self.data = DataPartition(self.data.leader_epoch + 1, self.log)
        self.brokers[to].shares.on_leader(cast(Any, self.data))

    def move_coordinator(self, to: int, kept: int, known: int) -> None:
        """Have another broker lead the state, with ``kept`` of what isn't committed.

        Of what is committed, ``known`` batches aren't known to be. The earlier leader doesn't know.
        """
        earlier = self.state
        self._earlier_states.append((self.coordinator, earlier))
        self._certain = max(self._certain, earlier.committed)
        batches = [each for each in earlier.batches if _end(each) <= self._certain]
        acknowledged = batches[: max(0, len(batches) - known)]
        batches += earlier.batches[len(batches) : len(batches) + kept]
        earlier.commits = False
        self.coordinator = to
        committed = _end(acknowledged[-1]) if acknowledged else 0
        self.state = StateReplica(earlier.leader_epoch + 1, batches, committed)
        self.state.commits = False
        self.brokers[to].coordinator.on_leader(cast(Any, self.state))

    def tell(self, number: int) -> None:
        """Have one broker learn who leads what."""
        broker = self.brokers[number]
        broker.network.coordinator = self.coordinator
        for at, state in self._earlier_states:
            if at == number and state.is_led_here:
                state.is_led_here = False
                state.waiters.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if self.coordinator != number:
                    broker.coordinator.on_stop(SHARE_STATE_TOPIC, 0)
        for data in self._earlier_data:
            data.is_led_here = False
        if self.leader != number:
            broker.shares.on_stop("t", 0)

    def tell_all(self) -> None:
        for number in BROKERS:
            self.tell(number)

    def commit(self) -> None:
        """Have all replicas get what the coordinator has, and what it appends from now on."""
        self.state.commits = True
        self.state.commit()

    # Members

    @property
    def share(self) -> SharePartition | None:
        """The share partition at its leader."""
        return self.brokers[self.leader].shares.find(KEY)

    def fetch(self, member: str, most: int) -> list[int]:
        """The offsets that a fetch acquires."""
        try:
            share = self.brokers[self.leader].shares.get(KEY, cast(Any, self.data))
            share.users.update(_USERS)
            while True:
                tried = share.fetch(member, most, 1 << 20, True)
                if not tried.unfinished:
                    break
        except KafkaError:
            return []
        found = () if tried.acquired is None else tried.acquired.batches
        return [each for a, b, *_ in found for each in range(a, b + 1)]

    def held(self, share: SharePartition | None, member: str) -> list[int]:
        if share is None:
            return []
        locked = share.in_flight.locked(lambda lock: lock.member_id == member)
        return [offset for first, last in locked for offset in range(first, last + 1)]

    @staticmethod
    def acknowledge(
        share: SharePartition,
        member: str,
        offsets: Sequence[int],
        kind: int,
        reply: Callable[[KafkaError | None], None],
    ) -> None:
        share.acknowledge(member, [Acknowledgement(each, each, [kind]) for each in offsets], reply)


def state_of(cluster: ShareCluster) -> ShareState | KafkaError:
    """What the share coordinator has."""
    answers: list[ShareState | KafkaError] = []
    cluster.brokers[cluster.coordinator].coordinator.summary(KEY, answers.append)
    return answers[0]
