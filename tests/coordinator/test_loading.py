"""Loading groups from the log, handing them over, invalid records, and the bytes of records."""

from __future__ import annotations

import struct

import pytest
from tests.coordinator.harness import FakePartition, SlowClock, Waiting, World

from ottla_broker.coordinator.group import records
from ottla_broker.coordinator.group.offsets import Committed
from ottla_broker.coordinator.shard import NEXT, ShardState
from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from ottla_protocol.records.record import encode_batch

# Restart


def test_a_group_continues_after_a_restart() -> None:
    world = World()
    ids, generation = world.stable(3)
    world.commit(5, member_id=ids[0], generation=generation, metadata="m", leader_epoch=2)
    again = world.restart()
    assert again.state() == "Stable"
    assert again.offset() == 5
    for member_id in ids:
        assert again.heartbeat(member_id, generation) is Code.NONE
        assert again.sync(member_id, generation).synced.assignment == b"share of " + member_id.encode()
    found = again.coordinator.describe("g")
    assert {m.client_host for m, _, _ in found.members} == {"/127.0.0.1"}
    # It has sessions, a leader and a generation that goes on.
    assert again.join(ids[1]).joined.leader == ids[0]
    again.leave(ids[2])
    joins = [again.join(member_id) for member_id in ids[:2]]
    assert {join.joined.generation_id for join in joins} == {generation + 1}


def test_members_that_do_not_come_back_after_a_restart_time_out() -> None:
    world = World()
    world.stable(2)
    again = world.restart()
    again.clock.advance(100)
    assert again.state() == "Empty"


def test_static_members_are_known_after_a_restart() -> None:
    world = World()
    join = world.join(instance="one")
    world.clock.advance(3)
    [member], generation = world.finish([join])
    again = world.restart()
    assert again.heartbeat(member, generation, instance="one") is Code.NONE
    back = again.join(instance="one")
    assert back.joined.generation_id == generation
    third = again.restart()
    assert third.heartbeat(back.joined.member_id, generation, instance="one") is Code.NONE
    assert third.heartbeat(member, generation, instance="one") is Code.FENCED_INSTANCE_ID


def test_an_empty_group_keeps_its_generation_and_timestamp() -> None:
    world = World()
    [member], generation = world.stable()
    world.commit(member_id=member, generation=generation)
    world.leave(member)
    world.clock.advance(3 * 24 * 3600)
    again = world.restart()
    assert again.state() == "Empty"
    again.clock.advance(4 * 24 * 3600 + 3600)
    assert again.offset() == -1
    assert world.restart().stable()[1] == generation + 2


def test_a_group_larger_than_allowed_is_rebalanced_when_loaded() -> None:
    world = World()
    ids, generation = world.stable(3)
    again = world.restart(max_size=2)
    assert again.heartbeat(ids[0], generation) is Code.REBALANCE_IN_PROGRESS
    joins = [again.join(member_id) for member_id in ids]
    assert joins[2].code is Code.GROUP_MAX_SIZE_REACHED
    assert joins[0].joined
    assert joins[1].joined


# While it is loaded, and when it is given up


