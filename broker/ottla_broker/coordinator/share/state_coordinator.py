"""The share coordinator, which keeps the states of share partitions. Kafka: ``ShareCoordinatorShard``.

A share partition's key hashes to a partition of ``__share_group_state``, and the broker that leads this one serves the
key. Memory follows the log at append; an answer waits until the log has committed its record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.config import BrokerConfig
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.refusals import Refusals
from ottla_broker.coordinator.shard import Shard, ShardHost
from ottla_broker.coordinator.share import state_shard
from ottla_broker.coordinator.share.state_batches import UNINITIALIZED, ShareKey, ShareState, StateChange
from ottla_broker.coordinator.share.state_shard import PartitionState, Row, StateShard
from ottla_broker.metadata.internal_topics import SHARE_STATE_TOPIC
from ottla_broker.store.keys import encode_uuid
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.partitioning import partition_for

Settled = Callable[[KafkaError | None], None]
"""Called once: None when the log has committed the change, or why it hasn't."""

Read = Callable[[ShareState | KafkaError], None]

_FEW_RECORDS: Final = 1000
"""How many records the log may keep for a state that hardly ever changes."""
_SNAPSHOT_BYTES: Final = 256 * 1024
"""About as much is written in a round, as one batch, to move idle states to the log's end."""

_FEW_BATCHES: Final = 200
"""A share partition with so many ranges has room for them, however many others have."""
_COUNT_SECONDS: Final = 1.0
"""The least time between two counts of all batches, which take milliseconds."""

_UNKNOWN: Final = "no state of this share partition has been initialized"


class StateSettings(NamedTuple):
    """Times are in ms; the defaults are Kafka 4.2's."""

    topic_partitions: int = 50
    updates_per_snapshot: int = 500
    write_timeout_ms: int = 5_000
    prune_interval_ms: int = 300_000
    codec: int = 0
    most_states: int = 250_000
    most_batches: int = 500_000
    """Ranges of records that differ from their neighbours; 450 bytes each with those of the leader."""

    @classmethod
    def from_config(cls, config: BrokerConfig) -> StateSettings:
        return cls(
            topic_partitions=config.share_coordinator_state_topic_num_partitions,
            updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
            write_timeout_ms=config.share_coordinator_write_timeout_ms,
            prune_interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
            codec=config.share_coordinator_state_topic_compression_codec,
            most_states=config.max_share_group_states,
        )


@lru_cache(maxsize=512)
def coordinator_key(key: ShareKey) -> str:
    """Return the key by which the coordinator of a share partition is found (``SharePartitionKey``)."""
    return f"{key.group_id}:{encode_uuid(key.topic_id)}:{key.partition}"


