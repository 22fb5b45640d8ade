"""Idempotent producers: sequences, epochs, snapshots byte for byte, restarts."""

from __future__ import annotations

from heapq import nsmallest
from pathlib import Path
from struct import pack
from unittest.mock import Mock

import pytest
from crc32c import crc32c

from ottla_broker.log import producer_state
from ottla_broker.log.files import CorruptFileError
from ottla_broker.log.heard_connections import REACTION_SECONDS, Arrival, ConnectionAge
from ottla_broker.log.log import Log
from ottla_broker.log.producer_limit import ProducerLimit
from ottla_broker.log.producer_snapshot import ProducerEntry, decode_snapshot
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.validator import AppendInfo
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import TRANSACTIONAL, read_header
from ottla_protocol.records.control import encode_transaction_marker

from .batches import batch
from .conftest import NOW_MS, Clock, OpenLog

LAST = 2**31 - 1
TIMELY, UNCERTAIN, LATE = Arrival


def send(log: Log, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> AppendInfo:
    data = batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence)
    return log.append(data, leader_epoch=0, now_ms=NOW_MS, from_client=True)


def refusal(log: Log, sequence: int, count: int = 1, **who: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        send(log, sequence, count, **who)
    return caught.value.code


def test_the_last_five_batches_are_answered_again(open_log: OpenLog) -> None:
    log = open_log()
    newest = read_header(batch(2)).max_timestamp
    for number in range(7):
        send(log, number * 2, 2)
    size = log.size
    for number in range(2, 7):
        info = send(log, number * 2, 2)
        assert (info.first_offset, info.last_offset, info.duplicate) == (number * 2, number * 2 + 1, True)
        assert (info.size, info.log_append_time) == (0, newest)
    assert log.size == size
    assert refusal(log, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repetition_is_answered_with_the_first_append_time(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    first = send(log, 0)
    again = log.append(
        batch(1, producer_id=7, epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS + 99, from_client=True
    )
    assert again.duplicate
    assert again.log_append_time == first.log_append_time == NOW_MS


def test_gaps_are_refused_and_other_producers_go_on(open_log: OpenLog) -> None:
    log = open_log()
    send(log, 0, 3)
    assert refusal(log, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, producer_id=8)
    assert send(log, 3).first_offset == 4


def test_an_unknown_producer_may_begin_anywhere(open_log: OpenLog) -> None:
    log = open_log()
    send(log, 41)
    assert refusal(log, 43) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 42)


def test_sequences_begin_again_after_the_largest(open_log: OpenLog) -> None:
    log = open_log()
    send(log, LAST - 1, 2)
    send(log, 0)
    log = open_log()
    assert send(log, LAST - 1, 2).duplicate
    send(log, 1)
    send(log, LAST, 4, producer_id=9)
    assert log.producers.producers[9].last_sequence == 2
    send(log, 3, producer_id=9)


def test_epochs(open_log: OpenLog) -> None:
    log = open_log()
    send(log, 5, epoch=3)
    assert refusal(log, 6, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 6, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(log, 0, epoch=4).duplicate
    assert refusal(log, 6, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


SNAPSHOT = pack(">qhiqiqiq", 7, 1, 4, 4, 2, NOW_MS + 2, -1, -1) + pack(
    ">qhiqiqiq", 8, 0, 0, 5, 0, NOW_MS, -1, -1
)


def snapshot_bytes(count: int, body: bytes) -> bytes:
    covered = pack(">i", count) + body
    return pack(">hI", 1, crc32c(covered)) + covered


def test_a_snapshot_is_kafkas_byte_for_byte(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    send(log, 0, 2, epoch=1)
    send(log, 2, 3, epoch=1)
    send(log, 0, producer_id=8)
    log.roll()
    path = tmp_path / "flights-0" / "00000000000000000006.snapshot"
    assert path.read_bytes() == snapshot_bytes(2, SNAPSHOT)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        snapshot_bytes(2, SNAPSHOT)[:-1],
        snapshot_bytes(3, SNAPSHOT),
        snapshot_bytes(-1, SNAPSHOT),
        b"\0\2" + snapshot_bytes(2, SNAPSHOT)[2:],
        snapshot_bytes(2, SNAPSHOT)[:-1] + b"?",
    ],
)
def test_a_damaged_snapshot_is_found(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        decode_snapshot(data)


def test_state_survives_clean_restarts_by_the_snapshot_alone(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    send(log, 0, 2)
    log.close()
    assert (tmp_path / "flights-0" / "00000000000000000002.snapshot").exists()
    log = open_log(clean=True, recovery_point=2)
    assert send(log, 0, 2).duplicate
    assert refusal(log, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 2)


def test_state_survives_a_crash_by_snapshot_and_log_tail(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=300)
    for number in range(12):
        send(log, number)
    assert len(log.segments) > 2
    log = open_log(segment_bytes=300, recovery_point=8)
    for number in range(7, 12):
        info = send(log, number)
        assert (info.duplicate, info.first_offset) == (True, number)
    send(log, 12)


def test_a_damaged_snapshot_falls_back_to_the_log(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(segment_bytes=300)
    for number in range(12):
        send(log, number)
    log.close()
    for path in (tmp_path / "flights-0").glob("*.snapshot"):
        path.write_bytes(b"nonsense")
    log = open_log(clean=True, recovery_point=12, segment_bytes=300)
    assert send(log, 11).duplicate


def test_truncation_takes_the_state_back(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=300)
    for number in range(12):
        send(log, number)
    log.truncate_to(5)
    assert send(log, 4).duplicate
    assert refusal(log, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 5).first_offset == 5


def test_snapshots_are_removed_with_their_segments_and_stray_ones_at_the_start(
    open_log: OpenLog, tmp_path: Path
) -> None:
    folder = tmp_path / "flights-0"
    log = open_log(segment_bytes=300, file_delete_delay_ms=0)
    for number in range(12):
        send(log, number)
    bases = [segment.base_offset for segment in log.segments]
    assert sorted(int(path.stem) for path in folder.glob("*.snapshot")) == bases[1:]
    log.advance_log_start_offset(bases[2])
    log.delete_old_segments(NOW_MS)
    assert sorted(int(path.stem) for path in folder.glob("*.snapshot")) == bases[3:] or (
        sorted(int(path.stem) for path in folder.glob("*.snapshot")) == bases[2:]
    )
    log.close()
    (folder / "00000000000000000007.snapshot").write_bytes(b"?")
    again = open_log(clean=True, recovery_point=12, log_start_offset=bases[2], segment_bytes=300)
    assert again.log_end_offset == 12
    assert not (folder / "00000000000000000007.snapshot").exists()
    assert (folder / "00000000000000000012.snapshot").exists()


def test_silent_producers_are_forgotten(open_log: OpenLog, now: Clock) -> None:
    log = open_log()
    send(log, 0)
    list(log.producers.expire(NOW_MS + 24 * 60 * 60 * 1000 - 1))
    assert refusal(log, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    list(log.producers.expire(NOW_MS + 24 * 60 * 60 * 1000))
    send(log, 5)
    log.close()
    now.ms += 48 * 60 * 60 * 1000
    assert open_log(clean=True, recovery_point=2).producers.producers == {}


def test_transactions_found_in_a_log_are_followed_and_indexed(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    log.append_as_follower(batch(2, producer_id=7, epoch=0, sequence=0, attributes=0x10))
    assert log.producers.unstable.first_open == 0
    log.append_as_follower(batch(1, base_offset=2, producer_id=8, epoch=0, sequence=0, attributes=0x10))
    for offset, producer_id, commit in ((3, 7, False), (4, 8, True)):
        marker = encode_transaction_marker(
            commit=commit,
            coordinator_epoch=5,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=NOW_MS,
            base_offset=offset,
        )
        log.append_as_follower(marker)
    index = tmp_path / "flights-0" / "00000000000000000000.txnindex"
    entry = pack(">hqqqq", 0, 7, 0, 3, 2)
    assert index.read_bytes() == entry
    assert log.producers.unstable.first_open is None
    again = open_log()
    assert again.log_end_offset == 5
    assert index.read_bytes() == entry
    assert again.producers.producers[7].coordinator_epoch == 5
    again.truncate_to(3)
    assert index.read_bytes() == b""
    assert again.producers.unstable.first_open == 0
    with pytest.raises(KafkaError) as caught:
        again.append(
            batch(1, producer_id=7, epoch=0, sequence=2), leader_epoch=0, now_ms=NOW_MS, from_client=True
        )
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


def end_transaction(log: Log, *, commit: bool, epoch: int = 0) -> None:
    marker = encode_transaction_marker(
        producer_id=7, producer_epoch=epoch, commit=commit, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    log.append(marker, leader_epoch=0, now_ms=NOW_MS, from_client=False)


def write_in_transaction(log: Log, sequence: int, count: int = 1) -> AppendInfo:
    records = batch(count, producer_id=7, epoch=0, sequence=sequence, attributes=TRANSACTIONAL)
    guard = log.producers.verifications.begin(7, sequence, 0, NOW_MS)
    return log.append(records, leader_epoch=0, now_ms=NOW_MS, from_client=True, guard=guard)


def test_a_batch_replaces_one_of_an_aborted_transaction_that_its_producer_has_not_seen(
    open_log: OpenLog,
) -> None:
    """librdkafka uses the sequence numbers again, after an abort, of batches whose answers were lost."""
    log = open_log()
    write_in_transaction(log, 0, 2)
    end_transaction(log, commit=True)
    write_in_transaction(log, 2)
    write_in_transaction(log, 3, 2)
    assert write_in_transaction(log, 2).duplicate
    end_transaction(log, commit=False)
    assert not write_in_transaction(log, 2, 3).duplicate
    assert write_in_transaction(log, 2, 3).duplicate
    assert write_in_transaction(log, 5).first_offset == 10
    # What was committed has been seen.
    end_transaction(log, commit=False)
    assert write_in_transaction(log, 0, 2).duplicate
    assert not write_in_transaction(log, 6).duplicate
    # The transaction has begun with what follows the last one, so nothing is used again.
    assert write_in_transaction(log, 5).duplicate
    log.close()
    again = open_log()
    assert again.producers.producers[7].last_sequence == 6


@pytest.mark.parametrize("commit", [False, True])
def test_a_restart_forgets_no_abort(open_log: OpenLog, commit: bool) -> None:
    """The snapshot has the last batch, and the index of aborted transactions whether it was aborted."""
    log = open_log()
    write_in_transaction(log, 0)
    end_transaction(log, commit=not commit)
    write_in_transaction(log, 1, 2)
    end_transaction(log, commit=commit)
    log.close()
    again = open_log(clean=True, recovery_point=log.log_end_offset)
    # The batch of the next transaction has the sequence numbers of an aborted one, and the same size.
    assert write_in_transaction(again, 1, 2).duplicate == commit
    assert write_in_transaction(again, 1, 2).duplicate


class Heard:
    """What a log's producers make of requests, at times that the test sets."""

    def __init__(self, log: Log) -> None:
        self.now = 10.0
        self.log = log
        log.producers.monotonic = lambda: self.now

    def batch(self, connection: ConnectionAge, sequence: int, *, epoch: int = 0) -> Arrival:
        return self.log.producers.hear(7, epoch, connection, sequence)

    def marker(self, accepted_at: float, epoch: int = 0) -> Arrival:
        return self.log.producers.hear_marker(7, epoch, ConnectionAge(accepted_at))


def test_a_producer_that_writes_on_a_newer_connection_has_left_the_others(open_log: OpenLog) -> None:
    heard = Heard(open_log())
    older, newer = ConnectionAge(5), ConnectionAge(6)
    assert heard.batch(older, 0) is TIMELY  # Before anything is written, too.
    assert heard.batch(newer, 0) is TIMELY
    assert heard.batch(older, 0) is LATE
    # A newer epoch was given out to the producer that sends it; what the one before sends is refused for its epoch.
    assert heard.batch(older, 0, epoch=1) is TIMELY
    assert heard.batch(older, 1, epoch=1) is TIMELY
    assert heard.batch(newer, 1) is TIMELY
    assert heard.batch(older, 2, epoch=1) is TIMELY


def test_what_may_have_been_sent_before_an_abort_is_sent_again(open_log: OpenLog) -> None:
    log = open_log()
    heard = Heard(log)
    connection = ConnectionAge(5)
    end_transaction(log, commit=True)
    assert heard.batch(connection, 0) is TIMELY
    end_transaction(log, commit=False)
    heard.now = 11
    assert heard.batch(connection, 1) is UNCERTAIN
    assert heard.batch(connection, 4) is UNCERTAIN
    heard.now += REACTION_SECONDS / 2
    assert heard.batch(connection, 1) is UNCERTAIN
    heard.now = 12
    assert heard.batch(connection, 1) is TIMELY
    assert heard.batch(connection, 4) is TIMELY
    # The next abort comes after the answer.
    end_transaction(log, commit=False)
    assert heard.batch(connection, 1) is UNCERTAIN
    assert heard.batch(ConnectionAge(13), 1) is TIMELY
    # No one has an epoch before it was given out.
    heard.now = 20
    end_transaction(log, commit=False, epoch=1)
    assert heard.batch(ConnectionAge(11), 1, epoch=1) is UNCERTAIN
    assert heard.batch(ConnectionAge(11), 1, epoch=2) is TIMELY


def test_the_refused_requests_that_are_remembered_are_limited(open_log: OpenLog) -> None:
    heard = Heard(open_log())
    heard.log.producers.hear_from_now()
    connection = ConnectionAge(5)
    for sequence in range(1000):
        assert heard.batch(connection, sequence) is UNCERTAIN
    heard.now += 1
    assert heard.batch(connection, 999) is TIMELY
    assert heard.batch(connection, 0) is TIMELY


def test_a_producer_that_was_forgotten_is_not_trusted_more(open_log: OpenLog) -> None:
    heard = Heard(open_log())
    heard.log.environment.max_producers = 2
    producers = heard.log.producers
    connection = ConnectionAge(5)
    for producer_id in range(3):
        assert producers.hear(producer_id, 0, connection, 0) is TIMELY
    assert producers.hear(0, 0, connection, 0) is UNCERTAIN
    assert producers.hear(2, 0, connection, 0) is TIMELY


def test_a_broker_that_starts_has_only_new_connections(open_log: OpenLog) -> None:
    log = open_log()
    end_transaction(log, commit=False)
    log.close()
    again = Heard(open_log())
    assert again.batch(ConnectionAge(1), 0) is TIMELY
    again.log.producers.hear_from_now()
    assert again.batch(ConnectionAge(9), 0) is UNCERTAIN
    assert again.batch(ConnectionAge(10), 0) is TIMELY


def test_markers_of_a_coordinator_are_heard_on_its_newest_connection(open_log: OpenLog) -> None:
    log = open_log()
    heard = Heard(log)
    # Also the first one, which ends a transaction that has written nothing here.
    assert heard.marker(7) is TIMELY
    end_transaction(log, commit=True)
    assert heard.marker(7) is TIMELY
    assert heard.marker(6) is LATE
    # Other coordinators have other connections; earlier ones are refused for their epoch.
    assert heard.marker(5, 1) is TIMELY
    assert heard.marker(1, -1) is TIMELY
    assert heard.marker(4, 1) is LATE


def test_a_marker_that_another_leader_has_written_makes_connections_old(open_log: OpenLog) -> None:
    log = open_log()
    heard = Heard(log)
    marker = encode_transaction_marker(
        producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=1, timestamp_ms=NOW_MS
    )
    log.append_as_follower(marker)
    assert heard.marker(9, 1) is UNCERTAIN
    assert heard.marker(11, 1) is TIMELY


def test_the_oldest_of_too_many_producers_are_forgotten(open_log: OpenLog) -> None:
    log = open_log()
    log.environment.max_producers = 100
    for producer_id in range(100):
        send(log, 0, producer_id=producer_id)
    # The first ones are not the oldest any longer.
    for producer_id in range(20):
        send(log, 1, producer_id=producer_id)
    send(log, 0, producer_id=100)
    known = set(log.producers.producers)
    assert known == {*range(20), *range(30, 101)}
    assert send(log, 1, producer_id=0).duplicate
    assert send(log, 2, producer_id=0).first_offset == 121
    assert send(log, 1, producer_id=25).first_offset == 122, "an unknown producer may begin anywhere"


def test_a_producer_with_an_open_transaction_is_not_forgotten(open_log: OpenLog) -> None:
    log = open_log()
    log.environment.max_producers = 100
    log.append_as_follower(batch(1, producer_id=0, epoch=0, sequence=0, attributes=0x10))
    for producer_id in range(1, 120):
        send(log, 0, producer_id=producer_id)
    assert 0 in log.producers.producers
    assert len(log.producers.producers) <= 100


def test_producers_that_cannot_be_forgotten_are_looked_at_once_for_many(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Mock()
    monkeypatch.setattr(producer_state, "_log", events)
    log = open_log()
    log.environment.max_producers = 100
    looks: list[int] = []

    def find_oldest(count: int, idle: list[tuple[int, int]]) -> list[tuple[int, int]]:
        looks.append(count)
        return nsmallest(count, idle)

    monkeypatch.setattr(producer_state, "nsmallest", find_oldest)
    for producer_id in range(125):
        log.append_as_follower(
            batch(1, producer_id=producer_id, epoch=0, sequence=0, attributes=0x10, base_offset=producer_id)
        )
    assert looks == [10, 10, 10]
    assert not events.warning.called


def test_the_producers_of_all_partitions_are_limited(open_log: OpenLog) -> None:
    log = open_log()
    small = ProducerStates(log.environment, str(log.path), "other-0")
    small.producers[1] = ProducerEntry(1)
    limit = log.environment.producer_limit = ProducerLimit(100, lambda: [small, log.producers], lambda: 0.0)
    for producer_id in range(400):
        send(log, 0, producer_id=producer_id)
        assert len(log.producers.producers) <= 200
    limit.enforce()
    assert len(log.producers.producers) + 1 <= 100
    assert 399 in log.producers.producers
    assert list(small.producers) == [1]


def test_producers_that_have_only_tried_to_write_are_limited_too_and_forgotten_first(
    open_log: OpenLog,
) -> None:
    log = open_log()
    states, connection = log.producers, ConnectionAge(0.0)
    limit = log.environment.producer_limit = ProducerLimit(100, lambda: [states], lambda: 0.0)
    send(log, 0, producer_id=399)
    for producer_id in range(400):
        states.hear(producer_id, 0, connection, 0)
        assert states.remembered <= 200
    limit.enforce()
    assert states.remembered <= 100
    assert list(states.producers) == [399]
    assert 399 in states.heard
