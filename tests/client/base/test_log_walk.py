"""Walks through logs with markers, aborted transactions and gaps: what is left to read, and the last N records."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_client.deadline import Deadline
from ottla_client.requests.log_walk import COMMITTED, UNCOMMITTED, Fetched, LogWalk
from ottla_client.types import TopicPartition
from ottla_protocol.lag import MOST_LOOK_BYTES, beyond_end, unread
from ottla_protocol.records.batch import read_header, write_crc
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.record import decode_records, encode_batch, rebuild_batch

PRODUCERS = 3


@dataclass
class FakeLog:
    """A log in memory, and what is in it."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """Last offset and bytes."""
    transactions: list[tuple[int, int, int]] = field(default_factory=list)
    """Aborted ones: first offset, marker, producer."""
    readable: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    end: int = 0
    stable: int = 0

    @classmethod
    def made(cls, steps: list[tuple[int, int, int]]) -> FakeLog:
        """Steps of (kind, producer, kept): plain or transactional data with some offsets removed, commit, abort."""
        log = cls()
        pending: dict[int, list[int]] = {}
        begun: dict[int, int] = {}
        for kind, producer, kept in steps:
            if kind in (2, 3):
                if producer not in begun:
                    continue
                marker = encode_transaction_marker(
                    commit=kind == 2,
                    coordinator_epoch=0,
                    producer_id=producer,
                    producer_epoch=0,
                    timestamp_ms=log.end,
                    base_offset=log.end,
                )
                if kind == 3:
                    log.transactions.append((begun[producer], log.end, producer))
                else:
                    log.committed += pending[producer]
                del begun[producer], pending[producer]
                log.batches.append((log.end, bytes(marker)))
                log.end += 1
                continue
            is_transactional = kind == 1
            batch = encode_batch(
                [(log.end + at, None, b"x" * 20, ()) for at in range(8)],
                base_offset=log.end,
                producer_id=producer if is_transactional else -1,
                producer_epoch=0 if is_transactional else -1,
                base_sequence=0 if is_transactional else -1,
                transactional=is_transactional,
            )
            header = read_header(batch)
            left = [each for each in decode_records(batch, 0, header) if kept >> (each.offset - log.end) & 1]
            if len(left) < 8:
                batch = rebuild_batch(header, left)
                write_crc(batch, 0, len(batch))
            offsets = [each.offset for each in left]
            log.readable += offsets
            if is_transactional:
                begun.setdefault(producer, log.end)
                pending.setdefault(producer, []).extend(offsets)
            else:
                log.committed += offsets
            log.batches.append((header.last_offset, bytes(batch)))
            log.end += 8
        log.stable = min(begun.values(), default=log.end)
        log.committed = sorted(each for each in log.committed if each < log.stable)
        return log


class FakeWalk(LogWalk):
    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.fetches = 0
        self._partition = TopicPartition("t", 0)
        self._deadline = Deadline(60)

    async def fetch(self, offset: int, isolation: int = UNCOMMITTED, max_bytes: int = 1) -> Fetched:
        self.fetches += 1
        end = self.log.stable if isolation == COMMITTED else self.log.end
        data = b""
        last = -1
        for its_last, batch in self.log.batches:
            if its_last < offset or its_last >= end:
                continue
            if data and len(data) + len(batch) > max_bytes:
                data += batch[:30]  # cut off, as brokers do
                break
            data += batch
            last = its_last
        aborted = tuple(
            (first, producer)
            for first, marker, producer in self.log.transactions
            if first <= last and marker >= offset and isolation == COMMITTED
        )
        return Fetched(data, aborted)


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, PRODUCERS - 1), st.one_of(st.just(255), st.integers(0, 255))),
    max_size=40,
)


@settings(max_examples=examples(300), deadline=None)
@given(STEPS, st.data())
def test_the_last_records_are_records_that_can_be_read(steps: Any, data: Any) -> None:
    log = FakeLog.made(steps)
    isolation = data.draw(st.sampled_from((UNCOMMITTED, COMMITTED)))
    readable, end = (log.readable, log.end) if isolation == UNCOMMITTED else (log.committed, log.stable)
    start = data.draw(st.integers(0, end))
    count = data.draw(st.integers(0, 60))
    walk = FakeWalk(log)
    found = asyncio.run(walk.last(count, start, end, isolation))
    there = [each for each in readable if each >= start]
    assert start <= found <= end
    assert [each for each in there if each >= found] == (there[-count:] if count else [])
    assert walk.fetches <= 2 * len(log.batches) + 2


@settings(max_examples=examples(300), deadline=None)
@given(STEPS, st.data())
def test_lag_counts_records_that_can_be_read(steps: Any, data: Any) -> None:
    log = FakeLog.made(steps)
    offset = data.draw(st.integers(0, log.end))
    walk = FakeWalk(log)
    look, first = asyncio.run(walk.look(offset, log.end))
    # Behind the last stable offset nothing is decided: offsets count. Of a batch that compaction has thinned out, no
    # more than it has can be left.
    decided = [each for each in log.committed if each >= offset]
    most = len(decided) + max(0, log.end - max(offset, log.stable))
    left = look.unread(0, log.end)
    assert most <= left <= most + 8
    assert left <= log.end - offset
    if not any(kept != 255 for kind, _, kept in steps if kind < 2):
        assert left == most
    if decided:
        assert first is not None
        assert (first.offset, first.timestamp) == (decided[0], decided[0])
    elif first is not None:
        assert first.offset >= log.stable


def test_logs_are_looked_through_to_a_bound() -> None:
    """64 KiB of one in which all offsets are records; 1 MiB of another one."""
    abort = (3, 0, 0)
    for steps, left in (
        ([(1, 0, 255)] * 1000 + [abort], 0),
        ([(1, 0, 255)] * 1000 + [abort, *[(0, 0, 255)] * 1000, (1, 0, 255), abort], 8000),
        ([(0, 0, 255)] * 1000 + [(1, 0, 255), abort], 8009),
    ):
        log = FakeLog.made(steps)
        look, _ = asyncio.run(FakeWalk(log).look(0, log.end))
        assert look.unread(0, log.end) == left
    log = FakeLog.made([(1, 0, 255)] * 6000 + [abort])
    look, _ = asyncio.run(FakeWalk(log).look(0, log.end))
    size = len(log.batches[0][1])
    assert look.unread(0, log.end) == log.end - look.next
    assert MOST_LOOK_BYTES * 0.99 < look.next / 8 * size <= MOST_LOOK_BYTES


def test_an_offset_beyond_the_end_is_no_lag() -> None:
    assert (unread(10, 0, 4), beyond_end(10, 4)) == (0, 6)
    assert (unread(3, 0, 4), beyond_end(3, 4)) == (1, 0)


def test_what_was_removed_is_no_lag() -> None:
    assert unread(10, 1000, 1000) == 0
    assert unread(10, 990, 1000) == 10
    assert unread(10, 0, 1000, done=5) == 985