def test_requests_while_loading() -> None:
    world = World(load=False)
    assert world.join().code is Code.COORDINATOR_LOAD_IN_PROGRESS
    assert world.commit() == [Code.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.coordinator.fetch("g", None, False)[0] == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.describe("g").error == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert world.listed([], [])[0] == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert world.leave("m")[0] is Code.COORDINATOR_LOAD_IN_PROGRESS
    # These two are what Kafka says instead.
    assert world.heartbeat("m", 1) is Code.NONE
    assert world.sync("m", 1).code is Code.REBALANCE_IN_PROGRESS
    world.clock.run_due()
    assert world.join().code is Code.MEMBER_ID_REQUIRED
    assert world.listed([], [])[0] == Code.NONE


def test_waiting_members_are_answered_when_the_partition_moves() -> None:
    world = World()
    joins = [world.new(), world.new()]
    world.clock.advance(6)
    leader = joins[0].joined.leader
    follower = next(j.joined.member_id for j in joins if j.joined.member_id != leader)
    syncing = world.sync(follower, 1)
    joining = world.new(group="h")
    world.coordinator.on_stop("__consumer_offsets", 0)
    assert syncing.code is Code.NOT_COORDINATOR
    assert joining.code is Code.NOT_COORDINATOR
    assert world.heartbeat(leader, 1) is Code.NOT_COORDINATOR
    assert world.commit() == [Code.NOT_COORDINATOR]
    assert world.listed([], []) == (0, [])
    world.clock.advance(1000)


def test_a_pending_commit_is_answered_when_the_partition_moves() -> None:
    world = World()
    world.partition.hold = True
    world.commit()
    world.coordinator.on_stop("__consumer_offsets", 0)
    world.partition.release(Code.NOT_LEADER_OR_FOLLOWER)
    assert world.last_commit == [Code.NOT_COORDINATOR]


def test_a_pending_assignment_is_answered_once_when_the_partition_moves() -> None:
    world = World()
    join = world.new()
    world.clock.advance(3)
    world.partition.hold = True
    sync = world.sync(join.joined.member_id, 1, {join.joined.member_id: b"x"})
    world.coordinator.on_stop("__consumer_offsets", 0)
    world.partition.release(Code.NOT_LEADER_OR_FOLLOWER)
    assert sync.code is Code.NOT_COORDINATOR


def test_loading_can_be_cancelled_and_restarted() -> None:
    world = World()
    world.commit(5)
    partition = world.partition
    world.coordinator.on_stop("__consumer_offsets", 0)
    world.coordinator.on_leader(partition)
    world.coordinator.on_stop("__consumer_offsets", 0)
    world.clock.run_due()
    assert world.commit() == [Code.NOT_COORDINATOR]
    world.coordinator.on_leader(partition)
    world.coordinator.on_leader(partition)
    world.clock.run_due()
    assert world.offset() == 5


def test_partitions_of_other_topics_are_ignored() -> None:
    world = World()
    world.commit(5)
    world.coordinator.on_leader(FakePartition(1, "other"))
    world.coordinator.on_stop("other", 0)
    assert world.offset() == 5


def test_a_log_that_cannot_be_read_is_not_served() -> None:
    partition = FakePartition()
    partition.unreadable = True
    world = World(partition)
    assert world.commit() == [Code.NOT_COORDINATOR]
    assert world.coordinator.fetch("g", None, False)[0] == Code.NOT_COORDINATOR
    partition.unreadable = False
    world.coordinator.on_leader(partition)
    world.clock.run_due()
    assert world.commit() == [Code.NONE]


def test_stopping_answers_all_members_and_leaves_no_timer() -> None:
    world = World()
    world.stable(group="s")
    joining = world.new()
    world.coordinator.stop()
    assert joining.code is Code.NOT_COORDINATOR
    assert world.commit() == [Code.COORDINATOR_NOT_AVAILABLE]
    assert world.listed([], [])[0] == Code.COORDINATOR_NOT_AVAILABLE
    assert world.clock.pending == 0


def test_a_long_log_is_loaded_in_slices() -> None:
    world = World()
    for number in range(300):
        world.commit(number, partition=number)

    slow = World(world.partition, load=False, clock=SlowClock())
    slices = 0
    while slow.coordinator.fetch("g", None, False)[0] == Code.COORDINATOR_LOAD_IN_PROGRESS:
        slow.clock.run_due()
        slices += 1
    assert slices > 50
    assert slow.offset(partition=299) == 299


def test_shard_states_end_in_closed() -> None:
    assert NEXT[ShardState.CLOSED] == frozenset()
    assert all(
        ShardState.CLOSED in following for state, following in NEXT.items() if state is not ShardState.CLOSED
    )


# Records that make no sense


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"x"),
        (b"", b"x"),
        (b"\0", b"x"),
        (struct.pack(">h", 3) + b"server-side groups", b"x"),
        (struct.pack(">h", -1), b"x"),
        (struct.pack(">hh", 1, 500), b"x"),
        (records.offset_key("g", "t", 1), b"\0"),
        (records.offset_key("g", "t", 1), struct.pack(">h", 9) + bytes(40)),
        (records.offset_key("g", "t", 1), struct.pack(">hq", 3, 5)),
        (records.group_key("broken"), struct.pack(">h", 3) + b"\x7f\xff"),
    ],
)
def test_an_invalid_record_is_skipped(key: bytes | None, value: bytes) -> None:
    world = World()
    world.commit(1)
    world.partition.append_internal(encode_batch([(0, key, value, ())]), 0)
    world.commit(2, partition=7)
    again = world.restart()
    assert again.offset() == 1
    assert again.offset(partition=7) == 2


def test_a_batch_that_cannot_be_decoded_is_skipped() -> None:
    world = World()
    world.commit(1)
    world.commit(2, partition=7)
    broken = bytearray(world.partition.batches[0])
    broken[57:61] = struct.pack(">i", 1000)
    world.partition.batches.insert(1, bytes(broken))
    world.partition.batches.insert(1, b"nonsense" * 20)
    again = world.restart()
    assert again.offset() == 1
    assert again.offset(partition=7) == 2


# Transactions in a log that Kafka wrote


def marker(producer_id: int, commit: bool) -> bytearray:
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, 0)
    return encode_batch(
        [(0, key, value, ())], producer_id=producer_id, producer_epoch=0, transactional=True, control=True
    )


