"""The transaction coordinator: each request in each state, epochs, fencing and time."""

from __future__ import annotations

import pytest
from tests.coordinator.transactions import LOGGED, Marker, TransactionWorld, world_in

from ottla_broker.coordinator.transaction.metadata import LAST_EPOCH, Producer
from ottla_broker.coordinator.transaction.states import (
    END,
    END_WITH_BUMP,
    STATE_IDS,
    TRANSITIONS,
    Event,
    TransactionState,
    TransactionStateError,
    state_after,
)
from ottla_protocol.errors import ErrorCode as Code

S = TransactionState
COMPLETED = [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
PREPARED = [S.PREPARE_COMMIT, S.PREPARE_ABORT]


# The table


def test_the_table_is_kafkas() -> None:
    # Kafka's states with their valid predecessors (Kafka 4's TransactionState).
    predecessors = {
        S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
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
    assert set(END) == set(END_WITH_BUMP) == set(S) == set(TRANSITIONS)


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
        # Another coordinator has given the epoch out.
        (Producer(7, 4), Code.NOT_COORDINATOR),
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


# Transaction version 2: every EndTxn raises the epoch


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", LOGGED)
def test_end_with_bump_in_each_state(state: TransactionState, commit: bool) -> None:
    world = world_in(state)
    world.brokers.hold = False
    answers = {
        (S.ONGOING, True): (Code.NONE, "CompleteCommit"),
        (S.ONGOING, False): (Code.NONE, "CompleteAbort"),
        # The producer doesn't know whether a request of its transaction has come.
        (S.EMPTY, False): (Code.NONE, "CompleteAbort"),
        (S.COMPLETE_COMMIT, False): (Code.NONE, "CompleteAbort"),
        (S.COMPLETE_ABORT, False): (Code.NONE, "CompleteAbort"),
    }
    other = Code.CONCURRENT_TRANSACTIONS if state in PREPARED else Code.INVALID_TXN_STATE
    code, after = answers.get((state, commit), (other, state.value))
    [ended] = world.end_with_bump(Producer(7, 3), commit)
    assert ended == ((0, 7, 4) if code is Code.NONE else (code, -1, -1))
    assert world.state() == after
    assert [marker[:3] for marker in world.markers()] == [(7, 4, commit)] * (state is S.ONGOING)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", LOGGED)
def test_end_with_bump_is_repeated_in_each_state(state: TransactionState, commit: bool) -> None:
    """Also by a coordinator that has only the log: the epoch is that of the EndTxn before."""
    world = world_in(state, 4, client_version=2)
    [ended] = world.end_with_bump(Producer(7, 3), commit)
    if state in PREPARED:
        assert ended.error == Code.CONCURRENT_TRANSACTIONS
    elif state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT):
        assert ended == (0, 7, 4)
    elif state is S.COMPLETE_COMMIT:
        assert ended.error == Code.INVALID_TXN_STATE
    else:
        assert ended.error == Code.PRODUCER_FENCED
    assert world.state() == state.value
    assert world.metadata().producer_epoch == 4
    for producer, code in (
        (Producer(7, 2), Code.PRODUCER_FENCED),
        (Producer(8, 3), Code.INVALID_PRODUCER_ID_MAPPING),
    ):
        assert world.end_with_bump(producer, commit) == [(code, -1, -1)]


def test_an_older_client_s_completed_transaction_was_not_ended_by_the_epoch_before() -> None:
    world = world_in(S.COMPLETE_COMMIT, 4)
    assert world.end_with_bump(Producer(7, 3)) == [(Code.PRODUCER_FENCED, -1, -1)]


@pytest.mark.parametrize("commit", [True, False])
def test_the_last_epoch_leads_to_another_id(commit: bool) -> None:
    world = world_in(S.COMPLETE_COMMIT, LAST_EPOCH)
    last = Producer(7, LAST_EPOCH)
    assert world.add_for_leader(last) == [Code.NONE]
    assert world.end_with_bump(last, commit) == [(0, 1000, 0)]
    prepared = world.metadata()
    assert (prepared.producer_id, prepared.producer_epoch) == (7, LAST_EPOCH + 1)
    assert world.end_with_bump(last, commit) == [(Code.CONCURRENT_TRANSACTIONS, -1, -1)]
    again = world.restart()
    while again.brokers.waiting:
        again.brokers.deliver(-1)
    assert again.markers()[-1][:3] == (7, LAST_EPOCH + 1, commit)
    assert again.end_with_bump(last, commit) == [(0, 1000, 0)]
    refused = Code.INVALID_TXN_STATE if commit else Code.PRODUCER_FENCED
    assert again.end_with_bump(last, not commit) == [(refused, -1, -1)]
    assert again.add(Producer(1000, 0)) == [Code.NONE]


def test_everything_is_looked_at_again_when_the_id_is_drawn() -> None:
    world = world_in(S.ONGOING, LAST_EPOCH)
    world.hold_draws = True
    first, second = (world.end_with_bump(Producer(7, LAST_EPOCH)) for _ in range(2))
    assert (first, second) == ([], [])
    world.give_id(world.draws.pop())
    world.give_id(world.draws.pop())
    assert second == [(0, 1000, 0)]
    assert first == [(Code.CONCURRENT_TRANSACTIONS, -1, -1)]


def test_a_client_moves_between_the_versions() -> None:
    world = TransactionWorld()
    producer = world.producer()
    for _ in range(2):
        assert world.add_for_leader(producer) == [Code.NONE]
        [ended] = world.end_with_bump(producer)
        producer = Producer(ended.producer_id, ended.producer_epoch)
        assert world.add(producer) == [Code.NONE]
        assert world.end(producer) == [Code.NONE]
        assert world.end(producer) == [Code.NONE]
    assert [marker.producer_epoch for marker in world.markers()] == [1, 1, 2, 2]
    versions = [each.client_version for _, each in world.logged() if each is not None]
    assert versions == [0, 2, 2, 2, 0, 0, 0, 2, 2, 2, 0, 0, 0]


def test_a_producer_of_version_2_continues_after_its_time_was_up() -> None:
    """Its abort is answered as if it had come first, its commit as fenced (KAFKA-20785); a newer producer fences it."""
    world = TransactionWorld()
    producer = world.producer()
    assert world.add_for_leader(producer) == [Code.NONE]
    world.clock.advance(100)
    assert world.state() == "CompleteAbort"
    assert world.end_with_bump(producer, True) == [(Code.PRODUCER_FENCED, -1, -1)]
    assert world.end_with_bump(producer, False) == [(0, producer.id, 1)]
    world.producer()
    assert world.end_with_bump(producer, False) == [(Code.PRODUCER_FENCED, -1, -1)]
    assert world.end_with_bump(Producer(producer.id, 1), False) == [(Code.PRODUCER_FENCED, -1, -1)]


def test_a_producer_whose_last_epoch_was_fenced_does_not_continue() -> None:
    world = world_in(S.COMPLETE_COMMIT, LAST_EPOCH)
    world.brokers.hold = False
    assert world.add_for_leader(Producer(7, LAST_EPOCH)) == [Code.NONE]
    world.clock.advance(100)
    assert world.state() == "CompleteAbort"
    assert world.end_with_bump(Producer(7, LAST_EPOCH), False) == [(Code.PRODUCER_FENCED, -1, -1)]
    assert world.init() == [(0, 1000, 0)]
