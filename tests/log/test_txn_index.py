"""The index of aborted transactions, and what bounds the last stable offset, against plain searches."""

from __future__ import annotations

from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_broker.log import txn_index
from ottla_broker.log.files import CorruptFileError, Files
from ottla_broker.log.txn_index import AbortedTransaction, TxnIndex, read
from ottla_broker.log.unstable_transactions import MAX_ENDED, NONE_UNSTABLE, UnstableTransactions
from ottla_protocol.records.control import encode_transaction_marker

from .batches import batch
from .conftest import NOW_MS, OpenLog


def history(random: Random, count: int, producers: int) -> list[AbortedTransaction]:
    """Entries as a log with that many transactions at a time gets them."""
    opened: dict[int, int] = {}
    entries = []
    for offset in range(count):
        producer = random.randrange(producers)
        first = opened.pop(producer, None)
        if first is None:
            opened[producer] = offset
        elif random.random() < 0.8:
            stable = min(opened.values(), default=offset + 1)
            entries.append(AbortedTransaction(producer, first, offset, stable))
    return entries


@pytest.mark.parametrize("block", [1, 3, 128])
@given(seed=st.integers(0, 10_000), producers=st.integers(1, 6), data=st.data())
@settings(deadline=None, max_examples=examples(25), suppress_health_check=list(HealthCheck))
def test_overlapping_transactions_are_found(
    tmp_path: Path, monkeypatch: Any, block: int, seed: int, producers: int, data: st.DataObject
) -> None:
    monkeypatch.setattr(txn_index, "_BLOCK", block)
    monkeypatch.setattr(txn_index, "_CHUNK", 2 * block)
    random = Random(seed)
    entries = history(random, 60, producers)
    files = Files(max_open=8)
    path = f"{tmp_path}/0.txnindex"
    files.unlink(path)
    index = TxnIndex(files, path, new=True)
    written = data.draw(st.integers(0, len(entries)))
    for entry in entries[:written]:
        index.add(entry)
    if data.draw(st.booleans()):
        index.close()
        index = TxnIndex(files, path, new=False)
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(0, 60))
        index.truncate_to(cut)
        kept = [each for each in entries[:written] if each.last_offset < cut]
        entries, written = kept + entries[written:], len(kept)
    for entry in entries[written:]:
        if data.draw(st.booleans()):
            index.overlapping(0, 60)
        index.add(entry)
    assert read(files, path) == entries
    start = data.draw(st.integers(0, 60))
    end = data.draw(st.integers(start + 1, 61))
    found, is_complete = index.overlapping(start, end)
    assert found == [each for each in entries if each.last_offset >= start and each.first_offset < end]
    assert is_complete == any(each.last_stable_offset >= end for each in entries if each.last_offset >= start)
    some, _ = index.overlapping(start, end, limit=2)
    assert some == found[: len(some)]
    assert len(some) == len(found) or len(some) > 2
    files.close()


def test_a_damaged_index_is_noticed(tmp_path: Path) -> None:
    files = Files(max_open=8)
    path = f"{tmp_path}/0.txnindex"
    index = TxnIndex(files, path, new=True)
    index.add(AbortedTransaction(1, 2, 3, 4))
    index.file.write(pack(">h", 1), 0)
    with pytest.raises(CorruptFileError):
        index.overlapping(0, 10)
    index.file.truncate(33)
    with pytest.raises(CorruptFileError):
        TxnIndex(files, path, new=True)._read(0, 1) or index.overlapping(0, 10)
    files.close()


@given(
    steps=st.lists(st.tuples(st.sampled_from(["begin", "end", "watermark"]), st.integers(0, 3)), max_size=60)
)
def test_the_first_unstable_offset(steps: list[tuple[str, int]]) -> None:
    unstable = UnstableTransactions()
    opened: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    offset = high_watermark = 0
    for step, number in steps:
        if step == "begin" and number not in opened:
            opened[number] = offset
            unstable.begin(offset, number)
            offset += 1
        elif step == "end" and number in opened:
            first = opened.pop(number)
            unstable.end(first, offset)
            ended.append((first, offset))
            offset += 1
        elif step == "watermark":
            high_watermark = min(offset, high_watermark + number)
            unstable.replicated_to(high_watermark)
        firsts = [*opened.values(), *(first for first, marker in ended if marker >= high_watermark)]
        assert unstable.first_offset == min(firsts, default=NONE_UNSTABLE)
        assert unstable.first_open == min(opened.values(), default=None)


def test_a_recovery_of_many_transactions_takes_little_memory() -> None:
    unstable = UnstableTransactions()
    for number in range(3 * MAX_ENDED):
        unstable.begin(2 * number, 7)
        unstable.end(2 * number, 2 * number + 1)
    assert len(unstable._ended) == MAX_ENDED
    assert unstable.first_offset == 4 * MAX_ENDED


def abort(log: Any, producer_id: int) -> None:
    marker = encode_transaction_marker(
        commit=False, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS
    )
    log.append(marker, leader_epoch=0, now_ms=NOW_MS, from_client=False)


def begin(log: Any, producer_id: int, sequence: int = 0) -> int:
    data = batch(1, producer_id=producer_id, epoch=0, sequence=sequence, attributes=0x10)
    info = log.append(data, leader_epoch=0, now_ms=NOW_MS, from_client=False)
    first: int = info.first_offset
    return first


def test_a_search_goes_through_the_segments(open_log: OpenLog) -> None:
    log = open_log()

    def aborted(offset: int) -> list[tuple[int, int]]:
        end = log.log_end_offset
        found = log.reader.read(offset, 1 << 20, max_offset=end, min_one=True)
        assert found is not None
        return [(each.producer_id, each.first_offset) for each in log.reader.aborted(offset, found, end)]

    long = begin(log, 1)
    assert aborted(0) == []
    first = begin(log, 2)
    abort(log, 2)
    assert aborted(0) == [(2, first)]
    log.roll()
    assert aborted(3) == [] if log.log_end_offset > 3 else True
    second = begin(log, 2, 1)
    abort(log, 2)
    log.roll()
    begin(log, 3)
    log.roll()
    abort(log, 1)
    assert aborted(0) == [(2, first), (1, long)]
    assert aborted(second) == [(2, second), (1, long)]
    assert aborted(5) == [(1, long)]
    assert log.log_end_offset == 7


def test_an_index_that_cannot_be_written_takes_the_log_out_of_use(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker is in the log, so the state must not go on without the index."""
    log = open_log()
    begin(log, 1)

    def fail(self: Any, entry: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TxnIndex, "add", fail)
    from ottla_protocol.errors import ErrorCode, KafkaError

    with pytest.raises(KafkaError) as caught:
        abort(log, 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None
    monkeypatch.undo()
    again = open_log()
    assert again.log_end_offset == 2
    assert again.segments[0].txn_index.count == 1
