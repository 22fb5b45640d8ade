"""A partition with transactions, its replica, and a model of both: appends, markers, failovers, restarts, reads."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.log.batches import batch
from tests.support.clock import FakeClock
from tests.support.depth import examples

from ottla_broker.log import txn_index
from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.log.verification import UNVERIFIED
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import TRANSACTIONAL
from ottla_protocol.records.control import COMMIT, decode_control
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import decode_records

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=0)
PRODUCERS = st.integers(1, 3)
BROKERS = (0, 1)


@dataclass
class Batch:
    """What the model knows of a batch. ``ends``: of a marker, whether it commits."""

    first: int
    last: int
    producer: int
    transactional: bool
    ends: bool | None = None


@dataclass
class Transaction:
    """A transaction in a log; ``marker`` is None while it is open."""

    producer: int
    first: int
    marker: int | None = None
    committed: bool = False
    stable: int = -1


def transactions(stored: list[Batch]) -> list[Transaction]:
    """The transactions of a log, by their first offsets."""
    found: list[Transaction] = []
    opened: dict[int, Transaction] = {}
    for each in stored:
        if each.ends is not None:
            ended = opened.pop(each.producer, None)
            if ended is not None:
                ended.marker, ended.committed = each.first, each.ends
                ended.stable = min((one.first for one in opened.values()), default=each.first + 1)
        elif each.transactional and each.producer not in opened:
            opened[each.producer] = Transaction(each.producer, each.first)
            found.append(opened[each.producer])
    return found


class Replica:
    """A broker's log and partition; the model's ``stored`` is what the log has."""

    def __init__(self, number: int, root: str, clock: FakeClock) -> None:
        self.number = number
        self.path = f"{root}/{number}/t-0"
        os.makedirs(self.path)
        self.clock = clock
        self.files = Files(max_open=8)
        self.stored: list[Batch] = []
        # Below this offset a restart or truncation has forgotten transactions that ended above the high watermark.
        self.forgotten = 0
        self.open(clean=True, recovery_point=0, start=0, high_watermark=0)

    def open(self, *, clean: bool, recovery_point: int, start: int, high_watermark: int) -> None:
        environment = LogEnvironment(self.files, lambda: NOW_MS, Random(1))
        self.log = Log(
            self.path,
            "t",
            0,
            CONFIG,
            environment,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=start,
        )
        logs: Any = SimpleNamespace(get=lambda *_: self.log, high_watermark=lambda *_: high_watermark)
        self.partition = Partition("t", 0, bytes(16), ReplicaEnvironment(self.number, logs, self.clock))
        assert self.partition.log is self.log

    def restart(self, clean: bool) -> None:
        log, high_watermark = self.log, self.partition.high_watermark
        if clean:
            log.close()
        self.open(
            clean=clean,
            recovery_point=log.recovery_point,
            start=log.log_start_offset,
            high_watermark=high_watermark,
        )
        self.forgotten = self.log.log_end_offset

    def truncate(self, offset: int) -> None:
        if offset < self.log.log_end_offset:
            self.forgotten = offset
        self.partition.truncate(offset)
        self.stored = [each for each in self.stored if each.last < offset]

    def last_stable(self, *, exactly: bool = True) -> int:
        """The model's last stable offset; unless ``exactly``, without ended transactions."""
        high_watermark = self.partition.high_watermark
        unstable = [
            each.first
            for each in transactions(self.stored)
            if each.marker is None or (exactly and each.marker >= high_watermark)
        ]
        return max(min([high_watermark, *unstable]), self.log.log_start_offset)

    def check(self) -> None:
        log, partition = self.log, self.partition
        assert log.log_end_offset == (self.stored[-1].last + 1 if self.stored else log.log_end_offset)
        if partition.high_watermark >= self.forgotten:
            assert partition.last_stable_offset == self.last_stable()
        else:
            assert self.last_stable() <= partition.last_stable_offset <= self.last_stable(exactly=False)
        found = transactions(self.stored)
        opened = {each.producer: each.first for each in found if each.marker is None}
        states = log.producers.producers
        known = {key: entry.txn_first_offset for key, entry in states.items() if entry.txn_first_offset >= 0}
        assert known == opened
        assert log.producers.unstable.first_open == min(opened.values(), default=None)
        aborted = [
            AbortedTransaction(each.producer, each.first, each.marker, each.stable)
            for each in sorted(found, key=lambda each: each.marker or -1)
            if each.marker is not None and not each.committed
        ]
        indexed = [
            entry
            for segment in log.segments
            for entry in txn_index.read(self.files, segment.path(".txnindex"))
        ]
        # A restart forgets what was deleted, and with it the transactions of markers that are left in the files.
        start = log.log_start_offset
        assert [each for each in indexed if each.last_offset >= start] == [
            each for each in aborted if each.last_offset >= start
        ]


