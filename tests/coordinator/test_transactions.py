"""The transaction coordinator: each request in each state, epochs, fencing, time, markers and other coordinators."""

from __future__ import annotations

import struct

import pytest
from tests.coordinator.harness import FakePartition
from tests.coordinator.transactions import Marker, TransactionWorld

from ottla_broker.coordinator.shard import ShardState
from ottla_broker.coordinator.transaction.metadata import LAST_EPOCH, Producer, TransactionMetadata
from ottla_broker.coordinator.transaction.records import transaction_key, transaction_value
from ottla_broker.coordinator.transaction.states import (
    END,
    STATE_IDS,
    TRANSITIONS,
    Event,
    TransactionState,
    TransactionStateError,
    state_after,
)
from ottla_broker.metadata.internal_topics import TRANSACTION_TOPIC
from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.records.record import encode_batch

S = TransactionState


def world_in(
    state: TransactionState, epoch: int = 3, producer_id: int = 7, update_ms: int = 0
) -> TransactionWorld:
    """A coordinator that has loaded the id ``x`` in a state; no markers get through."""
    started = state not in (S.EMPTY,)
    partitions = frozenset({("t", 0)}) if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else ()
    metadata = TransactionMetadata(
        producer_id,
        epoch,
        timeout_ms=60_000,
        state=state,
        partitions=frozenset(partitions),
        start_ms=1_700_000_000_000 if started else -1,
        update_ms=update_ms or 1_700_000_000_000,
    )
    partition = FakePartition(0, TRANSACTION_TOPIC)
    row = (0, transaction_key("x"), transaction_value(metadata), ())
    partition.append_internal(encode_batch([row]), 0)
    world = TransactionWorld(partition, load=False)
    world.brokers.hold = True
    world.clock.settle()
    return world


