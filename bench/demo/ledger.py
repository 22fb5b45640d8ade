"""What was consumed, by partition and offset: nothing is counted twice, nothing passes unnoticed."""

from __future__ import annotations

from bench.demo.consuming import Flight
from bench.demo.flights import Delays


class Ledger:
    """The books of the demo.

    A flight that comes again at the same partition and offset was *redelivered*: the same stored record, read
    again because a commit did not get through. A flight at two offsets is *doubled*: stored twice. A flight
    that never comes is *lost*.
    """

    def __init__(self, rows: int) -> None:
        self.delays = Delays()
        self.redelivered = 0
        self.doubled = 0
        self.foreign = 0
        self.by_member: dict[int, int] = {}
        self._seen: set[tuple[int, int]] = set()
        self._rows = bytearray(rows)
        self.distinct = 0

    @property
    def lost(self) -> int:
        return len(self._rows) - self.distinct

    def enter(self, member: int, flights: list[Flight]) -> None:
        for partition, offset, row, carrier, delay in flights:
            place = (partition, offset)
            if place in self._seen:
                self.redelivered += 1
                continue
            self._seen.add(place)
            if not 0 <= row < len(self._rows):
                self.foreign += 1
            elif self._rows[row]:
                self.doubled += 1
            else:
                self._rows[row] = 1
                self.distinct += 1
                self.delays.add(carrier, delay)
                self.by_member[member] = self.by_member.get(member, 0) + 1
