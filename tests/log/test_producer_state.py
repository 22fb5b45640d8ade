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
from ottla_broker.log.log import Log
from ottla_broker.log.producer_limit import ProducerLimit
from ottla_broker.log.producer_state import ProducerEntry, ProducerStates, decode_snapshot
from ottla_broker.log.validator import AppendInfo
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.control import encode_transaction_marker

from .batches import batch
from .conftest import NOW_MS, Clock, OpenLog

LAST = 2**31 - 1


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


def test_the_newest_connection_of_a_producer_is_heard(open_log: OpenLog) -> None:
    log = open_log()
    now = 10.0
    log.producers.monotonic = lambda: now
    late = log.producers.is_late
    assert not late(7, 0, 5, 0)  # Nothing is known of it.
    send(log, 0)
    assert not late(7, 0, 5, 1)
    assert not late(7, 0, 6, 1)
    assert late(7, 0, 5, 1)
    assert not late(7, 1, 5, 0)  # What a newer epoch has sent is not late.
    assert not late(7, 0, 5, 2)  # So this connection isn't given up.


def test_batches_that_are_sent_again_come_by_a_connection_that_is_used(open_log: OpenLog) -> None:
    log = open_log()
    send(log, 0)
    late = log.producers.is_late
    end_transaction(log, commit=False)
    log.producers.hear_from_now()
    before = log.environment.monotonic() - 1
    assert late(7, 0, before, 1)
    assert late(7, 0, before, 4)
    assert late(7, 0, before - 1, 1)
    assert late(7, 0, before, 1)
    assert not late(7, 0, before, 1)
    assert not late(7, 0, before, 4)
    for sequence in range(1000):
        assert late(7, 0, before - 2, sequence)


def test_an_abort_makes_connections_old_and_a_commit_does_not(open_log: OpenLog) -> None:
    log = open_log()
    now = 10.0
    log.producers.monotonic = lambda: now
    end_transaction(log, commit=True)
    assert not log.producers.is_late(7, 0, 5, 0)
    # Also where nothing of the transaction has come.
    end_transaction(log, commit=False)
    assert log.producers.is_late(7, 0, 9, 0)
    assert not log.producers.is_late(7, 0, 11, 0)
    now = 20.0
    end_transaction(log, commit=False, epoch=1)
    assert log.producers.is_late(7, 1, 11, 0)
    assert not log.producers.is_late(7, 2, 11, 0)


def test_a_broker_that_starts_has_only_new_connections(open_log: OpenLog) -> None:
    log = open_log()
    end_transaction(log, commit=False)
    log.close()
    again = open_log()
    assert not again.producers.is_late(7, 0, 0.0, 0)
    again.producers.hear_from_now()
    assert not again.producers.is_late(7, 0, again.environment.monotonic(), 0)


def test_markers_of_a_coordinator_are_heard_on_its_newest_connection(open_log: OpenLog) -> None:
    log = open_log()
    now = 10.0
    log.producers.monotonic = lambda: now
    late = log.producers.is_marker_late
    assert not late(7, 0, 6)  # Nothing is known of it.
    end_transaction(log, commit=True)
    assert not late(7, 0, 6)
    assert not late(7, 0, 7)
    assert late(7, 0, 6)
    # Other coordinators have other connections; earlier ones are refused for their epoch.
    assert not late(7, 1, 5)
    assert not late(7, -1, 1)
    assert late(7, 0, 4)


def test_a_marker_that_another_leader_has_written_makes_connections_old(open_log: OpenLog) -> None:
    log = open_log()
    log.producers.monotonic = lambda: 10.0
    end_transaction(log, commit=True)
    marker = encode_transaction_marker(
        producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp_ms=NOW_MS, base_offset=1
    )
    log.append_as_follower(marker)
    assert log.producers.is_marker_late(7, 0, 9)
    assert not log.producers.is_marker_late(7, 0, 11)


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