LOGGED = [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
COMPLETED = [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
PREPARED = [S.PREPARE_COMMIT, S.PREPARE_ABORT]

# The table


def test_the_table_is_kafkas() -> None:
    # Kafka's states with their valid predecessors (TransactionMetadata.scala).
    predecessors = {
        S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
        S.DEAD: {S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT},
        S.PREPARE_EPOCH_FENCE: {S.ONGOING},
    }
    found: dict[TransactionState, set[TransactionState]] = {state: set() for state in S}
    for state, events in TRANSITIONS.items():
        for following in events.values():
            found[following].add(state)
    assert found == predecessors
    assert [state.value for state in STATE_IDS] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
    assert set(END) == set(S) == set(TRANSITIONS)


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("event", Event)
def test_events_outside_the_table_are_defects(state: TransactionState, event: Event) -> None:
    if event in TRANSITIONS[state]:
        assert state_after(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(TransactionStateError):
            state_after(state, event)


# Each request in each state


@pytest.mark.parametrize("state", LOGGED)
def test_init_in_each_state(state: TransactionState) -> None:
    world = world_in(state)
    [result] = world.init()
    if state in COMPLETED:
        assert result == (0, 7, 4)
        assert world.state() == "Empty"
    else:
        assert result.error == Code.CONCURRENT_TRANSACTIONS
        assert world.metadata().producer_epoch == (4 if state is S.ONGOING else 3)
        assert world.state() == ("PrepareAbort" if state is S.ONGOING else state.value)


@pytest.mark.parametrize("state", LOGGED)
def test_add_partitions_in_each_state(state: TransactionState) -> None:
    world = world_in(state)
    answer = world.add(Producer(7, 3), (0, 1))
    if state in PREPARED:
        assert answer == [Code.CONCURRENT_TRANSACTIONS]
        assert world.state() == state.value
    else:
        assert answer == [Code.NONE]
        assert world.state() == "Ongoing"
        assert world.metadata().partitions == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", LOGGED)
def test_end_in_each_state(state: TransactionState, commit: bool) -> None:
    world = world_in(state)
    expected = {
        (S.ONGOING, True): (Code.NONE, "PrepareCommit"),
        (S.ONGOING, False): (Code.NONE, "PrepareAbort"),
        (S.COMPLETE_COMMIT, True): (Code.NONE, "CompleteCommit"),
        (S.COMPLETE_ABORT, False): (Code.NONE, "CompleteAbort"),
    }
    other = Code.CONCURRENT_TRANSACTIONS if state in PREPARED else Code.INVALID_TXN_STATE
    code, after = expected.get((state, commit), (other, state.value))
    assert world.end(Producer(7, 3), commit) == [code]
    assert world.state() == after


@pytest.mark.parametrize("state", LOGGED)
def test_verification_in_each_state(state: TransactionState) -> None:
    world = world_in(state)
    asked = {("t", 0), ("t", 1)}
    error, missing = world.coordinator.verify_partitions("x", Producer(7, 3), asked)
    if state in PREPARED:
        assert error == Code.CONCURRENT_TRANSACTIONS
    else:
        assert error == Code.NONE
        assert missing == ({("t", 1)} if state is S.ONGOING else asked)


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        (Producer(8, 3), Code.INVALID_PRODUCER_ID_MAPPING),
        (Producer(7, 2), Code.PRODUCER_FENCED),
        (Producer(7, 4), Code.PRODUCER_FENCED),
    ],
)
@pytest.mark.parametrize("state", LOGGED)
def test_other_producers_in_each_state(state: TransactionState, producer: Producer, code: Code) -> None:
    world = world_in(state)
    assert world.add(producer) == [code]
    assert world.end(producer) == [code]
    assert world.coordinator.verify_partitions("x", producer, {("t", 0)})[0] == code
    assert world.state() == state.value


def test_unknown_ids() -> None:
    world = TransactionWorld()
    assert world.add(Producer(1, 0)) == [Code.INVALID_PRODUCER_ID_MAPPING]
    assert world.end(Producer(1, 0)) == [Code.INVALID_PRODUCER_ID_MAPPING]
    assert world.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert world.add(Producer(1, 0), name="") == [Code.INVALID_REQUEST]
    assert world.end(Producer(1, 0), name="") == [Code.INVALID_REQUEST]
    assert world.init("")[0].error == Code.INVALID_REQUEST
    assert world.state("") == "INVALID_REQUEST"
    assert not world.partition.batches


@pytest.mark.parametrize(
    ("timeout_ms", "ok"), [(0, False), (-1, False), (900_001, False), (900_000, True), (1, True)]
)
def test_transaction_timeouts(timeout_ms: int, ok: bool) -> None:
    [result] = TransactionWorld().init(timeout_ms=timeout_ms)
    assert result.error == (Code.NONE if ok else Code.INVALID_TRANSACTION_TIMEOUT)


# A transaction


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction(commit: bool) -> None:
    world = TransactionWorld()
    producer = world.producer()
    assert producer == (1000, 0)
    for number in range(3):
        assert world.add(producer, (0, 1)) == [Code.NONE]
        assert world.add(producer, (1, 2)) == [Code.NONE]
        assert world.end(producer, commit) == [Code.NONE]
        assert world.state() == ("CompleteCommit" if commit else "CompleteAbort")
        for index in (0, 1, 2):
            assert world.markers(index) == [Marker(1000, 0, commit, 0)] * (number + 1)
        assert not world.markers(3)
        assert world.end(producer, commit) == [Code.NONE]
        assert world.end(producer, not commit) == [Code.INVALID_TXN_STATE]


def test_partitions_that_are_in_already_are_not_written_again() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    written = len(world.partition.batches)
    assert world.add(producer, (1,)) == [Code.NONE]
    assert len(world.partition.batches) == written


def test_start_and_update_times() -> None:
    world = TransactionWorld()
    producer = world.producer()
    assert world.metadata().start_ms == -1
    world.clock.advance(1)
    world.add(producer, (0,))
    start = world.metadata().start_ms
    assert start == world.clock.now_ms()
    world.clock.advance(1)
    world.add(producer, (1,))
    assert world.metadata().start_ms == start
    assert world.metadata().update_ms == start + 1000
    world.clock.advance(1)
    world.end(producer)
    assert world.metadata().start_ms == start
    world.clock.advance(1)
    world.add(producer, (1,))
    assert world.metadata().start_ms == start + 3000
    world.end(producer)
    world.producer()
    assert world.metadata().start_ms == -1


# Epochs


def test_a_new_instance_fences_the_old_one() -> None:
    world = TransactionWorld()
    old = world.producer()
    new = world.producer()
    assert new == (old.id, old.epoch + 1)
    assert world.add(old) == [Code.PRODUCER_FENCED]
    assert world.end(old) == [Code.PRODUCER_FENCED]
    assert world.add(new) == [Code.NONE]


def test_a_new_instance_aborts_the_transaction_of_the_old_one() -> None:
    world = TransactionWorld()
    old = world.producer()
    world.add(old, (0, 1))
    [answer] = world.init()
    assert answer.error == Code.CONCURRENT_TRANSACTIONS
    assert world.markers(0) == world.markers(1) == [Marker(1000, 1, False, 0)]
    new = world.producer()
    assert new == (1000, 2)
    assert world.end(old) == [Code.PRODUCER_FENCED]


def test_a_producer_that_continues_after_an_error() -> None:
    world = TransactionWorld()
    first = world.producer()
    second = world.producer(expected=first)
    assert second == (first.id, 1)
    # The answer got lost: the request is repeated, and gets the same epoch.
    assert world.producer(expected=first) == second
    third = world.producer(expected=second)
    assert third == (first.id, 2)
    assert world.init(expected=first)[0].error == Code.PRODUCER_FENCED
    # After another instance has come, the last epoch can't continue either.
    world.producer()
    assert world.init(expected=second)[0].error == Code.PRODUCER_FENCED
    assert world.init(expected=third)[0].error == Code.PRODUCER_FENCED
    assert world.init(expected=Producer(999, 3))[0].error == Code.PRODUCER_FENCED


def test_a_producer_whose_id_has_expired_gets_another() -> None:
    world = TransactionWorld()
    assert world.producer(expected=Producer(5, 9)) == (1000, 0)


def test_used_up_epochs_get_another_producer_id() -> None:
    world = world_in(S.EMPTY, epoch=LAST_EPOCH - 1)
    last = world.producer()
    assert last == (7, LAST_EPOCH)
    assert world.producer() == (1000, 0)
    assert world.add(last) == [Code.INVALID_PRODUCER_ID_MAPPING]


def test_used_up_epochs_of_a_producer_that_continues() -> None:
    world = world_in(S.EMPTY, epoch=LAST_EPOCH)
    rotated = world.producer(expected=Producer(7, LAST_EPOCH))
    assert rotated == (1000, 0)
    assert world.producer(expected=Producer(7, LAST_EPOCH)) == rotated
    assert world.producer(expected=rotated) == (1000, 1)
    assert world.init(expected=Producer(7, LAST_EPOCH))[0].error == Code.PRODUCER_FENCED


def test_the_last_epoch_can_be_fenced() -> None:
    world = world_in(S.ONGOING, epoch=LAST_EPOCH)
    world.brokers.hold = False
    assert world.init()[0].error == Code.CONCURRENT_TRANSACTIONS
    assert world.markers() == [Marker(7, LAST_EPOCH + 1, False, 0)]
    # The fenced producer can't continue; the next one gets another id.
    assert world.init(expected=Producer(7, LAST_EPOCH))[0].error == Code.PRODUCER_FENCED
    assert world.producer() == (1000, 0)


def test_two_producers_that_begin_at_the_same_time() -> None:
    world = TransactionWorld()
    world.hold_draws = True
    first, second = world.init(), world.init()
    world.partition.hold = True
    for drawn in world.draws:
        world.give_id(drawn)
    assert not first
    assert second[0].error == Code.CONCURRENT_TRANSACTIONS
    world.partition.hold = False
    world.partition.release()
    assert first == [(0, 1000, 0)]
    world.hold_draws = False
    assert world.producer() == (1000, 1)


def test_no_producer_id_can_be_had() -> None:
    world = TransactionWorld()
    world.hold_draws = True
    answer = world.init()
    world.draws[0](int(Code.COORDINATOR_NOT_AVAILABLE), -1)
    assert answer == [(Code.COORDINATOR_NOT_AVAILABLE, -1, -1)]
    assert world.state() == "TRANSACTIONAL_ID_NOT_FOUND"


# The log


def test_requests_while_a_change_is_not_committed() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.partition.hold = True
    added = world.add(producer)
    assert not added
    assert world.state() == "Empty"
    assert world.init()[0].error == Code.CONCURRENT_TRANSACTIONS
    assert world.add(producer, (1,)) == [Code.CONCURRENT_TRANSACTIONS]
    assert world.end(producer) == [Code.CONCURRENT_TRANSACTIONS]
    assert world.coordinator.verify_partitions("x", producer, {("t", 0)}) == (0, {("t", 0)})
    world.partition.release()
    assert added == [Code.NONE]
    assert world.state() == "Ongoing"


def test_a_change_that_takes_too_long_is_answered_and_applied_later() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.partition.hold = True
    ended = world.end(producer)
    world.clock.advance(30)
    assert ended == [Code.COORDINATOR_NOT_AVAILABLE]
    assert world.end(producer) == [Code.CONCURRENT_TRANSACTIONS]
    assert not world.markers()
    world.partition.hold = False
    world.partition.release()
    assert world.markers() == [Marker(1000, 0, True, 0)]
    assert world.end(producer) == [Code.NONE]


def test_a_change_while_leadership_is_in_doubt() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.partition.hold = True
    ended = world.end(producer)
    world.partition.release(Code.NOT_LEADER_OR_FOLLOWER)
    assert ended == [Code.NOT_COORDINATOR]
    # It leads after all, and the record is in the log.
    world.clock.advance(1)
    world.partition.hold = False
    world.partition.release()
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (Code.NOT_ENOUGH_REPLICAS, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_COORDINATOR),
        (Code.KAFKA_STORAGE_ERROR, Code.NOT_COORDINATOR),
        (Code.MESSAGE_TOO_LARGE, Code.UNKNOWN_SERVER_ERROR),
        (Code.RECORD_LIST_TOO_LARGE, Code.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_log_that_refuses_a_record(refused: Code, code: Code) -> None:
    world = TransactionWorld()
    world.partition.refuse = refused
    assert world.init()[0] == (code, -1, -1)
    assert world.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    world.partition.refuse = None
    producer = world.producer()
    world.add(producer)
    world.partition.refuse = refused
    assert world.end(producer) == [code]
    assert world.init()[0].error == code
    assert world.metadata().producer_epoch == producer.epoch
    world.partition.refuse = None
    assert world.end(producer) == [Code.NONE]


def test_completion_is_written_until_the_log_accepts_it() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.brokers.hold = True
    world.end(producer)
    world.partition.refuse = Code.NOT_ENOUGH_REPLICAS
    world.brokers.deliver()
    assert world.state() == "PrepareCommit"
    world.clock.advance(5)
    world.partition.refuse = None
    world.clock.advance(1)
    assert world.state() == "CompleteCommit"
    assert len(world.markers()) == 1


# Time


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.clock.advance(59)
    assert world.state() == "Ongoing"
    world.clock.advance(15)
    assert world.state() == "CompleteAbort"
    assert world.markers() == [Marker(1000, 1, False, 0)]
    assert world.end(producer) == [Code.PRODUCER_FENCED]
    assert world.init(expected=producer)[0].error == Code.PRODUCER_FENCED
    assert world.producer() == (1000, 2)


def test_a_timeout_that_the_log_refuses_is_tried_again() -> None:
    world = TransactionWorld()
    world.add(world.producer())
    world.partition.refuse = Code.NOT_ENOUGH_REPLICAS
    world.clock.advance(100)
    assert world.state() == "Ongoing"
    world.partition.refuse = None
    world.clock.advance(10)
    assert world.state() == "CompleteAbort"
    assert world.markers() == [Marker(1000, 1, False, 0)]


@pytest.mark.parametrize("state", LOGGED)
def test_expiry_in_each_state(state: TransactionState) -> None:
    world = world_in(state)
    world.clock.advance(6 * 24 * 3600)
    assert world.state() == ("PrepareAbort" if state is S.ONGOING else state.value)
    world.clock.advance(25 * 3600)
    if state in COMPLETED:
        assert world.state() == "TRANSACTIONAL_ID_NOT_FOUND"
        assert world.logged()[-1] == ("x", None)
        assert world.restart().state() == "TRANSACTIONAL_ID_NOT_FOUND"
        assert world.producer() == (1000, 0)
    else:
        assert world.state().startswith("Prepare")


def test_an_id_that_is_used_while_its_tombstone_is_written() -> None:
    world = world_in(S.EMPTY)
    world.partition.hold = True
    world.clock.advance(8 * 24 * 3600)
    assert world.init()[0].error == Code.CONCURRENT_TRANSACTIONS
    world.partition.hold = False
    world.partition.release()
    assert world.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert world.producer() == (1000, 0)


def test_many_ids_expire_in_several_batches() -> None:
    world = TransactionWorld()
    for number in range(1201):
        world.producer(f"x{number}")
    written = len(world.partition.batches)
    world.clock.advance(8 * 24 * 3600)
    assert len(world.partition.batches) == written + 3
    assert world.listed([], [], -1) == (0, [], [])


# Markers


def test_markers_go_to_each_leader_together() -> None:
    world = TransactionWorld()
    producers = {name: world.producer(name) for name in "abc"}
    world.brokers.hold = True
    for name, producer in producers.items():
        world.add(producer, (0, 1, 2), name)
        world.end(producer, name=name)
    # The first transaction's are on their way; those of the others wait for the answer.
    assert sorted(each.broker_id for each in world.brokers.waiting) == [1, 2]
    world.brokers.deliver()
    world.brokers.deliver()
    assert world.state("a") == "CompleteCommit"
    assert sorted(len(each.markers) for each in world.brokers.waiting) == [2, 2]
    world.brokers.deliver()
    world.brokers.deliver()
    assert world.state("c") == "CompleteCommit"
    assert not world.brokers.waiting


def test_a_marker_whose_answer_is_lost_is_sent_again() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.brokers.hold = True
    world.end(producer)
    world.brokers.deliver(answer=False)
    assert world.state() == "PrepareCommit"
    world.clock.advance(0.1)
    world.brokers.deliver()
    assert world.state() == "CompleteCommit"
    assert len(world.markers()) == 2


def test_markers_follow_a_partition_to_its_new_leader() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.hold = True
    world.end(producer)
    world.brokers.leaders["t", 0] = 9
    world.brokers.hold = False
    while world.brokers.waiting:
        world.brokers.deliver()
    world.clock.advance(1)
    assert world.state() == "CompleteCommit"
    assert len(world.markers(0)) == len(world.markers(1)) == 1


def test_markers_wait_for_a_leader() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.leaders["t", 0] = -1
    world.end(producer)
    world.clock.advance(100)
    assert world.state() == "PrepareCommit"
    assert world.coordinator.describe("x").partitions == [("t", 0)]
    assert len(world.markers(1)) == 1
    world.brokers.leaders["t", 0] = 2
    world.clock.advance(2)
    assert world.state() == "CompleteCommit"


def test_deleted_topics_are_passed_over() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1, 2))
    world.brokers.hold = True
    del world.brokers.leaders["t", 2]
    world.end(producer)
    # This one is deleted while its marker is under way.
    del world.brokers.leaders["t", 0]
    world.brokers.hold = False
    while world.brokers.waiting:
        world.brokers.deliver()
    world.clock.advance(1)
    assert world.state() == "CompleteCommit"
    world.add(producer, (1,))
    del world.brokers.leaders["t", 1]
    assert world.end(producer) == [Code.NONE]
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize(
    "code",
    [
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.REQUEST_TIMED_OUT,
        Code.KAFKA_STORAGE_ERROR,
        Code.INVALID_PRODUCER_EPOCH,
        Code.TRANSACTION_COORDINATOR_FENCED,
        Code.CORRUPT_MESSAGE,
        Code.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_a_partition_that_refuses_its_marker(code: Code) -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.errors["t", 0] = code
    world.end(producer)
    world.clock.advance(60)
    assert world.state() == "PrepareCommit"
    assert world.clock.pending < 10
    world.brokers.errors.clear()
    world.clock.advance(10)
    assert world.state() == "CompleteCommit"
    assert len(world.markers(0)) == len(world.markers(1)) == 1


@pytest.mark.parametrize("code", [Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, Code.UNSUPPORTED_VERSION])
def test_partitions_without_transactions_need_no_marker(code: Code) -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.errors["t", 0] = code
    world.end(producer)
    assert world.state() == "CompleteCommit"


def test_a_request_has_a_limit() -> None:
    world = TransactionWorld()
    world.brokers.hold = True
    for number in range(1203):
        name = f"x{number}"
        producer = world.producer(name)
        world.add(producer, (0,), name)
        world.end(producer, name=name)
    sizes = []
    while world.brokers.waiting:
        sizes.append(len(world.brokers.waiting[0].markers))
        world.brokers.deliver()
    assert sizes == [1, 500, 500, 202]
    assert len(world.markers()) == 1203


# Coordinators that come and go


@pytest.mark.parametrize("state", LOGGED)
def test_loading_each_state(state: TransactionState) -> None:
    world = world_in(state)
    world.brokers.hold = False
    while world.brokers.waiting:
        world.brokers.deliver()
    assert world.state() == state.value.replace("Prepare", "Complete")
    assert world.metadata().producer_epoch == 3


def test_requests_while_loading() -> None:
    world = TransactionWorld()
    producer = world.producer()
    again = world.restart(load=False)
    assert again.add(producer) == [Code.COORDINATOR_LOAD_IN_PROGRESS]
    assert again.init()[0].error == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert again.state() == "COORDINATOR_LOAD_IN_PROGRESS"
    assert again.listed([], [], -1)[0] == Code.COORDINATOR_LOAD_IN_PROGRESS
    again.clock.settle()
    assert again.add(producer) == [Code.NONE]


def test_a_new_coordinator_sends_the_markers_with_its_epoch() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer, (0, 1))
    world.brokers.hold = True
    world.end(producer)
    world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    again = world.restart()
    assert len(again.brokers.waiting) == 4
    again.brokers.hold = False
    while again.brokers.waiting:
        again.brokers.deliver(-1)
    # Those of the old coordinator come too late.
    assert world.markers(0) == world.markers(1) == [Marker(1000, 0, True, 1)]
    assert again.state() == "CompleteCommit"
    written = len(again.partition.batches)
    world.clock.advance(100)
    assert len(again.partition.batches) == written
    assert len(world.partition.batches) == written - 1


def test_waiting_requests_are_answered_when_the_partition_moves() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.producer("y")
    world.partition.hold = True
    ended, initialized = world.end(producer), world.init("y")
    world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    assert ended == [Code.NOT_COORDINATOR]
    assert initialized == [(Code.NOT_COORDINATOR, -1, -1)]
    world.partition.release(Code.NOT_LEADER_OR_FOLLOWER)
    world.clock.advance(1000)
    assert world.add(producer) == [Code.NOT_COORDINATOR]
    assert not world.markers()


def test_before_the_start_and_after_the_stop() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.coordinator.stop()
    assert world.add(producer) == [Code.COORDINATOR_NOT_AVAILABLE]
    assert world.listed([], [], -1)[0] == Code.COORDINATOR_NOT_AVAILABLE
    assert world.clock.pending == 0


def test_a_decision_that_the_new_coordinator_does_not_have_was_never_carried_out() -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.add(producer)
    world.partition.hold = True
    world.end(producer)
    world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    again = world.restart(lose={len(world.partition.batches) - 1})
    assert again.state() == "Ongoing"
    assert not again.markers()
    assert again.end(producer, False) == [Code.NONE]
    assert again.markers() == [Marker(1000, 0, False, 1)]


def test_a_log_that_cannot_be_read() -> None:
    world = TransactionWorld()
    producer = world.producer()
    again = world.restart(load=False)
    again.partition.unreadable = True
    again.clock.settle()
    assert again.add(producer) == [Code.NOT_COORDINATOR]
    assert next(iter(again.coordinator._host.shards.values())).state is ShardState.FAILED


@pytest.mark.parametrize(
    "row",
    [
        (0, None, b"", ()),
        (0, b"", b"", ()),
        (0, transaction_key("y"), b"\x00\x09", ()),
        (0, transaction_key("y"), b"", ()),
        (0, struct.pack(">h", 3), b"", ()),
        (
            0,
            transaction_key("y"),
            transaction_value(TransactionMetadata(7, 0, state=S.PREPARE_EPOCH_FENCE)),
            (),
        ),
        (0, transaction_key("y"), transaction_value(TransactionMetadata(7, 0))[:12] + b"\x63", ()),
    ],
)
def test_invalid_records_are_skipped(row: tuple[int, bytes | None, bytes, tuple[()]]) -> None:
    world = TransactionWorld()
    producer = world.producer()
    world.partition.append_internal(encode_batch([row]), 0)
    again = world.restart()
    assert again.state("y") == "TRANSACTIONAL_ID_NOT_FOUND"
    assert again.add(producer) == [Code.NONE]


# Administration


def test_list_and_describe() -> None:
    world = TransactionWorld()
    a, b = world.producer("a"), world.producer("b")
    world.clock.advance(10)
    world.add(a, (2, 1), "a")
    world.clock.advance(5)
    every = world.listed([], [], -1)
    assert every == (0, [], [("a", a.id, "Ongoing"), ("b", b.id, "Empty")])
    assert world.listed(["Ongoing", "Lost"], [], -1) == (0, ["Lost"], [("a", a.id, "Ongoing")])
    assert world.listed(["Lost"], [], -1) == (0, ["Lost"], [])
    assert world.listed([], [b.id], -1)[2] == [("b", b.id, "Empty")]
    # Kafka counts from the epoch for an id without a transaction.
    assert len(world.listed([], [], 4999)[2]) == 2
    assert world.listed([], [], 5000)[2] == [("b", b.id, "Empty")]
    found = world.coordinator.describe("a")
    assert found.partitions == [("t", 1), ("t", 2)]
    assert found.metadata is not None
    assert found.metadata.start_ms == world.clock.now_ms() - 5000


# The bytes


def test_bytes_of_the_records() -> None:
    world = TransactionWorld()
    producer = world.producer("é")
    empty, now = world.partition.records()[-1], world.clock.now_ms()
    assert empty.key == struct.pack(">hh2s", 0, 2, "é".encode())
    assert empty.value == struct.pack(">hqhibiqq", 0, 1000, 0, 60_000, 0, -1, now, -1)
    world.add(producer, (2, 0), "é")
    ongoing = world.partition.records()[-1]
    assert ongoing.value == (
        struct.pack(">hqhib", 0, 1000, 0, 60_000, 1)
        + struct.pack(">ih1siii", 1, 1, b"t", 2, 0, 2)
        + struct.pack(">qq", now, now)
    )
    world.end(producer, name="é")
    prepared, complete = world.partition.records()[-2:]
    assert prepared.value == ongoing.value.replace(
        struct.pack(">ib", 60_000, 1), struct.pack(">ib", 60_000, 2)
    )
    assert complete.value == struct.pack(">hqhibiqq", 0, 1000, 0, 60_000, 4, 0, now, now)
