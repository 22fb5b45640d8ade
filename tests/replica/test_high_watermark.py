"""What waits for a high watermark, woken without a partition around it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla_broker.log.unstable_transactions import UnstableTransactions
from ottla_broker.replica.high_watermark import HighWatermark
from ottla_protocol.errors import ErrorCode, KafkaError


class Fetch:
    """A fetch that adds up what it could read."""

    def __init__(self) -> None:
        self.grown: list[int] = []

    def grow(self, size: int) -> None:
        self.grown.append(size)


def made(end: int = 0) -> tuple[HighWatermark, Any]:
    """A high watermark of 0, and its log of 10 bytes a record, which ends at ``end``."""
    reader = SimpleNamespace(bytes_between=lambda start, until: 10 * (until - start))
    producers = SimpleNamespace(unstable=UnstableTransactions())
    log: Any = SimpleNamespace(log_start_offset=0, log_end_offset=end, reader=reader, producers=producers)
    watermark = HighWatermark()
    watermark.offset = 0
    watermark.use(log)
    watermark.appended(10 * end)
    return watermark, log


def fetching(place: set[Any]) -> Fetch:
    fetch = Fetch()
    place.add(fetch)
    return fetch


def test_the_log_asks_it_for_the_offset() -> None:
    watermark, log = made(5)
    watermark.move_to(3)
    assert log.high_watermark() == 3
    watermark.move_to(2)
    assert log.high_watermark() == 3, "it goes back only with the log"


def test_fetches_count_their_share_of_what_was_hidden() -> None:
    watermark, _ = made(4)
    fetch = fetching(watermark.fetches)
    watermark.move_to(1)
    watermark.move_to(4)
    watermark.move_to(4)
    assert fetch.grown == [10, 30]


def test_a_fetch_of_committed_records_waits_for_the_marker_too() -> None:
    watermark, log = made(4)
    unstable = log.producers.unstable
    unstable.begin(1, producer_id=7)
    fetch = fetching(watermark.committed_fetches)
    watermark.move_to(3)
    assert (watermark.last_stable_offset, fetch.grown) == (1, [10])
    unstable.end(1, marker_offset=3)
    watermark.move_to(4)
    assert (watermark.last_stable_offset, fetch.grown) == (4, [10, 30])


def test_a_fetch_of_committed_records_is_woken_by_a_log_that_cannot_be_read() -> None:
    watermark, log = made(4)

    def fails(start: int, until: int) -> int:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    log.reader.bytes_between = fails
    log.producers.unstable.begin(1, producer_id=7)
    fetch = fetching(watermark.committed_fetches)
    watermark.move_to(3)
    assert fetch.grown
    assert min(fetch.grown) >= 2**31, "it finds the error itself"


def test_waiters_end_by_an_offset_or_an_error() -> None:
    watermark, _ = made(4)
    ended: list[tuple[ErrorCode, int]] = []
    assert not watermark.is_awaited
    for end in (2, 4):
        watermark.wait(end, lambda code, offset: ended.append((code, offset)))
    watermark.move_to(3)
    assert (ended, watermark.is_awaited) == ([(ErrorCode.NONE, 3)], True)
    watermark.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert ended[1:] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert not watermark.is_awaited


def test_truncation_takes_it_back() -> None:
    watermark, _ = made(4)
    fetch = fetching(watermark.fetches)
    watermark.move_to(3)
    watermark.truncated_to(2)
    assert watermark.offset == 2
    watermark.restarted_at(9)
    watermark.appended(10)
    watermark.move_to(10)
    assert fetch.grown[1:] == [10]
