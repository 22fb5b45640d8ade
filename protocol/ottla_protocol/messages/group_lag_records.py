"""The records of ``__ottla_group_lag``: how far groups were behind (docs/formats/group-lag.md).

Kafka has no such topic. A key names a place that the next lap overwrites, so that the compacted topic has a bound. Key
and value begin with their version, as coordinators' records do.
"""

from __future__ import annotations

from ..schema import Float64, Int8, Int16, Int32, Int64, Message, String, Struct, field


class GroupLagKey(Message, versions="0"):
    """The place of a record: a slot of a level, for the groups of one source."""

    level: Int8 = field(default=0)
    slot: Int16 = field(default=0)
    source: Int32 = field(default=0)
    """The partition of ``__consumer_offsets`` that the groups belong to; -1: their offsets are in ZooKeeper."""
    part: Int16 = field(default=0)
    """A source with many groups has several records."""


class GroupLagState(Struct):
    """One group at one time. -1 is a number that isn't known."""

    group_id: String = field(default="")
    kind: Int8 = field(default=0)
    """0 classic, 1 consumer (KIP-848), 2 share (KIP-932), 3 in ZooKeeper."""
    records: Int64 = field(default=-1)
    """Records up to the high watermarks that the group has not read."""
    most_records: Int64 = field(default=-1)
    """The largest lag since the level's last sample."""
    lag_ms: Int64 = field(default=-1)
    """The age of the oldest record that the group reads next."""
    commit_age_ms: Int64 = field(default=-1)
    """Time since the last commit."""
    slope: Float64 = field(default=0.0)
    """Records a second by which the lag grew, over up to five minutes; NaN while that isn't known."""
    partitions: Int32 = field(default=0)
    """Partitions with an offset of the group."""
    unknown_partitions: Int32 = field(default=0)
    """Those whose end isn't known; the other numbers leave them out."""


class GroupLagValue(Message, versions="0", flexible="0+"):
    """The groups of a source at one time."""

    time_ms: Int64 = field(default=0)
    groups: list[GroupLagState] = field(default_factory=list)
