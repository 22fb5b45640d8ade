"""The records of ``__share_group_state``: which records a share group has done with (KIP-932, Kafka 4.2).

A snapshot is the whole state of a share partition, an update what has changed since. As in ``group_records``, the
version of a key says what the record is, and a null value deletes it. Values have version 0, which is flexible.
"""

from __future__ import annotations

from ..schema import ZERO_UUID, Int8, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class ShareSnapshotKey(Message, versions="0"):
    group_id: String = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)
    partition: Int32 = field(default=0)


class ShareUpdateKey(Message, versions="1"):
    group_id: String = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)
    partition: Int32 = field(default=0)


class StateBatch(Struct):
    first_offset: Int64 = field(default=0)
    last_offset: Int64 = field(default=0)
    delivery_state: Int8 = field(default=0)
    delivery_count: Int16 = field(default=0)


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: Int32 = field(default=0)
    state_epoch: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    create_timestamp: Int64 = field(default=0)
    write_timestamp: Int64 = field(default=0)
    state_batches: list[StateBatch] = field(default_factory=list)


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)
    """-1: as before."""
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    state_batches: list[StateBatch] = field(default_factory=list)