def consume(data: bytes, aborted: list[AbortedTransaction]) -> list[int]:
    """What a consumer that reads only committed records takes: the first offsets of batches."""
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    skipped: set[int] = set()
    taken = []
    for position, header in iter_headers(data):
        while waiting and waiting[0].first_offset <= header.last_offset:
            skipped.add(waiting.pop(0).producer_id)
        if header.is_control:
            if decode_control(decode_records(data, position, header)[0]).type != COMMIT:
                skipped.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in skipped:
            taken.append(header.base_offset)
    return taken


class TransactionMachine(RuleBasedStateMachine):
    """``replicas[0]`` leads, ``replicas[1]`` follows; epochs and sequences are the producers'."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="ottla-transactions-")
        self.clock = FakeClock()
        self.replicas = [Replica(number, self.root, self.clock) for number in BROKERS]
        self.leader_epoch = -1
        self.producer_epochs = dict.fromkeys((1, 2, 3), 0)
        self.coordinator_epoch = 0
        self.appoint()

    def teardown(self) -> None:
        for each in self.replicas:
            each.files.close()
        shutil.rmtree(self.root)

    @property
    def leader(self) -> Replica:
        return self.replicas[0]

    @property
    def follower(self) -> Replica:
        return self.replicas[1]

    def appoint(self) -> None:
        """Have the first replica lead in a new epoch, and the second follow."""
        self.leader_epoch += 1
        state = LeaderState(0, self.leader.number, self.leader_epoch, BROKERS, 0, BROKERS)
        self.leader.partition.lead(state)
        self.follower.partition.follow(state)

    def next_sequence(self, producer: int) -> int:
        entry = self.leader.log.producers.producers.get(producer)
        if entry is None or entry.epoch != self.producer_epochs[producer]:
            return 0
        return entry.last_sequence + 1

    @rule(producer=PRODUCERS, transactional=st.booleans(), count=st.integers(1, 3), size=st.integers(0, 150))
    def produce(self, producer: int, transactional: bool, count: int, size: int) -> None:
        data = batch(
            [b"x" * size] * count,
            producer_id=producer,
            epoch=self.producer_epochs[producer],
            sequence=self.next_sequence(producer),
            attributes=TRANSACTIONAL if transactional else 0,
        )
        opened = any(
            each.producer == producer and each.marker is None for each in transactions(self.leader.stored)
        )
        if opened and not transactional:
            assert self.refusal(data) is ErrorCode.INVALID_TXN_STATE
            return
        info = self.leader.partition.append(memoryview(data), NOW_MS, UNVERIFIED)
        self.leader.stored.append(Batch(info.first_offset, info.last_offset, producer, transactional))

    @rule(count=st.integers(1, 3), size=st.integers(0, 150))
    def produce_plain(self, count: int, size: int) -> None:
        info = self.leader.partition.append(memoryview(batch([b"p" * size] * count)), NOW_MS)
        self.leader.stored.append(Batch(info.first_offset, info.last_offset, -1, False))

    @rule(producer=PRODUCERS, commit=st.booleans(), fence=st.booleans())
    def end(self, producer: int, commit: bool, fence: bool) -> None:
        """A marker; one that fences has the producer's next epoch."""
        epoch = self.producer_epochs[producer] + fence
        end = self.leader.partition.append_marker(producer, epoch, self.coordinator_epoch, commit, NOW_MS)
        self.producer_epochs[producer] = epoch
        entry = self.leader.log.producers.producers[producer]
        assert (entry.epoch, entry.coordinator_epoch) == (epoch, self.coordinator_epoch)
        self.leader.stored.append(Batch(end - 1, end - 1, producer, True, commit))

    @rule(producer=PRODUCERS)
    def zombie(self, producer: int) -> None:
        """A producer or coordinator that was replaced changes nothing."""
        entry = self.leader.log.producers.producers.get(producer)
        if entry is None:
            return
        number, epoch, coordinator = producer, entry.epoch, entry.coordinator_epoch
        if epoch > 0:
            data = batch(1, producer_id=number, epoch=epoch - 1, sequence=0, attributes=TRANSACTIONAL)
            assert self.refusal(data) is ErrorCode.INVALID_PRODUCER_EPOCH
            assert self.refused_marker(number, epoch - 1, 9) is ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator > 0:
            code = self.refused_marker(number, epoch, coordinator - 1)
            assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def refusal(self, data: bytearray) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.leader.partition.append(memoryview(data), NOW_MS, UNVERIFIED)
        return caught.value.code

    def refused_marker(self, producer: int, epoch: int, coordinator_epoch: int) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.leader.partition.append_marker(producer, epoch, coordinator_epoch, True, NOW_MS)
        return caught.value.code

    @rule()
    def coordinator_moves(self) -> None:
        self.coordinator_epoch += 1

    @rule(max_bytes=st.sampled_from([1, 300, 100_000]))
    def replicate(self, max_bytes: int) -> None:
        leader, follower = self.leader, self.follower
        offset = follower.log.log_end_offset
        leader.partition.fetched_by(follower.number, offset, follower.log.log_start_offset, -1)
        if offset < leader.log.log_start_offset:
            follower.partition.restart_at(leader.log.log_start_offset)
            follower.stored.clear()
            follower.forgotten = 0
            return
        found = leader.log.reader.read(offset, max_bytes, max_offset=leader.log.log_end_offset, min_one=True)
        data = b"" if found is None else found.read()
        follower.partition.append_from_leader(
            memoryview(data), leader.partition.high_watermark, leader.log.log_start_offset
        )
        end = follower.log.log_end_offset
        follower.stored += [each for each in leader.stored if offset <= each.first and each.last < end]

    @rule()
    def roll(self) -> None:
        self.leader.log.roll()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        """Not in the middle of a transaction: of its rest, a restart knows less than before."""
        partition, start = self.leader.partition, self.leader.log.log_start_offset
        found = transactions(self.leader.stored)
        bounds = [
            offset
            for offset in range(start, partition.high_watermark + 1)
            if not any(
                each.first < offset <= (offset if each.marker is None else each.marker) for each in found
            )
        ]
        if bounds:
            partition.delete_records(data.draw(st.sampled_from(bounds)))
        self.leader.log.delete_old_segments(NOW_MS)

    @rule(which=st.sampled_from(BROKERS), clean=st.booleans(), flush=st.booleans())
    def restart(self, which: int, clean: bool, flush: bool) -> None:
        if flush:
            self.replicas[which].log.flush()
        self.replicas[which].restart(clean)
        self.fail_over(swap=False)

    @rule(swap=st.booleans())
    def fail_over(self, swap: bool) -> None:
        """Another epoch, maybe with the other replica as leader: the follower loses what the leader lacks."""
        if swap:
            self.replicas.reverse()
        self.appoint()
        if self.follower.log.log_end_offset > self.leader.log.log_end_offset:
            self.follower.truncate(self.leader.log.log_end_offset)
        for producer in self.producer_epochs:
            entry = self.leader.log.producers.producers.get(producer)
            self.producer_epochs[producer] = max(0, 0 if entry is None else entry.epoch)

    @rule(producer=PRODUCERS, commit=st.booleans(), more=st.booleans())
    def lose_an_end(self, producer: int, commit: bool, more: bool) -> None:
        """The follower takes over without the last marker, or the batch before it."""
        self.replicate(100_000)
        self.produce(producer, True, 1, 10)
        if more:
            self.replicate(100_000)
        self.end(producer, commit, False)
        self.fail_over(swap=True)

    @precondition(lambda self: self.leader.partition.last_stable_offset > self.leader.log.log_start_offset)
    @rule(which=st.sampled_from(BROKERS), max_bytes=st.integers(1, 1500), data=st.data())
    def read_committed(self, which: int, max_bytes: int, data: st.DataObject) -> None:
        replica = self.replicas[which]
        reader, stable = replica.log.reader, replica.partition.last_stable_offset
        start = replica.log.log_start_offset
        if start >= stable:
            return
        offset = data.draw(st.integers(start, stable - 1))
        found = reader.read(offset, max_bytes, max_offset=stable, min_one=True)
        if found is None:
            return
        records = found.read()
        headers = [header for _, header in iter_headers(records)]
        if not headers:
            return
        end = headers[-1].last_offset + 1
        assert end <= stable
        ended = transactions(replica.stored)
        lost = {
            each.first
            for one in ended
            if one.marker is not None and not one.committed
            for each in replica.stored
            if each.producer == one.producer
            and each.transactional
            and each.ends is None
            and one.first <= each.first < one.marker
        }
        wanted = [
            each.first
            for each in replica.stored
            if each.ends is None and each.last >= offset and each.last < end and each.first not in lost
        ]
        aborted = reader.aborted(offset, found, stable)
        assert consume(records, aborted) == wanted
        every = {
            (each.producer, each.first) for each in ended if each.marker is not None and not each.committed
        }
        assert {(each.producer_id, each.first_offset) for each in aborted} <= every

    @invariant()
    def agrees(self) -> None:
        for each in self.replicas:
            each.check()
        assert not list(Path(self.root).glob("*/t-0/*.tmp"))


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
