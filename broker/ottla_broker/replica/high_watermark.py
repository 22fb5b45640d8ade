"""The committed part of a partition on this broker, and what waits for more of it.

The high watermark is the first offset that isn't committed. :class:`.Partition` says where it is; this wakes what waits
for it: writers with acks=all, coordinators, and fetches of consumers. Those that read only committed transactions wait
for the last stable offset, which is the first offset of an undecided transaction below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla_broker.log.unstable_transactions import UnstableTransactions
from ottla_broker.replica.offset_waiters import OffsetWaiter, OffsetWaiters, Reached
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.log.log import Log
    from ottla_broker.replica.delayed_fetch import DelayedFetch

_NO_TRANSACTIONS: Final = UnstableTransactions()
_ENOUGH_BYTES: Final = 2**31


class HighWatermark:
    """Owned by the partition. It goes back only when the log is truncated.

    Attributes:
        offset: the first offset that isn't committed; -1 until the log is open.
    """

    __slots__ = ("_committed_fetches", "_fetches", "_hidden_bytes", "_log", "_unstable", "_waiters", "offset")

    def __init__(self) -> None:
        self.offset = -1
        self._log: Log | None = None
        # Of the log.
        self._unstable = _NO_TRANSACTIONS
        # Bytes appended behind the high watermark.
        self._hidden_bytes = 0
        self._waiters: OffsetWaiters | None = None
        self._fetches: set[DelayedFetch] | None = None
        self._committed_fetches: set[DelayedFetch] | None = None

    def use(self, log: Log) -> None:
        """Go on with a log, which has everything below the offset."""
        log.high_watermark = self._get_offset
        self._log = log
        self._unstable = log.producers.unstable
        self._unstable.replicated_to(self.offset)

    def _get_offset(self) -> int:
        return self.offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset that a read_committed consumer must not see: there may be an undecided transaction."""
        log, offset, unstable = self._log, self.offset, self._unstable.first_offset
        return offset if log is None or unstable >= offset else max(unstable, log.log_start_offset)

    @property
    def fetches(self) -> set[DelayedFetch]:
        """Fetches of consumers that wait for the high watermark."""
        if self._fetches is None:
            self._fetches = set()
        return self._fetches

    @property
    def committed_fetches(self) -> set[DelayedFetch]:
        """Fetches of consumers that wait for the last stable offset."""
        if self._committed_fetches is None:
            self._committed_fetches = set()
        return self._committed_fetches

    @property
    def waiting(self) -> tuple[int, int]:
        """The number of offsets that others than fetches wait for, and the number of fetches that wait."""
        fetches = len(self._fetches or ()) + len(self._committed_fetches or ())
        return (len(self._waiters) if self._waiters else 0), fetches

    @property
    def is_awaited(self) -> bool:
        """Whether anything but fetches waits."""
        return bool(self._waiters)

    def appended(self, size: int) -> None:
        """The log has grown by ``size`` bytes, which aren't committed yet."""
        self._hidden_bytes += size

    def move_to(self, offset: int) -> None:
        """Move forward and wake what waits; an offset below has no effect."""
        if offset <= self.offset:
            return
        before, self.offset = self.offset, offset
        hidden = grown = self._hidden_bytes
        self._hidden_bytes = 0
        log = self._log
        if log is not None and offset < (end := log.log_end_offset):
            # About the share of what was hidden; at least 1, for fetches that wait for a single byte.
            grown = max(1, hidden * (offset - before) // (end - before))
            self._hidden_bytes = max(0, hidden - grown)
        if self._waiters:
            self._waiters.reach(offset)
        if self._fetches:
            for fetch in list(self._fetches):
                fetch.grow(grown)
        unstable = self._unstable
        if unstable.first_offset < offset:
            stable = min(before, unstable.first_offset)
            unstable.replicated_to(offset)
            grown = self._bytes_between(stable, min(offset, unstable.first_offset))
        if self._committed_fetches and grown:
            for fetch in list(self._committed_fetches):
                fetch.grow(grown)

    def _bytes_between(self, start: int, end: int) -> int:
        """About how many bytes became readable for the fetches that wait for the last stable offset."""
        log = self._log
        if end <= start or not self._committed_fetches or log is None:
            return 0
        try:
            return max(1, log.reader.bytes_between(max(start, log.log_start_offset), end))
        except KafkaError:
            # The fetches that wait find the same error.
            return _ENOUGH_BYTES

    def truncated_to(self, offset: int) -> None:
        """The log ends at ``offset`` now."""
        self.offset = min(self.offset, offset)
        self._unstable.replicated_to(self.offset)
        self._hidden_bytes = 0

    def restarted_at(self, offset: int) -> None:
        """The log has no records and begins at ``offset``."""
        self.offset = offset
        self._hidden_bytes = 0

    def wait(self, end_offset: int, callback: Reached) -> OffsetWaiter:
        """Have ``callback`` called when everything below ``end_offset`` is committed, or :meth:`fail` ends the wait."""
        waiters = self._waiters
        if waiters is None:
            waiters = self._waiters = OffsetWaiters()
        return waiters.wait(end_offset, callback)

    def fail(self, code: ErrorCode) -> None:
        """Have all that wait, except fetches, end with an error."""
        if self._waiters is not None:
            self._waiters.fail(code)

    def answer_fetches(self) -> None:
        """Have fetches that wait answered with what they find."""
        for fetch in (*(self._fetches or ()), *(self._committed_fetches or ())):
            fetch.finish()
