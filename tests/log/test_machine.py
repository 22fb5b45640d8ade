"""A log compared with a model: batches that survive appends, rolls, truncations, restarts and crashes."""

from __future__ import annotations

import os
import shutil
import tempfile
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.depth import examples

from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.tasks import run_whole
from ottla_protocol.records.batch import read_header

from .batches import batch
from .conftest import NOW_MS

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=200, file_delete_delay_ms=0)


class LogMachine(RuleBasedStateMachine):
    """``stored``: first offset, last offset and bytes of each batch in the log, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="ottla-log-")
        self.path = self.folder + "/flights-0"
        os.mkdir(self.path)
        self.files = Files(max_open=8)
        self.stored: list[tuple[int, int, bytes]] = []
        self.end = 0
        self.start = 0
        self.sequence = 0
        # Whether batches of the producer were deleted as old records.
        self.producer_deleted = False
        # Position of a consumer that reads new records.
        self.tail = 0
        self.log = self.open(clean=True)

    def open(self, *, clean: bool, recovery_point: int = 0) -> Log:
        environment = LogEnvironment(self.files, lambda: NOW_MS, Random(1))
        return Log(
            self.path,
            "flights",
            0,
            CONFIG,
            environment,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
        ).open()

    def teardown(self) -> None:
        self.files.close()
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        assert self.log.log_end_offset == 0

    @rule(
        count=st.integers(1, 5), idempotent=st.booleans(), epoch=st.integers(0, 2), later=st.integers(-50, 50)
    )
    def append(self, count: int, idempotent: bool, epoch: int, later: int) -> None:
        numbers = {"producer_id": 7, "epoch": 0, "sequence": self.sequence} if idempotent else {}
        data = batch(count, timestamp=NOW_MS + later, **numbers)
        epoch = max(epoch, self.log.epochs.latest)
        info = self.log.append(data, leader_epoch=epoch, now_ms=NOW_MS, from_client=True)
        assert (info.first_offset, info.last_offset, info.duplicate) == (
            self.end,
            self.end + count - 1,
            False,
        )
        self.stored.append((self.end, info.last_offset, bytes(data)))
        self.end += count
        if idempotent:
            self.sequence += count
            data[0:8] = bytes(8)
            again = self.log.append(data, leader_epoch=epoch, now_ms=NOW_MS, from_client=True)
            assert again.duplicate
            assert (again.first_offset, again.last_offset) == (info.first_offset, info.last_offset)

    @rule(max_bytes=st.sampled_from([100, 300, 10_000]))
    def follow(self, max_bytes: int) -> None:
        """A consumer at the end reads on from its position."""
        offset = min(max(self.tail, self.start), self.end)
        while offset < self.end:
            part = self.log.reader.read(offset, max_bytes, max_offset=self.end, min_one=True)
            assert part is not None
            data = part.read()
            assert data.startswith(next(one[2] for one in self.stored if one[1] >= offset))
            position = 0
            while (
                len(data) - position >= 61
                and (header := read_header(data, position)).size <= len(data) - position
            ):
                offset = header.last_offset + 1
                position += header.size
        self.tail = offset

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from([first for first, _, _ in self.stored]))
        self.log.truncate_to(offset)
        self.forget_from(offset)

    def forget_from(self, offset: int) -> None:
        self.stored = [one for one in self.stored if one[0] < offset]
        self.end = offset
        self.start = min(self.start, offset)
        headers = [read_header(data) for _, _, data in self.stored]
        sequences = [header.last_sequence for header in headers if header.producer_id == 7]
        if not sequences and self.producer_deleted:
            # Its batches were deleted; a snapshot may still know them.
            known = self.log.producers.producers.get(7)
            sequences = [] if known is None else [known.last_sequence]
        self.sequence = 1 + max(sequences, default=-1)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from([first for first, _, _ in self.stored]))
        self.log.advance_log_start_offset(offset)
        self.log.delete_old_segments(NOW_MS)
        self.start = self.log.log_start_offset
        kept = self.log.segments[0].base_offset
        deleted = [data for _, last, data in self.stored if last < kept]
        self.producer_deleted |= any(read_header(data).producer_id == 7 for data in deleted)
        self.stored = [one for one in self.stored if one[1] >= kept]

    @rule()
    def restart(self) -> None:
        self.log.close()
        assert self.log.recovery_point == self.end
        self.log = self.open(clean=True, recovery_point=self.end)
        assert self.log.log_end_offset == self.end

    @rule(garbage=st.binary(max_size=200), lost=st.integers(0, 300))
    def crash(self, garbage: bytes, lost: int) -> None:
        """Kill the process; part of what was not flushed is left, maybe with garbage after it."""
        recovery_point = self.log.recovery_point
        active = self.log.active
        path, size = active.file.path, active.size
        safe = 0
        for first, last, data in self.stored:
            if first >= active.base_offset and last < recovery_point:
                safe += len(data)
        left = max(safe, size - lost)
        with open(path, "r+b") as stream:
            stream.truncate(left)
            stream.seek(left)
            stream.write(garbage)
        self.log = self.open(clean=False, recovery_point=recovery_point)
        position, end = 0, active.base_offset
        for first, last, data in self.stored:
            if first >= active.base_offset:
                if position + len(data) > left:
                    break
                position += len(data)
                end = last + 1
        if end < self.start:
            # Not even hidden records are left: the log restarts at its start offset.
            end = self.start
            self.stored.clear()
        assert self.log.log_end_offset == end
        self.forget_from(end)

    @rule(max_bytes=st.integers(1, 2000), data=st.data())
    def read(self, max_bytes: int, data: st.DataObject) -> None:
        if self.start >= self.end:
            return
        offset = data.draw(st.integers(self.start, self.end - 1))
        bound = data.draw(st.integers(offset, self.end))
        part = self.log.reader.read(offset, max_bytes, max_offset=bound, min_one=True)
        got = b"" if part is None else part.read()
        wanted = [one for one in self.stored if one[1] >= offset and one[1] < bound]
        whole = b"".join(data for _, _, data in wanted)
        if not wanted or wanted[0][0] > offset:
            assert got == b""
        else:
            assert whole.startswith(got)
            assert len(got) >= len(wanted[0][2])
            assert len(got) <= max(max_bytes, len(wanted[0][2]))

    @invariant()
    def agrees(self) -> None:
        if not self.log.is_open:
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.size == sum(len(data) for _, _, data in self.stored)
        assert log.recovery_point <= self.end
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        newest = run_whole(log.reader.find_max_timestamp())
        readable = [read_header(data).max_timestamp for _, last, data in self.stored if last >= self.start]
        assert (newest and newest[1]) == max(readable, default=None)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=examples(30), stateful_step_count=30, deadline=None)