def transactional(producer_id: int, offset: int, partition: int = 0) -> bytearray:
    record = (
        0,
        records.offset_key("g", "t", partition),
        records.offset_value(Committed(offset, -1, "", 0)),
        (),
    )
    return encode_batch(
        [record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def test_transactional_offsets_take_effect_at_the_commit_marker() -> None:
    partition = FakePartition()
    for batch in (
        transactional(1, 10, 0),
        transactional(2, 20, 1),
        marker(1, commit=True),
        marker(2, commit=False),
        transactional(3, 30, 2),
        marker(4, commit=True),
    ):
        partition.append_internal(batch, 0)
    world = World(partition)
    assert world.offset(partition=0, require_stable=True) == 10
    assert world.offset(partition=1, require_stable=True) == -1
    _, [(_, [one])] = world.coordinator.fetch("g", [("t", [2])], True)
    assert one.error == Code.UNSTABLE_OFFSET_COMMIT
    assert world.offset(partition=2) == -1


def test_a_transaction_that_was_open_when_the_group_was_loaded_ends_later() -> None:
    partition = FakePartition()
    for producer in (1, 2):
        partition.append_internal(transactional(producer, producer * 10, producer), 0)
    world = World(partition)
    world.coordinator.complete_transaction([0, 7], 1, True)
    world.coordinator.complete_transaction([0], 2, False)
    assert world.offset(partition=1, require_stable=True) == 10
    assert world.offset(partition=2, require_stable=True) == -1


@pytest.mark.parametrize("seen", [True, False], ids=["in the log", "not replayed"])
def test_a_transaction_that_ends_while_the_group_is_loaded(seen: bool) -> None:
    partition = FakePartition()
    partition.append_internal(transactional(1, 10), 0)
    if seen:
        partition.append_internal(marker(1, commit=True), 0)
    world = World(partition, load=False)
    world.coordinator.complete_transaction([0], 1, True)
    world.clock.run_due()
    assert world.offset(require_stable=True) == 10


# The bytes


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def blob(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_bytes_of_a_committed_offset() -> None:
    world = World()
    world.commit(42, metadata="é!", leader_epoch=7, commit_ms=1234)
    [record] = world.partition.records()
    assert record.timestamp == world.clock.now_ms()
    assert record.key == b"\0\1" + string("g") + string("t") + struct.pack(">i", 0)
    assert record.value == struct.pack(">hqih", 3, 42, 7, 3) + "é!".encode() + struct.pack(">q", 1234)
    assert record.key[2:] == OffsetCommitKey(group="g", topic="t", partition=0).encode(1)
    value = OffsetCommitValue(offset=42, leader_epoch=7, metadata="é!", commit_timestamp=1234)
    assert record.value[2:] == value.encode(3)


def test_bytes_of_a_committed_offset_with_an_expiry_of_its_own() -> None:
    world = World()
    world.commit(42, metadata="m", leader_epoch=7, commit_ms=1234, expire_ms=5678)
    [record] = world.partition.records()
    assert record.value == struct.pack(">hqh", 1, 42, 1) + b"m" + struct.pack(">qq", 1234, 5678)
    assert records.read_offset(record.value, 0) == Committed(42, -1, "m", 1234, 5678, 0)


def test_bytes_of_a_group_and_of_its_tombstone() -> None:
    world = World()
    join = world.join(instance="one")
    world.clock.advance(3)
    since = world.clock.now_ms()
    [member], _ = world.finish([join])
    record = world.partition.records()[-1]
    assert record.key == b"\0\2" + string("g")
    assert record.value == (
        b"\0\3"
        + string("consumer")
        + struct.pack(">i", 1)
        + string("range")
        + string(member)
        + struct.pack(">q", since)
        + struct.pack(">i", 1)
        + string(member)
        + string("one")
        + string("client")
        + string("/127.0.0.1")
        + struct.pack(">ii", 60_000, 10_000)
        + blob(b"meta")
        + blob(b"share of " + member.encode())
    )
    world.leave(member)
    record = world.partition.records()[-1]
    null = struct.pack(">h", -1)
    assert record.value == (
        b"\0\3"
        + string("consumer")
        + struct.pack(">i", 2)
        + null
        + null
        + struct.pack(">q", since)
        + struct.pack(">i", 0)
    )
    answer = Waiting()
    world.coordinator.delete(["g"], answer)
    record = world.partition.records()[-1]
    assert (record.key, record.value) == (b"\0\2" + string("g"), None)


def test_values_of_every_version_are_read() -> None:
    offset = struct.pack(">qh", 42, 1) + b"m" + struct.pack(">q", 1234)
    for version, body in (
        (0, offset),
        (1, offset + struct.pack(">q", -1)),
        (2, offset),
        (3, struct.pack(">qih", 42, -1, 1) + b"m" + struct.pack(">q", 1234)),
        (4, struct.pack(">qi", 42, -1) + b"\x02m" + struct.pack(">q", 1234) + b"\0"),
    ):
        value = struct.pack(">h", version) + body
        assert records.read_offset(value, 9) == Committed(42, -1, "m", 1234, -1, 9)
    member = string("m") + string("c") + string("/h") + struct.pack(">i", 10_000) + blob(b"s") + blob(b"a")
    group = (
        string("consumer")
        + struct.pack(">i", 3)
        + string("range")
        + string("m")
        + struct.pack(">i", 1)
        + member
    )
    read = records.read_group(struct.pack(">h", 0) + group)
    assert (read.generation, read.members[0].rebalance_timeout) == (3, 10_000)