class ShareStateCoordinator:
    """Owned by the loop thread. A listener of the replica manager (``on_leader``, ``on_stop``).

    ``partitions()`` is the number of the topic's partitions. ``delete_records`` deletes the start of a log,
    once what follows it is on the device.
    """

    def __init__(
        self,
        settings: StateSettings,
        clock: Clock,
        partitions: Callable[[], int],
        delete_records: Callable[[int, int], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._partitions = partitions
        self._delete_records = delete_records
        self._host = ShardHost(
            SHARE_STATE_TOPIC,
            partitions,
            self._make_shard,
            clock,
            settings.codec,
            settings.write_timeout_ms,
        )
        self._shards: dict[int, StateShard] = {}
        self._refusals = Refusals(clock)
        # At most this many batches are kept, and when they were counted.
        self._batches = settings.most_batches
        self._counted_at = -inf
        self.on_leader = self._host.on_leader
        self.on_stop = self._host.on_stop
        self._active = False
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        self._active = True
        self._plan_pruning()

    def stop(self) -> None:
        self._active = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._host.close()
        self._shards.clear()

    def _make_shard(self, shard: Shard) -> StateShard:
        made = self._shards[shard.index] = StateShard(shard)
        return made

    @property
    def loading(self) -> bool:
        return self._host.loading

    def partition_of(self, name: str) -> int:
        """The partition of the topic that a coordinator key belongs to."""
        return partition_for(name, self._partitions())

    def _find(self, key: ShareKey) -> tuple[StateShard, PartitionState | None]:
        """Raises KafkaError: this broker doesn't coordinate the key, or not yet."""
        if not self._active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        error, shard = self._host.find(coordinator_key(key))
        if shard is None:
            raise KafkaError(ErrorCode(error))
        found = self._shards[shard.index]
        return found, found.states.get(key)

    # Requests

    def is_late(self, key: ShareKey, leader_epoch: int | None, connected_at: float) -> bool:
        """Whether another broker's request is late, and note the connection, which was accepted at ``connected_at``.

        The broker has sent a late request again, on a newer connection or to another coordinator (decision 9).
        ``leader_epoch``: of a request by the partition's leader; each epoch is one broker's.
        """
        if not self._active:
            return False  # The caller refuses the request for that.
        _, shard = self._host.find(coordinator_key(key))
        if shard is None:
            return False
        if connected_at < shard.started_at:
            return True
        state = self._shards[shard.index].states.get(key)
        if state is None or leader_epoch is None or leader_epoch < state.leader_epoch:
            return False
        if leader_epoch == state.leader_epoch and connected_at < state.heard_since:
            return True
        state.heard_since = connected_at
        return False

    def initialize(self, key: ShareKey, epoch: int, start: int, settled: Settled) -> None:
        """InitializeShareGroupState: begin at ``start`` in a new state epoch; in the present one this does nothing."""
        try:
            shard, known = self._find(key)
            if known is not None and known.epoch > epoch:
                raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
            if known is not None and known.epoch == epoch:
                self._wait(shard, settled)
                return
            if known is None and self._is_full():
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"This broker keeps the states of {self._settings.most_states} share partitions, the most that"
                    " max.share.group.states allows.",
                )
            state = PartitionState(epoch, start, self._clock.now_ms())
            if known is not None:
                state.leader_epoch = known.leader_epoch
                state.heard_since = known.heard_since
                state.snapshot_epoch = known.snapshot_epoch + 1
            self._append_snapshot(shard, key, state, settled)
        except KafkaError as error:
            settled(_as_answered(error))

    def _is_full(self) -> bool:
        """Whether there are as many states as are allowed, which is logged."""
        most = self._settings.most_states
        if sum(len(shard.states) for shard in self._shards.values()) < most:
            return False
        self._refusals.log("state of a share partition refused: max.share.group.states", most)
        return True

    def read(self, key: ShareKey, leader_epoch: int, read: Read) -> None:
        """ReadShareGroupState, by the leader of the partition: later requests of earlier leaders are fenced."""
        try:
            shard, state = self._find(key)
            if state is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, _UNKNOWN)
            _check_leader(state, leader_epoch)
            if leader_epoch > state.leader_epoch:
                led = StateChange(state.epoch, leader_epoch, UNINITIALIZED, state.completed)
                shard.end = shard.shard.write([state_shard.update(key, state, led)])
                state.leader_epoch = leader_epoch
                state.updates += 1
            # A later coordinator might not have what isn't committed yet.
            found = state.shown()

            def committed(error: KafkaError | None) -> None:
                read(found if error is None else error)

            self._wait(shard, committed)
        except KafkaError as error:
            read(_as_answered(error))

    def write(self, key: ShareKey, change: StateChange, settled: Settled) -> None:
        """WriteShareGroupState, by the leader of the partition."""
        try:
            shard, state = self._find(key)
            if state is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, _UNKNOWN)
            _check_leader(state, change.leader_epoch)
            if state.epoch > change.epoch:
                raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
            if any(each.first > each.last for each in change.batches):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a batch's first offset is after its last")
            self._check_room(state, change)
            if state.updates + 1 >= self._settings.updates_per_snapshot:
                after = PartitionState(state.epoch, state.start, state.created_ms)
                after.batches = list(state.batches)
                after.snapshot_epoch = state.snapshot_epoch + 1
                after.leader_epoch = state.leader_epoch
                after.heard_since = state.heard_since
                after.apply(change)
                self._append_snapshot(shard, key, after, settled)
            else:
                shard.end = shard.shard.write([state_shard.update(key, state, change)])
                state.apply(change)
                state.updates += 1
                self._wait(shard, settled)
        except KafkaError as error:
            settled(_as_answered(error))

    def _check_room(self, state: PartitionState, change: StateChange) -> None:
        """Raise KafkaError if all states have too many batches: a byte of an acknowledgement can make one."""
        more, most = len(change.batches), self._settings.most_batches
        if len(state.batches) + more <= _FEW_BATCHES:
            return
        now = self._clock.monotonic()
        if self._batches + more > most and now - self._counted_at >= _COUNT_SECONDS:
            self._counted_at = now
            self._batches = sum(
                len(each.batches) for shard in self._shards.values() for each in shard.states.values()
            )
        if self._batches + more > most and state.grows_by(change):
            self._refusals.log("acknowledgements refused: they leave too many ranges of records", most)
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"This broker keeps {most} ranges of records of share groups that differ from their neighbours, the"
                " most that it can: acknowledge records in order.",
            )
        self._batches += more

    def delete(self, key: ShareKey, settled: Settled) -> None:
        """DeleteShareGroupState; there may be none."""
        try:
            shard, state = self._find(key)
            if state is None:
                self._wait(shard, settled)
                return
            shard.end = shard.shard.write([state_shard.tombstone(key)])
            del shard.states[key]
            self._wait(shard, settled)
        except KafkaError as error:
            settled(_as_answered(error))

    def summary(self, key: ShareKey, read: Read) -> None:
        """ReadShareGroupStateSummary: as :meth:`read` for other than the leader, and without batches."""
        try:
            _, state = self._find(key)
        except KafkaError as error:
            read(error)
            return
        if state is None:
            read(KafkaError(ErrorCode.INVALID_REQUEST, _UNKNOWN))
        else:
            read(ShareState(state.epoch, state.leader_epoch, state.start, (), state.completed))

    # The log

    def _append_snapshot(
        self, shard: StateShard, key: ShareKey, state: PartitionState, settled: Settled
    ) -> None:
        """Raises KafkaError; then nothing has changed."""
        shard.end = shard.shard.write([state_shard.snapshot(key, state, self._clock.now_ms())])
        state.offset = shard.end - 1
        shard.states[key] = state
        self._wait(shard, settled)

    @staticmethod
    def _wait(shard: StateShard, settled: Settled) -> None:
        """Answer when the log has committed all of it that the answer rests on."""

        def committed(code: int, _: int) -> None:
            settled(None if code == codes.NONE else _as_answered(KafkaError(ErrorCode(code))))

        shard.shard.when_committed(shard.end, committed)

    # Pruning

    def _plan_pruning(self) -> None:
        self._timer = self._clock.call_later(self._settings.prune_interval_ms / 1000, self._prune)

    def _prune(self) -> None:
        """Delete what no state needs: write snapshots of those that are behind, and cut the log before the oldest."""
        self._plan_pruning()
        for index, shard in self._shards.items():
            try:
                self._prune_shard(index, shard)
            except KafkaError:
                continue  # Another broker leads, or the disk is full: the next round tries again.

    def _prune_shard(self, index: int, shard: StateShard) -> None:
        if not shard.shard.partition.is_led_here:
            return
        rows: list[Row] = []
        behind: list[PartitionState] = []
        size = 0
        for key, state in shard.behind(_FEW_RECORDS):
            state.snapshot_epoch += 1
            row = state_shard.snapshot(key, state, self._clock.now_ms())
            size += len(row[0]) + len(row[1] or b"")
            if rows and size > _SNAPSHOT_BYTES:
                break
            rows.append(row)
            behind.append(state)
        if rows:
            end = shard.end = shard.shard.write(rows)
            for position, state in enumerate(behind):
                state.offset = end - len(rows) + position
                state.updates = 0
        # Without any state, all that is left are tombstones and what they have deleted.
        oldest = min((state.offset for state in shard.states.values()), default=shard.end)
        self._delete_records(index, oldest)
        shard.pruned_at = shard.end


def _check_leader(state: PartitionState, leader_epoch: int) -> None:
    if leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)


def _as_answered(error: KafkaError) -> KafkaError:
    """Return a coordinator's answer where its log refuses a record: the client finds the coordinator again."""
    if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return KafkaError(ErrorCode.NOT_COORDINATOR)
    if error.code in (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return error
