"""The share partitions of one partition of ``__share_group_state``: the state machine in a coordinator's shard.

The log has a snapshot of each share partition, then updates: the batches that changed. After so many updates the next
change is a snapshot again, so that what comes before the oldest needed snapshot can be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import TypeVar

from ottla_broker.coordinator.shard import Shard
from ottla_broker.coordinator.share.in_flight import Batch
from ottla_broker.coordinator.share.state_batches import (
    ShareKey,
    ShareState,
    StateChange,
    from_wire,
    merged,
    overlay,
    to_wire,
    trim,
)
from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages import share_state_records as wire
from ottla_protocol.records.batch import BatchHeader
from ottla_protocol.records.record import Record
from ottla_protocol.versioned import decode_versioned, encode_versioned, peek_version

SNAPSHOT, UPDATE = 0, 1

Row = tuple[bytes, bytes | None]


@dataclass(eq=False, slots=True)
class PartitionState:
    """One share partition, as the coordinator holds it.

    Attributes:
        offset: of its last snapshot in the log; what is older isn't needed for it.
        updates: records since that snapshot.
        heard_since: when the newest connection was accepted on which the leader of ``leader_epoch`` has spoken.
    """

    epoch: int
    start: int
    created_ms: int
    leader_epoch: int = field(default=-1, init=False)
    batches: list[Batch] = field(default_factory=list, init=False)
    completed: int = field(default=-1, init=False)
    snapshot_epoch: int = field(default=0, init=False)
    updates: int = field(default=0, init=False)
    offset: int = field(default=-1, init=False)
    heard_since: float = field(default=0.0, init=False)

    def shown(self) -> ShareState:
        return ShareState(self.epoch, self.leader_epoch, self.start, merged(self.batches), self.completed)

    def grows_by(self, change: StateChange) -> bool:
        """Whether the change would leave more batches than there are."""
        after = list(self.batches)
        overlay(after, change.batches)
        trim(after, max(self.start, change.start))
        return len(after) > len(self.batches)

    def apply(self, change: StateChange) -> None:
        self.leader_epoch = max(self.leader_epoch, change.leader_epoch)
        if change.start >= 0:
            self.start = change.start
        self.completed = change.completed
        overlay(self.batches, change.batches)
        trim(self.batches, self.start)


class StateShard:
    """Owned by the loop thread. See :class:`~ottla_broker.coordinator.shard.StateMachine`.

    Attributes:
        end: the log's end after the last record that was loaded or written here.
        pruned_at: the log's end at the last pruning.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.states: dict[ShareKey, PartitionState] = {}
        self.end = 0
        self.pruned_at = 0
        # Those of the records that are replayed.
        self._topic_ids: dict[bytes, bytes] = {}

    def replay(self, record: Record, batch: BatchHeader) -> None:
        self.end = record.offset + 1
        if record.key is None:
            raise ProtocolError("a record without a key")
        kind = peek_version(record.key)
        if kind == SNAPSHOT:
            key = self._key_of(decode_versioned(wire.ShareSnapshotKey, record.key))
            if record.value is None:
                self.states.pop(key, None)
            else:
                self._replay_snapshot(
                    key, decode_versioned(wire.ShareSnapshotValue, record.value), record.offset
                )
        elif kind == UPDATE:
            key = self._key_of(decode_versioned(wire.ShareUpdateKey, record.key))
            if record.value is not None and key in self.states:
                self._replay_update(self.states[key], decode_versioned(wire.ShareUpdateValue, record.value))
        else:
            raise ProtocolError(f"no record of share groups has a key of version {kind}")

    def behind(self, records: int) -> list[tuple[ShareKey, PartitionState]]:
        """The states that keep the most of the log, oldest first.

        They haven't changed since the last pruning, and more than ``records`` have been written after their snapshots.
        """
        limit = min(self.pruned_at, self.end - records)
        idle = [(key, state) for key, state in self.states.items() if state.offset < limit]
        return sorted(idle, key=lambda one: one[1].offset)

    def _key_of(self, read: wire.ShareSnapshotKey | wire.ShareUpdateKey) -> ShareKey:
        """The key that a record names. All keys of a group, and of a topic, share its id."""
        topic_id = bytes(read.topic_id)
        return ShareKey(intern(read.group_id), self._topic_ids.setdefault(topic_id, topic_id), read.partition)

    def _replay_snapshot(self, key: ShareKey, value: wire.ShareSnapshotValue, offset: int) -> None:
        state = PartitionState(value.state_epoch, value.start_offset, value.create_timestamp)
        state.leader_epoch = value.leader_epoch
        state.completed = value.delivery_complete_count
        state.snapshot_epoch = value.snapshot_epoch
        state.offset = offset
        state.batches = _batches(value.state_batches)
        self.states[key] = state

    @staticmethod
    def _replay_update(state: PartitionState, value: wire.ShareUpdateValue) -> None:
        if value.snapshot_epoch < state.snapshot_epoch:
            return
        state.apply(
            StateChange(
                state.epoch,
                value.leader_epoch,
                value.start_offset,
                value.delivery_complete_count,
                _batches(value.state_batches),
            )
        )
        state.updates += 1

    def replay_marker(self, record: Record, batch: BatchHeader) -> None:
        """There are no transactions here."""

    def publish(self) -> Iterator[None]:
        self._topic_ids = {}
        yield from ()

    def unload(self) -> None:
        self.states = {}
        self._topic_ids = {}


def snapshot(key: ShareKey, state: PartitionState, now_ms: int) -> Row:
    value = wire.ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start,
        delivery_complete_count=state.completed,
        create_timestamp=state.created_ms,
        write_timestamp=now_ms,
        state_batches=to_wire(merged(state.batches)),
    )
    return encode_versioned(_key(wire.ShareSnapshotKey, key), SNAPSHOT), encode_versioned(value, 0)


def update(key: ShareKey, state: PartitionState, change: StateChange) -> Row:
    value = wire.ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=max(state.leader_epoch, change.leader_epoch),
        start_offset=change.start,
        delivery_complete_count=change.completed,
        state_batches=to_wire(change.batches),
    )
    return _update_key(key), encode_versioned(value, 0)


@lru_cache(maxsize=512)
def _update_key(key: ShareKey) -> bytes:
    """Of few share partitions much is written."""
    return encode_versioned(_key(wire.ShareUpdateKey, key), UPDATE)


def tombstone(key: ShareKey) -> Row:
    return encode_versioned(_key(wire.ShareSnapshotKey, key), SNAPSHOT), None


_K = TypeVar("_K", wire.ShareSnapshotKey, wire.ShareUpdateKey)


def _key(cls: type[_K], key: ShareKey) -> _K:
    return cls(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def _batches(batches: list[wire.StateBatch]) -> list[Batch]:
    """Raises ProtocolError for a state that isn't one."""
    try:
        return from_wire(batches)
    except ValueError as error:
        raise ProtocolError(str(error)) from error
