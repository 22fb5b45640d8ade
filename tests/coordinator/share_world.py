"""A share partition on a log in memory, with a state that outlives it, and a clock that tests move."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from tests.support.clock import FakeClock

from ottla_broker.config.group_configs import ShareSettings
from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.share.in_flight import Acknowledgement, Batch
from ottla_broker.coordinator.share.share_partition import Acquired, AcquisitionLock, SharePartition
from ottla_broker.coordinator.share.state_batches import (
    ShareKey,
    ShareState,
    StateChange,
    merged,
    overlay,
    trim,
)
from ottla_broker.coordinator.share.tally import DeliveryTally
from ottla_broker.tasks import run_whole
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.record import encode_batch

KEY = ShareKey("g", bytes(16), 0)


class Keeper:
    """The share coordinator. ``failure`` is what it answers to the next reads."""

    def __init__(self, state: ShareState | None = None) -> None:
        self.start = 0 if state is None else state.start
        self.batches: list[Batch] = [] if state is None else list(state.batches)
        self.failure: KafkaError | None = None
        self.writes = 0

    def read(self, key: ShareKey, leader_epoch: int, read: Callable[[ShareState | KafkaError], None]) -> None:
        read(self.failure or ShareState(1, 0, self.start, merged(self.batches)))

    def write(self, key: ShareKey, change: StateChange, settled: Callable[[KafkaError | None], None]) -> None:
        self.writes += 1
        overlay(self.batches, change.batches)
        self.start = change.start
        trim(self.batches, change.start)
        settled(None)


class AnyUser:
    """In place of a session."""

    def forget(self, share: SharePartition) -> None:
        """It has closed."""


class MemorySlice:
    """In place of a slice of a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self) -> bytes:
        return self._data

    def read_at(self, start: int, size: int) -> bytes:
        return self._data[start : start + size]

    def part(self, start: int, size: int) -> MemorySlice:
        return MemorySlice(self.read_at(start, size))


class MemoryLog:
    """A log in memory that notes the offsets at which it was read."""

    def __init__(self) -> None:
        self.log_start_offset = self.log_end_offset = 0
        self.reader = self
        self.reads: list[int] = []
        self._batches: list[bytes] = []
        self._ends: list[int] = []

    def append(self, keys: Sequence[bytes | None], codec: int = 0) -> None:
        """Append one batch."""
        rows = [(0, key, b"v", ()) for key in keys]
        self._batches.append(bytes(encode_batch(rows, base_offset=self.log_end_offset, codec=codec)))
        self.log_end_offset += len(keys)
        self._ends.append(self.log_end_offset)

    def read(self, offset: int, max_bytes: int, *, max_offset: int, min_one: bool) -> Any:
        self.reads.append(offset)
        first = bisect_left(self._ends, offset + 1)
        found: list[bytes] = []
        size = 0
        for end, batch in zip(self._ends[first:], self._batches[first:], strict=True):
            size += len(batch)
            if end > max_offset or (found and size > max_bytes):
                break
            found.append(batch)
        return MemorySlice(b"".join(found)) if found else None

    def aborted(self, *_: object) -> tuple[()]:
        return ()


class ShareWorld:
    """One share partition, which :meth:`restart` makes again from what was persisted."""

    def __init__(self, settings: ShareSettings, keeper: Keeper | None = None) -> None:
        self.settings = settings
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.keeper = keeper or Keeper()
        self.on_thread: list[Callable[[], None]] = []
        self.tally = DeliveryTally()
        self._user = AnyUser()
        self.share = self._make()
        self.share.load()

    def restart(self) -> None:
        """Lose what is in memory."""
        self.share.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.share = self._make()
        self.share.load()

    def _make(self) -> SharePartition:
        log = self.log
        partition = SimpleNamespace(
            topic="t",
            partition=0,
            leader_epoch=0,
            log=log,
            is_open=True,
            is_led_here=True,
            check_leader=lambda: None,
        )
        # As long as nothing is replicated, all that was written is committed.
        type_of = type(
            "Partition", (SimpleNamespace,), {"high_watermark": property(lambda _: log.log_end_offset)}
        )
        share = SharePartition(
            KEY,
            cast(Any, type_of(**vars(partition))),
            cast(Any, self.keeper),
            lambda _: self.settings,
            self.clock,
            Deadlines(self.clock, self._timed_out),
            lambda _: None,
            cast(Any, self._run),
            run_whole,
            self.tally,
        )
        share.users.add(self._user)
        return share

    def _timed_out(self, lock: Deadline) -> None:
        assert isinstance(lock, AcquisitionLock)
        lock.partition.lock_timed_out(lock)

    def _run(self, function: Callable[..., Any], *args: object) -> Any:
        """What is to run on a thread runs when the test says so."""
        callbacks: list[Callable[[Any], None]] = []
        done = SimpleNamespace(
            cancelled=lambda: False,
            exception=lambda: None,
            result=lambda: function(*args),
            add_done_callback=callbacks.append,
        )
        self.on_thread.append(lambda: callbacks[0](done))
        return done

    def fetch(self, member: str, most: int = 100) -> Acquired | None:
        """What a fetch acquires, with all its turns."""
        while True:
            tried = self.share.fetch(member, most, 1 << 20, True)
            if not tried.unfinished:
                return tried.acquired

    def offsets(self, member: str, most: int = 100) -> list[int]:
        """The offsets that a fetch acquires."""
        found = self.fetch(member, most)
        return [] if found is None else [each for a, b, *_ in found.batches for each in range(a, b + 1)]

    def acknowledge(self, member: str, acks: dict[int, int]) -> KafkaError | None:
        """Acknowledge offsets with types; the error, if any."""
        answers: list[KafkaError | None] = []
        batches = [Acknowledgement(offset, offset, [kind]) for offset, kind in sorted(acks.items())]
        self.share.acknowledge(member, batches, answers.append)
        self.clock.run_due()
        (answer,) = answers
        return answer

    def held(self, member: str) -> list[int]:
        """What a member has."""
        locked = self.share.in_flight.locked(lambda lock: lock.member_id == member)
        return [offset for first, last in locked for offset in range(first, last + 1)]
