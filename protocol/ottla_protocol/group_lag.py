"""The history of groups' lag: where a sample is kept, and what a reader makes of the records.

Each minute's sample is kept for six hours, that of each quarter of an hour for a week. A level is a ring of slots; the
slot of a time is its number of periods since 1970, modulo the slots. So a key is written again after one lap, and
compaction leaves at most one record for each slot, source and part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from .errors import ProtocolError
from .messages.group_lag_records import GroupLagKey, GroupLagState, GroupLagValue
from .primitives import Buffer
from .versioned import decode_versioned, encode_versioned

IN_ZOOKEEPER: Final = -1
"""The source of groups whose offsets are in ZooKeeper."""
GROUPS_A_RECORD: Final = 500
KINDS: Final = ("classic", "consumer", "share", "zookeeper")
KIND_IN_ZOOKEEPER: Final = 3


class Level(NamedTuple):
    """A ring of samples. ``every``: one of so many samples is kept here."""

    number: int
    every: int
    slots: int


FINE: Final = Level(0, 1, 360)
COARSE: Final = Level(1, 15, 680)
"""A week's 672 quarters of an hour, and some for a reader that is late."""
LEVELS: Final = (FINE, COARSE)


class LagSample(NamedTuple):
    """The lag of a group at one time; None is a number that isn't known.

    Attributes:
        records: not read yet, up to the high watermarks; ``most_records``: at most since the sample before it.
        lag_ms: the age of the oldest record that the group reads next.
        slope: records a second by which the lag grew, over up to five minutes.
        unknown_partitions: partitions that the numbers leave out.
    """

    time_ms: int
    kind: str
    records: int | None
    most_records: int | None
    lag_ms: int | None
    commit_age_ms: int | None
    slope: float | None
    partitions: int
    unknown_partitions: int

    @property
    def catch_up_ms(self) -> int | None:
        """The time until the lag is gone, if it goes on shrinking like this; None: it doesn't, or that isn't known."""
        if self.records == 0:
            return 0
        if self.records is None or self.slope is None or self.slope >= 0:
            return None
        return round(self.records / -self.slope * 1000)

    def document(self) -> dict[str, object]:
        """The sample as JSON has it, with times in seconds; null is a number that isn't known."""
        return {
            "time_ms": self.time_ms,
            "kind": self.kind,
            "lag_records": self.records,
            "most_lag_records": self.most_records,
            "lag_seconds": _seconds(self.lag_ms),
            "trend_records_per_second": None if self.slope is None else round(self.slope, 3),
            "catch_up_seconds": _seconds(self.catch_up_ms),
            "commit_age_seconds": _seconds(self.commit_age_ms),
            "partitions": self.partitions,
            "unknown_partitions": self.unknown_partitions,
        }


def number_of(time_ms: int, interval_ms: int) -> int:
    """The number of a sample's time since 1970."""
    return time_ms // interval_ms


def levels_of(number: int) -> Iterator[Level]:
    """The levels that keep the sample of this number."""
    for level in LEVELS:
        if number % level.every == 0:
            yield level


def records_of(
    level: Level, number: int, source: int, time_ms: int, groups: Sequence[GroupLagState]
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values that keep a source's groups at one time."""
    slot = number // level.every % level.slots
    for part, start in enumerate(range(0, len(groups), GROUPS_A_RECORD)):
        key = GroupLagKey(level=level.number, slot=slot, source=source, part=part)
        value = GroupLagValue(time_ms=time_ms, groups=list(groups[start : start + GROUPS_A_RECORD]))
        yield encode_versioned(key, 0), encode_versioned(value, 0)


class HistoryReader:
    """Collects the samples of one group from a partition's records, in their order.

    ``sources``: the group's partition of ``__consumer_offsets``, and :data:`IN_ZOOKEEPER`.
    """

    def __init__(self, group_id: str, source: int, since_ms: int) -> None:
        self._group_id = group_id
        self._id_bytes = group_id.encode()
        self._sources = {source, IN_ZOOKEEPER}
        self._since_ms = since_ms
        # By time, so that a record that is there twice counts once: of a level, and of a kind.
        self._found: dict[int, dict[int, LagSample]] = {level.number: {} for level in LEVELS}

    def add(self, key: Buffer | None, value: Buffer | None) -> None:
        """Look at a record. Raises ProtocolError for one that isn't of this topic."""
        if key is None:
            raise ProtocolError("a record without a key")
        place = decode_versioned(GroupLagKey, key)
        if value is None or place.source not in self._sources or place.level not in self._found:
            return
        # Decoding hundreds of groups takes milliseconds, and few records have this one.
        if self._id_bytes not in bytes(value):
            return
        body = decode_versioned(GroupLagValue, value)
        if body.time_ms < self._since_ms:
            return
        samples = self._found[place.level]
        for each in body.groups:
            if each.group_id == self._group_id:
                known = samples.get(body.time_ms)
                # A group that commits to both has its own in the broker.
                if known is None or each.kind != KIND_IN_ZOOKEEPER:
                    samples[body.time_ms] = sample_of(body.time_ms, each)

    def samples(self) -> list[LagSample]:
        """By time. A coarse sample is that of a fine one's time, so the fine one replaces it while it is there."""
        merged = {**self._found[COARSE.number], **self._found[FINE.number]}
        return [merged[time] for time in sorted(merged)]


def sample_of(time_ms: int, state: GroupLagState) -> LagSample:
    """Return what a record says of a group. Raises ProtocolError for a kind of group that isn't known."""
    if not 0 <= state.kind < len(KINDS):
        raise ProtocolError(f"there is no kind {state.kind} of groups")
    return LagSample(
        time_ms,
        KINDS[state.kind],
        _known(state.records),
        _known(state.most_records),
        _known(state.lag_ms),
        _known(state.commit_age_ms),
        None if math.isnan(state.slope) or math.isinf(state.slope) else state.slope,
        state.partitions,
        state.unknown_partitions,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _known(number: int) -> int | None:
    return None if number < 0 else number
